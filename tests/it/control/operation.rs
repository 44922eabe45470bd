//! An operation performs an action on all tasks that a filter matches. It works in batches, skips
//! locked tasks, and runs to its end.

use std::time::Duration;

use crate::support::cli::on;
use crate::support::{Db, ScriptedWorker};

const DAY: Duration = Duration::from_secs(86_400);
const REST: Duration = Duration::from_millis(200);

async fn worked() -> (Db, ScriptedWorker) {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    let worker = db.worker("work").await;
    (db, worker)
}

async fn start(db: &Db, what: &str) -> i64 {
    db.one(&format!("select tuskline.start_operation({what})")).await
}

/// Runs a batch of three; returns the state and the counts of tasks looked at and changed.
async fn advance(db: &Db, operation: i64) -> (String, i64, i64) {
    let sql = "select state, looked, changed from tuskline.advance_operation($1, 3)";
    let row = db.client.query_one(sql, &[&operation]).await.unwrap();
    (row.get(0), row.get(1), row.get(2))
}

/// Runs the operation to its end; returns the number of tasks that it changed.
async fn finish(db: &Db, operation: i64) -> i64 {
    loop {
        match advance(db, operation).await {
            (state, _, changed) if state != "running" => return changed,
            // After a look at locked tasks it rests.
            _ => db.advance(REST).await,
        }
    }
}

async fn counts(db: &Db) -> Vec<String> {
    db.lines("select status, count(*) from tuskline.tasks group by 1 order by 1").await
}

#[tokio::test]
async fn all_that_have_not_ended_are_cancelled_and_those_in_hands_are_asked() {
    let (db, worker) = worked().await;
    db.define("other").await;
    db.schedule_many("work", 5).await;
    db.schedule_in("work", std::time::Duration::from_secs(60)).await;
    db.schedule("other").await;
    let held = worker.claim(2).await;
    worker.succeed(&held[0]).await;
    let operation = start(&db, "'cancel', 'work', p_reason => 'enough'").await;
    let preview =
        db.lines("select status, tasks from tuskline.preview_operation('cancel', 'work')").await;
    assert_eq!(preview, ["new | 1", "enqueued | 3", "claimed | 1"]);
    db.advance(std::time::Duration::from_secs(1)).await;
    db.schedule("work").await;
    assert_eq!(finish(&db, operation).await, 5);
    assert_eq!(counts(&db).await, ["enqueued | 2", "claimed | 1", "success | 1", "cancelled | 4"]);
    worker.stopped(&held[1]).await;
    let shown = db.lines("select state, changed, behind from tuskline.operation").await;
    assert_eq!(shown, ["done | 5 | []"]);
    let audit =
        db.lines("select count(*) from tuskline.audit where verb = 'start_operation'").await;
    assert_eq!(audit, ["1"]);
}

#[tokio::test]
async fn it_goes_on_where_it_stood_and_stops_where_it_is_told() {
    let (db, _worker) = worked().await;
    db.schedule_many("work", 8).await;
    let operation = start(&db, "'cancel', 'work'").await;
    assert_eq!(advance(&db, operation).await, ("running".into(), 3, 3));
    // Another session can continue the operation.
    assert_eq!(advance(&db, operation).await, ("running".into(), 6, 6));
    assert!(db.one::<bool>(&format!("select tuskline.stop_operation({operation})")).await);
    assert!(!db.one::<bool>(&format!("select tuskline.stop_operation({operation})")).await);
    assert_eq!(advance(&db, operation).await, ("stopped".into(), 6, 6));
    assert_eq!(counts(&db).await, ["enqueued | 2", "cancelled | 6"]);
}

#[tokio::test]
async fn a_task_that_is_locked_is_come_back_to() {
    let (db, _worker) = worked().await;
    let ids = db.schedule_many("work", 4).await;
    let other = db.connect().await;
    other
        .batch_execute(&format!(
            "begin; select from tuskline.task where id = {} for update",
            ids[1]
        ))
        .await
        .unwrap();
    let operation = start(&db, "'cancel', 'work'").await;
    for _ in 0..5 {
        assert_eq!(advance(&db, operation).await.0, "running");
        db.advance(REST).await;
    }
    assert_eq!(counts(&db).await, ["enqueued | 1", "cancelled | 3"]);
    other.batch_execute("commit").await.unwrap();
    assert_eq!(finish(&db, operation).await, 4);
}

