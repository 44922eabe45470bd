//! Dead letters by cause, counted up to a bound.

use serde::{Deserialize, Serialize};
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error};

use super::{Count, MOST};
use crate::store::rows::{Parameters, rows};

/// Dead letters of one lambda and cause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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

/// Groups that `tuskline top` shows.
pub const DEAD_GROUPS: i64 = 100;

/// Walks over the index by lambda and fingerprint, with one probe for each group. The error comes
/// from the view, which says what this login may see of it.
const GROUPS: &str = "
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
    select g.lambda, g.fingerprint, least(n.tasks, $2) as tasks, n.tasks > $2 as and_more,
           l.task_id as latest_id,
           (1000 * extract(epoch from c.at - l.died_at))::bigint as latest_ms,
           f.collection, f.error_class, left(f.message, 300) as message
      from (select tuskline.clock() as at offset 0) c
           cross join (select * from g limit $3) g
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
             select v.collection, v.error_class, v.message from tuskline.dead_letters v
              where v.id = l.task_id limit 1) f on true
     order by n.tasks desc, l.died_at desc, g.lambda, g.fingerprint";

/// Dead letters by cause, of one lambda or of all; the first `most` groups by name.
///
/// # Errors
/// The connection's or the server's.
pub async fn dead_groups(
    client: &Client,
    lambda: Option<&str>,
    most: i64,
) -> Result<Vec<DeadGroup>, Error> {
    let parameters: &Parameters<'_> =
        &[(&lambda, Type::TEXT), (&MOST, Type::INT8), (&most, Type::INT8)];
    rows(client, GROUPS, parameters).await
}
