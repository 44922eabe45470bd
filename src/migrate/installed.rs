//! The function set that a database has, and how it fits this binary.
//!
//! Promises: it only reads. A later set of the same major version fits.

use tokio_postgres::Client;
use tuskline_sdk::SchemaCompatibility;

use super::sources::{Source, digest};
use super::{Error, SCHEMA_VERSION};

/// The later set of this major version in the database; none: this binary's or an earlier one. Refuses a set of a
/// later major version. Not even the history of such a database is read.
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

/// Whether the database has this binary's functions. Then a later build has not replaced them, also if it has
/// migrated the tables: it does that first, beside processes of this build.
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
    let row = client
        .query_opt(
            "select schema_version, digest from tuskline_core.stamp order by 1 desc limit 1",
            &[],
        )
        .await?;
    Ok(row.map(|row| (row.get(0), row.get(1))))
}
