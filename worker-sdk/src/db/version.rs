//! Which sets of SQL functions a binary can speak to. SDK and server judge by the same rule.
//!
//! Within a major version a verb's signature gains only trailing parameters with defaults, and its
//! answer only columns, which callers name; a new meaning is a new verb. So a later set understands
//! every call of an earlier one, and servers, workers and services may be renewed in any order after
//! the schema. An earlier set lacks verbs, and one of another major version may mean other things.
//! Workers and clients need few verbs, so they also speak to each set from [`OLDEST_SCHEMA`] on.

use crate::error::{Error, ErrorKind};

/// Number of the set of SQL functions this crate speaks to. The thousands are the major version.
pub const SCHEMA_VERSION: i32 = 3;

/// Number of the oldest set that has all verbs which a worker and a client call, but for acts of owners
/// that came later. `./x upgrade` proves it under load. A server needs [`SCHEMA_VERSION`].
pub const OLDEST_SCHEMA: i32 = 1;

const SETS_OF_A_MAJOR: i32 = 1000;

/// How a database's set of functions fits this binary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SchemaCompatibility {
    /// It is this binary's.
    Same,
    /// A later one of the same major version: it will do.
    Later,
    /// It lacks what a server or an owner may call: migrate. Workers and clients speak to it from
    /// [`OLDEST_SCHEMA`] on.
    TooOld,
    /// Another major version: renew the binary.
    TooNew,
}

impl SchemaCompatibility {
    /// How the set with this number fits.
    pub fn of(found: i32) -> Self {
        match found {
            SCHEMA_VERSION => Self::Same,
            _ if found < SCHEMA_VERSION => Self::TooOld,
            _ if found / SETS_OF_A_MAJOR == SCHEMA_VERSION / SETS_OF_A_MAJOR => Self::Later,
            _ => Self::TooNew,
        }
    }
}

/// Refuses a database this crate cannot speak to; no number: nothing was ever installed there.
pub(crate) fn check(found: Option<i32>) -> Result<(), Error> {
    let found = found.unwrap_or(0);
    match SchemaCompatibility::of(found) {
        SchemaCompatibility::Same => Ok(()),
        SchemaCompatibility::Later => {
            tracing::debug!(found, ours = SCHEMA_VERSION, "the schema is newer than this binary");
            Ok(())
        }
        SchemaCompatibility::TooOld if found >= OLDEST_SCHEMA => {
            tracing::debug!(found, ours = SCHEMA_VERSION, "the schema is older than this binary");
            Ok(())
        }
        SchemaCompatibility::TooOld => Err(incompatible(format!(
            "the schema's function set {found} is older than the oldest that this binary can use, {OLDEST_SCHEMA}"
        ))
        .hinting("run `tuskline migrate`")),
        SchemaCompatibility::TooNew => Err(incompatible(format!(
            "the schema's function set {found} is of a later major version than this binary's {SCHEMA_VERSION}"
        ))
        .hinting("update the binary")),
    }
}

fn incompatible(text: String) -> Error {
    Error::new(ErrorKind::Incompatible, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_set_of_the_same_major_version_will_do_and_no_other() {
        assert_eq!(SchemaCompatibility::of(SCHEMA_VERSION), SchemaCompatibility::Same);
        assert_eq!(SchemaCompatibility::of(SCHEMA_VERSION + 1), SchemaCompatibility::Later);
        let last = (SCHEMA_VERSION / SETS_OF_A_MAJOR + 1) * SETS_OF_A_MAJOR - 1;
        assert_eq!(SchemaCompatibility::of(last), SchemaCompatibility::Later);
        assert_eq!(SchemaCompatibility::of(last + 1), SchemaCompatibility::TooNew);
        assert_eq!(SchemaCompatibility::of(i32::MAX), SchemaCompatibility::TooNew);
        for older in [SCHEMA_VERSION - 1, 0, -1, i32::MIN] {
            assert_eq!(SchemaCompatibility::of(older), SchemaCompatibility::TooOld);
        }
        assert_eq!(check(None).unwrap_err().hint(), Some("run `tuskline migrate`"));
    }

    #[test]
    fn workers_and_clients_speak_to_the_sets_from_the_oldest_one_on() {
        for set in OLDEST_SCHEMA..=SCHEMA_VERSION {
            check(Some(set)).unwrap();
        }
        let error = check(Some(OLDEST_SCHEMA - 1)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Incompatible);
        assert_eq!(error.hint(), Some("run `tuskline migrate`"));
    }
}
