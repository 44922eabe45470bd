//! A worker that serves many lambdas, each with a backlog, makes progress. No claim is larger than
//! the server can answer in time, and no lambda starves.

use std::time::Duration;

use tuskline_sdk::{Context, Lambda, Outcome};

use crate::support::{Db, Gate, Running, calm};

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
