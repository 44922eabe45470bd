//! Results whose rows another session has locked.
//!
//! They are sent again after a pause, until the rows are free. Otherwise their tasks would run again
//! although they are done.

use std::time::{Duration, Instant};

use crate::db::hsc::AttemptResult;

/// Pause before a result with a locked row is sent again. Each try that finds the row still locked
/// delays the other results of its exchange by 200 ms.
const PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct DeferredResults {
    results: Vec<AttemptResult>,
    send_at: Option<Instant>,
    /// The worker ends: nothing is kept any more.
    given_up: bool,
}

impl DeferredResults {
    pub(super) fn is_empty(&self) -> bool {
        self.results.is_empty()
    }

    /// The time at which some will be due.
    pub(super) fn due_at(&self) -> Option<Instant> {
        self.send_at
    }

    /// Keeps results for later.
    pub(super) fn keep(&mut self, locked: Vec<AttemptResult>, now: Instant) {
        if self.given_up || locked.is_empty() {
            return;
        }
        self.results.extend(locked);
        self.send_at.get_or_insert(now + PAUSE);
    }

    /// The results whose pause is over. They go with the next exchange.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<AttemptResult> {
        match self.send_at {
            Some(at) if now >= at => {
                self.send_at = None;
                std::mem::take(&mut self.results)
            }
            _ => Vec::new(),
        }
    }

    /// The worker ends. Returns the results that are lost: their leases stay, and a rescuer runs their
    /// tasks again.
    pub(super) fn give_up(&mut self) -> Vec<AttemptResult> {
        let lost = std::mem::take(&mut self.results);
        *self = Self { given_up: true, ..Self::default() };
        lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::hsc::{Attempt, ResultStatus};

    fn result(task: i64) -> AttemptResult {
        AttemptResult {
            attempt: Attempt { task, fence: 7 },
            note: None,
            failed: None,
            status: ResultStatus::Success,
            counts: 0,
            took: Duration::ZERO,
        }
    }

    #[test]
    fn results_are_due_a_pause_after_the_first_was_kept() {
        let (now, mut deferred) = (Instant::now(), DeferredResults::default());
        deferred.keep(vec![result(1)], now);
        deferred.keep(vec![result(2)], now + PAUSE / 2);
        assert!(deferred.take_due(now + PAUSE / 2).is_empty());
        assert_eq!(deferred.due_at(), Some(now + PAUSE));
        assert_eq!(deferred.take_due(now + PAUSE).len(), 2);
        assert!(deferred.is_empty() && deferred.due_at().is_none());
    }

    #[test]
    fn nothing_is_kept_once_the_worker_has_given_up() {
        let (now, mut deferred) = (Instant::now(), DeferredResults::default());
        deferred.keep(vec![result(1)], now);
        assert_eq!(deferred.give_up().len(), 1);
        deferred.keep(vec![result(2)], now);
        assert!(deferred.is_empty() && deferred.take_due(now + PAUSE).is_empty());
    }
}
