//! Where a client sends its statements: to a connection of its pool, or to the transaction of the caller.
//!
//! Promises: on a pool each statement is a transaction with a deadline, and a change whose commit may be
//! missing on the synchronous standby is an error. Must never: send a statement twice.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::timeout;

use crate::client::connection::{Connection, Pool};
use crate::client::session::sealed::Session;
use crate::client::session::{Answering, answer};
use crate::client::wait::EndListener;
use crate::db::Parameters;
use crate::db::role::in_role;
use crate::error::{Error, ErrorKind};

/// Sends one statement of a client.
pub trait Sender: Send + Sync {
    /// Its rows. `broken`: the kind of the error if the connection breaks before the answer. In a box: a caller
    /// with many calls keeps a small future.
    fn send<'a>(
        &'a self,
        sql: &'a str,
        parameters: &'a Parameters<'a>,
        broken: ErrorKind,
    ) -> Answering<'a>;
}

/// The pool of a [`Client`](crate::Client).
#[derive(Debug, Clone)]
pub struct OnPool {
    pub(super) pool: Pool,
    /// The role of each call; none: that of the login.
    pub(super) role: Option<Arc<str>>,
    pub(super) deadline: Duration,
    pub(super) end_listener: Arc<EndListener>,
}

impl Sender for OnPool {
    fn send<'a>(
        &'a self,
        sql: &'a str,
        parameters: &'a Parameters<'a>,
        broken: ErrorKind,
    ) -> Answering<'a> {
        Box::pin(async move {
            let connection = self.pool.get().await?;
            let rows = timeout(self.deadline, self.ask(&connection, sql, parameters)).await;
            let rows = rows.ok().map(|rows| answer(rows, broken));
            self.answered(connection, rows, broken)
        })
    }
}

impl OnPool {
    /// Sends one statement, in the role. Always in a transaction that sets it: whether a transaction pooler stands
    /// between is not known here.
    pub(super) async fn ask(
        &self,
        connection: &Connection,
        sql: &str,
        parameters: &Parameters<'_>,
    ) -> Result<Vec<tokio_postgres::Row>, tokio_postgres::Error> {
        match &self.role {
            None => connection.query_prepared(sql, parameters).await,
            Some(role) => in_role(connection, role, connection.query_typed(sql, parameters)).await,
        }
    }

    /// The answer of a call; none: it did not come in time. Then the connection is closed: the next caller must
    /// not read that answer. A change is unknown if its commit may be missing on the synchronous standby.
    pub(super) fn answered<T>(
        &self,
        connection: Connection,
        answer: Option<Result<T, Error>>,
        broken: ErrorKind,
    ) -> Result<T, Error> {
        let Some(answer) = answer else {
            connection.discard();
            return Err(Error::new(broken, format!("no answer within {:?}", self.deadline)));
        };
        let answer = answer?;
        if broken == ErrorKind::Unknown {
            connection.confirm()?;
        }
        Ok(answer)
    }
}

/// The transaction of a [`TransactionClient`](crate::TransactionClient). Calls at the same time wait for each
/// other.
pub struct InTransaction<'t>(pub(super) Mutex<&'t mut dyn Session>);

impl Sender for InTransaction<'_> {
    fn send<'a>(
        &'a self,
        sql: &'a str,
        parameters: &'a Parameters<'a>,
        broken: ErrorKind,
    ) -> Answering<'a> {
        Box::pin(async move { self.0.lock().await.query(sql, parameters, broken).await })
    }
}

impl fmt::Debug for InTransaction<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InTransaction").finish_non_exhaustive()
    }
}