#[tokio::test]
async fn failed_tasks_restart_with_all_their_attempts() {
    let (db, worker) = worked().await;
    db.schedule_many("work", 4).await;
    for task in worker.claim(3).await {
        worker.fail_for_good(&task).await;
    }
    let operation = start(&db, "'retry', 'work'").await;
    assert_eq!(finish(&db, operation).await, 3);
    db.enqueue_due().await;
    let again = worker.claim(10).await;
    assert_eq!(again.len(), 4);
    assert!(again.iter().all(|task| task.attempt == 1));
}

#[tokio::test]
async fn tasks_that_wait_get_another_priority_and_leave_their_queue_for_that() {
    let (db, worker) = worked().await;
    db.schedule_many("work", 4).await;
    let later = db.schedule_in("work", std::time::Duration::from_secs(60)).await;
    let held = worker.take().await;
    let operation =
        start(&db, "'priority', 'work', 'low', p_statuses => array['enqueued', 'new']").await;
    assert_eq!(finish(&db, operation).await, 4);
    db.enqueue_due().await;
    let queued = db
        .lines("select q.priority, count(*) from tuskline.queued join tuskline.queue q using (queue_id) group by 1")
        .await;
    assert_eq!(queued, ["low | 3"]);
    assert_eq!(db.status(held.id).await, "claimed");
    assert_eq!(worker.claim(10).await.len(), 3);
    db.advance(std::time::Duration::from_secs(60)).await;
    db.enqueue_due().await;
    assert_eq!(worker.take().await.id, later);
    let low: i64 = db.one("select count(*) from tuskline.task where priority = 'low'").await;
    assert_eq!(low, 4);
}

#[tokio::test]
async fn tasks_that_move_to_another_collection_meet_its_gates_and_limits() {
    let (db, worker) = worked().await;
    db.run(
        "select tuskline.set_limit('work', 1, p_collection => 'news');
         select tuskline.gate('work', 'pause', 'old', p_unseen => true, p_reason => 'x');
         insert into tuskline.task (lambda, collection) select 'work', 'old' from generate_series(1, 3)",
    )
    .await;
    db.enqueue_due().await;
    assert_eq!(db.one::<i64>("select count(*) from tuskline.parked").await, 3);
    let operation = start(&db, "'collection', 'work', 'news', p_collection => 'old'").await;
    assert_eq!(finish(&db, operation).await, 3);
    while db.enqueue_due().await > 0 {}
    assert_eq!(db.one::<i64>("select count(*) from tuskline.parked").await, 0);
    for _ in 0..3 {
        let held = worker.claim(10).await;
        assert_eq!(held.len(), 1, "one at a time");
        worker.succeed(&held[0]).await;
        while db.enqueue_due().await > 0 {}
    }
}

#[tokio::test]
async fn only_what_the_filter_names_is_changed() {
    let (db, _worker) = worked().await;
    db.run("select tuskline.schedule('work', p_priority => 'high', p_collection => 'news')").await;
    db.run("select tuskline.schedule('work', p_priority => 'high')").await;
    db.run("select tuskline.schedule('work', p_collection => 'news')").await;
    db.advance(std::time::Duration::from_secs(60)).await;
    db.run("select tuskline.schedule('work', p_priority => 'high', p_collection => 'news')").await;
    let operation = start(
        &db,
        "'cancel', 'work', p_collection => 'news', p_priority => 'high', p_created_to => tuskline.clock() - interval '30 seconds'",
    )
    .await;
    assert_eq!(finish(&db, operation).await, 1);
    let operation =
        start(&db, "'cancel', 'work', p_created_from => tuskline.clock() - interval '30 seconds'")
            .await;
    assert_eq!(finish(&db, operation).await, 1);
}

