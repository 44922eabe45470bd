//! Lists of tasks, the newest first, by what they are and what they hold.
//!
//! Promises: a call reads a bounded number of rows of each kind of ids; the ids that it answers lead
//! to the rest, so that a walk over all calls meets each task once. Must never: sort or count all tasks.

mod bounds;
mod look;
mod reach;

use chrono::{DateTime, Utc};
use serde_json::Value;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error};

pub use bounds::Bounds;
pub use look::{MOST_PAGES as PAGES_OF_A_LOOK, Scanned, Trace, look};
pub use reach::{Failed, failures, key_holders, tasks_of};

/// Which tasks. None, or an empty list of words: all of them.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// Their lambdas.
    pub lambdas: Option<Vec<String>>,
    /// Their statuses.
    pub statuses: Option<Vec<String>>,
    /// Their priorities.
    pub priorities: Option<Vec<String>>,
    /// Their collections.
    pub collections: Option<Vec<String>>,
    /// Fingerprints of dead letters.
    pub causes: Option<Vec<String>>,
    /// Ordering, limit, fairness or unique key.
    pub keys: Option<Vec<String>>,
    /// Each stands in the last error or in the payload.
    pub words: Vec<String>,
    /// Scheduled at this time or later.
    pub after: Option<DateTime<Utc>>,
    /// Scheduled before this time.
    pub before: Option<DateTime<Utc>>,
}

/// Where the tasks of a list come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The segments, by id.
    Segments,
    /// The dead letters, by id.
    DeadLetters,
    /// The dead letters of a lambda and a cause, by its index.
    Causes,
}

/// Most lambdas times causes whose index is probed.
const MOST_CAUSES: usize = 16;

impl Filter {
    /// The shortest way to these tasks.
    pub fn source(&self) -> Source {
        let is_dead = |status: &String| matches!(status.as_str(), "dead" | "fatal_failure");
        let pairs = self.lambdas.iter().zip(&self.causes).map(|(l, c)| l.len() * c.len()).next();
        match (pairs, &self.causes, &self.statuses) {
            (Some(..=MOST_CAUSES), ..) => Source::Causes,
            (_, Some(_), _) => Source::DeadLetters,
            (_, None, Some(statuses)) if statuses.iter().all(is_dead) => Source::DeadLetters,
            _ => Source::Segments,
        }
    }

    /// Every task is one of these.
    pub fn is_empty(&self) -> bool {
        let lists = [
            &self.lambdas,
            &self.statuses,
            &self.priorities,
            &self.collections,
            &self.causes,
            &self.keys,
        ];
        lists.iter().all(|list| list.is_none())
            && self.words.is_empty()
            && self.after.is_none()
            && self.before.is_none()
    }
}

/// How much a call reads.
#[derive(Debug, Clone, Copy)]
pub struct Step {
    /// Most tasks to return.
    pub limit: i64,
    /// Most rows to read of tasks that were due at once, and of delayed ones.
    pub rows: [i64; 2],
}

/// Tasks, and where the next ones are.
#[derive(Debug, Clone)]
pub struct Tasks {
    /// The newest first.
    pub tasks: Vec<Value>,
    /// There are more than the limit.
    pub is_full: bool,
    /// There are rows that were not looked at.
    pub is_cut: bool,
    /// The next ones are between these.
    pub next: Bounds,
    /// Rows of each kind that were looked at.
    pub looked: [i64; 2],
    /// When the last of these rows was scheduled.
    pub back_to: Option<DateTime<Utc>>,
}

