//! Schedule tasks, ask about them and steer them: on a pool of connections, or within a transaction of
//! the caller.
//!
//! Each call stands once, as a method of [`Client`] for any [`Sender`]: those about tasks in `tasks.rs`,
//! those of owners in `owners.rs` and `operation/calls.rs`. This file has the calls that need the pool.

pub(crate) mod builder;
pub(crate) mod chain;
pub(crate) mod connection;
pub(crate) mod definition;
pub(crate) mod new_task;
pub(crate) mod operation;
mod owners;
pub(crate) mod payload;
pub(crate) mod periodic;
pub(crate) mod sender;
pub(crate) mod session;
pub(crate) mod setters;
pub(crate) mod status;
mod tasks;
pub mod verbs;
mod wait;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::timeout;
use tokio_postgres::types::Type;

use crate::client::builder::{ClientBuilder, DEADLINE};
use crate::client::chain::{On, ScheduledBatch};
use crate::client::connection::{Connection, Pool};
use crate::client::new_task::NewTask;
use crate::client::payload::IntoTask;
pub use crate::client::sender::{InTransaction, OnPool};
use crate::client::session::Transaction;
use crate::client::status::TaskStatus;
use crate::db::address::IntoAddress;
use crate::db::role::SET_ROLE;
use crate::error::{Error, ErrorKind};
use crate::task::TaskId;

/// Most tasks in one [`Client::schedule_many`]; use `COPY tuskline.task` for more.
pub const BATCH_MAX: usize = 10_000;

/// A client: on a pool of connections, cheap to clone; or within a transaction of yours
/// ([`Client::within`]).
///
/// On a pool each call is a transaction of its own. A call in your transaction sees what that transaction
/// sees, takes effect when you commit, and has no deadline of ours.
#[derive(Debug, Clone)]
pub struct Client<S = OnPool> {
    pub(crate) sender: S,
}

/// A client within a transaction of yours; see [`Client::within`].
pub type TransactionClient<'t> = Client<InTransaction<'t>>;

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
        let (pool, end_listener) = (Pool::given(pool), Arc::default());
        Self { sender: OnPool { pool, role: None, deadline: DEADLINE, end_listener } }
    }

    /// The same client with another longest wait for an answer: see [`ClientBuilder::deadline`].
    #[must_use]
    pub fn with_deadline(&self, deadline: Duration) -> Self {
        Self { sender: OnPool { deadline, ..self.sender.clone() } }
    }

    /// The same client acting as another role, of which the login is a member. The database checks the rights of
    /// that role. `none` is the login.
    ///
    /// Each call sets the role in its own transaction, so a transaction pooler may stand between, and clients of
    /// several roles may share the connections. In a transaction of yours ([`Client::within`],
    /// [`Client::connection`]) the role is the one that you set there: `set local role`.
    ///
    /// # Errors
    /// None here. Each call is refused for a role that does not exist ([`Invalid`](crate::ErrorKind::Invalid))
    /// or that the login may not set ([`Denied`](crate::ErrorKind::Denied)).
    #[must_use]
    pub fn as_role(&self, role: impl Into<Arc<str>>) -> Self {
        Self { sender: OnPool { role: Some(role.into()), ..self.sender.clone() } }
    }

    /// The same calls on your own connection or transaction: their changes commit or roll back with it.
    /// After your commit, ask [`Connection::confirm`]. They act as the role that the transaction has.
    pub fn within(transaction: &mut impl Transaction) -> TransactionClient<'_> {
        Client { sender: InTransaction(Mutex::new(transaction)) }
    }

    /// A connection of the pool, for a transaction of your own.
    ///
    /// # Errors
    /// [`Unavailable`](crate::ErrorKind::Unavailable).
    pub async fn connection(&self) -> Result<Connection, Error> {
        self.sender.pool.get().await
    }
}

/// Calls of more than one statement.
impl Client {
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
        let mut connection = self.sender.pool.get().await?;
        let call = async {
            let mut transaction = connection.transaction().await.map_err(Error::from_read)?;
            if let Some(role) = &self.sender.role {
                let set = transaction.query_typed(SET_ROLE, &[(&&**role, Type::TEXT)]).await;
                set.map_err(Error::from_read)?;
            }
            let within = Self::within(&mut transaction);
            let ids = within.schedule_many(tasks).await?;
            let then = within.schedule_then(&ids, On::Always, then).await?;
            transaction.commit().await.map_err(Error::from_write)?;
            Ok(ScheduledBatch { ids, then })
        };
        let answer = timeout(self.sender.deadline, call).await;
        self.sender.answered(connection, answer.ok(), ErrorKind::Unknown)
    }

    /// Waits until a task has ended, for `limit` at most, and returns its status then: see
    /// [`Status::is_terminal`](crate::Status::is_terminal). `None`: no such id, or past its retention.
    ///
    /// # Errors
    /// As [`Client::status`]. [`Denied`](crate::ErrorKind::Denied), too: the task has ended, and the caller lacks the
    /// right [`Inspect`](crate::Privilege::Inspect) to see what it returned. [`Client::status`] tells the status alone.
    pub async fn wait(&self, task: TaskId, limit: Duration) -> Result<Option<TaskStatus>, Error> {
        self.until_ended(task, limit).await
    }
}
