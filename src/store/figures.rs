//! The figures of the installation, for metrics and for people who watch it.

mod histogram;
mod scale;

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error};

pub use histogram::Histogram;
pub use scale::{Scale, scale};

use super::rows::{Parameters, rows};

/// The objective: 95 % of tasks start within this time after they are due (paper).
pub const OBJECTIVE: Duration = Duration::from_secs(5);

/// Attempts and ends of a lambda and priority in a span.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct QueueStatistics {
    /// Its lambda.
    pub lambda: String,
    /// Its priority.
    pub priority: String,
    /// The span in seconds: shorter than asked for if counting began later. None: since the beginning.
    pub span_seconds: Option<f64>,
    /// Counts by the names of [`OUTCOMES`].
    pub outcomes: [i64; OUTCOMES.len()],
    /// Delays from due to the start of the first attempt.
    pub starts: Histogram,
    /// Run times of attempts.
    pub runs: Histogram,
}

/// The counts of [`QueueStatistics::outcomes`], as the columns of `tuskline.statistics` are called.
pub const OUTCOMES: [&str; 9] = [
    "success",
    "retriable_failure",
    "fatal_failure",
    "snoozed",
    "cancelled",
    "refused",
    "dead",
    "crashed",
    "dropped",
];

impl QueueStatistics {
    /// A count by its name in [`OUTCOMES`]; 0 for another name.
    pub fn outcome(&self, name: &str) -> i64 {
        OUTCOMES.iter().position(|one| *one == name).map_or(0, |at| self.outcomes[at])
    }

    /// Attempts whose run time is known.
    pub fn ended(&self) -> i64 {
        self.runs.count()
    }

    /// Attempts that failed, for good or to be retried, or that ended with their worker.
    pub fn failed(&self) -> i64 {
        ["retriable_failure", "fatal_failure", "crashed"]
            .map(|name| self.outcome(name))
            .iter()
            .sum()
    }

    /// The sum of a count over queues, per second of their spans.
    fn rate<'a>(queues: impl IntoIterator<Item = &'a Self>, count: fn(&Self) -> i64) -> f64 {
        let of =
            |one: &Self| Some(count(one) as f64 / one.span_seconds.filter(|span| *span > 0.0)?);
        queues.into_iter().filter_map(of).fold(0.0, |sum, one| sum + one)
    }
}

/// Attempts and delays of queues in a span.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Rates {
    /// Attempts that ended per second.
    pub per_second: f64,
    /// Attempts that failed per second.
    pub failed_per_second: f64,
    /// Quantiles of the delays from due to the start of the first attempt, in ms. None: none started.
    pub start_p50_ms: Option<f64>,
    /// See above.
    pub start_p95_ms: Option<f64>,
    /// See above.
    pub start_p99_ms: Option<f64>,
    /// The share of tasks that started within the objective. None: none started.
    pub start_within_5s: Option<f64>,
    /// Quantiles of the run times of attempts, in ms. None: none ended.
    pub run_p50_ms: Option<f64>,
    /// See above.
    pub run_p95_ms: Option<f64>,
}

impl Rates {
    /// The rates of several queues together.
    pub fn of<'a>(queues: impl IntoIterator<Item = &'a QueueStatistics, IntoIter: Clone>) -> Self {
        let queues = queues.into_iter();
        let starts = Histogram::sum(queues.clone().map(|one| &one.starts));
        let runs = Histogram::sum(queues.clone().map(|one| &one.runs));
        Self {
            per_second: QueueStatistics::rate(queues.clone(), QueueStatistics::ended),
            failed_per_second: QueueStatistics::rate(queues, QueueStatistics::failed),
            start_p50_ms: starts.quantile(0.5),
            start_p95_ms: starts.quantile(0.95),
            start_p99_ms: starts.quantile(0.99),
            start_within_5s: starts.share_within(OBJECTIVE),
            run_p50_ms: runs.quantile(0.5),
            run_p95_ms: runs.quantile(0.95),
        }
    }
}

/// Attempts that a worker has ended in a span.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExecutorLoad {
    /// Its number.
    pub executor_id: String,
    /// Its host.
    pub host: String,
    /// Number of its process on that host.
    pub pid: i32,
    /// alive, draining, silent, or how it ended.
    pub state: String,
    /// Lambdas that it serves.
    pub lambdas: Vec<String>,
    /// The span in seconds: shorter than asked for if the worker began later.
    pub span_seconds: f64,
    /// Attempts that succeeded.
    pub success: i64,
    /// Attempts that failed, for good or to be retried.
    pub failed: i64,
    /// Results that were refused.
    pub refused: i64,
    /// Sum of the run times in ms.
    pub run_ms: i64,
}

impl ExecutorLoad {
    /// Attempts that ended per second.
    pub fn per_second(&self) -> f64 {
        self.rate(self.success + self.failed)
    }

    /// Attempts that failed per second.
    pub fn failed_per_second(&self) -> f64 {
        self.rate(self.failed)
    }

    /// Attempts that ran at a time, on average; long ones count when they end.
    pub fn busy(&self) -> f64 {
        self.rate(self.run_ms) / 1_000.0
    }

    fn rate(&self, count: i64) -> f64 {
        count as f64 / self.span_seconds.max(1.0)
    }
}

/// Waits of a lambda that ended in a span.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WaitTimes {
    /// The lambda.
    pub lambda: String,
    /// due, gate, limit, order or dependency.
    pub cause: String,
    /// How long they were.
    pub waits: Histogram,
}

