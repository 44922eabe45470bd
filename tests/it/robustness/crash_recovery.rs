//! A crash of the database empties the queues. The first process that notices rebuilds them from
//! the task store. Workers connect again by themselves, and no task is lost.

use std::time::Duration;

use tuskline_postgres::Stop;

use crate::support::{Db, Execution, Gate, Running, calm, own_cluster};

/// Crashes a database while workers are busy with it, twice.
async fn crash(with_store_consumer: bool) {
    let mut cluster = own_cluster().await;
    let mut db = Db::in_cluster(&cluster).await;
    // A throw-away cluster may lose its last commits in a crash, unless commits are synchronous.
    let name = db.config.get_dbname().unwrap().to_owned();
    db.run(&format!("alter database {name} set synchronous_commit = on")).await;
    db.reconnect().await;
    db.define("work").await;
    let _consumer = with_store_consumer.then(|| db.store_consumer());
    let gate = Gate::new();
    // The workers claim nothing ahead. A body that begins after a crash was claimed after it, or
    // was under way.
    let mut config = calm();
    config.buffer_target = Duration::ZERO;
    let start = || Running::start(&db, config.clone(), vec![gate.lambda("work").slots(4)]);
    let workers = [start(), start()];
    let ids = db.schedule_many("work", 400).await;
    gate.next_many(8).await;
    for round in 1..=2 {
        let fence: i64 = db.one("select max(fence) from tuskline.task").await;
        cluster.stop(Stop::Immediate).await.unwrap();
        // Bodies end while the database is down.
        gate.let_pass(4);
        gate.record().until(|all| ended(all) == round * 4).await;
        cluster.start_again().await.unwrap();
        db.reconnect().await;
        db.until_count("success", round * 4).await;
        gate.next_many(4).await;
        // These tasks may have been claimed before the crash. Further claims need rebuilt queues.
        db.until(&format!("select max(fence) <> {fence} from tuskline.task")).await;
        let claimed: i64 = db.one("select max(fence) from tuskline.task").await;
        // A sequence alone would go on at most 32 further.
        assert!(claimed > fence + 1_000, "no fence of the past comes again");
    }
    gate.open_for_good();
    db.until_count("success", ids.len()).await;
    for worker in workers {
        worker.stop().await;
    }
    let mut tasks = gate.record().tasks();
    tasks.sort_unstable();
    assert_eq!(tasks, ids, "each was executed once: no worker lost what it had");
    db.until("select not exists (select from tuskline.queued)").await;
}

fn ended(executions: &[Execution]) -> usize {
    executions.iter().filter(|one| one.ended_ns.is_some()).count()
}

#[tokio::test]
async fn workers_and_store_consumer_survive_a_crash_of_the_database() {
    crash(true).await;
}

#[tokio::test]
async fn a_worker_without_any_store_consumer_rebuilds_the_queues() {
    crash(false).await;
}
