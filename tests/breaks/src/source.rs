//! The functions and views of the SQL, as they stand in its source.

use std::collections::HashSet;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::token::{GAP, Token, is_word, tokens};

/// Where the SQL is.
const FUNCTIONS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../migrations/functions");

/// Words of PostgreSQL that our SQL does without and a break uses.
const POSTGRES: [&str; 6] =
    ["access", "concat", "division_by_zero", "exclusive", "pg_column_size", "reverse"];

/// The statement that makes a function or a view.
#[derive(Debug, Clone)]
pub struct Statement {
    pub schema: String,
    pub name: String,
    pub text: String,
    tokens: Vec<Token>,
    /// Its words, in lower case, to pass it over quickly.
    words: HashSet<String>,
}

/// A place where an anchor fits, with what its gaps stand for.
pub struct Hit {
    pub place: Range<usize>,
    pub gaps: Vec<Range<usize>>,
}

impl Statement {
    fn new(schema: &str, name: &str, text: String) -> Self {
        let tokens = tokens(&text);
        let words = tokens.iter().map(|token| token.text(&text).to_lowercase()).collect();
        Self { schema: schema.into(), name: name.into(), text, tokens, words }
    }

    /// The statement with a place of its text replaced.
    pub fn with(&self, place: Range<usize>, by: &str) -> Self {
        let mut text = self.text.clone();
        text.replace_range(place, by);
        Self::new(&self.schema, &self.name, text)
    }

    /// Every place where an anchor fits; none begins before the one before it ends.
    pub fn hits(&self, anchor: &[&str]) -> Vec<Hit> {
        let has = |token: &&str| *token == GAP || self.words.contains(&token.to_lowercase());
        if !anchor.iter().all(has) {
            return Vec::new();
        }
        let (mut hits, mut at) = (Vec::new(), 0);
        while at < self.tokens.len() {
            match self.hit_at(at, anchor) {
                Some((hit, end)) => {
                    hits.push(hit);
                    at = end;
                }
                None => at += 1,
            }
        }
        hits
    }

    /// Whether an anchor fits at a token, and the token after its end.
    fn hit_at(&self, begin: usize, anchor: &[&str]) -> Option<(Hit, usize)> {
        let mut parts = anchor.split(|token| *token == GAP);
        let mut at = begin;
        let first = parts.next().filter(|part| !part.is_empty() && self.fits(at, part))?;
        at += first.len();
        let mut gaps = Vec::new();
        for part in parts {
            let next = self.next(at, part)?;
            let begins = self.tokens[at].start;
            gaps.push(begins..self.tokens[next - 1].end.max(begins));
            at = next + part.len();
        }
        let place = self.tokens[begin].start..self.tokens[at - 1].end;
        Some((Hit { place, gaps }, at))
    }

    /// The first place from a token on where a part fits, without a semicolon before it.
    fn next(&self, from: usize, part: &[&str]) -> Option<usize> {
        for at in from..self.tokens.len() {
            if self.fits(at, part) {
                return Some(at);
            }
            if self.word(at) == ";" {
                return None;
            }
        }
        None
    }

    fn fits(&self, at: usize, part: &[&str]) -> bool {
        part.iter().enumerate().all(|(offset, token)| {
            at + offset < self.tokens.len() && self.word(at + offset).eq_ignore_ascii_case(token)
        })
    }

    fn word(&self, at: usize) -> &str {
        self.tokens[at].text(&self.text)
    }
}

/// Every function and view.
#[derive(Debug)]
pub struct Sources {
    pub statements: Vec<Statement>,
    /// The words of all files, and the names with a schema as they are written.
    words: HashSet<String>,
}

impl Sources {
    /// Reads the source files.
    pub fn read() -> Result<Self, String> {
        let mut sources = Self { statements: Vec::new(), words: HashSet::new() };
        for file in files(Path::new(FUNCTIONS), "sql")? {
            sources.add(&read(&file)?);
        }
        let tables = Path::new(FUNCTIONS).parent().unwrap_or(Path::new("."));
        for file in files(tables, "sql")? {
            sources.learn(&read(&file)?);
        }
        Ok(sources)
    }

    /// Sources of one text.
    #[cfg(test)]
    pub fn of(text: &str) -> Self {
        let mut sources = Self { statements: Vec::new(), words: HashSet::new() };
        sources.add(text);
        sources.learn(text);
        sources
    }

    /// Takes the statements of a file that make a function or a view.
    fn add(&mut self, text: &str) {
        let tokens = tokens(text);
        let ends = |token: &Token| token.outside && token.text(text) == ";";
        for statement in tokens.split_inclusive(ends) {
            let words: Vec<_> = statement.iter().map(|token| token.text(text)).collect();
            let named = match words[..] {
                ["create", "or", "replace", "function" | "view", ..] => 4,
                ["create", "function" | "view", ..] => 2,
                _ => continue,
            };
            let Some(name) = statement.get(named) else { continue };
            let (start, end) = (statement[named - 1].start, statement[statement.len() - 1].end);
            let text_of = format!("create or replace {}", &text[start..end]);
            let schema = name.schema(text).unwrap_or("public");
            self.statements.push(Statement::new(schema, name.text(text), text_of));
        }
    }

    /// Remembers the words of a file.
    fn learn(&mut self, text: &str) {
        for token in tokens(text) {
            self.words.insert(token.text(text).to_lowercase());
            self.words.insert(text[token.start..token.end].to_lowercase());
        }
    }

    /// The words of a text that stand nowhere in the SQL: names that have gone.
    pub fn unknown<'a>(&self, text: &'a str) -> Vec<&'a str> {
        let outside = tokens(text).into_iter().filter(|token| token.outside);
        let written = outside.map(|token| &text[token.start..token.end]);
        let named = |word: &&str| is_word(word) && word.parse::<f64>().is_err();
        let known =
            |word: &&str| POSTGRES.contains(word) || self.words.contains(&word.to_lowercase());
        written.filter(named).filter(|word| !known(word)).collect()
    }
}

/// The files of a directory and of those below it with this extension, in order of their names.
pub fn files(directory: &Path, extension: &str) -> Result<Vec<PathBuf>, String> {
    let mut found = Vec::new();
    let entries = std::fs::read_dir(directory).map_err(|error| of(directory, &error))?;
    for entry in entries {
        let path = entry.map_err(|error| of(directory, &error))?.path();
        if path.is_dir() {
            found.extend(files(&path, extension)?);
        } else if path.extension().is_some_and(|its| its == extension) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// The text of a file.
pub fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| of(path, &error))
}

fn of(path: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}", path.display())
}
