//! The low-water mark of the timers: nothing visible is due at or before it.
//!
//! A call of `enqueue_due` tells up to which due time it looked. The mark follows, see
//! [`LowWaterMark`].
//!
//! Promises: a scan starts above the dead rows of the past, even under a held snapshot; a clock that
//! steps back takes the mark away, which would hide every timer due before it.
//! Must never: decide what is due. It is a hint; sweeps look below it, so that a timer it should not
//! have passed is late, not lost.

use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use tuskline_sdk::{Around, LowWaterMark};

use crate::store::Enqueued;

/// The mark, and how far it stays behind the clock.
#[derive(Debug)]
pub struct TimerMark {
    mark: LowWaterMark<Option<DateTime<Utc>>>,
    sweep_every: Duration,
    margin: Duration,
}

impl TimerMark {
    /// No mark: the first call looks at everything.
    pub fn new(sweep_every: Duration, margin: Duration) -> Self {
        Self { mark: LowWaterMark::with_sweeps(Instant::now(), sweep_every), sweep_every, margin }
    }

    /// Where the first call of a lap starts; a sweep starts lower.
    pub fn begin(&mut self) -> Option<DateTime<Utc>> {
        self.mark.for_claim(Instant::now()).mark
    }

    /// Where a further call starts, after a full batch.
    pub fn proceed(&self) -> Option<DateTime<Utc>> {
        self.mark.for_more().mark
    }

    /// Learns from a call, before the next is sent.
    pub fn learn(&mut self, call: &Enqueued) {
        if call.looked_until.is_some_and(|until| Some(until) < self.mark.reached()) {
            *self = Self::new(self.sweep_every, self.margin);
        }
        let last = call.looked_until.map(|until| Some(until - self.margin));
        let around = Around { oldest_writer_xid: call.oldest_writer_xid, xid: call.xid };
        self.mark.learn(self.mark.for_more(), None, last, around);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn at(second: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(second, 0).unwrap()
    }

    /// A call that moved something, after all transactions below `oldest_writer_xid` had ended.
    fn call(looked_until: i64, oldest_writer_xid: i64, xid: i64) -> Enqueued {
        let looked_until = Some(at(looked_until));
        Enqueued {
            moved: 1,
            looked_until,
            next_due: None,
            oldest_writer_xid,
            xid: Some(xid),
            gates: false,
        }
    }

    #[test]
    fn the_mark_waits_for_every_transaction_that_was_there() {
        let mut mark = TimerMark::new(HOUR, Duration::ZERO);
        mark.learn(&call(100, 7, 8));
        assert_eq!(mark.begin(), None);
        mark.learn(&call(200, 9, 12));
        assert_eq!(mark.begin(), None, "transaction 9 may still insert a timer due before 100");
        mark.learn(&call(300, 11, 14));
        assert_eq!(mark.begin(), None, "so may 11, which has a higher number than the first call");
        mark.learn(&call(400, 12, 15));
        assert_eq!(mark.begin(), Some(at(100)));
        mark.learn(&call(500, 15, 16));
        assert_eq!(mark.begin(), Some(at(100)), "of 400 nothing is known before 16 may be passed");
        mark.learn(&call(600, 16, 17));
        assert_eq!(mark.begin(), Some(at(400)));
    }

    #[test]
    fn calls_that_wrote_nothing_tell_nothing_of_who_else_was_there() {
        let mut mark = TimerMark::new(HOUR, Duration::ZERO);
        mark.learn(&call(100, 7, 8));
        for oldest_writer_xid in 9..20 {
            mark.learn(&Enqueued { xid: None, ..call(200, oldest_writer_xid, 0) });
            assert_eq!(mark.begin(), None);
        }
        mark.learn(&call(300, 21, 21));
        assert_eq!(mark.begin(), Some(at(100)));
    }

    /// Calls without another session.
    fn alone(mark: &mut TimerMark, looked_until: &[i64]) {
        for &until in looked_until {
            mark.learn(&call(until, 10, 10));
        }
    }

    #[test]
    fn the_mark_stays_behind_the_clock_by_its_margin() {
        let mut mark = TimerMark::new(HOUR, Duration::from_secs(1));
        alone(&mut mark, &[100, 101]);
        assert_eq!(mark.begin(), Some(at(99)));
    }

    #[test]
    fn a_sweep_begins_where_the_one_before_began() {
        let mut mark = TimerMark::new(Duration::ZERO, Duration::ZERO);
        alone(&mut mark, &[100, 101]);
        assert_eq!(mark.begin(), None);
        assert_eq!(mark.begin(), Some(at(100)));
        assert_eq!(mark.proceed(), Some(at(100)));
    }

    #[test]
    fn a_clock_that_steps_back_takes_the_mark_with_it() {
        let mut mark = TimerMark::new(HOUR, Duration::from_secs(1));
        alone(&mut mark, &[100, 101, 100]);
        assert_eq!(mark.begin(), Some(at(100)), "a step within the margin");
        alone(&mut mark, &[40]);
        assert_eq!(mark.begin(), None, "timers due from 40 to 100 are to be found");
        alone(&mut mark, &[41]);
        assert_eq!(mark.begin(), Some(at(39)));
    }

    #[test]
    fn a_clock_that_steps_back_takes_the_candidate_with_it() {
        let mut mark = TimerMark::new(HOUR, Duration::ZERO);
        mark.learn(&call(100, 10, 12));
        mark.learn(&call(40, 11, 13));
        mark.learn(&call(41, 14, 14));
        assert_eq!(mark.begin(), Some(at(40)));
    }

    #[test]
    fn a_call_that_learnt_nothing_leaves_the_mark() {
        let mut mark = TimerMark::new(HOUR, Duration::ZERO);
        mark.learn(&Enqueued { looked_until: None, ..call(0, 10, 10) });
        alone(&mut mark, &[100]);
        assert_eq!(mark.begin(), None);
    }
}
