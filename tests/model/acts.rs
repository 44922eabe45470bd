//! The steps, done to PostgreSQL by the sessions of their actors; answers in the words of the model.

use std::collections::BTreeSet;

use serde_json::json;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error, Row};

use crate::sight::BASE;
use crate::state::{ExecutorNo, LeaseNo, State, TaskNo};
use crate::step::{Change, Due, Order, Report, Said, Step, Taken, Word};
use crate::store::{Names, Store};
use crate::support::refusal;

const CODES: [&str; 12] = [
    "TK001", "TK002", "TK003", "TK004", "TK005", "TK006", "TK007", "TK008", "TK009", "TK010",
    "TK011", "TK012",
];

type With<'a> = &'a [&'a (dyn ToSql + Sync)];

/// Does a step; `state` is the model after it.
pub async fn act(store: &mut Store, state: &State, step: &Step) -> Said {
    match try_to(store, state, step).await {
        Ok(said) => said,
        Err(error) => {
            let code = error.as_db_error().map(|said| said.code().code().to_owned());
            let known = CODES.into_iter().find(|known| Some(*known) == code.as_deref());
            Said::Refused(known.unwrap_or_else(|| panic!("{step:?}: {}", refusal(&error))))
        }
    }
}

async fn try_to(store: &mut Store, state: &State, step: &Step) -> Result<Said, Error> {
    match step {
        Step::Define => {
            let said = one(&store.operator, "select tuskline.define_lambda('late')", &[]).await?;
            Ok(Said::Defined(said.get(0)))
        }
        Step::Alter { lambda, change } => alter(store, lambda, *change).await,
        Step::Mistake { sql, .. } => run(&store.operator, sql).await,
        Step::Schedule { .. } | Step::ScheduleMany { .. } | Step::Insert { .. } => {
            schedule(store, step).await
        }
        Step::Register { executor, slot, lease } => register(store, *executor, *slot, *lease).await,
        Step::Cancel { by, task } => {
            let id = store.names.tasks[task];
            let said = one(&store.clients[*by], "select tuskline.cancel($1)", &[&id]).await?;
            let words = ["cancelled", "requested", "too_late", "unknown"];
            let said: String = said.get(0);
            Ok(Said::Cancel(
                words.into_iter().find(|word| *word == said).expect("one of four words"),
            ))
        }
        Step::EnqueueDue { .. }
        | Step::Rescue { .. }
        | Step::FindStalled { .. }
        | Step::Rebuild { .. } => consume(store, step).await,
        Step::Advance { .. } => {
            let sql = format!(
                "update tuskline_test.pin set at = {BASE} + {} * interval '1 ms'",
                state.now
            );
            run(&store.db.client, &sql).await
        }
        Step::LoseQueues => {
            run(
                &store.db.client,
                "delete from tuskline.queued; delete from tuskline_core.queues_complete",
            )
            .await
        }
        Step::Mislay { task } => {
            let id = store.names.tasks[task];
            let sql = format!(
                "delete from tuskline.queued where task_id = {id}; delete from tuskline.timer where task_id = {id}"
            );
            run(&store.db.client, &sql).await
        }
        _ => execute(store, state, step).await,
    }
}

async fn one(session: &Client, sql: &str, with: With<'_>) -> Result<Row, Error> {
    session.query_one(sql, with).await
}

async fn run(session: &Client, sql: &str) -> Result<Said, Error> {
    session.batch_execute(sql).await.map(|()| Said::Nothing)
}

async fn alter(store: &Store, lambda: &str, change: Change) -> Result<Said, Error> {
    let setting = match change {
        Change::Direct(direct) => format!("p_direct => {direct}"),
        Change::Attempts(most) => format!("p_max_attempts => {most}"),
        Change::Crashes(most) => format!("p_max_crashes => {most}"),
        Change::Base(base) => format!("p_retry_base => '{base} ms'"),
    };
    run(&store.operator, &format!("select tuskline.alter_lambda('{lambda}', {setting})")).await
}

/// An instant or a duration, as SQL.
fn due(due: Due) -> (String, String) {
    let none = "null".to_owned();
    match due {
        Due::Now => (none.clone(), none),
        Due::At(offset) => (format!("tuskline.clock() + {offset} * interval '1 ms'"), none),
        Due::In(offset) => (none, format!("{offset} * interval '1 ms'")),
    }
}

async fn schedule(store: &mut Store, step: &Step) -> Result<Said, Error> {
    let (by, sql) = match step {
        Step::Schedule { by, order } => {
            let (at, delay) = due(order.due);
            let Order { lambda, priority, .. } = order;
            (
                *by,
                format!(
                    "select tuskline.schedule('{lambda}', '{{}}', '{priority}', null, {at}, {delay})"
                ),
            )
        }
        Step::ScheduleMany { by, orders } => (*by, schedule_many(orders)),
        Step::Insert { by, orders } => (*by, insert(orders)),
        other => unreachable!("{other:?} schedules nothing"),
    };
    let rows = store.clients[by].query(&sql, &[]).await?;
    let ids: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
    assert_eq!(ids.len(), step.orders().len());
    store.names.tasks.extend(step.orders().iter().map(|order| order.task).zip(ids));
    Ok(Said::Accepted(rows.len()))
}

/// With arrays for what the batch has, and null for what it has not.
fn schedule_many(orders: &[Order]) -> String {
    let list = |of: &dyn Fn(&Order) -> String| orders.iter().map(of).collect::<Vec<_>>().join(", ");
    let lambdas = list(&|order| format!("'{}'", order.lambda));
    let priorities = list(&|order| format!("'{}'", order.priority));
    let times = match orders.iter().all(|order| matches!(order.due, Due::Now)) {
        true => "null, null".to_owned(),
        false => format!(
            "array[{}]::timestamptz[], array[{}]::interval[]",
            list(&|order| due(order.due).0),
            list(&|order| due(order.due).1)
        ),
    };
    format!(
        "select unnest(tuskline.schedule_many(array[{lambdas}], null, array[{priorities}], null, {times}))"
    )
}

fn insert(orders: &[Order]) -> String {
    let row = |order: &Order| {
        let at = match order.due {
            Due::Now => "null".to_owned(),
            Due::At(offset) | Due::In(offset) => {
                format!("tuskline.clock() + {offset} * interval '1 ms'")
            }
        };
        format!("('{}', '{}', {at})", order.lambda, order.priority)
    };
    let rows = orders.iter().map(row).collect::<Vec<_>>().join(", ");
    format!("insert into tuskline.task (lambda, priority, scheduled_at) values {rows} returning id")
}

async fn register(
    store: &mut Store,
    executor: ExecutorNo,
    slot: usize,
    lease: i64,
) -> Result<Said, Error> {
    let sql = "select tuskline.register_executor('host', 4711, '{work,mail}', '0.1.0', $1::bigint * interval '1 ms')";
    let said = one(&store.executors[slot], sql, &[&lease]).await?;
    store.names.executors.insert(executor, said.get(0));
    Ok(Said::Nothing)
}

async fn consume(store: &Store, step: &Step) -> Result<Said, Error> {
    match step {
        Step::EnqueueDue { by, limit } => {
            let sql = "select moved from tuskline.enqueue_due(null, $1)";
            let said = one(&store.consumers[*by], sql, &[&i32::try_from(*limit).unwrap()]).await?;
            Ok(Said::Enqueued(said.get(0)))
        }
        Step::Rescue { by, limit } => {
            let sql = "select leases, rescued, buried from tuskline.rescue($1)";
            let said = one(&store.consumers[*by], sql, &[&i32::try_from(*limit).unwrap()]).await?;
            Ok(Said::Rescued { leases: said.get(0), rescued: said.get(1), buried: said.get(2) })
        }
        Step::FindStalled { by } => {
            let sql =
                "select sum(f.untimed)::integer, sum(f.unqueued)::integer, sum(f.unleased)::integer
                from tuskline.segments_in_use() s cross join lateral tuskline.find_stalled(s) f";
            let said = one(&store.consumers[*by], sql, &[]).await?;
            Ok(Said::Stalled([said.get(0), said.get(1), said.get(2)]))
        }
        Step::Rebuild { by } => {
            let sql = "select case when rebuilt then tasks end from tuskline.rebuild_queues()";
            Ok(Said::Rebuilt(one(&store.consumers[*by], sql, &[]).await?.get(0)))
        }
        other => unreachable!("{other:?} is not of a store consumer"),
    }
}

async fn execute(store: &mut Store, state: &State, step: &Step) -> Result<Said, Error> {
    let Store { names, executors, .. } = store;
    let at = |no: &ExecutorNo| (names.executors[no], &executors[state.executors[no].slot]);
    match step {
        Step::Heartbeat { executor, draining } => {
            let (id, session) = at(executor);
            let said =
                one(session, "select * from tuskline.heartbeat($1, $2)", &[&id, draining]).await?;
            Ok(alive(names, &said))
        }
        Step::EndExecutor { executor } => {
            let (id, session) = at(executor);
            one(session, "select tuskline.end_executor($1)", &[&id]).await?;
            Ok(Said::Nothing)
        }
        Step::Claim { executor, lease, budget } => {
            let (id, session) = at(executor);
            let sql =
                format!("with {} select c.* from tuskline.claim($1, {CLAIM}) c", asked(*budget));
            let said = one(session, &sql, &[&id]).await?;
            Ok(Said::Claimed(taken(names, *lease, &said)))
        }
        Step::Exchange { executor, reports, done, lease, budget } => {
            let (id, session) = at(executor);
            let (tasks, fences, notes) = results(names, reports);
            let done = leases(names, done);
            let sql = format!(
                "with {} select c.* from tuskline.exchange($1, $2, $3, $4::text::json, $5, {CLAIM}) c",
                asked(*budget)
            );
            let said = one(session, &sql, &[&id, &tasks, &fences, &notes, &done]).await?;
            let refused = named(names, said.get("refused"));
            Ok(Said::Exchanged(refused, taken(names, *lease, &said)))
        }
        Step::SetResults { executor, reports, done } => {
            let (id, session) = at(executor);
            let (tasks, fences, notes) = results(names, reports);
            let done = leases(names, done);
            let sql = "select tuskline.set_results($1, $2, $3, $4::text::json, $5)";
            let said = one(session, sql, &[&id, &tasks, &fences, &notes, &done]).await?;
            Ok(Said::Refusals(named(names, said.get(0))))
        }
        Step::Start { executor, attempts } => {
            let (id, session) = at(executor);
            let (tasks, fences) = numbers(names, attempts);
            let said =
                one(session, "select tuskline.start($1, $2, $3)", &[&id, &tasks, &fences]).await?;
            Ok(Said::Moved(named(names, said.get(0))))
        }
        Step::Release { executor, attempts, done } => {
            let (id, session) = at(executor);
            let (tasks, fences) = numbers(names, attempts);
            let done = leases(names, done);
            let sql = "select released from tuskline.release($1, $2, $3, $4)";
            let said = one(session, sql, &[&id, &tasks, &fences, &done]).await?;
            Ok(Said::Moved(named(names, said.get(0))))
        }
        Step::ReleaseLease { executor, lease } => {
            let (id, session) = at(executor);
            let sql = "select coalesce(tuskline.release_lease($1, $2), '{}')";
            let said = one(session, sql, &[&id, &names.leases[lease]]).await?;
            Ok(Said::Moved(named(names, said.get(0))))
        }
        other => unreachable!("{other:?} is not of an executor"),
    }
}

/// The arguments of a claim on every queue, lambda by lambda, with a budget each.
const CLAIM: &str = "(select queues from q), (select array_fill(0::bigint, array[cardinality(queues)]) from q), (select groups from q), (select budgets from q)";

fn asked(budget: i32) -> String {
    format!(
        "q as (select array_agg(queue_id order by lambda, priority) as queues,
            array_agg(lambda_no order by lambda, priority) as groups,
            array_fill({budget}, array[max(lambda_no)::integer]) as budgets
            from (select *, dense_rank() over (order by lambda)::smallint as lambda_no from tuskline.queue) q)"
    )
}

