//! Errors in words: one line, and what to do about it.
//!
//! Promises: no backtrace, no password; exit code 2 when the call was wrong, 1 for the rest.

use std::process::ExitCode;

use clap::error::ErrorKind;
use serde_json::json;
use tokio_postgres::error::{DbError, SqlState};
use tuskline_sdk::TlsRefusal;

use super::{output, plugin, secrets};
use crate::session::ErrorChain;
use crate::{migrate, serve};

/// The call was wrong in a way that clap cannot see.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct WrongCall(pub String);

/// It failed, and something can be done about it.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub struct Failed {
    /// The error.
    pub what: String,
    /// The remedy.
    pub hint: Option<String>,
}

/// It failed, without advice.
pub fn failed(what: impl Into<String>) -> anyhow::Error {
    Failed { what: what.into(), hint: None }.into()
}

/// The text that reports an error.
struct Report {
    what: String,
    hint: Option<String>,
    code: u8,
}

/// Tells an error on standard error, and gives the exit code.
pub fn report(error: &anyhow::Error, json: bool) -> ExitCode {
    put(&in_words(error), json)
}

/// An error and its hint in one line.
pub fn line(error: &anyhow::Error) -> String {
    let Report { what, hint, .. } = in_words(error);
    secrets::hide(&hint.map_or(what.clone(), |hint| format!("{what}; {hint}")))
}

fn put(report: &Report, json: bool) -> ExitCode {
    let what = output::clean(&secrets::hide(&report.what));
    let hint = report.hint.as_ref().map(|hint| output::clean(&secrets::hide(hint)));
    if json {
        eprintln!("{}", output::escaped(&json!({"error": what, "hint": hint}).to_string()));
    } else {
        eprintln!("error: {what}");
        if let Some(hint) = hint {
            eprintln!("hint: {hint}");
        }
    }
    ExitCode::from(report.code)
}

/// Tells what clap found wrong with the call, in our form; what it prints on demand, as it is.
pub fn report_usage(refused: &clap::Error) -> ExitCode {
    let code = u8::try_from(refused.exit_code()).unwrap_or(2);
    let help = ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
    if !refused.use_stderr() || refused.kind() == help {
        // A closed standard output is no error: the reader has stopped.
        let _ = refused.print();
        return ExitCode::from(code);
    }
    let (what, hint) = usage_in_words(&refused.render().to_string());
    let what = secrets::hide(&what);
    let hint = match secrets::is_hidden(&what) {
        true => {
            "give the address of the database by --database-url or TUSKLINE_DATABASE_URL".to_owned()
        }
        false => hint,
    };
    if plugin::is_asked() {
        return plugin::refused(&format!("{what}; {hint}"));
    }
    // There is no parsed `--json` to ask.
    put(&Report { what, hint: Some(hint), code }, std::env::args_os().any(|word| word == "--json"))
}

/// From clap's paragraphs: the error, tips if any, the usage if any.
fn usage_in_words(said: &str) -> (String, String) {
    let one_line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut paragraphs = said.split("\n\n").map(one_line);
    let what = paragraphs.next().unwrap_or_default();
    let what = what.strip_prefix("error: ").unwrap_or(&what).to_owned();
    let rest: Vec<String> = paragraphs.collect();
    let starting = |word: &str| rest.iter().find_map(|text| text.strip_prefix(word));
    let hint = match (starting("tip: "), starting("Usage: ")) {
        (Some(tip), _) => tip.to_owned(),
        // It lists what was given, and the address may have come from the environment.
        (None, Some(usage)) => format!("usage: {}", usage.replace(" --database-url <URL>", "")),
        (None, None) => "--help tells more".to_owned(),
    };
    (what, hint)
}

fn in_words(error: &anyhow::Error) -> Report {
    if let Some(wrong) = error.downcast_ref::<WrongCall>() {
        return Report { what: wrong.0.clone(), hint: None, code: 2 };
    }
    if let Some(Failed { what, hint }) = error.downcast_ref::<Failed>() {
        return Report { what: what.clone(), hint: hint.clone(), code: 1 };
    }
    if let Some(serve::Error::Listen { .. }) = error.downcast_ref() {
        let hint = Some("another process may use this port: give another with --listen".to_owned());
        return Report { what: error.to_string(), hint, code: 1 };
    }
    if let Some(migrate::Error::SchemaNewer { .. }) = error.downcast_ref() {
        let hint = Some("bring the binary up to date".to_owned());
        return Report { what: error.to_string(), hint, code: 1 };
    }
    let of_database = error.chain().find_map(|cause| cause.downcast_ref::<tokio_postgres::Error>());
    match of_database {
        Some(cause) => match cause.as_db_error() {
            Some(refusal) => of_server(refusal, error),
            None => of_connection(cause),
        },
        None => Report {
            what: ErrorChain::<dyn std::error::Error>(error.as_ref()).to_string(),
            hint: None,
            code: 1,
        },
    }
}

