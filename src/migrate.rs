//! Migrations: what turns a database into a task store, and keeps it in step with this binary.
//!
//! Tables are history (`migrations/V*.sql`, applied once each, in order, by refinery). Functions
//! are source (`migrations/functions/`, a folder for each floor): all of them are applied again, in one transaction,
//! whenever their digest differs from the stamp in the database.
//!
//! Promises: any number of processes may migrate at once, one does the work; a failure leaves the
//! functions as they were; grants on functions and views survive.
//! Must never: touch a database whose functions are newer than this binary, or a standby. A later set of the same
//! major version is no error: instances that migrate at their start can be rolled back.

mod installed;
mod plan;
mod recreate;
mod sources;
mod statements;
mod tables;
mod trust;
mod turn;

use std::time::Duration;

use serde::Serialize;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Transaction};
use tuskline_sdk::Address;

use self::installed::{is_current, later};
use self::recreate::renew_file;
use self::sources::{CLEAR, FUNCTIONS, INSTALL, REMEMBER, RENAME, SWEEP, Source, digest};
use crate::session::{Deadlines, Session};
use crate::store::guard;

pub use self::plan::{Lock, Plan, Step, WHEN_RECREATED, plan};
pub use self::statements::{Mode, kind, locks};
pub use crate::store::guard::Blocker;

/// Number of the function set in this binary. Grows with every change of meaning and with every
/// new `V*.sql`; with what breaks a caller, to the next thousand (see [`tuskline_sdk::SchemaCompatibility`]).
pub use tuskline_sdk::SCHEMA_VERSION;

/// Older servers are refused, as in `server_version_num`: 14 has no unlogged sequences. 15 to 18 are tested, 19
/// is accepted.
pub const OLDEST_SERVER: i32 = 150_000;

/// How often the functions are tried while a long transaction holds a lock on a view.
const LOCK_ROUNDS: u32 = 10;

/// Rest between two of these rounds, so that sessions that wait behind us get the lock.
const LOCK_PAUSE: Duration = Duration::from_millis(500);

/// Result of a migration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Table migrations applied now, as `V1__task_store`.
    pub applied: Vec<String>,
    /// Result for the functions.
    pub functions: Functions,
    /// Number of the function set now installed.
    pub schema_version: i32,
}

/// Change that a migration made to the functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Functions {
    /// They were this binary's already.
    Unchanged,
    /// Installed, or replaced in place.
    Replaced,
    /// Replaced, those that return something else now dropped and created again.
    Recreated,
    /// They are a later set of the same major version, with which this binary works. Nothing was changed.
    Newer,
}

/// Why a database was not migrated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// PostgreSQL is older than 15.
    #[error("PostgreSQL 15 or newer is needed, this server is {0}")]
    ServerTooOld(String),
    /// The database cannot hold every text.
    #[error("the database must be encoded in UTF8, it is {0}: create it with encoding 'UTF8'")]
    Encoding(String),
    /// The server only reads.
    #[error("this server is a standby or read-only: connect to the primary")]
    Standby,
    /// The settings of the session are not those that a migration states.
    #[error("migrate refuses this connection: {0}")]
    Settings(String),
    /// Another role could have planted what a migration runs.
    #[error("migrate refuses this database: {0}")]
    Foreign(String),
    /// A later Tuskline has been here, and this binary does not work with what it installed.
    #[error("schema is newer than this binary: it has {found}, this binary function set {ours}")]
    SchemaNewer {
        /// Value in the database.
        found: String,
        /// [`SCHEMA_VERSION`].
        ours: i32,
    },
    /// The tables were made by other files.
    #[error(
        "the tables were made by another build: the database has another text of migration {found} than this binary ({ours})"
    )]
    Tables {
        /// The migration in the database.
        found: String,
        /// The migration of this binary at the same place.
        ours: String,
    },
    /// A table migration was refused, or the connection ended in it.
    #[error("{what}")]
    Runner {
        /// The step of refinery that failed, and the error.
        what: String,
        /// Holds the error of the server.
        source: refinery::Error,
    },
    /// A file of the functions was refused.
    #[error("file {name}.sql: {source}")]
    File {
        /// File that failed.
        name: &'static str,
        /// Error of the server.
        source: tokio_postgres::Error,
    },
    /// Another process has been migrating for too long.
    #[error(
        "another process migrates this database: {holder}; end it, or wait for it and run migrate again"
    )]
    Busy {
        /// Its session.
        holder: String,
    },
    /// The connection or another statement failed.
    #[error("{0}")]
    Database(#[source] tokio_postgres::Error),
}

