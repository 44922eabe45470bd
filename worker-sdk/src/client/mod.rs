//! Schedule tasks, ask about them and steer them: on a pool of connections, or within a transaction of
//! the caller.
//!
//! The calls of a [`Client`] stand in this file, and those of owners in `owners.rs`. Each is one
//! transaction of its own. The same call within the caller's transaction is in `transaction.rs`,
//! `transaction/owners.rs` and `operation.rs`.

pub(crate) mod builder;
pub(crate) mod calls;
pub(crate) mod chain;
pub(crate) mod connection;
pub(crate) mod definition;
pub(crate) mod new_task;
pub(crate) mod operation;
mod owners;
pub(crate) mod payload;
pub(crate) mod periodic;
pub(crate) mod session;
pub(crate) mod status;
mod transaction;
mod wait;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use crate::client::builder::{ClientBuilder, DEADLINE};
use crate::client::calls::{change, read};
use crate::client::chain::{CancelledChain, Chain, On, ParentTask, Scheduled, ScheduledBatch};
use crate::client::connection::{Connection, Pool};
use crate::client::new_task::NewTask;
use crate::client::payload::IntoTask;
use crate::client::session::Transaction;
use crate::client::status::{Cancelled, Reason, Retried, TaskStatus};
pub use crate::client::transaction::TransactionClient;
use crate::client::wait::EndListener;
use crate::db::address::IntoAddress;
use crate::error::Error;
use crate::task::TaskId;

/// Most tasks in one [`Client::schedule_many`]; use `COPY tuskline.task` for more.
pub const BATCH_MAX: usize = 10_000;

/// A client on a pool of connections. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Client {
    pub(crate) pool: Pool,
    pub(crate) deadline: Duration,
    end_listener: Arc<EndListener>,
}

/// How a client comes about.
impl Client {
    /// Connects with the defaults of a [`ClientBuilder`], and checks that schema and binary fit together. The
    /// address is a URL, `key=value` pairs, an [`Address`](crate::Address), or a configuration of tokio-postgres.
    ///
    /// # Errors
    /// As [`ClientBuilder::connect`].
    pub async fn connect(address: impl IntoAddress) -> Result<Self, Error> {
        Self::builder(address).connect().await
    }

    /// A client with settings of its own.
    pub fn builder(address: impl IntoAddress) -> ClientBuilder {
        ClientBuilder::new(address)
    }

    /// A client on a pool that you already have. The schema is not checked. Such a pool drops the
    /// server's warnings, so a commit whose wait for a synchronous standby was cancelled is not noticed.
    pub fn on(pool: deadpool_postgres::Pool) -> Self {
        Self { pool: Pool::given(pool), deadline: DEADLINE, end_listener: Arc::default() }
    }

    /// The same client with another longest wait for an answer: see [`ClientBuilder::deadline`].
    #[must_use]
    pub fn with_deadline(&self, deadline: Duration) -> Self {
        Self { deadline, ..self.clone() }
    }

