//! The commands of an operator at the terminal: pause a lambda, open a gate, redrive a cause.

use serde::Serialize;
use serde_json::json;
use tokio_postgres::{Client, Error};
use tuskline_sdk::verbs::{GATE, PREVIEW_OPERATION, START_OPERATION, UNGATE};

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
    GATE.call(client, &json!({ "lambda": lambda, "action": "pause", "reason": reason })).await
}

/// Opens a gate. Returns false if it is not set.
///
/// # Errors
/// The connection's or the server's.
pub async fn ungate(client: &Client, gate: i64, reason: &str) -> Result<bool, Error> {
    UNGATE.call(client, &json!({ "gate": gate, "reason": reason })).await
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
    let redrive = json!({ "action": "redrive", "lambda": lambda, "fingerprint": fingerprint });
    let mut rows = PREVIEW_OPERATION.rows(client, "status, tasks", &redrive).await?;
    rows.sort_by_key(|row| row.get::<_, String>(0));
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
    let redrive = json!({
        "action": "redrive", "lambda": lambda, "fingerprint": fingerprint, "canary": true,
        "reason": reason,
    });
    START_OPERATION.call(client, &redrive).await
}
