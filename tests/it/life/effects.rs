//! The effects of the end of a task: each exchange does a bounded part of it, the store consumer
//! the rest, and nothing is forgotten.

use serde_json::{Value, json};

use crate::support::{Db, ScriptedWorker};

/// The most tasks that a verb in a transaction of the SDK enqueues or ends besides its own, if it ends no more.
const MOST: i64 = 100;

async fn schedule_chain(db: &Db, tasks: &[Value]) {
    let tasks = Value::from(tasks.to_vec());
    db.run(&format!("select tuskline.schedule_chain('{tasks}')")).await;
}

/// Begins a transaction whose snapshot is taken now.
async fn begin_repeatable_read(worker: &ScriptedWorker) {
    let begin = "begin isolation level repeatable read; select count(*) from tuskline.task";
    worker.client.batch_execute(begin).await.unwrap();
}

/// Rows of a table.
async fn rows(db: &Db, table: &str) -> i64 {
    db.one(&format!("select count(*) from tuskline.{table}")).await
}

/// Calls the store consumer's verbs until they find nothing to do.
async fn consume_all(db: &Db) -> i64 {
    let mut calls = 0;
    while db.enqueue_due().await > 0 {
        calls += 1;
    }
    calls
}

/// Claims and ends all enqueued tasks, until none is enqueued.
async fn drain(db: &Db, worker: &ScriptedWorker) -> usize {
    let mut done = 0;
    loop {
        db.advance(std::time::Duration::from_millis(20)).await;
        consume_all(db).await;
        let tasks = worker.claim(500).await;
        if tasks.is_empty() {
            return done;
        }
        done += tasks.len();
        assert!(worker.succeed_all(&tasks).await.is_empty());
    }
}

#[tokio::test]
async fn an_exchange_beside_a_fan_out_of_ten_thousand_touches_a_hundred_of_them() {
    let db = Db::with_lambda("work").await;
    let worker = db.worker("work").await;
    let mut tasks = vec![json!({"lambda": "work", "name": "parent"})];
    for n in 0..9_999 {
        tasks.push(json!({"lambda": "work", "name": format!("c{n}"), "after": ["parent"]}));
    }
    schedule_chain(&db, &tasks).await;
    worker.succeed(&worker.take().await).await;
    let known = "select count(*) from tuskline.dependency where outcome is not null";
    assert_eq!(db.one::<i64>(known).await, MOST);
    assert_eq!(db.count("enqueued").await, MOST);
    assert!(consume_all(&db).await <= 12, "a thousand a call");
    assert_eq!(db.count("enqueued").await, 9_999);
    assert_eq!(db.timers().await, 0);
}

#[tokio::test]
async fn a_batch_hands_on_as_many_permits_as_it_ends() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    let worker = db.worker("work").await;
    db.run("select tuskline.set_limit('work', 300)").await;
    db.schedule_many("work", 1_000).await;
    consume_all(&db).await;
    let tasks = worker.claim(500).await;
    assert_eq!((tasks.len(), rows(&db, "permit").await), (300, 300));
    assert!(worker.succeed_all(&tasks).await.is_empty());
    assert_eq!((db.count("enqueued").await, rows(&db, "permit").await), (300, 300));
    assert_eq!(rows(&db, "timer").await, 0, "nothing is left to a store consumer");
    assert_eq!(drain(&db, &worker).await, 700);
    assert_nothing_waits(&db).await;
}

#[tokio::test]
async fn a_batch_that_ends_waiters_too_leaves_permits_to_the_store_consumer() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    let worker = db.worker("work").await;
    db.run("select tuskline.set_order('work', 'dead'); select tuskline.set_limit('work', 100)")
        .await;
    db.run("select tuskline.schedule('work', p_ordering_key => 'a') from generate_series(1, 71)")
        .await;
    db.schedule_many("work", 300).await;
    consume_all(&db).await;
    let tasks = worker.claim(500).await;
    assert_eq!((tasks.len(), rows(&db, "permit").await), (100, 101), "and one of the order");
    let notes = tasks.iter().enumerate().map(|(at, task)| {
        let status = if at == 0 { "fatal_failure" } else { "success" };
        json!({"task": task.id, "fence": task.fence, "status": status})
    });
    let notes = Value::Array(notes.collect()).to_string();
    let batch = "select tuskline.set_results($1, '{}', '{}', $2::text::json)";
    let refused: Vec<i64> = db.ask(batch, &[&worker.executor, &notes]).await;
    assert_eq!(refused, [0; 0]);
    // 70 waiters behind the failed task ended, so 30 of the 100 permits were handed on.
    assert_eq!((db.count("dead").await, db.count("enqueued").await), (70, 30));
    assert_eq!(
        (rows(&db, "permit").await, rows(&db, "wait_list").await),
        (100, 201 - 30),
        "70 tasks keep their permit for a moment"
    );
    assert_eq!(drain(&db, &worker).await, 201);
    assert_nothing_waits(&db).await;
}

