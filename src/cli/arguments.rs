//! Values of arguments that several commands take.

use std::io::{self, Read as _};
use std::path::Path;

use anyhow::{Context, Result};
use chrono::{DateTime, Utc};
use clap::builder::PossibleValuesParser;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use tuskline_sdk::{Priority, Status};

use super::failure::WrongCall;

/// Longest text read from standard input: the hard limit of a payload and a byte, so that the
/// database gets to refuse what is too long.
const LONGEST_INPUT_BYTES: u64 = 1_048_577;

/// Accepts the labels of the tasks' priorities.
pub fn a_priority() -> PossibleValuesParser {
    PossibleValuesParser::new(Priority::ALL.iter().map(|one| one.as_str()))
}

/// Accepts the labels of the tasks' statuses.
pub fn a_status() -> PossibleValuesParser {
    PossibleValuesParser::new(Status::ALL.iter().map(|one| one.as_str()))
}

/// An instant as a command takes it.
pub fn instant(text: &str) -> Result<DateTime<Utc>, String> {
    let parsed = DateTime::parse_from_rfc3339(text);
    parsed
        .map(|at| at.to_utc())
        .map_err(|_| format!("must be like 2030-01-31T08:00:00Z, got {text}"))
}

/// A payload's text, known to be JSON.
pub fn payload(argument: String) -> Result<String> {
    let text = match argument.as_str() {
        "-" => io::read_to_string(io::stdin().take(LONGEST_INPUT_BYTES))
            .context("cannot read the payload")?,
        _ => argument,
    };
    match serde_json::from_str::<&RawValue>(&text) {
        Ok(_) => Ok(text),
        // The text was cut: it is too long, not malformed. The database says so.
        Err(_) if text.len() as u64 == LONGEST_INPUT_BYTES => {
            Err(WrongCall("TK004 payload_too_large: at most 1048576 bytes".to_owned()).into())
        }
        Err(error) => Err(WrongCall(format!(
            "the payload is not JSON: {error} (a text needs quotes inside: '\"hello\"')"
        ))
        .into()),
    }
}

/// The text of a file, known to be JSON; `-` is standard input. The database says what else is wrong with it.
pub fn file(path: &Path) -> Result<String> {
    let (name, read) = match path.as_os_str() == "-" {
        true => ("standard input".into(), io::read_to_string(io::stdin())),
        false => (path.to_string_lossy(), std::fs::read_to_string(path)),
    };
    let text = read.with_context(|| format!("cannot read {name}"))?;
    match serde_json::from_str::<IgnoredAny>(&text) {
        Ok(_) => Ok(text),
        Err(error) => Err(WrongCall(format!("{name} is not JSON: {error}")).into()),
    }
}
