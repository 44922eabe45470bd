//! The state of a queue as the controller believes it: worth a look, falling asleep, or asleep.
//!
//! Of all controllers that find a queue empty one keeps watch: it holds the lock of the queue's bell, so
//! whoever inserts must notify, and it alone gets up for that. It falls asleep in three steps, so that nobody
//! sleeps past an uncommitted row: found empty -> take the lock (queue_watch.rs) -> look once more -> asleep.
//! The others sleep without a look: what came before the watch had its lock it has seen, and of what
//! comes later it is told. They ask for the lock now and then (standby.rs), because a watch that is
//! busy gives it up. Were all to get up for each task, a task would cost every worker two looks:
//! with eight, 17 ms of CPU a task instead of 3 (65 single inserts per second, debug build).
//!
//! Where queues share bells, the holder of a lock may not serve our queue. So whoever stands by peeks
//! whenever it asks for the lock, a moment after it fell asleep and after each call. A worker gives up a
//! bell as a whole, and lets it rest (`rests`), or nobody else could get it for the queue of a busy lambda.
//!
//! No worker keeps watch of a stream: it would have every insert notify, and the lock could hardly be had.
//! The worker judges by the calls on all of its bells together (call_rate.rs). While they are a stream it
//! polls every queue on a bell that was called lately, all in one claim. The others stay asleep under their
//! locks.

use std::time::{Duration, Instant};

use super::call_rate::CallRate;
use super::load::Load;
use super::rests::Rests;
use super::{Controller, Queue, State};
use crate::hsc::Watched;

/// A queue in which a stream left no task for so long is watched again.
const LULL: Duration = Duration::from_secs(1);
/// A task that a sleeper comes across was left lying if it has waited for so long: the watch gets up
/// within a few ms, and of a stream every look at any time finds something.
const LYING: Duration = Duration::from_millis(100);
/// How long calls for a watch are heeded by all, once it has left a task lying until a safety poll.
const DISTRUST: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WatchState {
    /// There may be tasks.
    Hot,
    /// Found empty; the lock is asked for.
    FallingAsleep,
    /// The lock is ours, or we do not trust its holder: one last look.
    Last,
    /// Asleep until called, but for the safety poll.
    Asleep,
    /// No lock to be had, or not worth it: look again at that time.
    Poll(Instant),
}

/// Result of a claim for one queue.
#[derive(Debug, Clone, Copy)]
pub(super) struct Found {
    pub tasks: usize,
    /// Since it was due; of a queue that sleeps, else zero.
    pub longest_wait: Duration,
}

/// Requests of the controller to the queue watch, by the bell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WatchRequest {
    /// A queue on it was found empty: take its lock if it can be had.
    Watch(i32),
    /// A queue on it has more than we can do: give up its lock.
    Unwatch(i32),
}

impl Queue {
    /// Worth a claim now?
    pub(super) fn is_askable(&self, now: Instant) -> bool {
        match self.watch {
            WatchState::Hot | WatchState::Last => true,
            WatchState::Poll(at) => now >= at,
            WatchState::FallingAsleep | WatchState::Asleep => now >= self.safety_at,
        }
    }

    /// When it will be, if nothing happens before.
    pub(super) fn askable_at(&self, now: Instant) -> Instant {
        match self.watch {
            WatchState::Hot | WatchState::Last => now,
            WatchState::Poll(at) => at.min(self.safety_at.max(at)),
            WatchState::FallingAsleep | WatchState::Asleep => self.safety_at,
        }
    }

    /// Awake under no lock.
    pub(super) fn wake(&mut self) {
        self.watch = WatchState::Hot;
        self.watching = false;
        self.owed = false;
    }
}