impl From<tokio_postgres::Error> for Error {
    fn from(error: tokio_postgres::Error) -> Self {
        match error.code() {
            Some(&SqlState::READ_ONLY_SQL_TRANSACTION) => Self::Standby,
            _ => Self::Database(error),
        }
    }
}

/// Brings a database to this binary's schema. Waits while another process migrates.
///
/// # Errors
/// See [`Error`]; the database keeps the functions it had.
pub async fn migrate(address: impl Into<Address>) -> Result<Report, Error> {
    migrate_with(&address.into(), FUNCTIONS, None).await
}

/// The same, of an installation whose ids are those of a cell, 0 to 63. Only the first migration of a
/// database chooses the cell; [`migrate()`] chooses 0.
///
/// # Errors
/// See [`Error`]; TK042: the database has another cell.
pub async fn migrate_in_cell(address: impl Into<Address>, cell: u8) -> Result<Report, Error> {
    migrate_with(&address.into(), FUNCTIONS, Some(cell)).await
}

async fn migrate_with(
    address: &Address,
    functions: &[Source],
    cell: Option<u8>,
) -> Result<Report, Error> {
    let mut session = open(address).await?;
    if let Some(later) = later(session.client()).await? {
        return untouched(session.client(), later, cell).await;
    }
    let guard = turn::take(&session).await?;
    // Another process may have migrated in the meantime.
    if let Some(later) = later(session.client()).await? {
        return untouched(session.client(), later, cell).await;
    }
    let is_current = is_current(session.client(), functions).await?;
    let applied = tables::migrate(session.client_mut(), &tables::TABLES, is_current).await?;
    let functions = migrate_functions(session.client_mut(), functions, cell).await?;
    drop(guard);
    Ok(Report { applied, functions, schema_version: SCHEMA_VERSION })
}

/// A session that knows whom it talks to.
async fn open(address: &Address) -> Result<Session, Error> {
    let opened = Session::strict(address, "migrate", Deadlines::PATIENT, &trust::STATED).await;
    let session = opened.map_err(trust::of_opening)?;
    // Its one statement names the catalog, so a planted function cannot answer it.
    check_server(session.client()).await?;
    trust::check_settings(session.client()).await?;
    // Before anything in it is read: a view of another role may run a function of that role.
    trust::check_schema(session.client()).await?;
    Ok(session)
}

async fn check_server(client: &Client) -> Result<(), Error> {
    let sql = "select pg_catalog.current_setting('server_version_num')::integer, \
        pg_catalog.current_setting('server_version'), \
        pg_catalog.current_setting('server_encoding'), pg_catalog.pg_is_in_recovery()";
    let row = client.query_one(sql, &[]).await?;
    if row.get::<_, i32>(0) < OLDEST_SERVER {
        return Err(Error::ServerTooOld(row.get(1)));
    }
    if row.get::<_, &str>(2) != "UTF8" {
        return Err(Error::Encoding(row.get(2)));
    }
    if row.get(3) {
        return Err(Error::Standby);
    }
    Ok(())
}

/// The report on a database with a later set. A cell that differs from that of the database is
/// refused here, too.
async fn untouched(client: &Client, later: i32, cell: Option<u8>) -> Result<Report, Error> {
    if cell.is_some() {
        set_cell(client, cell).await?;
    }
    Ok(Report { applied: Vec::new(), functions: Functions::Newer, schema_version: later })
}

