//! The safety poll of sleeping queues: all of them in one cheap question.
//!
//! A peek is asked in place of the next claim, which waits for the answer for a safety poll. The claims
//! keep their own safety poll: it comes due when no peek was answered in that time, it claims what a peek
//! has found, and it sweeps. When the claim did not wait, a server that answered 50 ms late got a claim of
//! each sleeping queue beside each peek.

use std::time::Instant;

use super::watch_state::Event;
use super::{Effect, QueueWatch};

/// A sleeping queue, to be peeked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Peek {
    pub queue: usize,
    pub queue_id: i32,
    /// Nothing at or below is looked for.
    pub mark: i64,
}

impl QueueWatch {
    /// The peeks to send now: at the queues that sleep and would be polled within a safety poll. With
    /// `under`, at those only that sleep under these bells, which other workers hold, perhaps for other
    /// queues. `has_room`: a task of a queue could be claimed. True: a queue woke.
    pub(in crate::worker::controller) fn peeks(
        &mut self,
        under: Option<&[i32]>,
        has_room: impl Fn(usize) -> bool,
        now: Instant,
    ) -> (Vec<Peek>, bool) {
        let mut peeks = Vec::new();
        for (index, queue) in self.queues.iter().enumerate() {
            let polls = queue.sleeps() && queue.state.claim_at() <= now + self.safety_poll;
            let meant = under
                .is_none_or(|bells| !queue.state.is_watching() && bells.contains(&queue.bell()));
            // A sweep takes a claim: no peek is for a queue whose sweep is due.
            let mark = queue.mark.for_look(now).filter(|_| polls && meant && has_room(index));
            peeks.extend(mark.map(|mark| Peek { queue: index, queue_id: queue.id, mark }));
        }
        let woke = self.wake_unpeeked(under.unwrap_or_default(), &peeks, now);
        let answer_by = now + self.safety_poll;
        for peek in &peeks {
            self.apply(peek.queue, Event::PeekSent { answer_by }, now);
        }
        (peeks, woke)
    }

    /// The queues under these bells that no peek is for, because they have no room or their sweep is due:
    /// a claim looks as soon as it can.
    fn wake_unpeeked(&mut self, bells: &[i32], peeks: &[Peek], now: Instant) -> bool {
        let queues = bells.iter().filter_map(|bell| self.on_bell.get(bell)).flatten().copied();
        let left: Vec<_> =
            queues.filter(|index| peeks.iter().all(|peek| peek.queue != *index)).collect();
        self.apply_to(left, Event::CannotPeek { now }, now).claim_earlier
    }

    /// Takes the answers of peeks that were sent at that time.
    pub(super) fn peeked(&mut self, peeks: &[Peek], found: &[bool], sent_at: Instant) -> Effect {
        let found = peeks.iter().zip(found).filter(|(_, any)| **any);
        let queues: Vec<_> = found.map(|(peek, _)| peek.queue).collect();
        self.apply_to(queues, Event::PeekFound { sent_at }, sent_at)
    }
}
