//! A queue as the controller knows it: its buffer, its mark, and what is believed of it.

use std::collections::VecDeque;
use std::time::Instant;

use super::load::Load;
use super::queue_watch::WatchState;
use crate::config::WorkerConfig;
use crate::low_water_mark::LowWaterMark;
use crate::work::Work;

/// See the module.
pub(super) struct Queue {
    pub watch: WatchState,
    pub mark: LowWaterMark<i64>,
    pub buffer: VecDeque<Work>,
    /// A bound of its own within that of its lambda.
    pub bound: Option<Load>,
    /// Lanes that are claiming from it now.
    pub claiming: u32,
    /// The last claim found as much as it asked for.
    pub deep: bool,
    /// Woken after the claim in flight was sent: its emptiness is old news.
    pub woken: bool,
    /// Doublings of the nap between two looks, while a producer is busy or no notification can come.
    pub doublings: u32,
    /// We hold the lock of its bell: every insert notifies us.
    pub watching: bool,
    /// Called while awake under a bell that we hold: no claim since has found it empty.
    pub owed: bool,
    /// The last call on its bell, or the last task that a poll of a stream found.
    pub active_at: Instant,
    /// Until then a notification wakes us, whichever worker keeps watch.
    pub distrust_until: Instant,
    pub safety_at: Instant,
    pub served_at: Instant,
}

impl Queue {
    pub(super) fn new(bound: Option<Load>, now: Instant) -> Self {
        Self {
            bound,
            watch: WatchState::Hot,
            mark: LowWaterMark::new(now),
            buffer: VecDeque::new(),
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

    /// Everything out of the buffer.
    pub(super) fn drain(&mut self) -> std::collections::vec_deque::Drain<'_, Work> {
        if let Some(bound) = &mut self.bound {
            bound.buffered = 0;
        }
        self.buffer.drain(..)
    }

    /// How many more tasks of it to claim, if it is bounded.
    pub(super) fn room(&self, config: &WorkerConfig) -> Option<usize> {
        self.bound.as_ref().map(|bound| bound.room(config))
    }

    /// Something waits here that may begin.
    pub(super) fn is_ready(&self) -> bool {
        !self.buffer.is_empty() && self.bound.as_ref().is_none_or(Load::has_free_slot)
    }
}
