//! Counts of the attempts of this process, by lambda and priority.
//!
//! The worker reports them to the database. The metrics of this process show them, too.
//!
//! Promises: counting an attempt costs a few additions, and no lock. Must never: call the database.

mod histogram;

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

pub use histogram::EDGES_MS;

use self::histogram::{BUCKETS, Histogram};

use crate::db::hsc::{AttemptResult, Report, Verdict};
#[cfg(feature = "metrics")]
use crate::metrics::{Family, Value};
use crate::task::Priority;

/// Most counts of one report: 14 bytes each. The rest comes first in the next report.
const REPORT_MAX: usize = 4_000;

/// Numbers of the counters in a report, see `tuskline_core.attempt_count.counters`.
const REFUSED: i16 = 6;
const START: i16 = 100;
const RUN: i16 = 200;
/// The first set of functions that takes it.
const LONGEST_SINCE: i32 = 3;
/// Behind the buckets of a histogram.
const LONGEST: i16 = 17;

/// Index of the counts of a lambda and priority. Each lambda has four, in the order of priorities.
pub(crate) type CountsIndex = usize;

/// The counts of this process.
#[derive(Debug)]
pub(crate) struct Statistics {
    /// The lambdas of the worker.
    lambdas: Vec<Arc<str>>,
    counts: Vec<Counts>,
    /// Heartbeats that were acknowledged, and those that were not.
    heartbeats: [AtomicI64; 2],
    /// Calls of `exchange` that were answered.
    exchanges: Histogram,
    reported: Mutex<Reported>,
    /// The functions of the database take the longest durations.
    tells_longest: AtomicBool,
}

/// The counts that the database knows.
#[derive(Debug)]
struct Reported {
    /// Values of each index, in the order of [`Counts::values`].
    values: Vec<[i64; VALUES]>,
    /// The longest start delay and run time of the last report of each index.
    longest: Vec<[i64; 2]>,
    /// Index of the queue with which the next report begins: the last report was full.
    from: usize,
}

/// Counters of a lambda and priority: outcomes and refusals, then two histograms.
#[derive(Debug, Default)]
struct Counts {
    /// Results that are recorded, by status; then those that were refused.
    results: [AtomicI64; 6],
    starts: Histogram,
    runs: Histogram,
}

const VALUES: usize = 6 + 2 * (1 + BUCKETS);

impl Statistics {
    pub(crate) fn new(lambdas: Vec<Arc<str>>) -> Self {
        let queues = lambdas.len() * Priority::ALL.len();
        Self {
            lambdas,
            heartbeats: Default::default(),
            exchanges: Histogram::default(),
            counts: std::iter::repeat_with(Counts::default).take(queues).collect(),
            reported: Mutex::new(Reported {
                values: vec![[0; VALUES]; queues],
                longest: vec![[0; 2]; queues],
                from: 0,
            }),
            tells_longest: AtomicBool::new(false),
        }
    }

    /// The index of a lambda and priority.
    pub(crate) fn index_of(lambda: usize, priority: Priority) -> CountsIndex {
        let at = Priority::ALL.iter().position(|one| *one == priority);
        lambda * Priority::ALL.len() + at.unwrap_or_default()
    }

    /// The lambda and priority of an index.
    pub(crate) fn names(&self, index: CountsIndex) -> (&str, Priority) {
        let priorities = Priority::ALL.len();
        (&self.lambdas[index / priorities], Priority::ALL[index % priorities])
    }

    /// The first attempt of a task began, `delay` after the task was due.
    pub(crate) fn started(&self, index: CountsIndex, delay: Duration) {
        self.counts[index].starts.add(delay);
    }

    /// An attempt ended after it had run for `took`.
    pub(crate) fn ran(&self, index: CountsIndex, took: Duration) {
        self.counts[index].runs.add(took);
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
            Verdict::Done => result.status as usize - 1,
            Verdict::Refused => REFUSED as usize - 1,
            Verdict::Locked => return,
        };
        self.counts[result.counts].results[at].fetch_add(1, Ordering::Relaxed);
    }

    /// A registration has begun, with this set of functions.
    pub(crate) fn registered(&self, functions: i32) {
        self.tells_longest.store(functions >= LONGEST_SINCE, Ordering::Relaxed);
    }

    /// The counts since the last report, for the queues of these indexes. `None`: nothing was counted.
    ///
    /// The counts are marked as reported immediately, because a report whose answer is lost may
    /// have arrived. A full report ends with a whole queue, and the next report continues there. So
    /// no queue waits behind busy ones.
    pub(crate) fn report(&self, queues: &[(CountsIndex, i32)]) -> Option<Report> {
        let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        let mut report = Report::default();
        let from = reported.from;
        for at in (from..queues.len()).chain(0..from.min(queues.len())) {
            if report.amounts.len() + VALUES + 2 > REPORT_MAX {
                reported.from = at;
                break;
            }
            let (index, queue_id) = queues[at];
            let values = self.counts[index].values();
            let known = std::mem::replace(&mut reported.values[index], values);
            for (at, (value, known)) in values.into_iter().zip(known).enumerate() {
                if value != known {
                    report.push(queue_id, counter(at), value - known);
                }
            }
            if self.tells_longest.load(Ordering::Relaxed) {
                let histograms =
                    [(START, &self.counts[index].starts), (RUN, &self.counts[index].runs)];
                for (at, (first, histogram)) in histograms.into_iter().enumerate() {
                    let buckets = buckets(at);
                    let longest = &mut reported.longest[index][at];
                    if values[buckets.clone()] != known[buckets]
                        && let us @ 1.. = histogram.longest_us(longest)
                    {
                        report.push(queue_id, first + LONGEST, us);
                    }
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
        for (at, counts) in self.counts.iter().enumerate() {
            let (lambda, priority) = self.names(at);
            let labels =
                || vec![("lambda", lambda.to_string()), ("priority", priority.to_string())];
            for (outcome, count) in OUTCOMES.iter().zip(&counts.results) {
                let count = count.load(Ordering::Relaxed).unsigned_abs();
                let labels = labels().into_iter().chain([("outcome", (*outcome).to_owned())]);
                attempts.push(labels.collect(), Value::Counter(count));
            }
            // Counters begin at 0, or the first increase is lost; histograms are 36 samples each.
            if counts.values().iter().all(|value| *value == 0) {
                continue;
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

/// Where the buckets of the first or second histogram stand in [`Counts::values`].
fn buckets(histogram: usize) -> std::ops::Range<usize> {
    let first = 6 + histogram * (1 + BUCKETS) + 1;
    first..first + BUCKETS
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

#[cfg(test)]
mod tests;
