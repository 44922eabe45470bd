//! Counts of the attempts of this process, by lambda and priority.
//!
//! The worker reports them to the database. The metrics of this process show them, too.
//!
//! Promises: counting an attempt costs a few additions, and no lock. Must never: call the database.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::db::hsc::{AttemptResult, Report, ResultStatus, Verdict};
#[cfg(feature = "metrics")]
use crate::metrics::{Family, Value};
use crate::task::Priority;

/// Upper bounds of the first 15 buckets of a histogram, in ms: `tuskline.histogram_edges()`. The 16th
/// bucket has none. 5,000 ms is among them: the objective for the start of a due task.
pub const EDGES_MS: [u64; BUCKETS - 1] =
    [5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000, 300_000, 1_800_000];
const BUCKETS: usize = 16;

/// Most counts of one report: 14 bytes each. The rest comes first in the next report.
const REPORT_MAX: usize = 4_000;

/// Numbers of the counters in a report, see `tuskline_core.attempt_count.counters`.
const REFUSED: i16 = 6;
const START: i16 = 100;
const RUN: i16 = 200;

/// Index of the counts of a lambda and priority. Each lambda has four, in the order of priorities.
pub(crate) type Room = usize;

/// The counts of this process.
#[derive(Debug)]
pub(crate) struct Statistics {
    /// The lambdas of the worker.
    lambdas: Vec<Arc<str>>,
    rooms: Vec<Counts>,
    /// Heartbeats that were acknowledged, and those that were not.
    heartbeats: [AtomicI64; 2],
    /// Calls of `exchange` that were answered.
    exchanges: Histogram,
    reported: Mutex<Reported>,
}

/// The counts that the database knows.
#[derive(Debug)]
struct Reported {
    /// Values of each room, in the order of [`Counts::values`].
    values: Vec<[i64; VALUES]>,
    /// Index of the queue with which the next report begins: the last report had no room for it.
    from: usize,
}

/// Counters of a room: outcomes and refusals, then two histograms.
#[derive(Debug, Default)]
struct Counts {
    /// Results that are recorded, by status; then those that were refused.
    results: [AtomicI64; 6],
    starts: Histogram,
    runs: Histogram,
}

#[derive(Debug, Default)]
struct Histogram {
    /// In µs: many attempts are shorter than a ms.
    total_us: AtomicI64,
    buckets: [AtomicI64; BUCKETS],
}

const VALUES: usize = 6 + 2 * (1 + BUCKETS);

impl Statistics {
    /// For these lambdas.
    pub(crate) fn new(lambdas: Vec<Arc<str>>) -> Self {
        let rooms = lambdas.len() * Priority::ALL.len();
        Self {
            lambdas,
            heartbeats: Default::default(),
            exchanges: Histogram::default(),
            rooms: std::iter::repeat_with(Counts::default).take(rooms).collect(),
            reported: Mutex::new(Reported { values: vec![[0; VALUES]; rooms], from: 0 }),
        }
    }

    /// The room of a lambda and priority.
    pub(crate) fn room(lambda: usize, priority: Priority) -> Room {
        let at = Priority::ALL.iter().position(|one| *one == priority);
        lambda * Priority::ALL.len() + at.unwrap_or_default()
    }

    /// The lambda and priority of a room.
    pub(crate) fn names(&self, room: Room) -> (&str, Priority) {
        let priorities = Priority::ALL.len();
        (&self.lambdas[room / priorities], Priority::ALL[room % priorities])
    }

    /// The first attempt of a task began, `delay` after the task was due.
    pub(crate) fn started(&self, room: Room, delay: Duration) {
        self.rooms[room].starts.add(delay);
    }

    /// An attempt ended after it had run for `took`.
    pub(crate) fn ran(&self, room: Room, took: Duration) {
        self.rooms[room].runs.add(took);
    }

    /// A heartbeat was acknowledged, or not.
    pub(crate) fn beat(&self, acknowledged: bool) {
        self.heartbeats[usize::from(!acknowledged)].fetch_add(1, Ordering::Relaxed);
    }

    /// An exchange was answered after `took`.
    pub(crate) fn exchanged(&self, took: Duration) {
        self.exchanges.add(took);
    }

    /// The database has answered for a result.
    pub(crate) fn answered(&self, result: &AttemptResult, verdict: Verdict) {
        let at = match verdict {
            Verdict::Done => result.status.number() - 1,
            Verdict::Refused => REFUSED - 1,
            Verdict::Locked => return,
        };
        self.rooms[result.room].results[usize::from(at.unsigned_abs())]
            .fetch_add(1, Ordering::Relaxed);
    }

