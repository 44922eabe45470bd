//! Calls of lambda owners: periodic tasks, and operations on many tasks.
//! Each call is one transaction of its own; in yours, call the functions of the same names.

mod operation;
mod periodic;

use tokio::time::timeout;
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

pub use operation::{Action, Operation, OperationPreview, OperationProgress};
pub use periodic::{Defined, Missed, Overlap, Periodic};

use crate::{Client, Error};

/// Parameters of a statement, with their types.
type Parameters<'a> = [(&'a (dyn ToSql + Sync), Type)];

impl Client {
    /// The only row of a call that changes something, in a transaction of its own.
    async fn act(&self, sql: &str, parameters: &Parameters<'_>) -> Result<Row, Error> {
        let connection = self.pool.get().await?;
        let call = timeout(self.deadline, Client::within(&**connection).one(sql, parameters)).await;
        self.written(connection, call)
    }

    /// The rows of a call that changes nothing.
    async fn look(&self, sql: &str, parameters: &Parameters<'_>) -> Result<Vec<Row>, Error> {
        let connection = self.pool.get().await?;
        let rows =
            async { connection.query_typed(sql, parameters).await.map_err(Error::from_read) };
        let call = timeout(self.deadline, rows).await;
        self.answered(connection, call, Error::Unavailable).map(|(_, rows)| rows)
    }
}
