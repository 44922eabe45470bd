//! Tasks: which ones, by what they are and what they hold?
//!
//! Promises: a search that is not understood says why; a look says how far it came, and a link goes on
//! from there. Must never: show a payload, or count all that match.

mod query;
mod routes;
mod table;
mod times;

use std::collections::BTreeMap;

use axum::http::StatusCode;
use chrono::{DateTime, Utc};
use maud::{Markup, html};
use serde::Serialize;
use serde_json::{Value, json};
use tokio_postgres::{Client, Error};

use super::parts::{Frame, Part, Show, encoded};
use super::words::{about, count, span};
use crate::store::rows::value;
use crate::store::tasks::{
    self, PAGES_OF_A_LOOK, Scanned, Source, Trace, failures, key_holders, tasks_of,
};

pub use query::{Query, parse};
pub use routes::{go, page};
pub use times::time;

/// Tasks on the page.
const MOST: i64 = 50;

/// A search and what it found.
#[derive(Debug, Default, Serialize)]
pub struct Search {
    /// The text.
    pub q: String,
    /// Why it is not understood.
    pub error: Option<String>,
    #[serde(flatten)]
    pub found: Option<Found>,
}

/// Tasks of a look.
#[derive(Debug, Serialize)]
pub struct Found {
    /// The newest first, each with its last error.
    pub tasks: Vec<Value>,
    /// Tasks of the lambda that wait with the key, or hold it.
    pub key_holders: Vec<Value>,
    /// Tasks, or dead letters, that were looked at.
    pub looked: i64,
    /// An estimate of how many there are.
    pub all: i64,
    /// They are dead letters.
    pub of_dead_letters: bool,
    /// When the last of these was scheduled.
    pub back_to: Option<DateTime<Utc>>,
    /// Where the next look begins: `from=`. None: there is nothing behind.
    pub next_ids: Option<Vec<i64>>,
    pub pages: i64,
    pub took_ms: i64,
    #[serde(skip)]
    words: Vec<String>,
    #[serde(skip)]
    is_begin: bool,
    /// Nothing is left out: neither newer nor older ones.
    #[serde(skip)]
    is_whole: bool,
}

/// The ids of `from=`: one of each kind.
pub fn ids(text: Option<&String>) -> Result<Vec<i64>, String> {
    let Some(text) = text.filter(|text| !text.is_empty()) else { return Ok(Vec::new()) };
    let ids: Result<Vec<i64>, _> = text.split(',').take(3).map(str::parse).collect();
    match ids {
        Ok(ids) if ids.len() < 3 && ids.iter().all(|id| *id > 0) => Ok(ids),
        _ => Err("from= is the place where a look ended: one or two ids with a comma.".to_owned()),
    }
}

impl Search {
    /// A search that is not understood.
    pub fn wrong(q: &str, error: String) -> Self {
        let q = q.chars().take(query::LONGEST).collect();
        Self { q, error: Some(error), found: None }
    }

    /// Looks for the tasks.
    ///
    /// # Errors
    /// The connection's or the server's.
    pub async fn read(client: &Client, q: &str, from: Vec<i64>) -> Result<Self, Error> {
        let now = value(client, "select tuskline.clock()", &[]).await?;
        let filter = match parse(q, now) {
            Ok(query) => query.filter,
            Err(error) => return Ok(Self::wrong(q, error)),
        };
        let is_begin = from.is_empty();
        let holders = match (&filter.lambdas, &filter.keys) {
            (Some(lambdas), Some(keys)) if is_begin => key_holders(client, lambdas, keys).await?,
            _ => Vec::new(),
        };
        let look = tasks::look(client, &filter, Trace { from, limit: MOST }).await?;
        let mut key_holders = tasks_of(client, &holders).await?;
        let mut found = Found::of(look, is_begin);
        for list in [&mut found.tasks, &mut key_holders] {
            add_errors(client, list).await?;
        }
        let has_bounds = filter.after.is_some() || filter.before.is_some();
        found.is_whole = is_begin && !has_bounds && filter.source() != Source::Causes;
        let found = Found { key_holders, words: filter.words, ..found };
        Ok(Self { q: q.trim().to_owned(), error: None, found: Some(found) })
    }
}

/// Gives each task its last error.
async fn add_errors(client: &Client, tasks: &mut [Value]) -> Result<(), Error> {
    let ids: Vec<i64> = tasks.iter().filter_map(|task| task["id"].as_i64()).collect();
    if ids.is_empty() {
        return Ok(());
    }
    let failures = failures(client, &ids).await?;
    let mut errors: BTreeMap<i64, String> = BTreeMap::new();
    for one in failures {
        let message = one.message.map_or_else(String::new, |message| format!(": {message}"));
        errors.insert(one.id, format!("{}{message}", one.error_class));
    }
    for task in tasks {
        task["error"] = json!(task["id"].as_i64().and_then(|id| errors.remove(&id)));
    }
    Ok(())
}

impl Found {
    fn of(look: Scanned, is_begin: bool) -> Self {
        Self {
            tasks: look.tasks,
            key_holders: Vec::new(),
            looked: look.looked,
            all: look.all,
            of_dead_letters: look.source != Source::Segments,
            back_to: look.back_to,
            next_ids: look.next,
            pages: look.pages,
            took_ms: i64::try_from(look.took.as_millis()).unwrap_or(i64::MAX),
            words: Vec::new(),
            is_begin,
            is_whole: false,
        }
    }

