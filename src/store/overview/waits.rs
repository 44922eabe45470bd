//! Tasks that wait outside of queues, and ordering keys that wait for a person.

use serde::Serialize;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error};

use super::Count;

/// Tasks of a lambda that wait for one cause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Waiting {
    /// due, retry, server (due, and no store consumer has moved it), gate, limit, order or dependency.
    pub cause: String,
    /// The lambda.
    pub lambda: String,
    /// How many.
    #[serde(flatten)]
    pub count: Count,
    /// How many, by estimate where the count met its bound.
    #[serde(skip)]
    pub estimate: i64,
    /// How long the first one has waited, in ms. None: the cause has no such time.
    #[serde(skip)]
    pub oldest_ms: Option<i64>,
}

/// Tasks that wait, by cause and lambda. Tasks that a pause holds, and tasks that wait for a
/// worker, are in the depths of queues. `most`: rows that each part reads.
///
/// # Errors
/// The connection's or the server's.
pub async fn waits(client: &Client, most: i32) -> Result<Vec<Waiting>, Error> {
    let sql = "select cause, lambda, tasks, and_more, estimate, oldest_ms
                 from tuskline.wait_gauges($1)";
    let rows = client.query_typed(sql, &[(&most, Type::INT4)]).await?;
    Ok(rows
        .iter()
        .map(|row| Waiting {
            cause: row.get(0),
            lambda: row.get(1),
            count: Count::of(row.get(2), row.get(3)),
            estimate: row.get(4),
            oldest_ms: row.get(5),
        })
        .collect())
}

/// Ordering keys of a lambda that a failed task blocks until a person acts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blocked {
    /// The lambda.
    pub lambda: String,
    /// How many keys.
    pub keys: Count,
    /// How long the first one has been blocked, in ms.
    pub oldest_ms: i64,
    /// That key.
    pub ordering_key: String,
    /// The task that blocks it.
    pub task: i64,
}

/// Blocked ordering keys, by lambda, among those of the newest `most` dead letters and of as many
/// waiters.
///
/// # Errors
/// The connection's or the server's.
pub async fn blocked(client: &Client, most: i32) -> Result<Vec<Blocked>, Error> {
    let sql = "select lambda, keys, and_more, oldest_ms, ordering_key, task_id
                 from tuskline.blocked_gauges($1)";
    let rows = client.query_typed(sql, &[(&most, Type::INT4)]).await?;
    Ok(rows
        .iter()
        .map(|row| Blocked {
            lambda: row.get(0),
            keys: Count::of(row.get(1), row.get(2)),
            oldest_ms: row.get(3),
            ordering_key: row.get(4),
            task: row.get(5),
        })
        .collect())
}