/// A queue now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueGauge {
    /// Its number.
    pub queue_id: i32,
    /// Its lambda.
    pub lambda: String,
    /// Its priority.
    pub priority: String,
    /// Tasks in it. An estimate if it has more rows than were read.
    pub depth: i64,
    /// How long the first one has been due, in ms. None: it is empty, or was not read.
    pub oldest_ms: Option<i64>,
    /// Number of its first row. None: as above.
    pub head_seq: Option<i64>,
    /// A gate pauses it.
    pub paused: bool,
    /// All rows that were inserted since the last crash of the server.
    pub enqueued: i64,
}

/// A count over the installation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Gauge {
    /// Its name.
    pub name: String,
    /// The lambda that it is about. None: the installation.
    pub lambda: Option<String>,
    /// The count.
    pub value: f64,
}

/// Attempts and ends of each queue in a span. None: since the beginning, up to the last fold. No
/// crash of the server makes these totals smaller, so metrics may export them.
///
/// # Errors
/// The connection's or the server's.
pub async fn statistics(
    client: &Client,
    span: Option<Duration>,
) -> Result<Vec<QueueStatistics>, Error> {
    // Totals since the beginning are for counters, which have no longest duration.
    let longest = match span {
        Some(_) => "tuskline.longest_attempts($1 * interval '1 second')",
        None => {
            "(select null::text as lambda, null::text as priority, null::float8 as start_ms, null::float8 as run_ms)"
        }
    };
    let sql = format!(
        "select s.lambda, s.priority, extract(epoch from s.span)::float8 as span_seconds, \
                json_build_object('total_ms', s.start_ms, 'counts', s.starts, 'longest_ms', m.start_ms) as starts, \
                json_build_object('total_ms', s.run_ms, 'counts', s.runs, 'longest_ms', m.run_ms) as runs, \
                array[s.{}] as outcomes \
         from tuskline.statistics($1 * interval '1 second', $1 is null) s \
              left join {longest} m on m.lambda = s.lambda and m.priority = s.priority \
         order by s.lambda, s.priority::tuskline.priority",
        OUTCOMES.join(", s.")
    );
    let span = span.map(|span| span.as_secs_f64());
    rows(client, &sql, &[(&span, Type::FLOAT8)]).await
}

/// Waits that ended in a span. None: since the beginning, up to the last fold, as in
/// [`statistics`].
///
/// # Errors
/// The connection's or the server's.
pub async fn wait_times(client: &Client, span: Option<Duration>) -> Result<Vec<WaitTimes>, Error> {
    let longest = match span {
        Some(_) => "tuskline.longest_waits($1 * interval '1 second')",
        None => "(select null::text as lambda, null::text as cause, null::bigint as max_ms)",
    };
    let sql = format!(
        "select s.lambda, s.cause, json_build_object('total_ms', s.total_ms, 'counts', s.waits, \
                'longest_ms', m.max_ms::float8) as waits \
         from tuskline.wait_times($1 * interval '1 second', $1 is null) s \
              left join {longest} m on m.lambda = s.lambda and m.cause = s.cause \
         order by s.lambda, s.cause"
    );
    let span = span.map(|span| span.as_secs_f64());
    rows(client, &sql, &[(&span, Type::FLOAT8)]).await
}

/// Attempts that each worker has ended in a span.
///
/// # Errors
/// The connection's or the server's.
pub async fn executor_loads(client: &Client, span: Duration) -> Result<Vec<ExecutorLoad>, Error> {
    let sql = "select x.executor_id::text, x.host, x.pid, x.state, x.lambdas, \
               extract(epoch from l.span)::float8 as span_seconds, l.success, l.failed, l.refused, l.run_ms \
               from tuskline.executor_loads($1 * interval '1 second') l \
               join tuskline.executors x using (executor_id) order by l.executor_id";
    rows(client, sql, &[(&span.as_secs_f64(), Type::FLOAT8)]).await
}

/// Heads of queues that an earlier reading found. The next reading starts there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Marks {
    queues: Vec<i32>,
    before: Vec<i64>,
}

impl Marks {
    /// From an earlier reading.
    pub fn of(gauges: &[QueueGauge]) -> Self {
        let heads = gauges.iter().filter_map(|one| Some((one.queue_id, one.head_seq? - 1)));
        let (queues, before) = heads.unzip();
        Self { queues, before }
    }
}

/// Most rows of a queue that a reading counts for its depth.
pub const DEPTH_ROWS: i32 = 1_000;

/// Each queue now. At most `most` rows are read of each, and at most `probes` queues (none: all).
///
/// # Errors
/// The connection's or the server's.
pub async fn queue_gauges(
    client: &Client,
    marks: &Marks,
    most: i32,
    probes: Option<i32>,
) -> Result<Vec<QueueGauge>, Error> {
    let sql = "select queue_id, lambda, priority, depth, oldest_ms, head_seq, paused, enqueued \
               from tuskline.queue_gauges($1, $2, p_rows => $3, p_probes => $4)";
    let Marks { queues, before } = marks;
    let parameters: &Parameters<'_> = &[
        (queues, Type::INT4_ARRAY),
        (before, Type::INT8_ARRAY),
        (&most, Type::INT4),
        (&probes, Type::INT4),
    ];
    rows(client, sql, parameters).await
}

/// Counts over the installation.
///
/// # Errors
/// The connection's or the server's.
pub async fn gauges(client: &Client) -> Result<Vec<Gauge>, Error> {
    rows(client, "select name, lambda, value from tuskline.gauges()", &[]).await
}
