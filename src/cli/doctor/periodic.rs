//! The schedules: whether their ticks are fired.

use anyhow::Result;
use tokio_postgres::Client;

use super::finding::Found;
use super::remedy;

const PROBLEMS: &str = "
    select count(*) filter (where problem is not null), count(*), min(name) filter (where problem is not null),
           (array_agg(problem order by name) filter (where problem is not null))[1]
      from tuskline.periodics";

/// Counts the schedules that have a problem, and names the first one and its problem.
pub async fn examine(client: &Client) -> Result<Found> {
    let row = client.query_typed_one(PROBLEMS, &[]).await?;
    let (affected, all): (i64, i64) = (row.get(0), row.get(1));
    let (name, problem): (Option<&str>, Option<&str>) = (row.get(2), row.get(3));
    Ok(match (name, problem) {
        (Some(name), Some(problem)) => Found::warn(
            format!("{affected} of {all} with a problem: {name}: {problem}"),
            remedy::SCHEDULES,
        ),
        _ => Found::ok(format!("{all} defined")),
    })
}
