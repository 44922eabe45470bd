//! A server that has fewer connections than its workers would take: all of them live, and all work is done.

use std::time::Duration;

use tokio_postgres::NoTls;
use tuskline_sdk::WorkerConfig;

use crate::support::{Db, Gate, HEARTBEAT, Running, mortal, own_cluster_with, quick};

const FEW: &[(&str, &str)] = &[("max_connections", "20"), ("superuser_reserved_connections", "0")];

#[tokio::test]
async fn more_workers_than_the_server_has_connections_for_end_none_and_do_all_work() {
    let cluster = own_cluster_with(FEW).await;
    let db = Db::in_cluster(&cluster).await;
    db.define("work").await;
    let _consumer = db.store_consumer();
    let gate = Gate::open();
    let start = || Running::start(&db, quick(), vec![gate.lambda("work").slots(4)]);
    let mut workers: Vec<_> = (0..12).map(|_| start()).collect();
    for _ in 0..10 {
        db.schedule_many("work", 100).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    db.until_count("success", 1000).await;
    for worker in &mut workers {
        worker.assert_running().await;
    }
    for worker in workers {
        worker.stop().await;
    }
}

/// A stranger takes six connections when three workers have just lost all of theirs. The
/// connections left are enough for each worker to live and to work, and for no more.
#[tokio::test]
async fn heartbeats_come_first_when_every_connection_is_lost_at_once() {
    let cluster = own_cluster_with(FEW).await;
    let db = Db::in_cluster(&cluster).await;
    db.define("work").await;
    let _consumer = db.store_consumer();
    let gate = Gate::open();
    let start = || Running::start(&db, mortal(), vec![gate.lambda("work").slots(4)]);
    let workers: Vec<_> = (0..3).map(|_| start()).collect();
    db.until("select count(*) = 3 from tuskline.executor").await;
    let mut scheduled = db.schedule_many("work", 100).await.len();
    let mut strangers = Vec::new();
    for _ in 0..3 {
        db.cut_workers().await;
        while strangers.len() < 6 {
            match db.config.connect(NoTls).await {
                Ok((client, connection)) => {
                    tokio::spawn(connection);
                    strangers.push(client);
                }
                // The workers were quicker.
                Err(_) => drop(db.cut_workers().await),
            }
        }
        for _ in 0..10 {
            scheduled += db.schedule_many("work", 20).await.len();
            tokio::time::sleep(HEARTBEAT / 4).await;
        }
    }
    db.until_count("success", scheduled).await;
    let numbers: i64 = db.one("select count(*) from tuskline.executor").await;
    assert_eq!(numbers, 3, "a worker lost its registration for want of a connection");
    drop(strangers);
    for worker in workers {
        worker.stop().await;
    }
}

/// Its next beat is due in a minute. Until it has its connection, no other is opened.
#[tokio::test]
async fn a_lost_connection_of_the_heartbeat_is_opened_before_the_next_beat() {
    let db = Db::new().await;
    db.define("work").await;
    let minute = WorkerConfig::with_heartbeat(Duration::from_secs(60));
    let gate = Gate::open();
    let worker = Running::start(&db, minute, vec![gate.lambda("work")]);
    let beats = "select coalesce(array_agg(pid), '{}') from pg_stat_activity
        where datname = current_database() and application_name = 'tuskline-worker'
          and query like '%tuskline.heartbeat%'";
    db.until(&format!("select cardinality(({beats})) > 0")).await;
    let before: Vec<i32> = db.one(beats).await;
    db.cut_workers().await;
    db.until(&format!(
        "select exists (select unnest(({beats})) except select unnest(array{before:?}))"
    ))
    .await;
    db.schedule("work").await;
    db.until_count("success", 1).await;
    worker.stop().await;
}

/// The client of its bodies opens no connection before one is used.
#[tokio::test]
async fn a_worker_that_starts_on_a_full_server_waits_for_its_connections() {
    let cluster = own_cluster_with(FEW).await;
    let db = Db::in_cluster(&cluster).await;
    db.define("work").await;
    db.schedule("work").await;
    let mut strangers = Vec::new();
    while let Ok((client, connection)) = db.config.connect(NoTls).await {
        tokio::spawn(connection);
        strangers.push(client);
    }
    let gate = Gate::open();
    let mut worker = Running::start(&db, quick(), vec![gate.lambda("work")]);
    tokio::time::sleep(Duration::from_millis(300)).await;
    worker.assert_running().await;
    drop(strangers);
    db.until_count("success", 1).await;
    worker.stop().await;
}
