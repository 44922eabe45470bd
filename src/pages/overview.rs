//! The overview: does something need a person, and what?
//!
//! Promises: the order of rows and the state of a lambda are those of `tuskline top`.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use maud::{Markup, html};
use serde::Serialize;

use super::act::link;
use super::asked::Asked;
use super::away;
use super::doctor::{self, Examined};
use super::parts::{self, Frame, Part, Show, ago, figure, number};
use super::site::Site;
use super::words::{about, at_least, count, percent, rate, span_of};
use crate::facts::{Facts, Health, LambdaRow, Totals};
use crate::store::overview::Gate;

/// The start objective, in ms.
pub const OBJECTIVE: i64 = 5_000;
/// The share that must keep it.
const KEPT: f64 = 0.95;
/// Rows of lambdas on this page. The others are quiet: rows that need a person come first.
const MOST_ROWS: usize = 50;

/// The facts of the overview.
#[derive(Debug, Serialize)]
pub struct Overview {
    #[serde(flatten)]
    pub facts: Arc<Facts>,
    /// The last examination; none: it has not ended yet.
    pub doctor: Option<Arc<Examined>>,
    #[serde(skip)]
    pub every: Duration,
}

/// The page.
pub async fn page(State(site): State<Arc<Site>>, asked: Asked) -> Response {
    let (moment, facts, every) = match asked.facts(&site).await {
        Ok(found) => found,
        Err(answer) => return answer,
    };
    match facts.lambdas.is_empty() {
        true => asked.answer(&site, Some(&moment), &away::Nothing { lambdas: [] }),
        false => asked.answer(
            &site,
            Some(&moment),
            &Overview { facts, doctor: site.doctor.examined().await, every },
        ),
    }
}

impl Show for Overview {
    fn title(&self) -> String {
        "Overview".to_owned()
    }

    fn part(&self) -> Part {
        Part::Overview
    }

    fn every(&self) -> Option<Duration> {
        Some(self.every)
    }

    fn body(&self, frame: &Frame) -> Markup {
        let facts = &*self.facts;
        let need = facts.lambdas.iter().filter(|one| needs_a_person(one.health)).count();
        let is_late = facts.lambdas.iter().any(|one| one.health == Health::Late);
        let fails = self.doctor.as_ref().is_some_and(|one| one.fails());
        html! {
            div .lead {
                @match need {
                    0 if fails => h1 { "The doctor has a line that fails" },
                    0 => h1 { "Nothing needs you" },
                    1 => h1 { "1 of " (facts.lambdas.len()) " lambdas needs you" },
                    _ => h1 { (need) " of " (facts.lambdas.len()) " lambdas need you" },
                }
                (parts::as_of(frame, self.every()))
            }
            (figures(facts, is_late))
            (lambdas(frame, &facts.lambdas))
            (doctor::lines(self.doctor.as_deref()))
            div .cols { (gates(frame, &facts.gates)) (waits(frame, facts)) (processes(frame, facts)) }
        }
    }
}

/// Only these states are coloured. A gate is the decision of a person.
pub fn needs_a_person(health: Health) -> bool {
    matches!(health, Health::NoWorker | Health::Breaker | Health::Late | Health::Failing)
}

/// A state as a shape and a word.
pub fn state(health: Health) -> Markup {
    let shape = match health {
        Health::Gated => "gate",
        Health::Ok => "ok",
        Health::Idle => "idle",
        _ => "hot",
    };
    html! { span class={ "state " (shape) } { (health.word()) } }
}

fn figures(facts: &Facts, is_late: bool) -> Markup {
    let totals: &Totals = &facts.totals;
    let oldest = facts.lambdas.iter().filter_map(|one| one.oldest_ms).max();
    let share = totals.start_within_5s;
    html! {
        dl .figures {
            (figure("Queued", &count(totals.queued), false))
            (figure("Held", &at_least(totals.held), false))
            (figure("Waiting", &at_least(totals.waiting), false))
            (figure("Oldest due", &span_of(oldest), oldest > Some(OBJECTIVE)))
            (figure("In 5 s", &percent(share), is_late && share < Some(KEPT)))
            (figure("Ended/s", &rate(totals.per_second), false))
            (figure("Failed/s", &rate(totals.failed_per_second), false))
            (figure("Dead letters", &about(totals.dead_letters), false))
        }
    }
}

fn lambdas(frame: &Frame, rows: &[LambdaRow]) -> Markup {
    html! {
        section aria-labelledby="lambdas" {
            header {
                h2 #lambdas { "Lambdas" }
                p { "rates and delays of the last 5 minutes; objective: 95 % start within 5 s" }
            }
            (table_of(frame, rows.iter().take(MOST_ROWS)))
            @if let Some(more) = rows.len().checked_sub(MOST_ROWS).filter(|more| *more > 0) {
                p .why { "and " (more) " more: " a href=(frame.to("lambdas")) { "all lambdas" } }
            }
        }
    }
}

