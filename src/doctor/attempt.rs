//! Turns an examination that failed into a finding.
//!
//! Promises: a lock, a deadline or a missing function fails one line, and the next examinations are
//! made. A missing right, a wrong call and a lost connection end the command, because they concern
//! each line.

use std::borrow::Cow;

use anyhow::{Error, Result};
use tokio_postgres::error::{DbError, Severity, SqlState};

use super::finding::{Finding, Found};
use super::remedy;

/// The finding, or a failure that says why it was not examined.
///
/// # Errors
/// An error that concerns every line, as a lost connection.
pub fn settle(examined: impl Into<Cow<'static, str>>, found: Result<Found>) -> Result<Finding> {
    Ok(Finding::new(examined, found.or_else(not_examined)?))
}

fn not_examined(error: Error) -> Result<Found> {
    let Some(cause) = error.downcast_ref::<tokio_postgres::Error>() else { return Err(error) };
    let refused = |one: &&DbError| one.parsed_severity() == Some(Severity::Error);
    let Some(refusal) = cause.as_db_error().filter(refused) else { return Err(error) };
    let code = refusal.code();
    let (hint, remedy) = match *code {
        SqlState::INSUFFICIENT_PRIVILEGE => return Err(error),
        SqlState::LOCK_NOT_AVAILABLE | SqlState::QUERY_CANCELED => {
            (": the line locks names the session", remedy::LOCKED)
        }
        SqlState::UNDEFINED_FUNCTION => ("", remedy::MIGRATE),
        _ => ("", remedy::REPAIR),
    };
    let said = format!("not examined: {} ({}){hint}", refusal.message(), code.code());
    Ok(Found::fail(said, remedy))
}
