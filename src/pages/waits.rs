//! Gates, limits and wait lists: what holds tasks back, and for how long?

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use maud::{Markup, html};
use serde::Serialize;
use serde_json::{Value, json};
use tokio_postgres::{Client, Error};

use super::act::link;
use super::asked::Asked;
use super::lambda::{drop_limit, limits};
use super::overview::gate_row;
use super::parts::{self, Frame, Part, Show};
use super::site::Site;
use super::table::{Column, Kind, plain, table};
use super::words::at_least;
use crate::facts::Facts;
use crate::store::overview::{self, Gate};

/// Causes of lambdas on the page, those with most tasks first.
const MOST_WAITS: usize = 200;
/// Limits on the page.
const MOST: i32 = 100;
/// Dead letters, and waiters, among which blocked keys are looked for.
const BLOCKED_ROWS: i32 = 200;

/// Gates, limits and wait lists.
#[derive(Debug, Serialize)]
pub struct Waits {
    /// Tasks that wait, by cause and lambda.
    pub waits: Vec<Value>,
    pub gates: Vec<Gate>,
    pub limits: Vec<Value>,
    /// Ordering keys that wait for a person, by lambda.
    pub blocked: Vec<Value>,
}

impl Waits {
    /// Reads the limits and the blocked keys: two statements.
    ///
    /// # Errors
    /// The connection's or the server's.
    pub async fn read(client: &Client, facts: &Arc<Facts>) -> Result<Self, Error> {
        let limits = limits(client, None, MOST).await?;
        let blocked = overview::blocked(client, BLOCKED_ROWS).await?;
        let waits = facts.waits.iter().take(MOST_WAITS).map(|one| json!(one)).collect();
        let blocked = blocked
            .iter()
            .map(|one| {
                json!({
                    "lambda": one.lambda, "ordering_key": one.ordering_key, "task": one.task,
                    "oldest_ms": one.oldest_ms, "keys": at_least(one.keys),
                })
            })
            .collect();
        Ok(Self { waits, gates: facts.gates.clone(), limits, blocked })
    }
}

/// The page.
pub async fn page(State(site): State<Arc<Site>>, asked: Asked) -> Response {
    let (_, facts, _) = match asked.facts(&site).await {
        Ok(found) => found,
        Err(answer) => return answer,
    };
    let read = asked.read(&site, async |client| Waits::read(client, &facts).await).await;
    asked.page(&site, read)
}

impl Show for Waits {
    fn title(&self) -> String {
        "Waits".to_owned()
    }

    fn part(&self) -> Part {
        Part::Waits
    }

    fn every(&self) -> Option<Duration> {
        Some(Duration::from_secs(30))
    }

    fn body(&self, frame: &Frame) -> Markup {
        const WAITS: [Column; 5] = [
            Column::new("Cause", "cause", Kind::Text),
            Column::new("Lambda", "lambda", Kind::Link("lambdas")),
            Column::new("Tasks", "tasks", Kind::Bounded),
            Column::wide("Ended in 5 min", "ended", Kind::Count),
            Column::wide("Waited, p95", "p95_ms", Kind::Span),
        ];
        const LIMITS: [Column; 8] = [
            Column::new("Limit", "limit_id", Kind::Code),
            Column::new("Lambda", "lambda", Kind::Link("lambdas")).above("reason"),
            Column::new("Kind", "kind", Kind::Text),
            Column::wide("At a time", "max_concurrency", Kind::Count),
            Column::wide("Per second", "per_second", Kind::Text),
            Column::new("Held", "held", Kind::Count),
            Column::new("Waiting", "waiting", Kind::Count),
            Column::wide("Author", "author", Kind::Text),
        ];
        const BLOCKED: [Column; 5] = [
            Column::new("Lambda", "lambda", Kind::Link("lambdas")),
            Column::new("First key", "ordering_key", Kind::Code),
            Column::new("Blocked by", "task", Kind::Link("tasks")),
            Column::wide("For", "oldest_ms", Kind::Span),
            Column::wide("Keys", "keys", Kind::Text),
        ];
        html! {
            div .lead {
                h1 { "Waits" }
                p { "what holds tasks back: due times, gates, limits, orders, parents" }
                (parts::as_of(frame, self.every()))
            }
            (section("causes", "Tasks that wait", &self.waits, plain(frame, &WAITS, &self.waits)))
            section aria-labelledby="gates" {
                header { h2 #gates { "Gates that are set" } }
                @if self.gates.is_empty() { p .muted { "None." } }
                @else { table { tbody { @for gate in &self.gates { (gate_row(frame, gate)) } } } }
            }
            (section("limits", "Limits, orders, throttles", &self.limits,
                table(frame, &LIMITS, &self.limits, |row| drop_limit(frame, row))))
            (section("blocked", "Ordering keys that wait for a person", &self.blocked,
                table(frame, &BLOCKED, &self.blocked, |row| unblock(frame, row))))
        }
    }
}

fn section(id: &str, title: &str, rows: &[Value], body: Markup) -> Markup {
    html! {
        section aria-labelledby=(id) {
            header { h2 id=(id) { (title) } }
            @if rows.is_empty() { p .muted { "None." } } @else { (body) }
        }
    }
}

fn unblock(frame: &Frame, row: &Value) -> Option<Markup> {
    let (lambda, key) = (row["lambda"].as_str()?, row["ordering_key"].as_str()?);
    let members = &[("lambda", lambda), ("key", key)];
    Some(link(frame, "unblock", members, "Unblock…"))
}
