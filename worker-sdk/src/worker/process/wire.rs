//! The messages to a host controller. `docs/executors.md` of the project shows each by example.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};

use crate::db::hsc::{Attempt, ResultStatus};
use crate::error::{Code, Error, ErrorKind};
use crate::worker::body::Ended;
use crate::worker::lambda::Lambda;
use crate::worker::work::{Stop, StopReason};

pub(super) const PROTOCOL: u32 = 1;
const CANCELLED: &str = "cancelled";
const SDK: &str = concat!("rust/", env!("CARGO_PKG_VERSION"));

#[derive(Serialize)]
pub(super) struct Join<'a> {
    protocol: u32,
    sdk: &'static str,
    lambdas: Vec<Served<'a>>,
}

#[derive(Serialize)]
struct Served<'a> {
    name: &'a str,
    slots: usize,
    memory_mib: Option<u64>,
}

impl<'a> Join<'a> {
    /// `slots`: of a lambda that has none of its own.
    pub(super) fn of(lambdas: &'a [Lambda], slots: usize) -> Self {
        let served = lambdas.iter().map(|lambda| Served {
            name: &lambda.name,
            slots: lambda.slots.unwrap_or(slots),
            memory_mib: lambda.memory_mib,
        });
        Self { protocol: PROTOCOL, sdk: SDK, lambdas: served.collect() }
    }
}

#[derive(Deserialize)]
pub(super) struct Joined {
    pub executor: String,
    pub cancel_grace_ms: u64,
    pub max_message_bytes: usize,
}

#[derive(Serialize)]
pub(super) struct NextWork<'a> {
    pub executor: &'a str,
    pub lane: u32,
    pub no: u64,
    pub wait_ms: u64,
    pub results: Vec<Box<RawValue>>,
    pub progress: Vec<Progress>,
}

/// Numbers as strings: some languages round larger ones.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct AttemptId {
    task: String,
    fence: String,
}

impl From<Attempt> for AttemptId {
    fn from(Attempt { task, fence }: Attempt) -> Self {
        Self { task: task.to_string(), fence: fence.to_string() }
    }
}

impl AttemptId {
    /// `None`: they are no numbers.
    pub(super) fn parse(&self) -> Option<Attempt> {
        Some(Attempt { task: self.task.parse().ok()?, fence: self.fence.parse().ok()? })
    }
}

#[derive(Serialize)]
pub(super) struct Progress {
    #[serde(flatten)]
    pub attempt: AttemptId,
    pub percent: f32,
    pub text: String,
}

#[derive(Deserialize)]
pub(super) struct Work {
    #[serde(default)]
    pub tasks: Vec<Task>,
    #[serde(default)]
    pub cancel: Vec<Cancel>,
    #[serde(default)]
    pub draining: bool,
}

#[derive(Deserialize)]
pub(super) struct Task {
    #[serde(flatten)]
    pub id: AttemptId,
    pub lambda: String,
    pub attempt: i16,
    pub timeout_ms: u64,
    #[serde(default)]
    pub payload: Option<String>,
    #[serde(default)]
    pub checkpoint: Option<String>,
    #[serde(default)]
    pub collection: Option<String>,
    #[serde(default)]
    pub waited_ms: u64,
    #[serde(default)]
    pub traceparent: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct Cancel {
    #[serde(flatten)]
    pub id: AttemptId,
    reason: String,
}

impl Cancel {
    pub(super) fn reason(&self) -> StopReason {
        match &*self.reason {
            "timeout" => StopReason::TimedOut,
            "shutdown" => StopReason::ShuttingDown,
            "lease" => StopReason::LeaseLost,
            _ => StopReason::Cancelled,
        }
    }
}

#[derive(Serialize)]
pub(super) struct Save<'a> {
    pub executor: &'a str,
    #[serde(flatten)]
    pub attempt: AttemptId,
    pub checkpoint: &'a str,
}

#[derive(Serialize)]
pub(super) struct Leave<'a> {
    pub executor: &'a str,
}

#[derive(Serialize)]
struct Finished<'a> {
    #[serde(flatten)]
    attempt: AttemptId,
    status: &'static str,
    #[serde(flatten)]
    note: Note<'a>,
}

/// The fields of a result beside its status. The output is JSON text.
#[derive(Default, Serialize, Deserialize)]
struct Note<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    error_class: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    after_ms: Option<u64>,
    #[serde(borrow, skip_serializing_if = "Option::is_none", serialize_with = "as_text")]
    output: Option<&'a RawValue>,
}

fn as_text<S: serde::Serializer>(output: &Option<&RawValue>, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(output.map_or("null", RawValue::get))
}

