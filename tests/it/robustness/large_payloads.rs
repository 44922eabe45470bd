//! A claim is bounded in bytes: large payloads fill neither a worker nor its server process.

use tokio_postgres::Row;

use crate::support::{Db, Gate, Running, ScriptedWorker, calm, tasks};

/// Makes a lambda with a queue of tasks of so many bytes each, and a worker that claims them.
async fn holding(sizes: &[i32]) -> (Db, ScriptedWorker, Vec<i64>) {
    let db = Db::new().await;
    db.define_with("work", "p_max_payload_bytes => 1048576").await;
    let worker = db.worker("work").await;
    let mut ids = Vec::new();
    for size in sizes {
        ids.push(schedule(&db, SCHEDULE, *size).await);
    }
    (db, worker, ids)
}

const SCHEDULE: &str = "select tuskline.schedule('work', $payload)";

/// Schedules a task by a statement. Its payload has so many bytes, and a third of that when stored.
async fn schedule(db: &Db, sql: &str, size: i32) -> i64 {
    let text: String = db
        .one(&format!(
            "select left(string_agg(repeat(md5(random()::text), 4), ''), {size} - 2)
               from generate_series(1, {size} / 32 + 1)"
        ))
        .await;
    db.one(&sql.replace("$payload", &format!("'\"{text}\"'::json"))).await
}

async fn claim(worker: &ScriptedWorker, max_bytes: i64) -> Row {
    let marks = vec![0_i64; worker.queues.len()];
    let groups = vec![1_i16; worker.queues.len()];
    let sql = "select * from tuskline.claim($1, $2, $3, $4, '{100}', null, $5)";
    let values: [&(dyn tokio_postgres::types::ToSql + Sync); 5] =
        [&worker.executor, &worker.queues, &marks, &groups, &max_bytes];
    worker.client.query_one(sql, &values).await.unwrap()
}

fn ids(row: &Row) -> Vec<i64> {
    tasks(row).iter().map(|task| task.id).collect()
}

fn cut_at(row: &Row) -> Option<i32> {
    row.get("cut_at")
}

#[tokio::test]
async fn a_claim_ends_where_its_payloads_would_have_too_many_bytes() {
    let (_db, worker, all) = holding(&[100_000; 10]).await;
    let row = claim(&worker, 350_000).await;
    assert_eq!((ids(&row), cut_at(&row)), (all[..3].to_vec(), Some(3)));
    let rest = claim(&worker, 8 << 20).await;
    assert_eq!((ids(&rest), cut_at(&rest)), (all[3..].to_vec(), None));
}

#[tokio::test]
async fn a_payload_over_the_bound_is_claimed_alone() {
    let (_db, worker, all) = holding(&[100_000, 10]).await;
    assert_eq!(ids(&claim(&worker, 1).await), all[..1]);
    assert_eq!(ids(&claim(&worker, 1).await), all[1..]);
}

#[tokio::test]
async fn queues_behind_the_cut_are_not_visited() {
    let (db, worker, all) = holding(&[100_000; 2]).await;
    db.run("select tuskline.schedule('work', p_priority => 'low')").await;
    let row = claim(&worker, 100_000).await;
    assert_eq!((ids(&row), cut_at(&row)), (all[..1].to_vec(), Some(3)));
    assert_eq!(row.get::<_, Vec<Option<i32>>>("popped"), [Some(0), Some(0), Some(1), None]);
}

#[tokio::test]
async fn the_queues_of_a_claim_share_its_bytes() {
    let (db, worker, _) = holding(&[]).await;
    for priority in ["high", "normal", "low"] {
        let of_it = format!("$payload, '{priority}')");
        schedule(&db, &SCHEDULE.replace("$payload)", &of_it), 60_000).await;
    }
    let row = claim(&worker, 100_000).await;
    assert_eq!(row.get::<_, Vec<Option<i32>>>("popped"), [Some(0), Some(1), Some(1), None]);
    assert_eq!(cut_at(&row), Some(3), "the second exceeds the bound by one payload");
}

#[tokio::test]
async fn a_task_that_the_cut_leaves_keeps_its_place_and_can_be_claimed_at_once() {
    let (db, worker, _) = holding(&[100_000; 4]).await;
    let places = "select array_agg((seq, bytes, task_id)::text order by seq) from tuskline.queued";
    let before: Vec<String> = db.one(places).await;
    claim(&worker, 250_000).await;
    assert_eq!(db.one::<Vec<String>>(places).await, before[2..]);
    let touched = "select count(*) from tuskline.queued where xmax <> '0'";
    assert_eq!(db.one::<i64>(touched).await, 0);
}

#[tokio::test]
async fn a_second_look_into_a_queue_has_the_bytes_that_are_left() {
    let (db, worker, all) = holding(&[100_000; 4]).await;
    let older = db.connect().await;
    older.batch_execute("begin; select txid_current()").await.unwrap();
    let held = "begin; select from tuskline.queued where task_id <= $1 for update; rollback";
    db.run(&held.replace("$1", &all[1].to_string())).await;
    // By chance, a claim in 16 does all in one look. The seed prevents it.
    worker.client.batch_execute("select setseed(0.5)").await.unwrap();
    let row = claim(&worker, 350_000).await;
    assert_eq!((ids(&row), cut_at(&row)), (vec![all[0], all[2], all[3]], Some(3)));
}

