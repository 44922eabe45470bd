//! Reads the figures. Each statement reads one part.
//!
//! Promises: a part is read at most once in [`FRESH`], also if the reading fails. The failure is
//! counted, and logged once, not at each reading. A part that is refused does not change the other
//! parts. A part that is too slow leaves the parts after it unread: they are neither counted nor
//! logged, and the next reading begins with them.
//! Must never: read a queue from its first row at each reading.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};
use tokio_postgres::Client;
use tokio_postgres::error::{DbError, Severity};
use tuskline_sdk::Address;

use super::{DEADLINE, FRESH};
use crate::session::{Deadlines, ErrorChain, Session};
use crate::store::figures::{
    self, DEPTH_ROWS, Gauge, Marks, OBJECTIVE, QueueGauge, QueueStatistics, Scale, WaitTimes,
};
use crate::store::overview::{self, Blocked, Waiting};

/// Time between two readings of the queues from their first row. A mark hides rows that were
/// committed late.
const SWEEP_EVERY: Duration = Duration::from_secs(600);

/// Least time for a reading. With less, a database that is quick enough would count as too slow.
const LEAST: Duration = Duration::from_secs(1);

/// The figures of the last reading. A part that could not be read is empty.
#[derive(Debug, Default)]
pub struct Figures {
    pub statistics: Vec<QueueStatistics>,
    pub waits: Vec<WaitTimes>,
    pub queues: Vec<QueueGauge>,
    pub gauges: Vec<Gauge>,
    pub scale: Vec<Scale>,
    pub waiting: Vec<Waiting>,
    pub blocked: Vec<Blocked>,
}

/// The figures of one statement; `Waiting` has two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    Gauges,
    Statistics,
    Waits,
    Queues,
    Scale,
    Waiting,
}

impl Part {
    /// In the order of reading. `Scale` uses the last marks that `Queues` found, and works without.
    pub const ALL: [Self; 6] =
        [Self::Gauges, Self::Statistics, Self::Waits, Self::Queues, Self::Scale, Self::Waiting];
    /// The parts that an autoscaler needs.
    pub const OF_SCALE: [Self; 2] = [Self::Queues, Self::Scale];

    /// The value of the label.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gauges => "gauges",
            Self::Statistics => "statistics",
            Self::Waits => "waits",
            Self::Queues => "queues",
            Self::Scale => "scale",
            Self::Waiting => "waiting",
        }
    }
}

/// The last reading of a part.
#[derive(Debug, Default)]
struct Reading {
    at: Option<Instant>,
    /// Why it failed, or why there was none.
    error: Option<String>,
    /// How many readings have failed.
    failed: u64,
    /// Kinds of errors that were logged since the last success.
    logged: BTreeSet<String>,
}

impl Reading {
    fn is_fresh(&self) -> bool {
        self.at.is_some_and(|at| at.elapsed() < FRESH)
    }

    fn succeed(&mut self) {
        (self.at, self.error) = (Some(Instant::now()), None);
        self.logged.clear();
    }

    /// Returns whether this kind of error has not been logged yet.
    fn fail(&mut self, kind: &str, error: String) -> bool {
        (self.at, self.error) = (Some(Instant::now()), Some(error));
        self.failed += 1;
        self.logged.insert(kind.to_owned())
    }
}

/// Why a part was not read.
#[derive(Clone)]
enum ReadError {
    /// The database cannot be reached.
    Away(String),
    /// The deadline of the request has passed before the answer.
    Late,
    /// No time was left for it.
    Unread,
    /// The database answered with an error: its code and text.
    Refused(String, String),
}

/// The figures, and the session that reads them. The first reading opens it.
pub struct Reader {
    address: Address,
    session: Option<Session>,
    figures: Figures,
    readings: [Reading; Part::ALL.len()],
    is_up: bool,
    marks: Marks,
    swept_at: Option<Instant>,
    /// Place in [`Part::ALL`] where the next reading begins.
    first: usize,
}

impl Reader {
    pub fn of(address: Address) -> Self {
        Self {
            address,
            session: None,
            figures: Figures::default(),
            readings: Default::default(),
            is_up: false,
            marks: Marks::default(),
            swept_at: None,
            first: 0,
        }
    }

    /// The figures of the last reading.
    pub fn figures(&self) -> &Figures {
        &self.figures
    }

    /// Whether the database could be reached at the last reading.
    pub fn is_up(&self) -> bool {
        self.is_up
    }

    /// How many readings of the part have failed.
    pub fn failed(&self, part: Part) -> u64 {
        self.readings[part as usize].failed
    }

    /// Why the part has no figures. None: its last reading succeeded.
    pub fn error(&self, part: Part) -> Option<&str> {
        self.readings[part as usize].error.as_deref()
    }

