//! The table of `bench all`: what is run, and which of its figures has which target.
//!
//! The targets are those of the design, for two cores that server and client share. Where it asks for
//! a multiple of the best peer, or no worse than it, the number is that peer's on such a machine.

use super::report::{Outcome, Report};

/// A workload as it would be typed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Step {
    pub name: &'static str,
    pub line: &'static str,
    /// The same in a few seconds, to see that it works.
    pub quick: &'static str,
    /// It takes minutes, and has its repetitions or its comparison within itself.
    pub once: bool,
    /// Only its log is looked at, which is the same in every run without page images.
    pub page_images: bool,
}

impl Step {
    const fn of(name: &'static str, line: &'static str, quick: &'static str) -> Self {
        Self { name, line, quick, once: false, page_images: true }
    }

    pub(super) const fn line(&self, quick: bool) -> &'static str {
        if quick { self.quick } else { self.line }
    }
}

/// The steps, in this order.
pub(super) const STEPS: [Step; 20] = [
    Step::of("drain-1", "drain --tasks 300000", "drain --tasks 5000"),
    Step::of("drain-2", "drain --tasks 300000 --workers 2", "drain --tasks 5000 --workers 2"),
    Step::of("life", "life --tasks 200000", "life --tasks 5000"),
    Step::of("schedule-batch", "schedule-batch --tasks 300000", "schedule-batch --tasks 5000"),
    Step::of(
        "schedule-batch-2",
        "schedule-batch --tasks 300000 --connections 2",
        "schedule-batch --tasks 5000 --connections 2",
    ),
    Step::of("copy", "copy --tasks 300000", "copy --tasks 5000"),
    Step::of("singles", "singles --connections 8", "singles --connections 8 --seconds 1"),
    Step {
        page_images: false,
        ..Step::of("log", "life --tasks 100000 --batch 100", "life --tasks 5000 --batch 100")
    },
    Step::of("latency-200", "latency --rate 200", "latency --rate 200 --seconds 1"),
    Step::of("latency-500", "latency --rate 500", "latency --rate 500 --seconds 1"),
    Step::of("latency-2000", "latency --rate 2000", "latency --rate 2000 --seconds 1"),
    Step {
        once: true,
        ..Step::of("held-horizon", "held-horizon", "held-horizon --rate 200 --seconds 6")
    },
    Step {
        once: true,
        ..Step::of(
            "backlog",
            "backlog --future 1000000,10000000 --enqueued 500000,5000000 --drains 3",
            "backlog --future 5000,20000 --enqueued 10000 --tasks 5000",
        )
    },
    Step::of("flood", "flood", "flood --lambdas 10 --tasks 10000 --seconds 2"),
    Step::of(
        "flood-limited",
        "flood --quota 1000 --seconds 10",
        "flood --quota 1000 --lambdas 10 --tasks 10000 --seconds 2",
    ),
    Step::of("idle", "idle --seconds 20", "idle --seconds 2"),
    Step::of("rebuild", "rebuild", "rebuild --tasks 20000"),
    Step::of("scale", "scale", "scale --tasks 5000"),
    Step::of("batch", "batch", "batch --tasks 2000 --calls 200"),
    Step::of(
        "paper",
        "paper --rounds 1",
        "paper --lambdas 3 --rate 200 --warm-up 1 --seconds 2 --rounds 1",
    ),
];

/// Target of a figure.
#[derive(Debug, Clone, Copy)]
pub(super) enum Target {
    AtLeast(f64),
    AtMost(f64),
    /// None: it is shown for the reader.
    Shown,
}

/// How a figure is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    PerSecond,
    Microseconds,
    Milliseconds,
    Seconds,
    Bytes,
    /// A share or a ratio, shown in hundredths.
    Percent,
    /// Hundredths already.
    PercentOfCore,
    Count,
}

/// A row of the table.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row {
    pub what: &'static str,
    /// Name of its step.
    pub step: &'static str,
    pub target: Target,
    pub unit: Unit,
    pub figure: fn(&Report) -> Option<f64>,
}

