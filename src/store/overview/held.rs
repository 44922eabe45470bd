//! Tasks that workers hold.

use serde::{Deserialize, Serialize};
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error};

use super::{Count, MOST};
use crate::store::rows::rows;

/// Tasks of a lambda that a worker holds: begun, or about to begin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// The worker. None: the workers that were not read.
    pub executor_id: Option<i64>,
    /// The lambda.
    pub lambda: String,
    /// How many.
    #[serde(flatten)]
    pub count: Count,
}

/// Each worker gets a share of the rows, at least 10, so that a busy worker does not hide the
/// remaining workers. A worker that used up its share may hold more tasks, of each lambda that it
/// serves. The first [`MOST`] workers are read.
///
/// Planner: a walk over the primary key of `lease` finds the workers, with one step for each.
const HELD: &str = "
    with recursive x as (
      (select l.executor_id from tuskline.lease l order by l.executor_id limit 1)
      union all
      select (select l.executor_id from tuskline.lease l
               where l.executor_id > x.executor_id order by l.executor_id limit 1)
        from x where x.executor_id is not null),
    e as materialized (select x.executor_id from x where x.executor_id is not null limit $1),
    b as materialized (
      select greatest(10, $1 / greatest(count(*), 1)) as most, count(*) = $1 as cut from e),
    h as materialized (
      select e.executor_id, u.lease_id, u.task_id,
             count(*) over (partition by e.executor_id) = b.most as cut
        from e cross join b
             cross join lateral (
               select l.lease_id, i.task_id
                 from (select * from tuskline.lease r
                        where r.executor_id = e.executor_id order by r.lease_id limit b.most) l
                      cross join lateral unnest(l.task_ids) as i (task_id)
                limit b.most) u),
    t as materialized (
      select h.executor_id, k.lambda, count(*) as tasks, bool_or(h.cut) as cut
        from h cross join lateral (
               select k.lambda from tuskline.task k
                where k.id = h.task_id and k.fence = h.lease_id
                  and k.status in ('claimed', 'processing') limit 1) k
       group by h.executor_id, k.lambda)
    select executor_id, lambda, tasks, cut as and_more from t
    union all
    select c.executor_id, s.lambda, 0, true
      from (select distinct executor_id from h where cut) c
           join tuskline.executor v on v.executor_id = c.executor_id
           cross join unnest(v.lambdas) as s (lambda)
     where not exists (
       select from t where t.executor_id = c.executor_id and t.lambda = s.lambda)
    union all
    select null, a.name, 0, true from tuskline.lambda a cross join b where b.cut";

/// Tasks that workers hold. A lease also names its ended tasks, until the last of its tasks has
/// ended.
///
/// # Errors
/// The connection's or the server's.
pub async fn held(client: &Client) -> Result<Vec<Held>, Error> {
    rows(client, HELD, &[(&MOST, Type::INT8)]).await
}
