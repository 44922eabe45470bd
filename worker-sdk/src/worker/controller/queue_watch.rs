//! The queue watch: what this worker believes of each queue, and so when to look into it again.
//!
//! A queue is worth a look, falls asleep, or is asleep. Of all workers that find a queue empty, one keeps
//! watch: it holds the lock of the queue's bell, so each insert must notify, and this worker alone looks
//! for the task. A queue falls asleep in three steps, so that no uncommitted row is missed: found empty ->
//! take the lock (`watch_connection`) -> look once more -> asleep.
//!
//! The remaining workers sleep without a look. They have seen what came before the watch had its lock,
//! and they hear of what comes later. From time to time they ask for the lock, because a busy watch gives
//! it up. If all workers looked for each task, a task would cost each worker two looks: with eight, 17 ms
//! of processor time a task instead of 3 (65 single inserts a second, debug build).
//!
//! Queues share bells, so the holder of a lock may not serve our queue. A worker that stands by therefore
//! peeks whenever it asks for the lock: a moment after it fell asleep, and after each call. A worker gives
//! up a bell as a whole and lets it rest (`rests`). Otherwise no other worker could get the bell for the
//! queue of a busy lambda.
//!
//! No worker watches a stream: each insert would have to notify. A worker judges by the calls on all its
//! bells together (`call_rate`). While they are a stream, it polls each queue on a bell that was called
//! lately, all in one claim. The remaining queues stay asleep under their locks.
//!
//! It must never call the database, read a clock or wait: the caller holds a lock around it.

mod after_claim;
mod call_rate;
mod peek;
mod rests;
mod watched_queue;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use crate::db::hsc::Watched;
use crate::worker::config::WorkerConfig;

pub(super) use after_claim::Found;
use call_rate::CallRate;
pub(crate) use peek::Peek;
use rests::Rests;
pub(super) use watched_queue::{WatchState, WatchedQueue};

/// A queue in which a stream left no task for so long is watched again.
const LULL: Duration = Duration::from_secs(1);

/// Requests to the watch connection, by the bell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WatchRequest {
    /// A queue on it was found empty: take its lock if it can be had.
    Watch(i32),
    /// A queue on it has more than we can do: give up its lock.
    Unwatch(i32),
}

/// See the module.
pub(super) struct QueueWatch {
    pub(super) queues: Vec<WatchedQueue>,
    /// Its queues on each bell.
    on_bell: BTreeMap<i32, Vec<usize>>,
    calls: CallRate,
    rests: Rests,
    requests: mpsc::UnboundedSender<WatchRequest>,
    safety_poll: Duration,
    busy_poll: Duration,
    /// Behind a transaction pooler: no LISTEN and no session locks, only polls.
    pooled: bool,
}

impl QueueWatch {
    pub(super) fn new(
        config: &WorkerConfig,
        queue_ids: impl Iterator<Item = i32>,
        requests: mpsc::UnboundedSender<WatchRequest>,
        pooled: bool,
        now: Instant,
    ) -> Self {
        let queues: Vec<_> = queue_ids.map(|id| WatchedQueue::new(id, now)).collect();
        let mut on_bell = BTreeMap::<i32, Vec<usize>>::new();
        for (index, queue) in queues.iter().enumerate() {
            on_bell.entry(queue.bell).or_default().push(index);
        }
        Self {
            queues,
            on_bell,
            calls: CallRate::new(now),
            rests: Rests::new(now),
            requests,
            safety_poll: config.safety_poll,
            busy_poll: config.busy_poll,
            pooled,
        }
    }

    /// The bells of its queues.
    pub(super) fn bells(&self) -> Vec<i32> {
        self.on_bell.keys().copied().collect()
    }

    fn ask(&self, request: WatchRequest) {
        // The watch connection ends after the exchange connections. If it has ended, so does the worker.
        let _ = self.requests.send(request);
    }
}