const fn row(
    what: &'static str,
    step: &'static str,
    target: Target,
    unit: Unit,
    figure: fn(&Report) -> Option<f64>,
) -> Row {
    Row { what, step, target, unit, figure }
}

use Target::{AtLeast, AtMost, Shown};
use Unit::{Bytes, Count, Microseconds, Milliseconds, PerSecond, Percent, PercentOfCore, Seconds};

/// Every row, in the order of the design.
#[rustfmt::skip]
pub(super) const ROWS: [Row; 41] = [
    row("drain, 1 worker process", "drain-1", AtLeast(72_000.0), PerSecond, rate),
    row("drain, 2 worker processes", "drain-2", AtLeast(73_500.0), PerSecond, rate),
    row("whole life, batches of 1,000", "life", AtLeast(45_000.0), PerSecond, rate),
    row("server + worker CPU per task, drain", "drain-1", AtMost(16.0), Microseconds, cpu),
    row("schedule_many of 1,000", "schedule-batch", AtLeast(130_000.0), PerSecond, rate),
    row("schedule_many of 1,000, 2 connections", "schedule-batch-2", AtLeast(130_000.0), PerSecond, rate),
    row("COPY", "copy", AtLeast(130_000.0), PerSecond, rate),
    row("one row per commit x 8, of a bare insert", "singles", AtLeast(0.75), Percent, |r| r.outcome.extra("share_of_bare")),
    row("WAL per task, whole life, batches of 100", "log", AtMost(680.0), Bytes, |r| r.outcome.cost.wal_bytes_per_task),
    row("insert to start at 200/s, p50", "latency-200", AtMost(1.7), Milliseconds, p50),
    row("insert to start at 200/s, p99", "latency-200", AtMost(7.8), Milliseconds, p99),
    row("insert to start at 500/s, p50", "latency-500", AtMost(1.9), Milliseconds, p50),
    row("insert to start at 500/s, p99", "latency-500", AtMost(14.8), Milliseconds, p99),
    row("insert to start at 2,000/s, p50", "latency-2000", AtMost(4.0), Milliseconds, p50),
    row("insert to start at 2,000/s, p99", "latency-2000", AtMost(20.0), Milliseconds, p99),
    row("held horizon, p50 of the end to the start", "held-horizon", AtMost(1.05), Percent, |r| r.outcome.extra("p50_ratio")),
    row("held horizon, pages/task likewise", "held-horizon", AtMost(1.05), Percent, |r| r.outcome.extra("buffer_hits_ratio")),
    row("held horizon, without vacuum's pages", "held-horizon", AtMost(1.05), Percent, |r| r.outcome.extra("statement_hits_ratio")),
    row("drain beside 10 M future tasks, of empty", "backlog", AtLeast(0.9), Percent, |r| share_of_empty(r, false)),
    row("drain of a queue of 5 M, of empty", "backlog", AtLeast(0.9), Percent, |r| share_of_empty(r, true)),
    row("flood of 200,000, p95 of the quiet", "flood", AtMost(1.2), Percent, |r| r.outcome.extra("p95_ratio")),
    row("the same, at most 1,000 of it a second", "flood-limited", AtMost(1.2), Percent, |r| r.outcome.extra("p95_ratio")),
    row("the same, while it is being inserted", "flood-limited", Shown, Percent, arriving),
    row("idle worker, transactions", "idle", AtMost(1.0), PerSecond, |r| r.all().first()?.extra("transactions_per_s")),
    row("idle worker, of a core", "idle", AtMost(0.3), PercentOfCore, |r| r.all().first()?.extra("process_cpu_percent")),
    row("rebuild of a queue of 1 M", "rebuild", AtMost(5.0), Seconds, |r| Some(r.outcome.seconds)),
    row("drain by 2 workers, of 1 worker", "scale", AtLeast(NO_LOSS), Percent, |r| ratio(r, "workers", 2.0)),
    row("drain by 4 workers, of 1 worker", "scale", AtLeast(NO_LOSS), Percent, |r| ratio(r, "workers", 4.0)),
    row("timers moved by 2 store consumers, of 1", "scale", AtLeast(NO_LOSS), Percent, |r| ratio(r, "consumers", 2.0)),
    row("deadlocks of all these", "scale", AtMost(0.0), Count, deadlocks),
    row("schedule_many of 1", "batch", Shown, PerSecond, scheduled::<1>),
    row("schedule_many of 10", "batch", Shown, PerSecond, scheduled::<10>),
    row("schedule_many of 100", "batch", Shown, PerSecond, scheduled::<100>),
    row("schedule_many of 1,000", "batch", Shown, PerSecond, scheduled::<1000>),
    row("drain, at most 1 in an exchange", "batch", Shown, PerSecond, drained::<1>),
    row("drain, at most 10", "batch", Shown, PerSecond, drained::<10>),
    row("drain, at most 100", "batch", Shown, PerSecond, drained::<100>),
    row("drain, at most 1,000", "batch", Shown, PerSecond, drained::<1000>),
    row("the paper's load, batches of 10", "paper", AtLeast(10_000.0), PerSecond, rate),
    row("server CPU per task of it", "paper", AtMost(130.0), Microseconds, |r| r.outcome.cost.server_cpu_us_per_task),
    row("from due to start, p95 of it", "paper", Shown, Milliseconds, |r| r.outcome.quantiles.p95_ms),
];

