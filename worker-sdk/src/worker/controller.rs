//! The Controller: one for each registered worker. It decides what to claim, hands claimed tasks to the
//! executors and gathers their results.
//!
//! Its state is made of five types, each in a file of its own: `Slots` (what runs and what waits here),
//! `QueueWatch` (when to look into which queue), `LeaseLedger` (which leases are ours), `DeferredResults`
//! (results whose rows are locked) and `ExchangePlan` (one exchange to be made). `planning` and `answers`
//! bring them together. `doors` is what the connections call.
//!
//! It holds its lock for computing only, never across a call to the database.

mod answers;
mod claim_bound;
mod deferred_results;
mod doors;
mod exchange_plan;
mod lease_ledger;
mod planning;
mod queue_watch;
mod slots;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, mpsc};

use crate::db::hsc::{AttemptResult, Report, Served};
use crate::worker::config::WorkerConfig;
use crate::worker::failure_log::{self, FailureLog};
use crate::worker::lambda::Lambda;
use crate::worker::statistics::{CountsIndex, Statistics};
use crate::worker::work::Work;

pub(crate) use answers::{Brought, Wanted};
use claim_bound::ClaimBound;
use deferred_results::DeferredResults;
pub(crate) use exchange_plan::ExchangePlan;
use lease_ledger::{LeaseLedger, ReconcileTiming};
use queue_watch::QueueWatch;
pub(crate) use queue_watch::{Holder, Peek, WatchEvent, WatchRequest};
use slots::Slots;
#[cfg(feature = "metrics")]
use slots::Usage;

/// See the module.
pub(crate) struct Controller {
    pub(crate) config: WorkerConfig,
    pub(crate) lambdas: Vec<ServedLambda>,
    queues: Vec<ServedQueue>,
    state: Mutex<State>,
    pub(crate) statistics: Arc<Statistics>,
    /// Something for the exchange connection that has the turn.
    exchanges: Notify,
    /// An attempt was abandoned.
    pub(crate) abandoned: Notify,
    /// The last running task has finished and its result is recorded.
    quiet: Notify,
    /// Behind a transaction pooler: no LISTEN, no session locks, only polls.
    pub(crate) pooled: bool,
}

/// A lambda that this worker serves.
pub(crate) struct ServedLambda {
    pub lambda: Lambda,
    pub attempt_timeout: Duration,
    /// Its queues, highest priority first.
    queues: Vec<usize>,
}

/// A queue that this worker serves.
struct ServedQueue {
    id: i32,
    lambda: usize,
    /// Where its attempts are counted.
    counts: CountsIndex,
    /// A bound of its own within the slots of its lambda.
    bound: Option<usize>,
}

struct State {
    slots: Slots,
    watch: QueueWatch,
    failures: FailureLog,
    ledger: LeaseLedger,
    deferred: DeferredResults,
    claim_bound: ClaimBound,
    /// Bytes of payloads that claims in flight may bring.
    asked_bytes: usize,
    /// Claims since one that asked an aged queue first.
    claims_since_aged: u64,
    /// Results that wait for an exchange.
    results: Vec<AttemptResult>,
    first_result_at: Option<Instant>,
    /// Long exchanges that are under way.
    bulk: usize,
    /// Results on the way and not yet acknowledged.
    unacknowledged: usize,
    /// Work to be given back.
    abandoned: Vec<Work>,
    draining: bool,
    /// Exchange connections that are open, or would be opened.
    connections: usize,
    /// An exchange connection is gone, and what it had under way with it: a drain does not wait for that.
    connection_lost: bool,
}

impl State {
    /// Nothing runs, and no result waits to be sent.
    fn is_quiet(&self) -> bool {
        self.slots.any_running().is_none() && self.results.is_empty() && self.deferred.is_empty()
    }

    /// The executor that asks for it gets it, or ends: under one lock, so that no task comes in between.
    fn next_work(&mut self, lambda: usize, now: Instant) -> Option<Work> {
        let next = (!self.draining).then(|| self.slots.take(lambda, now)).flatten();
        if next.is_none() {
            self.slots.executor_ends(lambda);
        }
        next
    }

    /// Quiet, and no result is left to be recorded except those that are being sent.
    fn is_flushed(&self) -> bool {
        self.is_quiet() && !self.ledger.has_leases_to_drop()
    }
}