#[tokio::test]
async fn what_makes_no_operation_is_refused() {
    let (db, _worker) = worked().await;
    for (call, expected) in [
        (
            "'drop', 'work'",
            "TK029 invalid_operation: action must be cancel, retry, priority, collection, purge, redrive or erase, got 'drop'",
        ),
        ("'cancel', 'nowork'", "TK001 unknown_lambda"),
        ("'priority', 'work'", "needs a value, got priority with NULL"),
        ("'cancel', 'work', 'high'", "needs a value, got cancel with 'high'"),
        (
            "'retry', 'work', p_statuses => array['new']",
            "retry is for tasks that are fatal_failure, dead, cancelled, dropped, got {new}",
        ),
        ("'cancel', 'work', p_statuses => array[]::text[]", "got {}"),
        ("'priority', 'work', 'urgent'", "TK006 invalid_priority"),
        ("'collection', 'work', 'No'", "TK002 invalid_name"),
    ] {
        let said = db.refused(&format!("select tuskline.start_operation({call})")).await;
        assert!(said.contains(expected), "{said} is not {expected}");
    }
    let said = db.refused("select tuskline.advance_operation(7)").await;
    assert!(said.contains("TK029 invalid_operation: there is no operation 7"), "{said}");
}

/// A task that waits for a month, in a segment of which nothing else is left; the id.
async fn kept() -> (Db, ScriptedWorker, i64) {
    let db = Db::with_lambda("work").await;
    let no = db.first_segment();
    db.pin().await;
    db.run("select tuskline.roll_segments()").await;
    let worker = db.worker("work").await;
    let id = db.schedule("work").await;
    worker.note(&worker.take().await, r#""status": "snoozed", "after_ms": 2592000000"#).await;
    db.advance(DAY).await;
    db.run(&format!("select tuskline.roll_segments(); select tuskline.keep_remaining({no})")).await;
    db.run(&format!(
        "alter table tuskline_core.task_store detach partition tuskline_core.task_{no} concurrently"
    ))
    .await;
    db.run(&format!("drop table tuskline_core.task_{no}")).await;
    (db, worker, id)
}

#[tokio::test]
async fn a_kept_task_keeps_its_place_in_an_order_when_its_priority_changes() {
    let (db, worker) = worked().await;
    let no = db.first_segment();
    db.run("select tuskline.roll_segments(); select tuskline.set_order('work', 'block')").await;
    let of_key =
        async || db.one::<i64>("select tuskline.schedule('work', p_ordering_key => 'a')").await;
    let ids = [of_key().await, of_key().await, of_key().await];
    db.enqueue_due().await;
    worker.fail_for_good(&worker.take().await).await;
    let line = "select task_id from tuskline.wait_list order by position, task_id";
    assert_eq!(db.all::<i64>(line).await, ids[1..]);
    db.advance(DAY).await;
    db.run(&format!("select tuskline.roll_segments(); select tuskline.keep_remaining({no})")).await;
    let operation = start(&db, "'priority', 'work', 'high'").await;
    assert_eq!(finish(&db, operation).await, 2);
    assert_eq!(db.all::<i64>(line).await, ids[1..]);
}

#[tokio::test]
async fn what_is_on_its_way_back_to_its_segment_is_come_back_to() {
    let (db, _worker, id) = kept().await;
    let no = db.first_segment();
    let janitor = db.connect().await;
    janitor.batch_execute(&format!("begin; select tuskline.return_kept({no})")).await.unwrap();
    let operation = start(&db, "'cancel', 'work'").await;
    for _ in 0..3 {
        assert_eq!(advance(&db, operation).await, ("running".into(), 1, 0), "it does not wait");
        db.advance(REST).await;
    }
    janitor.batch_execute("commit").await.unwrap();
    assert_eq!(finish(&db, operation).await, 1);
    assert_eq!(db.status(id).await, "cancelled");
}

#[tokio::test]
async fn a_retry_of_many_waits_neither_for_a_janitor_nor_for_children() {
    let (db, worker) = worked().await;
    let sql = r#"select ids from tuskline.schedule_chain('[{"lambda": "work", "name": "a"},
        {"lambda": "work", "name": "b", "after": ["a"], "on_parent_failure": "hold"}]')"#;
    let ids: Vec<i64> = db.one(sql).await;
    db.enqueue_due().await;
    worker.fail_for_good(&worker.take().await).await;
    let other = db.connect().await;
    for held in [
        format!(
            "select from tuskline.segment where segment_no = tuskline_core.segment_of({}) for update",
            ids[0]
        ),
        format!("select from tuskline.task where id = {} for update", ids[1]),
    ] {
        other.batch_execute(&format!("begin; {held}")).await.unwrap();
        let operation = start(&db, "'retry', 'work'").await;
        for _ in 0..3 {
            assert_eq!(advance(&db, operation).await.2, 0, "{held}");
            db.advance(REST).await;
        }
        assert_eq!(advance(&db, operation).await.0, "running");
        other.batch_execute("commit").await.unwrap();
        assert_eq!(finish(&db, operation).await, 1);
        db.enqueue_due().await;
        worker.fail_for_good(&worker.take().await).await;
    }
}