/// No index knows the time of creation, and nothing is scanned: the ids of tasks that are due at once
/// (`n`) and those of delayed tasks (`f`, from the first id of `future_seq` on) each rise with that
/// time. So each kind is read from its newest id down by the primary keys of the segments, at most
/// `$7` and `$8` tasks of it. Both are looked at as far back as both were read (`h`, `e`), and the
/// rows that pass are merged (`g`). `place` is the time of creation, but never falls with a higher id
/// of the kind. It goes on until the `cost` in pages is above `$9` (`k`) or the list is full (`c`). So
/// a call ends at an id of each kind (`o`), and the next call begins there (`$5`, `$16`), whatever was
/// scheduled meanwhile.
///
/// Planner: bounds that a subquery answers would be unknown to it, and it would sort all tasks.
///
/// `{n}` and `{f}` are sources; `{cost}` are the pages that `{matches}` may read for a row.
const TASKS: &str = "
    with n as materialized ({n}),
    f as materialized ({f}),
    h as materialized (
      select greatest((select min(created_at) from n having count(*) = $7),
                      (select min(created_at) from f having count(*) = $8)) as at),
    e as materialized (
      select (select min(n.id) from n where n.created_at >= coalesce(h.at, '-infinity')) as n,
             (select min(f.id) from f where f.created_at >= coalesce(h.at, '-infinity')) as f
        from h),
    q as (
      select n.*, false as delayed, max(n.created_at) over (order by n.id) as place
        from n, e where n.passes and n.id >= e.n
      union all
      select f.*, true, max(f.created_at) over (order by f.id)
        from f, e where f.passes and f.id >= e.f),
    g as materialized (
      select q.*, row_number() over w as no, sum({cost}) over w as cost
        from q window w as (order by q.place desc, q.id desc)),
    k as materialized (
      select coalesce(max(g.no), 0) as no from g where g.cost <= $9 or g.no = 1),
    p as materialized (
      select g.*, row_number() over (order by g.no) as rank from g
       where case when g.no <= (select k.no from k) then {matches} end
       order by g.no limit $6 + 1),
    c as materialized (
      select count(*) > $6 as full,
             case when count(*) > $6 then max(p.no) filter (where p.rank <= $6)
                  else (select k.no from k) end as no from p),
    u as materialized (
      select max(g.id) filter (where not g.delayed) as n, max(g.id) filter (where g.delayed) as f,
             (select r.place from g r, c where r.no = c.no) as place
        from g, c where g.no > c.no),
    o as materialized (
      select greatest(e.n, u.n + 1) as n, greatest(e.f, u.f + 1) as f,
             case when num_nonnulls(u.n, u.f) > 0 then u.place else h.at end as at
        from e, u, h),
    l as materialized (
      select (select count(*) from n, o where n.id >= o.n) as n,
             (select count(*) from f, o where f.id >= o.f) as f,
             (select count(*) from n) as all_n, (select count(*) from f) as all_f)
    select (select coalesce(json_agg(json_build_object(
                     'id', p.id, 'lambda', p.lambda, 'collection', p.collection,
                     'priority', p.priority, 'status', p.status, 'attempt', p.attempt,
                     'crashes', p.crashes, 'due_at', p.due_at, 'created_at', p.created_at,
                     'started_at', p.started_at, 'finished_at', p.finished_at,
                     'next_trigger_at', p.next_trigger_at,
                     'due_ms_ago',
                       (1000 * extract(epoch from tuskline.clock() - p.due_at))::bigint)
                     order by p.no), '[]')
              from p where p.rank <= $6)::text,
           c.full, l.all_n = $7 or l.all_f = $8 or l.n + l.f < l.all_n + l.all_f,
           o.n, o.f, (select max(id) from n), (select max(id) from f), l.n, l.f,
           coalesce(o.at, least((select min(created_at) from n), (select min(created_at) from f)))
      from c, o, l";

/// A source: a kind of ids, between its bounds.
const SEGMENTS: &str = "
      select id, lambda, collection, priority, status, attempt, crashes, due_at, created_at,
             started_at, finished_at, next_trigger_at, null::text as fingerprint{more}, {passes} as passes
        from tuskline.tasks t
       where id < {before} and id >= {floor}
       order by id desc limit {rows}";

/// A dead letter whose task is gone is a row that passes no condition.
const DEAD_LETTERS: &str = "
      select d.task_id as id, t.lambda, t.collection, t.priority, t.status, t.attempt, t.crashes,
             t.due_at, coalesce(t.created_at, d.died_at) as created_at, t.started_at,
             t.finished_at, t.next_trigger_at, d.fingerprint{more}, {passes} as passes
        from ({letters}) d
             left join lateral (
               select k.lambda, k.collection, k.priority, k.status, k.attempt, k.crashes, k.due_at,
                      k.created_at, k.started_at, k.finished_at, k.next_trigger_at{more_of_task}
                 from tuskline.tasks k where k.id = d.task_id limit 1) t on true
       order by d.task_id desc";

const LETTERS: &str = "
      select d.task_id, d.fingerprint, d.died_at from tuskline.dead_letter d
       where d.task_id < {before} and d.task_id >= {floor}
       order by d.task_id desc limit {rows}";

/// Rides the index dead_letter_group, once for each lambda and cause.
const LETTERS_OF_CAUSES: &str = "
      select d.* from unnest($1::text[]) as l (name) cross join unnest($13::text[]) as i (fingerprint)
             cross join lateral (
               select d.task_id, d.fingerprint, d.died_at from tuskline.dead_letter d
                where d.lambda = l.name and d.fingerprint = i.fingerprint
                  and d.task_id < {before} and d.task_id >= {floor}
                order by d.task_id desc limit {rows}) d
       order by d.task_id desc limit {rows}";

const PASSES: &str = "
             t.lambda is not null and ($1::text[] is null or t.lambda = any ($1))
               and ($2::text[] is null or t.status = any ($2::text[]::tuskline.status[]))
               and ($3::text[] is null or t.priority = any ($3::text[]::tuskline.priority[]))
               and ($4::text[] is null or t.collection = any ($4))
               and ($11::timestamptz is null or t.created_at >= $11)
               and ($12::timestamptz is null or t.created_at < $12)
               and ($13::text[] is null or {fingerprint} = any ($13))";

