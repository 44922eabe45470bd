//! Claims of a queue: when one makes sense, and what its answer says.

use std::time::{Duration, Instant};

use super::watch_state::{Event, Fewer, Found};
use super::{LULL, QueueWatch, jittered, pause};
use crate::db::hsc::QueueFound;
use crate::db::low_water_mark::{Around, Asked};

/// A task that a sleeping worker finds is overdue if it has waited for so long: the worker that keeps watch
/// looks within a few ms. In a stream, each look at any time finds something.
const OVERDUE: Duration = Duration::from_millis(100);

/// The answer of a claim for one queue.
#[derive(Debug, Clone, Copy)]
pub(in crate::worker::controller) struct ClaimAnswer {
    pub asked: Asked<i64>,
    pub sent_at: Instant,
    pub rows: QueueFound,
    pub tasks: usize,
    pub around: Around,
    /// As much as it asked for.
    pub is_full: bool,
    /// The longest time that one of the tasks had been due.
    pub longest_wait: Duration,
}

impl QueueWatch {
    /// A claim of this queue makes sense now: it may hold tasks, and no other claim is looking.
    pub(in crate::worker::controller) fn is_due(&self, index: usize, now: Instant) -> bool {
        let queue = &self.queues[index];
        queue.is_askable(now) && (queue.claims == 0 || queue.has_backlog)
    }

    /// A claim of this queue is sent. Returns where it begins.
    pub(in crate::worker::controller) fn claim_sent(
        &mut self,
        index: usize,
        now: Instant,
    ) -> Asked<i64> {
        let queue = &mut self.queues[index];
        queue.claims += 1;
        queue.mark.for_claim(now)
    }

    /// That claim was answered, or broke.
    pub(in crate::worker::controller) fn claim_ended(&mut self, index: usize) {
        self.queues[index].claims -= 1;
    }

    /// A claim looked into so many queues and found so many tasks.
    pub(in crate::worker::controller) fn learn_pace(&mut self, tasks: usize, queues: usize) {
        self.calls.learn_pace(tasks, queues, self.most_doublings());
    }

    /// No executor is free for the tasks of this queue: a worker that has one shall look for the task
    /// that we were called for. A claim under way takes up room as well, and may be the very look.
    pub(in crate::worker::controller) fn no_free_slot(&mut self, index: usize, now: Instant) {
        self.apply(index, Event::NoFreeSlot, now);
    }

    /// Takes the answer of a claim for a queue that it visited.
    pub(in crate::worker::controller) fn claimed(
        &mut self,
        index: usize,
        answer: ClaimAnswer,
        now: Instant,
    ) {
        let queue = &mut self.queues[index];
        let below = answer.rows.first_seq.map(|first| first - 1);
        queue.mark.learn(answer.asked, below, answer.rows.last_seq, answer.around);
        queue.has_backlog = answer.is_full;
        let event = if answer.is_full {
            queue.doublings = 0;
            Event::ClaimedAll { sent_at: answer.sent_at }
        } else {
            Event::ClaimedFewer(self.fewer(index, answer, now))
        };
        self.apply(index, event, now);
    }

    fn fewer(&mut self, index: usize, answer: ClaimAnswer, now: Instant) -> Fewer {
        let found = match answer.tasks {
            0 => Found::Nothing,
            _ if answer.longest_wait >= OVERDUE => Found::Overdue,
            1 => Found::One,
            _ => Found::Several,
        };
        self.learn_pause(index, answer.tasks);
        let queue = &mut self.queues[index];
        if !queue.state.is_watching() && answer.tasks > 0 {
            self.calls.found(answer.tasks, now);
            queue.active_at = now;
        }
        let again_at = now + self.poll_pause(index);
        let poll_at = self.next_poll(index, found, again_at, now);
        let safety_poll_at = now + self.safety_poll;
        #[cfg(mutants)]
        let safety_poll_at = match crate::db::fault_injection::is("notify_only") {
            true => now + Duration::from_secs(86_400),
            false => safety_poll_at,
        };
        Fewer { found, sent_at: answer.sent_at, poll_at, again_at, safety_poll_at }
    }

    /// The time of the next poll of a queue that shall not fall asleep now; none: it may.
    fn next_poll(
        &mut self,
        index: usize,
        found: Found,
        again_at: Instant,
        now: Instant,
    ) -> Option<Instant> {
        let queue = &self.queues[index];
        let rests = self.rests.is_resting(queue.bell(), now);
        let active = now < queue.active_at + LULL;
        let (busy_poll, most) = (self.busy_poll, self.most_doublings());
        if self.pooled {
            Some(again_at)
        } else if self.calls.is_stream(now) && (rests || active) {
            Some(self.calls.next_poll(now, |doublings| jittered(busy_poll, doublings)))
        } else if rests && found != Found::Several {
            Some(self.rests.next_poll(now, || jittered(busy_poll, most)))
        } else {
            rests.then_some(again_at)
        }
    }

    /// A producer that is in the way is mostly about to commit, so the first pause is short. A look that
    /// finds nothing doubles the next pause, up to `busy_poll`. One that finds several tasks halves it,
    /// whichever worker looks. While the pause only grew, p95 at 2,000 inserts a second was 20 ms instead
    /// of 5.
    fn learn_pause(&mut self, index: usize, tasks: usize) {
        let most = self.most_doublings();
        let queue = &mut self.queues[index];
        queue.doublings = match tasks {
            0 if queue.state.is_polled() => (queue.doublings + 1).min(most),
            0 | 1 => queue.doublings,
            _ => queue.doublings.saturating_sub(1),
        };
    }

    fn most_doublings(&self) -> u32 {
        (0..10).find(|doublings| pause(*doublings) >= self.busy_poll).unwrap_or(10)
    }

    /// The pause before the next poll of a queue.
    pub(super) fn poll_pause(&self, index: usize) -> Duration {
        jittered(self.busy_poll, self.queues[index].doublings)
    }
}
