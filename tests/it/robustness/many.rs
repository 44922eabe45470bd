//! Many tasks, several workers and store consumers, and schedulers at the same time. No task is
//! lost, no executions overlap, and nothing is left behind.

use std::collections::HashMap;
use std::time::Duration;

use serde_json::{Value, json};
use tuskline_sdk::{Client, Context, NewTask, Outcome, Priority};

use crate::support::{Db, Gate, Running, assert_no_overlap, calm, now_ns};

const SCHEDULERS: usize = 4;
const BATCHES: usize = 20;
const BATCH: usize = 250;
const LAMBDAS: [&str; 3] = ["one", "two", "three"];

/// A tenth of the tasks is due a little later; a tenth fails in its first attempt.
fn task(number: usize) -> NewTask {
    let payload = json!({ "number": number, "fails": number % 10 == 3 });
    let task = NewTask::new(LAMBDAS[number % 3], &payload);
    let task = task.priority(Priority::ALL[number / 3 % 4]);
    match number % 10 {
        7 => task.after(Duration::from_millis(200)),
        _ => task,
    }
}

fn say(payload: Value, context: Context) -> Outcome {
    match payload["fails"] == true && context.attempt() == 1 {
        true => Outcome::Retriable {
            after: Some(Duration::from_millis(50)),
            class: None,
            reason: "no".into(),
        },
        false => Outcome::Success(None),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_thousand_tasks_succeed_and_leave_nothing() {
    let db = Db::new().await;
    for lambda in LAMBDAS {
        db.define(lambda).await;
    }
    let gates = [Gate::open(), Gate::open(), Gate::open()];
    let _consumers = [db.store_consumer(), db.store_consumer()];
    let start = |gate: &Gate| {
        let lambdas = LAMBDAS.iter().map(|name| gate.lambda_saying(name, say)).collect();
        Running::start(&db, calm(), lambdas)
    };
    let workers: Vec<_> = gates.iter().map(start).collect();
    let client = Client::connect(db.config.clone()).await.unwrap();
    let schedulers = (0..SCHEDULERS).map(|scheduler| {
        let client = client.clone();
        tokio::spawn(async move {
            for batch in 0..BATCHES {
                let first = (scheduler * BATCHES + batch) * BATCH;
                let tasks: Vec<_> = (first..first + BATCH).map(task).collect();
                client.schedule_many(&tasks).await.unwrap();
            }
        })
    });
    for scheduler in schedulers.collect::<Vec<_>>() {
        scheduler.await.unwrap();
    }
    let total = SCHEDULERS * BATCHES * BATCH;
    db.until_count("success", total).await;
    for worker in workers {
        worker.stop().await;
    }
    db.assert_nothing_left().await;
    let executions: Vec<_> = gates.iter().flat_map(|gate| gate.record().executions()).collect();
    assert_eq!(executions.len(), total + total / 10, "the failing ones were executed twice");
    assert!(executions.iter().all(|one| one.ended_ns.is_some()));
    let mut by_fence: HashMap<(i64, i64), usize> = HashMap::new();
    for one in &executions {
        *by_fence.entry((one.task, one.fence)).or_default() += 1;
    }
    assert!(by_fence.values().all(|times| *times == 1), "once under each fence");
    assert_no_overlap(executions, now_ns());
    let attempts: Vec<i64> =
        db.all("select count(*) from tuskline.task group by attempt order by attempt").await;
    assert_eq!(attempts, [total as i64 * 9 / 10, total as i64 / 10]);
    let deadlocks: i64 =
        db.one("select deadlocks from pg_stat_database where datname = current_database()").await;
    assert_eq!(deadlocks, 0);
}
