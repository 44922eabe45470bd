//! The words of comments and of definitions.
//!
//! The way of counting. A comment is a run of lines that begin with `//`, or the end of a line of
//! code behind ` // `. A blank line, a list item, or `.`, `!` or `?` before a capital or a sign ends a
//! sentence. In Rust a name is defined behind a keyword (`fn`, `let`, ...), or as a field or parameter
//! before its type. In SQL it is defined before its type, or behind `as` or a keyword. A file counts
//! once for each field or parameter, because a literal of a struct looks like its definition.

use std::collections::BTreeSet;

/// Words that open a sentence without a named subject.
const OPENERS: [&str; 7] = ["Who", "Whoever", "Whose", "What", "Whatever", "Of", "Those"];

/// Names that the words of the field replace; a plural counts, too.
const PRIVATE: [&str; 6] = ["hand", "rhythm", "twin", "crew", "told", "trouble"];

/// Keywords of Rust before the name that they define.
const KEYWORDS: [&str; 8] = ["fn", "struct", "enum", "const", "static", "type", "trait", "mod"];

/// Words of SQL before the name that they define.
const DEFINING: [&str; 5] = ["function", "table", "view", "as", "column"];

/// Types of SQL behind the name of a column, a parameter or a variable.
const TYPES: [&str; 12] = [
    "bigint",
    "boolean",
    "bytea",
    "double",
    "integer",
    "interval",
    "json",
    "jsonb",
    "numeric",
    "smallint",
    "text",
    "timestamptz",
];

/// The sentences of the comments of a Rust text.
pub fn sentences(text: &str) -> Vec<String> {
    let (mut found, mut paragraph) = (Vec::new(), String::new());
    for line in text.lines() {
        let (code, comment) = comment(line);
        let comment = comment.map(str::trim).unwrap_or_default();
        let item = comment.strip_prefix(['-', '*', '#', '|']).map(str::trim_start);
        if !code.is_empty() || comment.is_empty() || item.is_some() {
            divide(&mut paragraph, &mut found);
        }
        paragraph.push_str(item.unwrap_or(comment));
        paragraph.push(' ');
        if !code.is_empty() {
            divide(&mut paragraph, &mut found);
        }
    }
    divide(&mut paragraph, &mut found);
    found
}

/// Whether a sentence opens with a word that names no subject.
pub fn opens_privately(sentence: &str) -> bool {
    let first = sentence.trim_start_matches(['(', '"', '`']);
    let first = first.split(|c: char| !c.is_alphanumeric() && c != '-').next().unwrap_or_default();
    OPENERS.contains(&first)
}

/// The definitions in a text that have a private name.
pub fn private_names(text: &str, extension: &str) -> Vec<String> {
    let (code, is_sql) = match extension {
        "sql" => (crate::sql::code(text), true),
        _ => (text.lines().map(|line| comment(line).0).collect::<Vec<_>>().join("\n"), false),
    };
    let tokens = tokens(&code);
    let (mut found, mut typed) = (Vec::new(), BTreeSet::new());
    for (at, token) in tokens.iter().enumerate() {
        if !is_private(token) {
            continue;
        }
        let next = |n: usize| tokens.get(at + n).copied().unwrap_or_default();
        let back = |n: usize| at.checked_sub(n).map_or("", |at| tokens[at]);
        let defined = match is_sql {
            true => DEFINING.contains(&back(1)) || back(1) == "." && back(3) == "function",
            false => KEYWORDS.contains(&back(1)) || is_bound(&tokens[..at]),
        };
        let is_typed = match is_sql {
            true => TYPES.contains(&next(1)),
            false => next(1) == ":" && next(2) != ":" && back(1) != ":",
        };
        if defined || is_typed && typed.insert(*token) {
            found.push((*token).to_owned());
        }
    }
    found
}

/// The code of a line, and its comment.
fn comment(line: &str) -> (&str, Option<&str>) {
    let start = line.trim_start();
    if let Some(comment) = start.strip_prefix("//") {
        return ("", Some(comment.trim_start_matches(['/', '!'])));
    }
    match start.split_once(" // ") {
        Some((code, comment)) if !comment.contains('"') => (code.trim_end(), Some(comment)),
        _ => (start, None),
    }
}

/// Moves the sentences of a paragraph.
fn divide(paragraph: &mut String, found: &mut Vec<String>) {
    let text = std::mem::take(paragraph);
    let (mut rest, mut from) = (text.trim(), 0);
    while let Some(at) = rest[from..].find(['.', '!', '?']).map(|at| from + at + 1) {
        let next = rest[at..].trim_start();
        let divides = next.len() < rest.len() - at
            && next.starts_with(|c: char| c.is_uppercase() || "`\"'([".contains(c));
        if divides {
            found.push(rest[..at].to_owned());
            (rest, from) = (next, 0);
        } else {
            from = at;
        }
    }
    found.extend((!rest.is_empty()).then(|| rest.to_owned()));
}

fn is_private(name: &str) -> bool {
    let name = name.to_lowercase();
    let name =
        ["p_", "v_", "_"].iter().find_map(|prefix| name.strip_prefix(prefix)).unwrap_or(&name);
    PRIVATE.iter().any(|word| name == *word || name.strip_suffix('s') == Some(word))
}

/// Whether the tokens end in the pattern of a `let` or a `for`.
fn is_bound(tokens: &[&str]) -> bool {
    let pattern =
        tokens.iter().rev().take_while(|token| !["=", ":", ";", "{", "}", "in"].contains(*token));
    pattern.take(12).any(|token| ["let", "for"].contains(token))
}

/// Words and signs of a code.
fn tokens(code: &str) -> Vec<&str> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let (mut tokens, mut rest) = (Vec::new(), code.trim_start());
    while let Some(first) = rest.chars().next() {
        let end = match is_word(first) {
            true => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
            false => first.len_utf8(),
        };
        tokens.push(&rest[..end]);
        rest = rest[end..].trim_start();
    }
    tokens
}
