//! How a call of a client is made: on a connection of the pool, with a deadline, in one transaction.
//!
//! Two macros, not functions with a closure: the future of an async closure that borrows its argument is
//! not `Send` for the compiler, and callers spawn these calls.

use crate::client::Client;
use crate::client::connection::Connection;
use crate::error::Error;

/// Makes a call that changes something: `change!(client, db => db.schedule(task))`.
macro_rules! change {
    ($client:expr, $db:ident => $call:expr) => {{
        let mut connection = $client.pool.get().await?;
        let mut $db = $crate::client::Client::within(&mut connection);
        let answer = tokio::time::timeout($client.deadline, $call).await;
        $client.changed(connection, answer.ok())
    }};
}

/// Makes a call that changes nothing: `read!(client, db => db.status(task))`.
macro_rules! read {
    ($client:expr, $db:ident => $call:expr) => {{
        let mut connection = $client.pool.get().await?;
        let mut $db = $crate::client::Client::within(&mut connection);
        let answer = tokio::time::timeout($client.deadline, $call).await;
        $client.unchanged(connection, answer.ok())
    }};
}

pub(crate) use {change, read};

/// The answer; none: it did not come in time.
type Answer<T> = Option<Result<T, Error>>;

impl Client {
    /// The result of a change. It is unknown if its commit may be missing on the synchronous standby.
    pub(crate) fn changed<T>(&self, connection: Connection, answer: Answer<T>) -> Result<T, Error> {
        let (connection, answer) = self.answered(connection, answer, Error::unknown)?;
        connection.confirm()?;
        Ok(answer)
    }

    /// The result of a call that changes nothing.
    pub(crate) fn unchanged<T>(
        &self,
        connection: Connection,
        answer: Answer<T>,
    ) -> Result<T, Error> {
        self.answered(connection, answer, Error::unavailable).map(|(_, answer)| answer)
    }

    /// A connection whose answer is late is closed: the next caller must not read that answer.
    fn answered<T>(
        &self,
        connection: Connection,
        answer: Answer<T>,
        silent: fn(String) -> Error,
    ) -> Result<(Connection, T), Error> {
        let Some(answer) = answer else {
            connection.discard();
            return Err(silent(format!("no answer within {:?}", self.deadline)));
        };
        answer.map(|answer| (connection, answer))
    }
}
