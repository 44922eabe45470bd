//! The facts of one look at the installation, as rows. Rows that need an operator come first.

mod reader;
mod rows;

#[cfg(feature = "cli")]
use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::Serialize;

use crate::store::figures::{
    ExecutorLoad, Gauge, OBJECTIVE, QueueGauge, QueueStatistics, Rates, Scale, WaitTimes,
};
use crate::store::overview::{Count, DeadGroup, Executor, Gate, Held, Waiting};

pub use reader::FactsReader;

/// The share of tasks that must start within the objective.
const KEPT: f64 = 0.95;
/// If this share of its attempts or more fails, a lambda is failing.
const FAILING: f64 = 0.1;

/// The answers of the statements, as they came.
#[derive(Debug, Default)]
pub struct Answers {
    pub now: Option<DateTime<Utc>>,
    pub installation: String,
    pub statistics: Vec<QueueStatistics>,
    pub queues: Vec<QueueGauge>,
    pub gauges: Vec<Gauge>,
    pub held: Vec<Held>,
    pub waits: Vec<Waiting>,
    pub ended_waits: Vec<WaitTimes>,
    pub gates: Vec<Gate>,
    pub executors: Vec<Executor>,
    pub loads: Vec<ExecutorLoad>,
    pub dead_groups: Vec<DeadGroup>,
}

/// The rows of all views.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Facts {
    /// The database's time.
    pub now: Option<DateTime<Utc>>,
    /// Time between two looks of `top`.
    #[cfg(feature = "cli")]
    #[serde(skip)]
    pub every: Duration,
    /// The name of the installation.
    pub installation: String,
    /// Sums over the installation.
    pub totals: Totals,
    pub lambdas: Vec<LambdaRow>,
    pub queues: Vec<QueueRow>,
    pub executors: Vec<ExecutorRow>,
    pub waits: Vec<WaitRow>,
    pub gates: Vec<Gate>,
    pub dead_groups: Vec<DeadGroup>,
    /// How many executors each lambda needs, without its limits.
    #[serde(skip)]
    pub scales: Vec<Scale>,
}

/// Sums over the installation.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Totals {
    pub queued: i64,
    pub held: Count,
    pub waiting: Count,
    pub per_second: f64,
    pub failed_per_second: f64,
    /// The share of tasks that started within the objective. None: no task started.
    pub start_within_5s: Option<f64>,
    pub workers: usize,
    /// An estimate of PostgreSQL.
    pub dead_letters: i64,
}

/// The state of a lambda in one word. The first one that applies is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    /// Tasks are queued, and no worker serves it.
    NoWorker,
    /// Its breaker has tripped.
    Breaker,
    /// Less than 95 % of its tasks start within the objective, or its oldest task is past it.
    Late,
    /// A tenth of its attempts or more fail.
    Failing,
    /// A gate is set.
    Gated,
    /// None of these.
    Ok,
    /// The same, and nothing has run or waits.
    Idle,
}

impl Health {
    /// The word on the screen.
    pub fn word(self) -> &'static str {
        match self {
            Self::NoWorker => "no worker",
            Self::Breaker => "breaker",
            Self::Late => "late",
            Self::Failing => "failing",
            Self::Gated => "gated",
            Self::Ok => "ok",
            Self::Idle => "idle",
        }
    }
}

/// Whether a tenth of the attempts or more fail.
fn is_failing(rates: &Rates) -> bool {
    rates.failed_per_second > 0.0 && rates.failed_per_second >= FAILING * rates.per_second
}

/// A lambda.
#[derive(Debug, Clone, Serialize)]
pub struct LambdaRow {
    pub lambda: String,
    pub health: Health,
    /// Tasks in its queues, also in paused ones.
    pub queued: i64,
    /// The part of these that a pause holds.
    pub paused: i64,
    /// The longest wait of a task at the head of a queue that is not paused, in ms.
    pub oldest_ms: Option<i64>,
    /// Tasks that workers hold.
    pub held: Count,
    /// Tasks that wait outside of queues.
    pub waiting: Count,
    pub workers: i64,
    pub gates: usize,
    #[serde(flatten)]
    pub rates: Rates,
}

/// A queue: a lambda and a priority.
#[derive(Debug, Clone, Serialize)]
pub struct QueueRow {
    pub lambda: String,
    pub priority: String,
    pub depth: i64,
    pub oldest_ms: Option<i64>,
    pub paused: bool,
    #[serde(flatten)]
    pub rates: Rates,
}

/// A worker process.
#[derive(Debug, Clone, Serialize)]
pub struct ExecutorRow {
    #[serde(flatten)]
    pub executor: Executor,
    /// Tasks that it holds.
    pub held: Count,
    /// Attempts that ended per second.
    pub per_second: f64,
    /// Attempts that failed per second.
    pub failed_per_second: f64,
    /// Attempts that ran at a time, on average; long ones count when they end.
    pub busy: f64,
}

/// Tasks of a lambda that wait for one cause, and the waits that ended in the span.
#[derive(Debug, Clone, Serialize)]
pub struct WaitRow {
    pub cause: String,
    pub lambda: String,
    #[serde(flatten)]
    pub count: Count,
    /// Waits that ended in the span.
    pub ended: i64,
    pub p95_ms: Option<f64>,
}

impl Facts {
    /// Makes rows of the answers.
    pub fn of(answers: &Answers) -> Self {
        let waits = rows::waits(answers);
        let (mut lambdas, scales) = rows::lambdas(answers, &waits);
        lambdas.sort_by(|a, b| {
            (a.health, -a.queued, &a.lambda).cmp(&(b.health, -b.queued, &b.lambda))
        });
        Self {
            now: answers.now,
            #[cfg(feature = "cli")]
            every: Duration::ZERO,
            installation: answers.installation.clone(),
            totals: rows::totals(answers, &lambdas),
            lambdas,
            queues: rows::queues(answers),
            executors: rows::executors(answers),
            waits,
            gates: answers.gates.clone(),
            dead_groups: answers.dead_groups.clone(),
            scales,
        }
    }

    /// A lambda by its name.
    pub fn lambda(&self, name: &str) -> Option<&LambdaRow> {
        self.lambdas.iter().find(|row| row.lambda == name)
    }

    /// How many executors a lambda needs, if `most` of its tasks may run at a time.
    pub fn scale(&self, lambda: &str, most: Option<i32>) -> Option<Scale> {
        let scale = self.scales.iter().find(|one| one.lambda == lambda)?.clone();
        Some(Scale { max_concurrency: most, ..scale }.within(OBJECTIVE))
    }

    /// The gates of a lambda.
    pub fn gates_of<'a>(&'a self, lambda: &'a str) -> impl Iterator<Item = &'a Gate> {
        self.gates.iter().filter(move |gate| gate.lambda == lambda)
    }
}
