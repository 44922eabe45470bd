//! `doctor --monitoring`: exit codes and first line as monitoring programs expect them of a plugin.
//!
//! Promises: 0 each line is ok, 1 one warns, 2 one fails or the database does not answer, 3 the examination
//! could not be made. The first line on standard output says which, and why.

use std::process::ExitCode;

use anyhow::Result;
use serde_json::json;

use super::report;
use crate::cli::failure::Failed;
use crate::cli::global::{Global, Outcome};
use crate::cli::{failure, output, plugin};
use crate::doctor::{Finding, Verdict, schema};
use crate::recovery::Failure;

/// Writes the summary and what is not ok, and gives the code.
///
/// # Errors
/// Standard output cannot be written to.
pub fn put(global: &Global, found: Result<Vec<Finding>>) -> Outcome {
    match found.and_then(of_a_schema) {
        Ok(findings) => {
            report::put_monitored(global, &findings)?;
            Ok(ExitCode::from(code(&findings)))
        }
        Err(error) => {
            let (code, state) = code_of(&error);
            let said = failure::line(&error);
            let line = plugin::line(state, &said);
            output::answer(global, &json!({"error": output::clean(&said)}), &line)?;
            Ok(ExitCode::from(code))
        }
    }
}

/// Without a schema there is nothing to examine, as with `--verify`.
fn of_a_schema(findings: Vec<Finding>) -> Result<Vec<Finding>> {
    match findings.iter().any(|one| one.examined == schema::SCHEMA && one.said == schema::ABSENT) {
        true => Err(Failed {
            what: "the schema is absent".to_owned(),
            hint: Some("run `tuskline migrate`".to_owned()),
        }
        .into()),
        false => Ok(findings),
    }
}

fn code(findings: &[Finding]) -> u8 {
    let worst = |verdict| findings.iter().any(|finding| finding.verdict == verdict);
    if worst(Verdict::Fail) { 2 } else { u8::from(worst(Verdict::Warn)) }
}

/// A database that does not answer runs no task, which is critical. With any other error the
/// examination itself failed.
fn code_of(error: &anyhow::Error) -> (u8, &'static str) {
    let of_database = error.chain().any(|cause| cause.is::<tokio_postgres::Error>());
    match of_database && Failure::of(error.as_ref()) == Failure::Away {
        true => (2, "CRITICAL"),
        false => (plugin::UNKNOWN, "UNKNOWN"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Found;
    use crate::doctor::remedy;

    #[test]
    fn the_code_is_that_of_the_worst_line() {
        let ok = || Finding::new("a", Found::ok(""));
        let warn = || Finding::new("b", Found::warn("", remedy::SERVE));
        let fail = Finding::new("c", Found::fail("", remedy::SERVE));
        assert_eq!(code(&[ok()]), 0);
        assert_eq!(code(&[ok(), warn()]), 1);
        assert_eq!(code(&[warn(), fail]), 2);
    }
}
