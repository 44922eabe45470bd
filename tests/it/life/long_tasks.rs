//! Long tasks are never hoarded by one worker while another is idle.

use std::time::Duration;

use crate::support::{Db, Gate, Running, calm, quick};

/// Counts both statuses in one query, because a heartbeat moves tasks from one to the other.
async fn held(db: &Db) -> i64 {
    db.one("select count(*) from tuskline.task where status in ('claimed', 'processing')").await
}

#[tokio::test]
async fn two_long_tasks_run_on_two_workers_at_once() {
    let db = Db::with_lambda("work").await;
    let gates = [Gate::new(), Gate::new()];
    db.schedule_many("work", 2).await;
    let start = |gate: &Gate| Running::start(&db, quick(), vec![gate.lambda("work").slots(1)]);
    let workers = gates.each_ref().map(start);
    let tasks = [gates[0].next().await, gates[1].next().await];
    assert_ne!(tasks[0].context.task(), tasks[1].context.task());
    assert_eq!(held(&db).await, 2);
    for gate in &gates {
        gate.open_for_good();
    }
    db.until_count("success", 2).await;
    for worker in workers {
        worker.stop().await;
    }
}

#[tokio::test]
async fn a_long_task_is_processing_from_the_first_heartbeat() {
    let db = Db::with_lambda("work").await;
    let gate = Gate::new();
    let worker = Running::start(&db, quick(), vec![gate.lambda("work")]);
    let id = db.schedule("work").await;
    gate.next().await;
    db.until_status(id, "processing").await;
    gate.open_for_good();
    db.until_status(id, "success").await;
    worker.stop().await;
}

#[tokio::test]
async fn nothing_is_claimed_ahead_until_short_executions_were_measured() {
    let db = Db::with_lambda("work").await;
    let gate = Gate::new();
    let ids = db.schedule_many("work", 10).await;
    let mut config = calm();
    config.safety_poll = Duration::from_millis(1);
    let worker = Running::start(&db, config, vec![gate.lambda("work").slots(2)]);
    gate.next_many(2).await;
    // The worker has had time for many claims while this task runs elsewhere.
    db.define("other").await;
    let other = Gate::open();
    let second = Running::start(&db, calm(), vec![other.lambda("other")]);
    let id = db.schedule("other").await;
    db.until_status(id, "success").await;
    second.stop().await;
    // A task is processing once a heartbeat has come in between.
    assert_eq!(held(&db).await, 2);
    assert_eq!(db.queued().await, 8);
    gate.open_for_good();
    db.until_count("success", ids.len() + 1).await;
    worker.stop().await;
    db.assert_nothing_left().await;
}

#[tokio::test]
async fn tasks_behind_one_that_turned_out_long_go_to_another_worker() {
    let db = Db::with_lambda("work").await;
    let gate = Gate::new();
    let mut config = quick();
    config.buffer_target = Duration::from_millis(50);
    let worker = Running::start(&db, config, vec![gate.lambda("work").slots(1)]);
    db.until_asleep("work").await;
    gate.let_pass(3);
    let short = db.schedule_many("work", 3).await;
    db.until_count("success", 3).await;
    let ids = db.schedule_many("work", 5).await;
    gate.next_many(4).await;
    let other = Gate::open();
    let second = Running::start(&db, quick(), vec![other.lambda("work").slots(1)]);
    // The second worker gets them all, although the first had claimed some of them.
    db.until_count("success", short.len() + 4).await;
    assert_eq!(other.record().ended(), 4);
    gate.open_for_good();
    db.until_count("success", short.len() + ids.len()).await;
    let charged: i64 = db.one("select count(*) from tuskline.task where attempt <> 1").await;
    assert_eq!(charged, 0);
    worker.stop().await;
    second.stop().await;
    db.assert_nothing_left().await;
}