/// For a login that no line of pg_hba.conf admits. There may be a line for TLS only.
const NO_ENTRY: &str = "no line of pg_hba.conf admits this login from here: there may be one for TLS only \
     (sslmode=require or stronger), or for another user, database or host";

/// The function of the server that refuses a setting; no other setting of ours needs a privilege. The text of the
/// refusal is translated, this name is not.
const SETS_ROLE: &str = "call_string_check_hook";

/// Reports a refusal of the server.
fn of_server(refusal: &DbError, error: &anyhow::Error) -> Report {
    let code = refusal.code().code();
    if code.starts_with("TK") {
        let hint = refusal.hint().map(str::to_owned);
        return Report { what: refusal.message().to_owned(), hint, code: 2 };
    }
    let advice = match refusal.code() {
        // The server names the file in every language.
        &SqlState::INVALID_AUTHORIZATION_SPECIFICATION
            if refusal.message().contains("pg_hba.conf") =>
        {
            Some(NO_ENTRY)
        }
        &SqlState::INVALID_PASSWORD | &SqlState::INVALID_AUTHORIZATION_SPECIFICATION => Some(
            "check user and password in --database-url, or PGPASSWORD or PGPASSFILE in the environment",
        ),
        &SqlState::INVALID_CATALOG_NAME => Some("create it: createdb NAME"),
        &SqlState::INVALID_SCHEMA_NAME
        | &SqlState::UNDEFINED_FUNCTION
        | &SqlState::UNDEFINED_TABLE => {
            Some("the schema is absent or older than this binary: run `tuskline migrate`")
        }
        &SqlState::READ_ONLY_SQL_TRANSACTION => {
            Some("this server is a standby or read-only: connect to the primary")
        }
        &SqlState::INSUFFICIENT_PRIVILEGE if refusal.routine() == Some(SETS_ROLE) => {
            Some("the login must be a member of the role: grant the role to the login")
        }
        &SqlState::INSUFFICIENT_PRIVILEGE if refusal.hint().is_none() => {
            Some("the role lacks a privilege: a group of `tuskline roles` may have it")
        }
        // Only `--role` and `migrate` insist on it.
        &SqlState::PROTOCOL_VIOLATION => Some("connect to the server directly"),
        &SqlState::DISK_FULL => {
            Some("the server's disk is full: free some space there; nothing was changed")
        }
        &SqlState::TOO_MANY_CONNECTIONS => Some("raise max_connections, or close some sessions"),
        _ => None,
    };
    // Keep the context around the server's message: which file, which step.
    let outermost = error.to_string();
    let wrapped = outermost.contains(": db error") || outermost == "db error";
    let context = wrapped.then(|| outermost.trim_end_matches("db error").to_owned());
    Report {
        what: format!("{}{} ({code})", context.unwrap_or_default(), refusal.message()),
        hint: advice.map(str::to_owned).or_else(|| refusal.hint().map(str::to_owned)),
        code: 1,
    }
}

/// There was no server to refuse anything.
fn of_connection(cause: &tokio_postgres::Error) -> Report {
    if let Some(refusal) = TlsRefusal::of(cause) {
        let hint = refusal.hint().map(str::to_owned);
        return Report { what: refusal.to_string(), hint, code: 1 };
    }
    let text = ErrorChain(cause).to_string();
    let hint = if text.contains("password missing") {
        "the server asks for a password: give it in --database-url, or PGPASSWORD or PGPASSFILE in the environment"
    } else if text.contains("database does not allow writes") {
        "target_session_attrs asks for a primary, and no host of the address is one"
    } else if text.contains("database is not read only") {
        "target_session_attrs asks for a standby, and no host of the address is one"
    } else {
        "is PostgreSQL running at this address? `tuskline dev` starts a private one"
    };
    Report { what: text, hint: Some(hint.to_owned()), code: 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_call_is_told_in_one_line_and_a_hint() {
        let expected = |what: &str, hint: &str| (what.to_owned(), hint.to_owned());
        assert_eq!(
            usage_in_words(
                "error: unexpected argument '--foo' found\n\n  tip: use '-- --foo'\n\nUsage: t a\n"
            ),
            expected("unexpected argument '--foo' found", "use '-- --foo'")
        );
        assert_eq!(
            usage_in_words("error: these are missing:\n  <NAME>\n\nUsage: t <NAME>\n\nFor more"),
            expected("these are missing: <NAME>", "usage: t <NAME>")
        );
        assert_eq!(
            usage_in_words("error: invalid value\n\nFor more"),
            expected("invalid value", "--help tells more")
        );
    }
}
