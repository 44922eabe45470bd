//! One claimed task on its way through the worker, and its result.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::db::hsc::{Attempt, AttemptResult, Failed, ResultStatus};
use crate::db::json::clean;
use crate::worker::outcome::Outcome;
use crate::worker::statistics::CountsIndex;

/// Longest error text kept, in bytes.
const MESSAGE_MAX_BYTES: usize = 8192;
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
        }
    }

    pub(crate) fn id(&self) -> Attempt {
        Attempt { task: self.task, fence: self.fence }
    }
}

/// The reason why an attempt shall stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StopReason {
    Cancelled,
    TimedOut,
    ShuttingDown,
    LeaseLost,
}

/// Stop signal of one attempt; the first reason stays.
#[derive(Debug, Default)]
pub(crate) struct Stop {
    pub token: CancellationToken,
    reason: OnceLock<StopReason>,
}

impl Stop {
    pub(crate) fn stop(&self, reason: StopReason) {
        let _ = self.reason.set(reason);
        self.token.cancel();
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
    error_class: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    after_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<Value>,
}

impl AttemptResult {
    /// The result for the outcome that the lambda returned; `class` names the kind of a failure.
    pub(crate) fn of(work: &Work, outcome: Outcome, class: Option<&'static str>) -> Self {
        let note = Note { task: work.task, fence: work.fence, ..Note::default() };
        let note = match outcome {
            Outcome::Success(None) => None,
            Outcome::Success(Some(output)) => match checked_output(output) {
                Ok(output) => Some(Note { output: Some(output), ..note }),
                Err(reason) => return Self::of(work, Outcome::fatal(reason), Some("output")),
            },
            Outcome::Retriable { after, reason } => Some(Note {
                status: ResultStatus::RetriableFailure,
                error_class: Some(class.unwrap_or("error")),
                message: Some(clean(&reason, MESSAGE_MAX_BYTES)),
                after_ms: after.map(in_ms),
                ..note
            }),
            Outcome::Snooze(delay) => {
                Some(Note { status: ResultStatus::Snoozed, after_ms: Some(in_ms(delay)), ..note })
            }
            Outcome::Undecodable { reason } => {
                let reason = format!("payload does not decode: {reason}");
                return Self::of(work, Outcome::Fatal { reason }, Some("decode"));
            }
            Outcome::Fatal { reason } => Some(Note {
                status: ResultStatus::FatalFailure,
                error_class: Some(class.unwrap_or("fatal")),
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
        let class = note.as_ref().and_then(|note| note.error_class);
        let failed = class.map(|kind| Failed { attempt: work.attempt, kind });
        // Serialising these fields cannot fail: no maps with odd keys, no custom impls.
        let note = note.map(|note| serde_json::to_string(&note).unwrap_or_default());
        Self { attempt: work.id(), note, status, failed, counts: work.counts, took: Duration::ZERO }
    }
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
        true => Err(format!("output too large: at most {OUTPUT_MAX_BYTES} bytes, got {bytes}")),
        false => Ok(output),
    }
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
