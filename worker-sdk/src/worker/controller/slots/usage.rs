//! How busy a lambda's executors are, and how many tasks more it makes sense to claim for them.

use std::time::Duration;

use crate::worker::config::WorkerConfig;
use crate::worker::controller::slots::Slots;

impl Slots {
    /// A lambda of a host has so many slots from now on. Returns the executors to start for what is buffered.
    pub(in crate::worker::controller) fn resize(&mut self, lambda: usize, slots: usize) -> usize {
        let usage = &mut self.lambdas[lambda].usage;
        usage.slots = slots;
        let buffered = usage.buffered;
        self.start_executors(lambda, buffered)
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Usage {
    pub slots: usize,
    pub running: usize,
    pub buffered: usize,
    /// Asked for by claims in flight.
    pub asked: usize,
    /// NextWork answered so often.
    pub picks: u64,
    /// Smoothed duration of an execution; none measured yet: no prefetch.
    mean_s: Option<f64>,
}

impl Usage {
    pub(in crate::worker::controller) fn new(slots: usize) -> Self {
        Self { slots, running: 0, buffered: 0, asked: 0, picks: 0, mean_s: None }
    }

    pub(in crate::worker::controller) fn began(&mut self) {
        self.running += 1;
        self.buffered -= 1;
    }

    pub(in crate::worker::controller) fn finished(&mut self, took: Duration) {
        self.running -= 1;
        let took = took.as_secs_f64();
        self.mean_s = Some(self.mean_s.map_or(took, |mean| mean + 0.05 * (took - mean)));
    }

    /// A task claimed ahead waited so long although every slot was at work: executions take longer
    /// than they did.
    pub(in crate::worker::controller) fn slowed(&mut self, waited: Duration) {
        self.mean_s = self.mean_s.map(|mean| mean.max(waited.as_secs_f64()));
    }

    /// Free slots plus what they will have worked off within `buffer_target`.
    pub(in crate::worker::controller) fn target(&self, config: &WorkerConfig) -> usize {
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss
        )]
        let ahead = self.mean_s.map_or(0, |mean| {
            let soon = config.buffer_target.as_secs_f64() / mean.max(1e-7) * self.slots as f64;
            soon.min(config.max_buffer as f64) as usize
        });
        self.slots + ahead
    }

    /// It could begin a task, and none is claimed for it.
    pub(in crate::worker::controller) fn is_starved(&self) -> bool {
        self.has_free_slot() && self.buffered + self.asked == 0
    }

    pub(in crate::worker::controller) fn has_free_slot(&self) -> bool {
        self.running < self.slots
    }

    /// Also when all that is buffered has begun.
    pub(in crate::worker::controller) fn will_have_free_slot(&self) -> bool {
        self.running + self.buffered < self.slots
    }

    /// How many more to claim now.
    pub(in crate::worker::controller) fn room(&self, config: &WorkerConfig) -> usize {
        self.target(config).saturating_sub(self.running + self.buffered + self.asked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_tasks_are_never_claimed_ahead() {
        let config = WorkerConfig::default();
        let mut usage = Usage::new(4);
        usage.buffered = 1;
        usage.began();
        usage.finished(Duration::from_secs(60));
        assert_eq!(usage.room(&config), 4);
    }

    #[test]
    fn short_tasks_are_claimed_ahead_up_to_the_bound() {
        let config = WorkerConfig::default();
        let mut usage = Usage::new(4);
        usage.buffered = 1;
        usage.began();
        usage.finished(Duration::from_micros(1));
        assert_eq!(usage.room(&config), 4 + config.max_buffer);
        usage.asked = 500;
        assert_eq!(usage.room(&config), 4 + config.max_buffer - 500);
    }
}
