//! The schedules: whether their ticks are fired.

use anyhow::Result;
use tokio_postgres::Client;

use super::finding::Finding;
use super::remedy;

const TROUBLED: &str = "
    select count(*) filter (where trouble is not null), count(*), min(name) filter (where trouble is not null),
           (array_agg(trouble order by name) filter (where trouble is not null))[1]
      from tuskline.periodics";

/// Counts the schedules in trouble, and names the first one and its trouble.
pub async fn examine(client: &Client) -> Result<Finding> {
    let row = client.query_typed_one(TROUBLED, &[]).await?;
    let (troubled, all): (i64, i64) = (row.get(0), row.get(1));
    let (name, trouble): (Option<&str>, Option<&str>) = (row.get(2), row.get(3));
    Ok(match (name, trouble) {
        (Some(name), Some(trouble)) => Finding::warn(
            "schedules",
            format!("{troubled} of {all} in trouble: {name}: {trouble}"),
            remedy::SCHEDULES,
        ),
        _ => Finding::ok("schedules", format!("{all} defined")),
    })
}
