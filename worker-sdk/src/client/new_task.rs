//! A task about to be scheduled.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::Serialize;

use crate::db::json;
use crate::error::Error;
use crate::task::Priority;

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

/// The keys that a task is counted and put in order by.
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

    /// The key that limits by key count by: a customer, an account, a host. See `tuskline.set_limit`.
    ///
    /// # Errors
    /// As [`NewTask::ordering_key`].
    pub fn limit_key(mut self, key: &str) -> Result<Self, Error> {
        self.keys.limit = Some(checked_key(key)?);
        Ok(self)
    }

    /// Sets the tenant under a fair limit.
    ///
    /// # Errors
    /// As [`NewTask::ordering_key`].
    pub fn fairness_key(mut self, key: &str) -> Result<Self, Error> {
        self.keys.fairness = Some(checked_key(key)?);
        Ok(self)
    }

    /// Sets the unique key. The first task of a lambda holds its key. Scheduling another task with the key
    /// returns the id of the holder, as `tuskline.set_unique` says. A key that is held for ever makes a
    /// repeated call harmless. A task of a chain, or one that waits for a batch, can have none.
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
