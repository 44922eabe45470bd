//! Guards that outlive a transaction: one process migrates, one janitor retires segments.
//!
//! Promises: a guard is a lock on a table that only the owner may lock, held by an open transaction on a
//! connection of its own; it ends with that connection. It has no transaction number and no snapshot.
//! Must never: be an advisory lock, which every login can take.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Error};
use tuskline_sdk::Address;

use super::rows::{rows, value};
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

/// Each prepared transaction with its number in `pg_locks`, which a restart of the server changes.
macro_rules! prepared {
    () => {
        "(select x.gid, x.owner, x.prepared, k.virtualtransaction
            from pg_catalog.pg_prepared_xacts x join pg_catalog.pg_locks k
                 on k.locktype = 'transactionid' and k.pid is null and k.transactionid = x.transaction)"
    };
}

const HOLDERS: &str = concat!("
    select string_agg(case when l.pid is null
             then pg_catalog.format('prepared transaction %L, role %s, since %s', p.gid, p.owner, p.prepared)
             else pg_catalog.format('pid %s, role %s, application %s, since %s', l.pid, a.usename,
                    coalesce(nullif(a.application_name, ''), '?'), coalesce(a.xact_start::text, '?')) end, '; ')
      from pg_catalog.pg_locks l left join pg_catalog.pg_stat_activity a on a.pid = l.pid
           left join ", prepared!(), " p on p.virtualtransaction = l.virtualtransaction
     where l.locktype = 'relation' and l.relation = to_regclass($1) and l.granted
       and l.mode in ('ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
       and l.database = (select d.oid from pg_catalog.pg_database d where d.datname = current_database())
       and l.pid is distinct from pg_backend_pid()");

/// Long transactions that hold any lock in the schema: a view that is being read cannot be
/// replaced. A role that may not see a session does not see the age of its transaction. Such a
/// session is named, too.
const USERS: &str = concat!("
    select string_agg(distinct case when l.pid is null
             then pg_catalog.format('prepared transaction %L, role %s, since %s', p.gid, p.owner, p.prepared)
             else pg_catalog.format('pid %s, role %s, application %s, since %s', l.pid, a.usename,
                    coalesce(nullif(a.application_name, ''), '?'),
                    coalesce(a.xact_start::text, '? (pg_read_all_stats shows it)')) end, '; ')
      from pg_catalog.pg_locks l left join pg_catalog.pg_stat_activity a on a.pid = l.pid
           left join ", prepared!(), " p on p.virtualtransaction = l.virtualtransaction
           join pg_catalog.pg_class c on c.oid = l.relation
     where c.relnamespace in (to_regnamespace('tuskline'), to_regnamespace('tuskline_core')) and l.granted
       and l.pid is distinct from pg_backend_pid() and (l.pid is null or a.pid is not null)
       and l.database = (select d.oid from pg_catalog.pg_database d where d.datname = current_database())
       and coalesce(a.xact_start < clock_timestamp() - interval '1 second', true)
       and right(c.relname::text, 6) <> '_guard'");

/// Sessions in transactions of over a second, and prepared transactions, that hold one of the modes
/// $2 of a relation. A role that may not see a session sees neither its state nor the begin of its
/// transaction. Then the age is not known. No row: there is no such relation.
const BLOCKERS: &str = concat!("
    select l.pid, p.gid as prepared, coalesce(a.usename::text, p.owner::text, '?') as role,
           coalesce(nullif(a.application_name, ''), '?') as application,
           case when l.pid is null then 'prepared transaction' else coalesce(a.state, a.backend_type) end as state,
           coalesce(a.xact_start, p.prepared) as since, l.mode as holds
      from (select to_regclass($1) as oid) r
           left join (pg_catalog.pg_locks l
             left join pg_catalog.pg_stat_activity a on a.pid = l.pid
             left join ", prepared!(), " p on p.virtualtransaction = l.virtualtransaction)
             on l.locktype = 'relation' and l.relation = r.oid and l.granted and l.mode = any ($2)
                and l.database = (select d.oid from pg_catalog.pg_database d where d.datname = current_database())
                and l.pid is distinct from pg_backend_pid() and (l.pid is null or a.pid is not null)
                and coalesce(a.xact_start < clock_timestamp() - interval '1 second', true)
     where r.oid is not null
     order by since, l.pid, p.gid");

/// A session, or a prepared transaction, that holds a lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blocker {
    /// Number of its process. None: a prepared transaction (`pg_prepared_xacts`).
    pub pid: Option<i32>,
    /// Name of the prepared transaction, its `gid`.
    pub prepared: Option<String>,
    /// Its role.
    pub role: String,
    /// Name of its application.
    pub application: String,
    /// Its state, as `idle in transaction`, or the type of a process of the server. None: hidden from this
    /// role, which is neither a member of the session's role nor of `pg_read_all_stats`.
    pub state: Option<String>,
    /// Begin of its transaction. None: hidden, so the transaction may have begun just now.
    pub since: Option<DateTime<Utc>>,
    /// Mode of its lock, as `AccessShareLock`.
    pub holds: Option<String>,
}

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
    value(client, HOLDERS, &[(&what.table(), Type::TEXT)]).await
}

/// Lists the sessions that hold a lock of one of these modes on a relation. None: there is no such
/// relation.
///
/// # Errors
/// The connection's or the server's.
pub async fn blockers(
    client: &Client,
    relation: &str,
    modes: &[&str],
) -> Result<Option<Vec<Blocker>>, Error> {
    let parameters: &[(&(dyn ToSql + Sync), Type)] =
        &[(&relation, Type::TEXT), (&modes, Type::TEXT_ARRAY)];
    let mut found: Vec<Blocker> = rows(client, BLOCKERS, parameters).await?;
    let exists = !found.is_empty();
    found.retain(|blocker| blocker.holds.is_some());
    Ok(exists.then_some(found))
}

/// Names the sessions whose long transactions hold locks in the schema; none: there is none.
///
/// # Errors
/// The connection's or the server's.
pub async fn users(client: &Client) -> Result<Option<String>, Error> {
    value(client, USERS, &[]).await
}
