//! The time line: what changed before it went wrong?
//!
//! Promises: each event of the drawing stands in the list; a page of the past never asks again.

mod plot;

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use maud::{Markup, html};
use serde::{Deserialize, Serialize};
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error};

use super::parts::{self, Frame, Part, Show, encoded, time};
use super::words::{NOTHING, span_of};
use crate::duration;
use crate::facts::Facts;
use crate::store::rows::{Parameters, rows, value};

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
    /// Reads `until=` and `span=`. What is wrong with them is a sentence.
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
    #[serde(skip)]
    lambdas: Vec<String>,
}

/// Something that happened.
#[derive(Debug, Clone, Serialize)]
pub struct Event {
    pub at: DateTime<Utc>,
    pub kind: &'static str,
    pub what: String,
    pub why: Option<String>,
    pub by: Option<String>,
    /// When it was over, as far as this page tells.
    pub ended_at: Option<DateTime<Utc>>,
    /// It holds on at the end of the page.
    pub goes_on: bool,
}

/// The delay of a part of the time.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Delay {
    pub lambda: String,
    pub at: DateTime<Utc>,
    pub p95_ms: Option<i64>,
}

/// An act, or several of one person at one time.
#[derive(Debug, Clone, Deserialize)]
struct Act {
    at: DateTime<Utc>,
    actor: String,
    verb: String,
    subject: String,
    detail: Option<String>,
    acts: i64,
}

/// Executors that came or went within a minute.
#[derive(Debug, Clone, Deserialize)]
struct Group {
    at: DateTime<Utc>,
    what: String,
    sdk_version: Option<String>,
    executors: i64,
    host: Option<String>,
}

/// Rides the index audit_at. Acts on single tasks, and looks at them, are no events. Many acts of one
/// kind in a second are one: a definition of an application changes many lambdas.
const ACTS: &str = "
    select min(a.at) as at, a.actor, a.verb, min(a.subject) as subject, min(a.detail) as detail,
           count(*) as acts
      from (select * from tuskline.acts v where v.at > $1 and v.at <= $2
             order by v.at desc limit 1000) a
     where a.verb <> all ('{show_contents,cancel,retry,unblock}')
     group by date_trunc('second', a.at), a.actor, a.verb,
              case when a.verb !~ '^(define|alter)' then a.subject end,
              case when a.verb !~ '^(define|alter)' then a.detail end
     order by 1 desc limit 201";

/// The newest 2,000 registrations: executors have no index on a time. A restart of the server is the
/// begin of a life of the queues, and the database says no more of the lives before.
const GROUPS: &str = "
    select x.at, x.what, x.sdk_version, x.executors, x.host
      from (select min(o.at) as at, o.what, e.sdk_version, count(*) as executors,
                   min(e.host) as host
              from (select * from tuskline.executor order by executor_id desc limit 2000) e
                   cross join lateral (
                     values (e.started_at, 'came'), (e.ended_at, coalesce(e.end_reason, 'stopped')))
                     as o (at, what)
             where o.at > $1 and o.at <= $2
             group by date_trunc('minute', o.at), o.what, e.sdk_version
            union all
            select pg_postmaster_start_time(), 'started', null, 0, null
             where pg_postmaster_start_time() > $1 and pg_postmaster_start_time() <= $2) x
     order by x.at desc limit 201";

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
        let acts: Vec<Act> = rows(client, ACTS, within).await?;
        let groups: Vec<Group> = rows(client, GROUPS, within).await?;
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
        let mut events = events(&acts, &groups);
        let and_more = events.len() > MOST;
        events.truncate(MOST);
        Ok(Self { asked, from, until, events, and_more, delays, lambdas })
    }

    fn address(&self, frame: &Frame, until: Option<&str>, span: &str) -> String {
        let until = until.map_or_else(String::new, |until| format!("&until={}", encoded(until)));
        frame.to(&format!("time?span={}{until}", encoded(span)))
    }
}

