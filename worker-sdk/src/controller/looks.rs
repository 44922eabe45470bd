//! The safety poll of sleeping queues, as the wake line makes it: all of them in one cheap question.
//!
//! Whatever a look finds empty needs no claim until the next one. The lanes keep their own safety poll:
//! it comes due when no look has answered in time, finds what a look has found, and sweeps.

use std::time::Instant;

use super::sight::Sight;
use super::{Controller, Queue};

/// A sleeping queue, to be looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Look {
    /// Its index.
    queue: usize,
    pub queue_id: i32,
    /// Nothing at or below is looked for.
    pub mark: i64,
}

impl Controller {
    /// The queues that sleep and would be polled within a safety poll from now, but for those whose
    /// sweep is due: that takes a claim.
    pub(crate) fn to_look_at(&self, now: Instant) -> Vec<Look> {
        let state = self.lock();
        let look = |(index, queue): (usize, &Queue)| {
            let load = &state.loads[self.queues[index].lambda];
            let polls = queue.sleeps() && queue.safety_at <= now + self.config.safety_poll;
            let room = load.room(&self.config) > 0 && queue.room(&self.config) != Some(0);
            let mark = queue.mark.for_look(now).filter(|_| polls && room)?;
            Some(Look { queue: index, queue_id: self.queues[index].queue_id, mark })
        };
        state.queues.iter().enumerate().filter_map(look).collect()
    }

    /// What looks that were sent at that time have found.
    pub(crate) fn looked(&self, looks: &[Look], found: &[bool], sent: Instant) {
        let mut state = self.lock();
        for (look, any) in looks.iter().zip(found) {
            let queue = &mut state.queues[look.queue];
            match any {
                false => queue.safety_at = queue.safety_at.max(sent + self.config.safety_poll),
                // The lane's claim finds out whether we should have been called.
                true if queue.sleeps() => {
                    queue.safety_at = sent;
                    self.lanes.notify_one();
                }
                true => {}
            }
        }
    }
}

impl Queue {
    fn sleeps(&self) -> bool {
        self.sight == Sight::Asleep && self.claiming == 0
    }
}
