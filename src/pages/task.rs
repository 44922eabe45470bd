//! One task: why does it not run, and where did its time go?

mod attempts;

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::response::Response;
use chrono::{DateTime, Utc};
use maud::{Markup, html};
use serde::Serialize;
use serde_json::Value;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error};

use super::act::link;
use super::asked::Asked;
use super::parts::{self, Frame, Part, Show, command, time};
use super::reading::Access;
use super::refusal::Refused;
use super::site::Site;
use super::table::{Column, Kind, moment, plain, state, text};
use super::words::{self, NOTHING, count};
use crate::identity::Person;
use crate::store::rows::{rows, view};

/// A task.
#[derive(Debug, Serialize)]
pub struct Task {
    /// Its status, times, keys and lease.
    pub facts: Value,
    /// Its newest attempts, the newest first.
    pub attempts: Vec<Value>,
    /// There are more.
    pub more_attempts: bool,
    /// Why it does not run.
    pub explain: Vec<Value>,
    /// Its place in a chain.
    pub chain: Option<Value>,
    /// Acts on it, the newest first.
    pub acts: Vec<Value>,
    /// Payload, output and checkpoint as they are stored, if they were asked for.
    pub contents: Option<Contents>,
}

/// The contents of a task.
#[derive(Debug, Serialize)]
pub struct Contents {
    pub payload: Option<String>,
    pub output: Option<String>,
    pub checkpoint: Option<String>,
}

impl Task {
    /// Reads a task: five statements. None: no task has this id, or its retention is over.
    ///
    /// # Errors
    /// The connection's or the server's.
    pub async fn read(client: &Client, id: i64, shows: bool) -> Result<Option<Self>, Error> {
        let task: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 1] = [(&id, Type::INT8)];
        let found = rows(client, "select * from tuskline.task_facts($1)", &task).await?;
        let Some(facts) = found.into_iter().next() else { return Ok(None) };
        let (attempts, more_attempts) = attempts::read(client, &task).await?;
        let explain = rows(client, "select * from tuskline.explain($1)", &task).await?;
        let chain = view(client, "chain_tasks", &[], "where task_id = $1", &task).await?;
        let acts = "where subject = 'task ' || $1::bigint order by at desc limit 20";
        let acts = view(client, "acts", &[], acts, &task).await?;
        let contents = if shows { Some(Contents::read(client, id).await?) } else { None };
        let chain = chain.into_iter().next();
        Ok(Some(Self { facts, attempts, more_attempts, explain, chain, acts, contents }))
    }

    fn at(&self, field: &str) -> Option<DateTime<Utc>> {
        moment(&self.facts[field])
    }

    fn has_ended(&self) -> bool {
        !self.facts["finished_at"].is_null()
    }

    fn id(&self) -> String {
        text(&self.facts["id"])
    }
}

impl Contents {
    /// Reads them, which the audit notes.
    async fn read(client: &Client, id: i64) -> Result<Self, Error> {
        let sql = "select payload, output, checkpoint from tuskline.show_contents($1)";
        let row = client.query_typed_one(sql, &[(&id, Type::INT8)]).await?;
        Ok(Self { payload: row.get(0), output: row.get(1), checkpoint: row.get(2) })
    }
}

/// The page.
pub async fn page(State(site): State<Arc<Site>>, asked: Asked, Path(id): Path<String>) -> Response {
    let Ok(id) = id.parse() else {
        return asked.answer(&site, None, &Refused::bad("a task has a number"));
    };
    let shows = asked.query.get("show").is_some_and(|show| show == "contents");
    let Person { name: person, role, .. } = &asked.person;
    let access = if shows { Access::Act { person } } else { Access::Read };
    let read =
        site.sessions.of(role, access, async |client| Task::read(client, id, shows).await).await;
    let read = asked.found(read, "no task has this id, or its retention is over");
    asked.page(&site, read)
}

impl Show for Task {
    fn title(&self) -> String {
        format!("Task {}", self.id())
    }

    fn part(&self) -> Part {
        Part::Tasks
    }

    fn every(&self) -> Option<Duration> {
        (!self.has_ended()).then_some(Duration::from_secs(5))
    }

    fn body(&self, frame: &Frame) -> Markup {
        let lambda = text(&self.facts["lambda"]);
        html! {
            p .crumb {
                a href=(frame.to("tasks")) { "Tasks" } " / "
                a href=(frame.to(&format!("lambdas/{lambda}"))) { (lambda) }
            }
            div .lead {
                h1 { "Task " (self.id()) }
                (state(&text(&self.facts["status"])))
                p { (self.sentence()) }
                (parts::as_of(frame, self.every()))
            }
            (self.acts(frame, &lambda))
            (self.remedies())
            (self.times(frame))
            (attempts::list(frame, &self.attempts, self.more_attempts))
            div .cols .two { (self.shown(frame)) (self.settings(frame)) }
            (self.list_acts(frame))
        }
    }
}

impl Task {
    /// The state in a sentence.
    fn sentence(&self) -> String {
        let attempt = &self.facts["attempt"];
        let most = &self.facts["max_attempts"];
        let tries = match attempt.as_i64() {
            None | Some(0) => "not begun yet".to_owned(),
            Some(attempt) => format!("attempt {attempt} of {}", text(most)),
        };
        match text(&self.facts["error_class"]) {
            class if class == NOTHING => tries,
            class => format!("{tries}; last error: {class}"),
        }
    }

