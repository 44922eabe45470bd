//! A test's own database.

use serde::Serialize;
use tuskline_sdk::{Address, Client, DataMap, Lambda, Outcome, TaskId, Worker, WorkerBuilder};

use super::server::Place;
use super::{Drained, Error, Inline, Limit, Task, Tasks};
use tuskline::session::{Deadlines, Session};

/// Longest that a statement of the test may take: one that waits for a forgotten lock fails, it does not
/// hang.
const PATIENCE: &str = "set statement_timeout = '30s'";

/// A task store of one test, with everything to make assertions about it. Deleted when it is dropped, with
/// whatever is still connected to it.
pub struct Database {
    place: Place,
    client: Client,
    sql: Session,
    own: Session,
    gone: bool,
}

impl Database {
    /// A fresh database: in a throw-away cluster that the first call in this process starts, or on the server
    /// that `TUSKLINE_TEST_DATABASE_URL` names.
    ///
    /// # Errors
    /// [`Error::Server`], in one line that says what to do; [`Error::Migrate`], [`Error::Database`].
    pub async fn new() -> Result<Self, Error> {
        Self::on(Place::make().await?).await
    }

    /// A fresh database on a server of yours: `url` names any database on it, under a role that may create
    /// databases. PostgreSQL 15 to 18.
    ///
    /// # Errors
    /// As [`Database::new`].
    pub async fn at(url: &str) -> Result<Self, Error> {
        Self::on(Place::make_at(url).await?).await
    }

    async fn on(place: Place) -> Result<Self, Error> {
        let sql = Session::plain(&place.address, "test").await?;
        sql.client().batch_execute(PATIENCE).await?;
        let own = Session::open(&place.address, "testing", Deadlines::USUAL).await?;
        let client = Client::connect(&place.address).await?;
        Ok(Self { place, client, sql, own, gone: false })
    }

    /// Where it is, for whatever takes an address.
    pub fn url(&self) -> &str {
        &self.place.url
    }

    /// The same, parsed.
    pub fn address(&self) -> &Address {
        &self.place.address
    }

    /// A client of the SDK. A transaction of your own: [`Client::connection`].
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// A connection for SQL of your own, to look at your own tables. A statement that takes longer than 30 s
    /// fails.
    pub fn sql(&self) -> &tokio_postgres::Client {
        self.sql.client()
    }

    /// Runs statements of your own, separated by semicolons: tables, rows, verbs of Tuskline.
    ///
    /// # Errors
    /// [`Error::Database`].
    pub async fn run(&self, sql: &str) -> Result<(), Error> {
        Ok(self.sql().batch_execute(sql).await?)
    }

    /// Makes lambdas known with the default settings, as they must be before something of them is scheduled.
    /// Other settings: [`Database::run`] `select tuskline.define_lambda(...)`.
    ///
    /// # Errors
    /// [`Error::Sdk`]: a name that is none.
    pub async fn define(&self, lambdas: &[&str]) -> Result<(), Error> {
        for lambda in lambdas {
            self.client.define_lambda(lambda).await?;
        }
        Ok(())
    }

    /// A worker on this database, with no lambdas yet; or make one from [`Database::url`], as your own
    /// program does.
    pub fn worker(&self) -> WorkerBuilder {
        Worker::builder(&self.place.address)
    }

    /// Executes everything that is due, and what follows from it: retries that are due, tasks that bodies
    /// schedule, chains, ticks. Returns when nothing is due any more and nothing runs. Tasks that are due later stay,
    /// and so do those that `worker` has no lambda for ([`Drained::unserved`]). Lambdas that are not
    /// defined become so. Each drain starts the worker, and a store consumer, and stops them.
    ///
    /// With a pinned clock nothing comes due meanwhile, but for one thing: a task that was told to ask
    /// again in 20 ms, because another transaction had locked a row that it needs, moves the clock by as much.
    ///
    /// # Errors
    /// [`Error::NotDrained`] past the default [`Limit`], which says what is left; [`Error::Worker`];
    /// [`Error::Sdk`]: what [`Worker::run`] refuses; [`Error::Database`].
    pub async fn drain(&self, worker: WorkerBuilder) -> Result<Drained, Error> {
        self.drain_within(worker, Limit::default()).await
    }

