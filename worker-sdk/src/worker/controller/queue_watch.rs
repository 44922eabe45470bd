//! The queue watch: what this worker believes of each queue, and so when to claim from it again.
//!
//! Each queue has a state (`watch_state`): it is worth a claim, falls asleep, or is asleep. The workers that
//! find a queue empty ask for its bell. The worker that gets the bell keeps watch: it holds the lock of the
//! bell, so each insert must notify, and this worker alone looks for the task. A queue falls asleep in three
//! steps, so that no uncommitted row is missed: found empty -> take the lock (`watch_connection`) -> look
//! once more -> asleep.
//!
//! The remaining workers stand by: they sleep without a last look. The worker that keeps watch has seen what
//! came before its lock, and they hear of what comes later. From time to time they ask for the lock, because
//! a busy worker gives it up. If all workers looked for each task, a task would cost each worker two looks:
//! with eight, 17 ms of processor time a task instead of 3 (65 single inserts a second, debug build).
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

mod call_rate;
mod claims;
mod peek;
mod rests;
mod watch_state;
mod watched_queue;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use crate::db::hsc::Watched;
use crate::worker::config::WorkerConfig;

use call_rate::CallRate;
pub(super) use claims::ClaimAnswer;
pub(crate) use peek::Peek;
use rests::Rests;
use watch_state::{Event, Request, next};
#[cfg(test)]
pub(super) use watch_state::{Role, WatchState};
pub(super) use watched_queue::WatchedQueue;

/// A queue in which a stream left no task for so long is watched again.
const LULL: Duration = Duration::from_secs(1);
/// All workers claim at each call for a queue for so long, once the worker that keeps watch has left a task
/// of it waiting until a safety poll.
const FOLLOW_CALLS: Duration = Duration::from_secs(30);

/// Requests to the watch connection, by the bell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WatchRequest {
    /// A queue on it was found empty: take its lock if it can be had.
    Watch(i32),
    /// A queue on it has more than we can do: give up its lock.
    Unwatch(i32),
}

/// Events of the watch connection.
#[derive(Debug, Clone, Copy)]
pub(crate) enum WatchEvent<'a> {
    /// It listens from now on, or a notification names no queue: each queue may have tasks.
    AllMayHaveTasks,
    /// The answer for a bell that we have asked for.
    BellAnswered { bell: i32, said: Watched },
    /// A notification on a bell.
    Called { bell: i32, queue_id: i32, holder: Holder },
    /// The lock of a bell is about to be released.
    BellGivenUp(i32),
    /// Peeks that were sent at that time are answered: whether each found a row.
    Peeked { peeks: &'a [Peek], found: &'a [bool], sent_at: Instant },
    /// The connection is lost, and each lock with it.
    Lost,
}

/// The worker that holds the lock of a bell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Holder {
    We,
    /// Another one. We stand by, and ask for the bell soon after each call.
    Another,
    Unknown,
}

