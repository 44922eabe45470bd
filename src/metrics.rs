//! `/metrics` and `/scale/{lambda}`: the figures of the whole installation, for Prometheus and for an
//! autoscaler.
//!
//! Promises: however many ask, the database is asked once in [`FRESH`]. Labels are lambda, priority and a few
//! words, never a task. Must never: read a queue from its first row at each scrape.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::{Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde_json::json;
use tokio::sync::Mutex;
use tokio::time::timeout;
use tuskline_sdk::metrics::{CONTENT_TYPE, Family, Labels, Value, text};
use tuskline_sdk::{Address, EDGES_MS};

use crate::duration;
use crate::session::{Deadlines, ErrorChain, Session};
use crate::store::figures::{
    self, DEPTH_ROWS, Gauge, Histogram, Marks, OUTCOMES, QueueGauge, QueueStatistics, Scale,
    WaitTimes,
};

/// The answer to one scrape serves all that come within this time.
pub const FRESH: Duration = Duration::from_secs(5);
/// Longest wait for the database.
const DEADLINE: Duration = Duration::from_secs(4);
/// The queues are read from their first row this often: a mark hides rows that were committed late.
const SWEEP_EVERY: Duration = Duration::from_secs(600);
/// The objective for the start of a due task (paper: 95 % within five seconds).
const OBJECTIVE: Duration = Duration::from_secs(5);
/// One session for all who ask, opened when the first does.
struct Metrics {
    address: Address,
    last: Mutex<Last>,
}

/// State between two scrapes.
#[derive(Default)]
struct Last {
    session: Option<Session>,
    text: Option<(Instant, String)>,
    marks: Marks,
    swept_at: Option<Instant>,
}

/// Figures that a scrape reads.
#[derive(Debug, Default)]
struct Figures {
    statistics: Vec<QueueStatistics>,
    waits: Vec<WaitTimes>,
    queues: Vec<QueueGauge>,
    gauges: Vec<Gauge>,
    scale: Vec<Scale>,
}

/// The routes of this module.
pub fn routes(address: Address) -> Router {
    let metrics = Arc::new(Metrics { address, last: Mutex::default() });
    Router::new()
        .route("/metrics", get(scrape))
        .route("/scale/{lambda}", get(scale))
        .with_state(metrics)
}

/// A database that is away is a figure, too: the scrape succeeds and says `tuskline_database_up 0`.
async fn scrape(State(metrics): State<Arc<Metrics>>) -> Response {
    ([(header::CONTENT_TYPE, CONTENT_TYPE)], metrics.text().await).into_response()
}

/// `?objective=5s` changes the time within which tasks shall start.
async fn scale(
    State(metrics): State<Arc<Metrics>>,
    Path(lambda): Path<String>,
    Query(query): Query<HashMap<String, String>>,
) -> (StatusCode, Json<serde_json::Value>) {
    let objective = match query.get("objective").map_or(Ok(OBJECTIVE), |text| duration::parse(text))
    {
        Ok(objective) => objective,
        Err(wrong) => {
            let said = json!({"error": format!("objective {wrong}")});
            return (StatusCode::BAD_REQUEST, Json(said));
        }
    };
    match timeout(DEADLINE, metrics.scale(&lambda, objective)).await {
        Ok(Ok(Some(scale))) => (StatusCode::OK, Json(json!(scale))),
        Ok(Ok(None)) => (StatusCode::NOT_FOUND, Json(json!({"error": "no such lambda"}))),
        Ok(Err(error)) => {
            let unknown = error.code().is_some_and(|code| code.code() == "TK001");
            let status = match unknown {
                true => StatusCode::NOT_FOUND,
                false => StatusCode::SERVICE_UNAVAILABLE,
            };
            (status, Json(json!({"error": ErrorChain(&error).to_string()})))
        }
        Err(_) => {
            let said = format!("the database did not answer within {} s", DEADLINE.as_secs());
            (StatusCode::SERVICE_UNAVAILABLE, Json(json!({"error": said})))
        }
    }
}

