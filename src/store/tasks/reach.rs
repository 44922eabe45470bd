//! How many tasks there are, where a time is among their ids, and of what they failed.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error};

use super::Source;
use crate::store::rows::{Parameters, column, rows, value};

/// How far a look can go, and the relations whose pages it counts.
#[derive(Debug, Clone)]
pub struct Extent {
    /// An estimate of PostgreSQL: tasks, or dead letters.
    pub rows: i64,
    /// Tables that a look reads, with their indexes and what they store apart.
    pub relations: Vec<u32>,
}

/// The last failure of a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failed {
    /// The task.
    pub id: i64,
    /// Class of the error.
    pub error_class: String,
    /// The first 300 characters of the error.
    pub message: Option<String>,
}

const EXTENT: &str = "
    with t as (
      select p.relid::oid as oid, true as is_task from pg_partition_tree('tuskline.task') p
       where p.isleaf
      union all
      select u.name::oid, false
        from unnest('{tuskline.task_kept,tuskline.task_failure}'::regclass[]) as u (name)
      union all select 'tuskline.dead_letter'::regclass::oid, null),
    s as (
      select t.is_task, c.oid, c.reltoastrelid,
             greatest(c.reltuples::bigint, pg_stat_get_live_tuples(c.oid), 0) as tuples
        from t join pg_class c using (oid)),
    l as (
      select s.oid from s union all select s.reltoastrelid from s where s.reltoastrelid <> 0)
    select (select sum(s.tuples) from s where s.is_task is not distinct from $1)::bigint,
           array(select l.oid from l union all
                 select i.indexrelid from l join pg_index i on i.indrelid = l.oid)";

/// Measures the extent of a source.
///
/// # Errors
/// The connection's or the server's.
pub async fn extent(client: &Client, source: Source) -> Result<Extent, Error> {
    let is_task = (source == Source::Segments).then_some(true);
    let row = client.query_typed_one(EXTENT, &[(&is_task, Type::BOOL)]).await?;
    let rows: Option<i64> = row.get(0);
    Ok(Extent { rows: rows.unwrap_or_default(), relations: row.get(1) })
}

/// Pages of these relations that this transaction has read. 0 if the server counts none.
///
/// # Errors
/// The connection's or the server's.
pub async fn pages_read(client: &Client, extent: &Extent) -> Result<i64, Error> {
    let sql = "select coalesce(sum(pg_stat_get_xact_blocks_fetched(u.oid)), 0)::bigint
                 from unnest($1::oid[]) as u (oid)";
    value(client, sql, &[(&extent.relations, Type::OID_ARRAY)]).await
}

/// Halves each range of ids until it finds the first id that was scheduled at a time or later: some 24
/// probes of a primary key for 16 million ids. A min() over the view would read each id.
const FIRST_IDS: &str = "
    with recursive r as materialized (
      select seqmin as first_id from pg_sequence where seqrelid = 'tuskline.future_seq'::regclass),
    i as materialized (
      select l.id as lowest, h.id as highest
        from r cross join lateral (select t.id from tuskline.tasks t where t.id < r.first_id
                                    order by t.id limit 1) l
             cross join lateral (select t.id from tuskline.tasks t where t.id < r.first_id
                                  order by t.id desc limit 1) h
      union all
      select l.id, h.id
        from r cross join lateral (select t.id from tuskline.tasks t where t.id >= r.first_id
                                    order by t.id limit 1) l
             cross join lateral (select t.id from tuskline.tasks t where t.id >= r.first_id
                                  order by t.id desc limit 1) h),
    b as (
      select i.lowest as low, i.highest + 1 as high, 0 as step from i
      union all
      select case when n.created_at < $1 then n.id + 1 else b.low end,
             case when n.created_at < $1 then b.high else (b.low + b.high) / 2 end, b.step + 1
        from b left join lateral (
               select t.id, t.created_at from tuskline.tasks t
                where t.id >= (b.low + b.high) / 2 and t.id < b.high order by t.id limit 1) n
             on true
       where b.low < b.high and b.step < 60)
    select b.low from b where b.low >= b.high";

/// The first ids, one of each kind that has tasks, which were scheduled at a time or later.
///
/// # Errors
/// The connection's or the server's.
pub async fn first_ids(client: &Client, at: DateTime<Utc>) -> Result<Vec<i64>, Error> {
    let rows = client.query_typed(FIRST_IDS, &[(&at, Type::TIMESTAMPTZ)]).await?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

/// The failures of the last attempts of these tasks.
///
/// # Errors
/// The connection's or the server's.
pub async fn failures(client: &Client, tasks: &[i64]) -> Result<Vec<Failed>, Error> {
    let sql = "
        select i.id, e.error_class, left(e.message, 300) as message
          from unnest($1::bigint[]) as i (id)
               cross join lateral (
                 select t.fence from tuskline.tasks t where t.id = i.id limit 1) t
               cross join lateral (
                 select a.error_class, a.message from tuskline.attempts a
                  where a.task_id = i.id and a.fence = t.fence and a.error_class is not null
                  limit 1) e";
    rows(client, sql, &[(&tasks, Type::INT8_ARRAY)]).await
}

/// Tasks of these lambdas that wait with one of these keys, or hold it: the first 50 of each key.
///
/// # Errors
/// The connection's or the server's.
pub async fn key_holders(
    client: &Client,
    lambdas: &[String],
    keys: &[String],
) -> Result<Vec<i64>, Error> {
    let sql = "select distinct h.id
                 from unnest($1::text[]) as l (name) cross join unnest($2::text[]) as k (key)
                      cross join lateral tuskline.key_holders(l.name, k.key, 50) as h (id)
                order by h.id desc limit 50";
    let parameters: &Parameters<'_> = &[(&lambdas, Type::TEXT_ARRAY), (&keys, Type::TEXT_ARRAY)];
    column(client, sql, parameters).await
}

/// These tasks, as [`super::list`] has them.
///
/// # Errors
/// The connection's or the server's.
pub async fn tasks_of(client: &Client, ids: &[i64]) -> Result<Vec<Value>, Error> {
    let sql = "select t.* from unnest($1::bigint[]) with ordinality as i (id, no)
                      cross join lateral (
                        select t.id, t.lambda, t.collection, t.priority, t.status, t.attempt,
                               t.crashes, t.due_at, t.created_at, t.started_at, t.finished_at,
                               t.next_trigger_at
                          from tuskline.tasks t where t.id = i.id limit 1) t order by i.no";
    rows(client, sql, &[(&ids, Type::INT8_ARRAY)]).await
}
