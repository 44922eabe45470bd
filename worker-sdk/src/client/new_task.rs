//! A task about to be scheduled.
//!
//! Promises: nothing is checked before the last call: setters collect, scheduling refuses. Must never: read a
//! clock; a delay is added to the database's.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::Serialize;

use crate::client::setters::setters;
use crate::db::json::{self, PayloadText};
use crate::error::{Code, Error};
use crate::task::Priority;
use crate::trace;

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
///
/// Made from a [`Payload`](crate::Payload), or untyped from the name of a lambda and a value that serialises. A setter
/// refuses nothing: a value that is wrong is refused when the task is scheduled.
///
/// # Example
/// ```
/// use std::time::Duration;
/// use tuskline_sdk::{NewTask, Priority};
///
/// #[derive(serde::Serialize)]
/// struct Report {
///     month: u8,
/// }
///
/// let task = NewTask::new("build_report", &Report { month: 7 })
///     .priority(Priority::Low)
///     .after(Duration::from_secs(3600));
/// ```
#[derive(Debug, Clone)]
#[must_use = "a task does nothing until it is scheduled"]
pub struct NewTask {
    pub(crate) lambda: String,
    payload: PayloadText,
    pub(crate) priority: Priority,
    pub(crate) collection: Option<String>,
    pub(crate) due: Due,
    pub(crate) keys: Keys,
    pub(crate) traceparent: Option<String>,
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
        let Self { ordering, limit, fairness, unique } = self;
        [ordering, limit, fairness, unique].into_iter().any(Option::is_some)
    }
}

impl NewTask {
    /// An untyped task of a lambda that is known by name: due at once, priority normal. A payload is at most
    /// 1 MiB of JSON, nests 64 deep, and has no NUL character; the lambda can have a lower limit in the
    /// database.
    pub fn new(lambda: impl Into<String>, payload: &impl Serialize) -> Self {
        Self::of_text(lambda.into(), json::payload_of(payload))
    }

    /// The same from JSON text.
    pub fn from_json(lambda: impl Into<String>, payload: impl Into<String>) -> Self {
        let text = payload.into();
        Self::of_text(lambda.into(), json::check_payload(&text).map(|()| text))
    }

    fn of_text(lambda: String, payload: PayloadText) -> Self {
        Self {
            lambda,
            payload,
            priority: Priority::Normal,
            collection: None,
            due: Due::Now,
            keys: Keys::default(),
            traceparent: trace::current(),
        }
    }

    setters! {
        /// Sets the priority.
        priority(priority: Priority) = priority;

        /// Puts the task into a collection, a labelled subset of the lambda's tasks. Gates and limits can name
        /// it. `[a-z][a-z0-9_]{0,62}`.
        collection(collection: impl Into<String>) = Some(collection.into());

        /// Tasks of a lambda with one ordering key run one at a time, in the order in which they were
        /// accepted. The lambda must keep an order: `tuskline.set_order`. 1 to 256 bytes, as each key.
        ordering_key(key: impl Into<String>) in keys.ordering = Some(key.into());

        /// The key that limits by key count by: a customer, an account, a host. See `tuskline.set_limit`.
        limit_key(key: impl Into<String>) in keys.limit = Some(key.into());

        /// Sets the tenant under a fair limit.
        fairness_key(key: impl Into<String>) in keys.fairness = Some(key.into());

        /// Sets the unique key. The first task of a lambda holds its key. Scheduling another task with the key
        /// returns the id of the holder, as `tuskline.set_unique` says. A key that is held for ever makes a
        /// repeated call harmless. A task of a chain, or one that waits for a batch, can have none.
        unique_key(key: impl Into<String>) in keys.unique = Some(key.into());

        /// Sets the trace context of the request that schedules it, as W3C Trace Context writes it:
        /// `00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01`. Each attempt gets it
        /// ([`Context::traceparent`](crate::Context::traceparent)). With the feature `opentelemetry` the default is
        /// the span that the task is made in; else none.
        traceparent(traceparent: impl Into<String>) = Some(traceparent.into());

        /// Makes it due at an instant; one that has passed means now.
        at(at: DateTime<Utc>) in due = Due::At(at);

        /// Makes it due `delay` from now, on the database's clock.
        after(delay: Duration) in due = Due::In(delay);
    }

    /// The JSON text of the payload, if the task can be scheduled.
    ///
    /// # Errors
    /// TK002, TK003, TK004, TK019, TK054: a value that a setter was given.
    pub(crate) fn checked(&self) -> Result<&str, Error> {
        check_name("lambda", &self.lambda)?;
        self.collection.iter().try_for_each(|name| check_name("collection", name))?;
        let Keys { ordering, limit, fairness, unique } = &self.keys;
        check_key("ordering_key", ordering.as_deref())?;
        check_key("limit_key", limit.as_deref())?;
        check_key("fairness_key", fairness.as_deref())?;
        check_key("unique_key", unique.as_deref())?;
        self.traceparent.iter().try_for_each(|text| trace::check(text))?;
        json::checked(&self.payload)
    }
}

fn check_key(field: &str, key: Option<&str>) -> Result<(), Error> {
    let Some(key) = key else { return Ok(()) };
    if (1..=256).contains(&key.len()) && !key.contains('\0') {
        return Ok(());
    }
    let text = format!("{field} must have 1 to 256 bytes and no NUL, got {}", key.len());
    Err(Error::refused(Code::InvalidKey, text))
}

/// Names of lambdas and collections: `[a-z][a-z0-9_]{0,62}`.
pub(crate) fn check_name(field: &str, name: &str) -> Result<(), Error> {
    if is_name(name) {
        return Ok(());
    }
    let got: String = name.chars().take(80).collect();
    let text = format!("{field} must match [a-z][a-z0-9_]{{0,62}}, got {got:?}");
    Err(Error::refused(Code::InvalidName, text))
}

/// True: a name of a lambda or a collection. A `const fn`, so that a wrong one does not build.
pub(crate) const fn is_name(name: &str) -> bool {
    let bytes = name.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let inside = bytes[at].is_ascii_digit() || bytes[at] == b'_';
        if !bytes[at].is_ascii_lowercase() && (at == 0 || !inside) {
            return false;
        }
        at += 1;
    }
    !bytes.is_empty() && bytes.len() <= 63
}
