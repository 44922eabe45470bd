//! The history of the tables: `migrations/V*.sql`, applied once each, in order.
//!
//! Promises: a file and its row of the history commit together. A database that got another text of
//! a file is refused. Table and checksums are those of refinery, which kept the history at first.

use std::hash::{Hash as _, Hasher as _};

use siphasher::sip::SipHasher13;
use tokio_postgres::Client;

use super::sources::Source;
use super::{Error, SCHEMA_VERSION, apply};

macro_rules! tables {
    ($($name:literal),* $(,)?) => {
        [$(($name, include_str!(concat!("../../migrations/", $name, ".sql")))),*]
    };
}

/// Numbered from 1 on, without a gap.
pub(super) const TABLES: &[Source] = &tables![
    "V1__task_store",
    "V2__workers",
    "V3__control",
    "V4__together",
    "V5__periodic",
    "V6__dead_letters",
    "V7__retention",
    "V8__statistics",
    "V9__erase",
    "V10__mend",
];

const MAKE_HISTORY: &str = "create table if not exists tuskline_core.schema_history \
     (version int4 primary key, name varchar(255), applied_on varchar(255), checksum varchar(255))";

const READ_HISTORY: &str =
    "select version, name, checksum from tuskline_core.schema_history order by version";

const NOTE: &str = "insert into tuskline_core.schema_history (version, name, applied_on, checksum) \
     values ($1, $2, to_json(now()) #>> '{}', $3)";

/// Applies the files that the database lacks, and names them. Files of a later build are refused, unless the
/// functions are this binary's.
pub(super) async fn migrate(client: &mut Client, is_current: bool) -> Result<Vec<String>, Error> {
    client.batch_execute(MAKE_HISTORY).await?;
    let history = read(client, is_current).await?;
    let mut applied = Vec::new();
    for (version, table) in (1..).zip(TABLES).skip(history) {
        let transaction = client.transaction().await?;
        apply(&transaction, *table).await?;
        let note: [&(dyn tokio_postgres::types::ToSql + Sync); 3] =
            [&version, &title(table), &checksum(version, table)];
        transaction.execute(NOTE, &note).await?;
        transaction.commit().await?;
        applied.push(table.0.to_owned());
    }
    Ok(applied)
}

/// The files that the database lacks.
pub(super) async fn pending(client: &Client, is_current: bool) -> Result<Vec<Source>, Error> {
    let there = "select to_regclass('tuskline_core.schema_history') is not null";
    if !client.query_one(there, &[]).await?.get::<_, bool>(0) {
        return Ok(TABLES.to_vec());
    }
    let history = read(client, is_current).await?;
    Ok(TABLES[history..].to_vec())
}

/// Checks the history. Returns how many files of this binary were applied.
async fn read(client: &Client, is_current: bool) -> Result<usize, Error> {
    let mut history = client.query(READ_HISTORY, &[]).await?;
    if is_current {
        history.truncate(TABLES.len());
    }
    for (at, row) in history.iter().enumerate() {
        check(at, &format!("V{}__{}", row.get::<_, i32>(0), row.get::<_, &str>(1)), row.get(2))?;
    }
    Ok(history.len())
}

/// A row of the history must be that of our file at this place.
fn check(at: usize, found: &str, sum: &str) -> Result<(), Error> {
    let Some(ours) = TABLES.get(at) else {
        return Err(Error::SchemaNewer {
            found: format!("migration {found}"),
            ours: SCHEMA_VERSION,
        });
    };
    match found == ours.0 && i32::try_from(at + 1).is_ok_and(|at| sum == checksum(at, ours)) {
        true => Ok(()),
        false => Err(Error::Tables { found: found.to_owned(), ours: ours.0 }),
    }
}

/// The name of a file without its number.
fn title((name, _): &Source) -> &'static str {
    name.split_once("__").map_or(name, |(_, title)| title)
}

fn checksum(version: i32, table: &Source) -> String {
    let mut hasher = SipHasher13::new();
    (title(table), version, table.1).hash(&mut hasher);
    hasher.finish().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_refinery() {
        let table = ("V7__x", "create table x ()");
        assert_eq!(checksum(7, &table), "13105203964709788895");
    }

    #[test]
    fn a_history_of_other_files_is_refused() {
        let (at, sum) = (TABLES.len() - 1, checksum(9, &TABLES[8]));
        check(at, TABLES[at].0, &sum).unwrap();
        for (found, sum) in [("V9__other", sum.as_str()), (TABLES[at].0, "7")] {
            assert!(matches!(check(at, found, sum), Err(Error::Tables { .. })), "{found}");
        }
        let newer = check(TABLES.len(), "V10__later", "7").unwrap_err();
        assert!(newer.to_string().contains("it has migration V10__later"), "{newer}");
    }
}