    /// The same calls on your own connection or transaction: their changes commit or roll back with it.
    /// After your commit, ask [`Connection::confirm`].
    pub fn within(transaction: &mut impl Transaction) -> TransactionClient<'_> {
        TransactionClient { session: transaction }
    }

    /// A connection of the pool, for a transaction of your own.
    ///
    /// # Errors
    /// [`Unavailable`](crate::ErrorKind::Unavailable).
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
    /// [`Invalid`](crate::ErrorKind::Invalid) (unknown lambda, too large, due date, ...),
    /// [`Unavailable`](crate::ErrorKind::Unavailable). [`Unknown`](crate::ErrorKind::Unknown): the connection
    /// broke before the answer came, or the deadline passed. Or the wait for a synchronous standby was
    /// cancelled: the task is accepted, and a failover may lose it.
    pub async fn schedule(&self, task: impl IntoTask) -> Result<TaskId, Error> {
        change!(self, db => db.schedule(task))
    }

    /// Schedules up to [`BATCH_MAX`] tasks in one commit, all or none; ids in the order given.
    ///
    /// # Errors
    /// As [`Client::schedule`]; a refusal names the row.
    pub async fn schedule_many<I>(&self, tasks: I) -> Result<Vec<TaskId>, Error>
    where
        I: IntoIterator<Item: IntoTask>,
    {
        let tasks: Vec<NewTask> = tasks.into_iter().map(IntoTask::into_task).collect();
        change!(self, db => db.schedule_many(tasks))
    }

    /// Schedules tasks, and one that runs when all of them have ended, in one commit. That task reads
    /// their results with [`Context::parents`](crate::Context::parents).
    ///
    /// # Errors
    /// As [`Client::schedule_many`] and [`Client::schedule_chain`].
    pub async fn schedule_many_then<I>(
        &self,
        tasks: I,
        then: impl IntoTask,
    ) -> Result<ScheduledBatch, Error>
    where
        I: IntoIterator<Item: IntoTask>,
    {
        let tasks: Vec<NewTask> = tasks.into_iter().map(IntoTask::into_task).collect();
        let mut connection = self.pool.get().await?;
        let call = async {
            let mut transaction = connection.transaction().await.map_err(Error::from_read)?;
            let mut within = Self::within(&mut transaction);
            let ids = within.schedule_many(tasks).await?;
            let then = within.schedule_then(&ids, On::Always, then).await?;
            transaction.commit().await.map_err(Error::from_write)?;
            Ok(ScheduledBatch { ids, then })
        };
        let answer = timeout(self.deadline, call).await;
        self.changed(connection, answer.ok())
    }

    /// Schedules the tasks of a chain in one commit, all or none.
    ///
    /// # Errors
    /// As [`Client::schedule`]. [`Invalid`](crate::ErrorKind::Invalid): a circle, two tasks of one name, an
    /// unknown parent, a parent on two conditions, a path of over 1,000 tasks, or over 10,000 tasks in all.
    pub async fn schedule_chain(&self, chain: &Chain) -> Result<Scheduled, Error> {
        change!(self, db => db.schedule_chain(chain))
    }
}

/// Asking about tasks.
impl Client {
    /// Everything known of a task; `None`: no such id, or past its retention.
    ///
    /// # Errors
    /// [`Unavailable`](crate::ErrorKind::Unavailable), [`Denied`](crate::ErrorKind::Denied).
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
    /// [`Unavailable`](crate::ErrorKind::Unavailable), [`Denied`](crate::ErrorKind::Denied),
    /// [`Unknown`](crate::ErrorKind::Unknown).
    pub async fn cancel(&self, task: TaskId, reason: Option<&str>) -> Result<Cancelled, Error> {
        change!(self, db => db.cancel(task, reason))
    }

    /// Cancels the chain that a task belongs to.
    ///
    /// # Errors
    /// As [`Client::cancel`], and [`Invalid`](crate::ErrorKind::Invalid): the task belongs to no chain.
    pub async fn cancel_chain(
        &self,
        task: TaskId,
        reason: Option<&str>,
    ) -> Result<CancelledChain, Error> {
        change!(self, db => db.cancel_chain(task, reason))
    }

    /// Starts a task again that ended, but not in success. The tasks that depend on it wait again. It keeps
    /// its due time, if that is later than now.
    ///
    /// # Errors
    /// As [`Client::cancel`].
    pub async fn retry(&self, task: TaskId) -> Result<Retried, Error> {
        change!(self, db => db.retry(task))
    }

    /// The same, due now.
    ///
    /// # Errors
    /// As [`Client::cancel`].
    pub async fn retry_now(&self, task: TaskId) -> Result<Retried, Error> {
        change!(self, db => db.retry_now(task))
    }

    /// The same for the whole chain that a task belongs to; returns how many tasks start again.
    ///
    /// # Errors
    /// As [`Client::cancel_chain`].
    pub async fn retry_chain(&self, task: TaskId) -> Result<u32, Error> {
        change!(self, db => db.retry_chain(task))
    }
}
