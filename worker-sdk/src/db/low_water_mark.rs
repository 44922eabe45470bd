//! Low-water marks: where a look may start. The SDK's claims have one for each queue, the store
//! consumer has one for the timers.
//!
//! While a forgotten transaction holds the xmin horizon, dead rows stay in a queue. The queue stays flat
//! because no claim walks over them (measured: 14 to 18 buffer hits a task with marks, 81 to 230
//! without). A mark is a hint that saves cost. It never decides what exists: every 30 to 60 s a sweep
//! begins at the mark of the sweep before, and each tenth sweep at the start. A number that becomes
//! visible below the mark is found within a minute if it was drawn or popped less than 30 s before, and
//! within ten minutes otherwise. (Sweeps that all began at zero walked over all rows that had died under
//! a held snapshot: 97 pages a task around the one after 215 s at 1,000 tasks/s, 48 elsewhere.)

use std::time::{Duration, Instant};

/// Mean time between two sweeps.
const SWEEP_EVERY: Duration = Duration::from_secs(45);

/// Each so many sweeps one begins at the start.
const FROM_START: u32 = 10;

/// Mark of one queue, or of the timers. The default of `T` is below everything.
#[derive(Debug)]
pub struct LowWaterMark<T> {
    /// Nothing at or below this is left.
    settled: T,
    pending: Option<Pending<T>>,
    /// Pending numbers that were found so far.
    count: u64,
    sweep_every: Duration,
    sweep_at: Instant,
    /// Sweeps so far, and the mark when the last one was due.
    sweeps: u32,
    swept: T,
}

/// How far a look came. All up to it is settled once a later look began after all transactions that
/// might bring something below it had ended. These have a transaction's number by then, a lower one
/// than any transaction that began later. (The snapshot's xmax is no such bound: it is one above the
/// last that *ended*, and running ones may lie beyond.)
#[derive(Debug)]
struct Pending<T> {
    last: T,
    count: u64,
    /// Number of a look's transaction that began when `last` was known.
    begun_before: Option<i64>,
}

/// The state that a look keeps until its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asked<T> {
    /// Nothing at or below is looked for.
    pub mark: T,
    /// Which pending look was known.
    count: u64,
    /// It looks for what became visible late, so that nothing may be passed.
    pub sweep: bool,
}

/// The transactions around a look.
#[derive(Debug, Clone, Copy)]
pub struct Around {
    /// Transactions below this number had ended at the look, or have not written there.
    pub oldest_writer_xid: i64,
    /// Its own number; none: it wrote nothing.
    pub xid: Option<i64>,
}

impl<T: Copy + Ord + Default> LowWaterMark<T> {
    /// No mark: the first look is at everything.
    pub fn new(now: Instant) -> Self {
        Self::with_sweeps(now, SWEEP_EVERY)
    }

    /// The same, with sweeps of its own.
    pub fn with_sweeps(now: Instant, sweep_every: Duration) -> Self {
        let (settled, swept) = (T::default(), T::default());
        let sweep_at = now + jittered(sweep_every);
        Self { settled, pending: None, count: 0, sweep_every, sweep_at, sweeps: 0, swept }
    }

    /// The mark to look above; when a sweep is due, that of the sweep before or the start.
    pub fn for_claim(&mut self, now: Instant) -> Asked<T> {
        let asked = self.for_more();
        #[cfg(mutants)]
        if crate::db::fault_injection::is("low_water_cursor") {
            return asked;
        }
        if now < self.sweep_at {
            return asked;
        }
        self.sweep_at = now + jittered(self.sweep_every);
        self.sweeps += 1;
        let before = std::mem::replace(&mut self.swept, self.settled);
        let mark = if self.sweeps.is_multiple_of(FROM_START) { T::default() } else { before };
        Asked { mark, sweep: true, ..asked }
    }

    /// The mark for a further look, which is no sweep.
    pub fn for_more(&self) -> Asked<T> {
        Asked { mark: self.settled, count: self.count, sweep: false }
    }

    /// The mark to look above without a claim; none: the sweep is due, and only a claim can do it.
    pub fn for_look(&self, now: Instant) -> Option<T> {
        (now < self.sweep_at).then_some(self.settled)
    }

    /// How far the looks came that this knows of.
    pub fn reached(&self) -> T {
        self.pending.as_ref().map_or(self.settled, |pending| self.settled.max(pending.last))
    }

    /// Learns from an answer: how far it came, and what lies just below the first that it found, which
    /// may have neighbours that are left.
    pub fn learn(&mut self, asked: Asked<T>, below: Option<T>, last: Option<T>, around: Around) {
        #[cfg(mutants)]
        if crate::db::fault_injection::is("low_water_cursor") {
            self.settled = self.settled.max(last.unwrap_or_default());
            return;
        }
        if let Some(pending) = &mut self.pending
            && pending.count == asked.count
        {
            pending.begun_before = pending.begun_before.or(around.xid);
        }
        let has_ended = |p: &mut Pending<T>| {
            p.begun_before.is_some_and(|before| before <= around.oldest_writer_xid)
        };
        if let Some(Pending { last, .. }) = self.pending.take_if(has_ended) {
            self.settled = self.settled.max(below.map_or(last, |below| last.min(below)));
        }
        if self.pending.is_none()
            && let Some(last) = last
        {
            self.count += 1;
            self.pending = Some(Pending { last, count: self.count, begun_before: None });
        }
    }
}

