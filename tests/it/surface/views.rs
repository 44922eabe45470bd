//! The views for people show the truth, at every stage of a task's life.

use std::time::Duration;

use crate::support::{Db, LEASE};

#[tokio::test]
async fn a_task_can_be_followed_through_its_life() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    let id: i64 = db
        .one(
            "select tuskline.schedule('work', '{\"n\": 1}', 'high', 'eu', p_delay => '10 seconds')",
        )
        .await;
    let seen = async || {
        db.lines(&format!(
            "select status, attempt, max_attempts, crashes, executor_id, host, pid, lease_until is not null leased, cancel_requested_at is not null asked,
                    failures, error_class, error, output::text, finished_at is not null finished, priority, collection, payload::text
               from tuskline.task_status({id})"
        ))
        .await
        .join("\n")
    };
    let tail = r#"high | eu | {"n": 1}"#;
    assert_eq!(
        seen().await,
        format!("new | 0 | 20 | 0 | - | - | - | false | false | 0 | - | - | - | false | {tail}")
    );
    db.advance(Duration::from_secs(10)).await;
    db.enqueue_due().await;
    assert_eq!(
        seen().await,
        format!(
            "enqueued | 0 | 20 | 0 | - | - | - | false | false | 0 | - | - | - | false | {tail}"
        )
    );
    let worker = db.worker("work").await;
    let task = worker.take().await;
    assert_eq!(
        seen().await,
        format!(
            "claimed | 1 | 20 | 0 | 1 | host | 4711 | true | false | 0 | - | - | - | false | {tail}"
        )
    );
    worker.start(&task).await;
    worker.fail(&task).await;
    assert_eq!(
        seen().await,
        format!(
            "retriable_failure | 1 | 20 | 0 | - | - | - | false | false | 1 | error | boom 1 | - | false | {tail}"
        )
    );
    db.advance(Duration::from_secs(2)).await;
    db.enqueue_due().await;
    let task = worker.take().await;
    worker.start(&task).await;
    db.cancel(id).await;
    assert_eq!(
        seen().await,
        format!(
            "processing | 2 | 20 | 0 | 1 | host | 4711 | true | true | 1 | error | boom 1 | - | false | {tail}"
        )
    );
    worker.succeed_with(&task, "[1]").await;
    assert_eq!(
        seen().await,
        format!(
            "success | 2 | 20 | 0 | - | - | - | false | false | 1 | error | boom 1 | [1] | true | {tail}"
        )
    );
}

#[tokio::test]
async fn waiting_says_why() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    let worker = db.worker("work").await;
    db.schedule("work").await;
    worker.fail(&worker.take().await).await;
    db.schedule_in("work", Duration::from_secs(60)).await;
    db.schedule_in("work", Duration::from_secs(5)).await;
    db.schedule("work").await;
    db.advance(Duration::from_secs(5)).await;
    let reasons = db.lines("select status, reason from tuskline.waiting order by reason").await;
    assert_eq!(
        reasons,
        [
            "retriable_failure | backing off after attempt 1: boom 1",
            "new | due later",
            "new | due, waits for the store consumer (tuskline serve)",
        ]
    );
}

#[tokio::test]
async fn waiting_names_the_limit_the_order_and_the_parent() {
    let db = Db::with_lambda("work").await;
    db.define("step").await;
    db.run(
        "select tuskline.set_limit('work', 1), tuskline.set_order('work');
         select tuskline.set_limit('step', p_per_second => 0.001, p_by_key => true)",
    )
    .await;
    let worker = db.worker("step").await;
    for call in [
        "'work'",
        "'work'",
        "'work', p_ordering_key => 'a'",
        "'work', p_ordering_key => 'a'",
        "'step', p_limit_key => 'ada'",
        "'step', p_limit_key => 'ada'",
    ] {
        db.run(&format!("select tuskline.schedule({call})")).await;
    }
    let chain = r#"[{"lambda": "step", "name": "first"},
                    {"lambda": "step", "name": "then", "after": ["first"], "on_parent_failure": "hold"}]"#;
    let ids: Vec<i64> =
        db.one(&format!("select ids from tuskline.schedule_chain('{chain}')")).await;
    db.enqueue_due().await;
    let waiting = async || -> Vec<String> {
        let reasons = "select lambda || ': ' || reason from tuskline.waiting order by id, reason";
        db.all(reasons).await
    };
    let limited = format!("work: limit {}: 1 at a time", db.number(1));
    let expected = [
        limited.clone(),
        limited,
        "work: order: earlier tasks of key 'a' run first".to_owned(),
        format!("step: limit {}: 0.001 a second for key 'ada'", db.number(3)),
        format!("step: waits for task {}", ids[0]),
    ];
    assert_eq!(waiting().await, expected);
    for task in worker.claim(9).await {
        worker.note(&task, r#""status": "fatal_failure", "message": "no""#).await;
    }
    let held =
        format!("step: held: task {}, for whose success it waits, ended as fatal_failure", ids[0]);
    assert_eq!(waiting().await.last().unwrap(), &held);
}