/// The result of an attempt, as JSON. The controller knows why one that was told to stop was told so.
pub(super) fn result_of(ended: &Ended, stop: &Stop) -> Box<RawValue> {
    let is_told = stop.reason().is_some();
    let (attempt, status, note) = match ended {
        Ended::Finished(result) => {
            let note = result.note.as_deref().map(serde_json::from_str::<Note<'_>>);
            let is_stopped = is_told && result.status != ResultStatus::Success;
            let status = if is_stopped { CANCELLED } else { result.status.name() };
            (result.attempt, status, note.and_then(Result::ok).unwrap_or_default())
        }
        Ended::Unfinished(work) => {
            (work.id(), if is_told { CANCELLED } else { "returned" }, Note::default())
        }
    };
    let finished = Finished { attempt: attempt.into(), status, note };
    // Texts and numbers: it cannot fail.
    to_raw_value(&finished).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

/// A message that the controller refuses.
#[derive(Debug, Deserialize)]
pub(super) struct Refusal {
    pub name: String,
    pub message: String,
    #[serde(default)]
    pub code: Option<String>,
    #[serde(default)]
    pub retry_after_ms: Option<u64>,
}

impl Refusal {
    pub(super) fn into_error(self, status: u16) -> Error {
        let text = format!("the controller refuses: {}: {}", self.name, self.message);
        if self.name == "not_current" {
            return Error::refused(Code::NotCurrent, self.message);
        }
        match self.code.as_deref().and_then(Code::of) {
            Some(code) => Error::refused(code, self.message),
            None if (400..408).contains(&status) => Error::new(ErrorKind::Invalid, text),
            None => Error::unavailable(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::body::{BodyEnd, conclude};
    use crate::worker::outcome::Outcome;
    use crate::worker::work::Work;

    /// The result of a body that ends so, after it was told to stop for this reason.
    fn sent(outcome: Outcome, stopped: Option<StopReason>) -> serde_json::Value {
        let work = Work::of(Attempt { task: 7, fence: 9 }, std::time::Instant::now());
        let stop = std::sync::Arc::clone(&work.stop);
        if let Some(reason) = stopped {
            stop.stop(reason);
        }
        let ended = conclude(work, BodyEnd::Returned(outcome), std::time::Duration::ZERO);
        let value: serde_json::Value =
            serde_json::from_str(result_of(&ended, &stop).get()).expect("JSON");
        assert_eq!((&value["task"], &value["fence"]), (&"7".into(), &"9".into()));
        value
    }

    #[test]
    fn an_output_is_a_text_in_which_no_number_is_read() {
        let value = sent(Outcome::SuccessJson(r#"{"n": 9007199254740993}"#.into()), None);
        assert_eq!(value["status"], "success");
        assert_eq!(value["output"], r#"{"n": 9007199254740993}"#);
        let nothing = sent(Outcome::Success(None), None);
        assert!(nothing.get("output").is_none() && nothing.get("message").is_none());
    }

    #[test]
    fn a_failure_keeps_its_class_its_reason_and_its_delay() {
        let (after, class) = (Some(std::time::Duration::from_secs(2)), Some("Busy".into()));
        let value = sent(Outcome::Retriable { after, class, reason: "later".into() }, None);
        assert_eq!(value["status"], "retriable_failure");
        assert_eq!((&value["error_class"], &value["message"]), (&"Busy".into(), &"later".into()));
        assert_eq!(value["after_ms"], 2_000);
    }

    #[test]
    fn an_attempt_that_was_told_to_stop_is_reported_as_cancelled_unless_it_succeeds() {
        let reasons = [StopReason::Cancelled, StopReason::TimedOut, StopReason::ShuttingDown];
        for reason in reasons {
            let value = sent(Outcome::fatal("told to stop"), Some(reason));
            assert_eq!(value["status"], "cancelled", "{reason:?}");
            assert_eq!(sent(Outcome::Success(None), Some(reason))["status"], "success");
        }
        assert_eq!(sent(Outcome::Returned, None)["status"], "returned");
    }

    #[test]
    fn a_refusal_says_what_to_do() {
        let of = |status, name: &str, code: Option<&str>| {
            let (name, message, code) = (name.into(), "a reason".into(), code.map(Into::into));
            Refusal { name, message, code, retry_after_ms: None }.into_error(status).kind()
        };
        assert_eq!(of(400, "invalid_message", None), ErrorKind::Invalid);
        assert_eq!(of(409, "not_current", None), ErrorKind::Fenced);
        assert_eq!(of(410, "unknown_executor", None), ErrorKind::Unavailable);
        assert_eq!(of(503, "no_database", None), ErrorKind::Unavailable);
    }
}
