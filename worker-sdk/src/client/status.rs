//! The answers to a client about a task.

use chrono::{DateTime, Utc};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::client::session::Row;
use crate::db::json::JsonOwned;
use crate::error::Error;
use crate::task::{Priority, Status, TaskId};

/// The answer of [`Client::cancel`](crate::Client::cancel).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Cancelled {
    /// It was waiting and is cancelled now.
    Cancelled,
    /// A worker holds it and is told to stop; its result may still win the race.
    Requested,
    /// It had already ended.
    TooLate,
    /// No such task.
    #[serde(other)]
    Unknown,
}

/// The answer of [`Client::retry`](crate::Client::retry).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Retried {
    /// It runs again.
    Retried,
    /// It has not ended.
    TooEarly,
    /// It has succeeded.
    Succeeded,
    /// No such task.
    #[serde(other)]
    Unknown,
}

/// Everything known of one task.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[non_exhaustive]
#[allow(missing_docs, reason = "named and described as in the database's view tuskline.tasks")]
pub struct TaskStatus {
    pub id: TaskId,
    pub lambda: String,
    pub collection: Option<String>,
    pub priority: Priority,
    pub status: Status,
    pub attempt: i32,
    pub max_attempts: Option<i32>,
    pub crashes: i32,
    pub due_at: DateTime<Utc>,
    pub created_at: DateTime<Utc>,
    pub started_at: Option<DateTime<Utc>>,
    pub finished_at: Option<DateTime<Utc>>,
    pub next_trigger_at: Option<DateTime<Utc>>,
    pub executor_id: Option<i64>,
    pub host: Option<String>,
    pub pid: Option<i32>,
    pub lease_until: Option<DateTime<Utc>>,
    pub cancel_requested_at: Option<DateTime<Utc>>,
    pub failures: i64,
    pub error_class: Option<String>,
    pub error: Option<String>,
    pub output: Option<Value>,
    pub payload: Option<Value>,
    pub percent: Option<f32>,
    pub message: Option<String>,
    pub checkpoint: Option<Value>,
    pub said_at: Option<DateTime<Utc>>,
    pub ordering_key: Option<String>,
    pub limit_key: Option<String>,
    pub fairness_key: Option<String>,
    pub unique_key: Option<String>,
    pub traceparent: Option<String>,
}

/// One reason why a task does not run, see [`Client::explain`](crate::Client::explain).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Reason {
    /// A stable word: `gated`, `limit`, `ordered`, `not_due`, `no_worker`, `ahead`, ...
    pub reason: String,
    /// The same in a sentence, with its figures.
    pub detail: String,
    /// The row that causes it.
    pub cause: Option<String>,
    /// The command that changes it.
    pub remedy: Option<String>,
}

/// The statement whose row [`TaskStatus::read`] reads. JSON of applications stays the text that it is.
pub(crate) const STATUS: &str = "\
    select row_to_json(s)::text, t.output, t.payload, t.checkpoint \
      from tuskline.task_status($1) t cross join lateral ( \
        select t.id, t.lambda, t.collection, t.priority, t.status, t.attempt, t.max_attempts, t.crashes, \
               t.due_at, t.created_at, t.started_at, t.finished_at, t.next_trigger_at, t.executor_id, t.host, \
               t.pid, t.lease_until, t.cancel_requested_at, t.failures, t.error_class, t.error, t.percent, \
               t.message, t.said_at, t.ordering_key, t.limit_key, t.fairness_key, t.unique_key, \
               t.traceparent) s";

impl TaskStatus {
    /// False: it has no contents, or they are hidden from the caller.
    pub(super) fn shows_contents(&self) -> bool {
        self.output.is_some() || self.payload.is_some() || self.error.is_some()
    }

    pub(crate) fn read(row: &Row) -> Result<Self, Error> {
        let mut task: Self = value(row.get(0))?;
        task.output = json(row, 1);
        task.payload = json(row, 2);
        task.checkpoint = json(row, 3);
        Ok(task)
    }
}

/// An answer that came as JSON.
pub(super) fn value<T: DeserializeOwned>(text: &str) -> Result<T, Error> {
    serde_json::from_str(text).map_err(Error::unknown)
}

/// A word of an answer.
pub(super) fn word<T: DeserializeOwned>(word: &str) -> Result<T, Error> {
    serde_json::from_value(word.into()).map_err(Error::unknown)
}

/// JSON of an application. Accepted JSON always parses; a number beyond f64 is the one thing that may not.
pub(super) fn json(row: &Row, at: usize) -> Option<Value> {
    let text: Option<JsonOwned> = row.get(at);
    text.map(|JsonOwned(text)| serde_json::from_str(&text).unwrap_or(Value::String(text)))
}
