//! The workers: whether a store consumer ends dead ones.

use anyhow::Result;
use tokio_postgres::Client;

use super::finding::Found;
use super::remedy;

/// Workers that were silent for a lease and more, and are still not ended. The database's clock is
/// exact enough for a warning.
const SILENT: &str = "
    select count(*) filter (where expires_at + lease + interval '5 seconds' < tuskline.clock()), count(*)
      from tuskline.executor where ended_at is null";

/// Counts workers that a store consumer should have ended long ago.
pub async fn examine(client: &Client) -> Result<Found> {
    let row = client.query_typed_one(SILENT, &[]).await?;
    let (silent, all): (i64, i64) = (row.get(0), row.get(1));
    Ok(match silent {
        0 => Found::ok(format!("{all} alive")),
        _ => Found::warn(
            format!(
                "{silent} of {all} silent for two leases, and no store consumer returns their tasks: it must run for \
                 longer than a lease without a break"
            ),
            remedy::SERVE,
        ),
    })
}
