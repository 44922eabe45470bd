//! Rest between two tries to connect: doubled each time, capped, jittered.
//!
//! Promises: at most a second, so that a failover is noticed at once (30 s after a refusal of the
//! server's work); never the same rest in two processes, so that they do not all come back to a
//! database at the same moment.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(1);

/// Longest rest after a refusal, which a person must mend.
const LONGEST_AFTER_REFUSAL: Duration = Duration::from_secs(30);

/// Counts the tries since the last success.
#[derive(Debug, Default)]
pub struct Backoff {
    tries: u32,
}

impl Backoff {
    /// The rest before the next try: between half the doubled rest and all of it.
    pub fn rest(&mut self) -> Duration {
        self.rest_up_to(LONGEST)
    }

    /// The same after a refusal: it grows for longer.
    pub fn long_rest(&mut self) -> Duration {
        self.rest_up_to(LONGEST_AFTER_REFUSAL)
    }

    fn rest_up_to(&mut self, longest: Duration) -> Duration {
        let full = FIRST.saturating_mul(1 << self.tries.min(10)).min(longest);
        self.tries += 1;
        full.mul_f64(0.5 + fastrand::f64() / 2.0)
    }

    /// It worked: the next rest is short again.
    pub fn reset(&mut self) {
        self.tries = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rest_is_never_longer_than_a_second() {
        let mut backoff = Backoff::default();
        assert!(backoff.rest() <= FIRST);
        assert!((0..100).all(|_| backoff.rest() <= LONGEST));
        assert!(backoff.rest() >= LONGEST / 2);
        assert!(backoff.long_rest() >= LONGEST_AFTER_REFUSAL / 2);
        assert!(backoff.long_rest() <= LONGEST_AFTER_REFUSAL);
        backoff.reset();
        assert!(backoff.rest() <= FIRST);
    }
}
