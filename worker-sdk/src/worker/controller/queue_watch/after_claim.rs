//! The time of the next claim of a queue, after a claim: at once, later, or when it is called.

use std::time::{Duration, Instant};

use super::{LULL, QueueWatch, WatchRequest, WatchState, jittered, nap};
use crate::db::hsc::QueueFound;
use crate::db::low_water_mark::{Around, Asked};

/// A task that a sleeping worker finds was left lying if it has waited for so long: the watch looks within
/// a few ms. In a stream, each look at any time finds something.
const LYING: Duration = Duration::from_millis(100);
/// All workers heed the calls for a watch for so long, once it has left a task lying until a safety poll.
const DISTRUST: Duration = Duration::from_secs(30);

/// The answer of a claim for one queue.
#[derive(Debug, Clone, Copy)]
pub(in crate::worker::controller) struct Found {
    pub asked: Asked<i64>,
    pub rows: QueueFound,
    pub tasks: usize,
    pub around: Around,
    /// As much as it asked for.
    pub plenty: bool,
    /// The longest time that one of the tasks had been due.
    pub longest_wait: Duration,
}

/// Claims: when a queue is claimed from, and what its answer changes.
impl QueueWatch {
    /// A claim of this queue makes sense now: it may hold tasks, and no other claim is looking.
    pub(in crate::worker::controller) fn is_due(&self, index: usize, now: Instant) -> bool {
        let queue = &self.queues[index];
        queue.is_askable(now) && (queue.claiming == 0 || queue.deep)
    }

    /// A claim of this queue is sent. Returns where it begins.
    pub(in crate::worker::controller) fn claiming(
        &mut self,
        index: usize,
        now: Instant,
    ) -> Asked<i64> {
        let queue = &mut self.queues[index];
        queue.claiming += 1;
        queue.woken = false;
        queue.mark.for_claim(now)
    }

    /// That claim was answered, or broke.
    pub(in crate::worker::controller) fn claimed(&mut self, index: usize) {
        self.queues[index].claiming -= 1;
    }

    /// A claim looked into so many queues and found so many tasks.
    pub(in crate::worker::controller) fn learn_pace(&mut self, tasks: usize, queues: usize) {
        self.calls.learn_pace(tasks, queues, self.most_doublings());
    }

    /// Takes the answer of a claim for a queue that it visited.
    pub(in crate::worker::controller) fn found(
        &mut self,
        index: usize,
        found: Found,
        now: Instant,
    ) {
        let queue = &mut self.queues[index];
        let below = found.rows.first_seq.map(|first| first - 1);
        queue.mark.learn(found.asked, below, found.rows.last_seq, found.around);
        queue.deep = found.plenty;
        match found.plenty {
            true => self.found_plenty(index),
            false => self.found_less(index, found, now),
        }
    }

    /// A claim found as much as it asked for: no time to keep watch.
    fn found_plenty(&mut self, index: usize) {
        let queue = &mut self.queues[index];
        let owed = std::mem::take(&mut queue.owed);
        let watching = std::mem::take(&mut queue.watching);
        queue.doublings = 0;
        queue.watch = WatchState::Hot;
        if watching || owed {
            self.ask(WatchRequest::Unwatch(self.queues[index].bell));
        }
    }

    /// A claim found fewer than it asked for.
    fn found_less(&mut self, index: usize, found: Found, now: Instant) {
        self.learn_nap(index, found.tasks);
        let queue = &mut self.queues[index];
        if !queue.watching && found.tasks > 0 {
            self.calls.found(found.tasks, now);
            queue.active_at = now;
        }
        queue.safety_at = now + self.safety_poll;
        #[cfg(mutants)]
        if crate::db::fault_injection::is("notify_only") {
            queue.safety_at = now + Duration::from_secs(86_400);
        }
        if std::mem::take(&mut queue.woken) {
            queue.watch = if queue.watching { WatchState::Last } else { WatchState::Hot };
            return;
        }
        queue.owed = false;
        let next = self.after_less(index, found, now);
        self.queues[index].watch = next;
    }

    fn after_less(&mut self, index: usize, found: Found, now: Instant) -> WatchState {
        let resting = self.rests.is_resting(self.queues[index].bell, now);
        let active = now < self.queues[index].active_at + LULL;
        let stream = self.calls.is_stream(now) && (resting || active);
        let busy_nap = self.busy_nap(self.queues[index].doublings);
        let queue = &mut self.queues[index];
        match queue.watch {
            _ if self.pooled => WatchState::Poll(now + busy_nap),
            // From now on each insert notifies us, also if this claim found nothing.
            _ if queue.watching => WatchState::Asleep,
            WatchState::Hot | WatchState::Poll(_) if stream => {
                let (busy_poll, calls) = (self.busy_poll, &mut self.calls);
                WatchState::Poll(calls.next_poll(now, |doublings| jittered(busy_poll, doublings)))
            }
            // No notification came, or we did not look for it.
            WatchState::Asleep if found.longest_wait >= LYING => {
                queue.distrust_until = now + DISTRUST;
                WatchState::Hot
            }
            WatchState::Last if found.tasks > 0 => WatchState::Hot,
            WatchState::Last => WatchState::Asleep,
            WatchState::Asleep if found.tasks == 0 => WatchState::Asleep,
            WatchState::Hot | WatchState::Poll(_) if found.tasks > 1 => {
                WatchState::Poll(now + busy_nap)
            }
            _ if resting => {
                let longest = self.busy_nap(self.most_doublings());
                WatchState::Poll(self.rests.next_poll(now, || longest))
            }
            // Asleep: the watch may be about to look, or have given up the lock.
            WatchState::Hot
            | WatchState::Poll(_)
            | WatchState::FallingAsleep
            | WatchState::Asleep => {
                self.ask(WatchRequest::Watch(self.queues[index].bell));
                WatchState::FallingAsleep
            }
        }
    }

    /// A producer that is in the way is mostly about to commit, so the first nap is short. A look that
    /// finds nothing doubles the next nap, up to `busy_poll`. One that finds several tasks halves it,
    /// whichever worker looks. While the nap only grew, p95 at 2,000 inserts a second was 20 ms instead
    /// of 5.
    fn learn_nap(&mut self, index: usize, found: usize) {
        let most = self.most_doublings();
        let queue = &mut self.queues[index];
        queue.doublings = match (queue.watch, found) {
            (WatchState::Poll(_), 0) => (queue.doublings + 1).min(most),
            (_, 0 | 1) => queue.doublings,
            _ => queue.doublings.saturating_sub(1),
        };
    }

    fn most_doublings(&self) -> u32 {
        (0..10).find(|doublings| nap(*doublings) >= self.busy_poll).unwrap_or(10)
    }

    fn busy_nap(&self, doublings: u32) -> Duration {
        jittered(self.busy_poll, doublings)
    }

    /// No executor is free for the tasks of this queue: a worker that has one shall look for the task
    /// that we were called for. A claim in flight takes up room as well, and may be the very look.
    pub(in crate::worker::controller) fn stop_watching(&mut self, index: usize) {
        let queue = &self.queues[index];
        if queue.owed || (queue.watching && queue.watch == WatchState::Last) {
            self.found_plenty(index);
        }
    }
}
