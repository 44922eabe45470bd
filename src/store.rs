//! The task store's verbs that the server calls: one typed function each, nothing else.
//!
//! Promises: the name here is the name of the SQL function; every answer is one value.
//! Must never: decide anything, retry, or read a table.
//!
//! Statements are sent unnamed, in one round trip, so that they survive a pooler and a migration.

pub mod archive;
pub mod figures;
pub mod frontend;
pub mod guard;
pub mod installation;
pub mod overview;
pub mod periodic;
mod repair;
mod rescue;
pub mod retention;
pub mod rows;
pub mod statistics;
pub mod tasks;

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::Deserialize;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{Timestamp, Type};
use tokio_postgres::{Client, Error, Row};

use self::rows::Parameters;

pub use repair::{Repair, damage, repair};
pub use rescue::{Pulse, Rescued, Silent, note_silence, rescue};

/// Result of one `enqueue_due`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Enqueued {
    /// Timers moved.
    pub moved: u32,
    /// Everything visible and due up to here was moved; none: the call learned nothing.
    pub looked_until: Option<DateTime<Utc>>,
    /// How long until the next timer; none: there is none.
    pub next_due: Option<Duration>,
    /// Transactions below this number had ended when it looked, or have not written timers.
    pub oldest_writer_xid: i64,
    /// Number of its transaction; none: it wrote nothing.
    pub xid: Option<i64>,
    /// Gates are set, or hold tasks although they are open: [`promote`] is wanted.
    pub gates: bool,
}

/// Moves up to `limit` timers that are due after `mark` into their queues.
///
/// # Errors
/// The connection's or the server's.
pub async fn enqueue_due(
    client: &Client,
    mark: Option<DateTime<Utc>>,
    limit: u32,
    installation: &str,
) -> Result<Enqueued, Error> {
    #[cfg(mutants)]
    mutant::tell_own_clock(client).await?;
    let sql = "select moved, looked_until, next_due_ms, oldest_writer_xid, xid, gates \
        from tuskline.enqueue_due($1, $2, $3)";
    let parameters: &Parameters<'_> = &[
        (&mark, Type::TIMESTAMPTZ),
        (&limit.cast_signed(), Type::INT4),
        (&installation, Type::TEXT),
    ];
    let row = client.query_typed_one(sql, parameters).await?;
    Ok(Enqueued {
        moved: row.get::<_, i32>(0).unsigned_abs(),
        looked_until: match row.get::<_, Option<Timestamp<DateTime<Utc>>>>(1) {
            Some(Timestamp::Value(instant)) => Some(instant),
            _ => None,
        },
        next_due: next_due(&row, 2),
        oldest_writer_xid: row.get(3),
        xid: row.get(4),
        gates: row.get(5),
    })
}

fn next_due(row: &Row, column: usize) -> Option<Duration> {
    row.get::<_, Option<i64>>(column).map(|ms| Duration::from_millis(ms.max(0).unsigned_abs()))
}

/// Result of one `run_policies`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Promoted {
    /// Tasks that went behind a gate, or from behind one.
    pub moved: u32,
    /// How long until a gate opens or lets the next task pass; none: that is not to be foreseen.
    pub next_due: Option<Duration>,
}

/// Does what gates ask for, with up to `limit` tasks of each.
///
/// # Errors
/// The connection's or the server's.
pub async fn promote(client: &Client, limit: u32, installation: &str) -> Result<Promoted, Error> {
    let sql = "select moved, next_due_ms from tuskline.run_policies($1, $2)";
    let with: &Parameters<'_> = &[(&limit.cast_signed(), Type::INT4), (&installation, Type::TEXT)];
    let row = client.query_typed_one(sql, with).await?;
    Ok(Promoted { moved: row.get::<_, i32>(0).unsigned_abs(), next_due: next_due(&row, 1) })
}

/// Refuses (TK041) when the database is another installation than `installation`.
///
/// # Errors
/// The connection's or the server's.
pub async fn check_installation(client: &Client, installation: &str) -> Result<(), Error> {
    let sql = "select tuskline.check_installation($1)";
    client.query_typed(sql, &[(&installation, Type::TEXT)]).await.map(drop)
}

/// Result of a recovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct Recovered {
    /// The queues were lost and are filled again.
    pub rebuilt: bool,
    /// How many tasks were queued.
    pub tasks: i64,
    /// This database is a copy: nothing is claimed for one lease.
    pub copied: bool,
}

/// Makes the database ready after a restart, a crash, a promotion or a restore; does nothing otherwise.
///
/// # Errors
/// The connection's or the server's.
pub async fn rebuild_queues(client: &Client) -> Result<Recovered, Error> {
    let sql = "select rebuilt, tasks, copied from tuskline.rebuild_queues()";
    rows::row(client, sql, &[]).await
}

/// The answer to going to sleep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Watched {
    /// This process holds the lock: a transaction that inserts an earlier timer notifies it.
    Held,
    /// Another store consumer sleeps on it; its notifications reach us too.
    Taken,
    /// An open transaction inserts timers: check again soon.
    Busy,
}

/// Before sleeping on the timers, on a session that listens to [`TIMER_CHANNEL`].
///
/// # Errors
/// The connection's or the server's.
pub async fn watch(client: &Client) -> Result<Watched, Error> {
    let row = client.query_typed_one("select (tuskline.watch(array[0]))[1]", &[]).await?;
    Ok(match row.get::<_, &str>(0) {
        "held" => Watched::Held,
        "taken" => Watched::Taken,
        _ => Watched::Busy,
    })
}

/// After waking from a [`Watched::Held`] sleep: gives up the lock.
///
/// # Errors
/// The connection's or the server's.
pub async fn unwatch(client: &Client) -> Result<(), Error> {
    client.query_typed("select tuskline.unwatch(array[0])", &[]).await.map(drop)
}

/// Channel on which a sleeping store consumer hears of an earlier timer.
pub const TIMER_CHANNEL: &str = "tuskline_timer";

/// Function set and state of the queues, for a health check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct Readiness {
    /// Installed function set; none: never installed.
    pub schema_version: Option<i32>,
    /// False after a crash or promotion, until [`rebuild_queues`]; and on a standby.
    pub queues_rebuilt: bool,
    /// A standby, or a database that was made read-only.
    pub read_only: bool,
}

/// Reads what state the database is in.
///
/// # Errors
/// The connection's or the server's; an absent schema is one (3F000 or 42883).
pub async fn readiness(client: &Client) -> Result<Readiness, Error> {
    let sql = "select schema_version, queues_rebuilt, \
                      current_setting('transaction_read_only')::boolean as read_only \
               from tuskline.readiness()";
    rows::row(client, sql, &[]).await
}

/// A mutant, in no ordinary build: a store consumer that judges by its own clock what is due. The
/// test that wants it has an `enqueue_due` which believes the session's word.
/// Neither the schema nor its functions are there, says the error of [`readiness`].
pub fn is_absent(error: &Error) -> bool {
    matches!(error.code(), Some(&SqlState::INVALID_SCHEMA_NAME | &SqlState::UNDEFINED_FUNCTION))
}

#[cfg(mutants)]
mod mutant {
    use super::{Client, Error, Type, Utc};

    pub(super) async fn tell_own_clock(client: &Client) -> Result<(), Error> {
        if std::env::var("TUSKLINE_MUTANT").as_deref() != Ok("own_clock_for_due") {
            return Ok(());
        }
        let now = Utc::now().to_rfc3339();
        let sql = "select set_config('fault.now', $1, false)";
        client.query_typed(sql, &[(&now, Type::TEXT)]).await.map(drop)
    }
}
