//! Finds and repairs objects that rows name and the catalogue does not have.

use serde::{Deserialize, Serialize};
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error};

use super::rows::rows;

/// One thing that is missing or behind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Repair {
    /// Kind of object: sequence, queue, segment, ...
    pub part: String,
    /// Which one.
    pub name: Option<String>,
    /// The fault, in words.
    pub problem: String,
    /// The act of `repair` that mends it, or has mended it.
    pub remedy: String,
}

/// Compares the rows with the catalogue; empty: they agree.
///
/// # Errors
/// The connection's or the server's.
pub async fn damage(client: &Client) -> Result<Vec<Repair>, Error> {
    rows(client, "select part, name, problem, remedy from tuskline.damage()", &[]).await
}

/// Makes what is missing, or only lists it; empty: nothing is.
///
/// # Errors
/// The connection's or the server's.
pub async fn repair(client: &Client, dry_run: bool) -> Result<Vec<Repair>, Error> {
    let sql = "select part, name, problem, remedy from tuskline.repair($1)";
    rows(client, sql, &[(&dry_run, Type::BOOL)]).await
}
