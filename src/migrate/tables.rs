//! The history of the tables: `migrations/V*.sql`, applied once each, in order, by refinery.
//!
//! Promises: a file and its row of the history commit together. A database that got another text of
//! a file is refused, before refinery reads a row that another hand may have written.
//! Must never: run without the guard of [`super::turn`]. refinery has no lock of its own.

use std::error::Error as _;
use std::iter::successors;
use std::sync::LazyLock;

use refinery::error::Kind;
use refinery::{Migration, Runner};
use tokio_postgres::Client;

use super::{Error, SCHEMA_VERSION};

#[allow(clippy::unwrap_used)] // of the macro: the names of the files were read by the compiler
mod embedded {
    refinery::embed_migrations!("migrations");
}

const HISTORY: &str = "tuskline_core.schema_history";

/// The files of this binary, in order: all that stand in the directory.
pub(super) static TABLES: LazyLock<Vec<Migration>> = LazyLock::new(|| {
    let mut files = embedded::migrations::runner().get_migrations().clone();
    files.sort();
    files
});

/// Applies the files that the database lacks, and names them. Files of a later build are refused, unless the
/// functions are this binary's.
pub(super) async fn migrate(
    client: &mut Client,
    files: &[Migration],
    is_current: bool,
) -> Result<Vec<String>, Error> {
    if pending(client, files, is_current).await?.is_empty() {
        return Ok(Vec::new());
    }
    let mut runner = Runner::new(files);
    runner.set_migration_table_name(HISTORY);
    let report = runner.run_async(client).await.map_err(refused)?;
    Ok(report.applied_migrations().iter().map(ToString::to_string).collect())
}

/// The files that the database lacks. Each row of its history must be that of our file at this place.
pub(super) async fn pending<'f>(
    client: &Client,
    files: &'f [Migration],
    is_current: bool,
) -> Result<&'f [Migration], Error> {
    let there = client.query_one("select to_regclass($1) is not null", &[&HISTORY]).await?;
    if !there.get::<_, bool>(0) {
        return Ok(files);
    }
    let read = format!("select version, name, checksum from {HISTORY} order by version");
    let history = client.query(&read, &[]).await?;
    for (at, row) in history.iter().enumerate() {
        let (version, name, checksum): (i32, &str, String) = (row.get(0), row.get(1), row.get(2));
        let found = format!("V{version}__{name}");
        match files.get(at) {
            Some(ours) if (found.clone(), checksum) == (ours.to_string(), sum(ours)) => {}
            Some(ours) => return Err(Error::Tables { found, ours: ours.to_string() }),
            None if is_current => {}
            None => {
                let found = format!("migration {found}");
                return Err(Error::SchemaNewer { found, ours: SCHEMA_VERSION });
            }
        }
    }
    Ok(files.get(history.len()..).unwrap_or_default())
}

/// As it stands in the history.
fn sum(file: &Migration) -> String {
    file.checksum().to_string()
}

/// refinery says what it was doing, and wraps the error of the server.
fn refused(source: refinery::Error) -> Error {
    let what = match source.kind() {
        Kind::Connection(doing, _) => {
            let doing = doing.trim_start_matches("error ");
            of_server(&source).map_or(doing.to_owned(), |error| format!("{doing}: {error}"))
        }
        other => other.to_string(),
    };
    Error::Runner { what, source }
}

fn of_server(error: &refinery::Error) -> Option<&tokio_postgres::Error> {
    successors(error.source(), |&cause| cause.source()).find_map(|cause| cause.downcast_ref())
}
