//! The messages of executors: JSON over HTTP/1.1 on a unix socket. `docs/executors.md` shows each by example.
//!
//! Fields that are unknown are ignored, and those that are empty may be missing. Tasks, fences and executors
//! are strings. Payloads, outputs and checkpoints are JSON text within a string: no number is parsed on the way.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The only protocol so far.
pub const PROTOCOL: u32 = 1;

/// An executor's process begins.
#[derive(Debug, Deserialize)]
pub struct Join {
    pub protocol: u32,
    #[serde(default)]
    pub sdk: Option<String>,
    #[serde(default)]
    pub app_version: Option<String>,
    /// A process of the same user that speaks through others, such as a shell by `curl`.
    #[serde(default)]
    pub pid: Option<u32>,
    pub lambdas: Vec<Served>,
}

/// A lambda that an executor serves, or that a zygote knows.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Served {
    pub name: String,
    #[serde(default = "one")]
    pub slots: usize,
    /// More memory than so much ends the process while a task of this lambda is in hand.
    #[serde(default)]
    pub memory_mib: Option<u64>,
    /// In processes of its own, one task each.
    #[serde(default)]
    pub isolate: bool,
}

const fn one() -> usize {
    1
}

#[derive(Debug, Serialize)]
pub struct Joined {
    pub executor: String,
    pub protocol: u32,
    pub cancel_grace_ms: u64,
    pub max_message_bytes: usize,
}

/// Results up, tasks down.
#[derive(Debug, Deserialize)]
pub struct NextWork<'a> {
    pub executor: &'a str,
    #[serde(default)]
    pub lane: u32,
    pub no: u64,
    #[serde(default)]
    pub wait_ms: u64,
    /// Most tasks that the answer may bring.
    #[serde(default)]
    pub max: Option<usize>,
    /// Each is read by itself, so that one that is wrong refuses no other.
    #[serde(borrow, default)]
    pub results: Vec<&'a RawValue>,
    #[serde(default)]
    pub progress: Vec<Progress>,
}

/// An attempt, as executors name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Attempt {
    #[serde(with = "number")]
    pub task: i64,
    #[serde(with = "number")]
    pub fence: i64,
}

/// The result of an attempt.
#[derive(Debug, Deserialize)]
pub struct AttemptResult {
    pub status: ResultStatus,
    #[serde(default)]
    pub output: Option<String>,
    #[serde(default)]
    pub message: Option<String>,
    #[serde(default)]
    pub error_class: Option<String>,
    #[serde(default)]
    pub after_ms: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResultStatus {
    Success,
    RetriableFailure,
    FatalFailure,
    Snoozed,
    Cancelled,
    Returned,
}

#[derive(Debug, Deserialize)]
pub struct Progress {
    #[serde(flatten)]
    pub attempt: Attempt,
    pub percent: f32,
    #[serde(default)]
    pub text: String,
}

#[derive(Debug, Default, Serialize)]
pub struct Work {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tasks: Vec<Task>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cancel: Vec<Cancel>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<Attempt>,
    pub draining: bool,
}

impl Work {
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty() && self.cancel.is_empty() && self.refused.is_empty()
    }
}

#[derive(Debug, Serialize)]
pub struct Task {
    #[serde(flatten)]
    pub attempt_id: Attempt,
    pub lambda: std::sync::Arc<str>,
    pub attempt: i16,
    pub timeout_ms: u64,
    pub payload: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub collection: Option<String>,
    pub waited_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
}

#[derive(Debug, Clone, Copy, Serialize)]
pub struct Cancel {
    #[serde(flatten)]
    pub attempt: Attempt,
    pub reason: &'static str,
    pub grace_ms: u64,
}

/// A checkpoint for the next attempt.
#[derive(Debug, Deserialize)]
pub struct Save {
    pub executor: String,
    #[serde(flatten)]
    pub attempt: Attempt,
    pub checkpoint: String,
}

#[derive(Debug, Deserialize)]
pub struct Leave {
    pub executor: String,
}

/// A zygote asks which executors to fork.
#[derive(Debug, Deserialize)]
pub struct NextFork {
    pub protocol: u32,
    #[serde(default)]
    pub wait_ms: u64,
    pub lambdas: Vec<Served>,
}

#[derive(Debug, Default, Serialize)]
pub struct Forks {
    pub fork: Vec<Fork>,
    pub draining: bool,
}

/// One executor to fork.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Fork {
    pub lambdas: Vec<String>,
}

/// A refusal. Its status says what the executor does next.
#[derive(Debug)]
pub struct Refusal {
    pub status: u16,
    pub body: RefusalBody,
}

#[derive(Debug, Serialize)]
pub struct RefusalBody {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<&'static str>,
    pub name: &'static str,
    pub message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    #[serde(flatten)]
    pub more: BTreeMap<&'static str, u64>,
}

impl Refusal {
    pub fn new(status: u16, name: &'static str, message: impl Into<String>) -> Self {
        let body = RefusalBody {
            code: None,
            name,
            message: message.into(),
            field: None,
            more: BTreeMap::new(),
        };
        Self { status, body }
    }

    /// The message has no sense: the executor is wrong, and ends.
    pub fn invalid(field: &str, message: impl Into<String>) -> Self {
        Self::new(400, "invalid_message", message).at(field)
    }

    pub fn at(mut self, field: impl Into<String>) -> Self {
        self.body.field = Some(field.into());
        self
    }

    pub fn with(mut self, name: &'static str, value: u64) -> Self {
        self.body.more.insert(name, value);
        self
    }
}

/// Numbers as strings: JavaScript rounds larger ones.
mod number {
    use std::borrow::Cow;

    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(number: &i64, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(number)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<i64, D::Error> {
        let text = Cow::<str>::deserialize(from)?;
        text.parse()
            .map_err(|_| D::Error::custom("a number as a string is expected, such as \"4711\""))
    }
}
