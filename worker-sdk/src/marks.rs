//! Low-water marks: where a claim may start to look in its queue.
//!
//! What keeps a queue flat while somebody's forgotten transaction holds the xmin horizon is not the
//! absence of dead rows but never walking over them (measured: 14 to 18 buffer hits a task with
//! marks, 81 to 230 without). A mark is a hint that saves cost. It never decides what exists: the
//! queue is swept from zero every 30 to 60 s, so a number drawn long before its commit is found.

use std::time::{Duration, Instant};

/// Mark of one queue.
#[derive(Debug)]
pub(crate) struct Mark {
    /// Nothing at or below this number is left.
    settled: i64,
    /// Last number of a claim, and the first transaction its snapshot did not know of: once a later
    /// snapshot knows all transactions below that one to have ended, every number up to the last is
    /// settled, because numbers are drawn after their transaction has its own.
    pending: Option<(i64, i64)>,
    sweep_at: Instant,
}

impl Mark {
    pub(crate) fn new(now: Instant) -> Self {
        Self { settled: 0, pending: None, sweep_at: now + sweep_period() }
    }

    /// The mark to claim with: 0 when the sweep is due.
    pub(crate) fn for_claim(&mut self, now: Instant) -> i64 {
        #[cfg(mutants)]
        if crate::twin::is("low_water_cursor") {
            return self.settled;
        }
        if now < self.sweep_at {
            return self.settled;
        }
        self.sweep_at = now + sweep_period();
        0
    }

    /// Learns from a claim's answer: first and last number popped, snapshot (xmin, xmax).
    pub(crate) fn learn(&mut self, first: Option<i64>, last: Option<i64>, snapshot: (i64, i64)) {
        #[cfg(mutants)]
        if crate::twin::is("low_water_cursor") {
            self.settled = self.settled.max(last.unwrap_or(0));
            return;
        }
        let (xmin, xmax) = snapshot;
        if let Some((seq, known_from)) = self.pending
            && xmin >= known_from
        {
            // A row below `seq` that this very claim found may have unclaimed neighbours.
            let settled = first.map_or(seq, |first| seq.min(first - 1));
            self.settled = self.settled.max(settled);
            self.pending = None;
        }
        if self.pending.is_none()
            && let Some(last) = last
        {
            self.pending = Some((last, xmax));
        }
    }
}

fn sweep_period() -> Duration {
    Duration::from_secs(30).mul_f64(1.0 + fastrand::f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_waits_until_every_older_transaction_has_ended() {
        let now = Instant::now();
        let mut mark = Mark::new(now);
        mark.learn(Some(1), Some(500), (100, 110));
        assert_eq!(mark.for_claim(now), 0);
        mark.learn(Some(501), Some(1000), (105, 120)); // 105..110 may still commit a number below 500
        assert_eq!(mark.for_claim(now), 0);
        mark.learn(Some(1001), Some(1500), (110, 130));
        assert_eq!(mark.for_claim(now), 500);
    }

    #[test]
    fn a_late_number_holds_the_mark_back_to_just_below_it() {
        let now = Instant::now();
        let mut mark = Mark::new(now);
        mark.learn(Some(10), Some(20), (100, 101));
        mark.learn(Some(7), Some(7), (101, 102));
        assert_eq!(mark.for_claim(now), 6);
    }

    #[test]
    fn a_sweep_looks_from_zero_once() {
        let now = Instant::now();
        let mut mark = Mark::new(now);
        mark.learn(Some(1), Some(5), (10, 11));
        mark.learn(None, None, (11, 12));
        assert_eq!(mark.for_claim(now), 5);
        let later = now + Duration::from_secs(61);
        assert_eq!(mark.for_claim(later), 0);
        assert_eq!(mark.for_claim(later), 5);
    }
}