/// The effect of an event.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Effect {
    /// A queue of ours needs the bell. Else its lock, if we hold it, is to be given up.
    pub needs_bell: bool,
    /// A queue is worth a claim earlier than before.
    pub claim_earlier: bool,
}

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
            on_bell.entry(queue.bell()).or_default().push(index);
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

    /// Takes an event of the watch connection. `is_free`: an executor is free for a queue.
    pub(super) fn take(
        &mut self,
        event: WatchEvent<'_>,
        is_free: impl Fn(usize) -> bool,
        now: Instant,
    ) -> Effect {
        let all = 0..self.queues.len();
        match event {
            WatchEvent::AllMayHaveTasks => self.apply_to(all, Event::MayHaveTasks { now }, now),
            WatchEvent::Lost => self.apply_to(all, Event::BellsLost, now),
            WatchEvent::BellAnswered { bell, said } => self.bell_answered(bell, said, is_free, now),
            WatchEvent::Called { bell, queue_id, holder } => {
                self.called(bell, queue_id, holder, is_free, now)
            }
            WatchEvent::BellGivenUp(bell) => self.bell_given_up(bell, now),
            WatchEvent::Peeked { peeks, found, sent_at } => self.peeked(peeks, found, sent_at),
        }
    }

    /// The answer for a bell under which our queues want to sleep, or that another worker holds.
    fn bell_answered(
        &mut self,
        bell: i32,
        said: Watched,
        is_free: impl Fn(usize) -> bool,
        now: Instant,
    ) -> Effect {
        let rests = self.rests.is_resting(bell, now);
        let is_stream = self.calls.is_stream(now);
        let mut effect = Effect::default();
        for index in self.queues_on(bell) {
            let queue = &self.queues[index];
            let stream = is_stream && now < queue.active_at + LULL;
            let event = match said {
                Watched::Held => {
                    Event::BellOurs { useful: !stream && !rests && is_free(index), now }
                }
                Watched::Taken | Watched::Shared => {
                    Event::BellTaken { follow_calls: now < queue.follow_calls_until, now }
                }
                Watched::Busy => Event::BellBusy { poll_at: now + self.poll_pause(index) },
            };
            effect.claim_earlier |= self.apply(index, event, now);
            effect.needs_bell |= self.queues[index].state.is_watching();
        }
        effect
    }

    /// A notification on any of our bells. Each call costs its insert a notification because of us, so
    /// it counts, whichever queue it is for.
    fn called(
        &mut self,
        bell: i32,
        queue_id: i32,
        holder: Holder,
        is_free: impl Fn(usize) -> bool,
        now: Instant,
    ) -> Effect {
        self.calls.called(now);
        let queues = self.queues_on(bell);
        for index in &queues {
            self.queues[*index].active_at = now;
        }
        let stream = self.calls.is_stream(now);
        let Some(index) = queues.into_iter().find(|index| self.queues[*index].id == queue_id)
        else {
            self.rests.share(bell);
            return Effect { needs_bell: holder == Holder::We && !stream, claim_earlier: false };
        };
        let event = match holder {
            Holder::We => Event::Called { useful: is_free(index) && !stream, now },
            Holder::Another if now >= self.queues[index].follow_calls_until => {
                return Effect { needs_bell: true, claim_earlier: false };
            }
            Holder::Another | Holder::Unknown => Event::MayHaveTasks { now },
        };
        let needs_bell = !matches!(event, Event::Called { useful: false, .. });
        Effect { needs_bell, claim_earlier: self.apply(index, event, now) }
    }

    /// The queues that sleep under a bell wake before its lock goes. It rests if queues share it.
    fn bell_given_up(&mut self, bell: i32, now: Instant) -> Effect {
        let stream = self.calls.is_stream(now);
        let queues = self.queues_on(bell);
        if queues.len() > 1 {
            self.rests.share(bell);
        }
        self.rests.begin(bell, stream, now);
        self.apply_to(queues, Event::BellGivenUp { now }, now)
    }

    fn queues_on(&self, bell: i32) -> Vec<usize> {
        self.on_bell.get(&bell).cloned().unwrap_or_default()
    }

    fn apply_to(
        &mut self,
        queues: impl IntoIterator<Item = usize>,
        event: Event,
        now: Instant,
    ) -> Effect {
        let mut claim_earlier = false;
        for index in queues {
            claim_earlier |= self.apply(index, event, now);
        }
        Effect { needs_bell: false, claim_earlier }
    }

    /// Brings a queue to its next state. True: it is worth a claim earlier than before.
    fn apply(&mut self, index: usize, event: Event, now: Instant) -> bool {
        let queue = &mut self.queues[index];
        let before = queue.state;
        let (state, request) = next(before, event);
        queue.state = state;
        if state.is_last_look() {
            queue.doublings = 0;
        }
        let bell = queue.bell();
        match request {
            None => {}
            Some(Request::AskForBell) => self.ask(WatchRequest::Watch(bell)),
            Some(Request::GiveUpBell) => self.ask(WatchRequest::Unwatch(bell)),
            Some(Request::FollowCalls) => queue.follow_calls_until = now + FOLLOW_CALLS,
        }
        state != before && (state.claims_since().is_some() || state.claim_at() < before.claim_at())
    }

    fn ask(&self, request: WatchRequest) {
        // The watch connection ends after the exchange connections. If it has ended, so does the worker.
        let _ = self.requests.send(request);
    }
}

/// The pause before a poll, with jitter, `busy_poll` at most before it.
fn jittered(busy_poll: Duration, doublings: u32) -> Duration {
    pause(doublings).min(busy_poll).mul_f64(1.0 + 1.5 * fastrand::f64())
}

/// Half a commit's time, so often doubled.
const fn pause(doublings: u32) -> Duration {
    Duration::from_micros(500 << doublings)
}

#[cfg(test)]
impl QueueWatch {
    /// As if no call had come yet.
    pub(super) fn forget_calls(&mut self, now: Instant) {
        self.calls = CallRate::new(now);
    }
}