#[tokio::test]
async fn the_command_fails_when_the_operation_was_stopped_and_says_by_whom() {
    let (db, _worker) = worked().await;
    db.schedule("work").await;
    let operation = start(&db, "'cancel', 'work'").await;
    assert!(db.one::<bool>(&format!("select tuskline.stop_operation({operation})")).await);
    let ran = on(&db.config, &format!("operation wait {operation}")).run();
    let who: String = db.one("select session_user::text").await;
    let said = format!("operation {operation} is stopped: changed 0 of 0 tasks, by {who}\n");
    assert_eq!((ran.code, ran.out, ran.err.as_str()), (1, said, ""));
}

#[tokio::test]
async fn a_store_consumer_carries_out_what_an_interrupted_command_began() {
    let (db, _worker) = worked().await;
    db.schedule_many("work", 7).await;
    let started = on(&db.config, "operation start cancel work --json").run().json();
    assert_eq!(started["operation"], db.number(1).to_string());
    for left in [4, 1, 0] {
        let sql = "select next_due_ms from tuskline.run_policies(3)";
        assert_eq!(db.one::<Option<i64>>(sql).await, Some(0), "at once");
        let waits: i64 =
            db.one("select count(*) from tuskline.task where finished_at is null").await;
        assert_eq!(waits, left);
    }
    assert_eq!(
        db.one::<Option<i64>>("select next_due_ms from tuskline.run_policies(3)").await,
        None
    );
    let shown = db.lines("select state, looked, changed from tuskline.operations").await;
    assert_eq!(shown, ["done | 7 | 7"]);
    assert!(!db.one::<bool>("select gates from tuskline.enqueue_due()").await, "it is over");
}

#[tokio::test]
async fn an_operation_keeps_its_pace_and_its_limit() {
    let (db, _worker) = worked().await;
    db.schedule_many("work", 9).await;
    let operation = start(&db, "'cancel', 'work', p_limit => 4, p_per_second => 2").await;
    let mut seen = Vec::new();
    for _ in 0..6 {
        seen.push(advance(&db, operation).await.2);
        seen.push(advance(&db, operation).await.2);
        db.advance(Duration::from_millis(500)).await;
    }
    assert_eq!(seen, [1, 1, 2, 2, 3, 3, 4, 4, 4, 4, 4, 4]);
    assert_eq!(counts(&db).await, ["enqueued | 5", "cancelled | 4"]);
    assert_eq!(db.one::<String>("select state from tuskline.operations").await, "done");
}

#[tokio::test]
async fn an_operation_that_fails_says_so_and_holds_up_no_other() {
    let (db, _worker) = worked().await;
    db.schedule_many("work", 2).await;
    let bad = start(&db, "'priority', 'work', 'low'").await;
    db.run("update tuskline.operation set value = 'nonsense'").await;
    start(&db, "'cancel', 'work'").await;
    db.run("select tuskline.run_policies(); select tuskline.run_policies()").await;
    assert_eq!(counts(&db).await, ["cancelled | 2"]);
    let shown = "select state, changed, note like '%nonsense%' from tuskline.operations order by 1";
    assert_eq!(db.lines(shown).await, ["done | 2 | -", "running | 0 | true"]);
    let rests = "select next_due_ms from tuskline.run_policies()";
    assert_eq!(db.one::<Option<i64>>(rests).await, Some(10_000));
    assert!(db.one::<bool>(&format!("select tuskline.stop_operation({bad})")).await);
}
