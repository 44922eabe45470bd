//! A worker that serves many lambdas, each with a backlog, makes progress. No claim is larger than
//! the server can answer in time, and no lambda starves.

use std::time::Duration;

use tuskline_sdk::{Context, Lambda, Outcome};

use crate::support::{Db, Gate, Process, Running, calm, within};

/// So many lambdas, each with so many tasks. Each transaction makes twenty lambdas: more would take more
/// locks than the server has by default.
async fn with_backlogs(lambdas: i64, each: i64) -> Db {
    let db = Db::new().await;
    for first in (0..lambdas).step_by(20) {
        db.run(&format!(
            "select tuskline.define_lambda('lambda_' || n, p_dead_retention => '1 day')
               from generate_series({first}, {first} + 19) as n"
        ))
        .await;
    }
    db.run(&format!(
        "insert into tuskline.task (lambda)
         select 'lambda_' || n from generate_series(0, {lambdas} - 1) as n, generate_series(1, {each})"
    ))
    .await;
    db
}

#[tokio::test]
async fn a_claim_from_many_backlogs_takes_no_more_than_one_batch() {
    let db = with_backlogs(40, 40).await;
    let gate = Gate::new();
    let mut config = calm();
    (config.slots, config.threads) = (32, 1);
    let lambdas = (0..40).map(|n| gate.lambda(&format!("lambda_{n}"))).collect();
    let worker = Running::start(&db, config, lambdas);
    gate.next_many(40 * 32).await;
    let largest: i32 = db.one("select max(cardinality(l.task_ids)) from tuskline.lease l").await;
    assert!(largest <= 500, "one claim took {largest} tasks");
    gate.open_for_good();
    db.until_count("success", 40 * 40).await;
    worker.stop().await;
    db.assert_nothing_left().await;
}

/// The threads of this process whose names begin with that.
#[cfg(target_os = "linux")]
fn threads(name: &str) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    // A thread may have ended meanwhile.
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    names.filter(|thread| thread.starts_with(name)).count()
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_lambda_has_no_thread_before_its_first_task() {
    let db = Db::new().await;
    let gate = Gate::open();
    let mut lambdas = Vec::new();
    for name in ["lazy_0", "lazy_1", "lazy_2", "lazy_3"] {
        db.define(name).await;
        lambdas.push(gate.lambda(name));
    }
    let mut config = calm();
    config.threads = 2;
    let worker = Running::start(&db, config, lambdas);
    db.until_asleep("lazy_3").await;
    assert_eq!(threads("lazy_"), 0);
    db.schedule("lazy_2").await;
    db.until_count("success", 1).await;
    // A thread has its name when it has begun.
    within(async {
        while threads("lazy_2") < 2 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!((threads("lazy_"), threads("lazy_2")), (2, 2));
    worker.stop().await;
    db.assert_nothing_left().await;
}

#[tokio::test]
async fn a_task_of_a_lambda_that_gets_no_threads_goes_back_and_the_worker_ends() {
    let db = Db::with_lambda("work").await;
    let mut worker = Process::start_logging(&db, "work", 4, "tuskline_sdk=error");
    db.until_asleep("work").await;
    worker.refuse_descriptors();
    let ids = db.schedule_many("work", 3).await;
    assert!(!worker.ended().await.success());
    let said = worker.said();
    let (line, error) = ("the worker drains", "unavailable: no threads are to be had");
    assert_eq!((said.matches(line).count(), said.contains(error)), (1, true), "{said}");
    for id in ids {
        assert_eq!(db.status(id).await, "enqueued");
    }
    let begun = "select count(*) from tuskline.task where attempt > 0 or crashes > 0";
    assert_eq!(db.one::<i64>(begun).await, 0);
    let open = "select count(*) from tuskline.executor where ended_at is null";
    assert_eq!(db.one::<i64>(open).await, 0, "it has ended in order");
}

/// A claim on all queues at once would take longer than this worker waits for an answer. The test
/// is ignored by default, because 4,000 queues take a minute to make.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "makes 4,000 queues, which takes a minute"]
async fn a_worker_with_a_thousand_backlogs_executes_every_task_of_every_lambda() {
    let (lambdas, each) = (1_000, 6);
    let db = with_backlogs(lambdas, each).await;
    let mut config = calm();
    (config.slots, config.threads) = (8, 1);
    config.request_timeout = Duration::from_millis(600);
    let body = |_: serde_json::Value, _: Context| async { Outcome::Success(None) };
    let served = (0..lambdas).map(|n| Lambda::named(&format!("lambda_{n}"), body)).collect();
    let worker = Running::start(&db, config, served);
    let question = "select count(*) from tuskline.task where status = 'success'";
    let mut done = 0;
    while done < lambdas * each {
        db.until(&format!("select ({question}) > {done}")).await;
        done = db.one(question).await;
    }
    worker.stop().await;
    db.assert_nothing_left().await;
}
