//! A chain: what does it wait for?

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::response::Response;
use maud::{Markup, html};
use serde::Serialize;
use serde_json::Value;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error};

use super::act::links;
use super::asked::Asked;
use super::parts::{self, Frame, Part, Show};
use super::refusal::Refused;
use super::site::Site;
use super::table::{Column, Kind, plain, text};
use super::words::count;
use crate::store::rows::{Parameters, view};

/// Tasks of a chain on its page.
const MOST: usize = 150;

/// A chain.
#[derive(Debug, Serialize)]
pub struct Chain {
    pub chain_id: i64,
    /// Its first tasks, parents before children.
    pub tasks: Vec<Value>,
    /// There are more.
    pub and_more: bool,
}

impl Chain {
    /// Reads the chain of a task, behind the id `after`. None: it is in no chain.
    ///
    /// # Errors
    /// The connection's or the server's.
    pub async fn read(client: &Client, task: i64, after: i64) -> Result<Option<Self>, Error> {
        let rest = "where chain_id = (select chain_id from tuskline.chain_tasks where task_id = $1)
                      and task_id > $2
                     order by task_id limit 151";
        let ids: &Parameters<'_> = &[(&task, Type::INT8), (&after, Type::INT8)];
        let mut tasks = view(client, "chain_tasks", &[], rest, ids).await?;
        let and_more = tasks.len() > MOST;
        tasks.truncate(MOST);
        tasks.sort_by_key(|task| (task["depth"].as_i64(), task["task_id"].as_i64()));
        let chain_id = tasks.first().and_then(|task| task["chain_id"].as_i64());
        Ok(chain_id.map(|chain_id| Self { chain_id, tasks, and_more }))
    }

    fn waits(&self) -> usize {
        self.tasks.iter().filter(|task| !task["waits_for"].is_null()).count()
    }

    fn ended(&self) -> usize {
        self.tasks.iter().filter(|task| !task["finished_at"].is_null()).count()
    }
}

/// The page.
pub async fn page(State(site): State<Arc<Site>>, asked: Asked, Path(id): Path<String>) -> Response {
    let Ok(id) = id.parse() else {
        return asked.answer(&site, None, &Refused::bad("a chain has a number"));
    };
    let after = asked.query.get("after").and_then(|id| id.parse().ok()).unwrap_or(0);
    let read = asked.read(&site, async |client| Chain::read(client, id, after).await).await;
    asked.page(&site, asked.found(read, "no chain has this number, or its retention is over"))
}

impl Show for Chain {
    fn title(&self) -> String {
        format!("Chain {}", self.chain_id)
    }

    fn part(&self) -> Part {
        Part::Tasks
    }

    fn every(&self) -> Option<Duration> {
        (self.ended() < self.tasks.len()).then_some(Duration::from_secs(5))
    }

    fn body(&self, frame: &Frame) -> Markup {
        const COLUMNS: [Column; 7] = [
            Column::new("Task", "task_id", Kind::Link("tasks")).above("lambda"),
            Column::wide("Name", "name", Kind::Code),
            Column::new("Status", "status", Kind::State),
            Column::wide("Parents", "parents", Kind::Code),
            Column::new("Waits for", "waits_for", Kind::Link("tasks")),
            Column::wide("Started", "started_at", Kind::Age),
            Column::wide("Ended", "finished_at", Kind::Age),
        ];
        let all = self.tasks.len();
        let first = self.tasks.first().map_or_else(String::new, |task| text(&task["task_id"]));
        let number = |of: usize| count(of as i64);
        html! {
            p .crumb { a href=(frame.to("tasks")) { "Tasks" } " / chains" }
            div .lead {
                h1 { "Chain " (self.chain_id) }
                p {
                    (number(all)) @if self.and_more { "+" } " tasks: " (number(self.ended())) " ended, "
                    (number(self.waits())) " wait for a parent"
                }
                (parts::as_of(frame, self.every()))
            }
            (links(frame, &[("cancel_chain", "Cancel…"), ("retry_chain", "Retry…")], &[("task", &first)]))
            (plain(frame, &COLUMNS, &self.tasks))
            @if let Some(last) = self.tasks.iter().filter_map(|task| task["task_id"].as_i64()).max().filter(|_| self.and_more) {
                p .links { a href=(frame.to(&format!("chains/{}?after={last}", self.chain_id))) { "More tasks" } }
            }
            (parts::command("same", &format!(
                "select * from tuskline.chain_tasks where chain_id = {} order by depth;",
                text(&self.chain_id.into())
            )))
        }
    }
}
