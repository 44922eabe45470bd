//! One act on all tasks that a filter names, in batches, each a transaction.

use chrono::{DateTime, Utc};
use serde::Serialize;
use tokio_postgres::types::Type;

use super::Parameters;
use crate::{Client, Error, Priority, Status};

/// What is done to them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    /// Cancelled, or asked to stop.
    Cancel,
    /// Begun anew.
    Retry,
    /// Given another priority, while they wait.
    Priority(Priority),
    /// Moved to a collection, while they wait.
    Collection(String),
}

/// One act on all tasks of a lambda that the rest names.
///
/// # Example
/// ```no_run
/// # use tuskline_sdk::{Act, Bulk, Client, Error};
/// # async fn stop_campaign(client: &Client) -> Result<(), Error> {
/// let bulk = Bulk::new(Act::Cancel, "send_email").collection("spring_sale");
/// let number = client.start_bulk(&bulk, Some("the price was wrong")).await?;
/// while client.advance_bulk(number).await?.running {}
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct Bulk {
    act: Act,
    lambda: String,
    collection: Option<String>,
    priority: Option<Priority>,
    statuses: Option<Vec<Status>>,
    from: Option<DateTime<Utc>>,
    to: Option<DateTime<Utc>>,
}

/// How far it has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct BulkProgress {
    /// Whether there is more to do: another [`Client::advance_bulk`].
    pub running: bool,
    /// Tasks looked at.
    pub looked: i64,
    /// Tasks changed.
    pub changed: i64,
}

impl Bulk {
    /// `act` on all tasks of `lambda` that it can be done to; of a retry: those that failed for good.
    pub fn new(act: Act, lambda: &str) -> Self {
        Self {
            act,
            lambda: lambda.into(),
            collection: None,
            priority: None,
            statuses: None,
            from: None,
            to: None,
        }
    }

    /// Only those of a collection.
    #[must_use]
    pub fn collection(mut self, collection: &str) -> Self {
        self.collection = Some(collection.into());
        self
    }

    /// Only those of a priority.
    #[must_use]
    pub fn priority(mut self, priority: Priority) -> Self {
        self.priority = Some(priority);
        self
    }

    /// Only those in one of these statuses.
    #[must_use]
    pub fn statuses(mut self, statuses: &[Status]) -> Self {
        self.statuses = Some(statuses.to_vec());
        self
    }

    /// Only those scheduled from then on.
    #[must_use]
    pub fn from(mut self, at: DateTime<Utc>) -> Self {
        self.from = Some(at);
        self
    }

    /// Only those scheduled by then; otherwise by now.
    #[must_use]
    pub fn to(mut self, at: DateTime<Utc>) -> Self {
        self.to = Some(at);
        self
    }
}

const START: &str = "select tuskline.start_bulk($1, $2, $3, $4, $5, $6, $7, $8, $9)";

impl Client {
    /// Begins a bulk operation and returns its number. Nothing is changed before
    /// [`Client::advance_bulk`] is called; whoever knows the number may go on with one that was interrupted.
    ///
    /// # Errors
    /// [`Error::Invalid`]: an unknown lambda, a status that the act is not for. [`Error::Denied`],
    /// [`Error::Unavailable`], [`Error::Unknown`].
    pub async fn start_bulk(&self, bulk: &Bulk, reason: Option<&str>) -> Result<i64, Error> {
        let (act, value) = match &bulk.act {
            Act::Cancel => ("cancel", None),
            Act::Retry => ("retry", None),
            Act::Priority(priority) => ("priority", Some(priority.as_str())),
            Act::Collection(name) => ("collection", Some(name.as_str())),
        };
        let statuses: Option<Vec<&str>> =
            bulk.statuses.as_ref().map(|all| all.iter().map(|one| one.as_str()).collect());
        let parameters: &Parameters<'_> = &[
            (&act, Type::TEXT),
            (&bulk.lambda, Type::TEXT),
            (&value, Type::TEXT),
            (&bulk.collection, Type::TEXT),
            (&bulk.priority.map(Priority::as_str), Type::TEXT),
            (&statuses, Type::TEXT_ARRAY),
            (&bulk.from, Type::TIMESTAMPTZ),
            (&bulk.to, Type::TIMESTAMPTZ),
            (&reason, Type::TEXT),
        ];
        Ok(self.act(START, parameters).await?.get(0))
    }

    /// Does it to the next thousand tasks. Call until it is not running.
    ///
    /// # Errors
    /// [`Error::Invalid`]: no such number. [`Error::Denied`], [`Error::Unavailable`], [`Error::Unknown`].
    pub async fn advance_bulk(&self, number: i64) -> Result<BulkProgress, Error> {
        let sql = "select state, looked, changed from tuskline.advance_bulk($1)";
        let row = self.act(sql, &[(&number, Type::INT8)]).await?;
        let state: &str = row.get(0);
        Ok(BulkProgress { running: state == "running", looked: row.get(1), changed: row.get(2) })
    }

    /// Ends it where it stands. `false`: it is not running.
    ///
    /// # Errors
    /// [`Error::Denied`], [`Error::Unavailable`], [`Error::Unknown`].
    pub async fn stop_bulk(&self, number: i64) -> Result<bool, Error> {
        Ok(self.act("select tuskline.stop_bulk($1)", &[(&number, Type::INT8)]).await?.get(0))
    }
}