impl Metrics {
    async fn text(&self) -> String {
        let mut last = self.last.lock().await;
        if let Some((at, text)) = &last.text
            && at.elapsed() < FRESH
        {
            return text.clone();
        }
        let read = timeout(DEADLINE, last.figures(&self.address)).await;
        let mut families = match &read {
            Ok(Ok(figures)) => figures.families(),
            _ => Vec::new(),
        };
        let mut up =
            Family::gauge("tuskline_database_up", "1 if the database answered this scrape");
        up.push(Vec::new(), Value::Gauge(f64::from(u8::from(matches!(read, Ok(Ok(_)))))));
        families.push(up);
        let text = text(families);
        last.text = Some((Instant::now(), text.clone()));
        text
    }

    async fn scale(
        &self,
        lambda: &str,
        objective: Duration,
    ) -> Result<Option<Scale>, tokio_postgres::Error> {
        let mut last = self.last.lock().await;
        let session = last.session(&self.address).await?;
        let found = figures::scale(session.client(), Some(lambda), objective, &last.marks).await?;
        last.session = Some(session);
        Ok(found.into_iter().next())
    }
}

impl Last {
    /// Taken out: a call that fails or is dropped leaves no session, and the next call opens a new one.
    async fn session(&mut self, address: &Address) -> Result<Session, tokio_postgres::Error> {
        match self.session.take().filter(|session| !session.is_closed()) {
            Some(session) => Ok(session),
            None => Session::open(address, "metrics", Deadlines::USUAL).await,
        }
    }

    async fn figures(&mut self, address: &Address) -> Result<Figures, tokio_postgres::Error> {
        let session = self.session(address).await?;
        let client = session.client();
        if self.swept_at.is_none_or(|at| at.elapsed() >= SWEEP_EVERY) {
            (self.marks, self.swept_at) = (Marks::default(), Some(Instant::now()));
        }
        let queues = figures::queue_gauges(client, &self.marks, DEPTH_ROWS).await?;
        self.marks = Marks::of(&queues);
        let figures = Figures {
            statistics: figures::statistics(client, None).await?,
            waits: figures::wait_times(client, None).await?,
            gauges: figures::gauges(client).await?,
            scale: figures::scale(client, None, OBJECTIVE, &self.marks).await?,
            queues,
        };
        self.session = Some(session);
        Ok(figures)
    }
}

impl Figures {
    fn families(&self) -> Vec<Family> {
        let mut families = self.tasks();
        families.extend(self.delays());
        families.extend(self.queues());
        families.extend(self.installation());
        families
    }

    /// A counter for each outcome.
    fn tasks(&self) -> Vec<Family> {
        let counters = OUTCOMES.iter().zip(COUNTERS).enumerate();
        counters
            .map(|(at, (_, (name, help)))| {
                let mut family = Family::counter(name, help);
                for one in &self.statistics {
                    let count = one.outcomes[at].unsigned_abs();
                    family.push(queue_labels(&one.lambda, &one.priority), Value::Counter(count));
                }
                family
            })
            .collect()
    }

    fn delays(&self) -> [Family; 3] {
        let mut starts = Family::histogram(
            "tuskline_start_delay_seconds",
            "Delay from due to the start of the first attempt",
        );
        let mut runs = Family::histogram("tuskline_run_seconds", "Run time of attempts");
        for one in &self.statistics {
            starts.push(queue_labels(&one.lambda, &one.priority), histogram(&one.starts));
            runs.push(queue_labels(&one.lambda, &one.priority), histogram(&one.runs));
        }
        let mut waits = Family::histogram("tuskline_wait_seconds", "Waits that ended, by cause");
        for one in &self.waits {
            let labels = vec![("lambda", one.lambda.clone()), ("cause", one.cause.clone())];
            waits.push(labels, histogram(&one.waits));
        }
        [starts, runs, waits]
    }

