//! The function set that a database has, and whether this binary works with it.
//!
//! Promises: it only reads. This binary works with a later set of the same major version.

use tokio_postgres::Client;
use tuskline_sdk::SchemaCompatibility;

use super::sources::{Source, digest};
use super::{Error, SCHEMA_VERSION};

/// The set in the database, if it is a later one of this major version. None: it is this binary's
/// or an earlier one. Refuses a set of a later major version, and then does not even read the
/// history of migrations.
pub(super) async fn later(client: &Client) -> Result<Option<i32>, Error> {
    let Some((found, _)) = stamp(client).await? else { return Ok(None) };
    match SchemaCompatibility::of(found) {
        SchemaCompatibility::Later => Ok(Some(found)),
        SchemaCompatibility::TooNew => {
            Err(Error::SchemaNewer { found: format!("function set {found}"), ours: SCHEMA_VERSION })
        }
        _ => Ok(None),
    }
}

/// Whether the database has this binary's functions. A later build migrates the tables first, while
/// processes of this build run, and replaces the functions after that. So the tables may be later
/// ones.
pub(super) async fn is_current(client: &Client, functions: &[Source]) -> Result<bool, Error> {
    Ok(stamp(client).await? == Some((SCHEMA_VERSION, digest(functions))))
}

/// Function set and digest in the database; none on a fresh one.
pub(super) async fn stamp(client: &Client) -> Result<Option<(i32, String)>, Error> {
    let there =
        client.query_one("select to_regclass('tuskline_core.stamp') is not null", &[]).await?;
    if !there.get::<_, bool>(0) {
        return Ok(None);
    }
    let sql = "select schema_version, digest from tuskline_core.stamp order by 1 desc limit 1";
    let row = client.query_opt(sql, &[]).await?;
    Ok(row.map(|row| (row.get(0), row.get(1))))
}
