//! A worker beside the test executes what is scheduled, and goes with it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use chrono::{TimeZone, Utc};
use serde_json::{Value, json};
use tuskline_sdk::{Client, Context, Lambda, NewTask, Status, TaskStatus};
use tuskline_testing::{Database, Error, Inline, Limit};

use super::{Failed, HOUR, echo, is_there, pinned, saying, schedule, task};

/// A server of periodic tasks looks by itself each 15 s only: it is told of the clock.
#[tokio::test]
async fn inline_fires_a_tick_as_soon_as_the_clock_has_come_to_it() {
    let db = pinned().await;
    db.pin_at(Utc.with_ymd_and_hms(2027, 3, 1, 12, 0, 0).unwrap()).await.unwrap();
    db.run(
        "select tuskline.define_periodic('hourly', 'say', '0 * * * *', p_payload => '\"success\"')",
    )
    .await
    .unwrap();
    let mut inline = db.inline(saying(&db)).await.unwrap();
    assert_eq!(inline.drain().await.unwrap().tasks().len(), 0);
    for _ in 0..3 {
        db.advance(HOUR).await.unwrap();
        let limit = Limit { time: Duration::from_secs(10), ..Limit::default() };
        assert_eq!(inline.drain_within(limit).await.unwrap().succeeded.len(), 1);
    }
}

#[tokio::test]
async fn inline_runs_a_task_and_answers_with_it() {
    let db = pinned().await;
    let worker = saying(&db).serve(echo("echo"));
    let mut inline = db.inline(worker).await.unwrap();
    let ran = inline.run(&task("echo", &json!({ "n": 1 }))).await.unwrap();
    assert_eq!((ran.status, ran.output), (Status::Success, Some(json!({ "n": 1 }))));
    let ran = inline.run(&task("say", &json!("snooze"))).await.unwrap();
    assert_eq!(ran.status, Status::New);
    let Err(Error::Failed(failed)) = inline.run(&task("say", &json!("not known"))).await else {
        panic!("it must fail");
    };
    assert_eq!(failed.status, Status::RetriableFailure);
    assert_eq!(failed.failures[0].message, "not known");
    inline.stop().await.unwrap();
}

#[tokio::test]
async fn inline_says_why_a_task_does_not_run() {
    let db = pinned().await;
    db.define(&["other"]).await.unwrap();
    let mut inline = db.inline(saying(&db)).await.unwrap();
    let why = async |inline: &mut Inline<'_>, task: &NewTask| match inline.run(task).await {
        Err(Error::Waits(why)) => why,
        other => panic!("{other:?}"),
    };
    let later = task("say", &json!("success")).after(HOUR);
    assert!(why(&mut inline, &later).await.contains("not_due"));
    let other = task("other", &json!(null));
    assert!(why(&mut inline, &other).await.contains("no_worker"));
    db.run("select tuskline.gate('say', 'pause', p_reason => 'night')").await.unwrap();
    assert!(why(&mut inline, &task("say", &json!("success"))).await.contains("gated"));
}

#[tokio::test]
async fn inline_executes_what_any_client_schedules_and_heeds_the_clock() {
    let db = pinned().await;
    let mut inline = db.inline(saying(&db)).await.unwrap();
    let client = Client::connect(db.url()).await.unwrap();
    let now = client.schedule(&task("say", &json!("success"))).await.unwrap();
    let later = client.schedule(&task("say", &json!("success")).after(HOUR)).await.unwrap();
    let ended = |status: Option<TaskStatus>| status.unwrap().status;
    let limit = Duration::from_secs(20);
    assert_eq!(ended(client.wait(now, limit).await.unwrap()), Status::Success);
    assert_eq!(inline.drain().await.unwrap().succeeded, [now]);
    db.advance(HOUR).await.unwrap();
    assert_eq!(ended(client.wait(later, limit).await.unwrap()), Status::Success);
    assert_eq!(inline.drain().await.unwrap().succeeded, [later]);
    assert_eq!(inline.drain().await.unwrap().tasks().len(), 0);
}

#[tokio::test]
async fn an_inline_that_is_dropped_executes_nothing_more() {
    let db = pinned().await;
    let inline = db.inline(saying(&db)).await.unwrap();
    drop(inline);
    let id = schedule(&db, "say", json!("success")).await;
    let drained = db.drain(db.worker().serve(echo("echo"))).await.unwrap();
    assert_eq!((drained.tasks().len(), drained.unserved), (0, vec![id]));
}

/// As an application's own table would be asked, in a transaction that the task's success is part of.
#[tokio::test]
async fn a_body_that_writes_to_the_tests_tables_is_seen_there() {
    let db = pinned().await;
    db.run("create table booking (n bigint)").await.unwrap();
    let book = |n: i64, context: Context| async move {
        let mut connection = context.client().connection().await?;
        let mut transaction = connection.transaction().await?;
        context.assert_current(&mut transaction).await?;
        transaction.execute("insert into booking values ($1)", &[&n]).await?;
        let done = context.complete_in(&mut transaction, &()).await?;
        transaction.commit().await?;
        Ok::<_, Failed>(done)
    };
    let mut inline = db.inline(db.worker().serve(Lambda::named("book", book))).await.unwrap();
    inline.run(&task("book", &json!(7))).await.unwrap().assert_succeeded();
    let row = db.sql().query_one("select n from booking", &[]).await.unwrap();
    assert_eq!(row.get::<_, i64>(0), 7);
}

/// Bodies of a worker that is dropped in the middle of one: the process lives on, and so do other tests.
#[tokio::test]
async fn a_test_that_leaves_in_the_middle_of_a_body_leaves_nothing() {
    let begun = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&begun);
    let hang = move |_: Value, _: Context| {
        counted.fetch_add(1, Ordering::Relaxed);
        std::future::pending::<()>()
    };
    let db = pinned().await;
    let inline = db.inline(db.worker().serve(Lambda::named("hang", hang))).await.unwrap();
    schedule(&db, "hang", json!(null)).await;
    while begun.load(Ordering::Relaxed) == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    drop(inline);
    let name = db.address().config().get_dbname().unwrap().to_owned();
    drop(db);
    assert!(!is_there(&Database::new().await.unwrap(), &name).await);
}