#[tokio::test]
async fn tasks_and_the_status_of_one_show_its_keys() {
    let db = Db::with_lambda("work").await;
    db.run("select tuskline.set_order('work'), tuskline.set_unique('work')").await;
    let keys =
        "p_ordering_key => 'o', p_limit_key => 'l', p_fairness_key => 'f', p_unique_key => 'u'";
    let id: i64 = db.one(&format!("select tuskline.schedule('work', {keys})")).await;
    for place in ["tuskline.tasks".to_owned(), format!("tuskline.task_status({id})")] {
        let sql = format!(
            "select ordering_key, limit_key, fairness_key, unique_key from {place} where id = {id}"
        );
        assert_eq!(db.lines(&sql).await, ["o | l | f | u"], "{place}");
    }
}

#[tokio::test]
async fn queues_and_lambdas_count_ready_tasks_and_live_workers() {
    let db = Db::with_lambda("work").await;
    db.define("other").await;
    db.pin().await;
    db.schedule_many("work", 3).await;
    db.run("insert into tuskline.task (lambda, priority) values ('work', 'low')").await;
    let one = db.worker("work").await;
    let two = db.worker_with(&["work", "other"], Duration::from_secs(60)).await;
    let queues = async || {
        db.lines("select lambda, priority, depth, live_workers, leaf = 'queue_' || queue_id named from tuskline.queues where depth > 0 or priority = 'high' order by queue_id").await
    };
    let lambdas = async || {
        db.lines("select name, depth, live_workers from tuskline.lambdas order by name").await
    };
    assert_eq!(
        queues().await,
        [
            "work | high | 0 | 2 | true",
            "work | normal | 3 | 2 | true",
            "work | low | 1 | 2 | true",
            "other | high | 0 | 1 | true"
        ]
    );
    assert_eq!(lambdas().await, ["other | 0 | 1", "work | 4 | 2"]);
    one.claim(2).await;
    db.advance(LEASE).await;
    assert_eq!(lambdas().await, ["other | 0 | 1", "work | 2 | 1"]);
    db.run(&format!("select tuskline.heartbeat({}, true)", two.executor)).await;
    assert_eq!(lambdas().await, ["other | 0 | 0", "work | 2 | 0"], "who drains takes no more");
}

#[tokio::test]
async fn executors_are_alive_draining_silent_stopped_or_expired() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    let silent = db.worker("work").await;
    let (alive, draining, stopped) =
        (db.worker("work").await, db.worker("work").await, db.worker("work").await);
    db.schedule("work").await;
    silent.take().await;
    db.advance(LEASE / 2).await;
    assert!(alive.heartbeat().await);
    db.run(&format!(
        "select tuskline.heartbeat({}, true); select tuskline.end_executor({})",
        draining.executor, stopped.executor
    ))
    .await;
    db.advance(LEASE / 2).await;
    let states = async || {
        db.lines("select executor_id, state, leases, ended_at is not null ended from tuskline.executors order by executor_id").await
    };
    assert_eq!(
        states().await,
        [
            "1 | silent | 1 | false",
            "2 | alive | 0 | false",
            "3 | draining | 0 | false",
            "4 | stopped | 0 | true"
        ]
    );
    assert!(draining.heartbeat().await);
    db.rescue().await;
    assert_eq!(
        states().await,
        [
            "1 | expired | 0 | true",
            "2 | alive | 0 | false",
            "3 | draining | 0 | false",
            "4 | stopped | 0 | true"
        ]
    );
}

#[tokio::test]
async fn tasks_shows_every_task_once() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    let now = db.schedule("work").await;
    let later = db.schedule_in("work", Duration::from_secs(60)).await;
    let rows = db.lines("select id, lambda, priority, status, due_at - tuskline.clock() due_in, attempt from tuskline.tasks order by id").await;
    assert_eq!(
        rows,
        [
            format!("{now} | work | normal | enqueued | 00:00:00 | 0"),
            format!("{later} | work | normal | new | 00:01:00 | 0")
        ]
    );
}

#[tokio::test]
async fn readiness_and_version_are_one_question_each() {
    let db = Db::new().await;
    let ready = db.lines("select r.schema_version = tuskline.version() ours, r.queues_rebuilt from tuskline.readiness() r").await;
    assert_eq!(ready, ["true | true"]);
    db.run("truncate tuskline_core.queues_complete").await;
    assert!(!db.one::<bool>("select queues_rebuilt from tuskline.readiness()").await);
}
