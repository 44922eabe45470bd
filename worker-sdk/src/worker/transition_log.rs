//! One log line for each transition of a task that this worker causes, at level debug, with the target
//! `tuskline::transition`.
//!
//! Must never: log a payload, an output or an error text.

use crate::db::hsc::{AttemptResult, Verdict};
use crate::task::Priority;
use crate::worker::work::Work;

/// enqueued -> claimed.
pub(crate) fn claimed(work: &Work, lambda: &str, priority: Priority) {
    tracing::debug!(
        target: "tuskline::transition",
        task = work.task,
        fence = work.fence,
        lambda,
        %priority,
        attempt = work.attempt,
        from = "enqueued",
        to = "claimed",
        waited_ms = in_ms(work.waited),
    );
}

/// claimed -> processing, told to the database at the first heartbeat.
pub(crate) fn processing(task: i64, fence: i64) {
    tracing::debug!(
        target: "tuskline::transition", task, fence, from = "claimed", to = "processing",
    );
}

/// claimed or processing -> the status of the result, or refused: the attempt was no longer the current one.
pub(crate) fn answered(result: &AttemptResult, verdict: Verdict, lambda: &str, priority: Priority) {
    let to = match verdict {
        Verdict::Done => result.status.name(),
        Verdict::Refused => "refused",
        Verdict::Locked => return,
    };
    tracing::debug!(
        target: "tuskline::transition",
        task = result.attempt.task,
        fence = result.attempt.fence,
        lambda,
        %priority,
        from = "claimed",
        to,
        ran_ms = in_ms(result.took),
    );
}

fn in_ms(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
