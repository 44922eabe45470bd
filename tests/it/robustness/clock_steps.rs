//! Steps of the database's clock, and a store consumer that loses its time, with real workers and a
//! real store consumer. No live worker is ended, and every dead worker is.

use std::time::Duration;

use rustix::process::Signal;
use tuskline::config::StoreConsumerOptions;
use tuskline_sdk::WorkerConfig;

use crate::support::cli::on;
use crate::support::{Db, Gate, Process, Running, mortal, quick, within};

const HOUR: Duration = Duration::from_secs(3600);

/// Heartbeats of a mortal worker in which a store consumer observes more than a lease.
const BEATS_OF_A_LEASE: i64 = 7;

/// Waits until the latest executor has beaten so many times more.
async fn until_beaten(db: &Db, times: i64) {
    let beats = "select beats from tuskline.executor order by executor_id desc limit 1";
    let enough = db.one::<i64>(beats).await + times;
    db.until(&format!("select ({beats}) >= {enough}")).await;
}

/// Waits until a store consumer has moved a task that was due later: it has run a round.
async fn until_seen(db: &Db) {
    let id = db.schedule_in("marker", Duration::from_millis(1)).await;
    db.advance(Duration::from_millis(1)).await;
    db.until_status(id, "enqueued").await;
}

/// Makes a store with a lambda, another lambda without a worker, and a pinned clock.
async fn store() -> Db {
    let db = Db::with_lambda("work").await;
    db.define("marker").await;
    db.pin().await;
    db
}

async fn assert_no_executor_ended(db: &Db) {
    let ended: i64 =
        db.one("select count(*) from tuskline.executor where ended_at is not null").await;
    let failures: i64 = db.one("select count(*) from tuskline.task_failure").await;
    assert_eq!((ended, failures), (0, 0));
}

/// A body runs on, and once, through a step.
async fn survives(step: impl AsyncFn(&Db)) {
    let db = store().await;
    let _consumer = db.store_consumer();
    let gate = Gate::new();
    let config = WorkerConfig::with_heartbeat(Duration::from_secs(2));
    let sdk_worker = Running::start(&db, config, vec![gate.lambda("work")]);
    let id = db.schedule("work").await;
    let body = gate.next().await;
    // The step follows a beat. The store consumer, which looks every second, looks before the next
    // beat.
    until_beaten(&db, 1).await;
    step(&db).await;
    until_beaten(&db, 2).await;
    assert_no_executor_ended(&db).await;
    assert!(!body.context.is_cancelled());
    gate.open_for_good();
    db.until_status(id, "success").await;
    assert_eq!(gate.record().tasks(), [id], "it was executed once");
    sdk_worker.stop().await;
}

#[tokio::test]
async fn a_step_of_90_s_forward_ends_no_live_worker() {
    survives(async |db| db.advance(Duration::from_secs(90)).await).await;
}

#[tokio::test]
async fn a_step_of_an_hour_forward_ends_no_live_worker() {
    survives(async |db| db.advance(HOUR).await).await;
}

#[tokio::test]
async fn tasks_of_a_dead_worker_run_elsewhere_though_the_clock_stepped_back() {
    let db = store().await;
    let _consumer = db.store_consumer();
    let mut killed = Process::start(&db, "work", 4);
    let ids = db.schedule_many("work", 4).await;
    killed.record().until_begun(4).await;
    db.turn_back(HOUR).await;
    killed.kill().await;
    let gate = Gate::open();
    let sdk_worker = Running::start(&db, quick(), vec![gate.lambda("work")]);
    db.until_count("success", 4).await;
    let mut tasks = gate.record().tasks();
    tasks.sort_unstable();
    assert_eq!(tasks, ids);
    sdk_worker.stop().await;
}

#[tokio::test]
async fn a_store_consumer_that_was_frozen_for_a_lease_ends_no_worker_that_beats() {
    let db = store().await;
    let serving = on(&db.config, "serve").start();
    let gate = Gate::new();
    let sdk_worker = Running::start(&db, mortal(), vec![gate.lambda("work")]);
    let id = db.schedule("work").await;
    gate.next().await;
    until_beaten(&db, 2).await;
    until_seen(&db).await;
    serving.signal(Signal::STOP);
    until_beaten(&db, BEATS_OF_A_LEASE).await;
    serving.signal(Signal::CONT);
    until_seen(&db).await;
    until_beaten(&db, 2).await;
    assert_no_executor_ended(&db).await;
    gate.open_for_good();
    db.until_status(id, "success").await;
    sdk_worker.stop().await;
    serving.signal(Signal::TERM);
    assert_eq!(serving.end().code, 0);
}

/// A worker that claims a task and is never heard of again.
async fn dead_worker(db: &Db, lease: Duration) -> i64 {
    let id = db.schedule("work").await;
    db.worker_with(&["work"], lease).await.take().await;
    id
}

#[tokio::test]
async fn the_end_of_a_silence_does_not_wait_for_the_safety_poll() {
    let db = store().await;
    let id = dead_worker(&db, Duration::from_secs(2)).await;
    let longest_nap = Duration::from_secs(60);
    let _consumer =
        db.store_consumer_with(StoreConsumerOptions { longest_nap, ..Default::default() });
    db.until_status(id, "enqueued").await;
}

#[tokio::test]
async fn a_store_consumer_that_loses_its_sessions_goes_on_counting() {
    let db = store().await;
    let id = dead_worker(&db, Duration::from_secs(4)).await;
    let _consumer = db.store_consumer();
    let cut = "select count(pg_terminate_backend(pid)) from pg_stat_activity
                where datname = current_database() and application_name like 'tuskline store-consumer%'";
    let cutting = async {
        // The cuts are so frequent that no session sees a whole lease.
        while db.status(id).await != "enqueued" {
            tokio::time::sleep(Duration::from_secs(2)).await;
            db.one::<i64>(cut).await;
        }
    };
    within(cutting).await;
}

#[tokio::test]
async fn a_timer_is_found_though_the_clock_stepped_back_before_it_was_set() {
    let db = store().await;
    let _consumer = db.store_consumer();
    // Four rounds are enough for a low-water mark.
    for _ in 0..4 {
        until_seen(&db).await;
    }
    db.turn_back(HOUR).await;
    until_seen(&db).await;
    until_seen(&db).await;
}
