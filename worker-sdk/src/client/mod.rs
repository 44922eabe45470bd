//! Schedule tasks, ask about them and steer them: on a pool of connections, or within a transaction of
//! the caller.
//!
//! Every call of a [`Client`] stands in this file. Each is one transaction of its own. The same call
//! within the caller's transaction is in `transaction.rs`, `operation.rs` and `periodic.rs`.

pub(crate) mod calls;
pub(crate) mod chain;
pub(crate) mod connection;
pub(crate) mod new_task;
pub(crate) mod operation;
pub(crate) mod periodic;
pub(crate) mod status;
mod transaction;
mod wait;

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::timeout;
use tokio_postgres::GenericClient;

use crate::client::calls::{change, read};
use crate::client::chain::{Chain, On, ParentTask, Scheduled};
use crate::client::connection::{Connection, Pool};
use crate::client::new_task::NewTask;
use crate::client::operation::{Operation, OperationPreview, OperationProgress};
use crate::client::periodic::{Defined, Periodic};
use crate::client::status::{Cancelled, Reason, Retried, TaskStatus};
pub use crate::client::transaction::TransactionClient;
use crate::client::wait::EndListener;
use crate::db::address::Address;
use crate::db::version;
use crate::error::Error;
use crate::task::TaskId;

/// Most tasks in one [`Client::schedule_many`]; use `COPY tuskline.task` for more.
pub const BATCH_MAX: usize = 10_000;

/// Longest wait for an answer, unless [`Client::deadline`] sets another. The same as a worker's.
const DEADLINE: Duration = Duration::from_secs(15);

/// A client on a pool of connections. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Client {
    pub(crate) pool: Pool,
    pub(crate) deadline: Duration,
    end_listener: Arc<EndListener>,
}

/// How a client comes about.
impl Client {
    /// Connects to `url` with up to 8 connections, and checks that schema and binary fit together.
    ///
    /// # Errors
    /// [`Error::Invalid`]: the url; [`Error::Unavailable`]; [`Error::Denied`]; [`Error::Incompatible`].
    pub async fn connect(url: &str) -> Result<Self, Error> {
        let address: Address = url
            .parse()
            .map_err(|error| Error::invalid("TK013", format!("invalid_url: {error}")))?;
        Self::with_address(address).await
    }

    /// The same from a parsed address, or a configuration of tokio-postgres.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub async fn with_address(address: impl Into<Address>) -> Result<Self, Error> {
        let client = Self::lazy(address.into(), None)?;
        version::check(read!(client, db => db.version())?)?;
        Ok(client)
    }

    /// Opens no connection yet. `runtime` drives its connections; none: the runtime of each caller.
    pub(crate) fn lazy(address: Address, runtime: Option<Handle>) -> Result<Self, Error> {
        let address = address.with(|config| {
            if config.get_application_name().is_none() {
                config.application_name("tuskline-client");
            }
        });
        let end_listener = Arc::new(EndListener::on(address.clone(), runtime.clone()));
        Ok(Self { pool: Pool::own(address, runtime)?, deadline: DEADLINE, end_listener })
    }

    /// A client on a pool that you already have. The schema is not checked. Such a pool drops the
    /// server's warnings, so a commit whose wait for a synchronous standby was cancelled is not noticed.
    pub fn on(pool: deadpool_postgres::Pool) -> Self {
        Self { pool: Pool::Given(pool), deadline: DEADLINE, end_listener: Arc::default() }
    }

    /// Sets the longest wait for the answer to one call; 15 s by default. A call without an answer closes
    /// its connection and returns [`Error::Unknown`], or [`Error::Unavailable`] if it changes nothing.
    /// Calls through [`Client::within`] and [`Client::connection`] have no deadline of ours.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// The same calls on your own connection or transaction: their changes commit or roll back with it.
    /// After your commit, ask [`Connection::confirm`].
    pub fn within<C: GenericClient>(connection: &C) -> TransactionClient<'_, C> {
        TransactionClient { connection }
    }

    /// A connection of the pool, for a transaction of your own.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn connection(&self) -> Result<Connection, Error> {
        self.pool.get().await
    }
}

