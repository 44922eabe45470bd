//! Finds due tasks that are not done, in a test's database. They keep a drain from its end.

use chrono::{DateTime, Utc};
use tokio_postgres::Statement;

use super::{Database, Error};
use tuskline::config::DEFAULT_INSTALLATION;
use tuskline::store;

/// In one statement, so that nothing is missed that passes from one place to another meanwhile. A task whose
/// lambda the worker $1 does not serve stays in its queue, which is no reason to wait. A task that needs a
/// permit or an answer about its parents, while another transaction has locked the rows, asks again in 20 ms.
/// Such a task is listed with that time.
const LEFT: &str = "
    with c as materialized (select tuskline.clock() as now)
    select case t.status when 'enqueued' then 'is in its queue' else 'is being executed' end as what, t.id, t.lambda, null::timestamptz as moment
      from tuskline.tasks t
     where t.status in ('claimed', 'processing')
        or t.status = 'enqueued' and exists (select from tuskline.executor e where e.executor_id = $1 and t.lambda = any (e.lambdas))
           and (not exists (select from c join tuskline_core.paused_queues(c.now) p on p.lambda = t.lambda and p.priority = t.priority)
                or exists (select from tuskline_core.flagged_queue f join tuskline.queued d on d.queue_id = f.queue_id and d.seq = f.passing where d.task_id = t.id))
    union all
    select case when m.due <= c.now then 'is due' else 'asks again in a moment' end, t.id, t.lambda, case when m.due > c.now then m.due end
      from c cross join tuskline.timer m join tuskline.tasks t on t.id = m.task_id
     where m.due <= c.now
        or m.due <= c.now + interval '20 milliseconds'
           and (exists (select from tuskline.task_limit r where r.lambda = t.lambda and r.kind <> 'rate' and r.dropped_at is null)
                or exists (select from tuskline.dependency d where d.task_id = t.id))
    union all
    select 'waits for a gate that is open', k.task_id, g.lambda, null
      from c cross join tuskline.gate g join tuskline.parked k using (gate_id)
     where g.opened_at is not null or g.until <= c.now
    union all
    select 'waits for a limit that was dropped', l.task_id, r.lambda, null
      from tuskline.task_limit r join tuskline.wait_list l using (limit_id) where r.dropped_at is not null
    union all
    select format('operation %s (%s) goes on', o.operation_id, o.action), null, o.lambda, null
      from c cross join tuskline.operation o
     where o.ended_at is null and not o.writes_files and o.next_at <= c.now
       and not exists (select from tuskline.tasks t where t.id = any (o.watched) and t.finished_at is null)
    union all
    select format('schedule %s has a tick', p.name), null, p.lambda, null
      from c cross join tuskline.periodic p
     where p.enabled and p.last_error is null and (p.next_tick is null or p.next_tick <= c.now or p.done_until > c.now)
     limit 20";

/// The names of their sessions are those that [`store_consumer`](tuskline::store_consumer) and
/// [`periodic`](tuskline::periodic) give them.
const OTHERS: &str = "
    select exists (select from pg_stat_activity where datname = current_database() and state = 'active'
                      and application_name in ('tuskline store-consumer', 'tuskline periodic'))";

/// Timers or parked tasks that one call moves.
const BATCH: u32 = 1_000;

/// One thing that is due.
#[derive(Debug)]
pub(super) struct Left {
    what: String,
    task: Option<i64>,
    lambda: Option<String>,
    /// When it is, if that is not now.
    moment: Option<DateTime<Utc>>,
}

impl std::fmt::Display for Left {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let lambda = self.lambda.as_ref().map(|name| format!(" of {name}")).unwrap_or_default();
        match self.task {
            Some(task) => write!(f, "task {task}{lambda} {}", self.what),
            None => write!(f, "{}{lambda}", self.what),
        }
    }
}

/// The question, ready to be asked again and again.
#[derive(Debug)]
pub(super) struct LeftQuery<'d> {
    db: &'d Database,
    executor: i64,
    statement: Statement,
    others: Statement,
}

impl<'d> LeftQuery<'d> {
    /// About what a worker with this number may have left.
    pub async fn of(db: &'d Database, executor: i64) -> Result<Self, Error> {
        let statement = db.own().prepare(LEFT).await?;
        Ok(Self { db, executor, statement, others: db.own().prepare(OTHERS).await? })
    }

    /// Some of what is due and not done; nothing: there is nothing to wait for. If all that is left waits for a
    /// moment to pass, a pinned clock is moved on to that.
    pub async fn left(&self) -> Result<Vec<Left>, Error> {
        let mut left = self.once().await?;
        if left.is_empty() {
            // A store consumer does more than has a row in the question, but what it does has one: once it has
            // committed, for which the other must be idle, whose lock made us step around.
            let moved = self.consume().await?;
            let busy = self.others_consume().await?;
            left = self.once().await?;
            if left.is_empty() && (moved || busy) {
                let what = "a store consumer is at work".to_owned();
                left.push(Left { what, task: None, lambda: None, moment: None });
            }
        }
        let moments: Option<Vec<_>> = left.iter().map(|one| one.moment).collect();
        if let Some(first) = moments.and_then(|moments| moments.into_iter().min()) {
            self.db.reach(first).await?;
        }
        Ok(left)
    }

    async fn once(&self) -> Result<Vec<Left>, Error> {
        let rows = self.db.own().query(&self.statement, &[&self.executor]).await?;
        let read = |row: &tokio_postgres::Row| Left {
            what: row.get(0),
            task: row.get(1),
            lambda: row.get(2),
            moment: row.get(3),
        };
        Ok(rows.iter().map(read).collect())
    }

    /// True: a server is in the middle of a statement.
    async fn others_consume(&self) -> Result<bool, Error> {
        Ok(self.db.own().query_one(&self.others, &[]).await?.get(0))
    }

    /// The store consumer's verbs, once: any number of those may share the work. True: there was some.
    async fn consume(&self) -> Result<bool, Error> {
        let due = store::enqueue_due(self.db.own(), None, BATCH, DEFAULT_INSTALLATION).await?;
        let moved = match due.gates {
            true => store::promote(self.db.own(), BATCH, DEFAULT_INSTALLATION).await?.moved,
            false => 0,
        };
        Ok(due.moved + moved > 0)
    }
}
