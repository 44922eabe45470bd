//! The doctor's lines that are not ok, for all open overviews.
//!
//! Promises: it examines only while an overview is open, at most every [`EVERY`], and no page waits for
//! it for longer than [`FIRST`]. It examines as the server's login, not as the reader: its lines have no
//! contents of tasks.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use maud::{Markup, html};
use serde::Serialize;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tuskline_sdk::Address;

use super::parts::command;
use crate::doctor::{self, Finding, Options, Verdict};

/// Time between two examinations: each has about 60 statements and three sessions.
const EVERY: Duration = Duration::from_secs(300);
/// Longest wait of a page for the first examination.
const FIRST: Duration = Duration::from_millis(500);
/// A transaction that keeps dead rows is reported from this age on, as by the command.
const OLD: Duration = Duration::from_secs(300);

/// The last examination.
#[derive(Debug, Default, Serialize)]
pub struct Examined {
    /// The lines that are not ok.
    pub lines: Vec<Finding>,
    /// Why there was none.
    pub error: Option<String>,
}

impl Examined {
    /// Whether a line fails.
    pub fn fails(&self) -> bool {
        self.lines.iter().any(Finding::fails)
    }

    /// Its lines about a part.
    pub fn of(&self, part: &str) -> Vec<String> {
        self.lines
            .iter()
            .filter(|line| line.examined == part)
            .map(|line| line.said.clone())
            .collect()
    }
}

/// Examines for all open overviews of a server.
#[derive(Debug)]
pub struct Doctor {
    address: Address,
    begun: Mutex<Option<Instant>>,
    last: watch::Sender<Option<Arc<Examined>>>,
}

impl Doctor {
    /// Examines nothing yet.
    pub fn new(address: Address) -> Self {
        Self { address, begun: Mutex::default(), last: watch::Sender::default() }
    }

    /// The last examination. A new one begins if it is old. None: the first has not ended.
    pub async fn examined(&self) -> Option<Arc<Examined>> {
        if self.is_due() {
            let (address, last) = (self.address.clone(), self.last.clone());
            tokio::spawn(async move { last.send_replace(Some(Arc::new(examine(&address).await))) });
        }
        let mut last = self.last.subscribe();
        // A page that has waited in vain says that the doctor has not ended yet.
        let _ = timeout(FIRST, last.wait_for(Option::is_some)).await;
        last.borrow().clone()
    }

    /// Whether the caller is to examine. One does at a time.
    fn is_due(&self) -> bool {
        let mut begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = begun.is_none_or(|at| at.elapsed() >= EVERY);
        if is_due {
            *begun = Some(Instant::now());
        }
        is_due
    }
}

async fn examine(address: &Address) -> Examined {
    let options = Options { disk_free: None, old_after: OLD };
    match doctor::examine(address, &options).await {
        Ok(mut lines) => {
            lines.retain(|line| line.verdict != Verdict::Ok);
            lines.sort_by_key(|line| !line.fails());
            Examined { lines, error: None }
        }
        Err(error) => Examined { error: Some(format!("{error:#}")), lines: Vec::new() },
    }
}

/// The lines with their remedies; nothing if all are ok.
pub fn lines(examined: Option<&Examined>) -> Markup {
    let Some(Examined { lines, error }) = examined else {
        return html! { p .muted { "The doctor examines the database. Its lines come with the next refresh." } };
    };
    html! {
        @if let Some(error) = error { p .muted { "The doctor could not examine the database: " (error) } }
        @if !lines.is_empty() {
            section aria-labelledby="doctor" {
                header { h2 #doctor { "Lines of the doctor that are not ok" } p { code { "tuskline doctor" } " prints all" } }
                table { tbody { @for (number, line) in lines.iter().enumerate() { (row(number, line)) } } }
            }
        }
    }
}

fn row(number: usize, line: &Finding) -> Markup {
    let (shape, word) = if line.fails() { ("hot", "fail") } else { ("warm", "warn") };
    html! {
        tr {
            th scope="row" { span class={ "state " (shape) } { (word) } span .why { (line.examined) } }
            td .text {
                (line.said)
                @if let Some(page) = line.page { span .why { (page) } }
                @if let Some(remedy) = &line.command { (command(&format!("doctor-{number}"), remedy)) }
            }
        }
    }
}
