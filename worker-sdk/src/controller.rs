//! The Controller: one per worker process. It decides what to claim, keeps claimed tasks in local
//! buffers by priority, answers NextWork to the executors and gathers their results.
//!
//! It claims what its executors can start soon and no more: a claimed task shall not wait here longer
//! than `buffer_target`, and long tasks are never hoarded. It holds its lock for computing only, never
//! across a call to the database.

mod call_rate;
mod claim_bound;
mod claims;
mod held;
mod leases;
mod load;
mod orders;
mod peek;
mod queue;
mod queue_watch;
mod rests;
mod running;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, mpsc};

use crate::config::WorkerConfig;
use crate::hsc::Served;
use crate::lambda::Lambda;
use crate::work::{Finished, Stop, Work};

use call_rate::CallRate;
use claim_bound::ClaimBound;
use held::Held;
use load::Load;
pub(crate) use orders::Order;
pub(crate) use peek::Peek;
use queue::Queue;
pub(crate) use queue_watch::WatchRequest;
use rests::Rests;

/// See the module.
pub(crate) struct Controller {
    pub(crate) config: WorkerConfig,
    pub(crate) lambdas: Vec<ServedLambda>,
    pub(crate) queues: Vec<ServedQueue>,
    /// Its queues on each bell.
    on_bell: BTreeMap<i32, Vec<usize>>,
    state: Mutex<State>,
    /// Something for a lane to do.
    lanes: Notify,
    /// The last running task has finished and its result is recorded.
    quiet: Notify,
    watch: mpsc::UnboundedSender<WatchRequest>,
    /// Behind a transaction pooler: no LISTEN, no session locks, only polls.
    pub(crate) pooled: bool,
}

/// A lambda this worker serves.
pub(crate) struct ServedLambda {
    pub lambda: Lambda,
    pub attempt_timeout: Duration,
    /// Its queues, highest priority first.
    pub queues: Vec<usize>,
    work: Notify,
}

/// A queue this worker serves.
pub(crate) struct ServedQueue {
    pub queue_id: i32,
    pub lambda: usize,
}

struct State {
    queues: Vec<Queue>,
    calls: CallRate,
    rests: Rests,
    loads: Vec<Load>,
    claim_bound: ClaimBound,
    /// Payloads in the buffers, in bytes.
    buffered_bytes: usize,
    /// Bytes of payloads that claims in flight may bring.
    asked_bytes: usize,
    /// By task and fence: after a failover that lost a claim, two attempts of one task may be here.
    running: HashMap<(i64, i64), Running>,
    results: Vec<Finished>,
    first_result_at: Option<Instant>,
    held: Held,
    /// Orders under way with results, or from a backlog.
    bulk: usize,
    /// Results taken by lanes and not yet acknowledged.
    unacknowledged: usize,
    /// Leases we know, with how many of their tasks have no recorded outcome yet.
    leases: HashMap<i64, usize>,
    /// Leases that are over and still to be dropped.
    settled_leases: Vec<i64>,
    /// Those of the former under which a result was refused: not ours to drop.
    refused_leases: HashSet<i64>,
    unknown_leases: HashSet<i64>,
    disowned_leases: HashSet<i64>,
    /// Until then a claim may have been made that we know nothing of.
    doubt_until: Instant,
    /// When to ask for our leases at the latest.
    leases_at: Instant,
    /// The last time some were unknown, and this was not the second time in a row.
    leases_again: bool,
    abandoned: Vec<Work>,
    draining: bool,
    /// Lanes that have a connection, or would get one.
    lanes: usize,
    /// A lane is gone, and with it what it was at: nobody waits for that.
    lane_lost: bool,
    /// Claims since one that asked an aged queue first.
    claims: u64,
}

struct Running {
    queue: usize,
    lambda: usize,
    stop: Arc<Stop>,
    started_at: Instant,
    reported: bool,
}