/// Scheduling.
impl Client {
    /// Schedules one task. It is accepted when this returns its id. If another task holds its unique key,
    /// the id is that task's.
    ///
    /// # Errors
    /// [`Error::Invalid`] (unknown lambda, too large, due date, ...), [`Error::Unavailable`].
    /// [`Error::Unknown`]: the connection broke before the answer came, or the deadline passed. Or the wait
    /// for a synchronous standby was cancelled: the task is accepted, and a failover may lose it.
    pub async fn schedule(&self, task: &NewTask) -> Result<TaskId, Error> {
        change!(self, db => db.schedule(task))
    }

    /// Schedules up to [`BATCH_MAX`] tasks in one commit, all or none; ids in the order given.
    ///
    /// # Errors
    /// As [`Client::schedule`]; a refusal names the row.
    pub async fn schedule_many(&self, tasks: &[NewTask]) -> Result<Vec<TaskId>, Error> {
        change!(self, db => db.schedule_many(tasks))
    }

    /// Schedules tasks, and one that runs when all of them have ended, in one commit. That task reads
    /// their results with [`Context::parents`](crate::Context::parents).
    ///
    /// # Errors
    /// As [`Client::schedule_many`] and [`Client::schedule_chain`].
    pub async fn schedule_many_then(
        &self,
        tasks: &[NewTask],
        then: &NewTask,
    ) -> Result<(Vec<TaskId>, TaskId), Error> {
        let mut connection = self.pool.get().await?;
        let call = async {
            let transaction = connection.transaction().await.map_err(Error::from_read)?;
            let within = Self::within(&*transaction);
            let ids = within.schedule_many(tasks).await?;
            let then = within.schedule_then(&ids, On::Always, then).await?;
            transaction.commit().await.map_err(Error::from_write)?;
            Ok((ids, then))
        };
        let answer = timeout(self.deadline, call).await;
        self.changed(connection, answer.ok())
    }

    /// Schedules the tasks of a chain in one commit, all or none.
    ///
    /// # Errors
    /// As [`Client::schedule`]. [`Error::Invalid`]: a circle, two tasks of one name, an unknown parent, a
    /// parent on two conditions, a path of over 1,000 tasks, or over 10,000 tasks in all.
    pub async fn schedule_chain(&self, chain: &Chain) -> Result<Scheduled, Error> {
        change!(self, db => db.schedule_chain(chain))
    }
}

/// Asking about tasks.
impl Client {
    /// Everything known of a task; `None`: no such id, or past its retention.
    ///
    /// # Errors
    /// [`Error::Unavailable`], [`Error::Denied`].
    pub async fn status(&self, task: TaskId) -> Result<Option<TaskStatus>, Error> {
        read!(self, db => db.status(task))
    }

    /// Waits until a task has ended, for `limit` at most, and returns its status then: see
    /// [`Status::is_terminal`](crate::Status::is_terminal). `None`: no such id, or past its retention.
    ///
    /// # Errors
    /// As [`Client::status`].
    pub async fn wait(&self, task: TaskId, limit: Duration) -> Result<Option<TaskStatus>, Error> {
        self.until_ended(task, limit).await
    }

    /// Why a task does not run: every reason that holds now, the first one to look at on top.
    ///
    /// # Errors
    /// As [`Client::status`].
    pub async fn explain(&self, task: TaskId) -> Result<Vec<Reason>, Error> {
        read!(self, db => db.explain(task))
    }

    /// The tasks that a task waits or waited for, and their outputs.
    ///
    /// # Errors
    /// As [`Client::status`].
    pub async fn parents(&self, task: TaskId) -> Result<Vec<ParentTask>, Error> {
        read!(self, db => db.parents(task))
    }
}

/// Steering tasks.
impl Client {
    /// Cancels a task, or asks the worker that holds it to stop.
    ///
    /// # Errors
    /// [`Error::Unavailable`], [`Error::Denied`], [`Error::Unknown`].
    pub async fn cancel(&self, task: TaskId, reason: Option<&str>) -> Result<Cancelled, Error> {
        change!(self, db => db.cancel(task, reason))
    }

    /// Cancels the chain that a task belongs to. Returns how many tasks ended at once, and how many are
    /// with a worker and were asked to stop.
    ///
    /// # Errors
    /// As [`Client::cancel`], and [`Error::Invalid`]: the task belongs to no chain.
    pub async fn cancel_chain(
        &self,
        task: TaskId,
        reason: Option<&str>,
    ) -> Result<(i32, i32), Error> {
        change!(self, db => db.cancel_chain(task, reason))
    }

