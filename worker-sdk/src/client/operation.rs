//! One action on all tasks that a filter names, carried out by store consumers.

mod calls;

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::client::setters::setters;
use crate::client::verbs::{float, instant, span};
use crate::db::json::{PayloadText, payload_of};
use crate::task::{Priority, Status, TaskId};

/// The action of an operation on its tasks.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action {
    /// Cancels tasks that have not ended; a worker that holds one is asked to stop.
    Cancel,
    /// Lets tasks start again that failed for good, or that ended in the statuses given. A task that is due
    /// later keeps its due time.
    Retry,
    /// The same, due now.
    RetryNow,
    /// Gives waiting tasks another priority.
    Priority(Priority),
    /// Moves waiting tasks to another collection.
    Collection(String),
    /// Deletes tasks that have ended, with their history, outputs and progress, before their
    /// retention is over.
    Purge,
    /// Lets dead letters start again, with care if wanted ([`Operation::canary`]).
    Redrive,
    /// Deletes tasks of every status, with all that the database holds about them, also from
    /// `tuskline.task_archive`. Waiting tasks are cancelled, workers that hold one are asked to stop.
    Erase,
}

impl Action {
    /// Its name, and the new priority or collection.
    fn parts(self) -> (&'static str, Option<String>) {
        match self {
            Self::Cancel => ("cancel", None),
            Self::Retry => ("retry", None),
            Self::RetryNow => ("retry", Some("now".into())),
            Self::Priority(priority) => ("priority", Some(priority.as_str().into())),
            Self::Collection(name) => ("collection", Some(name)),
            Self::Purge => ("purge", None),
            Self::Redrive => ("redrive", None),
            Self::Erase => ("erase", None),
        }
    }
}

/// One action on all tasks that match the filters. At least one of these filters is needed: a
/// lambda, ids, a key, a field of the payload; for an erase or a purge also a collection; for a
/// purge also statuses, a fingerprint or a time.
///
/// # Example
/// ```no_run
/// # use tuskline_sdk::{Action, Client, Error, Operation};
/// # async fn mended(client: &Client) -> Result<(), Error> {
/// let redrive = Operation::new(Action::Redrive).lambda("send_email").fingerprint("bb2b0fb8fe12");
/// let redrive = redrive.canary().per_second(100.0);
/// println!("it would release {:?}", client.preview_operation(&redrive).await?);
/// let redriving = client.start_operation(&redrive, Some("the address book is back")).await?;
/// println!("{:?}", client.operation_progress(redriving).await?);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Default, Serialize)]
#[must_use]
pub struct Operation {
    action: &'static str,
    value: Option<String>,
    lambda: Option<String>,
    ids: Option<Vec<TaskId>>,
    key: Option<String>,
    field: Option<Vec<String>>,
    equals: Option<String>,
    collection: Option<String>,
    priority: Option<Priority>,
    statuses: Option<Vec<Status>>,
    fingerprint: Option<String>,
    #[serde(serialize_with = "instant")]
    created_from: Option<DateTime<Utc>>,
    #[serde(serialize_with = "instant")]
    created_to: Option<DateTime<Utc>>,
    #[serde(serialize_with = "instant")]
    ended_to: Option<DateTime<Utc>>,
    #[serde(serialize_with = "span")]
    older_than: Option<Duration>,
    limit: Option<i64>,
    #[serde(skip)]
    start: Start,
}

/// How the tasks of an operation are changed. A preview has none of it.
#[derive(Debug, Clone, Default, Serialize)]
struct Start {
    #[serde(serialize_with = "float")]
    per_second: Option<f64>,
    canary: bool,
    #[serde(skip)]
    payload: Option<PayloadText>,
}

/// How far an operation has come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct OperationProgress {
    /// `running`, `canary` (it waits for the ends of some tasks), `done`, `died_again` (its canary
    /// stopped it) or `stopped`.
    pub state: String,
    /// Tasks looked at.
    pub looked: i64,
    /// Tasks changed, deleted or released.
    pub changed: i64,
    /// Tasks that a purge left alone: a task, a session or a redrive needs them, or they are archived
    /// to files, which only `tuskline operation start purge --archive-dir` writes.
    pub spared: i64,
    /// Released tasks that are dead again.
    pub died_again: i64,
    /// Why it ended so, or which error it met last.
    pub note: Option<String>,
}

/// Tasks that an operation would change now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct OperationPreview {
    /// Their lambda.
    pub lambda: String,
    /// Their status.
    pub status: Status,
    /// Rows of `tuskline.task_archive`, which only [`Action::Erase`] deletes.
    pub archived: bool,
    /// How many.
    pub tasks: i64,
    /// The first ten.
    pub first_ids: Vec<TaskId>,
}

impl Operation {
    /// An operation without a filter yet.
    pub fn new(action: Action) -> Self {
        let (action, value) = action.parts();
        Self { action, value, ..Self::default() }
    }

    setters! {
        /// Only tasks of a lambda.
        lambda(lambda: &str) = Some(lambda.into());

        /// Only these tasks: 1 to 10,000.
        tasks(ids: &[TaskId]) in ids = Some(ids.to_vec());

        /// Only tasks with this ordering, limit, fairness or unique key.
        key(key: &str) = Some(key.into());
    }

    /// Only tasks whose payload has `value` at a path, as text: `field(&["customer", "id"], "17")`
    /// matches the number 17 and the string "17".
    pub fn field(mut self, path: &[&str], value: &str) -> Self {
        self.field = Some(path.iter().map(|&name| name.to_owned()).collect());
        self.equals = Some(value.into());
        self
    }

    setters! {
        /// Only tasks of a collection.
        collection(collection: &str) = Some(collection.into());

        /// Only tasks of a priority.
        priority(priority: Priority) = Some(priority);

        /// Only tasks in one of these statuses.
        statuses(statuses: &[Status]) = Some(statuses.to_vec());

        /// Only dead letters whose last failure has this fingerprint: those of one cause.
        fingerprint(fingerprint: &str) = Some(fingerprint.into());

        /// Only tasks scheduled from then on.
        created_from(at: DateTime<Utc>) = Some(at);

        /// Only tasks scheduled by then; otherwise by now.
        created_to(at: DateTime<Utc>) = Some(at);
    }

    /// Only tasks that had ended by then. Without it: by now, for a purge a minute ago.
    pub fn ended_to(mut self, at: DateTime<Utc>) -> Self {
        (self.ended_to, self.older_than) = (Some(at), None);
        self
    }

    /// Only tasks that ended at least so long ago, by the clock of the database.
    pub fn older_than(mut self, age: Duration) -> Self {
        self.older_than = Some(age).filter(|_| self.ended_to.is_none());
        self
    }

    setters! {
        /// At most this many tasks.
        limit(tasks: i64) = Some(tasks);

        /// At most this many tasks a second. Without it: as fast as possible.
        per_second(per_second: f64) in start.per_second = Some(per_second);

        /// A redrive releases 1 task, then 10, then the rest, and stops when one dies again.
        canary() in start.canary = true;

        /// Another payload, for a redrive of one task; the old one is kept in `tuskline.redriven`.
        payload(payload: &impl Serialize) in start.payload = Some(payload_of(payload));
    }
}
