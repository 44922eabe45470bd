//! An Executor: gets the next task of a lambda, runs it, reports, and ends when no task is here. A slot is a
//! number in the controller: there is an executor for it only while there is a task.

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
use crate::worker::context::Context;
use crate::worker::context::Inner;
use crate::worker::controller::{Controller, ServedLambda};
use crate::worker::data::DataMap;
use crate::worker::database::Database;
use crate::worker::layer::{Attempt, Running};
use crate::worker::outcome::Outcome;
use crate::worker::watchdog;
use crate::worker::watchdog::Watchdog;
use crate::worker::work::{Crash, StopReason, Work};

/// After so many tasks without a wait, the executor lets other futures of its thread run.
const YIELD_EVERY: u32 = 32;

/// The parts that the executors of a registration share.
pub(crate) struct Executor {
    pub controller: Arc<Controller>,
    pub db: Arc<Database>,
    pub watchdog: Arc<Watchdog>,
    pub client: Client,
    pub data: Arc<DataMap>,
}

/// The end of an attempt.
enum Ended {
    Finished(AttemptResult),
    /// Cut short by shutdown, or its process has ended: given back.
    Unfinished(Work),
}

/// How the body ended.
enum BodyEnd {
    Returned(Outcome),
    Panicked(String),
    /// It was dropped, or gave up, after being told to stop.
    Stopped,
}

impl Executor {
    /// Works until no task of the lambda is here, or the worker drains.
    pub(crate) async fn run(self: Arc<Self>, lambda: usize) {
        let mut next = self.controller.next_work(lambda);
        let mut in_a_row = 0_u32;
        while let Some(work) = next {
            let began = Instant::now();
            next = match self.execute(lambda, work, began).await {
                Ended::Finished(mut finished) => {
                    let took = began.elapsed();
                    finished.took = took;
                    self.controller.statistics.ran(finished.counts, took);
                    self.controller.finish(lambda, finished, took)
                }
                Ended::Unfinished(work) => {
                    self.controller.abandon(lambda, work);
                    self.controller.next_work(lambda)
                }
            };
            in_a_row += 1;
            if in_a_row.is_multiple_of(YIELD_EVERY) {
                tokio::task::yield_now().await;
            }
        }
    }

    async fn execute(&self, lambda: usize, mut work: Work, began: Instant) -> Ended {
        // A task that was part of a worker's death is reported before it runs, so that the next
        // death is charged to those that had begun. If the fence is gone, so is our right to run it.
        // In a box: it is rare, and 17 kB of each executor's future otherwise.
        if work.crashes > 0 && !Box::pin(self.report_start(&work)).await {
            return Ended::Unfinished(work);
        }
        // A process that was frozen past its limit wakes with tasks in its buffers that other workers have
        // by now. The watchdog is about to stop all that runs; until then no body begins.
        let Some(running) = self.watchdog.begin() else { return Ended::Unfinished(work) };
        if work.first_start {
            let delay = work.waited + began.duration_since(work.claimed_at);
            self.controller.statistics.started(work.counts, delay);
        }
        let lambda = &self.controller.lambdas[lambda];
        let context = self.context(lambda, &mut work, running.clone());
        let attempt = Attempt { payload: std::mem::take(&mut work.payload), context };
        let body = std::panic::catch_unwind(AssertUnwindSafe(|| lambda.lambda.body.run(attempt)));
        let end = match body {
            Ok(body) => self.watch(lambda, &work, body).await,
            Err(panic) => BodyEnd::Panicked(panic_text(panic.as_ref())),
        };
        drop(running);
        conclude(work, end, lambda.attempt_timeout)
    }

    /// False: the attempt shall not begin.
    async fn report_start(&self, work: &Work) -> bool {
        let suspect = [(work.id(), None)];
        let start = self.db.control.start(&suspect);
        let started = work.stop.token.run_until_cancelled(start).await.flatten();
        started.is_some_and(|started| started.contains(&work.task))
    }

    fn context(&self, lambda: &ServedLambda, work: &mut Work, running: BodyGuard) -> Context {
        Context {
            inner: Arc::new(Inner {
                lambda: Arc::clone(&lambda.lambda.name),
                task: TaskId(work.task),
                fence: Fence(work.fence),
                attempt: work.attempt,
                collection: work.collection.take(),
                traceparent: work.traceparent.take(),
                waited: work.waited,
                crashes: work.crashes,
                deadline: Instant::now() + lambda.attempt_timeout,
                stop: Arc::clone(&work.stop),
                may_have_checkpoint: AtomicBool::new(!work.first_start),
                client: self.client.clone(),
                data: Arc::clone(&self.data),
                _running: running,
            }),
        }
    }

    /// Polls the body to its end, its deadline, or until it is told to stop and its grace is over.
    async fn watch(&self, lambda: &ServedLambda, work: &Work, body: Running) -> BodyEnd {
        let mut body = AssertUnwindSafe(body).catch_unwind();
        // Most bodies of short tasks are done at the first poll: no timer is armed for them.
        if let Some(ended) = (&mut body).now_or_never() {
            return said(ended);
        }
        tokio::select! {
            biased;
            ended = &mut body => return said(ended),
            () = work.stop.token.cancelled() => {}
            () = tokio::time::sleep(lambda.attempt_timeout) => work.stop.stop(StopReason::TimedOut),
        }
        // Its process is ended past the grace, by its host.
        if lambda.lambda.hosted {
            return said((&mut body).await);
        }
        match within_grace(self.controller.config.cancel_grace, &mut body).await {
            Some(ended) => said(ended),
            // Dropping an async body ends it; a blocking one runs on, and only the process's end
            // keeps it from running beside its successor.
            None if lambda.lambda.blocking => {
                watchdog::end_process(&format!(
                    "task {} ignored its deadline and grace",
                    work.task
                ));
                BodyEnd::Stopped
            }
            None => {
                // A panic while the body is dropped must not end the executor.
                let _ = std::panic::catch_unwind(AssertUnwindSafe(|| drop(body)));
                BodyEnd::Stopped
            }
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
fn conclude(mut work: Work, end: BodyEnd, limit: Duration) -> Ended {
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

    fn size<F>(_: impl Fn(Arc<Executor>, usize) -> F) -> usize {
        size_of::<F>()
    }

    /// It is what each task that runs takes beside its body.
    #[test]
    fn the_future_of_an_executor_is_small() {
        let bytes = size(Executor::run);
        assert!(bytes <= 1_024, "{bytes} bytes");
    }

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