    /// The same within bounds of your own.
    ///
    /// # Errors
    /// As [`Database::drain`].
    pub async fn drain_within(
        &self,
        worker: WorkerBuilder,
        limit: Limit,
    ) -> Result<Drained, Error> {
        let mut inline = self.inline(worker).await?;
        let drained = inline.drain_within(limit).await?;
        inline.stop().await?;
        Ok(drained)
    }

    /// Keeps a worker and a store consumer at work until the answer is dropped: whatever is scheduled here, by
    /// whichever client, is executed as soon as it commits and is due.
    ///
    /// # Errors
    /// [`Error::Worker`]; [`Error::Sdk`]: what [`Worker::run`] refuses; [`Error::Database`].
    pub async fn inline(&self, worker: WorkerBuilder) -> Result<Inline<'_>, Error> {
        Inline::start(self, worker).await
    }

    /// Calls the body of a lambda with a payload, here and now: encoded and decoded as on the way through the
    /// database, but without a task. There is nothing to retry, so the answer is what the body said, and a
    /// panic is the test's. Its context is of attempt 1 of no task: [`Context::schedule`] and
    /// [`Context::client`] work, what asks whether the attempt holds its task (`assert_current`,
    /// `complete_in`, `progress`, `save`) gets [`ErrorKind::Fenced`]: [`Inline::run`] such bodies.
    ///
    /// [`Context::schedule`]: tuskline_sdk::Context::schedule
    /// [`Context::client`]: tuskline_sdk::Context::client
    /// [`ErrorKind::Fenced`]: tuskline_sdk::ErrorKind::Fenced
    ///
    /// # Errors
    /// [`Error::Sdk`]: a payload that could not be scheduled. One that does not decode is the lambda's
    /// [`Outcome::Fatal`].
    pub async fn perform(
        &self,
        lambda: &Lambda,
        payload: &impl Serialize,
    ) -> Result<Outcome, Error> {
        self.perform_attempt(lambda, payload, 1).await
    }

    /// The same as a later attempt, counted from 1.
    ///
    /// # Errors
    /// As [`Database::perform`].
    pub async fn perform_attempt(
        &self,
        lambda: &Lambda,
        payload: &impl Serialize,
        attempt: i16,
    ) -> Result<Outcome, Error> {
        Ok(lambda.perform(payload, attempt, &self.client, &DataMap::default()).await?)
    }

    /// Every task of this database, in the order of their ids, to make assertions about.
    ///
    /// # Errors
    /// [`Error::Database`].
    pub async fn tasks(&self) -> Result<Tasks, Error> {
        Tasks::read(self).await
    }

    /// The tasks of a lambda, whatever has become of them since they were scheduled.
    ///
    /// # Errors
    /// [`Error::Database`].
    pub async fn scheduled(&self, lambda: &str) -> Result<Tasks, Error> {
        Ok(self.tasks().await?.of(lambda))
    }

    /// One task, with its failures and its output.
    ///
    /// # Errors
    /// [`Error::NoSuchTask`], [`Error::Database`].
    pub async fn task(&self, id: TaskId) -> Result<Task, Error> {
        Task::read(self, id).await
    }

    /// Deletes the database, as dropping it does, and says if that failed.
    ///
    /// # Errors
    /// [`Error::Database`].
    pub async fn close(mut self) -> Result<(), Error> {
        self.gone = true;
        self.place.remove().await
    }

    /// The connection that the kit looks through; the test's own may be in a transaction.
    pub(super) fn own(&self) -> &tokio_postgres::Client {
        self.own.client()
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        if self.gone {
            return;
        }
        if let Err(error) = self.place.remove_now() {
            tracing::warn!(%error, "the database of a test stays");
        }
    }
}

/// Without the password that its address may have.
impl std::fmt::Debug for Database {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Database({})", self.place.address.config().get_dbname().unwrap_or_default())
    }
}
