//! Lambdas and their settings in code, so that a deploy brings them along.
//!
//! Promises: only what differs from the last definition is applied. Must never: undo the change of an
//! operator.

mod answer;
mod parts;

use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::client::periodic::Periodic;
use crate::client::setters::setters;
use crate::client::verbs::part;
use crate::db::interval;
use crate::error::Code;

pub use answer::{DefinedLambda, DefinitionOutcome, SettingChange};
pub use parts::{Archive, Breaker, Gate, Limit, OnDuplicate, OnFailure, Throttle, Unique};

/// The lambdas of an application, for [`Client::define`](crate::Client::define).
///
/// # Example
/// ```no_run
/// # use std::time::Duration;
/// # use tuskline_sdk::{Client, Definition, Definitions, Error, Limit, Payload, Periodic};
/// # #[derive(serde::Serialize, serde::Deserialize)] struct SendEmail;
/// # impl Payload for SendEmail { const LAMBDA: &'static str = "send_email"; }
/// # async fn deploy(client: &Client) -> Result<(), Error> {
/// let lambdas = Definitions::of_version(env!("CARGO_PKG_VERSION"))
///     .lambda(Definition::of::<SendEmail>())
///     .lambda(
///         Definition::new("build_report")
///             .max_attempts(3)
///             .attempt_timeout(Duration::from_secs(1800))
///             .limit(Limit::concurrency(4))
///             .schedule(Periodic::new("nightly", "build_report", "30 2 * * *")),
///     );
/// for lambda in client.define(&lambdas).await? {
///     println!("{lambda}"); // build_report: changed: max_attempts 20 -> 3
/// }
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct Definitions {
    pub(super) version: Option<String>,
    pub(super) dry_run: bool,
    lambdas: Vec<Definition>,
}

impl Definitions {
    /// No lambda yet, and no version: a lambda that a version has defined is left alone.
    pub fn new() -> Self {
        Self::default()
    }

    /// No lambda yet. A lambda that a newer version has defined is left alone. A version is up to six
    /// numbers with dots, as `1.4.2`; a text behind `-` or `+` is not compared.
    pub fn of_version(version: impl Into<String>) -> Self {
        Self { version: Some(version.into()), ..Self::default() }
    }

    /// Adds a lambda.
    pub fn lambda(mut self, lambda: Definition) -> Self {
        self.lambdas.push(lambda);
        self
    }

    /// The definitions as JSON. `Err`: the refusal of a part.
    pub(super) fn to_json(&self) -> Result<String, (Code, String)> {
        if let Some(wrong) = self.lambdas.iter().find_map(|lambda| lambda.wrong.clone()) {
            return Err(wrong);
        }
        let lambdas: Vec<_> = self.lambdas.iter().map(|lambda| &lambda.fields).collect();
        serde_json::to_string(&lambdas).map_err(|error| (Code::InvalidSetting, error.to_string()))
    }

    setters! {
        /// Changes nothing, and returns the changes that the same call would make.
        dry_run() = true;
    }
}

/// A lambda with its settings.
///
/// A setting that is left out stays as it is in the database. A part that is left out and that the last
/// definition had (a limit, an order, a gate, a schedule, unique keys, a breaker) is removed.
#[derive(Debug, Clone)]
#[must_use]
pub struct Definition {
    fields: Map<String, Value>,
    /// The first refusal of a part that the SDK makes itself.
    wrong: Option<(Code, String)>,
}

impl Definition {
    /// A lambda by its name.
    pub fn new(lambda: impl Into<String>) -> Self {
        let fields = Map::from_iter([("lambda".to_owned(), Value::String(lambda.into()))]);
        Self { fields, wrong: None }
    }

    fn set(mut self, field: &str, value: impl Into<Value>) -> Self {
        self.fields.insert(field.to_owned(), value.into());
        self
    }

    fn add(mut self, field: &str, part: Value) -> Self {
        let parts = self.fields.entry(field).or_insert_with(|| json!([]));
        if let Value::Array(parts) = parts {
            parts.push(part);
        }
        self
    }
}

/// `name(value: Type) = value;` sets the setting or part `name`.
macro_rules! settings {
    ($($(#[$doc:meta])* $name:ident($value:ident: $kind:ty) = $set:expr;)*) => { $(
        $(#[$doc])*
        pub fn $name(self, $value: $kind) -> Self {
            self.set(stringify!($name), $set)
        }
    )* };
}

/// Settings of the lambda.
impl Definition {
    settings! {
        /// Attempts that may fail before the task is dead. At least 1; default 20.
        max_attempts(attempts: u16) = attempts;

        /// Attempts that may end with the death of their worker before the task is dead. At least 1; default 3.
        max_crashes(crashes: u16) = crashes;
    }

    /// Delay before the next attempt: `first`, then doubled up to `longest`, with jitter. At most 24 h;
    /// default 1 s and 1 h.
    pub fn backoff(self, first: Duration, longest: Duration) -> Self {
        self.set("retry_base", interval(first)).set("retry_cap", interval(longest))
    }

    settings! {
        /// Deadline of one attempt: 10 ms to 7 days; default 5 min. A worker reads it when it registers.
        attempt_timeout(timeout: Duration) = interval(timeout);

        /// How long a task is kept after its success, and after each other end without a retention of its own.
        /// Default 7 days.
        retention(retention: Duration) = interval(retention);

        /// How long a dead task is kept. Default 30 days.
        dead_retention(retention: Duration) = interval(retention);

        /// How long a cancelled task is kept. Default as [`Definition::retention`].
        cancelled_retention(retention: Duration) = interval(retention);

        /// How long a dropped task is kept. Default as [`Definition::retention`].
        dropped_retention(retention: Duration) = interval(retention);

        /// How long a task that failed for good is kept. Default as [`Definition::retention`].
        fatal_retention(retention: Duration) = interval(retention);

        /// Where tasks go after their retention. Default nowhere.
        archive(archive: Archive) = json!(archive);

        /// Whether a task that is due at once enters its queue in the transaction that schedules it. Default
        /// true.
        direct(direct: bool) = direct;

        /// Largest payload in bytes of JSON: 1 to 1,048,576; default 262,144.
        max_payload_bytes(bytes: u32) = bytes;

        /// Most tasks that have not ended; one more is refused (TK020). Default 0: no bound.
        max_backlog(tasks: u32) = tasks;
    }
}

/// Parts of the lambda.
impl Definition {
    settings! {
        /// Tasks of one ordering key run one at a time, in order.
        order(on_failure: OnFailure) = json!({ "on_failure": on_failure });

        /// Tasks may have a unique key.
        unique(unique: Unique) = part(unique);

        /// A breaker pauses the lambda when attempts fail with one cause.
        breaker(breaker: Breaker) = part(breaker);
    }

    /// Adds a limit. Two limits of a lambda must differ in kind or scope.
    pub fn limit(self, limit: Limit) -> Self {
        self.add("limits", part(limit))
    }

    /// Adds a gate. It is set once: a gate that an operator has opened stays open.
    pub fn gate(self, gate: Gate) -> Self {
        let mut gate = part(gate);
        if let Value::Object(fields) = &mut gate {
            fields.remove("unseen"); // a definition needs no such leave
        }
        self.add("gates", gate)
    }

    /// Adds a schedule. It makes tasks of this lambda, whichever the schedule names.
    pub fn schedule(mut self, schedule: Periodic) -> Self {
        match schedule.to_part() {
            Ok(part) => self.add("schedules", part),
            Err(wrong) => {
                self.wrong.get_or_insert(wrong);
                self
            }
        }
    }
}
