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
    let hand = db.hand("work").await;
    let task = hand.take().await;
    assert_eq!(
        seen().await,
        format!(
            "claimed | 1 | 20 | 0 | 1 | host | 4711 | true | false | 0 | - | - | - | false | {tail}"
        )
    );
    hand.start(&task).await;
    hand.fail(&task).await;
    assert_eq!(
        seen().await,
        format!(
            "retriable_failure | 1 | 20 | 0 | - | - | - | false | false | 1 | error | boom 1 | - | false | {tail}"
        )
    );
    db.advance(Duration::from_secs(2)).await;
    db.enqueue_due().await;
    let task = hand.take().await;
    hand.start(&task).await;
    db.cancel(id).await;
    assert_eq!(
        seen().await,
        format!(
            "processing | 2 | 20 | 0 | 1 | host | 4711 | true | true | 1 | error | boom 1 | - | false | {tail}"
        )
    );
    hand.succeed_with(&task, "[1]").await;
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
    let hand = db.hand("work").await;
    db.schedule("work").await;
    hand.fail(&hand.take().await).await;
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
async fn queues_and_lambdas_count_what_is_ready_and_who_is_alive() {
    let db = Db::with_lambda("work").await;
    db.define("other").await;
    db.pin().await;
    db.schedule_many("work", 3).await;
    db.run("insert into tuskline.task (lambda, priority) values ('work', 'low')").await;
    let one = db.hand("work").await;
    let two = db.hand_with(&["work", "other"], Duration::from_secs(60)).await;
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
    let silent = db.hand("work").await;
    let (alive, draining, stopped) =
        (db.hand("work").await, db.hand("work").await, db.hand("work").await);
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
    let ready = db.lines("select r.function_set = tuskline.version() ours, r.queues_rebuilt from tuskline.readiness() r").await;
    assert_eq!(ready, ["true | true"]);
    db.run("truncate tuskline.boot").await;
    assert!(!db.one::<bool>("select queues_rebuilt from tuskline.readiness()").await);
}
