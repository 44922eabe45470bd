//! Finds and repairs objects that rows name and the catalogue does not have.

use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error, Row};

/// One thing that is missing or behind.
#[derive(Debug, Clone, PartialEq, Eq)]
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

fn of_row(row: &Row) -> Repair {
    Repair { part: row.get(0), name: row.get(1), problem: row.get(2), remedy: row.get(3) }
}

/// Compares the rows with the catalogue; empty: they agree.
///
/// # Errors
/// The connection's or the server's.
pub async fn damage(client: &Client) -> Result<Vec<Repair>, Error> {
    let sql = "select part, name, problem, remedy from tuskline.damage()";
    Ok(client.query_typed(sql, &[]).await?.iter().map(of_row).collect())
}

/// Makes what is missing, or only lists it; empty: nothing is.
///
/// # Errors
/// The connection's or the server's.
pub async fn repair(client: &Client, dry_run: bool) -> Result<Vec<Repair>, Error> {
    let sql = "select part, name, problem, remedy from tuskline.repair($1)";
    Ok(client.query_typed(sql, &[(&dry_run, Type::BOOL)]).await?.iter().map(of_row).collect())
}
