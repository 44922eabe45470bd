//! The lists of breaks.

use std::path::Path;

use crate::edit::{ARROW, Edit};
use crate::source::{files, read as text_of};

/// Where the lists are.
const LISTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/list");

/// A break, and all checks that must see it.
#[derive(Debug, Clone, Default)]
pub struct Break {
    /// File and line of its list.
    pub place: String,
    /// The description in the list.
    pub text: String,
    /// The changes to functions and views.
    pub edits: Vec<Edit>,
    /// Statements that do further harm.
    pub statements: Vec<String>,
    /// The checks that must see it.
    pub witnesses: Vec<Witness>,
}

/// A check that must see a break.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Witness {
    /// A test of `tests/it`, like `stale_results::a_late_result_after_reclaim_changes_nothing`.
    Test(String),
    /// Another tester, like `fault`, and the name that it has for the break.
    Other(String, String),
}

impl Witness {
    /// Reads a line of a list for the tests of this file.
    fn read(line: &str, tests: &str) -> Self {
        match line.split_once(": ") {
            Some((tester, name)) => Self::Other(tester.into(), name.into()),
            None if line.contains("::") => Self::Test(line.into()),
            None => Self::Test(format!("{tests}::{line}")),
        }
    }

    /// Whether it is this tester, with this name.
    pub fn is(&self, tester: &str, name: &str) -> bool {
        matches!(self, Self::Other(its, of) if its == tester && of == name)
    }
}

impl Break {
    /// The tests of `tests/it` that must see it.
    pub fn tests(&self) -> impl Iterator<Item = &str> {
        self.witnesses.iter().filter_map(|witness| match witness {
            Witness::Test(name) => Some(&**name),
            Witness::Other(..) => None,
        })
    }

    fn add(&mut self, line: &str) -> Result<(), String> {
        match line.strip_prefix("sql: ") {
            Some(statement) => self.statements.push(statement.into()),
            None => self.edits.push(Edit::read(line)?),
        }
        Ok(())
    }
}

/// Reads every list.
pub fn read() -> Result<Vec<Break>, String> {
    let mut list = Vec::new();
    for file in files(Path::new(LISTS), "txt")? {
        let tests = file.file_stem().unwrap_or_default().to_string_lossy();
        list.extend(parse(&tests, &text_of(&file)?)?);
    }
    Ok(list)
}

/// Reads one list, for a file of tests.
pub fn parse(tests: &str, text: &str) -> Result<Vec<Break>, String> {
    let mut list: Vec<Break> = Vec::new();
    for (place, line) in lines(tests, text) {
        let last = list.last_mut();
        if let Some(witness) = line.strip_prefix(' ') {
            let last = last.ok_or_else(|| format!("{place}: no break before the test"))?;
            last.witnesses.push(Witness::read(witness.trim(), tests));
            continue;
        }
        let same = last.is_some_and(|last| last.witnesses.is_empty());
        if !same {
            list.push(Break { place: place.clone(), ..Break::default() });
        }
        let Some(last) = list.last_mut() else { continue };
        last.add(&line).map_err(|error| format!("{place}: {error}"))?;
        last.text += &line;
        last.text.push('\n');
    }
    match list.iter().find(|one| one.witnesses.is_empty()) {
        Some(one) => Err(format!("{}: no test is named", one.place)),
        None => Ok(list),
    }
}

/// The lines with their places. A line goes on in the next after a backslash or before an arrow.
fn lines(tests: &str, text: &str) -> Vec<(String, String)> {
    let mut lines: Vec<(String, String)> = Vec::new();
    let mut goes_on = false;
    for (number, line) in text.lines().enumerate() {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        let joins = goes_on || line.starts_with(ARROW);
        goes_on = line.ends_with('\\');
        let line = line.trim_end_matches('\\').trim_end();
        match lines.last_mut().filter(|_| joins) {
            Some((_, before)) => *before = [before, line].join(" "),
            None => lines.push((format!("list/{tests}.txt:{}", number + 1), line.into())),
        }
    }
    lines
}