    /// The acts that its state allows.
    fn acts(&self, frame: &Frame, lambda: &str) -> Markup {
        let id = self.id();
        let waits = matches!(
            text(&self.facts["status"]).as_str(),
            "new" | "enqueued" | "retriable_failure"
        );
        let acts: &[_] = match (self.has_ended(), waits) {
            (true, _) if text(&self.facts["status"]) == "success" => &[],
            (true, _) => &[("retry", "Retry…")],
            (false, _) => &[("cancel", "Cancel…")],
        };
        let others = [("lambda", lambda), ("ids", &*id)];
        html! {
            p .acts {
                @for (act, words) in acts { (link(frame, act, &[("task", &id)], words)) }
                @if waits {
                    (link(frame, "priority", &others, "Priority…"))
                    (link(frame, "collection", &others, "Collection…"))
                }
            }
        }
    }

    fn remedies(&self) -> Markup {
        if self.explain.is_empty() {
            return html! {};
        }
        html! {
            section .explain aria-labelledby="why" {
                header { h2 #why { @if self.has_ended() { "Why it ended" } @else { "Why it does not run" } } }
                table {
                    thead { tr {
                        th scope="col" { "Reason" } th scope="col" { "Detail" }
                        th .wide scope="col" { "Row that causes it" }
                    } }
                    tbody { @for one in &self.explain {
                        tr {
                            th scope="row" { code { (text(&one["reason"])) } }
                            td .text { (text(&one["detail"])) }
                            td .wide { code { (text(&one["cause"])) } }
                        }
                    } }
                }
                @for (number, one) in self.explain.iter().enumerate() {
                    @if let Some(remedy) = one["remedy"].as_str() {
                        (command(&format!("remedy-{number}"), remedy))
                    }
                }
            }
        }
    }

    fn times(&self, frame: &Frame) -> Markup {
        let steps = [
            ("created", "created_at"),
            ("due", "due_at"),
            ("started", "started_at"),
            ("next due", "next_trigger_at"),
            ("ended", "finished_at"),
        ];
        let waited = self.at("started_at").zip(self.at("due_at")).map(|(start, due)| start - due);
        html! {
            section aria-labelledby="path" {
                header { h2 #path { "Path" } @if let Some(waited) = waited {
                    p { "from due to its first start: " (words::span(waited.num_milliseconds())) }
                } }
                ol .steps {
                    @for (name, field) in steps {
                        @if let Some(at) = self.at(field) {
                            li class=[(frame.now.is_none_or(|now| at <= now)).then_some("done")] {
                                (name) ", " (time(at, &at.format("%Y-%m-%d %H:%M:%S%.3f").to_string()))
                            }
                        }
                    }
                }
            }
        }
    }

    fn shown(&self, frame: &Frame) -> Markup {
        let page = format!("tasks/{}", self.id());
        html! {
            section aria-labelledby="contents" {
                header {
                    h2 #contents { "Payload, output, checkpoint" }
                    p .end {
                        @if self.contents.is_some() { a href=(frame.to(&page)) { "Hide" } }
                        @else { a href=(frame.to(&format!("{page}?show=contents"))) { "Show" } }
                    }
                }
                @match &self.contents {
                    None => p .muted { "Hidden. A look at them is a row of the audit." },
                    Some(shown) => @for (name, part) in [
                        ("payload", &shown.payload), ("output", &shown.output),
                        ("checkpoint", &shown.checkpoint),
                    ] {
                        @if let Some(part) = part {
                            h3 { (name) ", " (count(part.len() as i64)) " bytes as they are stored" }
                            pre { (part) }
                        }
                    }
                }
            }
        }
    }

    fn settings(&self, frame: &Frame) -> Markup {
        let fields = [
            ("collection", "collection"),
            ("priority", "priority"),
            ("ordering key", "ordering_key"),
            ("limit key", "limit_key"),
            ("fairness key", "fairness_key"),
            ("unique key", "unique_key"),
            ("crashes", "crashes"),
            ("executor", "executor_id"),
            ("host", "host"),
            ("traceparent", "traceparent"),
        ];
        html! {
            section aria-labelledby="settings" {
                header { h2 #settings { "Settings" } }
                dl .pairs {
                    @for (label, field) in fields {
                        @if !self.facts[field].is_null() {
                            div { dt { (label) } dd { code { (text(&self.facts[field])) } } }
                        }
                    }
                    @if let Some(chain) = &self.chain {
                        div { dt { "chain" } dd {
                            a href=(frame.to(&format!("chains/{}", text(&chain["chain_id"])))) { (text(&chain["chain_id"])) }
                            " as " code { (text(&chain["name"])) }
                        } }
                    }
                }
                (command("same", &format!("select * from tuskline.task_status({});", self.id())))
            }
        }
    }

    fn list_acts(&self, frame: &Frame) -> Markup {
        const COLUMNS: [Column; 4] = [
            Column::new("When", "at", Kind::Age),
            Column::new("Actor", "actor", Kind::Text).above("person"),
            Column::new("Act", "verb", Kind::Code),
            Column::wide("Detail", "detail", Kind::Text),
        ];
        html! {
            @if !self.acts.is_empty() {
                section aria-labelledby="acts" {
                    header { h2 #acts { "Acts" } }
                    (plain(frame, &COLUMNS, &self.acts))
                }
            }
        }
    }
}
