//! A worker that serves a thousand lambdas, each with a backlog, goes on: no claim is larger than the
//! server can answer in time, and no lambda is left out.

use std::time::Duration;

use tuskline_sdk::{Context, Lambda, Outcome};

use super::support::{Db, Running, calm};

const LAMBDAS: i64 = 1_000;
const EACH: i64 = 6;

/// A thousand lambdas, each with a backlog. Each transaction makes twenty: more would take more locks than
/// the server has by default.
async fn with_backlogs() -> Db {
    let db = Db::new().await;
    for block in 0..LAMBDAS / 20 {
        db.run(&format!(
            "select tuskline.define_lambda('lambda_' || n, p_dead_retention => '1 day')
               from generate_series({block} * 20, {block} * 20 + 19) as n"
        ))
        .await;
    }
    db.run(&format!(
        "insert into tuskline.task (lambda)
         select 'lambda_' || n from generate_series(0, {LAMBDAS} - 1) as n, generate_series(1, {EACH})"
    ))
    .await;
    db
}

/// The claim of all of them takes longer than this worker waits for an answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_with_a_thousand_backlogs_executes_every_task_of_every_lambda() {
    let begun = std::time::Instant::now();
    let db = with_backlogs().await;
    eprintln!("SETUP {:?}", begun.elapsed());
    let mut config = calm();
    (config.slots, config.threads) = (8, 1);
    config.request_timeout = Duration::from_millis(600);
    let body = |_: serde_json::Value, _: Context| async { Outcome::Success(None) };
    let lambdas = (0..LAMBDAS).map(|n| Lambda::new(&format!("lambda_{n}"), body)).collect();
    let worker = Running::start(&db, config, lambdas);
    let mut done = 0;
    while done < LAMBDAS * EACH {
        let question = "select count(*) from tuskline.task where status = 'success'";
        db.until(&format!("select ({question}) > {done}")).await;
        done = db.one(question).await;
        eprintln!("DONE {done} {:?}", begun.elapsed());
    }
    worker.stop().await;
    db.assert_nothing_left().await;
}
