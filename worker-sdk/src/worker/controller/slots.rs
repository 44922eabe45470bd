//! The slots of the executors: the tasks that run, the tasks that wait in a buffer for a slot, and how
//! many more to claim.
//!
//! It promises:
//! - A lambda claims what its slots can start soon, and no more: a claimed task shall not wait in a
//!   buffer for longer than `buffer_target`. Long tasks are never claimed ahead.
//! - The highest priority comes first. A lower one whose task has waited longer than `buffer_target` gets
//!   each fourth slot.
//! - A queue with a bound of its own never holds more slots than that.
//! - A lambda has no more executors than slots. A buffered task that may begin finds one that looks for it.
//!
//! It must never call the database, read a clock or wait: the caller holds a lock around it.

mod usage;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::db::hsc::{Attempt, LambdaClaim};
use crate::worker::config::WorkerConfig;
use crate::worker::controller::{ServedLambda, ServedQueue};
use crate::worker::work::{Stop, StopReason, Work};

pub(super) use usage::Usage;

/// A buffered task that has waited this many times `buffer_target` sits behind tasks that turned out long.
const HOARDED_AFTER: u32 = 4;

/// See the module.
pub(super) struct Slots {
    config: WorkerConfig,
    lambdas: Vec<LambdaSlots>,
    queues: Vec<QueueSlots>,
    /// By attempt: after a failover that lost a claim, two attempts of one task may be here.
    running: HashMap<Attempt, Running>,
    /// Payloads in the buffers, in bytes.
    buffered_bytes: usize,
}

struct LambdaSlots {
    usage: Usage,
    /// Executors that have not ended: they run a task, or are to look for one.
    executors: usize,
    /// Its queues, highest priority first.
    queues: Vec<usize>,
    /// Deadline and grace. None: of a host, which ends the task's process, and must not leave others to its guardian.
    overdue_after: Option<Duration>,
}

struct QueueSlots {
    lambda: usize,
    /// A bound of its own within the slots of its lambda.
    bound: Option<Usage>,
    buffer: VecDeque<Work>,
}

struct Running {
    queue: usize,
    stop: Arc<Stop>,
    started_at: Instant,
    /// The database knows that it runs.
    reported: bool,
}

impl QueueSlots {
    /// A task waits here that may begin.
    fn is_ready(&self) -> bool {
        !self.buffer.is_empty() && self.bound.as_ref().is_none_or(Usage::has_free_slot)
    }

    fn drain(&mut self) -> impl Iterator<Item = Work> {
        if let Some(bound) = &mut self.bound {
            bound.buffered = 0;
        }
        self.buffer.drain(..)
    }
}

/// The life of a task here: it comes into a buffer, runs, and ends.
impl Slots {
    pub(super) fn new(
        config: &WorkerConfig,
        lambdas: &[ServedLambda],
        queues: &[ServedQueue],
    ) -> Self {
        let lambdas = lambdas.iter().map(|served| LambdaSlots {
            usage: Usage::new(served.lambda.slots.unwrap_or(config.slots)),
            executors: 0,
            queues: served.queues.clone(),
            overdue_after: (!served.lambda.hosted)
                .then(|| served.attempt_timeout + config.cancel_grace * 2),
        });
        let queues = queues.iter().map(|served| QueueSlots {
            lambda: served.lambda,
            bound: served.bound.map(Usage::new),
            buffer: VecDeque::new(),
        });
        Self {
            config: config.clone(),
            lambdas: lambdas.collect(),
            queues: queues.collect(),
            running: HashMap::new(),
            buffered_bytes: 0,
        }
    }

    /// A claimed task comes into the buffer of its queue.
    pub(super) fn put(&mut self, queue: usize, work: Work) {
        self.buffered_bytes += work.payload.len();
        let queue = &mut self.queues[queue];
        if let Some(bound) = &mut queue.bound {
            bound.buffered += 1;
        }
        self.lambdas[queue.lambda].usage.buffered += 1;
        queue.buffer.push_back(work);
    }