impl Controller {
    pub(crate) fn new(
        config: WorkerConfig,
        lambdas: Vec<Lambda>,
        served: &[Served],
        requests: mpsc::UnboundedSender<WatchRequest>,
        pooled: bool,
        statistics: Arc<Statistics>,
    ) -> Self {
        let now = Instant::now();
        let (mut queues, mut rooms) = (Vec::new(), Vec::new());
        for (index, lambda) in lambdas.into_iter().enumerate() {
            let own = served.iter().filter(|one| *one.lambda == *lambda.name);
            let timeout = own.clone().next().map(|served| served.attempt_timeout);
            let mut ids: Vec<_> = own.map(|one| (one.priority, one.queue_id)).collect();
            ids.sort();
            let first = queues.len();
            queues.extend(ids.into_iter().map(|(priority, id)| ServedQueue {
                id,
                lambda: index,
                counts: Statistics::index_of(index, priority),
                bound: lambda.bound(priority),
            }));
            rooms.push(ServedLambda {
                lambda,
                attempt_timeout: timeout.unwrap_or(Duration::from_secs(300)),
                queues: (first..queues.len()).collect(),
            });
        }
        let timing = ReconcileTiming {
            suspicion: config.request_timeout * 2 + config.heartbeat_period * 3,
            period: config.heartbeat_period * 12,
        };
        let ids = queues.iter().map(|queue| queue.id);
        let state = State {
            slots: Slots::new(&config, &rooms, &queues),
            failures: FailureLog::new(rooms.iter().map(|room| Arc::clone(&room.lambda.name))),
            watch: QueueWatch::new(&config, ids, requests, pooled, now),
            ledger: LeaseLedger::new(timing, now),
            deferred: DeferredResults::default(),
            claim_bound: ClaimBound::new(&config, rooms.len()),
            asked_bytes: 0,
            claims_since_aged: 0,
            results: Vec::new(),
            first_result_at: None,
            bulk: 0,
            unacknowledged: 0,
            abandoned: Vec::new(),
            draining: false,
            connections: config.exchange_connections,
            connection_lost: false,
        };
        Self {
            config,
            lambdas: rooms,
            queues,
            state: Mutex::new(state),
            statistics,
            exchanges: Notify::new(),
            abandoned: Notify::new(),
            quiet: Notify::new(),
            pooled,
        }
    }

    /// How busy each lambda is, by name.
    #[cfg(feature = "metrics")]
    pub(crate) fn usage(&self) -> Vec<(Arc<str>, Usage)> {
        let state = self.lock();
        let usage = |(at, served): (usize, &ServedLambda)| {
            (Arc::clone(&served.lambda.name), state.slots.usage_of(at))
        };
        self.lambdas.iter().enumerate().map(usage).collect()
    }

    /// The counts since the last report; `None`: nothing was counted.
    pub(crate) fn report(&self) -> Option<Report> {
        let queues: Vec<_> = self.queues.iter().map(|queue| (queue.counts, queue.id)).collect();
        self.statistics.report(&queues)
    }

    /// For the log: after how many attempts the tasks of these lambdas are dead.
    pub(crate) fn learn_max_attempts(&self, known: &[(String, i32)]) {
        self.lock().failures.learn_max_attempts(known);
    }

    /// Logs how many attempts have failed without a line of their own, where it is time for that.
    pub(crate) fn tell_left_out(&self) {
        let lines = self.lock().failures.left_out(Instant::now());
        failure_log::write(lines);
    }

    /// The same for all, at the end.
    pub(crate) fn tell_rest(&self) {
        let lines = self.lock().failures.rest();
        failure_log::write(lines);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic cannot happen while it is held; were it to, the state is still consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// NextWork: a task of a lambda, highest priority first, for one of its executors. `None`: no task is
    /// here, or the worker drains, and the executor ends.
    pub(crate) fn next_work(&self, lambda: usize) -> Option<Work> {
        self.lock().next_work(lambda, Instant::now())
    }

    /// Takes the result of an attempt. Returns the next task of the lambda, as [`Self::next_work`] does.
    pub(crate) fn finish(
        &self,
        lambda: usize,
        result: AttemptResult,
        took: Duration,
    ) -> Option<Work> {
        let now = Instant::now();
        let mut state = self.lock();
        state.slots.finish(lambda, result.attempt, took);
        if state.results.is_empty() {
            state.first_result_at = Some(now);
        }
        state.results.push(result);
        let next = state.next_work(lambda, now);
        let idle = state.slots.are_idle();
        if idle && state.connection_lost {
            self.quiet.notify_waiters();
        }
        if idle || state.results.len() == 1 || state.results.len() == self.config.max_batch {
            self.exchanges.notify_one();
        }
        next
    }

    /// The slots of each lambda of a host from now on. Returns the executors to start for tasks that wait.
    pub(crate) fn resize(&self, slots: impl Fn(&str) -> usize) -> Vec<Wanted> {
        let mut state = self.lock();
        let wanted = self.lambdas.iter().enumerate().map(|(lambda, served)| Wanted {
            lambda,
            executors: state.slots.resize(lambda, slots(&served.lambda.name)),
        });
        let wanted = wanted.filter(|wanted| wanted.executors > 0).collect();
        self.exchanges.notify_one();
        wanted
    }

    /// Takes an attempt that goes back unfinished: the worker drains, or the attempt must not begin.
    pub(crate) fn abandon(&self, lambda: usize, work: Work) {
        let mut state = self.lock();
        state.slots.abandon(lambda, work.id());
        state.abandoned.push(work);
        self.quiet.notify_waiters();
        self.abandoned.notify_one();
        if state.draining {
            // It may have been the last one that the exchange connections wait for.
            self.exchanges.notify_waiters();
        }
    }

    /// Stops claiming. Returns the tasks that have not begun, to be given back.
    pub(crate) fn drain(&self) -> Vec<Work> {
        let mut state = self.lock();
        state.draining = true;
        self.exchanges.notify_waiters();
        state.slots.drain()
    }

    /// Waits until nothing runs and each result is acknowledged, if all exchange connections are here.
    pub(crate) async fn until_quiet(&self) {
        loop {
            let notified = self.quiet.notified();
            tokio::pin!(notified);
            notified.as_mut().enable();
            {
                let state = self.lock();
                let recorded = state.is_quiet() && state.unacknowledged == 0;
                if recorded || (state.connection_lost && state.slots.any_running().is_none()) {
                    return;
                }
            }
            notified.await;
        }
    }
}