/// Answers of the watch connection, and notifications that it hears.
impl QueueWatch {
    /// The answer for a bell under which our queues want to sleep, or that another worker keeps.
    /// `is_free`: an executor is free for a queue.
    pub(super) fn answered(
        &mut self,
        bell: i32,
        said: Watched,
        is_free: impl Fn(usize) -> bool,
        now: Instant,
    ) -> BellAnswer {
        let mut answer = BellAnswer::default();
        let Self { queues, on_bell, calls, rests, .. } = self;
        let resting = rests.is_resting(bell, now);
        let is_stream = calls.is_stream(now);
        for index in &on_bell[&bell] {
            let queue = &mut queues[*index];
            let stream = is_stream && now < queue.active_at + LULL;
            let may_watch = !stream && !resting && is_free(*index);
            let nap = jittered(self.busy_poll, queue.doublings);
            answer.look |= queue.answered(said, may_watch, nap, now);
            answer.watching |= queue.watching;
        }
        answer
    }

    /// A notification on a bell that we hold.
    pub(super) fn called(
        &mut self,
        bell: i32,
        queue_id: i32,
        is_free: impl Fn(usize) -> bool,
        now: Instant,
    ) -> Called {
        let own = self.heard(bell, queue_id, now);
        let stream = self.calls.is_stream(now);
        let Some(index) = own else { return Called { keep: !stream, look: false } };
        let keep = is_free(index) && !stream;
        let queue = &mut self.queues[index];
        queue.watching &= keep;
        queue.owed = keep && !queue.watching;
        queue.watch = if queue.watching { WatchState::Last } else { WatchState::Hot };
        queue.woken |= queue.claiming > 0;
        Called { keep, look: true }
    }

    /// A notification on any of our bells: counts it, and returns the queue if it is ours. Each call costs
    /// its insert a notification because of us.
    pub(super) fn heard(&mut self, bell: i32, queue_id: i32, now: Instant) -> Option<usize> {
        self.calls.called(now);
        let queues = self.on_bell.get(&bell).map_or(&[][..], Vec::as_slice);
        for index in queues {
            self.queues[*index].active_at = now;
        }
        let own = queues.iter().copied().find(|index| self.queues[*index].id == queue_id);
        if own.is_none() {
            self.rests.share(bell);
        }
        own
    }

    /// A notification shall wake this queue although another worker keeps watch.
    pub(super) fn distrusts(&self, index: usize, now: Instant) -> bool {
        now < self.queues[index].distrust_until
    }

    /// A reason to look into one queue, or into all of them. No lock is held from here on.
    pub(super) fn wake(&mut self, index: Option<usize>) {
        let all = 0..self.queues.len();
        for at in index.map_or(all, |at| at..at + 1) {
            self.queues[at].wake();
            self.queues[at].woken = true;
        }
    }

    /// The lock of a bell is about to go: wakes what sleeps under it, and lets the bell rest if queues
    /// share it.
    pub(super) fn give_up(&mut self, bell: i32, now: Instant) {
        let stream = self.calls.is_stream(now);
        let queues = &self.on_bell[&bell];
        if queues.len() > 1 {
            self.rests.share(bell);
        }
        self.rests.begin(bell, stream, now);
        for index in queues {
            let queue = &mut self.queues[*index];
            queue.owed = false;
            if queue.watching {
                queue.wake_late();
            }
        }
    }

    /// The watch connection broke, and with it each lock of ours.
    pub(super) fn lost_all(&mut self) {
        for queue in &mut self.queues {
            queue.watching = false;
            queue.owed = false;
        }
    }
}

/// The effect of an answer for a bell.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct BellAnswer {
    /// A queue sleeps under the lock, which is ours. Else such a lock is to be given up.
    pub watching: bool,
    /// A queue is worth a look.
    pub look: bool,
}

/// The effect of a notification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Called {
    /// The lock is kept. Else it is to be given up: our executors are at work, or the calls come too fast.
    pub keep: bool,
    /// A queue is worth a look.
    pub look: bool,
}

/// A nap with jitter, `busy_poll` at most before it.
fn jittered(busy_poll: Duration, doublings: u32) -> Duration {
    nap(doublings).min(busy_poll).mul_f64(1.0 + 1.5 * fastrand::f64())
}

/// Half a commit's time, so often doubled.
const fn nap(doublings: u32) -> Duration {
    Duration::from_micros(500 << doublings)
}

#[cfg(test)]
impl QueueWatch {
    /// As if no call had come yet.
    pub(super) fn forget_calls(&mut self, now: Instant) {
        self.calls = CallRate::new(now);
    }
}
