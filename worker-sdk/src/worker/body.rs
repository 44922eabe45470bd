//! The body of an attempt: it runs to its end, its deadline, or until it is told to stop and its grace is over.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use tokio::time::timeout;

use crate::client::Client;
use crate::db::hsc::AttemptResult;
use crate::task::{Fence, TaskId};
use crate::worker::bodies::BodyGuard;
use crate::worker::context::{Context, Inner};
use crate::worker::data::DataMap;
use crate::worker::lambda::Lambda;
use crate::worker::layer::{Attempt, Running};
use crate::worker::outcome::Outcome;
use crate::worker::watchdog;
use crate::worker::work::{Crash, StopReason, Work};

/// The end of an attempt.
pub(crate) enum Ended {
    Finished(AttemptResult),
    /// Cut short by shutdown, or its process has ended: given back.
    Unfinished(Work),
}

/// How the body ended.
pub(crate) enum BodyEnd {
    Returned(Outcome),
    Panicked(String),
    /// It was dropped, or gave up, after being told to stop.
    Stopped,
}

/// The context of an attempt that begins now.
pub(crate) fn context_of(
    lambda: &Lambda,
    work: &mut Work,
    limit: Duration,
    client: &Client,
    data: &Arc<DataMap>,
    running: BodyGuard,
) -> Inner {
    Inner {
        lambda: Arc::clone(&lambda.name),
        task: TaskId(work.task),
        fence: Fence(work.fence),
        attempt: work.attempt,
        collection: work.collection.take(),
        traceparent: work.traceparent.take(),
        waited: work.waited,
        crashes: work.crashes,
        deadline: Instant::now() + limit,
        stop: Arc::clone(&work.stop),
        may_have_checkpoint: AtomicBool::new(!work.first_start),
        #[cfg(feature = "executor")]
        process: None,
        client: client.clone(),
        data: Arc::clone(data),
        _running: running,
    }
}

/// Calls the lambda. `Err`: it has panicked before it returned its future.
pub(crate) fn begin(lambda: &Lambda, context: Inner, work: &mut Work) -> Result<Running, BodyEnd> {
    let context = Context { inner: Arc::new(context) };
    let attempt = Attempt { payload: std::mem::take(&mut work.payload), context };
    std::panic::catch_unwind(AssertUnwindSafe(|| lambda.body.run(attempt)))
        .map_err(|panic| BodyEnd::Panicked(panic_text(panic.as_ref())))
}

/// Polls the body to its end, its deadline, or until it is told to stop and its grace is over. `grace`: `None`: its host
/// ends its process.
pub(crate) async fn watch(
    lambda: &Lambda,
    work: &Work,
    body: Running,
    limit: Duration,
    grace: Option<Duration>,
) -> BodyEnd {
    let mut body = AssertUnwindSafe(body).catch_unwind();
    // Most bodies of short tasks are done at the first poll: no timer is armed for them.
    if let Some(ended) = (&mut body).now_or_never() {
        return said(ended);
    }
    tokio::select! {
        biased;
        ended = &mut body => return said(ended),
        () = work.stop.token.cancelled() => {}
        () = tokio::time::sleep(limit) => work.stop.stop(StopReason::TimedOut),
    }
    let Some(grace) = grace else { return said((&mut body).await) };
    match within_grace(grace, &mut body).await {
        Some(ended) => said(ended),
        // Dropping an async body ends it; a blocking one runs on, and only the process's end
        // keeps it from running beside its successor.
        None if lambda.blocking => {
            watchdog::end_process(&format!("task {} ignored its deadline and grace", work.task));
            BodyEnd::Stopped
        }
        None => {
            // A panic while the body is dropped must not end the executor.
            let _ = std::panic::catch_unwind(AssertUnwindSafe(|| drop(body)));
            BodyEnd::Stopped
        }
    }
}

/// In tenths: a process that stood still meanwhile, stopped or on a machine that was, would else come back
/// to a grace that is over, and end itself for a body that had no time to obey.
pub(crate) async fn within_grace<T>(
    grace: Duration,
    body: &mut (impl Future<Output = T> + Unpin),
) -> Option<T> {
    for _ in 0..10 {
        if let Ok(ended) = timeout(grace / 10, &mut *body).await {
            return Some(ended);
        }
    }
    None
}

fn said(ended: std::thread::Result<Outcome>) -> BodyEnd {
    match ended {
        Ok(outcome) => BodyEnd::Returned(outcome),
        Err(panic) => BodyEnd::Panicked(panic_text(panic.as_ref())),
    }
}

/// A success stands, also if the body was told to stop; another end depends on the reason of the stop.
pub(crate) fn conclude(mut work: Work, end: BodyEnd, limit: Duration) -> Ended {
    let reason = work.stop.reason();
    let finished = match (end, reason) {
        (BodyEnd::Returned(outcome @ (Outcome::Success(_) | Outcome::SuccessJson(_))), _) => {
            AttemptResult::of(&work, outcome, None)
        }
        (_, Some(StopReason::Cancelled)) => AttemptResult::cancelled(&work),
        (BodyEnd::Returned(Outcome::Returned), _)
        | (_, Some(StopReason::ShuttingDown | StopReason::LeaseLost)) => {
            return Ended::Unfinished(work);
        }
        (BodyEnd::Returned(Outcome::Crashed { class, reason }), _) => {
            work.crash = Some(Box::new(Crash::new(&class, &reason)));
            return Ended::Unfinished(work);
        }
        (BodyEnd::Returned(outcome), None | Some(StopReason::TimedOut)) => {
            AttemptResult::of(&work, outcome, reason.map(|_| "timeout"))
        }
        (BodyEnd::Panicked(text), _) => {
            AttemptResult::of(&work, Outcome::retriable(text), Some("panic"))
        }
        (BodyEnd::Stopped, _) => {
            let text = format!("no result within attempt_timeout {limit:?}");
            AttemptResult::of(&work, Outcome::retriable(text), Some("timeout"))
        }
    };
    Ended::Finished(finished)
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    format!("panicked: {}", text.as_deref().unwrap_or("(no message)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_body_that_obeys_after_a_standstill_is_in_time() {
        let grace = Duration::from_secs(5);
        let (obeyed, body) = tokio::sync::oneshot::channel::<()>();
        let waiting = tokio::spawn(async move { within_grace(grace, &mut { body }).await });
        tokio::task::yield_now().await;
        tokio::time::advance(grace * 2).await;
        tokio::task::yield_now().await;
        let _ = obeyed.send(());
        assert!(waiting.await.expect("no panic").is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_never_obeys_has_its_grace() {
        let began = tokio::time::Instant::now();
        let ended = within_grace(Duration::from_secs(5), &mut std::future::pending::<()>()).await;
        assert!(ended.is_none());
        assert!((4.9..5.2).contains(&began.elapsed().as_secs_f64()));
    }
}
