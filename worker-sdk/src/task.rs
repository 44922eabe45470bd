//! The words of the task store: ids, fences, priorities, statuses, and a task about to be scheduled.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::{Error, json};

/// Number of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TaskId(pub i64);

impl std::fmt::Display for TaskId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// Number of the lease under which an attempt runs. Every change it asks for carries it, and is
/// refused once the task was claimed again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Fence(pub i64);

macro_rules! labels {
    ($(#[$doc:meta])* $name:ident { $($(#[$label_doc:meta])* $variant:ident = $label:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum $name { $($(#[$label_doc])* $variant),* }

        impl $name {
            /// Every value, in the database's order.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// Label as the database writes it.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $label),* }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl std::str::FromStr for $name {
            type Err = Error;
            fn from_str(label: &str) -> Result<Self, Error> {
                Self::ALL.iter().copied().find(|one| one.as_str() == label).ok_or_else(|| {
                    let all: Vec<_> = Self::ALL.iter().map(|one| one.as_str()).collect();
                    Error::invalid(
                        if stringify!($name) == "Priority" { "TK006" } else { "TK008" },
                        format!(
                            "invalid_{}: must be one of {}, got {label:?}",
                            stringify!($name).to_lowercase(), all.join(", "),
                        ),
                    )
                })
            }
        }
    };
}

labels! {
    /// Order among the tasks of one lambda.
    Priority {
        /// First.
        Critical = "critical",
        /// Before normal.
        High = "high",
        /// The default.
        Normal = "normal",
        /// Last, but never starved.
        Low = "low",
    }
}

labels! {
    /// Where a task stands.
    Status {
        /// Due later, or waiting its turn.
        New = "new",
        /// In its queue.
        Enqueued = "enqueued",
        /// Handed to a worker.
        Claimed = "claimed",
        /// Still running at the first heartbeat.
        Processing = "processing",
        /// Backing off before the next attempt.
        RetriableFailure = "retriable_failure",
        /// Done.
        Success = "success",
        /// The lambda said it can never succeed.
        FatalFailure = "fatal_failure",
        /// Attempts or worker deaths exhausted.
        Dead = "dead",
        /// Ended by request.
        Cancelled = "cancelled",
        /// Ended by a gate.
        Dropped = "dropped",
    }
}

impl Status {
    /// True when nothing will happen to the task any more.
    pub fn is_terminal(self) -> bool {
        use Status::{Cancelled, Dead, Dropped, FatalFailure, Success};
        matches!(self, Success | FatalFailure | Dead | Cancelled | Dropped)
    }
}

/// When a task is due.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Due {
    Now,
    At(DateTime<Utc>),
    /// Added to the database's clock, so that the caller's own clock does not matter.
    In(Duration),
}

impl Due {
    /// Instant and delay in seconds, one of them at most.
    pub(crate) fn parts(self) -> (Option<DateTime<Utc>>, Option<f64>) {
        match self {
            Self::Now => (None, None),
            Self::At(at) => (Some(at), None),
            Self::In(delay) => (None, Some(delay.as_secs_f64())),
        }
    }
}

/// A task about to be scheduled.
#[derive(Debug, Clone)]
pub struct NewTask {
    pub(crate) lambda: String,
    pub(crate) payload: String,
    pub(crate) priority: Priority,
    pub(crate) collection: Option<String>,
    pub(crate) due: Due,
    pub(crate) keys: Keys,
}

/// What a task is counted and put in order by.
#[derive(Debug, Clone, Default)]
pub(crate) struct Keys {
    pub ordering: Option<String>,
    pub limit: Option<String>,
    pub fairness: Option<String>,
    pub unique: Option<String>,
}

impl Keys {
    pub(crate) fn any(&self) -> bool {
        self.ordering.is_some()
            || self.limit.is_some()
            || self.fairness.is_some()
            || self.unique.is_some()
    }
}

impl NewTask {
    /// A task of `lambda` with `payload` as JSON, due at once, priority normal.
    ///
    /// # Errors
    /// [`Error::Invalid`]: the name, or a payload that is no JSON, nests deeper than 64, contains a
    /// NUL character or is larger than 1 MiB (each lambda has its own, lower limit in the database).
    pub fn new(lambda: &str, payload: &impl Serialize) -> Result<Self, Error> {
        check_name("lambda", lambda)?;
        Ok(Self::checked(lambda, json::payload_of(payload)?))
    }