    /// Starts a task again that ended, but not in success. The tasks that depend on it wait again.
    ///
    /// # Errors
    /// As [`Client::cancel`].
    pub async fn retry(&self, task: TaskId) -> Result<Retried, Error> {
        change!(self, db => db.retry(task))
    }

    /// The same for the whole chain that a task belongs to; returns how many tasks start again.
    ///
    /// # Errors
    /// As [`Client::cancel_chain`].
    pub async fn retry_chain(&self, task: TaskId) -> Result<i32, Error> {
        change!(self, db => db.retry_chain(task))
    }
}

/// Calls of lambda owners.
impl Client {
    /// Defines a lambda with the default settings; `false`: it was defined already.
    ///
    /// # Errors
    /// [`Error::Invalid`]: the name; [`Error::Denied`]; [`Error::Unavailable`]; [`Error::Unknown`].
    pub async fn define_lambda(&self, name: &str) -> Result<bool, Error> {
        change!(self, db => db.define_lambda(name))
    }

    /// Starts an operation on many tasks and returns its number. Store consumers carry it out.
    ///
    /// # Errors
    /// [`Error::Invalid`]: it does not say which tasks, a status that the action is not for, a number
    /// out of range, a redrive without a reason (TK029), an unknown lambda (TK001).
    /// [`Error::Denied`], [`Error::Unavailable`], [`Error::Unknown`].
    pub async fn start_operation(
        &self,
        operation: &Operation,
        reason: Option<&str>,
    ) -> Result<i64, Error> {
        change!(self, db => db.start_operation(operation, reason))
    }

    /// How many tasks an operation would change now, by lambda and status.
    ///
    /// # Errors
    /// [`Error::Invalid`] as [`Client::start_operation`], [`Error::Denied`], [`Error::Unavailable`].
    pub async fn preview_operation(
        &self,
        operation: &Operation,
    ) -> Result<Vec<OperationPreview>, Error> {
        read!(self, db => db.preview_operation(operation))
    }

    /// How far an operation has come; `None`: no such number, or it ended over a month ago.
    ///
    /// # Errors
    /// [`Error::Denied`], [`Error::Unavailable`].
    pub async fn operation_progress(
        &self,
        number: i64,
    ) -> Result<Option<OperationProgress>, Error> {
        read!(self, db => db.operation_progress(number))
    }

    /// Stops an operation. Its changes so far stay. `false`: it was not running.
    ///
    /// # Errors
    /// [`Error::Denied`], [`Error::Unavailable`], [`Error::Unknown`].
    pub async fn stop_operation(&self, number: i64) -> Result<bool, Error> {
        change!(self, db => db.stop_operation(number))
    }

    /// Defines a schedule, or changes the one of that name. Every deployment may call it. A paused
    /// schedule stays paused.
    ///
    /// # Errors
    /// [`Error::Invalid`]: a cron or a zone that no server can read, a setting out of range, an unknown
    /// lambda. [`Error::Denied`], [`Error::Unavailable`], [`Error::Unknown`].
    pub async fn define_periodic(&self, periodic: &Periodic) -> Result<Defined, Error> {
        change!(self, db => db.define_periodic(periodic))
    }

    /// Pauses a schedule at once. Its ticks during the pause are not made up for. `false`: no such name.
    ///
    /// # Errors
    /// [`Error::Denied`], [`Error::Unavailable`], [`Error::Unknown`].
    pub async fn pause_periodic(&self, name: &str, reason: Option<&str>) -> Result<bool, Error> {
        change!(self, db => db.pause_periodic(name, reason))
    }

    /// Resumes a paused schedule with its next tick. `false`: no such name.
    ///
    /// # Errors
    /// As [`Client::pause_periodic`].
    pub async fn resume_periodic(&self, name: &str, reason: Option<&str>) -> Result<bool, Error> {
        change!(self, db => db.resume_periodic(name, reason))
    }

    /// Deletes a schedule. The tasks that it made stay. `false`: no such name.
    ///
    /// # Errors
    /// As [`Client::pause_periodic`].
    pub async fn drop_periodic(&self, name: &str, reason: Option<&str>) -> Result<bool, Error> {
        change!(self, db => db.drop_periodic(name, reason))
    }
}