fn jittered(sweep_every: Duration) -> Duration {
    sweep_every.mul_f64((2.0 + 2.0 * fastrand::f64()) / 3.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends a claim and learns from its answer; the mark afterwards.
    fn claim(
        mark: &mut LowWaterMark<i64>,
        found: Option<(i64, i64)>,
        oldest_writer_xid: i64,
        xid: i64,
    ) -> i64 {
        let asked = mark.for_claim(Instant::now());
        let around = Around { oldest_writer_xid, xid: Some(xid) };
        mark.learn(asked, found.map(|found| found.0 - 1), found.map(|found| found.1), around);
        mark.for_claim(Instant::now()).mark
    }

    #[test]
    fn the_mark_waits_until_every_older_transaction_has_ended() {
        let mut mark = LowWaterMark::new(Instant::now());
        assert_eq!(claim(&mut mark, Some((1, 500)), 100, 109), 0);
        // Of those below 120 any may have drawn a number below 500, even 119, begun after 109.
        assert_eq!(claim(&mut mark, Some((501, 1000)), 105, 120), 0);
        assert_eq!(claim(&mut mark, Some((1001, 1500)), 119, 130), 0);
        assert_eq!(claim(&mut mark, Some((1501, 2000)), 120, 140), 500);
    }

    #[test]
    fn a_claim_that_was_sent_before_says_nothing_of_who_was_there() {
        let mut mark = LowWaterMark::new(Instant::now());
        let slow = mark.for_claim(Instant::now());
        assert_eq!(claim(&mut mark, Some((1, 500)), 100, 109), 0);
        mark.learn(slow, None, None, Around { oldest_writer_xid: 110, xid: Some(108) });
        assert_eq!(mark.for_claim(Instant::now()).mark, 0, "112 may have drawn 499");
        assert_eq!(claim(&mut mark, None, 113, 113), 500);
    }

    #[test]
    fn claims_that_wrote_nothing_leave_the_mark() {
        let mut mark = LowWaterMark::new(Instant::now());
        claim(&mut mark, Some((1, 5)), 10, 10);
        let asked = mark.for_claim(Instant::now());
        mark.learn(asked, None, None, Around { oldest_writer_xid: 99, xid: None });
        assert_eq!(mark.for_claim(Instant::now()).mark, 0);
    }

    #[test]
    fn a_late_number_holds_the_mark_back_to_just_below_it() {
        let mut mark = LowWaterMark::new(Instant::now());
        claim(&mut mark, Some((10, 20)), 100, 100);
        assert_eq!(claim(&mut mark, Some((7, 7)), 101, 101), 6);
    }

    #[test]
    fn a_sweep_looks_once_from_where_the_mark_was_at_the_sweep_before() {
        let mut mark = LowWaterMark::new(Instant::now());
        claim(&mut mark, Some((1, 5)), 10, 10);
        assert_eq!(claim(&mut mark, None, 11, 11), 5);
        let later = |minutes: u64| Instant::now() + Duration::from_secs(61 * minutes);
        assert_eq!(mark.for_look(later(1)), None, "a look is no sweep");
        let sweep = mark.for_claim(later(1));
        assert_eq!((sweep.mark, sweep.sweep), (0, true));
        assert_eq!(mark.for_look(later(1)), Some(5));
        let after = mark.for_claim(later(1));
        assert_eq!((after.mark, after.sweep), (5, false));
        claim(&mut mark, Some((6, 9)), 12, 12);
        assert_eq!(claim(&mut mark, None, 13, 13), 9);
        assert_eq!(mark.for_claim(later(2)).mark, 5);
        assert_eq!(mark.for_claim(later(2)).mark, 9);
        assert_eq!(mark.for_claim(later(3)).mark, 9);
    }

    #[test]
    fn each_tenth_sweep_looks_from_zero() {
        let mut mark = LowWaterMark::new(Instant::now());
        claim(&mut mark, Some((1, 5)), 10, 10);
        claim(&mut mark, None, 11, 11);
        let sweeps: Vec<i64> = (1..=21)
            .map(|minutes| mark.for_claim(Instant::now() + Duration::from_secs(61 * minutes)).mark)
            .collect();
        let from_zero: Vec<_> =
            sweeps.iter().enumerate().filter(|(_, from)| **from == 0).map(|(i, _)| i + 1).collect();
        assert_eq!(from_zero, [1, 10, 20]);
    }
}
