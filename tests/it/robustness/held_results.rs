//! Results whose rows another session has locked: the worker keeps them, sends them again, and
//! still ends in time.

use std::time::Duration;

use tokio_postgres::Client;
use tuskline_sdk::WorkerConfig;

use crate::support::{Db, Gate, Running, calm, quick};

/// A session that holds the row of a task locked, in an open transaction.
async fn lock(db: &Db, id: i64) -> Client {
    let session = db.connect().await;
    let sql = format!("begin; select from tuskline.task where id = {id} for update");
    session.batch_execute(&sql).await.unwrap();
    session
}

/// A worker that does not wait long for its tasks at its end, but would for an answer.
fn hasty() -> WorkerConfig {
    let mut config = quick();
    config.request_timeout = Duration::from_secs(120);
    config.drain_grace = Duration::from_millis(500);
    config
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_session_delays_one_result_and_no_other() {
    let db = Db::with_lambda("work").await;
    let gate = Gate::new();
    let worker = Running::start(&db, quick(), vec![gate.lambda("work").slots(100)]);
    let ids = db.schedule_many("work", 100).await;
    gate.next_many(100).await;
    let holder = lock(&db, ids[40]).await;
    gate.open_for_good();
    db.until_count("success", 99).await;
    // A later result is not held up either.
    let later = db.schedule("work").await;
    db.until_status(later, "success").await;
    assert_ne!(db.status(ids[40]).await, "success");
    holder.batch_execute("rollback").await.unwrap();
    db.until_status(ids[40], "success").await;
    assert_eq!(gate.record().executions().len(), 101, "every task once");
    worker.stop().await;
    db.assert_nothing_left().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_ends_leaves_a_result_that_it_cannot_record_to_rescue() {
    let db = Db::with_lambda("work").await;
    let gate = Gate::new();
    let worker = Running::start(&db, hasty(), vec![gate.lambda("work")]);
    let id = db.schedule("work").await;
    gate.next().await;
    let holder = lock(&db, id).await;
    gate.let_pass(1);
    gate.record().until(|all| all[0].ended_ns.is_some()).await;
    worker.stop().await;
    assert_eq!(db.rescue().await, (1, 0, 0));
    holder.batch_execute("rollback").await.unwrap();
    assert_eq!(db.rescue().await, (1, 1, 0));
    gate.open_for_good();
    let next = Running::start(&db, calm(), vec![gate.lambda("work")]);
    db.until_status(id, "success").await;
    assert_eq!(gate.record().tasks(), [id, id], "at least once");
    next.stop().await;
    db.assert_nothing_left().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_does_not_wait_for_a_row_it_cannot_give_back() {
    let db = Db::with_lambda("work").await;
    let gate = Gate::new();
    let worker = Running::start(&db, hasty(), vec![gate.lambda("work")]);
    let ids = db.schedule_many("work", 3).await;
    gate.next_many(3).await;
    // The first heartbeat has not reported the starts yet: that report must not wait either.
    let holder = lock(&db, ids[1]).await;
    db.until_count("processing", 2).await;
    worker.stop().await;
    // The two tasks with unlocked rows returned at once, and no crash was counted.
    assert_eq!(db.count("enqueued").await, 2);
    holder.batch_execute("rollback").await.unwrap();
    assert_eq!(db.rescue().await, (1, 1, 0));
    let crashes: Vec<i16> = db.all("select crashes from tuskline.task order by id").await;
    assert_eq!(crashes, [0, 1, 0]);
}

/// A hang of one exchange is no hang of the worker: another connection gets the turn to plan.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_exchange_that_hangs_delays_no_other_task() {
    let db = Db::with_lambda("work").await;
    let hangs = "in record_results: begin p_executor ==> begin perform pg_sleep(600); p_executor";
    db.run(&tuskline_breaks::edited(hangs).unwrap()).await;
    let gate = Gate::open();
    let worker = Running::start(&db, hasty(), vec![gate.lambda("work").slots(100)]);
    let first = db.schedule("work").await;
    let asleep = "select exists (select from pg_stat_activity where datname = current_database() and wait_event = 'PgSleep')";
    db.until(asleep).await;
    let second = db.schedule("work").await;
    gate.record().until(|all| all.len() == 2).await;
    assert_eq!(gate.record().tasks(), [first, second]);
    db.run(
        &tuskline_breaks::edited("in record_results: begin p_executor ==> begin p_executor")
            .unwrap(),
    )
    .await;
    db.cut_workers().await;
    db.until_count("success", 2).await;
    worker.stop().await;
}
