//! Two pages in place of the overview: the database is away, and nothing is defined yet.

use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use maud::{Markup, html};
use serde::Serialize;

use super::parts::{Frame, Part, Show, command, figure, time};
use super::words::{about, at_least, count, percent, rate, span};
use crate::facts::Facts;

/// The last facts while the database is away.
#[derive(Debug, Serialize)]
pub struct Away {
    /// Why.
    pub error: String,
    /// None: it has not answered yet.
    pub facts: Option<Arc<Facts>>,
    /// Their age, in ms.
    pub age_ms: i64,
}

impl Show for Away {
    fn title(&self) -> String {
        "No answer".to_owned()
    }

    fn part(&self) -> Part {
        Part::Overview
    }

    fn every(&self) -> Option<Duration> {
        Some(Duration::from_secs(5))
    }

    fn status(&self) -> StatusCode {
        StatusCode::SERVICE_UNAVAILABLE
    }

    fn body(&self, _: &Frame) -> Markup {
        html! {
            div .note .hot role="alert" {
                p {
                    strong { "The database does not answer." }
                    @if let Some(now) = self.facts.as_ref().and_then(|facts| facts.now) {
                        " The last answer came at " (time(now, &now.format("%H:%M:%S").to_string()))
                        ", " (span(self.age_ms)) " ago."
                    }
                }
                p .mono { (self.error) }
            }
            div .cols .two {
                div .stale { @if let Some(facts) = &self.facts { (last(facts, self.age_ms)) } }
                section .first aria-labelledby="meanwhile" {
                    header { h2 #meanwhile { "What happens meanwhile" } }
                    dl .pairs {
                        @for (what, happens) in [
                            ("Stored tasks", "are safe, and continue when it is back"),
                            ("New tasks", "fail in the transaction of their caller, who sees it"),
                            ("Bodies that run", "stop when their lease is over; their tasks run again"),
                            ("Workers, servers", "wait, and connect by themselves"),
                        ] {
                            div { dt { (what) } dd { (happens) } }
                        }
                    }
                }
            }
        }
    }
}

fn last(facts: &Facts, age_ms: i64) -> Markup {
    let totals = &facts.totals;
    html! {
        div .lead { h1 { "The facts of " (span(age_ms)) " ago" } }
        dl .figures {
            (figure("Queued", &count(totals.queued), false))
            (figure("Held", &at_least(totals.held), false))
            (figure("Waiting", &at_least(totals.waiting), false))
            (figure("In 5 s", &percent(totals.start_within_5s), false))
            (figure("Ended/s", &rate(totals.per_second), false))
            (figure("Dead letters", &about(totals.dead_letters), false))
        }
        table {
            thead { tr { th scope="col" { "Lambda" } th scope="col" { "State" } th .n scope="col" { "Queued" } } }
            tbody { @for row in facts.lambdas.iter().take(50) {
                tr { th scope="row" { (row.lambda) } td { (row.health.word()) } td .n { (count(row.queued)) } }
            } }
        }
    }
}

/// The first commands to type.
#[derive(Debug, Serialize)]
pub struct Nothing {
    /// No lambda is defined.
    pub lambdas: [(); 0],
}

impl Show for Nothing {
    fn title(&self) -> String {
        "Begin".to_owned()
    }

    fn part(&self) -> Part {
        Part::Overview
    }

    fn every(&self) -> Option<Duration> {
        Some(Duration::from_secs(5))
    }

    fn body(&self, frame: &Frame) -> Markup {
        html! {
            div .alone {
                div .lead { h1 { "No lambda is defined yet" } }
                ol .steps {
                    li .done { "The schema is there, in database " (frame.database) "." }
                    li .done { "A server runs: this one." }
                    li {
                        "Define a lambda: the name under which a worker runs your code."
                        (command("s1", "select tuskline.define_lambda('send_email');"))
                    }
                    li {
                        "Schedule a task. It waits until a worker comes."
                        (command("s2", r#"select tuskline.schedule('send_email', '{"to": "ada@example.org"}');"#))
                    }
                    li {
                        "Start a worker that serves it: a program with tuskline-sdk."
                        (command("s3", "Worker::builder(address).lambda(send_email).run().await"))
                    }
                }
                p .muted { "This page becomes the overview when the first lambda is there." }
            }
        }
    }
}