impl Controller {
    /// A claim found fewer than it asked for.
    pub(super) fn found_empty(
        &self,
        queue: &mut Queue,
        (calls, rests): (&mut CallRate, &mut Rests),
        index: usize,
        found: Found,
        now: Instant,
    ) {
        self.learn_pace(queue, found.tasks);
        if !queue.watching && found.tasks > 0 {
            calls.found(found.tasks, now);
            queue.active_at = now;
        }
        let resting = rests.is_resting(self.bell(index), now);
        let stream = calls.is_stream(now) && (resting || now < queue.active_at + LULL);
        queue.safety_at = now + self.config.safety_poll;
        #[cfg(mutants)]
        if crate::twin::is("notify_only") {
            queue.safety_at = now + Duration::from_secs(86_400);
        }
        if std::mem::take(&mut queue.woken) {
            queue.watch = if queue.watching { WatchState::Last } else { WatchState::Hot };
            return;
        }
        queue.owed = false;
        queue.watch = match queue.watch {
            _ if self.pooled => WatchState::Poll(now + self.busy_nap(queue.doublings)),
            // Whatever it has found: from now on every insert notifies us.
            _ if queue.watching => WatchState::Asleep,
            WatchState::Hot | WatchState::Poll(_) if stream => {
                WatchState::Poll(calls.next_poll(now, |doublings| self.busy_nap(doublings)))
            }
            // No notification came, or we did not get up for it.
            WatchState::Asleep if found.longest_wait >= LYING => {
                queue.distrust_until = now + DISTRUST;
                WatchState::Hot
            }
            WatchState::Last if found.tasks > 0 => WatchState::Hot,
            WatchState::Last => WatchState::Asleep,
            WatchState::Asleep if found.tasks == 0 => WatchState::Asleep,
            WatchState::Hot | WatchState::Poll(_) if found.tasks > 1 => {
                WatchState::Poll(now + self.busy_nap(queue.doublings))
            }
            _ if resting => {
                WatchState::Poll(rests.next_poll(now, || self.busy_nap(self.most_doublings())))
            }
            // Asleep: the watch may be about to come, or have given up the lock.
            WatchState::Hot
            | WatchState::Poll(_)
            | WatchState::FallingAsleep
            | WatchState::Asleep => {
                self.ask(WatchRequest::Watch(self.bell(index)));
                WatchState::FallingAsleep
            }
        };
    }

    /// A claim found as much as it asked for: no time to keep watch.
    pub(super) fn found_plenty(&self, queue: &mut Queue, index: usize) {
        let owed = std::mem::take(&mut queue.owed);
        if std::mem::take(&mut queue.watching) || owed {
            self.ask(WatchRequest::Unwatch(self.bell(index)));
        }
        queue.doublings = 0;
        queue.watch = WatchState::Hot;
    }

    /// No executor is free for what is in this queue: whoever has one shall look at what we were called
    /// for.
    pub(super) fn stop_watching(&self, state: &mut State, index: usize) {
        // A claim in flight takes up room as well, and may be the very look.
        if self.has_free_slot(state, index) {
            return;
        }
        let queue = &mut state.queues[index];
        if queue.owed || (queue.watching && queue.watch == WatchState::Last) {
            self.found_plenty(queue, index);
        }
    }

    /// The answer for a bell under which queues of ours want to sleep, or that another worker keeps. True:
    /// a queue sleeps under a lock that is ours. False: such a lock is to be given up.
    pub(crate) fn watch_answered(&self, bell: i32, said: Watched) -> bool {
        let now = Instant::now();
        let mut state = self.lock();
        let mut watching = false;
        for index in &self.on_bell[&bell] {
            self.answered(&mut state, *index, said, now);
            watching |= state.queues[*index].watching;
        }
        watching
    }

    fn answered(&self, state: &mut State, index: usize, said: Watched, now: Instant) {
        let free = self.has_free_slot(state, index);
        let State { queues, calls, rests, .. } = &mut *state;
        let queue = &mut queues[index];
        let resting = rests.is_resting(self.bell(index), now);
        let stream = calls.is_stream(now) && now < queue.active_at + LULL;
        let standing_by = queue.watch == WatchState::Asleep && !queue.watching;
        if queue.watch != WatchState::FallingAsleep && !standing_by {
            return;
        }
        match said {
            Watched::Held if free && !stream && !resting => queue.watching = true,
            Watched::Held => {
                queue.wake();
                self.lanes.notify_one();
                return;
            }
            Watched::Busy => {
                queue.watch = WatchState::Poll(now + self.busy_nap(queue.doublings));
                self.lanes.notify_one();
                return;
            }
            Watched::Taken | Watched::Shared if now >= queue.distrust_until => {
                queue.watch = WatchState::Asleep;
                return;
            }
            Watched::Taken | Watched::Shared if standing_by => return,
            Watched::Taken | Watched::Shared => {}
        }
        queue.watch = WatchState::Last;
        queue.doublings = 0;
        // A claim in flight was sent before the lock was held: its emptiness is no last look.
        queue.woken |= queue.claiming > 0;
        self.lanes.notify_one();
    }