fn alive(names: &Names, row: &Row) -> Said {
    if !row.get::<_, bool>("alive") {
        return Said::Dead;
    }
    let mut leases: Vec<_> =
        row.get::<_, Vec<i64>>("leases").into_iter().map(|id| names.lease(id)).collect();
    leases.sort_unstable();
    let tasks = row.get::<_, Option<Vec<i64>>>("cancelled_tasks").unwrap_or_default();
    let fences = row.get::<_, Option<Vec<i64>>>("cancelled_fences").unwrap_or_default();
    let stop = tasks.into_iter().zip(fences);
    let stop = stop.map(|(task, fence)| (names.task(task), names.lease(fence))).collect();
    Said::Alive { leases, stop }
}

fn taken(names: &mut Names, lease: LeaseNo, row: &Row) -> Taken {
    if !row.get::<_, bool>("alive") {
        return Taken::default();
    }
    let fence: Option<i64> = row.get("lease_id");
    if let Some(fence) = fence {
        names.issue(lease, fence);
    }
    let ids = row.get::<_, Option<Vec<i64>>>("task_id").unwrap_or_default();
    let attempts = row.get::<_, Option<Vec<i16>>>("attempt").unwrap_or_default();
    let crashes = row.get::<_, Option<Vec<i16>>>("crashes").unwrap_or_default();
    let tasks = ids.into_iter().zip(attempts).zip(crashes);
    let tasks = tasks.map(|((id, attempt), crashes)| (names.task(id), attempt, crashes)).collect();
    Taken { alive: true, popped: row.get("popped"), has_fence: fence.is_some(), tasks }
}

