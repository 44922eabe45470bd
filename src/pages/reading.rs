//! How pages read the database: few sessions, each reading in a transaction of the reader's role.
//!
//! Promises: a reading changes nothing, has the rights of the person's role and ends within
//! [`PATIENCE`]; at most [`MOST_SESSIONS`] sessions, opened when a page is asked for and closed when
//! they rest. Must never: read as the owner of the schema.

use std::sync::{Arc, Weak};
use std::time::Duration;

use chrono::{DateTime, Utc};
use tokio::sync::{Mutex, Semaphore};
use tokio::time::{Instant, sleep, timeout};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error};
use tuskline_sdk::Address;

use crate::facts::{Facts, FactsReader};
use crate::session::{Deadlines, ErrorChain, Session};

/// Most sessions of all pages of a server.
const MOST_SESSIONS: usize = 4;
/// A session that has rested for so long is closed. It is longer than the longest time between two
/// readings for open pages, because a new session reads the catalogue again.
const REST: Duration = Duration::from_secs(45);
/// Longest time for the statements of a page, with the wait for a session.
const PATIENCE: Duration = Duration::from_secs(3);
/// Span of rates and delays.
const SINCE: Duration = Duration::from_secs(300);
/// Age at which the facts of all lambdas are read again.
const EVERY: Duration = Duration::from_secs(5);
/// The same if a reading took longer than [`SLOW`].
const EVERY_IF_SLOW: Duration = Duration::from_secs(30);
const SLOW: Duration = Duration::from_millis(20);
/// Time from a reading that failed to the next one.
const AGAIN: Duration = Duration::from_secs(1);

/// Why a page has no facts.
#[derive(Debug, Clone)]
pub enum ReadError {
    /// The database does not answer.
    Away(String),
    /// The role may not do this: message, and what would change it.
    Denied(String, Option<String>),
    /// There is no such thing.
    Unknown(&'static str),
    /// The database refuses it: message and hint.
    Refused(String, Option<String>),
}

impl From<Error> for ReadError {
    fn from(error: Error) -> Self {
        let Some(said) = error.as_db_error() else {
            return Self::Away(ErrorChain(&error).to_string());
        };
        let (text, hint) = (said.message().to_owned(), said.hint().map(str::to_owned));
        match said.code() {
            code if *code == SqlState::INSUFFICIENT_PRIVILEGE => Self::Denied(text, hint),
            code if code.code().starts_with("57P") || code.code().starts_with("53") => {
                Self::Away(text)
            }
            _ => Self::Refused(text, hint),
        }
    }
}

/// Sessions, and since when they rest.
type Resting = Mutex<Vec<(Instant, Session)>>;

/// The sessions of the pages.
#[derive(Debug)]
pub struct Sessions {
    address: Address,
    permits: Semaphore,
    rest: Arc<Resting>,
}

/// The database's time and the name of the installation, at each reading.
#[derive(Debug, Clone)]
pub struct Moment {
    pub now: DateTime<Utc>,
    pub installation: String,
}

/// Whether a reading may write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access<'a> {
    Read,
    /// The audit notes the person.
    Act {
        person: &'a str,
    },
}

impl Sessions {
    /// Opens none yet.
    pub fn new(address: Address) -> Self {
        Self { address, permits: Semaphore::new(MOST_SESSIONS), rest: Arc::default() }
    }

    /// Runs statements as a role, in one transaction.
    pub async fn of<T>(
        &self,
        role: &str,
        access: Access<'_>,
        work: impl AsyncFnOnce(&Client) -> Result<T, Error>,
    ) -> Result<(Moment, T), ReadError> {
        let all = async {
            let Ok(_permit) = self.permits.acquire().await else {
                return Err(ReadError::Away("the server ends".to_owned()));
            };
            let session = self.session().await?;
            let done = in_transaction(session.client(), role, access, work).await;
            // A session with a transaction that was cut is dropped with it.
            if done.as_ref().is_ok_and(|_| !session.is_closed()) {
                self.rest.lock().await.push((Instant::now(), session));
                tokio::spawn(close_rested(Arc::downgrade(&self.rest)));
            }
            done.map_err(ReadError::from)
        };
        let late = || ReadError::Away(format!("no answer within {} s", PATIENCE.as_secs()));
        timeout(PATIENCE, all).await.unwrap_or_else(|_| Err(late()))
    }

    async fn session(&self) -> Result<Session, Error> {
        let mut rest = self.rest.lock().await;
        rest.retain(|(at, session)| at.elapsed() < REST && !session.is_closed());
        if let Some((_, session)) = rest.pop() {
            return Ok(session);
        }
        drop(rest);
        Session::open(&self.address, "pages", Deadlines::READ).await
    }
}

