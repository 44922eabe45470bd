//! Tasks that have ended go before their retention is over, in batches, each a transaction.

use std::time::Duration;

use serde::Serialize;
use tokio_postgres::types::Type;

use super::Parameters;
use crate::{Client, Error, Status};

/// Tasks that have ended, to be deleted with their history, outputs and progress. At least one of lambda, statuses,
/// collection and age must be given.
///
/// # Example
/// ```no_run
/// # use std::time::Duration;
/// # use tuskline_sdk::{Client, Error, Purge, Status};
/// # async fn forget_trial(client: &Client) -> Result<(), Error> {
/// let purge = Purge::new().lambda("resize").statuses(&[Status::Success]);
/// let purge = purge.older_than(Duration::from_secs(86_400));
/// let number = client.start_purge(&purge, Some("only a trial")).await?;
/// while client.advance_purge(number).await?.running {}
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Default)]
pub struct Purge {
    lambda: Option<String>,
    statuses: Option<Vec<Status>>,
    collection: Option<String>,
    older_than: Option<Duration>,
    limit: Option<i64>,
}

/// How far it has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct PurgeProgress {
    /// Whether there is more to do: another [`Client::advance_purge`].
    pub running: bool,
    /// Tasks looked at.
    pub looked: i64,
    /// Tasks deleted.
    pub purged: i64,
    /// Tasks left alone: others need them, somebody had locked them, or they are archived to files, which only
    /// `tuskline purge --archive-dir` writes.
    pub spared: i64,
}

impl Purge {
    /// Of no tasks yet: say of which.
    pub fn new() -> Self {
        Self::default()
    }

    /// Only those of a lambda.
    #[must_use]
    pub fn lambda(mut self, lambda: &str) -> Self {
        self.lambda = Some(lambda.into());
        self
    }

    /// Only those that ended so: success, fatal failure, dead, cancelled or dropped.
    #[must_use]
    pub fn statuses(mut self, statuses: &[Status]) -> Self {
        self.statuses = Some(statuses.to_vec());
        self
    }

    /// Only those of a collection.
    #[must_use]
    pub fn collection(mut self, collection: &str) -> Self {
        self.collection = Some(collection.into());
        self
    }

    /// Only those that ended at least so long ago; otherwise a minute.
    #[must_use]
    pub fn older_than(mut self, age: Duration) -> Self {
        self.older_than = Some(age);
        self
    }

    /// So many at most.
    #[must_use]
    pub fn limit(mut self, tasks: i64) -> Self {
        self.limit = Some(tasks);
        self
    }
}

const START: &str = "select tuskline.start_purge($1, $2, $3, make_interval(secs => $4), $5, $6)";
const ADVANCE: &str = "select state, looked, purged, spared from tuskline.advance_purge($1)";

impl Client {
    /// Begins a purge and returns its number. Nothing is deleted before [`Client::advance_purge`] is called; whoever
    /// knows the number may go on with one that was interrupted.
    ///
    /// # Errors
    /// [`Error::Invalid`]: it does not say which tasks (TK030), or an unknown lambda (TK001). [`Error::Denied`],
    /// [`Error::Unavailable`], [`Error::Unknown`].
    pub async fn start_purge(&self, purge: &Purge, reason: Option<&str>) -> Result<i64, Error> {
        let statuses: Option<Vec<&str>> =
            purge.statuses.as_ref().map(|all| all.iter().map(|one| one.as_str()).collect());
        let age_s = purge.older_than.map(|age| age.as_secs_f64());
        let parameters: &Parameters<'_> = &[
            (&purge.lambda, Type::TEXT),
            (&statuses, Type::TEXT_ARRAY),
            (&purge.collection, Type::TEXT),
            (&age_s, Type::FLOAT8),
            (&purge.limit, Type::INT8),
            (&reason, Type::TEXT),
        ];
        Ok(self.act(START, parameters).await?.get(0))
    }

    /// Looks at the next 5,000 tasks and deletes those it is about. Call until it is not running.
    ///
    /// # Errors
    /// [`Error::Invalid`]: no such number (TK030). [`Error::Denied`], [`Error::Unavailable`], [`Error::Unknown`].
    pub async fn advance_purge(&self, number: i64) -> Result<PurgeProgress, Error> {
        let row = self.act(ADVANCE, &[(&number, Type::INT8)]).await?;
        let state: &str = row.get(0);
        Ok(PurgeProgress {
            running: state == "running",
            looked: row.get(1),
            purged: row.get(2),
            spared: row.get(3),
        })
    }
}