    fn queues(&self) -> [Family; 5] {
        let mut enqueued = Family::counter(
            "tuskline_tasks_enqueued",
            "Rows inserted into the queue, also again for a retry; 0 after a crash of the server",
        );
        let mut depth = Family::gauge(
            "tuskline_queue_depth",
            "Tasks that are due and wait in the queue; above 1000 an estimate",
        );
        let mut oldest = Family::gauge(
            "tuskline_oldest_due_age_seconds",
            "How long the first task of the queue has been due; 0 if it is empty",
        );
        let mut paused = Family::gauge("tuskline_queue_paused", "1 if a gate pauses the queue");
        for queue in &self.queues {
            let labels = || queue_labels(&queue.lambda, &queue.priority);
            enqueued.push(labels(), Value::Counter(queue.enqueued.unsigned_abs()));
            depth.push(labels(), Value::Gauge(queue.depth as f64));
            let age = queue.oldest_ms.unwrap_or(0) as f64 / 1_000.0;
            oldest.push(labels(), Value::Gauge(age));
            paused.push(labels(), Value::Gauge(f64::from(u8::from(queue.paused))));
        }
        let mut wanted = Family::gauge(
            "tuskline_wanted_executors",
            "Executors that the lambda needs so that its tasks start within 5 s",
        );
        for one in &self.scale {
            let labels = vec![("lambda", one.lambda.clone())];
            wanted.push(labels, Value::Gauge(f64::from(one.wanted)));
        }
        [enqueued, depth, oldest, paused, wanted]
    }

    fn installation(&self) -> Vec<Family> {
        let family = |(own, name, help): &(&str, &'static str, &'static str)| {
            let mut family = Family::gauge(name, help);
            for gauge in self.gauges.iter().filter(|gauge| gauge.name == *own) {
                let labels = gauge.lambda.iter().map(|lambda| ("lambda", lambda.clone()));
                family.push(labels.collect(), Value::Gauge(gauge.value));
            }
            family
        };
        GAUGES.iter().map(family).collect()
    }
}

/// The counters of [`OUTCOMES`], in the same order.
const COUNTERS: [(&str, &str); OUTCOMES.len()] = [
    ("tuskline_tasks_succeeded", "Attempts that succeeded"),
    ("tuskline_tasks_retried", "Attempts that failed and may be retried"),
    ("tuskline_tasks_failed", "Attempts that failed for good"),
    ("tuskline_tasks_snoozed", "Attempts that ended with a snooze"),
    ("tuskline_tasks_cancelled", "Tasks that were cancelled"),
    ("tuskline_tasks_lost", "Results that were refused: the attempt was no longer the current one"),
    ("tuskline_tasks_dead", "Tasks that became dead: attempts or crashes exhausted"),
    ("tuskline_tasks_crashed", "Attempts that ended with their worker"),
    ("tuskline_tasks_dropped", "Tasks that a gate dropped"),
];

/// The rows of `tuskline.gauges()`, as they are called there and here.
const GAUGES: [(&str, &str, &str); 11] = [
    ("workers", "tuskline_workers", "Live workers that serve the lambda"),
    ("gates", "tuskline_gates", "Gates that are set on the lambda"),
    (
        "breakers_tripped",
        "tuskline_breakers_tripped",
        "1 if the circuit breaker of the lambda is open",
    ),
    ("timers", "tuskline_timers", "Tasks that are due later, and retries (estimate)"),
    ("parked", "tuskline_parked_tasks", "Tasks that gates hold (estimate)"),
    ("wait_list", "tuskline_waiting_tasks", "Tasks that wait for a permit (estimate)"),
    ("permits", "tuskline_permits", "Permits that tasks hold (estimate)"),
    ("dead_letters", "tuskline_dead_letters", "Tasks that failed for good and are kept (estimate)"),
    ("segments_ahead", "tuskline_segments_ahead", "Partitions of the task store that are ready"),
    ("connections", "tuskline_connections", "Connections of workers, servers and commands"),
    ("horizon_seconds", "tuskline_horizon_seconds", "Age of the oldest snapshot of a session"),
];

fn queue_labels(lambda: &str, priority: &str) -> Labels {
    vec![("lambda", lambda.to_owned()), ("priority", priority.to_owned())]
}

fn histogram(histogram: &Histogram) -> Value {
    Value::histogram(&EDGES_MS, &histogram.counts, histogram.total_ms as f64)
}
