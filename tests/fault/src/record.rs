//! The database's own record. A trigger that exists in tests only writes every transition of every
//! task, in the transaction that makes it. After the end the record is exported into the history.

use std::path::Path;

use futures_util::{TryStreamExt as _, pin_mut};
use tokio_postgres::Client;
use tuskline_history::{Actor, Event, Redrive, Status, Writer};

/// Makes the record. It has a schema of its own, because a renewal of Tuskline's functions removes
/// foreign objects from schema `tuskline`. The number is drawn while the task's row is locked, so
/// it grows along the changes of a task. The record notes a row of a plain INSERT as the trigger
/// `route` leaves it within the statement: the intermediate status is never visible. A claim counts
/// from `started_at`. Verbs update segments and insert past `task`, where its triggers for
/// statements do not fire. A trigger for rows belongs to every partition, and `task_store` has its
/// own. Tuskline keeps the last of several redrives that return a task; the record keeps each.
const RECORD: &str = "
create schema fault;
create sequence fault.step cache 1;
create table fault.transition (
  step bigint not null, task_id bigint not null, old_status text, new_status text not null,
  fence bigint not null, attempt smallint not null, crashes smallint not null,
  at timestamptz not null, due timestamptz, xid bigint not null);
create function fault.note_insert() returns trigger language plpgsql security definer
set search_path = pg_catalog, pg_temp set jit = off as $$
begin
  insert into fault.transition
  select nextval('fault.step'), t.id, null, t.status::text, t.fence, t.attempt, t.crashes,
         clock_timestamp(), t.scheduled_at, txid_current()
    from fresh n join tuskline.task t on t.id = n.id;
  return null;
end $$;
create function fault.note_update() returns trigger language plpgsql security definer
set search_path = pg_catalog, pg_temp set jit = off as $$
begin
  if (old.status <> 'enqueued' or new.status <> 'new' or old.fence > 0 or old.xmin::text::bigint <> mod(txid_current(), 4294967296))
     and (old.status, old.fence, old.attempt, old.crashes) is distinct from (new.status, new.fence, new.attempt, new.crashes) then
    insert into fault.transition values (
      nextval('fault.step'), new.id, old.status::text, new.status::text, new.fence, new.attempt, new.crashes,
      case new.status when 'claimed' then new.started_at else clock_timestamp() end,
      case new.status when 'retriable_failure' then new.next_trigger_at else new.scheduled_at end, txid_current());
  end if;
  return null;
end $$;
create table fault.redriven (
  step bigint not null, task_id bigint not null, redrive_id bigint not null, xid bigint not null);
create function fault.note_redriven() returns trigger language plpgsql security definer
set search_path = pg_catalog, pg_temp set jit = off as $$
begin
  insert into fault.redriven values (nextval('fault.step'), new.task_id, new.redrive_id, txid_current());
  return null;
end $$;
create trigger z_note_redriven after insert on tuskline.redriven
  for each row execute function fault.note_redriven();
create trigger z_note_insert after insert on tuskline.task
  referencing new table as fresh for each statement execute function fault.note_insert();
create trigger z_note_insert after insert on tuskline_core.task_store
  referencing new table as fresh for each statement execute function fault.note_insert();
create trigger a_note_update after update on tuskline.task
  for each row execute function fault.note_update();
";

const TRANSITIONS: &str = "
select task_id, step, old_status, new_status, fence, attempt, crashes,
       (extract(epoch from at) * 1000000)::bigint, (extract(epoch from due) * 1000000)::bigint, xid
  from fault.transition order by step";

const ROWS: &str = "
select t.id, (t.payload->>'op')::bigint, (t.payload->>'n')::integer, t.lambda, t.status::text, t.fence,
       t.attempt, l.max_attempts, t.crashes, l.max_crashes, t.ordering_key,
       t.payload->>'schedule', (extract(epoch from t.scheduled_at) * 1000000)::bigint
  from (select id, payload, lambda, status, fence, attempt, crashes, ordering_key, scheduled_at from tuskline.task
        union all select id, payload, lambda, status, fence, attempt, crashes, ordering_key, scheduled_at from tuskline.task_kept) t
       join tuskline.lambda l on l.name = t.lambda";

