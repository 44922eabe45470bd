//! The answers to a client about a task.

use chrono::{DateTime, Utc};
use serde::Serialize;

use crate::client::session::Row;
use crate::db::json::JsonOwned;
use crate::error::Error;
use crate::task::{Priority, Status, TaskId};

/// The answer of [`Client::cancel`](crate::Client::cancel).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
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
    Unknown,
}

/// The answer of [`Client::retry`](crate::Client::retry).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
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
    Unknown,
}

/// Everything known of one task.
#[derive(Debug, Clone, Serialize)]
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
    pub output: Option<serde_json::Value>,
    pub payload: Option<serde_json::Value>,
    pub percent: Option<f32>,
    pub message: Option<String>,
    pub checkpoint: Option<serde_json::Value>,
    pub said_at: Option<DateTime<Utc>>,
    pub ordering_key: Option<String>,
    pub limit_key: Option<String>,
    pub fairness_key: Option<String>,
    pub unique_key: Option<String>,
    pub traceparent: Option<String>,
}

/// One reason why a task does not run, see [`Client::explain`](crate::Client::explain).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
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

impl Reason {
    pub(crate) fn read(row: &Row) -> Self {
        Self { reason: row.get(0), detail: row.get(1), cause: row.get(2), remedy: row.get(3) }
    }
}

/// The columns of `tuskline.task_status`, in the order in which they are asked for.
pub(crate) const COLUMNS: &str = "\
    id, lambda, collection, priority, status, attempt, max_attempts, crashes, due_at, \
    created_at, started_at, finished_at, next_trigger_at, executor_id, host, pid, \
    lease_until, cancel_requested_at, failures, error_class, error, output, payload, \
    percent, message, checkpoint, said_at, ordering_key, limit_key, fairness_key, unique_key, \
    traceparent";

impl TaskStatus {
    pub(crate) fn read(row: &Row) -> Result<Self, Error> {
        let at = |column: &str| {
            COLUMNS.split(", ").position(|known| known == column).unwrap_or(usize::MAX)
        };
        let json = |column: &str| -> Option<serde_json::Value> {
            let text: Option<JsonOwned> = row.get(at(column));
            // Accepted JSON always parses; a number beyond f64 is the one thing that may not.
            text.map(|t| serde_json::from_str(&t.0).unwrap_or(serde_json::Value::String(t.0)))
        };
        Ok(Self {
            id: TaskId(row.get(at("id"))),
            lambda: row.get(at("lambda")),
            collection: row.get(at("collection")),
            priority: row.get::<&str>(at("priority")).parse()?,
            status: row.get::<&str>(at("status")).parse()?,
            attempt: row.get(at("attempt")),
            max_attempts: row.get(at("max_attempts")),
            crashes: row.get(at("crashes")),
            due_at: row.get(at("due_at")),
            created_at: row.get(at("created_at")),
            started_at: row.get(at("started_at")),
            finished_at: row.get(at("finished_at")),
            next_trigger_at: row.get(at("next_trigger_at")),
            executor_id: row.get(at("executor_id")),
            host: row.get(at("host")),
            pid: row.get(at("pid")),
            lease_until: row.get(at("lease_until")),
            cancel_requested_at: row.get(at("cancel_requested_at")),
            failures: row.get(at("failures")),
            error_class: row.get(at("error_class")),
            error: row.get(at("error")),
            output: json("output"),
            payload: json("payload"),
            percent: row.get(at("percent")),
            message: row.get(at("message")),
            checkpoint: json("checkpoint"),
            said_at: row.get(at("said_at")),
            ordering_key: row.get(at("ordering_key")),
            limit_key: row.get(at("limit_key")),
            fairness_key: row.get(at("fairness_key")),
            unique_key: row.get(at("unique_key")),
            traceparent: row.get(at("traceparent")),
        })
    }
}
