//! One queue, as the queue watch knows it.

use std::time::{Duration, Instant};

use crate::db::hsc::{Watched, bell_of};
use crate::db::low_water_mark::LowWaterMark;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::worker::controller) enum WatchState {
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

/// See the module.
pub(in crate::worker::controller) struct WatchedQueue {
    pub id: i32,
    pub bell: i32,
    pub watch: WatchState,
    pub mark: LowWaterMark<i64>,
    /// Exchange connections that are claiming from it now.
    pub claiming: u32,
    /// The last claim found as much as it asked for.
    pub deep: bool,
    /// Woken after the claim in flight was sent: an empty answer to it is out of date.
    pub woken: bool,
    /// Doublings of the nap between two looks, while a producer is busy or no notification can come.
    pub doublings: u32,
    /// We hold the lock of its bell: each insert notifies us.
    pub watching: bool,
    /// Called while awake under a bell that we hold: no claim since has found it empty.
    pub owed: bool,
    /// The last call on its bell, or the last task that a poll of a stream found.
    pub active_at: Instant,
    /// Until then a notification wakes us, whichever worker keeps watch.
    pub distrust_until: Instant,
    /// The safety poll is due.
    pub safety_at: Instant,
    /// A claim last brought a task of it.
    pub served_at: Instant,
}

impl WatchedQueue {
    pub(super) fn new(id: i32, now: Instant) -> Self {
        Self {
            id,
            bell: bell_of(id),
            watch: WatchState::Hot,
            mark: LowWaterMark::new(now),
            claiming: 0,
            deep: false,
            woken: false,
            doublings: 0,
            watching: false,
            owed: false,
            active_at: now,
            distrust_until: now,
            safety_at: now,
            served_at: now,
        }
    }

    /// It is worth a claim now.
    pub(in crate::worker::controller) fn is_askable(&self, now: Instant) -> bool {
        self.askable_at(now) <= now
    }

    /// The time from which it is worth a claim, if nothing happens before.
    pub(in crate::worker::controller) fn askable_at(&self, now: Instant) -> Instant {
        match self.watch {
            WatchState::Hot | WatchState::Last => now,
            WatchState::Poll(at) => at,
            WatchState::FallingAsleep | WatchState::Asleep => self.safety_at,
        }
    }

    pub(super) fn sleeps(&self) -> bool {
        self.watch == WatchState::Asleep && self.claiming == 0
    }

    /// Awake, and no lock is held for it.
    pub(super) fn wake(&mut self) {
        self.watch = WatchState::Hot;
        self.watching = false;
        self.owed = false;
    }

    /// The same. A claim in flight was sent before: an empty answer to it is out of date.
    pub(super) fn wake_late(&mut self) {
        self.wake();
        self.woken |= self.claiming > 0;
    }

    /// The answer for its bell. True: it is worth a look.
    pub(super) fn answered(
        &mut self,
        said: Watched,
        may_watch: bool,
        nap: Duration,
        now: Instant,
    ) -> bool {
        let standing_by = self.watch == WatchState::Asleep && !self.watching;
        if self.watch != WatchState::FallingAsleep && !standing_by {
            return false;
        }
        match said {
            Watched::Held if may_watch => self.watching = true,
            Watched::Held => {
                self.wake();
                return true;
            }
            Watched::Busy => {
                self.watch = WatchState::Poll(now + nap);
                return true;
            }
            Watched::Taken | Watched::Shared if now >= self.distrust_until => {
                self.watch = WatchState::Asleep;
                return false;
            }
            Watched::Taken | Watched::Shared if standing_by => return false,
            Watched::Taken | Watched::Shared => {}
        }
        self.watch = WatchState::Last;
        self.doublings = 0;
        // A claim in flight was sent before the lock was held: it is no last look.
        self.woken |= self.claiming > 0;
        true
    }
}