const KEYS: &str = " and array[t.ordering_key, t.limit_key, t.fairness_key, t.unique_key] && $14";

/// A failure of the last attempt has the fence of the task: one probe, however many attempts there are.
const MATCHES: &str = "(
             select bool_and(strpos(x.words, lower(w.word)) > 0)
               from unnest($15::text[]) as w (word)
                    cross join (
                      select lower(concat_ws(' ', g.payload, (
                               select concat_ws(': ', e.error_class, e.message)
                                 from tuskline.attempts e
                                where e.task_id = g.id and e.fence = g.fence
                                  and e.error_class is not null limit 1))) as words offset 0) x)";

/// Pages of a failure and of a payload that is stored apart.
const COST: &str = "8 + coalesce(pg_column_size(q.payload), 0) / 1900";

/// Most pages that the condition on words may read in a call.
const MOST_PAGES: i64 = 4_000;

impl Filter {
    /// The statement. Columns that are not every reader's are read only if the filter wants them.
    fn statement(&self) -> String {
        let has_words = !self.words.is_empty();
        let mut more = String::new();
        if self.keys.is_some() {
            more.push_str(", t.ordering_key, t.limit_key, t.fairness_key, t.unique_key");
        }
        if has_words {
            more.push_str(", t.fence, t.payload");
        }
        let source = match self.source() {
            Source::Segments => SEGMENTS.to_owned(),
            Source::DeadLetters => DEAD_LETTERS.replace("{letters}", LETTERS),
            Source::Causes => DEAD_LETTERS.replace("{letters}", LETTERS_OF_CAUSES),
        };
        let fingerprint =
            if matches!(self.source(), Source::Segments) { "null" } else { "d.fingerprint" };
        let keys = if self.keys.is_some() { KEYS } else { "" };
        let passes = format!("{PASSES}{keys}").replace("{fingerprint}", fingerprint);
        let source = source
            .replace("{more_of_task}", &more.replace("t.", "k."))
            .replace("{more}", &more)
            .replace("{passes}", &passes);
        let of = |[before, floor, rows]: [&str; 3]| {
            let source = source.replace("{before}", before).replace("{floor}", floor);
            source.replace("{rows}", rows)
        };
        TASKS
            .replace("{n}", &of(["$5", "$10", "$7"]))
            .replace("{f}", &of(["$16", "$17", "$8"]))
            .replace("{cost}", if has_words { COST } else { "0" })
            .replace("{matches}", if has_words { MATCHES } else { "true" })
    }
}

/// The tasks of a filter between the bounds.
///
/// # Errors
/// The connection's or the server's.
pub async fn list(
    client: &Client,
    filter: &Filter,
    bounds: Bounds,
    step: Step,
) -> Result<Tasks, Error> {
    let [now, later] = step.rows;
    let [before, floor] = [bounds.before[0].unwrap_or(bounds.first_later), bounds.floor[0]];
    let [before_later, floor_later] = [bounds.before[1].unwrap_or(i64::MAX), bounds.floor[1]];
    let row = client
        .query_typed_one(
            &filter.statement(),
            &[
                (&filter.lambdas, Type::TEXT_ARRAY),
                (&filter.statuses, Type::TEXT_ARRAY),
                (&filter.priorities, Type::TEXT_ARRAY),
                (&filter.collections, Type::TEXT_ARRAY),
                (&before, Type::INT8),
                (&step.limit, Type::INT8),
                (&now, Type::INT8),
                (&later, Type::INT8),
                (&MOST_PAGES, Type::INT8),
                (&floor, Type::INT8),
                (&filter.after, Type::TIMESTAMPTZ),
                (&filter.before, Type::TIMESTAMPTZ),
                (&filter.causes, Type::TEXT_ARRAY),
                (&filter.keys, Type::TEXT_ARRAY),
                (&filter.words, Type::TEXT_ARRAY),
                (&before_later, Type::INT8),
                (&floor_later, Type::INT8),
            ],
        )
        .await?;
    let tasks: &str = row.get(0);
    let next = |kind: usize| {
        let (lowest, highest): (Option<i64>, Option<i64>) = (row.get(3 + kind), row.get(5 + kind));
        lowest.or(bounds.before[kind]).or(highest.map(|id| id + 1))
    };
    Ok(Tasks {
        tasks: serde_json::from_str(tasks).unwrap_or_default(),
        is_full: row.get(1),
        is_cut: row.get(2),
        next: Bounds { before: [next(0), next(1)], ..bounds },
        looked: [row.get(7), row.get(8)],
        back_to: row.get(9),
    })
}
