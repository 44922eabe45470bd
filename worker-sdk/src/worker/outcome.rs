//! The end of an attempt, and how the errors of a lambda become one.
//!
//! Promises: each error is retried unless the lambda says otherwise: an unknown error is a system error, and
//! these pass (paper). Must never: lose the cause; the reason holds the whole chain of an error.

use std::borrow::Cow;
use std::fmt;
use std::iter::successors;
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;

/// How an attempt ended. Lambdas rarely name it; layers and tests do.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Outcome {
    /// Done, with an output to keep or without.
    Success(Option<Value>),
    /// Done, with an output that is JSON text already. It is kept as it is: a [`Value`] would round numbers
    /// of more than 64 bits.
    SuccessJson(String),
    /// Try again: after the given delay, or by the lambda's backoff.
    Retriable {
        /// Delay before the next attempt; `None`: the lambda's exponential backoff.
        after: Option<Duration>,
        /// The kind of the failure: dead letters are grouped by it. `None`: `error`. At most 80 characters are
        /// kept.
        class: Option<Cow<'static, str>>,
        /// The error text; at most 8 KB are kept.
        reason: String,
    },
    /// Not now: again after so long. No attempt is used up, and it is no failure.
    Snooze(Duration),
    /// It can never succeed: do not try again.
    Fatal {
        /// As of a retriable failure. `None`: `fatal`.
        class: Option<Cow<'static, str>>,
        /// The error text; at most 8 KB are kept.
        reason: String,
    },
    /// The process that ran the attempt ended, and this worker did not. No attempt is used up, and one crash is
    /// counted: at the lambda's `max_crashes` the task is dead. For workers that run lambdas in processes of
    /// their own.
    Crashed {
        /// How it ended, as `signal 11` or `exit 1`.
        class: Cow<'static, str>,
        /// The details that are known; at most 8 KB are kept.
        reason: String,
    },
    /// Not begun, or begun in vain through no fault of the task: it goes back to its queue at once, and is
    /// charged no attempt and no crash. A lambda that returns it every time is called again and again.
    Returned,
    /// The payload is not one of the lambda's type. As fatal.
    Undecodable {
        /// The place and the cause, as serde says them.
        reason: String,
    },
}

impl Outcome {
    /// Retriable by the lambda's backoff.
    pub fn retriable(reason: impl fmt::Display) -> Self {
        Self::Retriable { after: None, class: None, reason: reason.to_string() }
    }

    /// Never to be tried again.
    pub fn fatal(reason: impl fmt::Display) -> Self {
        Self::Fatal { class: None, reason: reason.to_string() }
    }
}

/// Why an attempt did not succeed: what `?` makes of any error in a lambda.
///
/// An error that says nothing else is retried by the lambda's backoff. To say more, name the verdict where
/// the error comes up, or convert an enum of your own. An enum that implements `std::error::Error` is
/// converted already: map it with a function, `.map_err(verdict)?`.
///
/// # Example
/// ```
/// # use std::time::Duration;
/// # use tuskline_sdk::{Failure, Payload};
/// # #[derive(serde::Serialize, serde::Deserialize)] struct Charge { cents: String }
/// # impl Payload for Charge { const LAMBDA: &'static str = "charge"; }
/// enum CardError {
///     Declined,
///     Busy(Duration),
/// }
///
/// impl From<CardError> for Failure {
///     fn from(error: CardError) -> Self {
///         match error {
///             CardError::Declined => Failure::fatal("the card was declined"),
///             CardError::Busy(pause) => Failure::snooze(pause),
///         }
///     }
/// }
///
/// # async fn call(_: u64) -> Result<(), CardError> { Ok(()) }
/// async fn charge(charge: Charge) -> Result<(), Failure> {
///     let cents = charge.cents.parse().map_err(Failure::fatal)?; // never right, however often
///     std::fs::read("card.key")?;                                // retried by the backoff
///     call(cents).await?;                                        // as the enum says
///     Ok(())
/// }
/// ```
#[derive(Debug)]
pub struct Failure {
    verdict: Verdict,
    class: Option<Cow<'static, str>>,
    source: Source,
}

#[derive(Debug, Clone, Copy)]
enum Verdict {
    Retry(Option<Duration>),
    Snooze(Duration),
    Fatal,
}

type Source = Box<dyn std::error::Error + Send + Sync>;

impl Failure {
    /// Try again, by the lambda's backoff. The same as `?`.
    pub fn retry(error: impl Into<Source>) -> Self {
        Self::new(Verdict::Retry(None), error)
    }

    /// Try again after `delay`, for example what a `Retry-After` header says. An attempt is used up.
    pub fn retry_after(delay: Duration, error: impl Into<Source>) -> Self {
        Self::new(Verdict::Retry(Some(delay)), error)
    }

    /// Never try again.
    pub fn fatal(error: impl Into<Source>) -> Self {
        Self::new(Verdict::Fatal, error)
    }

    /// Not now: again after `delay`. No attempt is used up, and nothing is counted as failed.
    pub fn snooze(delay: Duration) -> Self {
        Self::new(Verdict::Snooze(delay), "snoozed")
    }

    /// Names the kind of the failure: dead letters are grouped by it, and by their texts without numbers. At
    /// most 80 characters are kept.
    #[must_use]
    pub fn class(self, class: impl Into<Cow<'static, str>>) -> Self {
        Self { class: Some(class.into()), ..self }
    }

    fn new(verdict: Verdict, source: impl Into<Source>) -> Self {
        Self { verdict, class: None, source: source.into() }
    }

    fn reason(&self) -> String {
        let causes = successors(self.source.source(), |cause| cause.source());
        causes.fold(self.source.to_string(), |reason, cause| format!("{reason}: {cause}"))
    }
}

/// The error's own line, without its causes.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.source.fmt(f)
    }
}

/// Each error that a `Box<dyn Error + Send + Sync>` can hold: std's, thiserror's, anyhow's, a text.
impl<E: Into<Source>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::retry(error)
    }
}

/// A value that a lambda may return.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not the outcome of an attempt",
    label = "a lambda cannot return this",
    note = "return `()`, an `Outcome`, or `Result<T, E>` with `T: serde::Serialize` and `E: Into<Failure>`",
    note = "wrap a bare value: `Ok::<_, Failure>(value)`"
)]
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

/// An output whose JSON is `null`, such as `()`, is none.
impl<T: Serialize, E: Into<Failure>> IntoOutcome for Result<T, E> {
    fn into_outcome(self) -> Outcome {
        match self.map(|output| serde_json::to_value(output)) {
            Ok(Ok(Value::Null)) => Outcome::Success(None),
            Ok(Ok(output)) => Outcome::Success(Some(output)),
            // A value without a JSON form never gets one: no retry can mend it.
            Ok(Err(error)) => Outcome::fatal(format!("the output has no JSON form: {error}")),
            Err(error) => error.into().into_outcome(),
        }
    }
}

impl<E: Into<Failure>> IntoOutcome for Result<Outcome, E> {
    fn into_outcome(self) -> Outcome {
        self.unwrap_or_else(|error| error.into().into_outcome())
    }
}

impl IntoOutcome for Failure {
    fn into_outcome(self) -> Outcome {
        let reason = self.reason();
        let class = self.class;
        match self.verdict {
            Verdict::Retry(after) => Outcome::Retriable { after, class, reason },
            Verdict::Snooze(delay) => Outcome::Snooze(delay),
            Verdict::Fatal => Outcome::Fatal { class, reason },
        }
    }
}
