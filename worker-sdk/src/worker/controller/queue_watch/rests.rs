//! Bells that this worker has given up and does not ask for again yet.
//!
//! Each queue on a shared bell asks for that bell. If the remaining queues asked at once, a worker with free
//! executors could not get the bell for the queue that was called. And a stream into a queue of another
//! worker would make each insert notify again. So the bell rests, and its queues are polled meanwhile. The
//! rests grow while the bell is given up soon after each.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Longer than another worker needs to ask after a call (`watch_connection/standby`).
const BUSY: Duration = Duration::from_millis(100);
/// After a stream: as long as that lasts at least (`call_rate`).
const STREAM: Duration = Duration::from_secs(2);
/// A quiet queue is watched again so long after a stream at the latest.
const MOST: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(super) struct Rests {
    /// The rests of the bells that more than one queue was called on, or has.
    bells: HashMap<i32, Rest>,
    poll_at: Instant,
}

#[derive(Debug, Default)]
struct Rest {
    until: Option<Instant>,
    length: Duration,
}

impl Rests {
    pub(super) fn new(now: Instant) -> Self {
        Self { bells: HashMap::new(), poll_at: now }
    }

    /// Queues share this bell, as a call has shown. A bell of one queue never rests.
    pub(super) fn share(&mut self, bell: i32) {
        self.bells.entry(bell).or_default();
    }

    /// It is given up. The rest doubles if it was held for less than the last one.
    pub(super) fn begin(&mut self, bell: i32, stream: bool, now: Instant) {
        let Some(rest) = self.bells.get_mut(&bell) else { return };
        let least = if stream { STREAM } else { BUSY };
        let soon = rest.until.is_some_and(|until| now < until + rest.length);
        rest.length = if soon { (rest.length * 2).clamp(least, MOST) } else { least };
        rest.until = Some(now + rest.length);
    }

    pub(super) fn is_resting(&self, bell: i32, now: Instant) -> bool {
        self.bells.get(&bell).and_then(|rest| rest.until).is_some_and(|until| now < until)
    }

    /// The next poll: one time for the queues of all resting bells, so that one claim serves them.
    pub(super) fn next_poll(&mut self, now: Instant, pause: impl FnOnce() -> Duration) -> Instant {
        if self.poll_at <= now {
            self.poll_at = now + pause();
        }
        self.poll_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bell_of_one_queue_never_rests() {
        let now = Instant::now();
        let mut rests = Rests::new(now);
        rests.begin(1, true, now);
        assert!(!rests.is_resting(1, now));
    }

    #[test]
    fn a_bell_that_is_given_up_soon_after_each_rest_rests_longer() {
        let mut now = Instant::now();
        let mut rests = Rests::new(now);
        rests.share(1);
        for seconds in [2, 4, 8, 16, 30, 30] {
            rests.begin(1, true, now);
            let end = now + Duration::from_secs(seconds);
            assert!(rests.is_resting(1, end - BUSY) && !rests.is_resting(1, end));
            now = end + BUSY;
        }
        now += MOST;
        rests.begin(1, false, now);
        assert!(!rests.is_resting(1, now + BUSY), "it was held for long");
    }

    #[test]
    fn the_queues_of_all_resting_bells_are_polled_at_one_time() {
        let now = Instant::now();
        let mut rests = Rests::new(now);
        let at = rests.next_poll(now, || BUSY);
        assert_eq!(at, now + BUSY);
        assert_eq!(rests.next_poll(now + BUSY / 2, || BUSY), at);
    }
}
