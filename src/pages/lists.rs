//! Pages that are a list of rows: lambdas, executors, operations, the audit.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use maud::{Markup, html};
use serde::Serialize;
use serde_json::Value;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error};

use super::act::link;
use super::asked::Asked;
use super::overview::table_of;
use super::parts::{self, Frame, Part, Show};
use super::refusal::Refused;
use super::site::Site;
use super::table::{Column, Kind, table};
use super::words::count;
use crate::facts::Facts;
use crate::store::rows::{Parameters, rows, view};

/// Rows of a list.
const MOST: usize = 200;

/// All lambdas, as the overview shows some.
#[derive(Debug, Serialize)]
pub struct Lambdas {
    #[serde(flatten)]
    pub facts: Arc<Facts>,
    #[serde(skip)]
    pub every: Duration,
}

/// The page.
pub async fn lambdas(State(site): State<Arc<Site>>, asked: Asked) -> Response {
    match asked.facts(&site).await {
        Ok((moment, facts, every)) => asked.answer(&site, Some(&moment), &Lambdas { facts, every }),
        Err(answer) => answer,
    }
}

impl Show for Lambdas {
    fn title(&self) -> String {
        "Lambdas".to_owned()
    }

    fn part(&self) -> Part {
        Part::Overview
    }

    fn every(&self) -> Option<Duration> {
        Some(self.every)
    }

    fn body(&self, frame: &Frame) -> Markup {
        html! {
            div .lead { h1 { (self.facts.lambdas.len()) " lambdas" } (parts::as_of(frame, self.every())) }
            (table_of(frame, self.facts.lambdas.iter()))
        }
    }
}

/// A list of rows of a view.
#[derive(Debug, Serialize)]
pub struct List {
    #[serde(skip)]
    kind: &'static Listed,
    /// The rows.
    pub rows: Vec<Value>,
    /// There are more rows than these.
    pub and_more: bool,
}

/// A kind of list.
#[derive(Debug)]
pub struct Listed {
    title: &'static str,
    /// The name of the rows, after their number.
    are: &'static str,
    none: &'static str,
    view: &'static str,
    order: &'static str,
    /// The column by which one row is named; if rows have none, one that is null.
    number: &'static str,
    /// The columns that a list reads, where the view has some that count rows. None: all.
    fields: Option<&'static str>,
    columns: &'static [Column],
}

/// Executors, the newest first.
pub const EXECUTORS: Listed = Listed {
    title: "Executors",
    are: "executors, the newest first",
    none: "No executor has registered. A worker that starts is one.",
    view: "executors",
    order: "order by executor_id desc",
    number: "v.executor_id",
    fields: None,
    columns: &[
        Column::new("Executor", "executor_id", Kind::Link("executors")),
        Column::new("State", "state", Kind::Text),
        Column::new("Lambdas", "lambdas", Kind::Text),
        Column::wide("Host", "host", Kind::Text),
        Column::wide("Process", "pid", Kind::Code),
        Column::wide("SDK", "sdk_version", Kind::Code),
        Column::wide("Role", "role", Kind::Text),
        Column::new("Leases", "leases", Kind::Count),
        Column::wide("Heartbeat", "beat_at", Kind::Age),
        Column::wide("Registered", "started_at", Kind::Age),
    ],
};

/// Operations, the newest first.
pub const OPERATIONS: Listed = Listed {
    title: "Operations",
    are: "operations, the newest first",
    none: "Nobody has started an operation.",
    view: "operations",
    order: "order by operation_id desc",
    number: "v.operation_id",
    fields: Some(
        "v.operation_id, v.action, v.state, v.lambda, v.value, v.collection, v.priority, v.fingerprint,
         v.canary, v.looked, v.changed, v.spared, v.locked, v.reason, v.author, v.begun_at, v.ended_at,
         v.note",
    ),
    columns: &[
        Column::new("Operation", "operation_id", Kind::Link("operations")),
        Column::new("Action", "action", Kind::Text).above("reason"),
        Column::new("State", "state", Kind::State).above("note"),
        Column::wide("Lambda", "lambda", Kind::Text),
        Column::new("Changed", "changed", Kind::Count),
        Column::wide("Looked at", "looked", Kind::Count),
        Column::wide("Spared", "spared", Kind::Count),
        Column::wide("Author", "author", Kind::Text),
        Column::wide("Begun", "begun_at", Kind::Age),
        Column::wide("Ended", "ended_at", Kind::Age),
    ],
};

/// Acts of operators and owners, the newest first.
pub const AUDIT: Listed = Listed {
    title: "Audit",
    are: "acts, the newest first",
    none: "Nobody has acted.",
    view: "acts",
    order: "order by at desc",
    number: "null::bigint",
    fields: None,
    columns: &[
        Column::new("When", "at", Kind::Age),
        Column::new("Actor", "actor", Kind::Text).above("person"),
        Column::new("Act", "verb", Kind::Code).above("subject"),
        Column::wide("Detail", "detail", Kind::Text),
    ],
};

impl List {
    /// Reads the rows, or one. None: there is none of that number.
    ///
    /// # Errors
    /// The connection's or the server's.
    pub async fn read(
        client: &Client,
        kind: &'static Listed,
        id: Option<i64>,
    ) -> Result<Option<Self>, Error> {
        let number = kind.number;
        let rest =
            format!("where $1::bigint is null or {number} = $1 {} limit {}", kind.order, MOST + 1);
        let of_id: &Parameters<'_> = &[(&id, Type::INT8)];
        let mut rows = match kind.fields.filter(|_| id.is_none()) {
            Some(fields) => {
                let sql = format!("select {fields} from tuskline.{} v {rest}", kind.view);
                rows(client, &sql, of_id).await?
            }
            None => view(client, kind.view, &[], &rest, of_id).await?,
        };
        if id.is_some() && rows.is_empty() {
            return Ok(None);
        }
        let and_more = rows.len() > MOST;
        rows.truncate(MOST);
        Ok(Some(Self { kind, rows, and_more }))
    }
}

/// The page.
pub async fn page(
    State(site): State<Arc<Site>>,
    asked: Asked,
    kind: &'static Listed,
    number: Option<String>,
) -> Response {
    let number: Option<i64> = match number.map(|number| number.parse()).transpose() {
        Ok(number) => number,
        Err(_) => return asked.answer(&site, None, &Refused::bad("it has a number")),
    };
    let read = asked.read(&site, async |client| List::read(client, kind, number).await).await;
    asked.page(&site, asked.found(read, "there is none of this number"))
}

impl Show for List {
    fn title(&self) -> String {
        self.kind.title.to_owned()
    }

    fn part(&self) -> Part {
        Part::Other
    }

    fn every(&self) -> Option<Duration> {
        Some(Duration::from_secs(30))
    }

    fn body(&self, frame: &Frame) -> Markup {
        let number = count(self.rows.len() as i64);
        html! {
            div .lead {
                h1 { (self.kind.title) }
                p { (number) @if self.and_more { "+" } " " (self.kind.are) }
                (parts::as_of(frame, self.every()))
            }
            @if self.rows.is_empty() { p .muted { (self.kind.none) } }
            @else { (table(frame, self.kind.columns, &self.rows, |row| stop(frame, row))) }
        }
    }
}

/// The act that stops an operation.
fn stop(frame: &Frame, row: &Value) -> Option<Markup> {
    let operation = row["operation_id"].as_i64().filter(|_| row["ended_at"].is_null())?.to_string();
    Some(link(frame, "stop", &[("operation", &operation)], "Stop…"))
}