    /// A notification on a bell that we hold. False: it has to be given up, because our executors are at
    /// work, or the calls come too fast.
    pub(crate) fn called(&self, bell: i32, queue_id: i32) -> bool {
        let now = Instant::now();
        let mut state = self.lock();
        let own = self.heard(&mut state, bell, queue_id, now);
        let stream = state.calls.is_stream(now);
        let Some(index) = own else { return !stream };
        let keep = self.has_free_slot(&state, index) && !stream;
        let queue = &mut state.queues[index];
        queue.watching &= keep;
        queue.owed = keep && !queue.watching;
        queue.watch = if queue.watching { WatchState::Last } else { WatchState::Hot };
        queue.woken |= queue.claiming > 0;
        self.lanes.notify_one();
        keep
    }

    /// A notification on a bell that another worker keeps; the queue, if it is ours.
    pub(crate) fn overheard(&self, bell: i32, queue_id: i32) -> Option<usize> {
        self.heard(&mut self.lock(), bell, queue_id, Instant::now())
    }

    /// Counts a call, whichever queue it is for: each costs its insert a notification because of us.
    fn heard(&self, state: &mut State, bell: i32, queue_id: i32, now: Instant) -> Option<usize> {
        state.calls.called(now);
        let queues = self.on_bell.get(&bell).map_or(&[][..], Vec::as_slice);
        for index in queues {
            state.queues[*index].active_at = now;
        }
        let own = queues.iter().copied().find(|index| self.queues[*index].queue_id == queue_id);
        if own.is_none() {
            state.rests.share(bell);
        }
        own
    }

    fn has_free_slot(&self, state: &State, queue: usize) -> bool {
        let load = &state.loads[self.queues[queue].lambda];
        let bound = state.queues[queue].bound.as_ref();
        load.will_have_free_slot() && bound.is_none_or(Load::will_have_free_slot)
    }

    /// Whether a notification shall wake us although another keeps watch.
    pub(crate) fn distrusts(&self, index: usize) -> bool {
        Instant::now() < self.lock().queues[index].distrust_until
    }

    /// A notification, or another reason to look: `None` means every queue. No lock is held from here.
    pub(crate) fn woken(&self, index: Option<usize>) {
        let mut state = self.lock();
        let all = 0..state.queues.len();
        for at in index.map_or(all, |at| at..at + 1) {
            state.queues[at].wake();
            state.queues[at].woken = true;
        }
        self.lanes.notify_one();
    }

    /// Wakes what sleeps under a bell whose lock is about to go, and lets that rest if queues share it.
    pub(crate) fn give_up(&self, bell: i32) {
        let now = Instant::now();
        let mut state = self.lock();
        let stream = state.calls.is_stream(now);
        if self.on_bell[&bell].len() > 1 {
            state.rests.share(bell);
        }
        state.rests.begin(bell, stream, now);
        for index in &self.on_bell[&bell] {
            let queue = &mut state.queues[*index];
            queue.owed = false;
            if queue.watching {
                queue.wake();
                queue.woken |= queue.claiming > 0;
            }
        }
        self.lanes.notify_one();
    }

    /// The queue watch broke, and with it every lock of ours.
    pub(crate) fn unwatched(&self) {
        for queue in &mut self.lock().queues {
            queue.watching = false;
            queue.owed = false;
        }
    }

    /// A producer that is in the way is mostly about to commit, so the first nap is short. A look that
    /// finds nothing doubles the next, up to `busy_poll`; one that finds several halves it, whoever else
    /// looks. While the nap only grew, p95 at 2,000 inserts a second was 20 ms instead of 5.
    fn learn_pace(&self, queue: &mut Queue, found: usize) {
        queue.doublings = match (queue.watch, found) {
            (WatchState::Poll(_), 0) => (queue.doublings + 1).min(self.most_doublings()),
            (_, 0 | 1) => queue.doublings,
            _ => queue.doublings.saturating_sub(1),
        };
    }

    pub(super) fn most_doublings(&self) -> u32 {
        (0..10).find(|doublings| nap(*doublings) >= self.config.busy_poll).unwrap_or(10)
    }

    /// With jitter.
    fn busy_nap(&self, doublings: u32) -> Duration {
        nap(doublings).min(self.config.busy_poll).mul_f64(1.0 + 1.5 * fastrand::f64())
    }

    fn ask(&self, request: WatchRequest) {
        // The queue watch ends after the lanes; if it has ended, the worker is going away.
        let _ = self.watch.send(request);
    }
}

/// Half a commit's time, so often doubled.
const fn nap(doublings: u32) -> Duration {
    Duration::from_micros(500 << doublings)
}
