//! The verbs of the statistics.

use std::time::Duration;

use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error};

use super::rows::value;

/// Folds the counts of workers and verbs into the totals. Returns the number of folded rows.
/// `None`: it is not time, or another janitor folds.
///
/// # Errors
/// The connection's or the server's.
pub async fn fold(
    client: &Client,
    every: Duration,
    installation: &str,
) -> Result<Option<i32>, Error> {
    let sql = "select tuskline.fold_statistics($1 * interval '1 second', $2)";
    value(client, sql, &[(&every.as_secs_f64(), Type::FLOAT8), (&installation, Type::TEXT)]).await
}

/// Deletes statistics past their retention, once an hour: at most `limit` rows of each kind. Returns
/// the number of deleted rows. `None`: nothing is left to do in this hour, or another janitor
/// deletes.
///
/// # Errors
/// The connection's or the server's.
pub async fn purge(client: &Client, retention: Duration, limit: i32) -> Result<Option<i64>, Error> {
    let sql = "select tuskline.purge_statistics($1 * interval '1 second', $2)";
    value(client, sql, &[(&retention.as_secs_f64(), Type::FLOAT8), (&limit, Type::INT4)]).await
}