impl Controller {
    pub(crate) fn new(
        config: WorkerConfig,
        lambdas: Vec<Lambda>,
        served: &[Served],
        watch: mpsc::UnboundedSender<WatchRequest>,
        pooled: bool,
    ) -> Self {
        let now = Instant::now();
        let (mut queues, mut bounds) = (Vec::new(), Vec::new());
        let (mut rooms, mut loads) = (Vec::new(), Vec::new());
        for (index, lambda) in lambdas.into_iter().enumerate() {
            let own = served.iter().filter(|one| one.lambda == lambda.name);
            let timeout =
                own.clone().next().map_or(Duration::from_secs(300), |s| s.attempt_timeout);
            let mut ids: Vec<_> = own.map(|one| (one.priority, one.queue_id)).collect();
            ids.sort();
            let first = queues.len();
            for (priority, id) in ids {
                queues.push(ServedQueue { queue_id: id, lambda: index });
                bounds.push(lambda.bound(priority).map(Load::new));
            }
            loads.push(Load::new(lambda.slots.unwrap_or(config.slots)));
            rooms.push(ServedLambda {
                lambda,
                attempt_timeout: timeout,
                queues: (first..queues.len()).collect(),
                work: Notify::new(),
            });
        }
        let on_bell = rests::by_bell(&queues);
        let state = State {
            queues: bounds.into_iter().map(|bound| Queue::new(bound, now)).collect(),
            calls: CallRate::new(now),
            rests: Rests::new(now),
            claim_bound: ClaimBound::new(&config, loads.len()),
            buffered_bytes: 0,
            asked_bytes: 0,
            loads,
            running: HashMap::new(),
            results: Vec::new(),
            first_result_at: None,
            held: Held::default(),
            bulk: 0,
            unacknowledged: 0,
            leases: HashMap::new(),
            settled_leases: Vec::new(),
            refused_leases: HashSet::new(),
            unknown_leases: HashSet::new(),
            disowned_leases: HashSet::new(),
            doubt_until: now,
            leases_at: now,
            leases_again: false,
            abandoned: Vec::new(),
            draining: false,
            lanes: config.lanes,
            lane_lost: false,
            claims: 0,
        };
        Self {
            config,
            lambdas: rooms,
            queues,
            state: Mutex::new(state),
            lanes: Notify::new(),
            quiet: Notify::new(),
            watch,
            on_bell,
            pooled,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic cannot happen while it is held; were it to, the state is still consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn slots(&self, lambda: usize) -> usize {
        self.lock().loads[lambda].slots
    }

    /// NextWork: waits for a task of `lambda`, highest priority first; `None`: the worker drains.
    pub(crate) async fn next_work(&self, lambda: usize) -> Option<Work> {
        loop {
            let notified = self.lambdas[lambda].work.notified();
            tokio::pin!(notified);
            notified.as_mut().enable();
            {
                let mut state = self.lock();
                if let Some(work) = state.take_work(self, lambda) {
                    return Some(work);
                }
                if state.draining {
                    return None;
                }
            }
            notified.await;
        }
    }

    /// Takes the result of an attempt and answers with the next task of the lambda, if one is here.
    pub(crate) fn finish(&self, lambda: usize, finished: Finished, took: Duration) -> Option<Work> {
        let mut state = self.lock();
        if let Some(bound) = state.ended(finished.task, finished.fence) {
            bound.finished(took);
        }
        state.loads[lambda].finished(took);
        if state.results.is_empty() {
            state.first_result_at = Some(Instant::now());
        }
        state.results.push(finished);
        let next = state.take_work(self, lambda);
        let alone = state.running.is_empty() && state.loads.iter().all(|load| load.buffered == 0);
        if alone && state.lane_lost {
            self.quiet.notify_waiters();
        }
        if alone || state.results.len() == 1 || state.results.len() == self.config.max_batch {
            self.lanes.notify_one();
        }
        next
    }

    /// An attempt that is given back unfinished: at the end of a drain, or because it must not begin.
    pub(crate) fn abandon(&self, lambda: usize, work: Work) {
        let mut state = self.lock();
        if let Some(bound) = state.ended(work.task, work.fence) {
            bound.running -= 1;
        }
        state.loads[lambda].running -= 1;
        state.abandoned.push(work);
        self.quiet.notify_waiters();
        if state.draining {
            // It may have been the last that the lanes wait for.
            self.lanes.notify_waiters();
        }
    }

    /// Stops claiming and hands out what has not started, to be released.
    pub(crate) fn drain(&self) -> Vec<Work> {
        let mut state = self.lock();
        state.draining = true;
        let mut back = Vec::new();
        for queue in &mut state.queues {
            back.extend(queue.drain());
        }
        for load in &mut state.loads {
            load.buffered = 0;
        }
        state.buffered_bytes = 0;
        for lambda in &self.lambdas {
            lambda.work.notify_waiters();
        }
        self.lanes.notify_waiters();
        back
    }

    /// What came back unfinished since the last call.
    pub(crate) fn take_abandoned(&self) -> Vec<Work> {
        std::mem::take(&mut self.lock().abandoned)
    }

    /// Waits until nothing runs and every result is acknowledged, if all lanes are here.
    pub(crate) async fn until_quiet(&self) {
        loop {
            let notified = self.quiet.notified();
            tokio::pin!(notified);
            notified.as_mut().enable();
            {
                let state = self.lock();
                let recorded = state.is_quiet() && state.unacknowledged == 0;
                if recorded || (state.lane_lost && state.running.is_empty()) {
                    return;
                }
            }
            notified.await;
        }
    }
}
