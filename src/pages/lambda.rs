//! One lambda: why is it late, and do more executors help?

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::response::Response;
use chrono::{DateTime, Utc};
use maud::{Markup, html};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error};

use super::act::link;
use super::asked::Asked;
use super::drawing::{bars, delays};
use super::overview::{OBJECTIVE, gate_row, state, why};
use super::parts::{self, Frame, Part, Show, encoded, figure};
use super::site::Site;
use super::table::{Column, Kind, fact, plain, table};
use super::words::{at_least, count, percent, rate, span_of};
use crate::facts::{Facts, LambdaRow};
use crate::store::overview::{self, Count};
use crate::store::rows::{rows, view};

/// A lambda.
#[derive(Debug, Serialize)]
pub struct Lambda {
    pub name: String,
    pub facts: Arc<Facts>,
    #[serde(skip)]
    pub every: Duration,
    /// Its settings.
    pub settings: Value,
    /// How many executors are wanted, and why, by the facts of all lambdas.
    pub scale: Option<Value>,
    /// Limits, orders and throttles.
    pub limits: Vec<Value>,
    /// Its circuit breaker.
    pub breaker: Option<Value>,
    /// Minute by minute: attempts that ended and failed, and the delay to the start.
    pub hour: Vec<Minute>,
}

/// A minute of a lambda.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Minute {
    at: DateTime<Utc>,
    ended: i64,
    failed: i64,
    /// The 95th percentile of its slowest queue.
    start_p95_ms: Option<i64>,
}

/// Limits on the page.
const MOST_LIMITS: i32 = 40;

/// Without the number of parked tasks, which the view counts.
const BREAKER: &str = "
    select lambda, failures, span, share, probe_after, state, gate_id, fingerprint, tripped_at, probe_id,
           next_probe_at, trips, author, set_at
      from tuskline.breakers where lambda = $1";

/// The facts of the page beside those of all lambdas.
#[derive(Debug)]
pub struct Read {
    settings: Value,
    limits: Vec<Value>,
    breaker: Option<Value>,
    hour: Vec<Minute>,
}

impl Read {
    /// Four statements. None: there is no such lambda.
    ///
    /// # Errors
    /// The connection's or the server's.
    pub async fn of(client: &Client, name: &str) -> Result<Option<Self>, Error> {
        let lambda: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 1] = [(&name, Type::TEXT)];
        let settings = view(client, "lambda", &[], "where v.name = $1", &lambda).await?;
        let Some(settings) = settings.into_iter().next() else { return Ok(None) };
        let limits = limits(client, Some(name), MOST_LIMITS).await?;
        let breaker = rows(client, BREAKER, &lambda).await?.into_iter().next();
        let hour = rows(client, "select * from tuskline.lambda_hour($1)", &lambda).await?;
        Ok(Some(Self { settings, limits, breaker, hour }))
    }

    /// With the facts of all lambdas.
    pub fn with(self, name: String, facts: Arc<Facts>, every: Duration) -> Lambda {
        let Self { settings, limits, breaker, hour } = self;
        let scale =
            facts.scale(&name, most_at_a_time(&limits)).map(|scale| serde_json::json!(scale));
        Lambda { name, facts, every, settings, scale, limits, breaker, hour }
    }
}

/// The concurrency limit of the whole lambda.
fn most_at_a_time(limits: &[Value]) -> Option<i32> {
    let of_all = |row: &&Value| {
        row["kind"] == "concurrency"
            && row["by_key"] == false
            && row["collection"].is_null()
            && row["priority"].is_null()
    };
    let most = limits.iter().filter(of_all).filter_map(|row| row["max_concurrency"].as_i64()).min();
    most.and_then(|most| i32::try_from(most).ok())
}

impl Lambda {
    fn row(&self) -> Option<&LambdaRow> {
        self.facts.lambda(&self.name)
    }

