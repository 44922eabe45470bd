//! What the controller believes of a queue: worth a look, falling asleep, or asleep.
//!
//! Of all controllers that find a queue empty one keeps watch: it holds the queue's lock, so whoever
//! inserts must notify, and it alone gets up for that. It falls asleep in three steps, so that nobody
//! sleeps past an uncommitted row: found empty -> take the lock (wake.rs) -> look once more -> asleep.
//! The others sleep without a look: what came before the watch had its lock it has seen, and of what
//! comes later it is told. They ask for the lock now and then (standby.rs), because a watch that is
//! busy gives it up. Were all to get up for each task, a task would cost every worker two looks:
//! with eight, 17 ms of CPU a task instead of 3 (65 single inserts per second, debug build).
//!
//! Nobody keeps watch of a stream: it would have every insert notify, and the lock could hardly be had.
//! The worker judges by the calls of all of its queues together (call_rate.rs). While they are a stream it
//! polls every queue that had a task lately, all in one claim. The others stay asleep under their locks.

use std::time::{Duration, Instant};

use super::call_rate::CallRate;
use super::load::Load;
use super::{Controller, Queue, State};

/// A queue in which a stream left no task for so long is watched again.
const LULL: Duration = Duration::from_secs(1);
/// A task that a sleeper comes across was left lying if it has waited for so long: the watch gets up
/// within a few ms, and of a stream every look at any time finds something.
const LYING: Duration = Duration::from_millis(100);
/// How long calls for a watch are heeded by all, once it has left a task lying until a safety poll.
const DISTRUST: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sight {
    /// There may be tasks.
    Hot,
    /// Found empty; the lock is asked for.
    Dozing,
    /// The lock is ours, or we do not trust its holder: one last look.
    Last,
    /// Asleep until called, but for the safety poll.
    Asleep,
    /// No lock to be had, or not worth it: look again at that time.
    Poll(Instant),
}

/// What a claim found in a queue.
#[derive(Debug, Clone, Copy)]
pub(super) struct Found {
    pub tasks: usize,
    /// Since it was due; of a queue that sleeps, else zero.
    pub longest_wait: Duration,
}

/// What the controller asks of the line, by the index of the queue.
#[derive(Debug, Clone, Copy)]
pub(crate) enum WakeRequest {
    /// Found empty: take its lock if it can be had.
    Doze(usize),
    /// Not empty any more: give up its lock.
    Rouse(usize),
}

impl Queue {
    /// Worth a claim now?
    pub(super) fn is_askable(&self, now: Instant) -> bool {
        match self.sight {
            Sight::Hot | Sight::Last => true,
            Sight::Poll(at) => now >= at,
            Sight::Dozing | Sight::Asleep => now >= self.safety_at,
        }
    }

    /// When it will be, if nothing happens before.
    pub(super) fn askable_at(&self, now: Instant) -> Instant {
        match self.sight {
            Sight::Hot | Sight::Last => now,
            Sight::Poll(at) => at.min(self.safety_at.max(at)),
            Sight::Dozing | Sight::Asleep => self.safety_at,
        }
    }
}

impl Controller {
    /// A claim found fewer than it asked for.
    pub(super) fn found_empty(
        &self,
        queue: &mut Queue,
        calls: &mut CallRate,
        index: usize,
        found: Found,
        now: Instant,
    ) {
        self.learn_pace(queue, found.tasks);
        if !queue.watching && found.tasks > 0 {
            calls.found(found.tasks, now);
            queue.active_at = now;
        }
        let stream = calls.is_stream(now) && now < queue.active_at + LULL;
        queue.safety_at = now + self.config.safety_poll;
        #[cfg(mutants)]
        if crate::twin::is("notify_only") {
            queue.safety_at = now + Duration::from_secs(86_400);
        }
        if std::mem::take(&mut queue.woken) {
            queue.sight = if queue.watching { Sight::Last } else { Sight::Hot };
            return;
        }
        queue.sight = match queue.sight {
            _ if self.pooled => Sight::Poll(now + self.busy_nap(queue.doublings)),
            // Whatever it has found: from now on every insert notifies us.
            _ if queue.watching => Sight::Asleep,
            Sight::Hot | Sight::Poll(_) if stream => {
                Sight::Poll(calls.next_poll(now, |doublings| self.busy_nap(doublings)))
            }
            // Nobody called, or we did not get up for it.
            Sight::Asleep if found.longest_wait >= LYING => {
                queue.distrust_until = now + DISTRUST;
                Sight::Hot
            }
            Sight::Last if found.tasks > 0 => Sight::Hot,
            Sight::Last => Sight::Asleep,
            Sight::Asleep if found.tasks == 0 => Sight::Asleep,
            Sight::Hot | Sight::Poll(_) if found.tasks > 1 => {
                Sight::Poll(now + self.busy_nap(queue.doublings))
            }
            // Asleep: the watch may be about to come, or have given up the lock.
            Sight::Hot | Sight::Poll(_) | Sight::Dozing | Sight::Asleep => {
                self.ask(WakeRequest::Doze(index));
                Sight::Dozing
            }
        };
    }