/// Plain successes, and a note for everything that has something to say.
fn results(names: &Names, reports: &[Report]) -> (Vec<i64>, Vec<i64>, Option<String>) {
    let (plain, notes): (Vec<_>, Vec<_>) =
        reports.iter().partition(|report| matches!(report.word, Word::Success));
    let plain: Vec<_> = plain.iter().map(|report| (report.task, report.fence)).collect();
    let (tasks, fences) = numbers(names, &plain);
    let note = |report: &&Report| {
        let mut note = match report.word {
            Word::Success => json!({"status": "success"}),
            Word::SuccessWith(output) => json!({"status": "success", "output": output}),
            Word::Retriable(after) => {
                json!({"status": "retriable_failure", "message": "boom", "after_ms": after})
            }
            Word::Fatal => json!({"status": "fatal_failure", "error_class": "fatal"}),
            Word::Cancelled => json!({"status": "cancelled"}),
        };
        note["task"] = names.tasks[&report.task].into();
        note["fence"] = names.leases[&report.fence].into();
        note
    };
    let notes: Vec<_> = notes.iter().map(note).collect();
    let notes = (!notes.is_empty()).then(|| serde_json::to_string(&notes).unwrap());
    (tasks, fences, notes)
}

fn numbers(names: &Names, attempts: &[(TaskNo, LeaseNo)]) -> (Vec<i64>, Vec<i64>) {
    // The order is the worst for a verb that forgets to sort.
    let attempts = attempts.iter().rev();
    attempts.map(|(task, fence)| (names.tasks[task], names.leases[fence])).unzip()
}

fn leases(names: &Names, done: &[LeaseNo]) -> Option<Vec<i64>> {
    (!done.is_empty()).then(|| done.iter().map(|no| names.leases[no]).collect())
}

fn named(names: &Names, ids: Option<Vec<i64>>) -> BTreeSet<TaskNo> {
    ids.unwrap_or_default().into_iter().map(|id| names.task(id)).collect()
}
