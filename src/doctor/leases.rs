//! Workers that a store consumer should have ended, and leases that stay: of workers that have ended, of bodies
//! that ignore their timeout, and of tasks that have all ended.
//!
//! Promises: it reads the rows of the workers and the leases, which are few, and at most [`SAMPLE`] of the
//! tasks of the leases, the oldest first.

use anyhow::Result;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Row};

use super::finding::Found;
use super::remedy;
use crate::duration;
use crate::store::rows::Parameters;

/// Most tasks that are looked up. Each look-up reads four pages.
const SAMPLE: i64 = 200;

/// Rescue looks at the leases of ended workers each second. A worker sends its results as often.
const LATE: &str = "1 minute";

/// In this time a worker makes many exchanges, and each of them could give the lease back.
const SPENT: &str = "10 minutes";

/// Workers that were silent for a lease and more, and are still not ended. The database's clock is
/// exact enough for a warning.
const SILENT: &str = "
    select count(*) filter (where expires_at + lease + interval '5 seconds' < tuskline.clock()), count(*)
      from tuskline.executor where ended_at is null";

const ENDED: &str = "
    select count(*), min(e.executor_id), count(distinct e.executor_id)
      from tuskline.lease l join tuskline.executor e on e.executor_id = l.executor_id
     where e.ended_at < tuskline.clock() - $1::text::interval";

/// Tasks of the oldest leases. A lease is found spent only if all its tasks are in the sample.
/// Leases of silent workers are left out, because the line `workers` reports these.
const HELD: &str = "
    with c as materialized (select tuskline.clock() as now),
    e as materialized (
      select e.executor_id, e.host, e.pid from tuskline.executor e cross join c
       where e.ended_at is null and e.expires_at > c.now),
    s as materialized (
      select l.executor_id, l.lease_id, l.tasks, u.id
        from (select executor_id, lease_id, task_ids, cardinality(task_ids) as tasks
                from tuskline.lease order by lease_id limit $1) l
             join e on e.executor_id = l.executor_id
             cross join unnest(l.task_ids) as u (id)
       limit $1),
    t as materialized (
      select s.executor_id, s.lease_id, s.tasks, t.id, t.finished_at,
             t.fence = s.lease_id and t.status in ('claimed', 'processing') as runs,
             t.started_at + a.attempt_timeout as until, a.attempt_timeout
        from s cross join lateral (
               select t.id, t.lambda, t.status, t.fence, t.started_at, t.finished_at
                 from tuskline.task t where t.id = s.id offset 0) t
             join tuskline.lambda a on a.name = t.lambda)
    select o.id, o.late_ms, o.timeout_ms, e.executor_id, e.host, e.pid, o.found, null::bigint
      from (select t.id, t.executor_id, count(*) over () as found,
                   (1000 * extract(epoch from c.now - t.until))::bigint as late_ms,
                   (1000 * extract(epoch from t.attempt_timeout))::bigint as timeout_ms
              from t cross join c where t.runs and t.until + $2::text::interval < c.now
             order by t.until limit 1) o
           join e on e.executor_id = o.executor_id
    union all
    select null, null, null, p.executor_id, e.host, e.pid, p.found, p.lease_id
      from (select t.executor_id, t.lease_id, count(*) over () as found
              from t cross join c
             group by t.executor_id, t.lease_id, t.tasks, c.now
            having count(*) = t.tasks and not bool_or(t.runs)
                   and max(t.finished_at) < c.now - $3::text::interval
             order by t.lease_id limit 1) p
           join e on e.executor_id = p.executor_id";

/// Counts workers that a store consumer should have ended long ago.
pub async fn workers(client: &Client) -> Result<Found> {
    let row = client.query_typed_one(SILENT, &[]).await?;
    let (silent, all): (i64, i64) = (row.get(0), row.get(1));
    if silent == 0 {
        return Ok(Found::ok(format!("{all} alive")));
    }
    let said = format!(
        "{silent} of {all} silent for two leases, and no store consumer returns their tasks: it must run for \
         longer than a lease without a break"
    );
    Ok(Found::warn(said, remedy::SERVE))
}

/// The worst of the three.
pub async fn examine(client: &Client) -> Result<Found> {
    let row = client.query_typed_one(ENDED, &[(&LATE, Type::TEXT)]).await?;
    let (leases, workers): (i64, i64) = (row.get(0), row.get(2));
    if let Some(worker) = row.get::<_, Option<i64>>(1) {
        let said = format!(
            "{leases} leases of {workers} workers that have ended (worker {worker} first): no store \
             consumer has returned their tasks for {LATE}"
        );
        return Ok(Found::warn(said, remedy::SERVE));
    }
    let parameters: &Parameters<'_> =
        &[(&SAMPLE, Type::INT8), (&LATE, Type::TEXT), (&SPENT, Type::TEXT)];
    let rows = client.query_typed(HELD, parameters).await?;
    Ok(match rows.first() {
        Some(row) if row.get::<_, Option<i64>>(0).is_some() => overdue(row),
        Some(row) => spent(row),
        None => Found::ok("none is stuck"),
    })
}

fn overdue(row: &Row) -> Found {
    let (task, late_ms, timeout_ms): (i64, i64, i64) = (row.get(0), row.get(1), row.get(2));
    let said = format!(
        "task {task} runs {} past its attempt_timeout of {}, {}: its body does not end; {}",
        duration::show(late_ms),
        duration::show(timeout_ms),
        worker(row),
        more(row, "tasks")
    );
    Found::warn(said, remedy::CANCEL.with("task", &task.to_string()))
}

fn spent(row: &Row) -> Found {
    let (executor, lease): (i64, i64) = (row.get(3), row.get(7));
    let said = format!(
        "lease {lease}, {}, holds only tasks that ended over {SPENT} ago; {}",
        worker(row),
        more(row, "leases")
    );
    let remedy = remedy::SPENT_LEASE.with("executor", &executor.to_string());
    Found::warn(said, remedy.with("lease", &lease.to_string()))
}

fn worker(row: &Row) -> String {
    let (executor, host, pid): (i64, &str, i32) = (row.get(3), row.get(4), row.get(5));
    format!("worker {executor} on {host}, pid {pid}")
}

fn more(row: &Row, noun: &str) -> String {
    let all: i64 = row.get(6);
    format!("{all} such {noun} among the oldest")
}
