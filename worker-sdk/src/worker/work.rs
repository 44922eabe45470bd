//! One claimed task on its way through the worker, and its result.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};
use tokio_util::sync::CancellationToken;

use crate::db::hsc::{Attempt, AttemptResult, Failed, ResultStatus};
use crate::db::json::{check_depth, clean};
use crate::worker::outcome::Outcome;
use crate::worker::statistics::CountsIndex;

/// Longest error text kept, in bytes.
const MESSAGE_MAX_BYTES: usize = 8192;
/// Longest class of a failure, in bytes; the database keeps 80 characters of it.
const CLASS_MAX_BYTES: usize = 320;
/// Largest output kept, in bytes of JSON text.
const OUTPUT_MAX_BYTES: usize = 1 << 20;
/// Deepest nesting of an output: the database's JSON parser gives up somewhere in the thousands, and
/// a result it cannot read would be sent again for ever.
const OUTPUT_MAX_DEPTH: usize = 64;
/// Longest delay that the database's integers can hold; it cuts it to ten years.
const AFTER_MAX_MS: u64 = i64::MAX.unsigned_abs();

/// A claimed task. Not Clone: its holder may report a result for the attempt, once.
#[derive(Debug)]
pub(crate) struct Work {
    pub task: i64,
    pub fence: i64,
    pub attempt: i16,
    pub crashes: i16,
    /// The counts to which it adds.
    pub counts: CountsIndex,
    /// Its body has never begun, as far as the database knows.
    pub first_start: bool,
    pub waited: Duration,
    /// When it came into this process.
    pub claimed_at: Instant,
    pub collection: Option<String>,
    pub traceparent: Option<String>,
    pub payload: String,
    pub stop: Arc<Stop>,
    /// The process that ran it has ended.
    pub crash: Option<Box<Crash>>,
}

/// How the process of an attempt has ended.
#[derive(Debug)]
pub(crate) struct Crash {
    pub class: String,
    pub reason: String,
}

impl Crash {
    pub(crate) fn new(class: &str, reason: &str) -> Self {
        let class = clean(class, CLASS_MAX_BYTES);
        Self { class, reason: clean(reason, MESSAGE_MAX_BYTES) }
    }
}

impl Work {
    /// A first attempt without a payload.
    #[cfg(test)]
    pub(crate) fn of(attempt: Attempt, claimed_at: Instant) -> Self {
        Self {
            task: attempt.task,
            fence: attempt.fence,
            attempt: 1,
            crashes: 0,
            counts: 0,
            first_start: true,
            waited: Duration::ZERO,
            claimed_at,
            collection: None,
            traceparent: None,
            payload: "null".into(),
            stop: Arc::default(),
            crash: None,
        }
    }

    pub(crate) fn id(&self) -> Attempt {
        Attempt { task: self.task, fence: self.fence }
    }
}

/// The reason why an attempt shall stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum StopReason {
    /// Its cancel was requested.
    Cancelled,
    /// Its deadline is over.
    TimedOut,
    /// Its worker ends, and its grace to finish is over.
    ShuttingDown,
    /// No heartbeat was acknowledged for T, or the database counts the worker as dead: the task may run elsewhere
    /// soon.
    LeaseLost,
}

/// Stop signal of one attempt; the first reason stays.
#[derive(Debug, Default)]
pub(crate) struct Stop {
    pub token: CancellationToken,
    reason: OnceLock<StopReason>,
    /// The process that runs the attempt, if it is another one.
    process: OnceLock<i32>,
}

impl Stop {
    pub(crate) fn stop(&self, reason: StopReason) {
        let _ = self.reason.set(reason);
        self.token.cancel();
    }

    pub(crate) fn runs_in(&self, process: i32) {
        let _ = self.process.set(process);
    }

    pub(crate) fn process(&self) -> Option<i32> {
        self.process.get().copied()
    }

    pub(crate) fn reason(&self) -> Option<StopReason> {
        self.reason.get().copied()
    }
}

#[derive(Default, Serialize)]
struct Note {
    task: i64,
    fence: i64,
    status: ResultStatus,
    #[serde(skip_serializing_if = "Option::is_none")]
    error_class: Option<Cow<'static, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    after_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<Box<RawValue>>,
}

