//! The parts of a definition: limits, order, unique keys, breaker, gates.
//!
//! A part is sent as its fields, and a field that is not set is left out: defaults stand in the database.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::Serialize;

use crate::client::setters::setters;
use crate::client::verbs::{float, instant, span};
use crate::task::Priority;

/// The fate of an ordering key whose task failed for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OnFailure {
    /// The key stays blocked until it is unblocked, or its task is retried or purged.
    Block,
    /// The next task of the key runs.
    Skip,
    /// The tasks that wait behind it end as dead.
    Dead,
}

/// The place of tasks after their retention.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Archive {
    /// Nowhere.
    None,
    /// The table `tuskline.task_archive`.
    Table,
    /// A file of `tuskline serve`.
    File,
}

/// The effect of a second task with a unique key that is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OnDuplicate {
    /// The call returns the id of the holder, which stays as it is.
    Keep,
    /// The same, and the holder gets the new payload, if it waits.
    Replace,
    /// The same, and the holder gets the new due time, if it waits.
    Postpone,
    /// The call is refused (TK027).
    Reject,
}

/// How long a task holds its unique key.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[must_use]
pub struct Unique {
    scope: &'static str,
    #[serde(serialize_with = "span")]
    period: Option<Duration>,
    outcome: Option<OnDuplicate>,
}

impl Unique {
    /// While it waits: until a worker claims it, and before a retry.
    pub fn queued() -> Self {
        Self::of("queued", None)
    }

    /// Until it ends.
    pub fn running() -> Self {
        Self::of("running", None)
    }

    /// For a time from its scheduling, at most 10 years.
    pub fn period(period: Duration) -> Self {
        Self::of("period", Some(period))
    }

    /// Always, also beyond its retention: a repeated call is harmless.
    pub fn forever() -> Self {
        Self::of("forever", None)
    }

    fn of(scope: &'static str, period: Option<Duration>) -> Self {
        Self { scope, period, outcome: None }
    }

    setters! {
        /// The effect of a second task with the key. Default [`OnDuplicate::Keep`].
        on_duplicate(outcome: OnDuplicate) in outcome = Some(outcome);
    }
}

/// A circuit breaker. It pauses the lambda when within a time enough attempts fail with one cause, and
/// these are a large part of all attempts.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[must_use]
pub struct Breaker {
    failures: u32,
    #[serde(serialize_with = "span")]
    window: Option<Duration>,
    #[serde(serialize_with = "float")]
    share: Option<f64>,
    #[serde(serialize_with = "span")]
    probe_after: Option<Duration>,
}

impl Breaker {
    /// Trips at `failures` within `window`: 1 to 1,000,000 within 1 s to 1 day, half of all attempts. A
    /// probe runs every 30 s.
    pub fn new(failures: u32, window: Duration) -> Self {
        Self { failures, window: Some(window), share: None, probe_after: None }
    }

    setters! {
        /// The part of all attempts that must have failed: 0.001 to 1; default 0.5.
        share(share: f64) = Some(share);

        /// Time until a probe runs, and between probes: 1 s to 1 day; default 30 s.
        probe_after(delay: Duration) = Some(delay);
    }
}

/// Setters of the scope, which limits, gates and throttles share.
macro_rules! scope {
    () => {
        setters! {
            /// Only tasks of this collection.
            collection(name: impl Into<String>) = Some(name.into());

            /// Only tasks of this priority.
            priority(priority: Priority) = Some(priority);
        }
    };
}

/// Setters that gates and throttles share.
macro_rules! gated {
    () => {
        setters! {
            /// The collection may be one that no recent task has. A definition needs no such leave.
            unseen() = true;

            /// Ends by itself then.
            until(at: DateTime<Utc>) = Some(at);

            /// Ends by itself so long after it is set.
            lasting(duration: Duration) = Some(duration);
        }
    };
}

/// A limit on the tasks of a lambda, over all workers.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[must_use]
pub struct Limit {
    max_concurrency: Option<u32>,
    #[serde(serialize_with = "float")]
    per_second: Option<f64>,
    burst: Option<u32>,
    collection: Option<String>,
    priority: Option<Priority>,
    by_key: bool,
    fair: bool,
}

impl Limit {
    scope!();

    /// At most so many tasks at the same time: 0 to 100,000.
    pub fn concurrency(tasks: u32) -> Self {
        Self { max_concurrency: Some(tasks), ..Self::default() }
    }

    /// At most so many tasks per second: 0.001 to 1,000,000.
    pub fn rate(per_second: f64) -> Self {
        Self { per_second: Some(per_second), ..Self::default() }
    }

    setters! {
        /// Each limit key is counted by itself.
        by_key() = true;

        /// Tenants (fairness keys) take turns while tasks wait.
        fair() = true;

        /// Tasks of a rate that may start at once after a pause. Default one second of tasks.
        burst(tasks: u32) = Some(tasks);
    }
}

/// A gate on a lambda, or on one of its collections or priorities.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[must_use]
pub struct Gate {
    action: &'static str,
    reason: String,
    collection: Option<String>,
    priority: Option<Priority>,
    #[serde(serialize_with = "instant")]
    until: Option<DateTime<Utc>>,
    #[serde(rename = "for", serialize_with = "span")]
    lasting: Option<Duration>,
    unseen: bool,
}

impl Gate {
    scope!();
    gated!();

    /// Tasks wait until the gate opens.
    pub fn pause(reason: impl Into<String>) -> Self {
        Self::of("pause", reason.into())
    }

    /// Due tasks end as dropped.
    pub fn drop(reason: impl Into<String>) -> Self {
        Self::of("drop", reason.into())
    }

    /// Due tasks end as dead, to be looked at and retried later.
    pub fn divert(reason: impl Into<String>) -> Self {
        Self::of("divert", reason.into())
    }

    fn of(action: &'static str, reason: String) -> Self {
        let (collection, priority, until, lasting) = (None, None, None, None);
        Self { action, reason, collection, priority, until, lasting, unseen: false }
    }
}

/// A rate for a time, with a reason: a mail relay that fails. It applies beside the limits of the lambda.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[must_use]
pub struct Throttle {
    #[serde(serialize_with = "float")]
    per_second: Option<f64>,
    reason: String,
    collection: Option<String>,
    priority: Option<Priority>,
    #[serde(serialize_with = "instant")]
    until: Option<DateTime<Utc>>,
    #[serde(rename = "for", serialize_with = "span")]
    lasting: Option<Duration>,
    unseen: bool,
}

impl Throttle {
    scope!();
    gated!();

    /// At most so many tasks per second: 0.001 to 1,000,000.
    pub fn new(per_second: f64, reason: impl Into<String>) -> Self {
        Self { per_second: Some(per_second), reason: reason.into(), ..Self::default() }
    }
}
