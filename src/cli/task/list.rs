//! `task list`.

use anyhow::Result;
use clap::Args;
use serde_json::Value;
use tokio_postgres::Client;
use tokio_postgres::types::{ToSql, Type};

use crate::cli::global::Global;
use crate::cli::{arguments, output};

/// Arguments of `task list`.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// Only tasks of this lambda.
    #[arg(long)]
    lambda: Option<String>,
    /// Only tasks in this status.
    #[arg(long, value_parser = arguments::a_status())]
    status: Option<String>,
    /// Only tasks of this priority.
    #[arg(long, value_parser = arguments::a_priority())]
    priority: Option<String>,
    /// Only tasks of this collection.
    #[arg(long)]
    collection: Option<String>,
    /// At most so many.
    #[arg(long, default_value = "50", value_parser = clap::value_parser!(i64).range(1..=10_000))]
    limit: i64,
    /// Only tasks before these: the lowest id of tasks that were due at once, and of delayed ones.
    #[arg(long, value_name = "ID,ID", value_delimiter = ',')]
    before: Vec<i64>,
}

impl ListArgs {
    /// Most tasks of each kind to read: with a filter, few of them may be shown.
    fn most(&self) -> i64 {
        let filters = [&self.lambda, &self.status, &self.priority, &self.collection];
        if filters.iter().all(|filter| filter.is_none()) { self.limit + 1 } else { MOST }
    }
}

/// Most tasks of each kind that a call with a filter reads.
const MOST: i64 = 100_000;

/// The newest tasks first. No index knows the time of creation, and nothing is scanned: the ids of
/// tasks that are due at once (`n`) and those of delayed tasks (`f`, from the first id of
/// `future_seq` on) each rise with that time. So each kind is read from its newest id down by the
/// primary keys of the segments, at most `$7` tasks of it, and the two are merged. `place` is the
/// time of creation, but never falls with a higher id of the kind. So a page ends at an id of each
/// kind, and the next page begins there (`$5`), whatever was scheduled meanwhile.
const TASKS: &str = "
    with r as materialized (
      select seqmin as first_id from pg_sequence where seqrelid = 'tuskline.future_seq'::regclass),
    b as materialized (
      select min(u.id) filter (where u.id < r.first_id) as n,
             min(u.id) filter (where u.id >= r.first_id) as f
        from r left join unnest($5::bigint[]) as u (id) on true),
    n as materialized (
      select id, lambda, collection, priority, status, attempt, crashes, due_at, created_at,
             started_at, finished_at, next_trigger_at
        from tuskline.tasks where id < (select least(r.first_id, b.n) from r, b)
       order by id desc limit $7),
    f as materialized (
      select id, lambda, collection, priority, status, attempt, crashes, due_at, created_at,
             started_at, finished_at, next_trigger_at
        from tuskline.tasks
       where id >= (select r.first_id from r)
         and id < (select coalesce(b.f, 9223372036854775807) from b)
       order by id desc limit $7),
    t as (
      select n.*, false as delayed, max(n.created_at) over (order by n.id) as place from n
      union all
      select f.*, true, max(f.created_at) over (order by f.id) from f),
    p as materialized (
      select t.*, row_number() over (order by t.place desc, t.id desc) as no,
             (1000 * extract(epoch from tuskline.clock() - t.due_at))::bigint as due_ms_ago
        from t
       where ($1::text is null or t.lambda = $1)
         and ($2::text is null or t.status = $2::text::tuskline.status)
         and ($3::text is null or t.priority = $3::text::tuskline.priority)
         and ($4::text is null or t.collection = $4)
       order by t.place desc, t.id desc limit $6 + 1),
    c as materialized (select count(*) > $6 as full from p)
    select (select coalesce(json_agg(to_jsonb(s) - '{no,delayed,place}'::text[] order by s.no), '[]')
              from p s where s.no <= $6)::text,
           c.full, (select count(*) from n) = $7 or (select count(*) from f) = $7,
           array_remove(array[
             case when c.full
                  then coalesce((select min(id) from p where no <= $6 and not delayed), b.n,
                                (select max(id) + 1 from n))
                  else coalesce((select min(id) from n), b.n) end,
             case when c.full
                  then coalesce((select min(id) from p where no <= $6 and delayed), b.f,
                                (select max(id) + 1 from f))
                  else coalesce((select min(id) from f), b.f) end], null)
      from b, c";

pub async fn run(global: &Global, client: &Client, args: &ListArgs) -> Result<()> {
    let most = args.most();
    let parameters: &[(&(dyn ToSql + Sync), Type)] = &[
        (&args.lambda, Type::TEXT),
        (&args.status, Type::TEXT),
        (&args.priority, Type::TEXT),
        (&args.collection, Type::TEXT),
        (&args.before, Type::INT8_ARRAY),
        (&args.limit, Type::INT8),
        (&most, Type::INT8),
    ];
    let row = client.query_typed_one(TASKS, parameters).await?;
    let tasks: Vec<Value> = serde_json::from_str(row.get(0))?;
    let (is_full, is_cut, next): (bool, bool, Vec<i64>) = (row.get(1), row.get(2), row.get(3));
    if global.json {
        output::put_json(&Value::Array(tasks))?;
    } else {
        let columns = "id, lambda, priority, status, attempt, due: due_ms_ago, collection";
        output::put_rows(&tasks, columns, "no tasks")?;
    }
    if is_full || is_cut {
        let why =
            if is_full { "more" } else { "so far the newest 100,000 of each kind were read; more" };
        let ids: Vec<_> = next.iter().map(i64::to_string).collect();
        eprintln!("{why}: --before {}", ids.join(","));
    }
    Ok(())
}