    /// How far the look came.
    fn reach(&self) -> String {
        let kind = if self.of_dead_letters { "dead letters" } else { "tasks" };
        let looked = count(self.looked);
        match (&self.next_ids, self.back_to) {
            (None, _) if self.is_whole => {
                format!("Looked at all {looked} {kind}")
            }
            (None, _) => {
                format!(
                    "Looked at {looked} of {} {kind}, to the oldest in question",
                    about(self.all)
                )
            }
            (Some(_), Some(at)) => {
                format!("Looked at {looked} of {} {kind}, back to {}", about(self.all), clock(at))
            }
            (Some(_), None) => {
                "Looked at no task: the time was over before one was read".to_owned()
            }
        }
    }
}

fn clock(at: DateTime<Utc>) -> String {
    at.format("%Y-%m-%d %H:%M:%S").to_string()
}

impl Show for Search {
    fn title(&self) -> String {
        "Tasks".to_owned()
    }

    fn part(&self) -> Part {
        Part::Tasks
    }

    fn status(&self) -> StatusCode {
        if self.error.is_some() { StatusCode::BAD_REQUEST } else { StatusCode::OK }
    }

    fn body(&self, frame: &Frame) -> Markup {
        html! {
            div .lead {
                h1 { "Tasks" }
                @if let Some(found) = &self.found {
                    p {
                        (found.tasks.len()) @if found.tasks.len() == 1 { " match" } @else { " matches" }
                        " in this look, newest first"
                    }
                }
            }
            form .find role="search" aria-label="Tasks" action=(frame.to("tasks")) {
                label .sr for="find" { "Search tasks" }
                input #find name="q" value=(self.q) autocomplete="off" spellcheck="false"
                    aria-invalid=[self.error.as_ref().map(|_| "true")]
                    aria-describedby=[self.error.as_ref().map(|_| "wrong")];
                button type="submit" { "Search" }
            }
            (self.choices(frame, "status", &query::statuses()))
            (self.choices(frame, "priority", &query::priorities()))
            (help())
            @if let Some(error) = &self.error { div .note.warm { p #wrong { (error) } } }
            @if let Some(found) = &self.found { (self.list(frame, found)) }
        }
    }
}

impl Search {
    fn to(&self, frame: &Frame, q: &str, from: Option<&[i64]>) -> String {
        let from = from.map(|ids| ids.iter().map(i64::to_string).collect::<Vec<_>>().join(","));
        let from = from.map_or_else(String::new, |from| format!("&from={from}"));
        frame.to(&format!("tasks?q={}{from}", encoded(q)))
    }

    /// The values of a token as links.
    fn choices(&self, frame: &Frame, token: &str, labels: &[&str]) -> Markup {
        let chosen = |label: &str| self.q.split(' ').any(|one| one == format!("{token}:{label}"));
        let link = |value| self.to(frame, &query::with(&self.q, token, value), None);
        html! {
            nav .links aria-label=(token) {
                span { (token) ":" }
                a href=(link(None)) { "any" }
                @for label in labels {
                    a href=(link(Some(label))) aria-current=[chosen(label).then_some("true")] { (label) }
                }
            }
        }
    }

    fn list(&self, frame: &Frame, found: &Found) -> Markup {
        let goes_on = found.next_ids.as_ref().map(|ids| self.to(frame, &self.q, Some(ids)));
        html! {
            @if !found.key_holders.is_empty() {
                section aria-labelledby="holders" {
                    header {
                        h2 #holders { "Wait with this key now, or hold it" }
                        p { "found by an index; the look below finds others, too" }
                    }
                    (table::of(frame, found, &found.key_holders))
                }
            }
            section aria-labelledby="found" {
                header {
                    h2 #found { (found.reach()) }
                    p {
                        (count(found.pages)) " pages in " (span(found.took_ms)) "; one look reads "
                        (count(PAGES_OF_A_LOOK)) " at most"
                    }
                    @if let Some(link) = &goes_on { p .end { a href=(link) { "Continue the look" } } }
                }
                @if !found.tasks.is_empty() { (table::of(frame, found, &found.tasks)) }
                @else if goes_on.is_some() { p .muted { "No match so far." } }
                @else { p .muted { "No task matches." } }
            }
            nav .pager aria-label="More matches" {
                p .links {
                    @if !found.is_begin { a href=(self.to(frame, &self.q, None)) { "Newest" } }
                    @if let (Some(link), Some(at)) = (&goes_on, found.back_to) {
                        a href=(link) { "Continue the look from " (clock(at)) }
                    }
                }
            }
        }
    }
}

fn help() -> Markup {
    html! {
        details {
            summary { "What a search may say" }
            table { tbody { @for (tokens, meaning) in query::TOKENS {
                tr { th scope="row" { code { (tokens) } } td { (meaning) } }
            } } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_one_or_two_ids() {
        let ids = |text: &str| ids(Some(&text.to_owned()));
        assert_eq!(ids("7,9"), Ok(vec![7, 9]));
        assert_eq!(ids(""), Ok(vec![]));
        for wrong in ["x", "0", "-3", "1,2,3", "1,", "99999999999999999999"] {
            assert!(ids(wrong).is_err(), "{wrong}");
        }
    }
}
