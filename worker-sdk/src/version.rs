//! Which sets of SQL functions a binary can speak to. SDK and server judge by the same rule.
//!
//! Within a major version a verb's signature gains only trailing parameters with defaults, and its
//! answer only columns, which callers name; a new meaning is a new verb. So a later set understands
//! every call of an earlier one, and servers, workers and services may be renewed in any order after
//! the schema. An earlier set lacks verbs, and one of another major version may mean other things.

use crate::Error;

/// Number of the set of SQL functions this crate speaks to. The thousands are the major version.
pub const FUNCTION_SET: i32 = 1;

const SETS_OF_A_MAJOR: i32 = 1000;

/// How a database's set of functions fits this binary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fit {
    /// It is this binary's.
    Same,
    /// A later one of the same major version: it will do.
    Later,
    /// It lacks what this binary needs: migrate.
    TooOld,
    /// Another major version: renew the binary.
    TooNew,
}

impl Fit {
    /// How the set with this number fits.
    pub fn of(found: i32) -> Self {
        match found {
            FUNCTION_SET => Self::Same,
            _ if found < FUNCTION_SET => Self::TooOld,
            _ if found / SETS_OF_A_MAJOR == FUNCTION_SET / SETS_OF_A_MAJOR => Self::Later,
            _ => Self::TooNew,
        }
    }
}

/// Refuses a database this crate cannot speak to; no number: nothing was ever installed there.
pub(crate) fn check(found: Option<i32>) -> Result<(), Error> {
    let found = found.unwrap_or(0);
    match Fit::of(found) {
        Fit::Same => Ok(()),
        Fit::Later => {
            tracing::debug!(found, ours = FUNCTION_SET, "the schema is newer than this binary");
            Ok(())
        }
        Fit::TooOld => Err(Error::Incompatible(format!(
            "the schema's function set {found} is older than this binary's {FUNCTION_SET}: run `tuskline migrate`"
        ))),
        Fit::TooNew => Err(Error::Incompatible(format!(
            "the schema's function set {found} is of a later major version than this binary's {FUNCTION_SET}: update the binary"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_set_of_the_same_major_version_will_do_and_no_other() {
        assert_eq!(Fit::of(FUNCTION_SET), Fit::Same);
        assert_eq!(Fit::of(FUNCTION_SET + 1), Fit::Later);
        let last = (FUNCTION_SET / SETS_OF_A_MAJOR + 1) * SETS_OF_A_MAJOR - 1;
        assert_eq!(Fit::of(last), Fit::Later);
        assert_eq!(Fit::of(last + 1), Fit::TooNew);
        assert_eq!(Fit::of(i32::MAX), Fit::TooNew);
        for older in [FUNCTION_SET - 1, 0, -1, i32::MIN] {
            assert_eq!(Fit::of(older), Fit::TooOld);
        }
        assert!(check(None).unwrap_err().to_string().ends_with("run `tuskline migrate`"));
    }
}
