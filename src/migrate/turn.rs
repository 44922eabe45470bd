//! Lets one process at a time migrate: it holds a table lock on a connection of its own.
//!
//! Promises: a process that waits says for which session, and does not wait for ever.
//! Must never: make anything in a schema that is not trusted.

use std::time::{Duration, Instant};

use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use super::{Error, LOCK_PAUSE, trust};
use crate::session::Session;
use crate::store::guard::{self, Guard, Guarded};

/// Longest wait for another process that migrates. 10 min: the longest migration takes seconds.
const GUARD_PATIENCE: Duration = Duration::from_secs(600);

/// How often the log names that process.
const TELL_EVERY: Duration = Duration::from_secs(30);

/// Waits for the guard; it is given up when the answer is dropped.
pub(super) async fn take(session: &Session) -> Result<Guard, Error> {
    let started = Instant::now();
    make(session.client(), "create schema if not exists tuskline").await?;
    make(session.client(), "create schema if not exists tuskline_core").await?;
    // A schema that was made since is not ours.
    trust::check_schema(session.client()).await?;
    make(session.client(), MAKE_GUARD).await?;
    let mut told_at = None::<Instant>;
    loop {
        if let Some(guard) = Guard::take(session.address(), Guarded::Migration).await? {
            return Ok(guard);
        }
        let holder = guard::holders(session.client(), Guarded::Migration).await?;
        let holder = holder.unwrap_or_else(|| "a process that has just ended".to_owned());
        if started.elapsed() > GUARD_PATIENCE {
            return Err(Error::Busy { holder });
        }
        if told_at.is_none_or(|at| at.elapsed() > TELL_EVERY) {
            tracing::info!(holder, "another process migrates this database, waiting for it");
            told_at = Some(Instant::now());
        }
        tokio::time::sleep(LOCK_PAUSE).await;
    }
}

/// Commented only when it is made: a comment would wait for the process that holds the guard.
const MAKE_GUARD: &str = "
    do $$
    begin
      if to_regclass('tuskline_core.migration_guard') is null then
        create table tuskline_core.migration_guard ();
        comment on table tuskline_core.migration_guard is
          'Locked by tuskline migrate, in a transaction of its own. Holds no rows.';
      end if;
    end $$";

/// Two processes that make a thing at once collide: the second finds it then.
async fn make(client: &Client, statement: &str) -> Result<(), Error> {
    match client.batch_execute(statement).await {
        Err(error) if is_made_by_another(&error) => Ok(client.batch_execute(statement).await?),
        made => Ok(made?),
    }
}

fn is_made_by_another(error: &tokio_postgres::Error) -> bool {
    let known = [
        SqlState::UNIQUE_VIOLATION,
        SqlState::DUPLICATE_TABLE,
        SqlState::DUPLICATE_SCHEMA,
        SqlState::DUPLICATE_OBJECT, // the type of a table's rows
    ];
    error.code().is_some_and(|code| known.contains(code))
}