    fn queues(&self, frame: &Frame) -> Markup {
        const COLUMNS: [Column; 4] = [
            Column::new("Priority", "priority", Kind::Text),
            Column::new("Queued", "depth", Kind::Count),
            Column::new("Oldest due", "oldest_ms", Kind::Span),
            Column::wide("Paused", "paused", Kind::Text),
        ];
        let own = self.facts.queues.iter().filter(|one| one.lambda == self.name);
        let rows: Vec<Value> = own.map(|one| serde_json::json!(one)).collect();
        section("queues", "Queues", html! { (plain(frame, &COLUMNS, &rows)) })
    }

    fn drawn(&self) -> Markup {
        let (ended, failed): (Vec<_>, Vec<_>) =
            self.hour.iter().map(|one| (one.ended, one.failed)).unzip();
        let starts: Vec<_> = self.hour.iter().map(|one| one.start_p95_ms).collect();
        let slowest = starts.iter().flatten().copied().max();
        section(
            "hour",
            "The last hour",
            html! {
                dl .pairs {
                    div { dt { "Start p95" } dd { (delays(&starts, OBJECTIVE)) " up to " (span_of(slowest)) } }
                    div { dt { "Ended" } dd {
                        (bars(&ended, &failed)) " " (count(ended.iter().sum())) ", of these "
                        (count(failed.iter().sum())) " failed"
                    } }
                }
            },
        )
    }

    fn waits(&self) -> Markup {
        let own = self.facts.waits.iter().filter(|one| one.lambda == self.name);
        let own: Vec<_> = own.filter(|one| !one.count.is_none()).collect();
        section(
            "waits",
            "Tasks that wait, by cause",
            html! {
                @if own.is_empty() { p .muted { "None." } }
                dl .pairs { @for row in own { div { dt { (row.cause) } dd .n { (at_least(row.count)) } } } }
            },
        )
    }

    fn scaling(&self) -> Markup {
        let Some(scale) = &self.scale else { return html! {} };
        section(
            "scale",
            "Do more executors help?",
            html! {
                dl .pairs {
                    @for (name, value) in scale.as_object().into_iter().flatten() {
                        @if name != "lambda" && !value.is_null() {
                            div { dt { (label(name)) } dd { (fact(name, value)) } }
                        }
                    }
                }
            },
        )
    }

    fn list_limits(&self, frame: &Frame) -> Markup {
        const COLUMNS: [Column; 7] = [
            Column::new("Limit", "limit_id", Kind::Code),
            Column::new("Kind", "kind", Kind::Text).above("reason"),
            Column::new("At a time", "max_concurrency", Kind::Count),
            Column::new("Per second", "per_second", Kind::Text),
            Column::wide("Held", "held", Kind::Count),
            Column::new("Waiting", "waiting", Kind::Count),
            Column::wide("Author", "author", Kind::Text),
        ];
        section(
            "limits",
            "Limits, orders, throttles",
            html! {
                @if self.limits.is_empty() { p .muted { "None." } }
                @else { (table(frame, &COLUMNS, &self.limits, |row| drop_limit(frame, row))) }
            },
        )
    }

    fn executors(&self, frame: &Frame) -> Markup {
        let own: Vec<Value> = self
            .facts
            .executors
            .iter()
            .filter(|one| one.executor.lambdas.contains(&self.name))
            .map(|one| serde_json::json!(one))
            .collect();
        const COLUMNS: [Column; 4] = [
            Column::new("Executor", "executor_id", Kind::Link("executors")),
            Column::new("State", "state", Kind::Text),
            Column::wide("Host", "host", Kind::Text),
            Column::wide("SDK", "sdk_version", Kind::Code),
        ];
        section(
            "executors",
            "Executors that serve it",
            html! {
                @if own.is_empty() { p .muted { "None." } } @else { (plain(frame, &COLUMNS, &own)) }
            },
        )
    }

    fn list_settings(&self) -> Markup {
        section(
            "settings",
            "Settings",
            html! {
                dl .pairs {
                    @for (name, value) in self.settings.as_object().into_iter().flatten() {
                        @if name != "name" && !value.is_null() {
                            div { dt { (label(name)) } dd { (fact(name, value)) } }
                        }
                    }
                }
            },
        )
    }
}

