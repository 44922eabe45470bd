//! No task is executed by two workers at the same time, whatever happens to one of them.

use std::os::unix::process::ExitStatusExt as _;
use std::sync::Arc;

use rustix::process::Signal;
use serde_json::Value;
use tokio::sync::Notify;
use tuskline_sdk::{Context, Lambda, Outcome};

use crate::support::{
    Db, Gate, HEARTBEAT, Process, Running, assert_no_overlap, mortal, now_ns, quick, within,
};

#[tokio::test]
async fn a_frozen_worker_is_taken_over_and_ends_itself_when_it_wakes() {
    let db = Db::with_lambda("work").await;
    let _consumer = db.store_consumer();
    let mut frozen = Process::start_logging(&db, "work", 1, "tuskline_sdk=warn");
    // A short task runs first, so that the worker claims ahead and wakes with work in its buffer.
    let first = db.schedule_with("work", r#""go""#).await;
    db.until_status(first, "success").await;
    let ids = db.schedule_many("work", 3).await;
    db.until_count("claimed", 2).await;
    db.until_count("processing", 1).await;
    assert_eq!(frozen.record().until_begun(2).await.len(), 2);
    frozen.freeze().await;
    // Its body is free to end, and its result to be sent, as soon as it wakes.
    frozen.open();
    let gate = Gate::new();
    let worker = Running::start(&db, quick(), vec![gate.lambda("work").slots(3)]);
    let mut taken: Vec<_> =
        gate.next_many(3).await.iter().map(|one| one.context.task().0).collect();
    taken.sort_unstable();
    assert_eq!(taken, ids);
    let woke_ns = now_ns();
    frozen.signal(Signal::CONT);
    // The body may end before the watchdog gets a processor. Then the worker registers again.
    within(async {
        while frozen.is_running() && !frozen.said().contains("registers again") {
            tokio::time::sleep(HEARTBEAT).await;
        }
    })
    .await;
    match frozen.is_running() {
        true => frozen.kill().await,
        false => assert_eq!(frozen.ended().await.signal(), Some(9), "{}", frozen.said()),
    }
    let begun = frozen.record().executions();
    assert!(begun.iter().all(|one| one.began_ns < woke_ns), "began after it woke: {begun:?}");
    assert_eq!(db.count("success").await, 1, "its late result changed nothing");
    gate.open_for_good();
    db.until_count("success", 4).await;
    worker.stop().await;
    db.until("select not exists (select from tuskline.lease)").await;
}

#[tokio::test]
async fn a_worker_whose_last_results_are_not_taken_ends_itself_all_the_same() {
    let db = Db::with_lambda("work").await;
    let _consumer = db.store_consumer();
    let mut frozen = Process::start_unheard(&db, "work", 1);
    // A body that stops on request would leave the process no reason to end.
    db.schedule_with("work", r#""stuck""#).await;
    frozen.record().until_begun(1).await;
    frozen.freeze().await;
    db.until("select exists (select from tuskline.executor where end_reason = 'expired')").await;
    frozen.signal(Signal::CONT);
    assert_eq!(frozen.ended().await.signal(), Some(9), "its watchdog ended it");
}

#[tokio::test]
async fn tasks_of_a_killed_worker_run_elsewhere_after_its_lease() {
    let db = Db::with_lambda("work").await;
    let _consumer = db.store_consumer();
    let mut killed = Process::start(&db, "work", 4);
    let ids = db.schedule_many("work", 20).await;
    killed.record().until_begun(4).await;
    let gate = Gate::open();
    let worker = Running::start(&db, quick(), vec![gate.lambda("work").slots(2)]);
    db.until_count("success", 16).await;
    killed.kill().await;
    let dead_ns = now_ns();
    db.until_count("success", 20).await;
    worker.stop().await;
    let mut executions = killed.record().executions();
    assert_eq!(executions.len(), 4);
    executions.extend(gate.record().executions());
    assert_eq!(executions.len(), 24);
    let mut succeeded = gate.record().tasks();
    succeeded.sort_unstable();
    assert_eq!(succeeded, ids, "none lost");
    assert_no_overlap(executions, dead_ns);
    let crashes: i64 =
        db.one("select count(*) from tuskline.task_failure where error_class = 'crash'").await;
    assert_eq!(crashes, 4);
    db.until("select not exists (select from tuskline.lease)").await;
}

#[tokio::test]
async fn a_worker_whose_connections_are_cut_keeps_its_tasks_and_connects_again() {
    let db = Db::with_lambda("work").await;
    let _consumer = db.store_consumer();
    let gate = Gate::new();
    let worker = Running::start(&db, quick(), vec![gate.lambda("work").slots(4)]);
    let ids = db.schedule_many("work", 8).await;
    gate.next_many(4).await;
    for round in 0..3 {
        assert!(db.cut_workers().await > 0, "round {round}");
        // The test reads this after the cut: the next beat comes by a new session.
        let beaten: chrono::DateTime<chrono::Utc> =
            db.one("select max(beat_at) from tuskline.executor").await;
        let beats = "select max(beat_at) > '%'::timestamptz from tuskline.executor";
        db.until(&beats.replace('%', &beaten.to_rfc3339())).await;
        gate.let_pass(1);
        gate.next().await;
    }
    db.cut_workers().await;
    gate.open_for_good();
    db.until_count("success", 8).await;
    let mut tasks = gate.record().tasks();
    tasks.sort_unstable();
    assert_eq!(tasks, ids, "each was executed once: no lease was lost");
    worker.stop().await;
    db.assert_nothing_left().await;
}

#[tokio::test]
async fn heartbeats_go_on_while_a_body_holds_every_connection_of_the_pool() {
    let db = Db::with_lambda("work").await;
    let (holding, release) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (tell, wait) = (Arc::clone(&holding), Arc::clone(&release));
    let lambda = Lambda::named("work", move |_: Value, context: Context| {
        let (tell, wait) = (Arc::clone(&tell), Arc::clone(&wait));
        async move {
            let mut held = Vec::new();
            for _ in 0..8 {
                held.push(context.client().connection().await.unwrap());
            }
            tell.notify_one();
            wait.notified().await;
            Outcome::Success(None)
        }
    });
    let worker = Running::start(&db, mortal(), vec![lambda]);
    let id = db.schedule("work").await;
    within(holding.notified()).await;
    // The body holds longer than a worker without heartbeats lives.
    let started: f64 = db.one("select extract(epoch from clock_timestamp())::float8").await;
    let enough = (HEARTBEAT * 6).as_secs_f64();
    db.until(&format!(
        "select extract(epoch from max(beat_at)) > {started} + {enough} from tuskline.executor"
    ))
    .await;
    assert_eq!(worker.lost(), Vec::<String>::new());
    release.notify_one();
    db.until_status(id, "success").await;
    worker.stop().await;
}
