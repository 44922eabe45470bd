//! What the controller believes of a queue: worth a look, falling asleep, or asleep.
//!
//! Falling asleep takes three steps, so that nobody sleeps past an uncommitted row: found empty ->
//! take the queue's lock (wake.rs) -> look once more -> asleep. From the lock on, whoever inserts
//! must notify.

use std::time::{Duration, Instant};

use super::{Controller, Queue};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sight {
    /// There may be tasks.
    Hot,
    /// Found empty; the lock is asked for.
    Dozing,
    /// The lock is ours or another controller's: one last look.
    Last,
    /// Asleep until notified, but for the safety poll.
    Asleep,
    /// No lock to be had: look again at that time.
    Poll(Instant),
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
    pub(super) fn found_empty(&self, queue: &mut Queue, index: usize, any: bool, now: Instant) {
        queue.safety_at = now + self.config.safety_poll;
        #[cfg(mutants)]
        if crate::twin::is("notify_only") {
            queue.safety_at = now + Duration::from_secs(86_400);
        }
        if std::mem::take(&mut queue.woken) {
            queue.sight = Sight::Hot;
            return;
        }
        queue.sight = match queue.sight {
            _ if self.pooled => Sight::Poll(now + self.busy_nap(u32::MAX)),
            // It was asleep, or about to be, and there was something: stay up and give up the lock.
            Sight::Last | Sight::Asleep if any => {
                self.ask(WakeRequest::Rouse(index));
                Sight::Hot
            }
            Sight::Last | Sight::Asleep => Sight::Asleep,
            Sight::Hot | Sight::Poll(_) | Sight::Dozing => {
                self.ask(WakeRequest::Doze(index));
                Sight::Dozing
            }
        };
    }

    /// The wake line's answer for a queue that was found empty.
    pub(crate) fn dozed(&self, index: usize, said: &str) {
        let now = Instant::now();
        let mut state = self.lock();
        let queue = &mut state.queues[index];
        if queue.sight != Sight::Dozing {
            if said == "held" {
                self.ask(WakeRequest::Rouse(index));
            }
            return;
        }
        if said == "busy" {
            queue.sight = Sight::Poll(now + self.busy_nap(queue.busy));
            queue.busy = queue.busy.saturating_add(1);
        } else {
            queue.sight = Sight::Last;
            queue.busy = 0;
        }
        // A claim in flight was sent before the lock was ours: its emptiness is no last look.
        queue.woken |= queue.claiming > 0;
        self.lanes.notify_one();
    }

    /// A notification, or another reason to look: `None` means every queue.
    pub(crate) fn woken(&self, index: Option<usize>) {
        let mut state = self.lock();
        let all = 0..state.queues.len();
        for at in index.map_or(all, |at| at..at + 1) {
            state.queues[at].sight = Sight::Hot;
            state.queues[at].woken = true;
        }
        self.lanes.notify_one();
    }

    /// Most transactions that are in the way end within a commit's time: 1 ms first, then doubling up
    /// to `busy_poll`, with jitter.
    fn busy_nap(&self, round: u32) -> Duration {
        let short = Duration::from_millis(1 << round.min(10));
        short.min(self.config.busy_poll).mul_f64(1.0 + 1.5 * fastrand::f64())
    }

    fn ask(&self, request: WakeRequest) {
        // The wake line ends after the lanes; if it has ended, the worker is going away.
        let _ = self.wake.send(request);
    }
}
