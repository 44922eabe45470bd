//! Tasks that wait outside of queues.

use serde::Serialize;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error};

use super::{Count, MOST};

/// Tasks of a lambda that wait for one cause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Waiting {
    /// due, retry, server (due, and no store consumer has moved it), gate, limit, order or dependency.
    pub cause: String,
    /// The lambda.
    pub lambda: String,
    /// How many.
    #[serde(flatten)]
    pub count: Count,
}

/// The waits that no gauge shows. Tasks that a pause holds, and tasks that wait for a worker, are
/// in the depths of queues.
///
/// Each limit gets a share of the rows, at least 10. Timers and tasks of chains are not stored by
/// lambda, so their bound is for all lambdas together. If one of the two reached its bound, the
/// number of each lambda that was not counted is unknown.
const WAITS: &str = "
    with c as materialized (select tuskline.clock() as at),
    m as materialized (
      select d.*, count(*) over () = $1 as cut
        from (select due, task_id, kind from tuskline.timer order by due, task_id limit $1) d),
    n as materialized (
      select h.task_id, h.waits, count(*) over () = $1 as cut
        from (select e.task_id, e.waits_for is not null
                     or exists (select from tuskline.unmet_dependency b
                                 where b.task_id = e.task_id) as waits
                from tuskline.chain_task e order by e.task_id desc limit $1) h),
    b as materialized (
      select greatest(10, 10 * $1 / greatest(count(*), 10)) as most from tuskline.task_limit),
    w as materialized (
      select case when t.status = 'retriable_failure' then 'retry'
                  when m.due > c.at - interval '5 s' then 'due' else 'server' end as cause,
             t.lambda, m.cut
        from c cross join m
             cross join lateral (
               select k.lambda, k.status from tuskline.task k
                where k.id = m.task_id and k.status in ('new', 'retriable_failure')
                  and m.kind = 'due'
                  and k.next_trigger_at is not distinct from m.due limit 1) t
      union all
      select case r.kind when 'order' then 'order' else 'limit' end, r.lambda, l.cut
        from b cross join tuskline.task_limit r
             cross join lateral (
               select count(*) over () = b.most as cut
                 from (select from tuskline.wait_list e
                        where e.limit_id = r.limit_id limit b.most) f) l
      union all
      select 'dependency', t.lambda, n.cut
        from n cross join lateral (
               select k.lambda from tuskline.task k
                where k.id = n.task_id and k.status = 'new' and n.waits limit 1) t)
    select w.cause, w.lambda, count(*), bool_or(w.cut) from w group by w.cause, w.lambda
    union all
    select u.cause, a.name, 0, true
      from (select 'due' as cause where exists (select from m where m.cut)
            union all
            select 'dependency' where exists (select from n where n.cut)) u
           cross join tuskline.lambda a
     where not exists (select from w where w.cause = u.cause and w.lambda = a.name)";

/// Tasks that wait, by cause and lambda. Among tasks of chains it reads the newest [`MOST`].
///
/// # Errors
/// The connection's or the server's.
pub async fn waits(client: &Client) -> Result<Vec<Waiting>, Error> {
    let rows = client.query_typed(WAITS, &[(&MOST, Type::INT8)]).await?;
    Ok(rows
        .iter()
        .map(|row| Waiting {
            cause: row.get(0),
            lambda: row.get(1),
            count: Count::of(row.get(2), row.get(3)),
        })
        .collect())
}