#[tokio::test]
async fn what_an_undone_claim_left_is_bounded_as_well() {
    let (_db, worker, all) = holding(&[100_000; 6]).await;
    worker.client.batch_execute("begin").await.unwrap();
    assert_eq!(ids(&claim(&worker, 8 << 20).await), all);
    worker.client.batch_execute("rollback").await.unwrap();
    assert_eq!(ids(&claim(&worker, 250_000).await), all[..2]);
    assert_eq!(ids(&claim(&worker, 8 << 20).await), all[2..]);
}

/// Undone claims leave tasks behind an untouched one. While an older transaction runs, in whatever
/// database, they are left to the claim that finds no other.
#[tokio::test]
async fn a_claim_leaves_nothing_that_an_undone_one_left_behind_others() {
    let (db, worker, all) = holding(&[10; 5]).await;
    let held = "begin; select from tuskline.queued where task_id >= $1 for update; rollback";
    db.run(&held.replace("$1", &all[1].to_string())).await;
    let mut taken = ids(&claim(&worker, 8 << 20).await);
    taken.extend(ids(&claim(&worker, 8 << 20).await));
    assert_eq!(taken, all);
}

/// Every way into a queue records a size for the payload. It is the exact length, or an upper bound
/// where the payload is compressed and must not be read.
#[tokio::test]
async fn a_queue_knows_the_size_of_a_payload_however_it_came() {
    let many = "select (tuskline.schedule_many('{work,work}', array[$payload, 'null']))[1]";
    let insert =
        "insert into tuskline.task (lambda, payload) values ('work', $payload) returning id";
    let later = "select tuskline.schedule('work', $payload, p_delay => '1 millisecond')";
    let ways = [
        (SCHEDULE, ""),
        (insert, ""),
        (many, ""),
        (later, "enqueue_due"),
        (SCHEDULE, "rebuild"),
        (SCHEDULE, "stalled"),
        (SCHEDULE, "release"),
        (SCHEDULE, "retry"),
        (SCHEDULE, "rescue"),
    ];
    for (scheduled, then) in ways {
        for size in [40, 5_000] {
            let (db, worker, _) = holding(&[]).await;
            let id = schedule(&db, scheduled, size).await;
            go_on(&db, &worker, then).await;
            let known: i32 =
                db.one(&format!("select bytes from tuskline.queued where task_id = {id}")).await;
            let known_as = if size > 2_000 { size..=1 << 20 } else { size..=size + 8 };
            assert!(known_as.contains(&known), "{scheduled} {then}: {known} of {size}");
        }
    }
}

async fn go_on(db: &Db, worker: &ScriptedWorker, then: &str) {
    let no = db.first_segment();
    match then {
        "" => {}
        "rebuild" => {
            db.run("truncate tuskline.queued, tuskline_core.queues_complete").await;
            db.run("select tuskline.rebuild_queues()").await;
        }
        "stalled" => {
            db.run(
                "truncate tuskline.queued; update tuskline.task set next_trigger_at = '2000-1-1'",
            )
            .await;
            db.run(&format!("select tuskline.find_stalled({no})")).await;
        }
        "release" => {
            let task = worker.take().await;
            assert!(worker.release(&task).await);
        }
        "retry" => {
            let task = worker.take().await;
            worker.note(&task, r#""status": "retriable_failure", "after_ms": 0"#).await;
            db.until("select moved > 0 from tuskline.enqueue_due()").await;
        }
        "rescue" => {
            worker.take().await;
            db.run("select tuskline.end_executor(executor_id) from tuskline.executor").await;
            db.run("select tuskline.rescue()").await;
        }
        _ => db.until("select moved > 0 from tuskline.enqueue_due()").await,
    }
}

#[tokio::test]
async fn a_worker_claims_and_buffers_bounded_bytes_and_executes_them_all() {
    let (db, _, all) = holding(&[200_000; 40]).await;
    let gate = Gate::new();
    let mut config = calm();
    (config.slots, config.threads) = (40, 1);
    (config.max_batch_bytes, config.max_buffer_bytes) = (1 << 20, 2 << 20);
    let sdk_worker = Running::start(&db, config, vec![gate.lambda("work")]);
    gate.next_many(all.len()).await;
    let largest: i64 = db
        .one(
            "select max(c.bytes) from (select l.lease_id, sum(octet_length(t.payload::text)) as bytes
               from tuskline.lease l join tuskline.task t on t.id = any (l.task_ids)
              group by l.lease_id) c",
        )
        .await;
    assert!(largest <= 1 << 20, "one claim took {largest} bytes");
    gate.open_for_good();
    db.until_count("success", 40).await;
    sdk_worker.stop().await;
    db.assert_nothing_left().await;
}
