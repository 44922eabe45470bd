//! The parts of a definition: limits, order, unique keys, breaker, gates.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde_json::{Value, json};

use crate::db::interval;
use crate::task::Priority;

/// The fate of an ordering key whose task failed for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnFailure {
    /// The key stays blocked until it is unblocked, or its task is retried or purged.
    Block,
    /// The next task of the key runs.
    Skip,
    /// The tasks that wait behind it end as dead.
    Dead,
}

impl OnFailure {
    pub(in crate::client) fn label(self) -> &'static str {
        match self {
            Self::Block => "block",
            Self::Skip => "skip",
            Self::Dead => "dead",
        }
    }
}

/// The place of tasks after their retention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Archive {
    /// Nowhere.
    None,
    /// The table `tuskline.task_archive`.
    Table,
    /// A file of `tuskline serve`.
    File,
}

impl Archive {
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Table => "table",
            Self::File => "file",
        }
    }
}

/// The effect of a second task with a unique key that is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
#[derive(Debug, Clone, PartialEq)]
pub struct Unique(pub(in crate::client) Value);

impl Unique {
    /// While it waits: until a worker claims it, and before a retry.
    pub fn queued() -> Self {
        Self::of("queued")
    }

    /// Until it ends.
    pub fn running() -> Self {
        Self::of("running")
    }

    /// For a time from its scheduling, at most 10 years.
    pub fn period(period: Duration) -> Self {
        let mut unique = Self::of("period");
        unique.0["period"] = Value::from(interval(period));
        unique
    }

    /// Always, also beyond its retention: a repeated call is harmless.
    pub fn forever() -> Self {
        Self::of("forever")
    }

    fn of(scope: &str) -> Self {
        Self(json!({ "scope": scope, "outcome": "keep" }))
    }

    /// The effect of a second task with the key. Default [`OnDuplicate::Keep`].
    #[must_use]
    pub fn on_duplicate(mut self, outcome: OnDuplicate) -> Self {
        self.0["outcome"] = Value::from(match outcome {
            OnDuplicate::Keep => "keep",
            OnDuplicate::Replace => "replace",
            OnDuplicate::Postpone => "postpone",
            OnDuplicate::Reject => "reject",
        });
        self
    }
}

/// A circuit breaker. It pauses the lambda when within a time enough attempts fail with one cause, and
/// these are a large part of all attempts.
#[derive(Debug, Clone, PartialEq)]
pub struct Breaker(pub(in crate::client) Value);

impl Breaker {
    /// Trips at `failures` within `window`: 1 to 1,000,000 within 1 s to 1 day, half of all attempts. A
    /// probe runs every 30 s.
    pub fn new(failures: u32, window: Duration) -> Self {
        Self(json!({
            "failures": failures, "window": interval(window), "share": 0.5,
            "probe_after": "30 seconds",
        }))
    }

    /// The part of all attempts that must have failed: 0.001 to 1; default 0.5.
    #[must_use]
    pub fn share(mut self, share: f64) -> Self {
        self.0["share"] = Value::from(share);
        self
    }

    /// Time until a probe runs, and between probes: 1 s to 1 day; default 30 s.
    #[must_use]
    pub fn probe_after(mut self, delay: Duration) -> Self {
        self.0["probe_after"] = Value::from(interval(delay));
        self
    }
}

/// Setters of the scope, which limits, gates and throttles share.
macro_rules! scope {
    () => {
        /// Only tasks of this collection.
        #[must_use]
        pub fn collection(self, name: impl Into<String>) -> Self {
            self.set("collection", name.into())
        }

        /// Only tasks of this priority.
        #[must_use]
        pub fn priority(self, priority: Priority) -> Self {
            self.set("priority", priority.as_str())
        }

        fn set(mut self, field: &str, value: impl Into<Value>) -> Self {
            self.0[field] = value.into();
            self
        }
    };
}

/// Setters that gates and throttles share.
macro_rules! gated {
    () => {
        /// The collection may be one that no recent task has. A definition needs no such leave.
        #[must_use]
        pub fn unseen(mut self) -> Self {
            self.1 = true;
            self
        }

        /// Ends by itself then.
        #[must_use]
        pub fn until(self, at: DateTime<Utc>) -> Self {
            self.set("until", at.to_rfc3339())
        }

        /// Ends by itself so long after it is set.
        #[must_use]
        pub fn lasting(self, duration: Duration) -> Self {
            self.set("for", interval(duration))
        }
    };
}

/// A limit on the tasks of a lambda, over all workers.
#[derive(Debug, Clone, PartialEq)]
pub struct Limit(pub(in crate::client) Value);

impl Limit {
    scope!();

    /// At most so many tasks at the same time: 0 to 100,000.
    pub fn concurrency(tasks: u32) -> Self {
        Self(json!({ "max_concurrency": tasks, "by_key": false, "fair": false }))
    }

    /// At most so many tasks per second: 0.001 to 1,000,000.
    pub fn rate(per_second: f64) -> Self {
        Self(json!({ "per_second": per_second, "by_key": false, "fair": false }))
    }

    /// Each limit key is counted by itself.
    #[must_use]
    pub fn by_key(self) -> Self {
        self.set("by_key", true)
    }

    /// Tenants (fairness keys) take turns while tasks wait.
    #[must_use]
    pub fn fair(self) -> Self {
        self.set("fair", true)
    }

    /// Tasks of a rate that may start at once after a pause. Default one second of tasks.
    #[must_use]
    pub fn burst(self, tasks: u32) -> Self {
        self.set("burst", tasks)
    }
}

/// A gate on a lambda, or on one of its collections or priorities.
#[derive(Debug, Clone, PartialEq)]
pub struct Gate(pub(in crate::client) Value, pub(in crate::client) bool);

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

    fn of(action: &str, reason: String) -> Self {
        Self(json!({ "action": action, "reason": reason }), false)
    }
}

/// A rate for a time, with a reason: a mail relay that fails. It applies beside the limits of the lambda.
#[derive(Debug, Clone, PartialEq)]
pub struct Throttle(pub(in crate::client) Value, pub(in crate::client) bool);

impl Throttle {
    scope!();
    gated!();

    /// At most so many tasks per second: 0.001 to 1,000,000.
    pub fn new(per_second: f64, reason: impl Into<String>) -> Self {
        Self(json!({ "per_second": per_second, "reason": reason.into() }), false)
    }
}