/// No loss of throughput, but for the noise of a machine with fewer cores than processes.
const NO_LOSS: f64 = 0.95;

fn rate(report: &Report) -> Option<f64> {
    report.outcome.tasks_per_s
}

fn cpu(report: &Report) -> Option<f64> {
    let cost = report.outcome.cost;
    Some(cost.server_cpu_us_per_task? + cost.client_cpu_us_per_task?)
}

fn p50(report: &Report) -> Option<f64> {
    report.outcome.quantiles.p50_ms
}

fn p99(report: &Report) -> Option<f64> {
    report.outcome.quantiles.p99_ms
}

/// The part in which something only that workload knows has this value.
fn with<'a>(report: &'a Report, name: &str, value: f64) -> Option<&'a Outcome> {
    let has = |part: &&Outcome| part.extra(name).is_some_and(|own| (own - value).abs() < 0.5);
    report.all().iter().find(has)
}

fn scheduled<const BATCH: u32>(report: &Report) -> Option<f64> {
    with(report, "schedule_batch", f64::from(BATCH))?.tasks_per_s
}

fn drained<const BATCH: u32>(report: &Report) -> Option<f64> {
    with(report, "drain_batch", f64::from(BATCH))?.tasks_per_s
}

fn ratio(report: &Report, name: &str, value: f64) -> Option<f64> {
    with(report, name, value)?.extra("ratio_to_first")
}

/// Beside the largest backlog of tasks due later, or of enqueued ones.
fn share_of_empty(report: &Report, enqueued: bool) -> Option<f64> {
    let of_kind = |part: &&Outcome| {
        part.extra("future").is_some() && part.extra("enqueued").is_some() == enqueued
    };
    report.all().iter().rfind(of_kind)?.extra("share_of_empty")
}

fn arriving(report: &Report) -> Option<f64> {
    report.all().iter().find(|part| part.part.as_deref() == Some("arriving"))?.extra("p95_ratio")
}

fn deadlocks(report: &Report) -> Option<f64> {
    report.all().iter().map(|part| part.extra("deadlocks")).sum()
}

impl Target {
    /// Whether a figure meets it; none: there is nothing to meet.
    pub(super) fn is_met(self, figure: f64) -> Option<bool> {
        match self {
            Self::AtLeast(least) => Some(figure >= least),
            Self::AtMost(most) => Some(figure <= most),
            Self::Shown => None,
        }
    }
}
