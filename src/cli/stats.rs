//! `stats`: attempts, delays and waits of the last minutes.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use clap::{Args, ValueEnum};
use serde::Serialize;
use serde_json::json;
use tokio_postgres::Client;

use super::global::Global;
use super::output;
use super::words::{ms, percent};
use crate::duration;
use crate::store::figures::{
    self, DEPTH_ROWS, Histogram, Marks, QueueGauge, QueueStatistics, Rates, WaitTimes,
};

/// Waits that end before the task is in its queue. The rest of the delay to the start is the wait
/// for a worker.
const BEFORE_QUEUE: [&str; 4] = ["gate", "limit", "order", "dependency"];

/// Rows that `stats` shows, and their span.
#[derive(Debug, Args)]
pub struct StatsArgs {
    /// Only this lambda.
    lambda: Option<String>,
    /// How far back to count.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, default_value = "5m")]
    since: Duration,
    /// Group the rows by this.
    #[arg(long, value_enum, default_value = "lambda")]
    by: By,
}

/// Subject of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum By {
    /// Lambdas.
    Lambda,
    /// Queues: lambda and priority.
    Queue,
    /// Causes of waits.
    Cause,
    /// Workers.
    Executor,
}

/// A lambda or queue.
#[derive(Debug, Default, Serialize)]
struct Row {
    lambda: String,
    priority: Option<String>,
    span_seconds: f64,
    ended: i64,
    crashed: i64,
    failed: i64,
    dead: i64,
    #[serde(flatten)]
    rates: Rates,
    depth: i64,
    oldest_ms: Option<i64>,
}

/// Waits of a lambda by cause. `worker`: the wait in the queue for a free slot.
#[derive(Debug, Serialize)]
struct CauseRow {
    lambda: String,
    cause: String,
    waits: i64,
    total_ms: i64,
    mean_ms: f64,
    p95_ms: Option<f64>,
}

pub async fn run(global: &Global, client: &Client, args: StatsArgs) -> Result<()> {
    match args.by {
        By::Lambda | By::Queue => Ok(put_rows(global, args.by, rows(client, &args).await?)?),
        By::Cause => Ok(put_causes(global, causes(client, &args).await?)?),
        By::Executor => put_executors(global, client, &args).await,
    }
}

async fn rows(client: &Client, args: &StatsArgs) -> Result<Vec<Row>> {
    let statistics = figures::statistics(client, Some(args.since)).await?;
    let gauges = figures::queue_gauges(client, &Marks::default(), DEPTH_ROWS, None).await?;
    let mut grouped = BTreeMap::<_, (Vec<QueueStatistics>, Vec<QueueGauge>)>::new();
    let wanted = |lambda: &str| args.lambda.as_deref().is_none_or(|only| only == lambda);
    let key = |lambda: &str, priority: &str| {
        (lambda.to_owned(), (args.by == By::Queue).then(|| priority.to_owned()))
    };
    for one in statistics.into_iter().filter(|one| wanted(&one.lambda)) {
        grouped.entry(key(&one.lambda, &one.priority)).or_default().0.push(one);
    }
    for one in gauges.into_iter().filter(|one| wanted(&one.lambda)) {
        grouped.entry(key(&one.lambda, &one.priority)).or_default().1.push(one);
    }
    Ok(grouped.into_iter().map(|(key, (counts, gauges))| Row::of(key, &counts, &gauges)).collect())
}

impl Row {
    fn of(
        (lambda, priority): (String, Option<String>),
        counts: &[QueueStatistics],
        gauges: &[QueueGauge],
    ) -> Self {
        let sum = |name: &str| counts.iter().map(|one| one.outcome(name)).sum::<i64>();
        let spans = counts.iter().filter_map(|one| one.span_seconds);
        let span_seconds = spans.fold(0.0, f64::max);
        Self {
            lambda,
            priority,
            span_seconds,
            ended: Histogram::sum(counts.iter().map(|one| &one.runs)).count(),
            crashed: sum("crashed"),
            failed: counts.iter().map(QueueStatistics::failed).sum(),
            // Dead letters, as in `top`.
            dead: sum("dead") + sum("fatal_failure"),
            rates: Rates::of(counts),
            depth: gauges.iter().map(|one| one.depth).sum(),
            oldest_ms: gauges.iter().filter_map(|one| one.oldest_ms).max(),
        }
    }
}