impl AttemptResult {
    /// The result for the outcome that the lambda returned; `class` names the kind of a failure.
    pub(crate) fn of(work: &Work, outcome: Outcome, class: Option<&'static str>) -> Self {
        let note = Note { task: work.task, fence: work.fence, ..Note::default() };
        let note = match outcome {
            Outcome::Success(None) => None,
            Outcome::Success(Some(output)) => match checked_output(output) {
                // A value that has been text before is one again.
                Ok(output) => Some(Note { output: to_raw_value(&output).ok(), ..note }),
                Err(reason) => return Self::of(work, Outcome::fatal(reason), Some("output")),
            },
            Outcome::SuccessJson(text) => match checked_text(text) {
                Ok(output) => Some(Note { output: Some(output), ..note }),
                Err(reason) => return Self::of(work, Outcome::fatal(reason), Some("output")),
            },
            Outcome::Retriable { after, class: own, reason } => Some(Note {
                status: ResultStatus::RetriableFailure,
                error_class: named(class, own, "error"),
                message: Some(clean(&reason, MESSAGE_MAX_BYTES)),
                after_ms: after.map(in_ms),
                ..note
            }),
            Outcome::Snooze(delay) => {
                Some(Note { status: ResultStatus::Snoozed, after_ms: Some(in_ms(delay)), ..note })
            }
            // It goes back and is no result (`conclude`); as one it would be this.
            Outcome::Returned | Outcome::Crashed { .. } => {
                Some(Note { status: ResultStatus::Snoozed, after_ms: Some(0), ..note })
            }
            Outcome::Undecodable { reason } => {
                let reason = format!("payload does not decode: {reason}");
                return Self::of(work, Outcome::fatal(reason), Some("decode"));
            }
            Outcome::Fatal { class: own, reason } => Some(Note {
                status: ResultStatus::FatalFailure,
                error_class: named(class, own, "fatal"),
                message: Some(clean(&reason, MESSAGE_MAX_BYTES)),
                ..note
            }),
        };
        Self::new(work, note)
    }

    /// The result of an attempt that stopped because of a cancellation.
    pub(crate) fn cancelled(work: &Work) -> Self {
        let (task, fence, status) = (work.task, work.fence, ResultStatus::Cancelled);
        Self::new(work, Some(Note { task, fence, status, ..Note::default() }))
    }

    fn new(work: &Work, note: Option<Note>) -> Self {
        let status = note.as_ref().map_or(ResultStatus::Success, |note| note.status);
        let class = note.as_ref().and_then(|note| note.error_class.clone());
        let failed = class.map(|kind| Failed { attempt: work.attempt, kind });
        // Serialising these fields cannot fail: no maps with odd keys, no custom impls.
        let note = note.map(|note| serde_json::to_string(&note).unwrap_or_default());
        Self { attempt: work.id(), note, status, failed, counts: work.counts, took: Duration::ZERO }
    }
}

/// The class of a failure: of the worker, of the lambda, else this one.
fn named(
    ours: Option<&'static str>,
    own: Option<Cow<'static, str>>,
    else_: &'static str,
) -> Option<Cow<'static, str>> {
    let own = own.map(|own| Cow::Owned(clean(&own, CLASS_MAX_BYTES)));
    Some(ours.map(Cow::Borrowed).or(own).unwrap_or(Cow::Borrowed(else_)))
}

fn in_ms(delay: Duration) -> u64 {
    u64::try_from(delay.as_millis()).unwrap_or(u64::MAX).min(AFTER_MAX_MS)
}

/// The output as it is stored: no NUL characters, not over the limits.
pub(crate) fn checked_output(mut output: Value) -> Result<Value, String> {
    if !scrub(&mut output, OUTPUT_MAX_DEPTH) {
        return Err(format!("output too deep: nesting at most {OUTPUT_MAX_DEPTH}"));
    }
    let bytes = output.to_string().len();
    match bytes > OUTPUT_MAX_BYTES {
        true => Err(too_large(bytes)),
        false => Ok(output),
    }
}

/// The same for JSON text. The database replaces a NUL in it.
fn checked_text(text: String) -> Result<Box<RawValue>, String> {
    let bytes = text.len();
    if bytes > OUTPUT_MAX_BYTES {
        return Err(too_large(bytes));
    }
    check_depth(&text).map_err(|depth| {
        format!("output too deep: nesting at most {OUTPUT_MAX_DEPTH}, got {depth}")
    })?;
    RawValue::from_string(text).map_err(|error| format!("the output is no JSON: {error}"))
}

fn too_large(bytes: usize) -> String {
    format!("output too large: at most {OUTPUT_MAX_BYTES} bytes, got {bytes}")
}

/// False when it nests deeper than `depth`.
fn scrub(value: &mut Value, depth: usize) -> bool {
    match value {
        Value::String(text) if text.contains('\0') => *text = text.replace('\0', "\u{fffd}"),
        Value::Array(_) | Value::Object(_) if depth == 0 => return false,
        Value::Array(values) => return values.iter_mut().all(|value| scrub(value, depth - 1)),
        Value::Object(map) => {
            if map.keys().any(|key| key.contains('\0')) {
                *map = std::mem::take(map)
                    .into_iter()
                    .map(|(key, value)| (key.replace('\0', "\u{fffd}"), value))
                    .collect();
            }
            return map.values_mut().all(|value| scrub(value, depth - 1));
        }
        _ => {}
    }
    true
}
