//! Calls of `tuskline`.

use std::path::Path;

use serde_json::Value;
use tokio_postgres::Config;

pub use super::program::*;

/// The built binary.
pub const TUSKLINE: &str = env!("CARGO_BIN_EXE_tuskline");

/// A call with these arguments.
pub fn tuskline(arguments: &[&str]) -> Call {
    Call::of(Path::new(TUSKLINE), arguments)
}

/// A call on a database, in words separated by spaces.
pub fn on(config: &Config, line: &str) -> Call {
    tuskline(&line.split(' ').collect::<Vec<_>>()).database(&url(config))
}

/// The keys of an object, or of the first object of a list.
pub fn keys(value: &Value) -> String {
    let object = value.get(0).unwrap_or(value);
    let names: Vec<_> = object.as_object().unwrap().keys().map(String::as_str).collect();
    names.join(" ")
}