/// Queries that must count nothing when everything has ended.
const LEFT: [(&str, &str); 11] = [
    ("parked", "select count(*) from tuskline.parked"),
    ("wait_list", "select count(*) from tuskline.wait_list"),
    ("permit", "select count(*) from tuskline.permit where fence is null"),
    ("lease", "select count(*) from tuskline.lease"),
    (
        "timer",
        "select count(*) from tuskline.timer m join tuskline.task t on t.id = m.task_id \
      where t.status in ('new', 'retriable_failure')",
    ),
    (
        "queued",
        "select count(*) from tuskline.queued q join tuskline.task t on t.id = q.task_id \
      where t.status = 'enqueued'",
    ),
    ("cancellation", "select count(*) from tuskline.cancellation"),
    ("live executor", "select count(*) from tuskline.executor where ended_at is null"),
    (
        "session of a child",
        "select count(*) from pg_stat_activity where datname = current_database() \
      and pid <> pg_backend_pid() and application_name like 'tuskline%'",
    ),
    (
        "advisory lock",
        "select count(*) from pg_locks where locktype = 'advisory' \
      and database = (select oid from pg_database where datname = current_database())",
    ),
    (
        "idle transaction",
        "select count(*) from pg_stat_activity where datname = current_database() \
      and state like 'idle in transaction%'",
    ),
];

/// Figures that views show, and the same figures counted from the rows.
const SHOWN: [(&str, &str, &str); 4] = [
    (
        "queues: depth",
        "select coalesce(sum(depth), 0)::bigint from tuskline.queues",
        "select count(*) from tuskline.task where status = 'enqueued'",
    ),
    (
        "tasks: rows",
        "select count(*) from tuskline.tasks",
        "select (select count(*) from tuskline.task) + (select count(*) from tuskline.task_kept)",
    ),
    (
        "tasks: dead",
        "select count(*) from tuskline.tasks where status = 'dead'",
        "select count(*) from tuskline.task where status = 'dead'",
    ),
    (
        "dead_letters: rows",
        "select count(*) from tuskline.dead_letters",
        "select count(*) from tuskline.task where status in ('dead', 'fatal_failure')",
    ),
];

/// Installs the record in a migrated database.
pub async fn install(client: &Client) -> Result<(), tokio_postgres::Error> {
    client.batch_execute(RECORD).await
}

/// Writes the record and the rows as they are into the history at `dir`.
pub async fn export(client: &Client, dir: &Path) -> anyhow::Result<()> {
    let writer = Writer::open(dir, Actor::Database)?;
    let none: [i64; 0] = [];
    let rows = client.query_raw(TRANSITIONS, none).await?;
    pin_mut!(rows);
    while let Some(row) = rows.try_next().await? {
        writer.note(Event::Transition {
            task: row.get(0),
            step: row.get(1),
            from: row.get::<_, Option<&str>>(2).map(status).transpose()?,
            to: status(row.get(3))?,
            fence: row.get(4),
            attempt: row.get(5),
            crashes: row.get(6),
            db_us: row.get(7),
            due_us: row.get(8),
            xid: row.get::<_, i64>(9).unsigned_abs(),
        });
    }
    let rows = client.query_raw(ROWS, none).await?;
    pin_mut!(rows);
    while let Some(row) = rows.try_next().await? {
        writer.note(Event::Row {
            task: row.get(0),
            op: row.get::<_, i64>(1).unsigned_abs(),
            n: row.get::<_, i32>(2).unsigned_abs(),
            lambda: row.get(3),
            status: status(row.get(4))?,
            fence: row.get(5),
            attempt: row.get(6),
            max_attempts: row.get(7),
            crashes: row.get(8),
            max_crashes: row.get(9),
            ordering_key: row.get(10),
            tick: row.get::<_, Option<String>>(11).zip(row.get(12)),
        });
    }
    export_rest(client, &writer).await
}

