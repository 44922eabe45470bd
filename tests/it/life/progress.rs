//! A body's progress is kept from one attempt to the next. Only the attempt that holds the task can
//! write it.

use std::time::Duration;

use crate::support::{Db, ScriptedWorker, Task};

async fn held() -> (Db, ScriptedWorker, Task) {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    let worker = db.worker("work").await;
    db.schedule("work").await;
    let task = worker.take().await;
    (db, worker, task)
}

async fn say(db: &Db, task: &Task, what: &str) -> bool {
    let (id, fence) = (task.id, task.fence);
    db.one(&format!("select tuskline.set_progress({id}, {fence}, {what})")).await
}

async fn shown(db: &Db) -> Vec<String> {
    db.lines("select percent, message, checkpoint from tuskline.progress").await
}

#[tokio::test]
async fn what_is_not_said_stays_as_it_was() {
    let (db, _worker, task) = held().await;
    assert!(say(&db, &task, "12.5, 'reading'").await);
    assert!(say(&db, &task, r#"p_checkpoint => '{"row": 7}'"#).await);
    assert_eq!(shown(&db).await, [r#"12.5 | reading | {"row": 7}"#]);
    assert!(say(&db, &task, "50").await);
    assert_eq!(shown(&db).await, [r#"50 | reading | {"row": 7}"#]);
}

#[tokio::test]
async fn the_next_attempt_begins_with_what_the_last_one_left() {
    let (db, worker, task) = held().await;
    say(&db, &task, "50, 'half', '7'").await;
    worker.fail(&task).await;
    db.advance(Duration::from_secs(60)).await;
    db.enqueue_due().await;
    let again = worker.take().await;
    assert_eq!(shown(&db).await, ["50 | half | 7"]);
    assert!(say(&db, &again, "60").await);
    assert!(!say(&db, &task, "99, 'I am a zombie', '8'").await);
    assert_eq!(shown(&db).await, ["60 | half | 7"]);
}

#[tokio::test]
async fn an_attempt_that_is_over_says_nothing_any_more() {
    let (db, worker, task) = held().await;
    worker.succeed(&task).await;
    assert!(!say(&db, &task, "100").await);
    assert!(shown(&db).await.is_empty());
}

#[tokio::test]
async fn what_is_no_progress_is_refused() {
    let (db, _worker, task) = held().await;
    let (id, fence) = (task.id, task.fence);
    for (what, expected) in [
        ("101", "percent must be 0 to 100, got 101"),
        ("-1", "got -1"),
        ("'NaN'", "got NaN"),
        (
            "p_checkpoint => to_json(repeat('x', 1048576))",
            "a checkpoint has at most 1048576 bytes, got 1048578",
        ),
    ] {
        let said =
            db.refused(&format!("select tuskline.set_progress({id}, {fence}, {what})")).await;
        assert!(said.contains("TK028 invalid_progress: ") && said.contains(expected), "{said}");
    }
    assert!(say(&db, &task, "p_message => repeat('x', 9000)").await);
    assert_eq!(db.one::<i32>("select length(message) from tuskline.progress").await, 8192);
}
