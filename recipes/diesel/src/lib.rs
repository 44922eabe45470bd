//! Tuskline's calls within a transaction of diesel-async. Copy this file into your application.
//!
//! Promises: each call commits or rolls back with the writes of the transaction. Must never: open or end a
//! transaction of its own.

use diesel::QueryableByName;
use diesel::result::{DatabaseErrorKind, Error};
use diesel::sql_types::{Binary, Nullable, Text};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use tuskline_sdk::{Adapter, AdapterError, AdapterValue};

/// A connection of diesel-async, for `Client::within` and `Context::complete_in`. Within
/// `AsyncConnection::transaction`, wrap the connection that your closure gets. A nested transaction is a savepoint.
pub struct Diesel<'c>(pub &'c mut AsyncPgConnection);

#[derive(QueryableByName)]
struct Answer {
    #[diesel(sql_type = Binary)]
    answer: Vec<u8>,
}

impl Adapter for Diesel<'_> {
    async fn query(
        &mut self,
        sql: &str,
        values: Vec<Option<AdapterValue>>,
    ) -> Result<Vec<Vec<u8>>, AdapterError> {
        let mut query = diesel::sql_query(sql).into_boxed();
        for value in values {
            query = query.bind::<Nullable<Text>, _>(value.map(String::from));
        }
        let rows: Vec<Answer> = query.load(self.0).await.map_err(error)?;
        Ok(rows.into_iter().map(|row| row.answer).collect())
    }
}

/// diesel hides the SQLSTATE. It has a kind for some; the SDK knows Tuskline's own by the message. Any other error
/// that the server reports, a deadlock for example, is `ErrorKind::Invalid`. A session that the server ends is known by
/// its message, if `lc_messages` is English.
fn error(error: Error) -> AdapterError {
    let Error::DatabaseError(kind, said) = error else { return AdapterError::broken(error) };
    if said.message().starts_with("terminating connection") {
        return AdapterError::broken(Error::DatabaseError(kind, said));
    }
    let sqlstate = match kind {
        DatabaseErrorKind::UnableToSendCommand | DatabaseErrorKind::ClosedConnection => {
            return AdapterError::broken(Error::DatabaseError(kind, said));
        }
        DatabaseErrorKind::SerializationFailure => Some("40001"),
        DatabaseErrorKind::ReadOnlyTransaction => Some("25006"),
        _ => None,
    };
    AdapterError::refused(sqlstate, said.message(), said.hint())
}