    /// The same from JSON text.
    ///
    /// # Errors
    /// As [`NewTask::new`].
    pub fn from_json(lambda: &str, payload: String) -> Result<Self, Error> {
        check_name("lambda", lambda)?;
        json::check_payload(&payload)?;
        Ok(Self::checked(lambda, payload))
    }

    fn checked(lambda: &str, payload: String) -> Self {
        Self {
            lambda: lambda.into(),
            payload,
            priority: Priority::Normal,
            collection: None,
            due: Due::Now,
            keys: Keys::default(),
        }
    }

    /// Sets the priority.
    #[must_use]
    pub fn priority(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }

    /// Puts the task into a collection, a labelled subset of the lambda's tasks.
    ///
    /// # Errors
    /// [`Error::Invalid`]: the name.
    pub fn collection(mut self, collection: &str) -> Result<Self, Error> {
        check_name("collection", collection)?;
        self.collection = Some(collection.into());
        Ok(self)
    }

    /// Tasks of a lambda with one ordering key run one at a time, in the order in which they were
    /// accepted. The lambda must keep an order: `tuskline.set_order`.
    ///
    /// # Errors
    /// [`Error::Invalid`]: a key of no or more than 256 bytes, or with a NUL character.
    pub fn ordering_key(mut self, key: &str) -> Result<Self, Error> {
        self.keys.ordering = Some(checked_key(key)?);
        Ok(self)
    }

    /// What limits by key count by: a customer, an account, a host. See `tuskline.set_limit`.
    ///
    /// # Errors
    /// As [`NewTask::ordering_key`].
    pub fn limit_key(mut self, key: &str) -> Result<Self, Error> {
        self.keys.limit = Some(checked_key(key)?);
        Ok(self)
    }

    /// Whose turn it is to take under a fair limit: a tenant.
    ///
    /// # Errors
    /// As [`NewTask::ordering_key`].
    pub fn fairness_key(mut self, key: &str) -> Result<Self, Error> {
        self.keys.fairness = Some(checked_key(key)?);
        Ok(self)
    }

    /// Of the tasks of a lambda with one unique key the first holds it: the id of another is the id of
    /// that one, as `tuskline.set_unique` says. A key that holds for ever makes a repeated call harmless.
    /// A task of a chain, or one that waits for a batch, can have none.
    ///
    /// # Errors
    /// As [`NewTask::ordering_key`].
    pub fn unique_key(mut self, key: &str) -> Result<Self, Error> {
        self.keys.unique = Some(checked_key(key)?);
        Ok(self)
    }

    /// Makes it due at an instant; one that has passed means now.
    #[must_use]
    pub fn at(mut self, at: DateTime<Utc>) -> Self {
        self.due = Due::At(at);
        self
    }

    /// Makes it due `delay` from now, on the database's clock.
    #[must_use]
    pub fn after(mut self, delay: Duration) -> Self {
        self.due = Due::In(delay);
        self
    }
}

fn checked_key(key: &str) -> Result<String, Error> {
    if (1..=256).contains(&key.len()) && !key.contains('\0') {
        return Ok(key.into());
    }
    let got = key.len();
    let text = format!("invalid_key: a key must have 1 to 256 bytes and no NUL, got {got}");
    Err(Error::invalid("TK019", text))
}

/// Names of lambdas and collections: `[a-z][a-z0-9_]{0,62}`.
pub(crate) fn check_name(field: &str, name: &str) -> Result<(), Error> {
    let bytes = name.as_bytes();
    let fits = (1..=63).contains(&bytes.len())
        && bytes[0].is_ascii_lowercase()
        && bytes.iter().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'_');
    if fits {
        return Ok(());
    }
    let got: String = name.chars().take(80).collect();
    let text = format!("invalid_name: {field} must match [a-z][a-z0-9_]{{0,62}}, got {got:?}");
    Err(Error::invalid("TK002", text))
}
