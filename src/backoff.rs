//! Rest between two tries to connect: doubled each time, capped, jittered.
//!
//! Promises: at most a second, so that a failover is noticed at once; never the same rest in two
//! processes, so that a database that comes back is not met by all of them together.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(1);

/// Counts the tries since the last success.
#[derive(Debug, Default)]
pub struct Backoff {
    tries: u32,
}

impl Backoff {
    /// The rest before the next try: between half the doubled rest and all of it.
    pub fn rest(&mut self) -> Duration {
        let full = FIRST.saturating_mul(1 << self.tries.min(10)).min(LONGEST);
        self.tries += 1;
        full.mul_f64(0.5 + fastrand::f64() / 2.0)
    }

    /// It worked: the next rest is short again.
    pub fn reset(&mut self) {
        self.tries = 0;
    }

    /// True for the first try after a success, the only one worth a warning.
    pub fn is_first(&self) -> bool {
        self.tries == 0
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
        backoff.reset();
        assert!(backoff.rest() <= FIRST);
    }
}
