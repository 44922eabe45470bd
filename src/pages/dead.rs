//! Dead letters: what broke, and may it run again?

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use chrono::TimeDelta;
use maud::{Markup, html};
use serde::Serialize;
use tokio_postgres::{Client, Error};

use super::act::link;
use super::asked::Asked;
use super::parts::{self, Frame, Part, Show, ago, encoded};
use super::site::Site;
use super::words::at_least;
use crate::store::overview::{self, DeadGroup};

/// Causes on the page.
const MOST: i64 = 45;

/// Dead letters by cause.
#[derive(Debug, Serialize)]
pub struct Dead {
    pub groups: Vec<DeadGroup>,
    /// There may be more: a lambda alone shows its own.
    pub and_more: bool,
    /// Only those of this lambda.
    pub lambda: Option<String>,
}

impl Dead {
    /// Reads them, bounded.
    ///
    /// # Errors
    /// The connection's or the server's.
    pub async fn read(client: &Client, lambda: Option<String>) -> Result<Self, Error> {
        let groups = overview::dead_groups(client, lambda.as_deref(), MOST).await?;
        let and_more = groups.len() as i64 == MOST;
        Ok(Self { groups, and_more, lambda })
    }
}

/// The page.
pub async fn page(State(site): State<Arc<Site>>, asked: Asked) -> Response {
    let lambda = asked.query.get("lambda").cloned();
    let read = asked.read(&site, async |client| Dead::read(client, lambda).await).await;
    asked.page(&site, read)
}

impl Show for Dead {
    fn title(&self) -> String {
        "Dead letters".to_owned()
    }

    fn part(&self) -> Part {
        Part::DeadLetters
    }

    fn every(&self) -> Option<Duration> {
        Some(Duration::from_secs(30))
    }

    fn body(&self, frame: &Frame) -> Markup {
        html! {
            div .lead {
                h1 { "Dead letters" }
                p {
                    "tasks that failed for good and are kept; " (self.groups.len())
                    @if self.and_more { "+" } " causes"
                    @if let Some(lambda) = &self.lambda { " of " (lambda) }
                }
                (parts::as_of(frame, self.every()))
            }
            @if self.groups.is_empty() { p .muted { "None." } }
            @else { table {
                thead { tr {
                    th scope="col" { "Cause" } th .wide scope="col" { "Lambda" }
                    th .n scope="col" { "Tasks" } th .n scope="col" { "Latest" }
                    th .wide scope="col" { "Example" } th .n scope="col" { span .sr { "Act" } }
                } }
                tbody { @for group in &self.groups { (row(frame, group)) } }
            } }
        }
    }
}

fn row(frame: &Frame, group: &DeadGroup) -> Markup {
    let cause = match (&group.error_class, &group.message) {
        (Some(class), Some(message)) => format!("{class}: {message}"),
        (Some(text), None) | (None, Some(text)) => text.clone(),
        (None, None) => "no error text".to_owned(),
    };
    let search = format!("lambda:{} cause:{}", group.lambda, group.fingerprint);
    let letters = format!("tasks?q={}", encoded(&search));
    let cause_of = [("lambda", group.lambda.as_str()), ("fingerprint", &group.fingerprint)];
    html! {
        tr {
            th scope="row" {
                a href=(frame.to(&letters)) { (cause) }
                span .why { span .narrow { (group.lambda) " · " } span .mono { (group.fingerprint) } }
            }
            td .wide { a href=(frame.to(&format!("lambdas/{}", group.lambda))) { (group.lambda) } }
            td .n { (at_least(group.count)) }
            td .n { @if let Some(now) = frame.now { (ago(frame, now - TimeDelta::milliseconds(group.latest_ms))) } }
            td .wide { a .mono href=(frame.to(&format!("tasks/{}", group.latest_id))) { (group.latest_id) } }
            td .n { (link(frame, "redrive", &cause_of, "Redrive…")) }
        }
    }
}
