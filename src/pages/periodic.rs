//! Periodic tasks: which schedules are there, and when is the next tick?

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use chrono::{DateTime, Utc};
use maud::{Markup, html};
use serde::Serialize;
use serde_json::Value;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error};

use super::act::link;
use super::asked::Asked;
use super::parts::{self, Frame, Part, Show, encoded, time};
use super::site::Site;
use super::table::{Column, Kind, moment, table, text};
use super::words::{NOTHING, ago};
use crate::periodic::CronSchedule;
use crate::store::rows::{Parameters, view};

/// Schedules on the page.
const MOST: usize = 200;
/// Ticks that are foreseen.
const FORESEEN: usize = 10;

/// All schedules, or one.
#[derive(Debug, Serialize)]
pub struct Periodic {
    /// The schedules.
    pub schedules: Vec<Value>,
    pub and_more: bool,
    /// The name of the only one that was asked for.
    pub name: Option<String>,
    /// The next ticks of that one.
    pub next: Vec<DateTime<Utc>>,
}

impl Periodic {
    /// Reads the schedules: one statement. None: there is no schedule of that name.
    ///
    /// # Errors
    /// The connection's or the server's.
    pub async fn read(
        client: &Client,
        name: Option<String>,
        after: Option<&String>,
    ) -> Result<Option<Self>, Error> {
        let rest = "where ($1::text is null or v.name = $1) and v.name > coalesce($2, '')
                    order by name limit 201";
        let names: &Parameters<'_> = &[(&name, Type::TEXT), (&after, Type::TEXT)];
        let mut schedules = view(client, "periodics", &[], rest, names).await?;
        if name.is_some() && schedules.is_empty() {
            return Ok(None);
        }
        let and_more = schedules.len() > MOST;
        schedules.truncate(MOST);
        for one in &mut schedules {
            one["words"] = words(one).into();
        }
        let next = name.as_ref().map(|_| next_ticks(&schedules[0])).unwrap_or_default();
        Ok(Some(Self { schedules, and_more, name, next }))
    }

    fn one(&self, frame: &Frame) -> Markup {
        let Some(schedule) = self.name.as_ref().and(self.schedules.first()) else {
            return html! {};
        };
        let zone: Option<chrono_tz::Tz> = text(&schedule["zone"]).parse().ok();
        let fields = [
            ("cron", "cron"),
            ("in words", "words"),
            ("zone", "zone"),
            ("missed ticks", "missed"),
            ("overlap", "overlap"),
            ("collection", "collection"),
            ("priority", "priority"),
            ("author", "author"),
            ("starts", "starts_at"),
            ("ends", "ends_at"),
            ("problem", "problem"),
        ];
        html! {
            section aria-labelledby="next" {
                header { h2 #next { "Next ticks" } }
                @if self.next.is_empty() { p .muted { "None: it is paused, or it has ended." } }
                @else { table {
                    thead { tr {
                        th scope="col" { (text(&schedule["zone"])) }
                        th .n scope="col" { "UTC" } th .n scope="col" { "In" }
                    } }
                    tbody { @for tick in &self.next { tr {
                        td { @if let Some(zone) = zone {
                            (tick.with_timezone(&zone).format("%a %-d %b %H:%M %Z").to_string())
                        } }
                        td .n { (time(*tick, &tick.format("%a %-d %b %H:%M").to_string())) }
                        td .n { (frame.now.map_or_else(String::new, |now| ago(now - *tick))) }
                    } } }
                } }
            }
            section aria-labelledby="settings" {
                header { h2 #settings { "Settings" } }
                dl .pairs { @for (label, field) in fields {
                    @if !schedule[field].is_null() { div { dt { (label) } dd { code { (text(&schedule[field])) } } } }
                } }
            }
        }
    }
}

/// The cron of a schedule in words; none: this build does not read it.
fn words(schedule: &Value) -> Option<String> {
    let (cron, zone) = (schedule["cron"].as_str()?, schedule["zone"].as_str()?);
    Some(CronSchedule::parse(cron, zone).ok()?.words())
}

/// The next ticks of a schedule that is not paused.
fn next_ticks(schedule: &Value) -> Vec<DateTime<Utc>> {
    let (Some(cron), Some(zone)) = (schedule["cron"].as_str(), schedule["zone"].as_str()) else {
        return Vec::new();
    };
    let Ok(cron) = CronSchedule::parse(cron, zone) else { return Vec::new() };
    let ends = moment(&schedule["ends_at"]);
    let first = moment(&schedule["next_tick"]).filter(|_| schedule["enabled"] == true);
    let next = |last: &DateTime<Utc>| cron.next(*last).ok().flatten();
    let ticks = std::iter::successors(first, next);
    ticks.take_while(|tick| ends.is_none_or(|ends| *tick < ends)).take(FORESEEN).collect()
}

/// The page.
pub async fn page(State(site): State<Arc<Site>>, asked: Asked, name: Option<String>) -> Response {
    let after = asked.query.get("after");
    let read = async |client: &Client| Periodic::read(client, name, after).await;
    let read = asked.read(&site, read).await;
    asked.page(&site, asked.found(read, "there is no schedule of this name"))
}

impl Show for Periodic {
    fn title(&self) -> String {
        self.name.clone().unwrap_or_else(|| "Periodic tasks".to_owned())
    }

    fn part(&self) -> Part {
        Part::Periodic
    }

    fn every(&self) -> Option<Duration> {
        Some(Duration::from_secs(30))
    }

    fn body(&self, frame: &Frame) -> Markup {
        const COLUMNS: [Column; 7] = [
            Column::new("Schedule", "name", Kind::Link("periodic")).above("problem"),
            Column::new("Lambda", "lambda", Kind::Link("lambdas")),
            Column::wide("When", "words", Kind::Text).above("zone"),
            Column::wide("Last tick", "last_tick", Kind::Age),
            Column::wide("Last task", "last_task", Kind::Link("tasks")).above("last_status"),
            Column::new("Next", "next_tick", Kind::Age),
            Column::wide("Enabled", "enabled", Kind::Text),
        ];
        let troubled = self.schedules.iter().filter(|one| text(&one["problem"]) != NOTHING).count();
        let paused = self.schedules.iter().filter(|one| one["enabled"] == false).count();
        html! {
            @if self.name.is_some() { p .crumb { a href=(frame.to("periodic")) { "Periodic tasks" } } }
            div .lead {
                h1 { (self.title()) }
                @if self.name.is_none() { p {
                    (self.schedules.len()) @if self.and_more { "+" } " schedules; "
                    (troubled) " with a problem, " (paused) " paused"
                } }
                (parts::as_of(frame, self.every()))
            }
            @if self.schedules.is_empty() { p .muted { "None. tuskline.define_periodic() makes one." } }
            @else { (table(frame, &COLUMNS, &self.schedules, |row| act(frame, row))) }
            @if let Some(last) = self.schedules.last().filter(|_| self.and_more) {
                p .links { a href=(frame.to(&format!("periodic?after={}", encoded(&text(&last["name"]))))) { "More schedules" } }
            }
            (self.one(frame))
        }
    }
}

fn act(frame: &Frame, row: &Value) -> Option<Markup> {
    let (verb, word) = match row["enabled"].as_bool()? {
        true => ("pause_periodic", "Pause…"),
        false => ("resume_periodic", "Resume…"),
    };
    let name = &[("name", row["name"].as_str()?)];
    Some(
        html! { (link(frame, verb, name, word)) " " (link(frame, "run_periodic", name, "Run now…")) },
    )
}