    /// NextWork: takes a task of a lambda out of its buffers and into a free slot.
    pub(super) fn take(&mut self, lambda: usize, now: Instant) -> Option<Work> {
        let usage = &mut self.lambdas[lambda].usage;
        if !usage.has_free_slot() || usage.buffered == 0 {
            return None;
        }
        usage.picks += 1;
        let aged = usage.picks.is_multiple_of(4).then(|| self.aged_buffer(lambda, now)).flatten();
        let mut queues = self.lambdas[lambda].queues.iter().copied();
        let queue = aged.or_else(|| queues.find(|queue| self.queues[*queue].is_ready()))?;
        let work = self.queues[queue].buffer.pop_front()?;
        self.buffered_bytes -= work.payload.len();
        self.lambdas[lambda].usage.began();
        if let Some(bound) = &mut self.queues[queue].bound {
            bound.began();
        }
        let stop = Arc::clone(&work.stop);
        let running = Running { queue, stop, started_at: now, reported: work.crashes > 0 };
        self.running.insert(work.id(), running);
        Some(work)
    }

    /// The buffer whose front has waited longest, if that is longer than any task should wait: a lower
    /// priority that higher ones keep overtaking.
    fn aged_buffer(&self, lambda: usize, now: Instant) -> Option<usize> {
        let front = |queue: &usize| {
            let ready = Some(&self.queues[*queue]).filter(|queue| queue.is_ready())?;
            Some((ready.buffer.front()?.claimed_at, *queue))
        };
        let (since, queue) = self.lambdas[lambda].queues.iter().filter_map(front).min()?;
        (now.duration_since(since) > self.config.buffer_target).then_some(queue)
    }

    /// An attempt has ended after so long.
    pub(super) fn finish(&mut self, lambda: usize, attempt: Attempt, took: Duration) {
        if let Some(bound) = self.bound_of_ended(attempt) {
            bound.finished(took);
        }
        self.lambdas[lambda].usage.finished(took);
    }

    /// An attempt was cut short: nothing is learnt from its duration.
    pub(super) fn abandon(&mut self, lambda: usize, attempt: Attempt) {
        if let Some(bound) = self.bound_of_ended(attempt) {
            bound.running -= 1;
        }
        self.lambdas[lambda].usage.running -= 1;
    }

    fn bound_of_ended(&mut self, attempt: Attempt) -> Option<&mut Usage> {
        let running = self.running.remove(&attempt)?;
        self.queues[running.queue].bound.as_mut()
    }
}

/// Tasks that leave their buffer unfinished.
impl Slots {
    /// Takes one attempt out of its buffer; none: it runs, or is not here.
    pub(super) fn take_buffered(&mut self, attempt: Attempt) -> Option<Work> {
        let queue = self.queues.iter_mut().find_map(|queue| {
            let at = queue.buffer.iter().position(|work| work.id() == attempt)?;
            Some((queue.buffer.remove(at)?, queue))
        });
        let (work, queue) = queue?;
        if let Some(bound) = &mut queue.bound {
            bound.buffered -= 1;
        }
        self.lambdas[queue.lambda].usage.buffered -= 1;
        self.buffered_bytes -= work.payload.len();
        Some(work)
    }

    /// Takes out the tasks that wait behind long ones.
    pub(super) fn take_hoarded(&mut self, now: Instant) -> Vec<Work> {
        let limit = self.config.buffer_target * HOARDED_AFTER;
        let mut hoarded = Vec::new();
        for lambda in &mut self.lambdas {
            let fronts =
                lambda.queues.iter().filter_map(|queue| self.queues[*queue].buffer.front());
            let oldest = fronts.map(|work| now.duration_since(work.claimed_at)).max();
            let Some(waited) = oldest.filter(|waited| *waited > limit) else { continue };
            for queue in &lambda.queues {
                hoarded.extend(self.queues[*queue].drain());
            }
            lambda.usage.buffered = 0;
            lambda.usage.slowed(waited);
        }
        self.buffered_bytes -= hoarded.iter().map(|work| work.payload.len()).sum::<usize>();
        hoarded
    }

    /// Takes out everything.
    pub(super) fn drain(&mut self) -> Vec<Work> {
        self.lambdas.iter_mut().for_each(|lambda| lambda.usage.buffered = 0);
        self.buffered_bytes = 0;
        self.queues.iter_mut().flat_map(QueueSlots::drain).collect()
    }
}

/// Attempts that run.
impl Slots {
    /// Tells an attempt to stop. False: it does not run.
    pub(super) fn stop(&self, attempt: Attempt, reason: StopReason) -> bool {
        self.running.get(&attempt).map(|running| running.stop.stop(reason)).is_some()
    }

    /// Tells all attempts to stop.
    pub(super) fn stop_all(&self, reason: StopReason) {
        self.running.values().for_each(|running| running.stop.stop(reason));
    }

    /// A task that runs.
    pub(super) fn any_running(&self) -> Option<i64> {
        self.running.keys().next().map(|attempt| attempt.task)
    }

