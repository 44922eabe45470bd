//! Breaks of the SQL, and the tests that must see each of them: a check never seen red is no check.
//!
//! The lists are in `list/`, a file for each file of tests. A list knows no line and no file of the
//! SQL: it names tokens, so it survives new line breaks, other schemas and moved functions.
//! README.md tells how to write a break.

mod edit;
mod list;
mod source;
mod token;

pub use list::{Break, Witness};
use source::Sources;

/// The setting with which a run of tests takes SQL that it does to its template.
pub const HARM: &str = "TUSKLINE_TEST_HARM";

/// The message of a run whose template refuses that SQL.
pub const NOT_DONE: &str = "the harm was not done";

/// The breaks, with the source that they break.
#[derive(Debug)]
pub struct Breaks {
    sources: Sources,
    /// Every break of the lists.
    pub list: Vec<Break>,
}

impl Breaks {
    /// Reads the source and the lists.
    pub fn read() -> Result<Self, String> {
        Ok(Self { sources: Sources::read()?, list: list::read()? })
    }

    /// The SQL that does a break.
    pub fn sql(&self, one: &Break) -> Result<String, String> {
        self.sql_of_all(&[one])
    }

    /// The breaks that this tester knows by this name.
    pub fn of(&self, tester: &str, name: &str) -> Vec<&Break> {
        let knows = |one: &&Break| one.witnesses.iter().any(|witness| witness.is(tester, name));
        self.list.iter().filter(knows).collect()
    }

    /// The names that this tester has for breaks.
    pub fn names(&self, tester: &str) -> impl Iterator<Item = &str> {
        let witnesses = self.list.iter().flat_map(|one| &one.witnesses);
        witnesses.filter_map(move |witness| match witness {
            Witness::Other(its, name) => (its == tester).then_some(&**name),
            Witness::Test(_) => None,
        })
    }

    /// The SQL that does every break that this tester knows by this name.
    pub fn sql_of(&self, tester: &str, name: &str) -> Result<String, String> {
        match &*self.of(tester, name) {
            [] => Err(format!("no break has the line `{tester}: {name}`")),
            breaks => self.sql_of_all(breaks),
        }
    }

    fn sql_of_all(&self, breaks: &[&Break]) -> Result<String, String> {
        let edits = breaks.iter().flat_map(|one| &one.edits);
        let edited = edit::sql(&self.sources, edits);
        let places: Vec<_> = breaks.iter().map(|one| &*one.place).collect();
        let edited = edited.map_err(|error| format!("{}: {error}", places.join(", ")))?;
        let statements = breaks.iter().flat_map(|one| &one.statements);
        Ok(statements.map(|statement| format!("{statement};\n")).chain([edited]).collect())
    }

    /// Faults of the list: an anchor that is gone, a name in a replacement that is gone.
    pub fn faults(&self) -> Vec<String> {
        self.list.iter().filter_map(|one| self.fault(one)).collect()
    }

    fn fault(&self, one: &Break) -> Option<String> {
        if let Err(error) = self.sql(one) {
            return Some(error);
        }
        let texts = one.edits.iter().map(|edit| &edit.text);
        let unknown: Vec<_> = texts.flat_map(|text| self.sources.unknown(text)).collect();
        let known = unknown.is_empty();
        (!known).then(|| format!("{}: nowhere in the SQL: {}", one.place, unknown.join(", ")))
    }
}

/// SQL that edits a function or a view for a test's own purpose, like `anchor ==> text`.
pub fn edited(edit: &str) -> Result<String, String> {
    edit::sql(&Sources::read()?, [&edit::Edit::read(edit)?])
}

#[cfg(test)]
mod tests;
