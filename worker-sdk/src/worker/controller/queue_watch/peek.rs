//! The safety poll of sleeping queues: all of them in one cheap question.
//!
//! A peek is asked in place of the next claim, which waits for the answer for a safety poll. The claims
//! keep their own safety poll: it comes due when no peek was answered in that time, it claims what a peek
//! has found, and it sweeps. When the claim did not wait, a server that answered 50 ms late got a claim of
//! each sleeping queue beside each peek.

use std::time::Instant;

use super::{QueueWatch, WatchState};

/// A sleeping queue, to be peeked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Peek {
    /// Its index.
    pub queue: usize,
    pub queue_id: i32,
    /// Nothing at or below is looked for.
    pub mark: i64,
}

impl QueueWatch {
    /// The queues that sleep and would be polled within a safety poll from now. A queue whose sweep is due
    /// is left out, because a sweep takes a claim. `has_room`: a task of a queue could be claimed.
    pub(in crate::worker::controller) fn peeks_at(
        &self,
        has_room: impl Fn(usize) -> bool,
        now: Instant,
    ) -> Vec<Peek> {
        let peek = |(index, queue): (usize, &super::WatchedQueue)| {
            let polls = queue.sleeps() && queue.safety_at <= now + self.safety_poll;
            let mark = queue.mark.for_look(now).filter(|_| polls && has_room(index))?;
            Some(Peek { queue: index, queue_id: queue.id, mark })
        };
        self.queues.iter().enumerate().filter_map(peek).collect()
    }

    /// The queues that sleep under bells which other workers hold, perhaps for other queues. A queue that
    /// no peek is for, because it has no room or its sweep is due, wakes: its claim waits for a slot.
    /// True: a queue woke.
    pub(in crate::worker::controller) fn peeks_under(
        &mut self,
        bells: &[i32],
        has_room: impl Fn(usize) -> bool,
        now: Instant,
    ) -> (Vec<Peek>, bool) {
        let mut peeks = self.peeks_at(has_room, now);
        peeks.retain(|peek| {
            let queue = &self.queues[peek.queue];
            !queue.watching && bells.contains(&queue.bell)
        });
        let mut woke = false;
        let all = bells.iter().filter_map(|bell| self.on_bell.get(bell)).flatten();
        for index in all.filter(|index| peeks.iter().all(|peek| peek.queue != **index)) {
            let queue = &mut self.queues[*index];
            if queue.watch == WatchState::Asleep && !queue.watching {
                queue.wake_late();
                woke = true;
            }
        }
        (peeks, woke)
    }

    /// Peeks are sent: the claims of these queues wait for the answer.
    pub(in crate::worker::controller) fn peeking(&mut self, peeks: &[Peek], sent: Instant) {
        for peek in peeks {
            let queue = &mut self.queues[peek.queue];
            queue.safety_at = queue.safety_at.max(sent + self.safety_poll);
        }
    }

    /// Takes the answers of peeks that were sent at that time. True: a queue is worth a look.
    pub(in crate::worker::controller) fn peeked(
        &mut self,
        peeks: &[Peek],
        found: &[bool],
        sent: Instant,
    ) -> bool {
        let mut look = false;
        for (peek, any) in peeks.iter().zip(found) {
            let queue = &mut self.queues[peek.queue];
            // The claim finds out whether we should have been called.
            if *any && queue.sleeps() {
                queue.safety_at = sent;
                look = true;
            }
        }
        look
    }
}