/// Replaces the functions if their digest differs. In place where the server allows it; else dropped and created again.
async fn migrate_functions(
    client: &mut Client,
    functions: &[Source],
    cell: Option<u8>,
) -> Result<Functions, Error> {
    if is_current(client, functions).await? {
        set_cell(client, cell).await?;
        grant_verbs(client).await?;
        return Ok(Functions::Unchanged);
    }
    let digest = digest(functions);
    let mut way = Functions::Replaced;
    let mut rounds_left = LOCK_ROUNDS;
    loop {
        match renew(client, functions, way, cell, &digest).await {
            Ok(()) => return Ok(way),
            Err(error) if way == Functions::Replaced && cannot_replace(&error) => {
                way = Functions::Recreated;
            }
            // A deadlock with a session that waited for us and held what we waited for.
            Err(error)
                if rounds_left > 0
                    && (is_code(&error, &SqlState::LOCK_NOT_AVAILABLE)
                        || is_code(&error, &SqlState::T_R_DEADLOCK_DETECTED)) =>
            {
                rounds_left -= 1;
                let holder = guard::users(client).await?;
                tracing::info!(holder, "something is in use by a long transaction, trying again");
                tokio::time::sleep(LOCK_PAUSE).await;
            }
            Err(error) => return Err(error),
        }
    }
}

/// All of it in one transaction: no session ever sees half a set.
async fn renew(
    client: &mut Client,
    functions: &[Source],
    way: Functions,
    cell: Option<u8>,
    digest: &str,
) -> Result<(), Error> {
    let transaction = client.transaction().await?;
    transaction.batch_execute("set local lock_timeout = '2s'").await?;
    apply(&transaction, RENAME).await?;
    apply(&transaction, REMEMBER).await?;
    if way == Functions::Recreated {
        apply(&transaction, CLEAR).await?;
    }
    for &function in functions {
        renew_file(&transaction, function, way).await?;
    }
    put_time_zones(&transaction).await?;
    apply(&transaction, SWEEP).await?;
    // Before the segments are made, which are those of the cell.
    set_cell(transaction.client(), cell).await?;
    renew_file(&transaction, INSTALL, way).await?;
    transaction.execute("delete from tuskline_core.stamp", &[]).await?;
    let stamp = "insert into tuskline_core.stamp (schema_version, digest, applied_by, applied_at) \
        values ($1, $2, $3, tuskline.clock())";
    let applied_by = concat!("tuskline ", env!("CARGO_PKG_VERSION"));
    transaction.execute(stamp, &[&SCHEMA_VERSION, &digest, &applied_by]).await?;
    transaction.commit().await?;
    Ok(())
}

/// Chooses the cell at the first migration. Refused (TK042) if the database has another one.
async fn set_cell(client: &Client, cell: Option<u8>) -> Result<(), tokio_postgres::Error> {
    let cell = cell.map(i32::from);
    client.execute("select tuskline_core.set_cell($1)", &[&cell]).await.map(drop)
}

/// Groups of roles that were made since the last migration get their verbs.
async fn grant_verbs(client: &Client) -> Result<(), tokio_postgres::Error> {
    client.execute("select tuskline.grant_verbs()", &[]).await.map(drop)
}

/// The zones by which this binary calculates ticks: `define_periodic` refuses all remaining ones.
async fn put_time_zones(transaction: &Transaction<'_>) -> Result<(), tokio_postgres::Error> {
    let names: Vec<&str> = zone_names().collect();
    let clear = "delete from tuskline_core.time_zone where name <> all ($1)";
    transaction.execute(clear, &[&names]).await?;
    let put =
        "insert into tuskline_core.time_zone select unnest($1::text[]) on conflict do nothing";
    transaction.execute(put, &[&names]).await?;
    Ok(())
}

fn zone_names() -> impl Iterator<Item = &'static str> {
    chrono_tz::TZ_VARIANTS.iter().map(|zone| zone.name())
}

async fn apply(
    transaction: &Transaction<'_>,
    (name, text): (&'static str, &str),
) -> Result<(), Error> {
    transaction.batch_execute(text).await.map_err(|source| Error::File { name, source })
}

/// True: a function or view returns something else now, which `create or replace` refuses.
fn cannot_replace(error: &Error) -> bool {
    is_code(error, &SqlState::INVALID_FUNCTION_DEFINITION)
        || is_code(error, &SqlState::INVALID_TABLE_DEFINITION)
}

fn is_code(error: &Error, code: &SqlState) -> bool {
    let of_server = |source: &tokio_postgres::Error| source.code() == Some(code);
    matches!(error, Error::File { source, .. } | Error::Database(source) if of_server(source))
}

#[cfg(test)]
mod tests;