/// The lambdas of the acts, then those that need a person.
fn drawn(acts: &[Act], facts: Option<&Facts>) -> Vec<String> {
    let of_acts = acts.iter().filter(|act| kind(act) != "definition");
    let of_acts = of_acts.map(|act| act.subject.split(' ').next().unwrap_or_default());
    let others = facts.into_iter().flat_map(|facts| &facts.lambdas).map(|row| row.lambda.as_str());
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

fn kind(act: &Act) -> &'static str {
    let is_breaker = act.detail.as_ref().is_some_and(|text| text.contains("circuit breaker"));
    match act.verb.as_str() {
        "gate" | "ungate" if is_breaker => "breaker",
        "gate" | "ungate" => "gate",
        "set_breaker" | "drop_breaker" => "breaker",
        "set_limit" | "drop_limit" | "throttle" | "set_order" | "set_weight" => "limit",
        verb if verb.contains("operation") || verb == "redrive" => "operation",
        verb if verb.contains("grant") || verb.contains("revoke") => "right",
        "adopt" | "repair" | "set_max_lease" => "installation",
        _ => "definition",
    }
}

fn events(acts: &[Act], groups: &[Group]) -> Vec<Event> {
    let of_acts = acts.iter().map(|act| event(act, acts));
    let mut all: Vec<Event> = of_acts.chain(groups.iter().map(of_group)).collect();
    all.sort_by_key(|event| std::cmp::Reverse(event.at));
    all
}

/// The number of a gate or an operation, which stands in its detail or subject.
fn number(act: &Act) -> Option<&str> {
    let text = act.detail.as_deref().filter(|text| !text.starts_with(char::is_uppercase));
    let words = text.into_iter().chain([act.subject.as_str()]);
    words.into_iter().find_map(|text| {
        let mut words = text.split(' ');
        let is_named = matches!(words.next(), Some("gate" | "operation"));
        words.next().filter(|_| is_named).map(|number| number.trim_end_matches(':'))
    })
}

fn event(act: &Act, all: &[Act]) -> Event {
    let end = match act.verb.as_str() {
        "gate" => Some("ungate"),
        "start_operation" => Some("end_operation"),
        _ => None,
    };
    let number = number(act).filter(|_| end.is_some());
    let ends = |other: &&Act| {
        Some(other.verb.as_str()) == end && self::number(other) == number && other.at >= act.at
    };
    let ended_at = number.and_then(|_| all.iter().find(ends)).map(|other| other.at);
    let what = match act.acts {
        1 => format!("{} {}", act.verb, act.subject),
        acts => format!("{} of {acts}: {} and others", act.verb, act.subject),
    };
    Event {
        at: act.at,
        kind: kind(act),
        what,
        why: act.detail.clone(),
        by: Some(act.actor.clone()),
        ended_at,
        goes_on: number.is_some() && ended_at.is_none(),
    }
}

fn of_group(group: &Group) -> Event {
    let (kind, what) = match (group.what.as_str(), &group.sdk_version) {
        ("started", _) => {
            ("recovery", "PostgreSQL was started; the queues were checked".to_owned())
        }
        (what, version) => {
            let version = version.as_deref().unwrap_or(NOTHING);
            let executors = if group.executors == 1 { "executor" } else { "executors" };
            ("executor", format!("{} {executors} of SDK {version}: {what}", group.executors))
        }
    };
    let why = group.host.as_ref().map(|host| match group.executors {
        1 => format!("on {host}"),
        _ => format!("on {host} and others"),
    });
    Event { at: group.at, kind, what, why, by: None, ended_at: None, goes_on: false }
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

    fn act(second: i64, verb: &str, detail: &str) -> Act {
        Act {
            at: DateTime::from_timestamp(1_000 + second, 0).unwrap(),
            actor: "ada".to_owned(),
            verb: verb.to_owned(),
            subject: "work".to_owned(),
            detail: Some(detail.to_owned()),
            acts: 1,
        }
    }

    #[test]
    fn a_gate_lasts_until_it_is_opened() {
        let acts = [
            act(60, "ungate", "gate 7 pause by hand"),
            act(30, "gate", "gate 8 pause circuit breaker: 20 failed"),
            act(0, "gate", "gate 7 pause complaints"),
        ];
        let events = events(&acts, &[]);
        let lasts: Vec<_> =
            events.iter().map(|one| (one.kind, one.ended_at, one.goes_on)).collect();
        assert_eq!(
            lasts,
            [("gate", None, false), ("breaker", None, true), ("gate", Some(acts[0].at), false)]
        );
    }

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
