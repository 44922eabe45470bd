//! A lambda's last word on one attempt.

use std::fmt::Display;
use std::time::Duration;

use serde_json::Value;

/// How an attempt ended. Any `Err` a lambda returns is [`Outcome::Retriable`] (paper: system errors
/// are retriable).
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// Done, with an output to keep or without.
    Success(Option<Value>),
    /// Try again: after the given delay, or by the lambda's backoff.
    Retriable {
        /// Delay before the next attempt; `None`: the lambda's exponential backoff.
        after: Option<Duration>,
        /// The error text; at most 8 KB are kept.
        reason: String,
    },
    /// Not now: again after so long. No attempt is used up, and it is no failure.
    Snooze(Duration),
    /// It can never succeed: do not try again.
    Fatal {
        /// The error text; at most 8 KB are kept.
        reason: String,
    },
}

impl Outcome {
    /// Retriable by the lambda's backoff.
    pub fn retriable(reason: impl Display) -> Self {
        Self::Retriable { after: None, reason: reason.to_string() }
    }

    /// Never to be tried again.
    pub fn fatal(reason: impl Display) -> Self {
        Self::Fatal { reason: reason.to_string() }
    }
}

/// A value that a lambda may return: `()`, a JSON value, an [`Outcome`], or a `Result` of these.
pub trait IntoOutcome {
    /// The outcome it stands for.
    fn into_outcome(self) -> Outcome;
}

impl IntoOutcome for Outcome {
    fn into_outcome(self) -> Outcome {
        self
    }
}

impl IntoOutcome for () {
    fn into_outcome(self) -> Outcome {
        Outcome::Success(None)
    }
}

impl IntoOutcome for Value {
    fn into_outcome(self) -> Outcome {
        Outcome::Success(Some(self))
    }
}

impl<T: IntoOutcome, E: Display> IntoOutcome for Result<T, E> {
    fn into_outcome(self) -> Outcome {
        match self {
            Ok(value) => value.into_outcome(),
            Err(error) => Outcome::retriable(error),
        }
    }
}
