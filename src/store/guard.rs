//! Guards that outlive a transaction: one process migrates, one janitor retires segments.
//!
//! Promises: a guard is a lock on a table that only the owner may lock, held by an open transaction on a
//! connection of its own; it ends with that connection. It has no transaction number and no snapshot.
//! Must never: be an advisory lock, which every login can take.

use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error};
use tuskline_sdk::Address;

use crate::session::{Deadlines, Session};

/// The act that is guarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guarded {
    /// A migration, over all its transactions.
    Migration,
    /// The retirement of segments: DETACH CONCURRENTLY refuses to run in a transaction.
    Retention,
}

impl Guarded {
    const fn table(self) -> &'static str {
        match self {
            Self::Migration => "tuskline_core.migration_guard",
            Self::Retention => "tuskline_core.retention_guard",
        }
    }
}

/// No deadline ends the transaction; `transaction_timeout` exists from PostgreSQL 17 on.
const BEGIN: &str = "
    begin isolation level read committed read write;
    select pg_catalog.set_config(name, '0', true) from pg_catalog.pg_settings
     where name in ('statement_timeout', 'lock_timeout', 'transaction_timeout',
                    'idle_in_transaction_session_timeout')";

const HOLDERS: &str = "
    select string_agg(coalesce(
             pg_catalog.format('pid %s, role %s, application %s, since %s', l.pid, a.usename,
                    coalesce(nullif(a.application_name, ''), '?'), coalesce(a.xact_start::text, '?')),
             'a prepared transaction (pg_prepared_xacts)'), '; ')
      from pg_catalog.pg_locks l left join pg_catalog.pg_stat_activity a on a.pid = l.pid
     where l.locktype = 'relation' and l.relation = to_regclass($1) and l.granted
       and l.mode in ('ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
       and l.database = (select d.oid from pg_catalog.pg_database d where d.datname = current_database())
       and l.pid is distinct from pg_backend_pid()";

/// Long transactions that hold any lock in the schema: a view that is being read cannot be replaced.
const USERS: &str = "
    select string_agg(distinct pg_catalog.format('pid %s, role %s, application %s, since %s', l.pid, a.usename,
             coalesce(nullif(a.application_name, ''), '?'), coalesce(a.xact_start::text, '?')), '; ')
      from pg_catalog.pg_locks l join pg_catalog.pg_stat_activity a on a.pid = l.pid
           join pg_catalog.pg_class c on c.oid = l.relation
     where c.relnamespace in (to_regnamespace('tuskline'), to_regnamespace('tuskline_core')) and l.granted and l.pid <> pg_backend_pid()
       and l.database = (select d.oid from pg_catalog.pg_database d where d.datname = current_database())
       and coalesce(a.xact_start < clock_timestamp() - interval '1 second', true)
       and right(c.relname::text, 6) <> '_guard'";

/// A guard that this process holds.
#[derive(Debug)]
pub struct Guard {
    session: Session,
}

impl Guard {
    /// Takes a guard; none: another process has it.
    ///
    /// # Errors
    /// The connection's or the server's.
    pub async fn take(address: &Address, what: Guarded) -> Result<Option<Self>, Error> {
        let session = Session::open(address, "guard", Deadlines::NONE).await?;
        session.client().batch_execute(BEGIN).await?;
        let lock = format!("lock table {} in share row exclusive mode nowait", what.table());
        match session.client().batch_execute(&lock).await {
            Ok(()) => Ok(Some(Self { session })),
            Err(error) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// False once its connection is lost: another process may have the guard.
    pub fn is_held(&self) -> bool {
        !self.session.is_closed()
    }
}

/// Names the sessions that hold a guard; none: it was given up.
///
/// # Errors
/// The connection's or the server's.
pub async fn holders(client: &Client, what: Guarded) -> Result<Option<String>, Error> {
    Ok(client.query_typed_one(HOLDERS, &[(&what.table(), Type::TEXT)]).await?.get(0))
}

/// Names the sessions whose long transactions hold locks in the schema; none: there is none.
///
/// # Errors
/// The connection's or the server's.
pub async fn users(client: &Client) -> Result<Option<String>, Error> {
    Ok(client.query_typed_one(USERS, &[]).await?.get(0))
}