/// The first limits of a lambda, or of all, with counts as they are shown.
pub async fn limits(client: &Client, lambda: Option<&str>, most: i32) -> Result<Vec<Value>, Error> {
    let mut limits = overview::limits(client, lambda, most).await?;
    for row in &mut limits {
        for (field, more) in [("held", "more_held"), ("waiting", "more_waiting")] {
            if row[more] == true {
                let tasks = row[field].as_i64().unwrap_or_default();
                row[field] = at_least(Count { tasks, and_more: true }).into();
            }
        }
    }
    Ok(limits)
}

/// A name of a field as words, without the unit.
fn label(name: &str) -> String {
    name.trim_end_matches("_ms").replace('_', " ")
}

/// The act that ends a limit.
pub fn drop_limit(frame: &Frame, row: &Value) -> Option<Markup> {
    let limit = row["limit_id"].as_i64()?.to_string();
    Some(link(frame, "drop_limit", &[("limit", &limit)], "Drop…"))
}

fn section(id: &str, title: &str, body: Markup) -> Markup {
    html! { section aria-labelledby=(id) { header { h2 id=(id) { (title) } } (body) } }
}

/// The page.
pub async fn page(
    State(site): State<Arc<Site>>,
    asked: Asked,
    Path(name): Path<String>,
) -> Response {
    let (_, facts, every) = match asked.facts(&site).await {
        Ok(found) => found,
        Err(answer) => return answer,
    };
    let read = asked.read(&site, async |client| Read::of(client, &name).await).await;
    let read = asked.found(read, "there is no lambda of this name");
    asked.page(&site, read.map(|(moment, read)| (moment, read.with(name, facts, every))))
}

impl Show for Lambda {
    fn title(&self) -> String {
        self.name.clone()
    }

    fn part(&self) -> Part {
        Part::Overview
    }

    fn every(&self) -> Option<Duration> {
        Some(self.every)
    }

    fn body(&self, frame: &Frame) -> Markup {
        let gates: Vec<_> = self.facts.gates_of(&self.name).collect();
        html! {
            p .crumb { a href=(frame.to("lambdas")) { "Lambdas" } }
            div .lead {
                h1 { (self.name) }
                @if let Some(row) = self.row() { (state(row.health)) @if let Some(why) = why(row) { p { (why) } } }
                (parts::as_of(frame, self.every()))
            }
            @if let Some(row) = self.row() {
                dl .figures {
                    (figure("Queued", &count(row.queued), false))
                    (figure("Held", &at_least(row.held), false))
                    (figure("Waiting", &at_least(row.waiting), false))
                    (figure("Start p95", &span_of(row.rates.start_p95_ms.map(|ms| ms as i64)), false))
                    (figure("Run p95", &span_of(row.rates.run_p95_ms.map(|ms| ms as i64)), false))
                    (figure("In 5 s", &percent(row.rates.start_within_5s), false))
                    (figure("Ended/s", &rate(row.rates.per_second), false))
                    (figure("Failed/s", &rate(row.rates.failed_per_second), false))
                }
            }
            p .acts {
                @for (act, words) in [
                    ("gate", "Pause…"), ("throttle", "Throttle…"), ("set_limit", "Limit…"),
                    ("cancel_tasks", "Cancel tasks…"), ("retry_tasks", "Retry tasks…"),
                    ("purge", "Purge…"),
                ] { (link(frame, act, &[("lambda", &self.name)], words)) }
                a .act href=(frame.to(&format!("dead-letters?lambda={}", encoded(&self.name)))) { "Dead letters" }
                a .act href=(frame.to(&format!("tasks?q={}", encoded(&format!("lambda:{}", self.name))))) { "Tasks" }
            }
            div .cols {
                (self.queues(frame))
                (self.waits())
                (section("gates", "Gates that are set", html! {
                    @if gates.is_empty() { p .muted { "None." } }
                    @else { table { tbody { @for gate in gates { (gate_row(frame, gate)) } } } }
                }))
            }
            (self.list_limits(frame))
            div .cols { (self.scaling()) (self.executors(frame)) (self.drawn()) }
            (self.list_settings())
        }
    }
}
