//! How pages read the database: few sessions, each reading in a transaction of the reader's role.
//!
//! Promises: a reading changes nothing, has the rights of the person's role and ends within
//! [`PATIENCE`]; at most [`MOST_SESSIONS`] sessions, opened when a page is asked for and closed when
//! they rest. Must never: read as the owner of the schema.

use std::sync::Arc;
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
/// A session that has rested for so long is closed.
const REST: Duration = Duration::from_secs(30);
/// Longest time for the statements of a page, with the wait for a session.
const PATIENCE: Duration = Duration::from_secs(3);
/// Span of rates and delays.
const SINCE: Duration = Duration::from_secs(300);
/// Age at which the facts of all lambdas are read again.
const EVERY: Duration = Duration::from_secs(5);
/// The same if a reading took longer than [`SLOW`].
const EVERY_IF_SLOW: Duration = Duration::from_secs(30);
const SLOW: Duration = Duration::from_millis(20);

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
type Resting = Arc<Mutex<Vec<(Instant, Session)>>>;

/// The sessions of the pages.
#[derive(Debug)]
pub struct Sessions {
    address: Address,
    permits: Semaphore,
    rest: Resting,
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
                tokio::spawn(close_rested(Arc::clone(&self.rest)));
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

/// Closes the sessions that nobody has used for [`REST`].
async fn close_rested(rest: Resting) {
    sleep(REST).await;
    rest.lock().await.retain(|(at, session)| at.elapsed() < REST && !session.is_closed());
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
    every: Duration,
}

/// Facts, and the trouble that made them old.
#[derive(Debug, Clone)]
pub struct Seen {
    /// None: there was no reading yet.
    pub facts: Option<Arc<Facts>>,
    /// Why they could not be read again.
    pub trouble: Option<ReadError>,
    /// Time since they were read.
    pub age: Duration,
    /// When to ask again.
    pub every: Duration,
}

impl SharedFacts {
    /// Reads as a role, which is that of a viewer: contents that it may not read, no page shows.
    pub fn new(role: String) -> Self {
        Self { role, kept: Mutex::default() }
    }

    /// The facts, read again if they are old. One reading at a time; the others wait for it.
    pub async fn facts(&self, sessions: &Sessions) -> Seen {
        let mut kept = self.kept.lock().await;
        let kept = &mut *kept;
        if let Some((at, facts)) = &kept.last
            && at.elapsed() < kept.every
        {
            let (facts, age) = (Some(Arc::clone(facts)), at.elapsed());
            return Seen { facts, trouble: None, age, every: kept.every };
        }
        let begun = Instant::now();
        let reader = &mut kept.reader;
        let read = sessions
            .of(&self.role, Access::Read, async |client| reader.read(client, SINCE).await)
            .await;
        kept.every = if begun.elapsed() > SLOW { EVERY_IF_SLOW } else { EVERY };
        let trouble = match read {
            Ok((_, facts)) => {
                kept.last = Some((Instant::now(), Arc::new(facts)));
                None
            }
            Err(trouble) => Some(trouble),
        };
        let facts = kept.last.as_ref().map(|(_, facts)| Arc::clone(facts));
        let age = kept.last.as_ref().map_or(Duration::ZERO, |(at, _)| at.elapsed());
        Seen { facts, trouble, age, every: kept.every }
    }

    /// The next page reads again: an act has changed something.
    pub async fn forget(&self) {
        let mut kept = self.kept.lock().await;
        kept.reader.forget();
        kept.every = Duration::ZERO;
    }
}
