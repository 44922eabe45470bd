//! One queue, as the queue watch knows it.

use std::time::Instant;

use super::watch_state::WatchState;
use crate::db::hsc::bell_of;
use crate::db::low_water_mark::LowWaterMark;

pub(in crate::worker::controller) struct WatchedQueue {
    pub id: i32,
    pub state: WatchState,
    pub mark: LowWaterMark<i64>,
    /// Claims of it under way, each on an exchange connection.
    pub claims: u32,
    /// The last claim found as much as it asked for.
    pub has_backlog: bool,
    /// Doublings of the pause between two polls, while a producer is busy or no notification can come.
    pub doublings: u32,
    /// The last call on its bell, or the last task that a claim found without a call.
    pub active_at: Instant,
    /// Until then each call for the queue is a reason to claim, whichever worker holds the bell.
    pub follow_calls_until: Instant,
    /// A claim last brought a task of it.
    pub served_at: Instant,
}

impl WatchedQueue {
    pub(super) fn new(id: i32, now: Instant) -> Self {
        Self {
            id,
            state: WatchState::Awake { since: now },
            mark: LowWaterMark::new(now),
            claims: 0,
            has_backlog: false,
            doublings: 0,
            active_at: now,
            follow_calls_until: now,
            served_at: now,
        }
    }

    pub(super) fn bell(&self) -> i32 {
        bell_of(self.id)
    }

    /// It is worth a claim now.
    pub(in crate::worker::controller) fn is_askable(&self, now: Instant) -> bool {
        self.state.claim_at() <= now
    }

    /// It sleeps, and no claim is looking.
    pub(super) fn sleeps(&self) -> bool {
        self.state.is_asleep() && self.claims == 0
    }
}
