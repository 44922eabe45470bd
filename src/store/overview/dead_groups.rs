//! Dead letters by cause, counted up to a bound.

use serde::Serialize;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error};

use super::{Count, MOST, capped};

/// Dead letters of one lambda and cause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DeadGroup {
    /// The lambda.
    pub lambda: String,
    /// The cause.
    pub fingerprint: String,
    /// How many.
    #[serde(flatten)]
    pub count: Count,
    /// The dead letter with the highest id.
    pub latest_id: i64,
    /// Time since that task died, in ms.
    pub latest_ms: i64,
    /// Its collection.
    pub collection: Option<String>,
    /// Class of its last error.
    pub error_class: Option<String>,
    /// The first 300 characters of its last error.
    pub message: Option<String>,
}

/// Walks over the index by lambda and fingerprint, with one probe for each group.
const DEAD_GROUPS: &str = "
    with recursive g as (
      (select d.lambda, d.fingerprint from tuskline.dead_letter d
        where ($1::text is null or d.lambda = $1) order by d.lambda, d.fingerprint limit 1)
      union all
      select n.lambda, n.fingerprint
        from g cross join lateral (
          select d.lambda, d.fingerprint from tuskline.dead_letter d
           where (d.lambda, d.fingerprint) > (g.lambda, g.fingerprint)
             and ($1::text is null or d.lambda = $1)
           order by d.lambda, d.fingerprint limit 1) n)
    select g.lambda, g.fingerprint, n.tasks, l.task_id,
           (1000 * extract(epoch from c.at - l.died_at))::bigint,
           (select k.collection from tuskline.tasks k where k.id = l.task_id limit 1),
           f.error_class, left(f.message, 300)
      from (select tuskline.clock() as at offset 0) c
           cross join (select * from g limit 100) g
           cross join lateral (
             select count(*) as tasks
               from (select from tuskline.dead_letter d
                      where d.lambda = g.lambda and d.fingerprint = g.fingerprint
                      limit $2 + 1) s) n
           cross join lateral (
             select d.task_id, d.died_at from tuskline.dead_letter d
              where d.lambda = g.lambda and d.fingerprint = g.fingerprint
              order by d.task_id desc limit 1) l
           left join lateral (
             select h.error_class, h.message from tuskline.task_failure h
              where h.task_id = l.task_id order by h.failed_at desc, h.fence desc limit 1) f on true
     order by n.tasks desc, l.died_at desc, g.lambda, g.fingerprint";

/// Dead letters by cause, of one lambda or of all; the first 100 groups by name.
///
/// # Errors
/// The connection's or the server's.
pub async fn dead_groups(client: &Client, lambda: Option<&str>) -> Result<Vec<DeadGroup>, Error> {
    let rows =
        client.query_typed(DEAD_GROUPS, &[(&lambda, Type::TEXT), (&MOST, Type::INT8)]).await?;
    Ok(rows
        .iter()
        .map(|row| DeadGroup {
            lambda: row.get(0),
            fingerprint: row.get(1),
            count: capped(row.get(2)),
            latest_id: row.get(3),
            latest_ms: row.get(4),
            collection: row.get(5),
            error_class: row.get(6),
            message: row.get(7),
        })
        .collect())
}