    /// A task whose body did not end although its deadline and grace have passed.
    pub(super) fn overdue(&self, now: Instant) -> Option<i64> {
        self.running.iter().find_map(|(attempt, running)| {
            let limit = self.lambdas[self.queues[running.queue].lambda].overdue_after?;
            (now.duration_since(running.started_at) > limit).then_some(attempt.task)
        })
    }

    /// Attempts that run and that the database still has as claimed. It will be told.
    pub(super) fn unreported(&mut self) -> Vec<(Attempt, Option<i32>)> {
        let unreported = self.running.iter_mut().filter(|(_, running)| !running.reported);
        unreported
            .map(|(attempt, running)| {
                running.reported = true;
                (*attempt, running.stop.process())
            })
            .collect()
    }
}

/// How much room there is.
impl Slots {
    #[cfg(feature = "metrics")]
    pub(super) fn usage_of(&self, lambda: usize) -> Usage {
        self.lambdas[lambda].usage.clone()
    }

    /// Nothing runs and nothing is buffered.
    pub(super) fn are_idle(&self) -> bool {
        self.running.is_empty() && self.lambdas.iter().all(|lambda| lambda.usage.buffered == 0)
    }

    pub(super) fn buffered_bytes(&self) -> usize {
        self.buffered_bytes
    }

    /// Executors to start for so many new tasks of a lambda. They count from here on until each has ended.
    pub(super) fn start_executors(&mut self, lambda: usize, tasks: usize) -> usize {
        let lambda = &mut self.lambdas[lambda];
        let wanted = tasks.min(lambda.usage.slots.saturating_sub(lambda.executors));
        lambda.executors += wanted;
        wanted
    }

    /// An executor of a lambda found no task.
    pub(super) fn executor_ends(&mut self, lambda: usize) {
        self.lambdas[lambda].executors -= 1;
    }

    /// How many more tasks of a lambda to claim now.
    pub(super) fn room(&self, lambda: usize) -> usize {
        self.lambdas[lambda].usage.room(&self.config)
    }

    /// The same for a queue, if it has a bound of its own.
    pub(super) fn queue_room(&self, queue: usize) -> Option<usize> {
        self.queues[queue].bound.as_ref().map(|bound| bound.room(&self.config))
    }

    /// A task of this queue could be claimed.
    pub(super) fn has_room(&self, queue: usize) -> bool {
        self.queue_room(queue) != Some(0) && self.room(self.queues[queue].lambda) > 0
    }

    /// A claim without results is worth its commit: it has room for half a batch, or nothing is buffered.
    pub(super) fn is_worth_a_claim(&self, lambda: usize) -> bool {
        let usage = &self.lambdas[lambda].usage;
        let max_batch = self.config.max_batch;
        let room = usage.room(&self.config).min(max_batch);
        room * 2 >= usage.target(&self.config).min(max_batch) || usage.buffered + usage.asked == 0
    }

    /// A lambda has a free slot, and no task is claimed for it.
    pub(super) fn is_starved(&self, lambda: usize) -> bool {
        self.lambdas[lambda].usage.is_starved()
    }

    /// A task of this queue would find a free slot even when all that is buffered has begun.
    pub(super) fn will_have_free_slot(&self, queue: usize) -> bool {
        let queue = &self.queues[queue];
        self.lambdas[queue.lambda].usage.will_have_free_slot()
            && queue.bound.as_ref().is_none_or(Usage::will_have_free_slot)
    }

    /// A claim asks for tasks.
    pub(super) fn ask(&mut self, claim: &LambdaClaim) {
        self.lambdas[claim.lambda].usage.asked += claim.budget;
        for queue in &claim.queues {
            if let (Some(own), Some(asked)) = (&mut self.queues[queue.queue].bound, queue.bound) {
                own.asked += asked;
            }
        }
    }

    /// That claim was answered, or broke.
    pub(super) fn answered(&mut self, claim: &LambdaClaim) {
        self.lambdas[claim.lambda].usage.asked -= claim.budget;
        for queue in &claim.queues {
            if let (Some(own), Some(asked)) = (&mut self.queues[queue.queue].bound, queue.bound) {
                own.asked -= asked;
            }
        }
    }
}

#[cfg(test)]
impl Slots {
    pub(super) fn usage(&mut self, lambda: usize) -> &mut Usage {
        &mut self.lambdas[lambda].usage
    }

    pub(super) fn buffer(&mut self, queue: usize) -> &mut VecDeque<Work> {
        &mut self.queues[queue].buffer
    }
}
