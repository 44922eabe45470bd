//! Tasks that wait outside of queues, and ordering keys that wait for a person.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error};

use super::Count;
use crate::store::rows::rows;

/// Tasks of a lambda that wait for one cause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    /// due, retry, server (due, and no store consumer has moved it), gate, limit, order or dependency.
    pub cause: String,
    /// The lambda.
    pub lambda: String,
    /// How many.
    #[serde(flatten)]
    pub count: Count,
    /// How many, by estimate where the count met its bound.
    #[serde(skip_serializing)]
    pub estimate: i64,
    /// How long the first one has waited, in ms. None: the cause has no such time.
    #[serde(skip_serializing)]
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
    rows(client, sql, &[(&most, Type::INT4)]).await
}

/// Ordering keys of a lambda that a failed task blocks until a person acts.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
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
    let sql =
        "select lambda, json_build_object('tasks', keys, 'and_more', and_more) as keys, oldest_ms,
                      ordering_key, task_id as task
                 from tuskline.blocked_gauges($1)";
    rows(client, sql, &[(&most, Type::INT4)]).await
}

/// The first limits of a lambda, or of all. How many tasks hold and wait for a permit is counted up to a
/// bound: `more_held` and `more_waiting` say that it was met.
///
/// # Errors
/// The connection's or the server's.
pub async fn limits(client: &Client, lambda: Option<&str>, most: i32) -> Result<Vec<Value>, Error> {
    let sql = "
        select l.limit_id, l.lambda, l.collection, l.priority, l.kind, l.by_key, l.fair,
               l.max_concurrency, l.per_second, l.burst, l.on_failure, g.held, g.more_held,
               g.waiting, g.more_waiting, l.reason, l.until, l.author, l.set_at
          from tuskline.limit_gauges($1, $2) g join tuskline.limits l using (limit_id)
         order by l.lambda, l.limit_id";
    rows(client, sql, &[(&lambda, Type::TEXT), (&most, Type::INT4)]).await
}
