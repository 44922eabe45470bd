//! The lines of a worker's log about its connections.
//!
//! Promises: an outage of the database is one line here, at its end, if the worker has kept its registration. If it
//! has not, the watchdog says so, and this log says nothing. A connection that fails while heartbeats succeed has a
//! trouble of its own: a line, then one every [`REPEAT`]. All else is at level debug.

use std::collections::HashMap;
use std::fmt::Display;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::db::connect::Trouble;

/// Between two lines about the trouble of one part.
pub(crate) const REPEAT: Duration = Duration::from_secs(30);

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct TroubleLog(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Heartbeats that were acknowledged.
    beats: u64,
    silence: Option<Silence>,
    troubled: HashMap<&'static str, Troubled>,
}

/// Heartbeats fail.
#[derive(Debug)]
struct Silence {
    since: Instant,
    /// The trouble of the first one.
    why: String,
}

/// A part of the worker that fails.
#[derive(Debug)]
struct Troubled {
    /// Heartbeats that had been acknowledged when it failed first.
    beats: u64,
    told_at: Option<Instant>,
    left_out: u64,
}

impl TroubleLog {
    /// A heartbeat was acknowledged.
    pub(crate) fn acknowledged(&self) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.beats += 1;
        let Some(Silence { since, why }) = state.silence.take() else { return };
        // The parts get a moment to open their connections again.
        state.troubled.clear();
        drop(state);
        let silent_ms = u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX);
        tracing::warn!(silent_ms, why, "heartbeats were not acknowledged, and are again");
    }

    /// A heartbeat was not acknowledged.
    pub(crate) fn missed(&self, trouble: &Trouble) {
        tracing::debug!(%trouble, "heartbeat not acknowledged");
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state
            .silence
            .get_or_insert_with(|| Silence { since: Instant::now(), why: trouble.to_string() });
    }

    /// Heartbeats that were acknowledged so far.
    pub(crate) fn beats(&self) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).beats
    }

    /// A part works again.
    pub(crate) fn works(&self, part: &'static str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).troubled.remove(part);
    }

    /// A part has failed, which `part` says in words.
    pub(crate) fn failed(&self, part: &'static str, trouble: &dyn Display) {
        match self.told(part, Instant::now()) {
            Some(left_out) => tracing::warn!(%trouble, left_out, "{part}"),
            None => tracing::debug!(%trouble, "{part}"),
        }
    }

    /// Some: it is worth a line, which counts the failures that had none.
    fn told(&self, part: &'static str, now: Instant) -> Option<Option<u64>> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let beats = state.beats;
        let first = Troubled { beats, told_at: None, left_out: 0 };
        let troubled = state.troubled.entry(part).or_insert(first);
        let recent = troubled.told_at.is_some_and(|at| now < at + REPEAT);
        if beats == troubled.beats || recent {
            troubled.left_out += 1;
            return None;
        }
        troubled.told_at = Some(now);
        let left_out = std::mem::take(&mut troubled.left_out);
        Some((left_out > 0).then_some(left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PART: &str = "the part fails";

    #[test]
    fn in_an_outage_no_part_has_a_line() {
        let (log, now) = (TroubleLog::default(), Instant::now());
        log.acknowledged();
        log.missed(&Trouble::no_answer());
        for _ in 0..40 {
            assert_eq!(log.told(PART, now), None);
        }
        log.acknowledged();
        assert_eq!(log.told(PART, now), None, "it opens its connection again");
    }

    #[test]
    fn a_part_that_fails_while_heartbeats_succeed_has_a_line_now_and_then() {
        let (log, now) = (TroubleLog::default(), Instant::now());
        assert_eq!(log.told(PART, now), None);
        log.acknowledged();
        assert_eq!(log.told(PART, now), Some(Some(1)));
        assert_eq!(log.told(PART, now), None);
        assert_eq!(log.told("another part fails", now), None);
        assert_eq!(log.told(PART, now + REPEAT), Some(Some(1)));
        assert_eq!(log.told(PART, now + REPEAT * 2), Some(None));
        log.works(PART);
        assert_eq!(log.told(PART, now + REPEAT * 3), None, "another trouble");
    }
}
