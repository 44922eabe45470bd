//! Calls of `tuskline`.

use std::path::Path;

use serde_json::Value;
use tokio_postgres::Config;

use super::Db;

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

/// The address of a new role that may read all, and does not see the sessions of other roles.
pub async fn blind(db: &Db) -> String {
    let role = format!("blind_{}", db.config.get_dbname().unwrap());
    let both = "in schema tuskline, tuskline_core";
    db.run(&format!(
        "create role {role} login; grant usage on schema tuskline, tuskline_core to {role};
         grant select on all tables {both} to {role};
         grant select on all sequences {both} to {role};
         grant execute on all functions {both} to {role}"
    ))
    .await;
    url(&db.config).replace("tuskline:", &format!("{role}:"))
}
