//! How a database is deleted.

use std::time::Duration;

use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Error};

/// How long one `drop database` may take. It takes 30 ms to 1 s where nothing is wrong.
const PATIENCE: Duration = Duration::from_secs(5);
/// How many of them are begun.
const ROUNDS: u32 = 12;

/// Deletes a database if it exists, and ends its sessions. The session keeps its
/// `statement_timeout`.
///
/// `drop database` waits until each session of the server has accepted a signal. In PostgreSQL 15 to 18.4, a
/// session that starts at that moment can miss the signal (`ProcSignalInit` reads the number of the last
/// signal before it makes its process id visible). Then the statement waits until that session ends. The
/// signal of a second `drop database` ends both waits. So a statement that takes over 5 s is begun again.
///
/// # Errors
/// Those of the server; `57014` when each of twelve statements took over 5 s.
pub async fn drop_database(client: &Client, name: &str) -> Result<(), Error> {
    drop_within(client, name, PATIENCE).await
}

pub(super) async fn drop_within(
    client: &Client,
    name: &str,
    patience: Duration,
) -> Result<(), Error> {
    let name = name.replace('"', "\"\"");
    let statement = format!("drop database if exists \"{name}\" with (force)");
    let limit = format!("set statement_timeout = {}", patience.as_millis());
    let before: String = client.query_one("show statement_timeout", &[]).await?.get(0);
    client.batch_execute(&limit).await?;
    let mut dropped = client.batch_execute(&statement).await;
    for _ in 1..ROUNDS {
        match &dropped {
            Err(error) if error.code() == Some(&SqlState::QUERY_CANCELED) => {}
            _ => break,
        }
        tracing::debug!(name, ?patience, "the server did not delete a database in time; again");
        dropped = client.batch_execute(&statement).await;
    }
    client.batch_execute(&format!("set statement_timeout = '{before}'")).await?;
    dropped
}
