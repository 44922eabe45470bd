//! Detects silent executors. Keeps, for each executor that has not ended, the last beat that was seen and
//! since when, on this process's own monotonic clock.
//!
//! A wall clock may step (NTP, a moved machine, a failover to a server whose clock is ahead), and by it
//! every live worker would look dead at once. A monotonic one does not. A worker counts its T from when
//! it *sent* its last acknowledged beat; we count its lease from when the answer of our first look at
//! that beat *arrived*, which is later. With L >= (T + M) * (1 + drift) it has ended before we say so.
//!
//! Promises: an executor is due only if it was seen with the same beat for a whole lease, in one life of the
//! server, by one process or by several in a row. A process that was frozen finds every executor due when it
//! wakes; `rescue` then ends only those without a beat since then.
//! Must never: read a wall clock, or use observations of another life of the database: after a crash or a
//! failover beats may be lost, and observation starts again.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};

use crate::store::{Pulse, Rescued, Silent};

/// The observations so far. A long silence is noted in the executor's row as well, where a new process
/// continues: spans that were watched one after the other add up.
#[derive(Debug, Default)]
pub struct FailureDetector {
    booted_at: Option<DateTime<Utc>>,
    seen: HashMap<i64, Seen>,
}

#[derive(Debug, Clone, Copy)]
struct Seen {
    beats: i64,
    since: Instant,
    /// FailureDetector that was noted by `since`.
    before: Duration,
    /// FailureDetector that this process has noted, or found noted.
    noted: Duration,
    lease: Duration,
}

/// A silence that is not noted yet is lost with its last watcher: in an hour under faults with 0.375 here, and an
/// eighth between two notes, 1.4 % of the tasks of dead workers came back later than L and two polls. A
/// live worker is silent for a heartbeat period, a quarter of its lease: of all that live, three notes
/// each, for which a store consumer needs one call a poll.
const WORTH_NOTING: f64 = 0.1;
/// Between two notes of one silence, as a part of the lease: a safety poll, by default.
const NOTE_EVERY: f64 = 0.05;

impl Seen {
    fn begin(pulse: &Pulse, now: Instant) -> Self {
        let Pulse { beats, lease, silent, .. } = *pulse;
        Self { beats, since: now, before: silent, noted: silent, lease }
    }

    /// Another look at the same beat; another process may have watched it for longer.
    fn again(self, pulse: &Pulse, now: Instant) -> Self {
        match self.silent(now) < pulse.silent {
            true => Self::begin(pulse, now),
            false => Self { noted: self.noted.max(pulse.silent), ..self },
        }
    }

    fn silent(&self, now: Instant) -> Duration {
        self.before + now.saturating_duration_since(self.since)
    }

    fn at_silence(&self, silence: Duration) -> Instant {
        self.since + silence.saturating_sub(self.before)
    }

    fn due_at(&self) -> Instant {
        self.at_silence(self.lease)
    }

    fn next_note(&self) -> Duration {
        (self.noted + self.lease.mul_f64(NOTE_EVERY)).max(self.lease.mul_f64(WORTH_NOTING))
    }
}

impl FailureDetector {
    /// Learns from an answer that has arrived by `now`.
    pub fn learn(&mut self, answer: &Rescued, now: Instant) {
        if self.booted_at != answer.booted_at {
            self.booted_at = answer.booted_at;
            self.seen.clear();
        }
        let known = std::mem::take(&mut self.seen);
        let seen = |pulse: &Pulse| match known.get(&pulse.executor) {
            Some(seen) if seen.beats == pulse.beats => seen.again(pulse, now),
            _ => Seen::begin(pulse, now),
        };
        self.seen = answer.pulses.iter().map(|pulse| (pulse.executor, seen(pulse))).collect();
    }

    /// Executors that are silent for a whole lease by `now`.
    pub fn due(&self, now: Instant) -> Silent {
        let due = self.seen.iter().filter(|(_, seen)| seen.due_at() <= now);
        let (executors, beats) = due.map(|(executor, seen)| (*executor, seen.beats)).unzip();
        Silent { booted_at: self.booted_at, executors, beats }
    }

    /// Executors whose silence is worth a note by `now`, and its milliseconds; from here on they count as
    /// noted.
    pub fn worth_noting(&mut self, now: Instant) -> (Silent, Vec<i64>) {
        let mut silent = Silent { booted_at: self.booted_at, ..Silent::default() };
        let mut silent_ms = Vec::new();
        for (executor, seen) in &mut self.seen {
            let so_far = seen.silent(now);
            if so_far >= seen.next_note() {
                seen.noted = so_far;
                silent.executors.push(*executor);
                silent.beats.push(seen.beats);
                silent_ms.push(i64::try_from(so_far.as_millis()).unwrap_or(i64::MAX));
            }
        }
        (silent, silent_ms)
    }