    /// Reads the parts that are not fresh. After the deadline, or without a database, the remaining
    /// parts are not read.
    pub async fn refresh(&mut self, parts: &[Part], until: Instant) {
        let mut end = None;
        for part in self.old(parts) {
            if end.is_none() && until.saturating_duration_since(Instant::now()) < LEAST {
                self.first = part as usize;
                end = Some(ReadError::Unread);
            }
            let read = match &end {
                Some(error) => Err(ReadError::clone(error)),
                None => self.read(part, until).await,
            };
            let Err(error) = read else {
                self.readings[part as usize].succeed();
                continue;
            };
            match &error {
                ReadError::Away(_) => end = Some(error.clone()),
                ReadError::Late => {
                    self.first = (part as usize + 1) % Part::ALL.len();
                    end = Some(ReadError::Unread);
                }
                ReadError::Unread | ReadError::Refused(..) => {}
            }
            self.note(part, error);
        }
    }

    /// The parts that are not fresh, in the order of this reading.
    fn old(&self, parts: &[Part]) -> Vec<Part> {
        let (last, first) = Part::ALL.split_at(self.first);
        let order = first.iter().chain(last).copied();
        order
            .filter(|part| parts.contains(part) && !self.readings[*part as usize].is_fresh())
            .collect()
    }

    fn note(&mut self, part: Part, error: ReadError) {
        self.clear(part);
        let reading = &mut self.readings[part as usize];
        let (kind, error) = match error {
            ReadError::Away(error) => {
                (reading.at, reading.error) = (Some(Instant::now()), Some(error));
                self.is_up = false;
                return;
            }
            ReadError::Unread => {
                reading.error = Some(no_answer());
                return;
            }
            ReadError::Late => ("late".to_owned(), no_answer()),
            ReadError::Refused(code, error) => (code, error),
        };
        if reading.fail(&kind, error.clone()) {
            tracing::warn!(part = part.name(), error, "cannot read a part of the metrics");
        }
    }

    async fn read(&mut self, part: Part, until: Instant) -> Result<(), ReadError> {
        // Taken out of the field: a call that fails or is dropped leaves no session there. Then the
        // next call opens a new one.
        let session = match self.session.take().filter(|session| !session.is_closed()) {
            Some(session) => session,
            None => open(&self.address, until).await?,
        };
        self.is_up = true;
        match timeout_at(until, self.ask(session.client(), part)).await {
            Err(_) => Err(ReadError::Late),
            Ok(Ok(())) => {
                self.session = Some(session);
                Ok(())
            }
            Ok(Err(error)) => {
                let text = ErrorChain(&error).to_string();
                let refused = |one: &&DbError| one.parsed_severity() == Some(Severity::Error);
                let Some(code) = error.as_db_error().filter(refused).map(DbError::code) else {
                    return Err(ReadError::Away(text));
                };
                self.session = Some(session);
                Err(ReadError::Refused(code.code().to_owned(), text))
            }
        }
    }

    async fn ask(&mut self, client: &Client, part: Part) -> Result<(), tokio_postgres::Error> {
        let figures = &mut self.figures;
        match part {
            Part::Gauges => figures.gauges = figures::gauges(client).await?,
            Part::Statistics => figures.statistics = figures::statistics(client, None).await?,
            Part::Waits => figures.waits = figures::wait_times(client, None).await?,
            Part::Queues => {
                if self.swept_at.is_none_or(|at| at.elapsed() >= SWEEP_EVERY) {
                    (self.marks, self.swept_at) = (Marks::default(), Some(Instant::now()));
                }
                figures.queues =
                    figures::queue_gauges(client, &self.marks, DEPTH_ROWS, None).await?;
                self.marks = Marks::of(&figures.queues);
            }
            Part::Scale => {
                figures.scale = figures::scale(client, OBJECTIVE, &self.marks).await?;
            }
            Part::Waiting => {
                figures.waiting = overview::waits(client, overview::WAIT_ROWS).await?;
                figures.blocked = overview::blocked(client, overview::WAIT_ROWS).await?;
            }
        }
        Ok(())
    }

    fn clear(&mut self, part: Part) {
        match part {
            Part::Gauges => self.figures.gauges.clear(),
            Part::Statistics => self.figures.statistics.clear(),
            Part::Waits => self.figures.waits.clear(),
            Part::Queues => self.figures.queues.clear(),
            Part::Scale => self.figures.scale.clear(),
            Part::Waiting => {
                self.figures.waiting.clear();
                self.figures.blocked.clear();
            }
        }
    }
}

async fn open(address: &Address, until: Instant) -> Result<Session, ReadError> {
    let deadlines = Deadlines { statement: DEADLINE, ..Deadlines::READ };
    match timeout_at(until, Session::open(address, "metrics", deadlines)).await {
        Err(_) => Err(ReadError::Away(no_answer())),
        Ok(opened) => opened.map_err(|error| ReadError::Away(ErrorChain(&error).to_string())),
    }
}

fn no_answer() -> String {
    format!("the database did not answer within {} s", DEADLINE.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_logged_once_until_its_part_succeeds() {
        let mut reading = Reading::default();
        let kinds = ["22003", "22003", "53200", "22003"];
        assert_eq!(kinds.map(|kind| reading.fail(kind, String::new())), [true, false, true, false]);
        assert_eq!((reading.failed, reading.is_fresh()), (4, true));
        reading.succeed();
        assert!(reading.fail("22003", String::new()));
    }
}
