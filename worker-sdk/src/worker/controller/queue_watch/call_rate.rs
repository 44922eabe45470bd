//! How often tasks come to this worker, over all of its queues.
//!
//! An insert that must notify holds a lock of the whole database while it commits. Whether that costs too
//! much depends on the calls of all queues together: three lambdas with 300 calls a second each are as
//! much of a stream as one with 900. So a worker that is called often watches no queue that has tasks;
//! it polls these queues, all in one claim.

use std::time::{Duration, Instant};

/// The average is over about so long.
const WINDOW: Duration = Duration::from_millis(100);
/// Above this rate a stream begins. Notifying inserts of 16 sessions reach about 900 a second.
const STREAM: f64 = 700.0;
/// Below this rate it is over.
const TRICKLE: f64 = 350.0;
/// It lasts so long at least. Of many workers each finds a small part of a stream. Were it to end at once
/// for each of them, some worker would always watch.
const LEAST: Duration = Duration::from_secs(2);
/// A poll of one queue comes after 2 to 5 ms at the latest: a stream may be as thin as 350/s.
const MOST_DOUBLINGS: u32 = 2;
/// More queues than this are polled as often as these.
const LARGEST: u32 = 400;
/// Polls take so much time for each queue at least: ten times of what a look at it costs.
const PAUSE_PER_QUEUE: Duration = Duration::from_micros(500);

#[derive(Debug)]
pub(super) struct CallRate {
    per_s: f64,
    at: Instant,
    /// Since the last call above the rate of a stream.
    stream: Option<Instant>,
    /// Queues in the last poll.
    polled: u32,
    /// How often the pause between two polls of a stream was doubled.
    doublings: u32,
    poll_at: Instant,
}

impl CallRate {
    pub(super) fn new(now: Instant) -> Self {
        Self { per_s: 0.0, at: now, stream: None, polled: 0, doublings: 0, poll_at: now }
    }

    /// A call for any queue, whichever worker watches it.
    pub(super) fn called(&mut self, now: Instant) {
        self.found(1, now);
        if self.per_s > STREAM {
            self.stream = Some(now);
        }
    }

    /// So many tasks found without a call. They keep a stream going, but begin none: a batch is one call.
    pub(super) fn found(&mut self, tasks: usize, now: Instant) {
        self.decay(now);
        #[allow(clippy::cast_precision_loss)]
        let tasks = tasks as f64;
        self.per_s += tasks / WINDOW.as_secs_f64();
    }

    /// Tasks come so often that no insert should have to notify.
    pub(super) fn is_stream(&mut self, now: Instant) -> bool {
        self.decay(now);
        self.stream.is_some()
    }

    fn decay(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.at = self.at.max(now);
        self.per_s *= (-passed / WINDOW.as_secs_f64()).exp();
        let ends = |since: &mut Instant| *since + LEAST <= now && self.per_s < TRICKLE;
        self.stream.take_if(ends);
    }

    /// A claim found so many tasks in so many queues: several bring the next poll nearer, none put it off.
    pub(super) fn learn_pace(&mut self, found: usize, queues: usize, most_doublings: u32) {
        self.polled = u32::try_from(queues).unwrap_or(u32::MAX);
        self.doublings = match found {
            0 => (self.doublings + 1).min(most_doublings.min(MOST_DOUBLINGS)),
            1 => self.doublings,
            _ => self.doublings.saturating_sub(1),
        };
    }

    /// The next poll: one time for all queues, so that one claim serves them. `pause` makes the length.
    pub(super) fn next_poll(
        &mut self,
        now: Instant,
        pause: impl FnOnce(u32) -> Duration,
    ) -> Instant {
        if self.poll_at <= now {
            self.poll_at =
                now + pause(self.doublings).max(PAUSE_PER_QUEUE * self.polled.min(LARGEST));
        }
        self.poll_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many calls, evenly, within a second.
    fn calls(rate: &mut CallRate, per_s: u32, from: Instant) -> Instant {
        (1..=per_s).fold(from, |_, number| {
            let at = from + Duration::from_secs(1) * number / per_s;
            rate.called(at);
            at
        })
    }

    #[test]
    fn a_stream_begins_above_one_rate_and_ends_below_half_of_it() {
        let mut rate = CallRate::new(Instant::now());
        let at = calls(&mut rate, 500, Instant::now());
        assert!(!rate.is_stream(at), "500 a second may notify");
        let at = calls(&mut rate, 900, at);
        assert!(rate.is_stream(at), "900 a second may not");
        let at = (0..4).fold(at, |at, _| calls(&mut rate, 500, at));
        assert!(rate.is_stream(at), "it goes on at 500");
        let at = calls(&mut rate, 200, at);
        assert!(!rate.is_stream(at), "200 is none");
    }

    #[test]
    fn a_stream_ends_with_its_calls() {
        let mut rate = CallRate::new(Instant::now());
        let at = calls(&mut rate, 2000, Instant::now());
        assert!(rate.is_stream(at + LEAST / 2));
        assert!(!rate.is_stream(at + LEAST));
    }

    #[test]
    fn found_tasks_begin_no_stream_and_keep_one_going() {
        let now = Instant::now();
        let mut rate = CallRate::new(now);
        rate.found(10_000, now);
        assert!(!rate.is_stream(now), "a batch");
        let at = calls(&mut rate, 900, now + Duration::from_secs(10));
        let later = at + LEAST;
        rate.found(10_000, later - Duration::from_millis(1));
        assert!(rate.is_stream(later));
    }

    #[test]
    fn a_poll_of_many_queues_is_rarer() {
        let now = Instant::now();
        let mut rate = CallRate::new(now);
        rate.learn_pace(5, 100, 6);
        assert_eq!(rate.next_poll(now, |_| Duration::ZERO), now + Duration::from_millis(50));
    }

    #[test]
    fn all_queues_are_polled_at_one_time() {
        let now = Instant::now();
        let mut rate = CallRate::new(now);
        let pause = |_| Duration::from_millis(2);
        let at = rate.next_poll(now, pause);
        assert_eq!(rate.next_poll(now + Duration::from_millis(1), pause), at);
        assert_eq!(rate.next_poll(at, pause), at + Duration::from_millis(2));
    }
}
