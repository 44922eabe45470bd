//! The time line: what changed before it went wrong?
//!
//! Promises: each event of the drawing stands in the list; a page of the past never asks again.

mod events;
mod plot;

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use chrono::{DateTime, TimeDelta, Utc};
use maud::{Markup, html};
use serde::{Deserialize, Serialize};
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error};

use super::asked::Asked;
use super::parts::{self, Frame, Part, Show, encoded, time};
use super::refusal::Refused;
use super::site::Site;
use super::words::{NOTHING, span_of};
use crate::doctor::HORIZON;
use crate::duration;
use crate::facts::{Facts, Health};
use crate::store::rows::{Parameters, rows, value};
use events::{AuditRow, Event};

/// Events on the page.
const MOST: usize = 200;
/// Parts of the drawing.
const PARTS: i32 = 60;
/// Lambdas whose delays are drawn.
const DRAWN: usize = 2;
/// The spans that have links.
const SPANS: [(&str, &str); 4] = [("15m", "15 min"), ("1h", "1 h"), ("6h", "6 h"), ("1d", "1 d")];

/// A part of the past.
#[derive(Debug, Clone, Default)]
pub struct Span {
    /// Its end, as it was typed. None: now.
    pub until: Option<String>,
    /// Its length, as it was typed.
    pub span: String,
    length: TimeDelta,
}

impl Span {
    /// Reads `until=` and `span=`. A mistake is a sentence.
    pub fn of(until: Option<&String>, span: Option<&String>) -> Result<Self, String> {
        let span = span.map_or("1h", String::as_str).to_owned();
        let length = duration::parse(&span).ok().and_then(|span| TimeDelta::from_std(span).ok());
        let length = length
            .filter(|span| *span >= TimeDelta::minutes(1) && *span <= TimeDelta::days(31))
            .ok_or("span= is a duration from 1m to 31d: 15m, 1h, 6h, 1d")?;
        let until = until.cloned();
        if until.as_ref().is_some_and(|until| super::tasks::time(until, Utc::now()).is_none()) {
            return Err("until= is a time: 14:30, 2026-11-27T14:30Z, or 90m".to_owned());
        }
        Ok(Self { until, span, length })
    }
}

/// The time line.
#[derive(Debug, Serialize)]
pub struct Line {
    #[serde(skip)]
    asked: Span,
    pub from: DateTime<Utc>,
    pub until: DateTime<Utc>,
    /// The newest first.
    pub events: Vec<Event>,
    pub and_more: bool,
    /// How slow tasks started.
    pub delays: Vec<Delay>,
    /// Lines of the doctor about sessions that keep dead rows: they slow all statements.
    pub horizon: Vec<String>,
    #[serde(skip)]
    lambdas: Vec<String>,
}

/// The delay of a part of the time.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Delay {
    pub lambda: String,
    pub at: DateTime<Utc>,
    pub p95_ms: Option<i64>,
}

impl Line {
    /// Reads the events and the delays: four statements.
    ///
    /// # Errors
    /// The connection's or the server's.
    pub async fn read(
        client: &Client,
        asked: Span,
        (lambdas, facts): (Option<&String>, Option<&Facts>),
    ) -> Result<Self, Error> {
        let now: DateTime<Utc> = value(client, "select tuskline.clock()", &[]).await?;
        let until = asked.until.as_ref().and_then(|until| super::tasks::time(until, now));
        let until = until.unwrap_or(now);
        let from = until.checked_sub_signed(asked.length).unwrap_or(DateTime::UNIX_EPOCH);
        let within: &Parameters<'_> = &[(&from, Type::TIMESTAMPTZ), (&until, Type::TIMESTAMPTZ)];
        let (acts, groups) = events::read(client, within).await?;
        let lambdas = match lambdas {
            Some(named) => named.split(',').take(DRAWN).map(str::to_owned).collect(),
            None => drawn(&acts, facts),
        };
        let with: &Parameters<'_> = &[
            (&lambdas, Type::TEXT_ARRAY),
            (&from, Type::TIMESTAMPTZ),
            (&until, Type::TIMESTAMPTZ),
            (&PARTS, Type::INT4),
        ];
        let sql = "select * from tuskline.start_delays($1, $2, $3, $4)";
        let delays = rows(client, sql, with).await?;
        let mut events = events::of(&acts, &groups);
        let and_more = events.len() > MOST;
        events.truncate(MOST);
        Ok(Self { asked, from, until, events, and_more, delays, horizon: Vec::new(), lambdas })
    }

    fn address(&self, frame: &Frame, until: Option<&str>, span: &str) -> String {
        let until = until.map_or_else(String::new, |until| format!("&until={}", encoded(until)));
        frame.to(&format!("time?span={}{until}", encoded(span)))
    }
}

/// The lambdas that are late, then those of the acts, then those that need a person.
fn drawn(acts: &[AuditRow], facts: Option<&Facts>) -> Vec<String> {
    let rows = || facts.into_iter().flat_map(|facts| &facts.lambdas);
    let late = rows().filter(|row| row.health == Health::Late).map(|row| row.lambda.as_str());
    let of_acts = late.chain(acts.iter().filter_map(AuditRow::lambda));
    let others = rows().map(|row| row.lambda.as_str());
    let known = |name: &&str| facts.is_none_or(|facts| facts.lambda(name).is_some());
    let mut names: Vec<String> = Vec::new();
    for name in of_acts.chain(others).filter(known) {
        if !names.iter().any(|one| one == name) {
            names.push(name.to_owned());
        }
        if names.len() == DRAWN {
            break;
        }
    }
    names
}