/// Closes the sessions that nobody has used for [`REST`]. Those of pages that have ended are closed.
async fn close_rested(rest: Weak<Resting>) {
    sleep(REST).await;
    if let Some(rest) = rest.upgrade() {
        rest.lock().await.retain(|(at, session)| at.elapsed() < REST && !session.is_closed());
    }
}

async fn in_transaction<T>(
    client: &Client,
    role: &str,
    access: Access<'_>,
    work: impl AsyncFnOnce(&Client) -> Result<T, Error>,
) -> Result<(Moment, T), Error> {
    let (begin, person) = match access {
        Access::Read => ("begin read only", ""),
        Access::Act { person } => ("begin", person),
    };
    client.batch_execute(begin).await?;
    let parameters: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 2] =
        [(&role, Type::TEXT), (&person, Type::TEXT)];
    let set = "select tuskline.clock(), (select name from tuskline.installation),
                      set_config('role', $1, true), set_config('tuskline.person', $2, true),
                      set_config('statement_timeout', '3s', true)";
    let row = client.query_typed_one(set, &parameters).await?;
    let moment = Moment { now: row.get(0), installation: row.get(1) };
    let done = work(client).await?;
    client.batch_execute("commit").await?;
    Ok((moment, done))
}

/// The facts of all lambdas, for all open pages: read when a page asks and they are old.
#[derive(Debug)]
pub struct SharedFacts {
    role: String,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    reader: FactsReader,
    last: Option<(Instant, Arc<Facts>)>,
    failed: Option<(Instant, ReadError)>,
    every: Duration,
}

/// When to read again after a reading that took so long.
fn rest_after(took: Duration) -> Duration {
    if took > SLOW { EVERY_IF_SLOW } else { EVERY }
}

/// Facts, and the error that made them old.
#[derive(Debug, Clone)]
pub struct Seen {
    /// None: there was no reading yet.
    pub facts: Option<Arc<Facts>>,
    /// Why they could not be read again.
    pub error: Option<ReadError>,
    /// Time since they were read.
    pub age: Duration,
    /// When to ask again.
    pub every: Duration,
}

impl Kept {
    /// Reads the facts, or notes why not.
    async fn read(&mut self, role: &str, sessions: &Sessions) -> Option<ReadError> {
        let reader = &mut self.reader;
        let read = async |client: &Client| {
            let begun = Instant::now();
            let facts = reader.read(client, SINCE).await?;
            Ok((facts, begun.elapsed()))
        };
        match sessions.of(role, Access::Read, read).await {
            Ok((_, (facts, took))) => {
                self.every = rest_after(took);
                self.last = Some((Instant::now(), Arc::new(facts)));
                None
            }
            Err(error) => {
                self.failed = Some((Instant::now(), error.clone()));
                Some(error)
            }
        }
    }
}

impl SharedFacts {
    /// Reads as a role, which is that of a viewer: contents that it may not read, no page shows.
    pub fn new(role: String) -> Self {
        Self { role, kept: Mutex::default() }
    }

    /// The facts, read again if they are old. One reading at a time; the others wait for it. Pages that
    /// ask within [`AGAIN`] of a reading that failed share its error.
    pub async fn facts(&self, sessions: &Sessions) -> Seen {
        let mut kept = self.kept.lock().await;
        let kept = &mut *kept;
        if let Some((at, facts)) = &kept.last
            && at.elapsed() < kept.every
        {
            let (facts, age) = (Some(Arc::clone(facts)), at.elapsed());
            return Seen { facts, error: None, age, every: kept.every };
        }
        let failed = kept.failed.as_ref().filter(|(at, _)| at.elapsed() < AGAIN);
        let error = match failed.map(|(_, error)| error.clone()) {
            Some(error) => Some(error),
            None => kept.read(&self.role, sessions).await,
        };
        let facts = kept.last.as_ref().map(|(_, facts)| Arc::clone(facts));
        let age = kept.last.as_ref().map_or(Duration::ZERO, |(at, _)| at.elapsed());
        Seen { facts, error, age, every: kept.every }
    }

    /// The next page reads again: an act has changed something.
    pub async fn forget(&self) {
        let mut kept = self.kept.lock().await;
        kept.reader.forget();
        kept.every = Duration::ZERO;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_reading_is_followed_by_a_longer_rest() {
        let rest = |ms| rest_after(Duration::from_millis(ms)).as_secs();
        assert_eq!([rest(0), rest(20), rest(21), rest(2_000)], [5, 5, 30, 30]);
        assert!(REST > EVERY_IF_SLOW, "the session of the reading is kept");
    }
}