const DEPENDENCIES: &str = "
select d.task_id, d.parent_id, d.condition, c.on_parent_failure = 'run'
  from tuskline.dependency d join tuskline.chain_task c on c.task_id = d.task_id";

async fn export_rest(client: &Client, writer: &Writer) -> anyhow::Result<()> {
    for row in client.query(DEPENDENCIES, &[]).await? {
        let (task, parent, condition) = (row.get(0), row.get(1), row.get(2));
        writer.note(Event::Dependency { task, parent, condition, run: row.get(3) });
    }
    let failures = "select task_id, fence, error_class, fingerprint from tuskline.task_failure";
    for row in client.query(failures, &[]).await? {
        let (task, fence, class, fingerprint) = (row.get(0), row.get(1), row.get(2), row.get(3));
        writer.note(Event::Failure { task, fence, class, fingerprint });
    }
    export_ticks(client, writer).await?;
    export_redrives(client, writer).await?;
    for (what, sql) in LEFT {
        let count = client.query_one(sql, &[]).await?.get(0);
        writer.note(Event::Left { what: what.into(), count });
    }
    for (what, shown, counted) in SHOWN {
        let shown = client.query_one(shown, &[]).await?.get(0);
        let counted = client.query_one(counted, &[]).await?.get(0);
        writer.note(Event::Shown { what: what.into(), shown, counted });
    }
    Ok(())
}

const TICKS: &str = "
select name, (extract(epoch from tick) * 1000000)::bigint, task_id, reason, (extract(epoch from fired_at) * 1000000)::bigint
  from tuskline.tick";

async fn export_ticks(client: &Client, writer: &Writer) -> anyhow::Result<()> {
    for row in client.query(TICKS, &[]).await? {
        let (name, tick_us, task) = (row.get(0), row.get(1), row.get(2));
        let (reason, fired_us) = (row.get(3), row.get(4));
        writer.note(Event::Tick { name, tick_us, task, reason, fired_us });
    }
    Ok(())
}

const DEAD_LETTERS: &str = "
select d.task_id, v.id is not null
  from tuskline.dead_letter d left join tuskline.dead_letters v on v.id = d.task_id";

const REDRIVES: &str = "
select o.operation_id, o.lambda, o.fingerprint, o.ids, o.max_tasks, o.per_second, o.canary,
       (extract(epoch from o.begun_at) * 1000000)::bigint, (extract(epoch from o.ended_at) * 1000000)::bigint,
       nullif(o.state, 'running'), v.changed, v.died_again
  from tuskline.operation o join tuskline.operations v using (operation_id) where o.action = 'redrive'";

async fn export_redrives(client: &Client, writer: &Writer) -> anyhow::Result<()> {
    for row in client.query(DEAD_LETTERS, &[]).await? {
        writer.note(Event::DeadLetter { task: row.get(0), shown: row.get(1) });
    }
    let redriven = "select task_id, redrive_id, step, xid from fault.redriven";
    for row in client.query(redriven, &[]).await? {
        let (task, redrive, step) = (row.get(0), row.get(1), row.get(2));
        let xid = row.get::<_, i64>(3).unsigned_abs();
        writer.note(Event::Redriven { task, redrive, step, xid });
    }
    for row in client.query(REDRIVES, &[]).await? {
        writer.note(Event::Redrive(Redrive {
            redrive: row.get(0),
            lambda: row.get(1),
            fingerprint: row.get(2),
            ids: row.get(3),
            most: row.get(4),
            per_second: row.get(5),
            canary: row.get(6),
            set_us: row.get(7),
            ended_us: row.get(8),
            outcome: row.get(9),
            released: row.get(10),
            died_again: row.get(11),
        }));
    }
    Ok(())
}

fn status(word: &str) -> anyhow::Result<Status> {
    Ok(serde_json::from_value(serde_json::Value::String(word.to_owned()))?)
}
