//! Locks: sessions that wait for a lock, sessions that hold a table in ACCESS EXCLUSIVE mode, and
//! roles without rights in the schema that hold a watch lock.

use std::time::Duration;

use anyhow::Result;
use tokio::time::sleep;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Row};

use super::attempt::settle;
use super::finding::{Finding, Found};
use super::remedy;

/// Sessions that have waited for a lock for a second, and those that they wait for. A guard that is held
/// without a waiter is no fault: a janitor may archive for an hour.
const WAITS: &str = "
    select h.blocker, pg_catalog.format('pid %s (role %s, application %s) has waited for %s since %s', w.pid, a.usename,
                  coalesce(nullif(a.application_name, ''), '?'), h.holders, w.waitstart)
      from (select l.pid, min(l.waitstart) as waitstart from pg_locks l
             where not l.granted and l.waitstart < clock_timestamp() - interval '1 second'
             group by l.pid) w
           join pg_stat_activity a on a.pid = w.pid and a.datname = current_database()
           cross join lateral (
             select min(b.pid) as blocker,
                    string_agg(case b.pid when 0 then 'a prepared transaction (pg_prepared_xacts)'
                      else pg_catalog.format('pid %s (role %s, application %s) in a transaction since %s', b.pid,
                        coalesce(s.usename, '?'), coalesce(nullif(s.application_name, ''), '?'),
                        coalesce(s.xact_start::text, '?')) end, ', ') as holders
               from unnest(pg_blocking_pids(w.pid)) as b (pid) left join pg_stat_activity s on s.pid = b.pid) h
     where h.holders is not null
     order by w.waitstart limit 5";

/// Transactions that have held a table of the schema in ACCESS EXCLUSIVE mode for over a second.
/// They are reported even if no session waits yet, because the next call of a worker will. The
/// start may be hidden from this role, and a prepared transaction has none. The third column names
/// such a transaction.
const HELD: &str = "
    select coalesce(l.pid, 0),
           pg_catalog.format('%s holds an ACCESS EXCLUSIVE lock on %s, in a transaction since %s: %s',
             case when l.pid is null then 'a prepared transaction (pg_prepared_xacts)'
                  else pg_catalog.format('pid %s (role %s, application %s)', l.pid, coalesce(a.usename, '?'),
                         coalesce(nullif(a.application_name, ''), '?')) end,
             string_agg(distinct c.oid::regclass::text, ', '), coalesce(a.xact_start::text, '?'),
             coalesce(nullif(left(regexp_replace(a.query, '[[:space:]]+', ' ', 'g'), 120), ''), '?')),
           case when a.xact_start is null then l.virtualtransaction end
      from pg_locks l join pg_class c on c.oid = l.relation
           left join pg_stat_activity a on a.pid = l.pid
     where l.granted and l.mode = 'AccessExclusiveLock' and c.relkind in ('r', 'p')
       and l.database = (select d.oid from pg_database d where d.datname = current_database())
       and c.relnamespace in (to_regnamespace('tuskline')::oid, to_regnamespace('tuskline_core')::oid)
       and (a.xact_start is null or a.xact_start < clock_timestamp() - interval '1 second')
     group by l.pid, l.virtualtransaction, a.usename, a.application_name, a.xact_start, a.query
     order by a.xact_start limit 5";

/// Time between two looks at a transaction whose start is unknown.
const SECOND_LOOK: Duration = Duration::from_secs(1);

/// A watch lock is a hint, and the only advisory lock that verbs look at. Every login can take it.
const SQUATTERS: &str = "
    select min(a.pid), string_agg(distinct pg_catalog.format('pid %s (role %s, application %s)', a.pid, a.usename,
             coalesce(nullif(a.application_name, ''), '?')), ', '),
           bool_or(l.mode = 'ExclusiveLock'), array_agg(distinct l.objid::integer)
      from pg_locks l join pg_stat_activity a on a.pid = l.pid
     where l.locktype = 'advisory' and l.classid = 1953854315 and l.granted
       and l.database = (select d.oid from pg_database d where d.datname = current_database())
       and not coalesce(has_schema_privilege(a.usesysid, to_regnamespace('tuskline')::oid, 'usage'), true)";

/// At most five queues of some bells. Bell 0 is that of the timers.
const OF_BELLS: &str = "
    select coalesce(string_agg(name, ', '), 'none') from (
      select 'the timers' as name where 0 = any ($1)
      union all
      select pg_catalog.format('%s/%s', q.lambda, q.priority) from tuskline.queue q
       where tuskline.bell_of(q.queue_id) = any ($1)
       limit 5) as queues";

/// One line for locks, one for the watch locks.
pub async fn examine(client: &Client) -> Result<Vec<Finding>> {
    Ok(vec![settle("locks", waits(client).await)?, settle("watch locks", squatters(client).await)?])
}

async fn waits(client: &Client) -> Result<Found> {
    let mut rows = client.query_typed(WAITS, &[]).await?;
    if rows.is_empty() {
        rows = held(client).await?;
    }
    let Some(first) = rows.first() else {
        return Ok(Found::ok("no session waits for one"));
    };
    let waits: Vec<&str> = rows.iter().map(|row| row.get(1)).collect();
    let remedy = match first.get::<_, i32>(0) {
        0 => remedy::LIST_PREPARED,
        blocker => remedy::END_BLOCKER.with("pid", &blocker.to_string()),
    };
    Ok(Found::warn(waits.join("; "), remedy))
}

/// The rows of [`HELD`]. A transaction whose start is unknown must still be there after a second.
async fn held(client: &Client) -> Result<Vec<Row>> {
    let unknown = |row: &Row| row.get::<_, Option<String>>(2);
    let rows = client.query_typed(HELD, &[]).await?;
    let before: Vec<_> = rows.iter().filter_map(unknown).collect();
    if before.is_empty() {
        return Ok(rows);
    }
    sleep(SECOND_LOOK).await;
    let mut rows = client.query_typed(HELD, &[]).await?;
    rows.retain(|row| unknown(row).is_none_or(|transaction| before.contains(&transaction)));
    Ok(rows)
}

async fn squatters(client: &Client) -> Result<Found> {
    let row = client.query_typed_one(SQUATTERS, &[]).await?;
    let cost = match row.get::<_, Option<bool>>(2) {
        Some(true) => "each insert into them sends a notification",
        _ => "workers poll instead of being woken",
    };
    let (Some(pid), Some(holders)) = (row.get::<_, Option<i32>>(0), row.get::<_, Option<&str>>(1))
    else {
        return Ok(Found::ok("held by Tuskline's sessions only"));
    };
    let bells: Vec<i32> = row.get(3);
    let queues = client.query_typed_one(OF_BELLS, &[(&bells, Type::INT4_ARRAY)]).await?;
    Ok(Found::warn(
        format!(
            "held by {holders}, without rights in this schema, for queues {}: {cost}",
            queues.get::<_, &str>(0)
        ),
        remedy::END_STRANGER.with("pid", &pid.to_string()),
    ))
}
