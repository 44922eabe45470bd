//! The outcome and the times of each attempt of a task are recorded.

use std::time::Duration;

use crate::support::{Db, LEASE};

const SECOND: Duration = Duration::from_secs(1);

async fn history(db: &Db, id: i64) -> Vec<String> {
    db.lines(&format!(
        "select attempt, outcome, executor_id, ended_at - started_at as took, error_class, message
           from tuskline.attempts where task_id = {id} order by fence"
    ))
    .await
}

#[tokio::test]
async fn each_attempt_is_told_with_its_worker_its_times_and_its_end() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    let worker = db.worker("work").await;
    let id = db.schedule("work").await;
    assert!(history(&db, id).await.is_empty(), "it was never tried");
    let task = worker.take().await;
    let executor = worker.executor;
    assert_eq!(history(&db, id).await, [format!("1 | running | {executor} | - | - | -")]);
    db.advance(SECOND * 3).await;
    worker.fail(&task).await;
    let first = format!("1 | retriable_failure | {executor} | 00:00:03 | error | boom 1");
    assert_eq!(history(&db, id).await, std::slice::from_ref(&first));
    db.advance(SECOND * 2).await;
    db.enqueue_due().await;
    let task = worker.take().await;
    db.advance(SECOND * 4).await;
    worker.succeed(&task).await;
    assert_eq!(
        history(&db, id).await,
        [first, "2 | success | - | 00:00:04 | - | -".to_owned()],
        "who ran it went with the lease"
    );
}

#[tokio::test]
async fn a_worker_that_dies_leaves_an_attempt_behind() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    let worker = db.worker("work").await;
    let id = db.schedule("work").await;
    worker.start(&worker.take().await).await;
    db.advance(LEASE).await;
    db.rescue().await;
    let executor = worker.executor;
    let message = format!("worker {executor} on host (pid 4711) ended while it held the task");
    let expected = format!("1 | crashed | {executor} | 00:00:20 | crash | {message}");
    assert_eq!(history(&db, id).await, std::slice::from_ref(&expected));
    db.worker("work").await.take().await;
    let seen = history(&db, id).await;
    assert_eq!((seen.len(), &seen[0]), (2, &expected));
    assert!(seen[1].starts_with("1 | running | "), "a crash uses up no attempt: {seen:?}");
}

#[tokio::test]
async fn the_last_failure_says_that_it_was_the_last_also_after_a_retry() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    let worker = db.worker("work").await;
    db.run("select tuskline.alter_lambda('work', p_max_attempts => 1)").await;
    let [fatal, dead] = db.schedule_many("work", 2).await.try_into().unwrap();
    let tasks = worker.claim(2).await;
    worker.fail_for_good(&tasks[0]).await;
    worker.fail(&tasks[1]).await;
    let outcomes = async || {
        db.lines("select task_id, outcome from tuskline.attempts order by task_id, fence").await
    };
    let ended = [format!("{fatal} | fatal_failure"), format!("{dead} | dead")];
    assert_eq!(outcomes().await, ended);
    db.run(&format!("select tuskline.retry({fatal}), tuskline.retry({dead})")).await;
    assert_eq!(outcomes().await, ended);
}

#[tokio::test]
async fn what_was_no_attempt_is_not_told_as_one() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    let worker = db.worker("work").await;
    db.schedule_many("work", 4).await;
    let [snoozed, released, cancelled, diverted] = worker.claim(4).await.try_into().unwrap();
    worker.snooze(&snoozed).await;
    for task in [&released, &cancelled, &diverted] {
        worker.release(task).await;
    }
    db.cancel(cancelled.id).await;
    db.run("select tuskline.gate('work', 'divert', p_reason => 'too late')").await;
    assert!(worker.claim(10).await.is_empty());
    assert_eq!(db.count("dead").await, 2);
    assert_eq!(db.one::<i64>("select count(*) from tuskline.attempts").await, 0);
}