fn put_rows(global: &Global, by: By, rows: Vec<Row>) -> std::io::Result<()> {
    if global.json {
        return output::put_json(&json!(rows));
    }
    let cells = |row: &Row| {
        let name = match &row.priority {
            Some(priority) => format!("{} {priority}", row.lambda),
            None => row.lambda.clone(),
        };
        let all = row.ended + row.crashed;
        vec![
            name,
            format!("{:.1}", row.rates.per_second),
            percent((all > 0).then(|| row.failed as f64 / all as f64)),
            row.dead.to_string(),
            ms(row.rates.start_p95_ms),
            percent(row.rates.start_within_5s),
            ms(row.rates.run_p95_ms),
            row.depth.to_string(),
            row.oldest_ms.map_or("-".to_owned(), duration::show),
        ]
    };
    let name = if by == By::Queue { "queue" } else { "lambda" };
    let heading = [name, "/s", "failed", "dead", "delay", "in 5 s", "run", "depth", "oldest"];
    output::put_table(&heading, rows.iter().map(cells).collect(), "no lambda is defined")
}

async fn causes(client: &Client, args: &StatsArgs) -> Result<Vec<CauseRow>> {
    let wanted = |lambda: &str| args.lambda.as_deref().is_none_or(|only| only == lambda);
    let mut waits = figures::wait_times(client, Some(args.since)).await?;
    waits.retain(|one| wanted(&one.lambda));
    let statistics = figures::statistics(client, Some(args.since)).await?;
    let mut starts = BTreeMap::<String, Histogram>::new();
    for one in statistics.into_iter().filter(|one| wanted(&one.lambda)) {
        let sum = starts.entry(one.lambda).or_default();
        *sum = Histogram::sum([&*sum, &one.starts].into_iter());
    }
    let workers = starts.iter().map(|(lambda, starts)| for_worker(lambda, starts, &waits));
    let mut rows: Vec<_> = workers.collect();
    rows.extend(waits.iter().map(|one| CauseRow {
        lambda: one.lambda.clone(),
        cause: one.cause.clone(),
        waits: one.waits.count(),
        total_ms: one.waits.total_ms,
        mean_ms: mean(one.waits.total_ms, one.waits.count()),
        p95_ms: one.waits.quantile(0.95),
    }));
    rows.retain(|row| row.waits > 0);
    rows.sort_by(|a, b| (&a.lambda, b.total_ms).cmp(&(&b.lambda, a.total_ms)));
    Ok(rows)
}

/// The wait for a worker: the rest of the delay to the start. Its percentile is known only if there
/// was no other wait.
fn for_worker(lambda: &str, starts: &Histogram, waits: &[WaitTimes]) -> CauseRow {
    let own = waits.iter().filter(|one| one.lambda == lambda);
    let before: Vec<_> = own.filter(|one| BEFORE_QUEUE.contains(&&*one.cause)).collect();
    let other_ms: i64 = before.iter().map(|one| one.waits.total_ms).sum();
    let total_ms = (starts.total_ms - other_ms).max(0);
    let alone = before.iter().all(|one| one.waits.count() == 0);
    CauseRow {
        lambda: lambda.to_owned(),
        cause: "worker".to_owned(),
        waits: starts.count(),
        total_ms,
        mean_ms: mean(total_ms, starts.count()),
        p95_ms: alone.then(|| starts.quantile(0.95)).flatten(),
    }
}

fn mean(total_ms: i64, count: i64) -> f64 {
    total_ms as f64 / count.max(1) as f64
}

fn put_causes(global: &Global, rows: Vec<CauseRow>) -> std::io::Result<()> {
    if global.json {
        return output::put_json(&json!(rows));
    }
    let cells = |row: &CauseRow| {
        let mean = ms(Some(row.mean_ms));
        vec![row.lambda.clone(), row.cause.clone(), row.waits.to_string(), mean, ms(row.p95_ms)]
    };
    let heading = ["lambda", "waits for", "waits", "mean", "p95"];
    output::put_table(&heading, rows.iter().map(cells).collect(), "no wait has ended")
}

async fn put_executors(global: &Global, client: &Client, args: &StatsArgs) -> Result<()> {
    let mut loads = figures::executor_loads(client, args.since).await?;
    if let Some(lambda) = &args.lambda {
        loads.retain(|one| one.lambdas.contains(lambda));
    }
    if global.json {
        return Ok(output::put_json(&json!(loads))?);
    }
    let cells = |one: &figures::ExecutorLoad| {
        vec![
            one.executor_id.clone(),
            one.host.clone(),
            one.pid.to_string(),
            one.state.clone(),
            format!("{:.1}", one.per_second()),
            one.failed.to_string(),
            format!("{:.1}", one.busy()),
        ]
    };
    let heading = ["executor", "host", "pid", "state", "/s", "failed", "busy"];
    let none = "no worker has reported an attempt";
    Ok(output::put_table(&heading, loads.iter().map(cells).collect(), none)?)
}