/// Lambdas, a row each.
pub fn table_of<'a>(frame: &Frame, rows: impl Iterator<Item = &'a LambdaRow>) -> Markup {
    html! {
        table {
            thead { tr {
                th scope="col" { "Lambda" } th scope="col" { "State" }
                th .n scope="col" { "Queued" }
                th .n.wide scope="col" { "Held" } th .n.wide scope="col" { "Waiting" }
                th .n.wide scope="col" { "Oldest due" }
                th .n scope="col" { "Start p95" }
                th .n.wide scope="col" { "In 5 s" }
                th .n.wide scope="col" { "Ended/s" }
                th .n.wide scope="col" { "Failed/s" }
            } }
            tbody { @for row in rows { (lambda(frame, row)) } }
        }
    }
}

fn lambda(frame: &Frame, row: &LambdaRow) -> Markup {
    let p95 = row.rates.start_p95_ms.map(|ms| ms as i64);
    let share = row.rates.start_within_5s;
    let is_old = row.health == Health::NoWorker || row.oldest_ms > Some(OBJECTIVE);
    html! {
        tr {
            th scope="row" {
                a href=(frame.to(&format!("lambdas/{}", row.lambda))) { (row.lambda) }
                @if let Some(why) = why(row) { span .why { (why) } }
            }
            td { (state(row.health)) }
            (number(&count(row.queued), false, false))
            (number(&at_least(row.held), true, false))
            (number(&at_least(row.waiting), true, false))
            (number(&span_of(row.oldest_ms), true, row.oldest_ms.is_some() && is_old))
            (number(&span_of(p95), false, p95 > Some(OBJECTIVE)))
            (number(&percent(share), true, row.health == Health::Late && share < Some(KEPT)))
            (number(&rate(row.rates.per_second), true, false))
            (number(&rate(row.rates.failed_per_second), true, row.health == Health::Failing))
        }
    }
}

/// The fact that decided the state, in a clause.
pub fn why(row: &LambdaRow) -> Option<String> {
    match row.health {
        Health::NoWorker => {
            Some(format!("{} queued, and no executor serves it", count(row.queued)))
        }
        Health::Breaker => Some("its breaker has tripped".to_owned()),
        Health::Late => match row.rates.start_within_5s {
            Some(share) if share < KEPT => {
                Some(format!("{} of its tasks start within 5 s", percent(Some(share))))
            }
            _ => Some(format!("its oldest task is due for {}", span_of(row.oldest_ms))),
        },
        Health::Failing => {
            let share = row.rates.failed_per_second / row.rates.per_second.max(f64::MIN_POSITIVE);
            Some(format!("{} of its attempts fail", percent(Some(share.min(1.0)))))
        }
        Health::Gated | Health::Ok | Health::Idle => None,
    }
}

fn gates(frame: &Frame, gates: &[Gate]) -> Markup {
    html! {
        section aria-labelledby="gates" {
            header { h2 #gates { "Gates that are set" } }
            @if gates.is_empty() { p .muted { "None." } }
            @else { table { tbody { @for gate in gates { (gate_row(frame, gate)) } } } }
        }
    }
}

/// A gate: what it does, why, and how many tasks it has parked.
pub fn gate_row(frame: &Frame, gate: &Gate) -> Markup {
    let scope = [gate.collection.as_deref(), gate.priority.as_deref()];
    let scope: Vec<&str> = scope.into_iter().flatten().collect();
    let set_at = frame.now.map(|now| now - chrono::TimeDelta::milliseconds(gate.age_ms));
    let opens = gate.opens_in_ms.map(|ms| format!("opens in {}", super::words::span(ms)));
    html! {
        tr {
            td .text {
                (gate.action) " "
                @if !scope.is_empty() { (scope.join(", ")) " of " }
                a href=(frame.to(&format!("lambdas/{}", gate.lambda))) { (gate.lambda) }
                span .why {
                    (gate.reason) " · " (gate.author)
                    @if let Some(at) = set_at { ", " (ago(frame, at)) }
                    " · " (opens.as_deref().unwrap_or("a person opens it"))
                }
            }
            td .n { (at_least(gate.parked)) }
            td .n { (link(frame, "ungate", &[("gate", &gate.gate_id.to_string())], "Open…")) }
        }
    }
}

fn waits(frame: &Frame, facts: &Facts) -> Markup {
    let mut causes: Vec<(&str, crate::store::overview::Count)> = Vec::new();
    for row in &facts.waits {
        match causes.iter_mut().find(|(cause, _)| *cause == row.cause) {
            Some((_, sum)) => *sum += row.count,
            None => causes.push((&row.cause, row.count)),
        }
    }
    html! {
        section aria-labelledby="waits" {
            header { h2 #waits { "Tasks that wait, by cause" } }
            @if causes.is_empty() { p .muted { "None." } }
            dl .pairs { @for (cause, tasks) in causes {
                div {
                    dt { a href=(frame.to(&format!("waits#{cause}"))) { (cause) } }
                    dd .n { (at_least(tasks)) }
                }
            } }
        }
    }
}

fn processes(frame: &Frame, facts: &Facts) -> Markup {
    let silent = facts.executors.iter().filter(|one| one.executor.state == "silent").count();
    html! {
        section aria-labelledby="processes" {
            header { h2 #processes { "Processes" } }
            dl .pairs {
                div {
                    dt { a href=(frame.to("executors")) { "Executors" } }
                    dd .n {
                        (facts.totals.workers)
                        @if silent > 0 { span .why.warm { (silent) " silent" } }
                    }
                }
            }
        }
    }
}