    /// The counts since the last report, for the queues of these rooms. `None`: nothing was counted.
    ///
    /// The counts are marked as reported immediately, because a report whose answer is lost may
    /// have arrived. A full report ends with a whole queue, and the next report continues there. So
    /// no queue waits behind busy ones.
    pub(crate) fn report(&self, queues: &[(Room, i32)]) -> Option<Report> {
        let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        let mut report = Report::default();
        let from = reported.from;
        for at in (from..queues.len()).chain(0..from.min(queues.len())) {
            if report.amounts.len() + VALUES > REPORT_MAX {
                reported.from = at;
                break;
            }
            let (room, queue_id) = queues[at];
            let values = self.rooms[room].values();
            let known = std::mem::replace(&mut reported.values[room], values);
            for (at, (value, known)) in values.into_iter().zip(known).enumerate() {
                if value != known {
                    report.queue_ids.push(queue_id);
                    report.counters.push(counter(at));
                    report.amounts.push(value - known);
                }
            }
        }
        (!report.amounts.is_empty()).then_some(report)
    }
}

#[cfg(feature = "metrics")]
impl Statistics {
    /// The metrics of this process since it began.
    pub(crate) fn families(&self) -> Vec<Family> {
        let mut attempts = Family::counter(
            "tuskline_worker_attempts",
            "Attempts that ended in this process and are recorded, by outcome",
        );
        let mut delay = Family::histogram(
            "tuskline_worker_start_delay_seconds",
            "Delay from due to the start of the first attempt",
        );
        let mut run = Family::histogram("tuskline_worker_run_seconds", "Run time of attempts");
        for (at, counts) in self.rooms.iter().enumerate() {
            if counts.values().iter().all(|value| *value == 0) {
                continue;
            }
            let (lambda, priority) = self.names(at);
            let labels =
                || vec![("lambda", lambda.to_string()), ("priority", priority.to_string())];
            for (outcome, count) in OUTCOMES.iter().zip(&counts.results) {
                let count = count.load(Ordering::Relaxed).unsigned_abs();
                let labels = labels().into_iter().chain([("outcome", (*outcome).to_owned())]);
                attempts.push(labels.collect(), Value::Counter(count));
            }
            delay.push(labels(), counts.starts.value());
            run.push(labels(), counts.runs.value());
        }
        let mut beats = Family::counter(
            "tuskline_worker_heartbeats",
            "Heartbeats that were acknowledged, or missed",
        );
        for (answer, count) in ["acknowledged", "missed"].iter().zip(&self.heartbeats) {
            let count = count.load(Ordering::Relaxed).unsigned_abs();
            beats.push(vec![("answer", (*answer).to_owned())], Value::Counter(count));
        }
        let mut database = Family::histogram(
            "tuskline_worker_db_seconds",
            "Time until the database answered, by statement",
        );
        database.push(vec![("statement", "exchange".to_owned())], self.exchanges.value());
        vec![attempts, delay, run, beats, database]
    }
}

/// The outcomes of [`Counts::results`].
#[cfg(feature = "metrics")]
const OUTCOMES: [&str; 6] =
    ["success", "retriable_failure", "fatal_failure", "snoozed", "cancelled", "refused"];

impl Counts {
    fn values(&self) -> [i64; VALUES] {
        let results = self.results.iter().map(|count| count.load(Ordering::Relaxed));
        let mut all = results.chain(self.starts.values()).chain(self.runs.values());
        std::array::from_fn(|_| all.next().unwrap_or(0))
    }
}

impl Histogram {
    fn add(&self, duration: Duration) {
        let us = i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
        // Rounded up, so that the bound of a bucket holds for the exact duration.
        let ms = u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
        let bucket = EDGES_MS.partition_point(|edge| *edge < ms);
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        self.total_us.fetch_add(us, Ordering::Relaxed);
    }

    #[cfg(feature = "metrics")]
    fn value(&self) -> Value {
        let counts: Vec<_> = self.values().skip(1).collect();
        let total_ms = self.total_us.load(Ordering::Relaxed) as f64 / 1_000.0;
        Value::histogram(&EDGES_MS, &counts, total_ms)
    }

    /// The sum in whole ms, then the buckets.
    fn values(&self) -> impl Iterator<Item = i64> {
        let buckets = self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed));
        std::iter::once(self.total_us.load(Ordering::Relaxed) / 1_000).chain(buckets)
    }
}

