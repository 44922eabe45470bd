//! How many executors a lambda wants.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error};

use super::{Histogram, Marks, QueueGauge, QueueStatistics};
use crate::store::rows::{Parameters, rows};

/// How many executors a lambda wants.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Scale {
    /// The lambda.
    pub lambda: String,
    /// Executors wanted.
    pub wanted: i32,
    /// Tasks that run at the same time: on average over the last 5 minutes, or now, if these are more.
    pub running: f64,
    /// Workers that serve it.
    pub workers: i32,
    /// Tasks that are due and in its queues.
    pub waiting: i64,
    /// Tasks that started per second.
    pub per_second: f64,
    /// Mean run time of an attempt, in ms.
    pub run_ms: f64,
    /// The figures that decided, in words.
    pub because: String,
    /// Tasks in its queues that a gate pauses. They do not count.
    pub paused: i64,
    /// The concurrency limit of the whole lambda. None: it has none.
    pub max_concurrency: Option<i32>,
}

impl Scale {
    /// A lambda without limits and without an objective yet, from a reading of all lambdas: see
    /// `tuskline_core.scale_figures`. `held` counts as running now.
    pub fn of<'a>(
        statistics: impl Iterator<Item = &'a QueueStatistics> + Clone,
        queues: impl Iterator<Item = &'a QueueGauge> + Clone,
        (lambda, held, workers): (&str, i64, i64),
    ) -> Self {
        let runs = Histogram::sum(statistics.clone().map(|one| &one.runs));
        let run_ms = match (runs.count(), held) {
            (0, 0) => 100.0,
            (0, _) => 5_000.0,
            (count, _) => runs.total_ms as f64 / count as f64,
        };
        let depth = |paused| queues.clone().filter(move |one| one.paused == paused);
        Self {
            lambda: lambda.to_owned(),
            wanted: 0,
            running: QueueStatistics::rate(statistics.clone(), |one| one.runs.total_ms / 1_000)
                .max(held as f64),
            workers: i32::try_from(workers).unwrap_or(i32::MAX),
            waiting: depth(false).map(|one| one.depth).sum(),
            per_second: QueueStatistics::rate(statistics, |one| one.starts.count()),
            run_ms,
            because: String::new(),
            paused: depth(true).map(|one| one.depth).sum(),
            max_concurrency: None,
        }
    }

    /// The same lambda with another objective, as `tuskline.scale` would answer.
    #[must_use]
    pub fn within(self, objective: Duration) -> Self {
        let seconds = objective.as_secs_f64();
        let each = (self.run_ms / 1_000.0 / seconds).min(1.0);
        // Rounded to thousandths, as in SQL. Otherwise a rounding error above a whole number would
        // add an executor.
        let thousandths = ((self.running + self.waiting as f64 * each) * 1_000.0).round();
        // The cast saturates at the bounds of the integer.
        let needed = (thousandths / 1_000.0).ceil() as i32;
        let mut because = format!(
            "{:.1} running and {} waiting, {:.1} ms each, to start within {seconds:.1} s",
            self.running, self.waiting, self.run_ms
        );
        if let Some(most) = self.max_concurrency.filter(|most| *most < needed) {
            because += &format!("; a limit allows {most}");
        }
        if self.paused > 0 {
            because += &format!("; a gate pauses {} more", self.paused);
        }
        let wanted = self.max_concurrency.map_or(needed, |most| most.min(needed));
        Self { wanted, because, ..self }
    }
}

/// How many executors each lambda wants, so that tasks start within `objective`.
///
/// # Errors
/// The connection's or the server's.
pub async fn scale(
    client: &Client,
    objective: Duration,
    marks: &Marks,
) -> Result<Vec<Scale>, Error> {
    let sql = "select lambda, wanted, running, workers, waiting, per_second, run_ms, because, paused, \
                      max_concurrency \
               from tuskline_core.scale_figures(null, $1 * interval '1 second', $2, $3)";
    let objective = objective.as_secs_f64();
    let Marks { queues, before } = marks;
    let parameters: &Parameters<'_> =
        &[(&objective, Type::FLOAT8), (queues, Type::INT4_ARRAY), (before, Type::INT8_ARRAY)];
    rows(client, sql, parameters).await
}