    /// When one of them is due, or worth another note.
    pub fn next_due_at(&self) -> Option<Instant> {
        let next = |seen: &Seen| seen.due_at().min(seen.at_silence(seen.next_note()));
        self.seen.values().map(next).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(20);
    const MS: Duration = Duration::from_millis(1);

    fn rescued(pulses: &[(i64, i64)]) -> Rescued {
        rescued_in(1, pulses)
    }

    fn rescued_in(life: i64, pulses: &[(i64, i64)]) -> Rescued {
        let silent = Duration::ZERO;
        let pulse = |&(executor, beats)| Pulse { executor, beats, lease: LEASE, silent };
        Rescued {
            leases: 0,
            tasks: 0,
            buried: 0,
            booted_at: DateTime::from_timestamp(life, 0),
            pulses: pulses.iter().map(pulse).collect(),
        }
    }

    /// Numbers and beats of the due, in order.
    fn due(detector: &FailureDetector, now: Instant) -> Vec<(i64, i64)> {
        let silent = detector.due(now);
        let mut due: Vec<_> = silent.executors.into_iter().zip(silent.beats).collect();
        due.sort_unstable();
        due
    }

    #[test]
    fn an_executor_is_due_a_lease_after_its_last_beat_was_first_seen() {
        let (mut detector, start) = (FailureDetector::default(), Instant::now());
        detector.learn(&rescued(&[(1, 5), (2, 7)]), start);
        detector.learn(&rescued(&[(1, 5), (2, 8)]), start + LEASE / 2);
        assert_eq!(detector.next_due_at(), Some(start + LEASE / 10));
        assert_eq!(due(&detector, start + LEASE - MS), []);
        assert_eq!(due(&detector, start + LEASE), [(1, 5)]);
        assert_eq!(due(&detector, start + LEASE * 3 / 2), [(1, 5), (2, 8)]);
    }

    #[test]
    fn a_worker_that_beats_again_is_live_and_a_locked_one_stays_due() {
        let (mut detector, start) = (FailureDetector::default(), Instant::now());
        detector.learn(&rescued(&[(1, 5), (2, 7)]), start);
        detector.learn(&rescued(&[(1, 6), (2, 7)]), start + LEASE);
        assert_eq!(due(&detector, start + LEASE), [(2, 7)]);
    }

    #[test]
    fn fewer_beats_than_were_seen_count_as_new_ones() {
        let (mut detector, start) = (FailureDetector::default(), Instant::now());
        detector.learn(&rescued(&[(1, 5)]), start);
        detector.learn(&rescued(&[(1, 4)]), start + LEASE - MS);
        assert_eq!(due(&detector, start + LEASE), []);
    }

    #[test]
    fn what_was_seen_in_another_life_of_the_server_counts_for_nothing() {
        let (mut detector, start) = (FailureDetector::default(), Instant::now());
        detector.learn(&rescued(&[(1, 5)]), start);
        detector.learn(&rescued_in(2, &[(1, 5)]), start + LEASE);
        assert_eq!(due(&detector, start + LEASE), []);
        assert_eq!(due(&detector, start + LEASE * 2), [(1, 5)]);
        assert_eq!(detector.due(start).booted_at, DateTime::from_timestamp(2, 0));
    }

    #[test]
    fn the_ended_are_forgotten() {
        let (mut detector, start) = (FailureDetector::default(), Instant::now());
        detector.learn(&rescued(&[(1, 5)]), start);
        detector.learn(&rescued(&[]), start + MS);
        assert_eq!((detector.next_due_at(), due(&detector, start + LEASE)), (None, vec![]));
    }

    /// A look at one executor of which so much detector is noted.
    fn noted(beats: i64, silent: Duration) -> Rescued {
        Rescued { pulses: vec![Pulse { executor: 1, beats, lease: LEASE, silent }], ..rescued(&[]) }
    }

    #[test]
    fn a_new_watcher_goes_on_where_the_last_one_ended() {
        let (mut detector, start) = (FailureDetector::default(), Instant::now());
        detector.learn(&noted(5, LEASE * 3 / 4), start);
        assert_eq!(due(&detector, start + LEASE / 4 - MS), []);
        assert_eq!(due(&detector, start + LEASE / 4), [(1, 5)]);
        detector.learn(&noted(6, Duration::ZERO), start + LEASE / 4);
        assert_eq!(due(&detector, start + LEASE), []);
    }

    #[test]
    fn of_two_watchers_the_longer_one_counts() {
        let (mut detector, start) = (FailureDetector::default(), Instant::now());
        detector.learn(&rescued(&[(1, 5)]), start);
        detector.learn(&noted(5, LEASE / 8), start + LEASE / 4); // shorter than what we saw ourselves
        assert_eq!(due(&detector, start + LEASE), [(1, 5)]);
        detector.learn(&noted(5, LEASE * 7 / 8), start + LEASE / 4);
        assert_eq!(due(&detector, start + LEASE * 3 / 8), [(1, 5)]);
    }

    #[test]
    fn a_silence_is_noted_once_it_is_long_and_then_now_and_again() {
        let (mut detector, start) = (FailureDetector::default(), Instant::now());
        detector.learn(&rescued(&[(1, 5)]), start);
        let mut notes = Vec::new();
        for quarter_second in 0..80 {
            let (silent, ms) = detector.worth_noting(start + MS * 250 * quarter_second);
            assert!(silent.beats.iter().all(|beats| *beats == 5));
            notes.extend(ms);
        }
        assert_eq!(notes, (2..20).map(|second| second * 1_000).collect::<Vec<_>>());
    }
}
