//! The safety poll of sleeping queues, as the queue watch makes it: all of them in one cheap question.
//!
//! A peek is asked in place of the next claim, which waits for the answer for a safety poll. The lanes
//! keep their own safety poll: it comes due when no peek was answered in that time, claims what a peek
//! has found, and sweeps. When the claim did not wait, a server that answered 50 ms late got a claim for
//! each sleeping queue beside each peek.

use std::time::Instant;

use super::queue_watch::WatchState;
use super::{Controller, Queue};

/// A sleeping queue, to be peeked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Peek {
    /// Its index.
    pub queue: usize,
    pub queue_id: i32,
    /// Nothing at or below is looked for.
    pub mark: i64,
}

impl Controller {
    /// The queues that sleep and would be polled within a safety poll from now, but for those whose
    /// sweep is due: that takes a claim.
    pub(crate) fn to_peek_at(&self, now: Instant) -> Vec<Peek> {
        let state = self.lock();
        let peek = |(index, queue): (usize, &Queue)| {
            let load = &state.loads[self.queues[index].lambda];
            let polls = queue.sleeps() && queue.safety_at <= now + self.config.safety_poll;
            let room = load.room(&self.config) > 0 && queue.room(&self.config) != Some(0);
            let mark = queue.mark.for_look(now).filter(|_| polls && room)?;
            Some(Peek { queue: index, queue_id: self.queues[index].queue_id, mark })
        };
        state.queues.iter().enumerate().filter_map(peek).collect()
    }

    /// The queues that sleep under bells which other workers hold, perhaps for other queues. Those that no
    /// peek is for, as they have no room or their sweep is due, wake: a claim of them waits for a slot.
    pub(crate) fn to_peek_under(&self, bells: &[i32], now: Instant) -> Vec<Peek> {
        if bells.is_empty() {
            return Vec::new();
        }
        let mut peeks = self.to_peek_at(now);
        let mut state = self.lock();
        peeks.retain(|peek| {
            !state.queues[peek.queue].watching && bells.contains(&self.bell(peek.queue))
        });
        let all = bells.iter().filter_map(|bell| self.on_bell.get(bell)).flatten();
        for index in all.filter(|index| peeks.iter().all(|peek| peek.queue != **index)) {
            let queue = &mut state.queues[*index];
            if queue.watch == WatchState::Asleep && !queue.watching {
                queue.wake();
                queue.woken |= queue.claiming > 0;
                self.lanes.notify_one();
            }
        }
        peeks
    }

    /// Peeks are sent: the claims of these queues wait for the answer.
    pub(crate) fn peeking(&self, peeks: &[Peek], sent: Instant) {
        let mut state = self.lock();
        for peek in peeks {
            let queue = &mut state.queues[peek.queue];
            queue.safety_at = queue.safety_at.max(sent + self.config.safety_poll);
        }
    }

    /// What peeks that were sent at that time have found.
    pub(crate) fn peeked(&self, peeks: &[Peek], found: &[bool], sent: Instant) {
        let mut state = self.lock();
        for (peek, any) in peeks.iter().zip(found) {
            let queue = &mut state.queues[peek.queue];
            // The lane's claim finds out whether we should have been called.
            if *any && queue.sleeps() {
                queue.safety_at = sent;
                self.lanes.notify_one();
            }
        }
    }
}

impl Queue {
    fn sleeps(&self) -> bool {
        self.watch == WatchState::Asleep && self.claiming == 0
    }
}