async fn assert_nothing_waits(db: &Db) {
    for table in ["permit", "wait_list", "timer"] {
        assert_eq!(rows(db, table).await, 0, "{table}");
    }
}

#[tokio::test]
async fn a_chain_of_a_thousand_ends_when_its_first_task_fails() {
    let db = Db::with_lambda("work").await;
    let worker = db.worker("work").await;
    let mut tasks = vec![json!({"lambda": "work", "name": "t0"})];
    for n in 1..1_000 {
        let (name, before) = (format!("t{n}"), format!("t{}", n - 1));
        tasks.push(json!({"lambda": "work", "name": name, "after": [before]}));
    }
    schedule_chain(&db, &tasks).await;
    worker.fail_for_good(&worker.take().await).await;
    assert_eq!(db.count("cancelled").await, MOST);
    consume_all(&db).await;
    assert_eq!(db.count("cancelled").await, 999);
    assert_eq!(db.timers().await, 0);
}

#[tokio::test]
async fn all_that_wait_behind_a_failed_task_of_their_order_end() {
    let db = Db::with_lambda("work").await;
    let worker = db.worker("work").await;
    db.run("select tuskline.set_order('work', 'dead')").await;
    for _ in 0..260 {
        db.run("select tuskline.schedule('work', p_ordering_key => 'a')").await;
    }
    db.enqueue_due().await;
    worker.fail_for_good(&worker.take().await).await;
    assert_eq!(db.count("dead").await, MOST);
    assert_eq!(db.count("enqueued").await, 0, "its key is blocked until all have ended");
    consume_all(&db).await;
    assert_eq!(db.count("dead").await, 259);
    assert_nothing_waits(&db).await;
}

#[tokio::test]
async fn a_retry_and_a_snooze_give_their_permits_to_the_next() {
    let db = Db::with_lambda("work").await;
    let worker = db.worker("work").await;
    db.run("select tuskline.set_limit('work', 1)").await;
    db.schedule_many("work", 3).await;
    db.enqueue_due().await;
    for status in ["retriable_failure", "snoozed"] {
        let note = format!(r#""status": "{status}", "after_ms": 60000"#);
        worker.note(&worker.take().await, &note).await;
        assert_eq!(rows(&db, "permit").await, 1, "{status}");
    }
    worker.succeed(&worker.take().await).await;
    assert_eq!(rows(&db, "permit").await, 0);
    assert_eq!(db.timers().await, 2, "their own due times");
}

#[tokio::test]
async fn a_task_that_was_asked_to_stop_ends_a_repeatable_read_transaction_of_its_lambda() {
    let db = Db::with_lambda("work").await;
    let id = db.schedule("work").await;
    let worker = db.worker("work").await;
    let task = worker.take().await;
    begin_repeatable_read(&worker).await;
    assert_eq!(db.cancel(id).await, "requested");
    let complete = format!("select tuskline.complete({}, {})", task.id, task.fence);
    let refused = worker.client.batch_execute(&complete).await.unwrap_err();
    assert_eq!(refused.code().unwrap().code(), "40001");
    worker.client.batch_execute("rollback").await.unwrap();
    worker.fail(&task).await;
    assert_eq!(db.status(id).await, "cancelled");
    assert_eq!(rows(&db, "cancellation").await, 0);
}

#[tokio::test]
async fn a_repeatable_read_transaction_that_began_before_its_dependent_came_releases_it() {
    let db = Db::with_lambda("work").await;
    let id = db.schedule("work").await;
    let worker = db.worker("work").await;
    let task = worker.take().await;
    begin_repeatable_read(&worker).await;
    schedule_chain(&db, &[json!({"lambda": "work", "name": "child", "after": [id]})]).await;
    consume_all(&db).await;
    assert_eq!(db.count("new").await, 1, "its parent has not ended");
    let complete = format!("select tuskline.complete({}, {}); commit", task.id, task.fence);
    worker.client.batch_execute(&complete).await.unwrap();
    consume_all(&db).await;
    assert_eq!(db.count("enqueued").await, 1);
}
