//! The commands of an operator at the terminal: pause a lambda, open a gate, redrive a cause.

use serde::Serialize;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error};

/// Tasks that an operation would change now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Meant {
    /// Their status.
    pub status: String,
    /// How many.
    pub tasks: i64,
}

/// Pauses a whole lambda. Returns the number of the gate.
///
/// # Errors
/// The connection's or the server's; TK015 if a gate of the lambda is already set.
pub async fn gate(client: &Client, lambda: &str, reason: &str) -> Result<i64, Error> {
    let sql = "select tuskline.gate($1, 'pause', p_reason => $2)";
    let row = client.query_typed_one(sql, &[(&lambda, Type::TEXT), (&reason, Type::TEXT)]).await?;
    Ok(row.get(0))
}

/// Opens a gate. Returns false if it is not set.
///
/// # Errors
/// The connection's or the server's.
pub async fn ungate(client: &Client, gate: i64, reason: &str) -> Result<bool, Error> {
    let sql = "select tuskline.ungate($1, $2)";
    let row = client.query_typed_one(sql, &[(&gate, Type::INT8), (&reason, Type::TEXT)]).await?;
    Ok(row.get(0))
}

/// Counts the dead letters of a cause that a redrive would release.
///
/// # Errors
/// The connection's or the server's.
pub async fn preview_redrive(
    client: &Client,
    lambda: &str,
    fingerprint: &str,
) -> Result<Vec<Meant>, Error> {
    let sql = "select status, tasks
                 from tuskline.preview_operation('redrive', $1, p_fingerprint => $2) order by status";
    let rows =
        client.query_typed(sql, &[(&lambda, Type::TEXT), (&fingerprint, Type::TEXT)]).await?;
    Ok(rows.iter().map(|row| Meant { status: row.get(0), tasks: row.get(1) }).collect())
}

/// Begins to redrive the dead letters of a cause as a canary. Returns the number of the operation.
///
/// # Errors
/// The connection's or the server's.
pub async fn redrive(
    client: &Client,
    lambda: &str,
    fingerprint: &str,
    reason: &str,
) -> Result<i64, Error> {
    let sql =
        "select tuskline.start_operation('redrive', $1, p_fingerprint => $2, p_canary => true,
                                               p_reason => $3)";
    let parameters: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 3] =
        [(&lambda, Type::TEXT), (&fingerprint, Type::TEXT), (&reason, Type::TEXT)];
    Ok(client.query_typed_one(sql, &parameters).await?.get(0))
}
