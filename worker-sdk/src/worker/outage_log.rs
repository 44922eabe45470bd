//! The lines of a worker's log about its connections.
//!
//! Promises: an outage of the database is one line here, at its end, if the worker has kept its registration. If it
//! has not, the watchdog says so, and this log says nothing. A connection that fails while heartbeats succeed has
//! lines of its own: one at first, then one every [`REPEAT`]. All else is at level debug.

use std::collections::HashMap;
use std::fmt::Display;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::db::connect::ConnectionError;

/// Least time between two lines about the failures of one part.
pub(crate) const REPEAT: Duration = Duration::from_secs(30);

#[derive(Debug, Default)]
pub(crate) struct OutageLog(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Heartbeats that were acknowledged.
    beats: u64,
    outage: Option<Outage>,
    failing: HashMap<&'static str, FailingPart>,
}

/// Heartbeats fail.
#[derive(Debug)]
struct Outage {
    since: Instant,
    /// The error of the first one.
    error: String,
}

/// A part of the worker that fails.
#[derive(Debug)]
struct FailingPart {
    /// Heartbeats that had been acknowledged when it failed first.
    beats: u64,
    logged_at: Option<Instant>,
    /// Failures since then, which have no line.
    left_out: u64,
}

impl OutageLog {
    /// A heartbeat was acknowledged.
    pub(crate) fn acknowledged(&self) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.beats += 1;
        let Some(Outage { since, error }) = state.outage.take() else { return };
        // The parts get a moment to open their connections again.
        state.failing.clear();
        drop(state);
        let silent_ms = u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX);
        tracing::warn!(silent_ms, error, "heartbeats were not acknowledged, and are again");
    }

    /// A heartbeat was not acknowledged.
    pub(crate) fn missed(&self, error: &ConnectionError) {
        tracing::debug!(%error, "heartbeat not acknowledged");
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state
            .outage
            .get_or_insert_with(|| Outage { since: Instant::now(), error: error.to_string() });
    }

    /// Heartbeats that were acknowledged so far.
    pub(crate) fn beats(&self) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).beats
    }

    /// A part works again.
    pub(crate) fn works(&self, part: &'static str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).failing.remove(part);
    }

    /// A part has failed. `part` is the text of its line.
    pub(crate) fn failed(&self, part: &'static str, error: &dyn Display) {
        match self.count(part, Instant::now()) {
            Some(left_out) => tracing::warn!(%error, left_out, "{part}"),
            None => tracing::debug!(%error, "{part}"),
        }
    }

    /// Counts a failure. Some: it is worth a line, with the number of failures before it that had none.
    fn count(&self, part: &'static str, now: Instant) -> Option<Option<u64>> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let beats = state.beats;
        let first = FailingPart { beats, logged_at: None, left_out: 0 };
        let failing = state.failing.entry(part).or_insert(first);
        let recent = failing.logged_at.is_some_and(|at| now < at + REPEAT);
        if beats == failing.beats || recent {
            failing.left_out += 1;
            return None;
        }
        failing.logged_at = Some(now);
        let left_out = std::mem::take(&mut failing.left_out);
        Some((left_out > 0).then_some(left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PART: &str = "the part fails";

    #[test]
    fn in_an_outage_no_part_has_a_line() {
        let (log, now) = (OutageLog::default(), Instant::now());
        log.acknowledged();
        log.missed(&ConnectionError::no_answer());
        for _ in 0..40 {
            assert_eq!(log.count(PART, now), None);
        }
        log.acknowledged();
        assert_eq!(log.count(PART, now), None, "it opens its connection again");
    }

    #[test]
    fn a_part_that_fails_while_heartbeats_succeed_has_a_line_now_and_then() {
        let (log, now) = (OutageLog::default(), Instant::now());
        assert_eq!(log.count(PART, now), None);
        log.acknowledged();
        assert_eq!(log.count(PART, now), Some(Some(1)));
        assert_eq!(log.count(PART, now), None);
        assert_eq!(log.count("another part fails", now), None);
        assert_eq!(log.count(PART, now + REPEAT), Some(Some(1)));
        assert_eq!(log.count(PART, now + REPEAT * 2), Some(None));
        log.works(PART);
        assert_eq!(log.count(PART, now + REPEAT * 3), None, "another failure");
    }
}