    /// A claim found as much as it asked for: no time to keep watch.
    pub(super) fn found_plenty(&self, queue: &mut Queue, index: usize) {
        if std::mem::take(&mut queue.watching) {
            self.ask(WakeRequest::Rouse(index));
        }
        queue.doublings = 0;
        queue.sight = Sight::Hot;
    }

    /// No executor is free for what is in this queue: whoever has one shall look at what we were called
    /// for.
    pub(super) fn stop_watching(&self, state: &mut State, index: usize) {
        // A claim in flight takes up room as well, and may be the very look.
        if self.has_free_slot(state, index) {
            return;
        }
        let queue = &mut state.queues[index];
        if queue.watching && queue.sight == Sight::Last {
            self.found_plenty(queue, index);
        }
    }

    /// The wake line's answer for a queue that was found empty, or that another keeps watch of.
    pub(crate) fn dozed(&self, index: usize, said: &str) {
        let now = Instant::now();
        let mut state = self.lock();
        let free = self.has_free_slot(&state, index);
        let State { queues, calls, .. } = &mut *state;
        let queue = &mut queues[index];
        let stream = calls.is_stream(now) && now < queue.active_at + LULL;
        let standing_by = queue.sight == Sight::Asleep && !queue.watching;
        if queue.sight != Sight::Dozing && !standing_by {
            if said == "held" && !queue.watching {
                self.ask(WakeRequest::Rouse(index));
            }
            return;
        }
        match said {
            "held" if free && !stream => queue.watching = true,
            "held" => {
                self.ask(WakeRequest::Rouse(index));
                queue.sight = Sight::Hot;
                return;
            }
            "busy" => {
                queue.sight = Sight::Poll(now + self.busy_nap(queue.doublings));
                self.lanes.notify_one();
                return;
            }
            _ if now >= queue.distrust_until => {
                queue.sight = Sight::Asleep;
                return;
            }
            _ if standing_by => return,
            _ => {}
        }
        queue.sight = Sight::Last;
        queue.doublings = 0;
        // A claim in flight was sent before the lock was ours: its emptiness is no last look.
        queue.woken |= queue.claiming > 0;
        self.lanes.notify_one();
    }

    /// A notification for a queue that we keep watch of. False: the lock has to be given up, because
    /// our executors are at work, or the calls come too fast.
    pub(crate) fn called(&self, index: usize) -> bool {
        let now = Instant::now();
        let mut state = self.lock();
        let free = self.has_free_slot(&state, index);
        let State { queues, calls, .. } = &mut *state;
        let queue = &mut queues[index];
        queue.active_at = now;
        calls.called(now);
        queue.watching &= free && !calls.is_stream(now);
        queue.sight = if queue.watching { Sight::Last } else { Sight::Hot };
        queue.woken |= queue.claiming > 0;
        self.lanes.notify_one();
        queue.watching
    }

    /// A notification for a queue that another worker keeps watch of.
    pub(crate) fn overheard(&self, index: usize) {
        let now = Instant::now();
        let State { queues, calls, .. } = &mut *self.lock();
        queues[index].active_at = now;
        calls.called(now);
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
            state.queues[at].sight = Sight::Hot;
            state.queues[at].woken = true;
            state.queues[at].watching = false;
        }
        self.lanes.notify_one();
    }

    /// The wake line broke, and with it every lock of ours.
    pub(crate) fn unwatched(&self) {
        for queue in &mut self.lock().queues {
            queue.watching = false;
        }
    }

    /// A producer that is in the way is mostly about to commit, so the first nap is short. A look that
    /// finds nothing doubles the next, up to `busy_poll`; one that finds several halves it, whoever else
    /// looks. While the nap only grew, p95 at 2,000 inserts a second was 20 ms instead of 5.
    fn learn_pace(&self, queue: &mut Queue, found: usize) {
        queue.doublings = match (queue.sight, found) {
            (Sight::Poll(_), 0) => (queue.doublings + 1).min(self.most_doublings()),
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

    fn ask(&self, request: WakeRequest) {
        // The wake line ends after the lanes; if it has ended, the worker is going away.
        let _ = self.wake.send(request);
    }
}

/// Half a commit's time, so often doubled.
const fn nap(doublings: u32) -> Duration {
    Duration::from_micros(500 << doublings)
}
