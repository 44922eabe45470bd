//! The transaction that the caller has already, whichever library it comes from.
//!
//! Promises: a call within it commits or rolls back with the caller's own writes. Must never: show a type of
//! such a library where it is not asked for. A known library is one `impl` behind one feature; `adapter` is for
//! any other.

pub(crate) mod adapter;
#[cfg(feature = "sqlx")]
mod of_sqlx;
pub(super) mod texts;

use std::pin::Pin;

use tokio_postgres::types::{FromSql, Type};

use crate::client::connection::Connection;
use crate::db::Parameters;
use crate::error::{Error, ErrorKind};

/// A transaction of tokio-postgres or deadpool-postgres, or of sqlx (feature `sqlx`), or an
/// [`Adapter`](crate::Adapter) of any other library. A connection is one as well: then each call commits
/// by itself.
///
/// The trait has no lifetime and is implemented for the transaction itself, not for a reference. So a
/// function of yours can take `&mut impl Transaction` and use it twice.
///
/// # Example
/// ```
/// # use tuskline_sdk::{Client, Error, NewTask, Transaction};
/// async fn place_order(order: i64, transaction: &mut impl Transaction) -> Result<(), Error> {
///     let tasks = Client::within(transaction);
///     tasks.schedule(NewTask::new("charge", &order)).await?;
///     tasks.schedule(NewTask::new("send_receipt", &order)).await?;
///     Ok(())
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a transaction that Tuskline knows",
    label = "expected a transaction of tokio-postgres, deadpool-postgres or sqlx",
    note = "for sqlx, enable the feature `sqlx`",
    note = "for any other library, implement `Adapter` for a type of your own that holds its transaction",
    note = "pass the transaction by `&mut`; a pool is not a transaction"
)]
pub trait Transaction: sealed::Session {}

#[diagnostic::do_not_recommend]
impl<T: sealed::Session> Transaction for T {}

pub(crate) mod sealed {
    use super::{Answering, ErrorKind, Parameters};

    /// All that an adapter implements. The verbs are written once on top.
    pub trait Session: Send {
        /// Sends one statement. `broken`: the kind of the error if the connection breaks before the answer.
        fn query<'a>(
            &'a mut self,
            sql: &'a str,
            parameters: &'a Parameters<'a>,
            broken: ErrorKind,
        ) -> Answering<'a>;
    }
}

/// The answer to a statement, when it comes.
pub type Answering<'a> = Pin<Box<dyn Future<Output = Result<Vec<Row>, Error>> + Send + 'a>>;

/// A row of an answer.
#[derive(Debug)]
pub struct Row(pub(crate) RowOf);

#[derive(Debug)]
pub(crate) enum RowOf {
    Postgres(tokio_postgres::Row),
    /// Type and bytes of each column, in PostgreSQL's binary format.
    Raw(Vec<(Type, Option<Vec<u8>>)>),
}

impl Row {
    /// A value. The statements are ours, so a column that is missing or has another type is a fault of ours.
    ///
    /// # Panics
    /// As `tokio_postgres::Row::get`.
    pub(crate) fn get<'r, T: FromSql<'r>>(&'r self, at: usize) -> T {
        match &self.0 {
            RowOf::Postgres(row) => row.get(at),
            RowOf::Raw(columns) => {
                let value =
                    columns.get(at).map(|(kind, raw)| T::from_sql_nullable(kind, raw.as_deref()));
                match value {
                    Some(Ok(value)) => value,
                    Some(Err(error)) => panic!("column {at}: {error}"),
                    None => panic!("no column {at}"),
                }
            }
        }
    }
}

/// The rows, or the error by what the caller can do.
pub(crate) fn answer(
    rows: Result<Vec<tokio_postgres::Row>, tokio_postgres::Error>,
    broken: ErrorKind,
) -> Result<Vec<Row>, Error> {
    let rows = rows.map_err(|error| Error::of_postgres(error, broken))?;
    Ok(rows.into_iter().map(|row| Row(RowOf::Postgres(row))).collect())
}

/// An adapter sends a statement with parameters and gives its rows.
macro_rules! adapters {
    ($(|$session:ident: $kind:ty, $sql:ident, $parameters:ident, $broken:ident| $answer:expr;)*) => { $(
        impl crate::client::session::sealed::Session for $kind {
            fn query<'a>(
                &'a mut self,
                $sql: &'a str,
                $parameters: &'a crate::db::Parameters<'a>,
                $broken: crate::error::ErrorKind,
            ) -> crate::client::session::Answering<'a> {
                let $session = self;
                Box::pin(async move { $answer })
            }
        }
    )* };
}
#[cfg(feature = "sqlx")]
use adapters;

// A pooler may stand between, so all but the last send statements without a name.
adapters! {
    |session: tokio_postgres::Client, sql, parameters, broken|
        answer(session.query_typed(sql, parameters).await, broken);
    |session: tokio_postgres::Transaction<'_>, sql, parameters, broken|
        answer(session.query_typed(sql, parameters).await, broken);
    |session: deadpool_postgres::Client, sql, parameters, broken|
        answer(session.query_typed(sql, parameters).await, broken);
    |session: deadpool_postgres::ClientWrapper, sql, parameters, broken|
        answer(session.query_typed(sql, parameters).await, broken);
    |session: deadpool_postgres::Transaction<'_>, sql, parameters, broken|
        answer(session.query_typed(sql, parameters).await, broken);
    |session: Connection, sql, parameters, broken|
        answer(session.query_prepared(sql, parameters).await, broken);
}