/// The number of a value in the order of [`Counts::values`].
fn counter(at: usize) -> i16 {
    let at = i16::try_from(at).unwrap_or(i16::MAX);
    let histogram = 1 + BUCKETS as i16;
    match at - REFUSED {
        ..0 => at + 1,
        start if start < histogram => START + start,
        run => RUN + run - histogram,
    }
}

impl ResultStatus {
    /// Its counter in a report.
    fn number(self) -> i16 {
        match self {
            Self::Success => 1,
            Self::RetriableFailure => 2,
            Self::FatalFailure => 3,
            Self::Snoozed => 4,
            Self::Cancelled => 5,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::hsc::Attempt;

    fn result(room: Room, status: ResultStatus) -> AttemptResult {
        AttemptResult {
            attempt: Attempt { task: 1, fence: 1 },
            note: None,
            failed: None,
            room,
            status,
            took: Duration::ZERO,
        }
    }

    /// (queue, counter, amount) of a report, in its order.
    fn told(report: Option<Report>) -> Vec<(i32, i16, i64)> {
        let report = report.unwrap_or_default();
        let counts = report.counters.into_iter().zip(report.amounts);
        report.queue_ids.into_iter().zip(counts).map(|(q, (c, a))| (q, c, a)).collect()
    }

    #[test]
    fn a_report_has_what_was_counted_since_the_last_one() {
        let counts = Statistics::new(vec!["work".into()]);
        let room = Statistics::room(0, Priority::High);
        counts.started(room, Duration::from_millis(7));
        counts.ran(room, Duration::from_secs(4_000));
        counts.answered(&result(room, ResultStatus::Cancelled), Verdict::Done);
        counts.answered(&result(room, ResultStatus::Success), Verdict::Refused);
        counts.answered(&result(room, ResultStatus::Success), Verdict::Locked);
        let queues = [(0, 1), (room, 2)];
        let expected =
            [(2, 5, 1), (2, 6, 1), (2, 100, 7), (2, 102, 1), (2, 200, 4_000_000), (2, 216, 1)];
        assert_eq!(told(counts.report(&queues)), expected);
        assert!(counts.report(&queues).is_none(), "nothing is reported twice");
        counts.answered(&result(room, ResultStatus::Success), Verdict::Done);
        assert_eq!(told(counts.report(&queues)), [(2, 1, 1)]);
    }

    #[test]
    fn a_duration_lies_in_the_bucket_whose_bound_holds_it() {
        let counts = Statistics::new(vec!["work".into()]);
        for (micros, bucket) in [(0, 1), (5_000, 1), (5_001, 2), (5_000_000, 10), (5_000_001, 11)] {
            counts.started(0, Duration::from_micros(micros));
            let told = told(counts.report(&[(0, 1)]));
            let buckets: Vec<_> = told.iter().map(|one| one.1).filter(|one| *one > 100).collect();
            assert_eq!(buckets, [100 + bucket], "{micros} µs");
        }
    }

    #[test]
    fn a_report_that_is_too_large_goes_on_with_the_next_one() {
        let counts = Statistics::new(vec!["work".into(); 1_000]);
        let queues: Vec<_> = (0..4_000).map(|room| (room, 1)).collect();
        for (room, _) in &queues {
            counts.started(*room, Duration::from_millis(1));
        }
        let mut amounts = 0;
        while let Some(report) = counts.report(&queues) {
            assert!(report.amounts.len() <= REPORT_MAX);
            amounts += report.amounts.iter().sum::<i64>();
        }
        assert_eq!(amounts, 4_000 * 2, "a count and a millisecond for each room");
    }

    #[test]
    fn queues_that_are_always_busy_are_all_reported() {
        let counts = Statistics::new(vec!["work".into(); 1_000]);
        let queues: Vec<_> = (0..4_000).map(|room| (room, room as i32)).collect();
        let mut told = vec![0; queues.len()];
        for _ in 0..10 {
            for (room, _) in &queues {
                counts.answered(&result(*room, ResultStatus::Success), Verdict::Done);
                counts.ran(*room, Duration::from_millis(1));
            }
            let report = counts.report(&queues).unwrap_or_default();
            assert!(report.amounts.len() <= REPORT_MAX);
            for (queue, counter) in report.queue_ids.iter().zip(&report.counters) {
                told[*queue as usize] += i32::from(*counter == 1);
            }
        }
        let least = told.iter().min().copied().unwrap_or_default();
        assert!(least >= 3, "each queue of 4,000 in one of three reports, got {least} of 10");
    }
}