/// The page.
pub async fn page(State(site): State<Arc<Site>>, asked: Asked) -> Response {
    let span = match Span::of(asked.query.get("until"), asked.query.get("span")) {
        Ok(span) => span,
        Err(error) => return asked.answer(&site, None, &Refused::bad(&error)),
    };
    let facts = site.shared.facts(&site.sessions).await.facts;
    let lambdas = asked.query.get("lambda");
    let read = async |client: &Client| Line::read(client, span, (lambdas, facts.as_deref())).await;
    let mut read = asked.read(&site, read).await;
    if let (Ok((_, line)), Some(examined)) = (&mut read, site.doctor.examined().await) {
        line.horizon = examined.of(HORIZON);
    }
    asked.page(&site, read)
}

impl Show for Line {
    fn title(&self) -> String {
        "Time line".to_owned()
    }

    fn part(&self) -> Part {
        Part::Time
    }

    fn every(&self) -> Option<Duration> {
        self.asked.until.is_none().then_some(Duration::from_secs(30))
    }

    fn body(&self, frame: &Frame) -> Markup {
        let until = self.asked.until.as_deref();
        let earlier = self.from.format("%Y-%m-%dT%H:%M:%SZ").to_string();
        let days = if self.from.date_naive() == self.until.date_naive() { "" } else { "%-d %b " };
        html! {
            div .lead {
                h1 { "Time line" }
                p {
                    (self.from.format(&format!("{days}%H:%M"))) " to " (self.until.format("%H:%M, %A %-d %B %Y"))
                }
                p .links {
                    @for (span, label) in SPANS {
                        a href=(self.address(frame, until, span))
                            aria-current=[(span == self.asked.span).then_some("true")] { (label) }
                    }
                    a href=(self.address(frame, Some(&earlier), &self.asked.span)) { "earlier" }
                    @if until.is_some() { a href=(self.address(frame, None, &self.asked.span)) { "now" } }
                }
                (parts::as_of(frame, self.every()))
            }
            (plot::drawn(self))
            (self.list(frame))
            @if !self.horizon.is_empty() {
                section aria-labelledby="horizon" {
                    header { h2 #horizon { "What keeps dead rows now" } p { "every statement reads them" } }
                    @for line in &self.horizon { p { (line) } }
                }
            }
            (self.list_delays())
        }
    }
}

impl Line {
    fn list(&self, frame: &Frame) -> Markup {
        html! {
            section aria-labelledby="events" {
                header {
                    h2 #events { "Events" }
                    p {
                        "newest first; what stands close in time is no proof of a cause"
                        @if self.and_more { "; the newest " (MOST) " are shown" }
                    }
                }
                @if self.events.is_empty() { p .muted { "Nothing changed in this time." } }
                @else { table {
                    thead { tr {
                        th scope="col" { "Time" } th scope="col" { "Event" } th .wide scope="col" { "Kind" }
                        th .wide scope="col" { "By" } th .n.wide scope="col" { "Lasted" }
                    } }
                    tbody { @for event in &self.events { (self.row(frame, event)) } }
                } }
            }
        }
    }

    fn row(&self, frame: &Frame, event: &Event) -> Markup {
        let end =
            if event.goes_on { frame.now.map(|now| now.min(self.until)) } else { event.ended_at };
        let lasted = end.map(|end| (end - event.at).num_milliseconds());
        html! {
            tr {
                td .mono { (time(event.at, &event.at.format("%H:%M:%S").to_string())) }
                td .text { (event.what) @if let Some(why) = &event.why { span .why { (why) } } }
                td .wide { (event.kind) }
                td .wide { (event.by.as_deref().unwrap_or(NOTHING)) }
                td .n.wide { (span_of(lasted)) @if event.goes_on { ", so far" } }
            }
        }
    }

    fn list_delays(&self) -> Markup {
        html! {
            @if !self.delays.is_empty() {
                section aria-labelledby="delays" {
                    header { h2 #delays { "Start p95" } p { "from due to the first start, of the slowest queue" } }
                    details {
                        summary { "The delays of the drawing as numbers" }
                        table {
                            thead { tr {
                                th scope="col" { "Until" } th scope="col" { "Lambda" } th .n scope="col" { "Start p95" }
                            } }
                            tbody { @for one in &self.delays { tr {
                                td .mono { (time(one.at, &one.at.format("%H:%M:%S").to_string())) }
                                td { (one.lambda) } td .n { (span_of(one.p95_ms)) }
                            } } }
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_a_minute_to_a_month() {
        let span = |until: Option<&str>, span: &str| {
            Span::of(until.map(str::to_owned).as_ref(), Some(&span.to_owned())).is_ok()
        };
        assert!(
            span(None, "1h") && span(Some("2026-11-27T14:30Z"), "31d") && span(Some("14:30"), "1m")
        );
        assert!(!span(None, "1s") && !span(None, "32d") && !span(None, "x"));
        assert!(!span(Some("noon"), "1h"));
    }
}
