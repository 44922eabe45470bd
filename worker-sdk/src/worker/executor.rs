//! An Executor: gets the next task of a lambda, runs it, reports, and ends when no task is here. A slot is a
//! number in the controller: there is an executor for it only while there is a task.

use std::sync::Arc;
use std::time::Instant;

use crate::client::Client;
use crate::worker::body::{self, Ended, conclude, context_of};
use crate::worker::controller::Controller;
use crate::worker::data::DataMap;
use crate::worker::database::Database;
use crate::worker::watchdog::Watchdog;
use crate::worker::work::Work;

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
        let limit = lambda.attempt_timeout;
        let (client, data, guard) = (&self.client, &self.data, running.clone());
        let context = context_of(&lambda.lambda, &mut work, limit, client, data, guard);
        let end = match body::begin(&lambda.lambda, context, &mut work) {
            Ok(body) => {
                // The process of a hosted body is ended past the grace, by its host.
                let grace = self.controller.config.cancel_grace;
                let grace = (!lambda.lambda.hosted).then_some(grace);
                body::watch(&lambda.lambda, &work, body, limit, grace).await
            }
            Err(panicked) => panicked,
        };
        drop(running);
        conclude(work, end, limit)
    }

    /// False: the attempt shall not begin.
    async fn report_start(&self, work: &Work) -> bool {
        let suspect = [(work.id(), None)];
        let start = self.db.control.start(&suspect);
        let started = work.stop.token.run_until_cancelled(start).await.flatten();
        started.is_some_and(|started| started.contains(&work.task))
    }
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
}
