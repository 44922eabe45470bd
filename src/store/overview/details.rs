//! The inside of one thing: the tasks of a worker, and a dead letter.

use serde::{Deserialize, Serialize};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error};

use crate::store::rows::rows;

/// A task that a worker holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldTask {
    /// Its id.
    pub id: i64,
    /// Its lambda.
    pub lambda: String,
    /// Its collection.
    pub collection: Option<String>,
    /// claimed or processing.
    pub status: String,
    /// The number of this attempt.
    pub attempt: i16,
    /// Time since it was due, in ms.
    pub due_ms: i64,
}

/// A dead letter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Letter {
    /// Its id.
    pub id: i64,
    /// Its collection.
    pub collection: Option<String>,
    /// Its priority.
    pub priority: String,
    /// dead or fatal_failure.
    pub status: String,
    /// Attempts that were begun.
    pub attempt: i16,
    /// Class of its last error.
    pub error_class: Option<String>,
    /// Its last error.
    pub message: Option<String>,
    /// Time since it died, in ms.
    pub died_ms: i64,
    /// Time for which it can still be redriven, in ms.
    pub expires_ms: i64,
    /// The first 1,000 characters of its payload.
    pub payload: Option<String>,
}

/// The first 100 tasks that a worker holds.
///
/// # Errors
/// The connection's or the server's.
pub async fn held_by(client: &Client, executor: i64) -> Result<Vec<HeldTask>, Error> {
    let sql = "
        select t.id, t.lambda, t.collection, t.status, t.attempt,
               (1000 * extract(epoch from c.at - t.due_at))::bigint as due_ms
          from (select tuskline.clock() as at offset 0) c
               cross join (
                 select i.task_id, l.lease_id from tuskline.lease l
                        cross join lateral unnest(l.task_ids) as i (task_id)
                  where l.executor_id = $1 limit 100) h
               cross join lateral (
                 select k.id, k.lambda, k.collection, k.status, k.attempt,
                        coalesce(k.scheduled_at, k.created_at) as due_at from tuskline.task k
                  where k.id = h.task_id and k.fence = h.lease_id
                    and k.status in ('claimed', 'processing') limit 1) t
         order by t.due_at, t.id";
    rows(client, sql, &[(&executor, Type::INT8)]).await
}

/// `{payload}` is null for a login that may not read it.
const LETTER: &str = "
        select d.id, d.collection, d.priority, d.status, d.attempt, d.error_class, d.message,
               (1000 * extract(epoch from c.at - d.finished_at))::bigint as died_ms,
               (1000 * extract(epoch from d.expires_at - c.at))::bigint as expires_ms,
               {payload} as payload
          from (select tuskline.clock() as at offset 0) c
               cross join tuskline.dead_letters d where d.id = $1";

/// A dead letter by the id of its task. None: it was redriven, or its retention is over.
///
/// # Errors
/// The connection's or the server's.
pub async fn letter(client: &Client, id: i64) -> Result<Option<Letter>, Error> {
    let read_with = async |payload| {
        rows(client, &LETTER.replace("{payload}", payload), &[(&id, Type::INT8)]).await
    };
    let letters = match read_with("left(d.payload::text, 1000)").await {
        Err(error) if error.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) => {
            read_with("null::text").await?
        }
        answer => answer?,
    };
    Ok(letters.into_iter().next())
}
