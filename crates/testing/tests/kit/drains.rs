//! A drain executes what is due, all of it, and comes to an end.

use std::time::Duration;

use chrono::{TimeZone, Utc};
use serde_json::{Value, json};
use tuskline_sdk::{Chain, Context, Lambda, On, Status};
use tuskline_testing::{Error, Limit};

use super::{HOUR, echo, pinned, saying, schedule, task};

#[tokio::test]
async fn a_drain_executes_what_is_due_and_leaves_the_rest() {
    let db = pinned().await;
    let now = schedule(&db, "say", json!("success")).await;
    let later = task("say", &json!("success")).after(HOUR);
    let later = db.client().schedule(&later).await.unwrap();
    let drained = db.drain(saying(&db)).await.unwrap();
    assert_eq!(drained.succeeded, [now]);
    assert_eq!(db.task(later).await.unwrap().status, Status::New);
    db.advance(HOUR - Duration::from_secs(1)).await.unwrap();
    assert_eq!(db.drain(saying(&db)).await.unwrap().tasks().len(), 0);
    db.advance(Duration::from_secs(1)).await.unwrap();
    assert_eq!(db.drain(saying(&db)).await.unwrap().succeeded, [later]);
    db.tasks().await.unwrap().assert_all_ended();
}

#[tokio::test]
async fn a_drain_says_what_became_of_each() {
    let db = pinned().await;
    let mut ids = Vec::new();
    for word in ["success", "fatal", "retriable", "snooze", "second", "not known"] {
        ids.push(schedule(&db, "say", json!(word)).await);
    }
    ids.push(schedule(&db, "say", json!({ "no": "word" })).await);
    db.define(&["other"]).await.unwrap();
    let other = schedule(&db, "other", json!(null)).await;
    db.run("select tuskline.alter_lambda('say', p_max_attempts => 2)").await.unwrap();
    db.run("select tuskline.gate('say', 'drop', 'spam', p_unseen => true, p_reason => 'spam')")
        .await
        .unwrap();
    let spam = task("say", &json!("success")).collection("spam");
    let spam = db.client().schedule(&spam).await.unwrap();
    let drained = db.drain(saying(&db)).await.unwrap();
    assert_eq!(drained.succeeded, [ids[0], ids[4]]);
    assert_eq!(drained.failed, [ids[1], ids[6]]);
    assert_eq!(drained.retriable, [ids[2], ids[5]]);
    assert_eq!(drained.snoozed, [ids[3]]);
    assert_eq!(drained.dropped, [spam]);
    assert_eq!(drained.unserved, [other]);
    assert_eq!((drained.dead.len(), drained.cancelled.len()), (0, 0));
    assert_eq!(drained.tasks().len(), 8);
    let mut failed: Vec<_> =
        drained.failures.iter().map(|f| (f.task, f.class.as_str(), f.attempt)).collect();
    failed.sort_unstable();
    let expected = [
        (ids[1], "fatal", 1),
        (ids[2], "error", 1),
        (ids[4], "error", 1),
        (ids[5], "error", 1),
        (ids[6], "decode", 1),
    ];
    assert_eq!(failed, expected);
    assert_eq!(db.task(ids[4]).await.unwrap().output_as::<String>(), "at last");
    db.advance(HOUR).await.unwrap();
    let drained = db.drain(saying(&db)).await.unwrap();
    assert_eq!((drained.dead, drained.snoozed), (vec![ids[2], ids[5]], vec![ids[3]]));
    assert_eq!(drained.failures.len(), 2);
}

#[tokio::test]
async fn a_drain_follows_chains_and_what_bodies_schedule() {
    let db = pinned().await;
    db.define(&["root", "leaf"]).await.unwrap();
    let root = |_: Value, context: Context| async move {
        for leaf in 0..3 {
            context.schedule(&task("leaf", &json!(leaf))).await?;
        }
        Ok::<_, tuskline_sdk::Error>(())
    };
    let mut chain = Chain::new();
    let first = chain.task(task("root", &json!(null)));
    let second = chain.task(task("say", &json!("fatal")));
    let third = chain.task(task("say", &json!("success")));
    let last = chain.task(task("say", &json!("success")));
    chain.after(second, first).after(third, second).after_end(last, second, On::Failure);
    let chain = db.client().schedule_chain(&chain).await.unwrap();
    let worker = saying(&db).serve(Lambda::named("root", root)).serve(echo("leaf"));
    let drained = db.drain(worker).await.unwrap();
    assert_eq!(drained.succeeded.len(), 2 + 3);
    assert_eq!(drained.failed, [chain.id(second)]);
    assert_eq!(drained.cancelled, [chain.id(third)]);
    assert_eq!(db.task(chain.id(last)).await.unwrap().status, Status::Success);
    db.scheduled("leaf").await.unwrap().times(3);
}

#[tokio::test]
async fn limits_orders_and_gates_hold_up_no_drain() {
    let db = pinned().await;
    db.run("select tuskline.set_limit('say', 2), tuskline.set_order('say', 'skip')").await.unwrap();
    let tasks: Vec<_> = (0..30)
        .map(|n| task("say", &json!("success")).ordering_key(format!("key {}", n % 3)))
        .collect();
    db.client().schedule_many(&tasks).await.unwrap();
    assert_eq!(db.drain(saying(&db)).await.unwrap().succeeded.len(), 30);
    db.run("select tuskline.gate('say', 'pause', p_for => '1 hour', p_reason => 'night')")
        .await
        .unwrap();
    let id = schedule(&db, "say", json!("success")).await;
    assert_eq!(db.drain(saying(&db)).await.unwrap().tasks().len(), 0);
    db.advance(HOUR).await.unwrap();
    assert_eq!(db.drain(saying(&db)).await.unwrap().succeeded, [id]);
}

#[tokio::test]
async fn what_a_throttle_or_a_breaker_holds_comes_when_the_clock_says() {
    let db = pinned().await;
    let second = Duration::from_secs(1);
    db.run("select tuskline.throttle('say', 1, p_reason => 'ill')").await.unwrap();
    for _ in 0..3 {
        schedule(&db, "say", json!("success")).await;
    }
    for _ in 0..3 {
        assert_eq!(db.drain(saying(&db)).await.unwrap().succeeded.len(), 1);
        db.advance(second).await.unwrap();
    }
    db.run("select tuskline.drop_limit(1), tuskline.set_breaker('say', p_failures => 2, p_probe_after => '30 s')")
        .await
        .unwrap();
    for _ in 0..2 {
        schedule(&db, "say", json!("fatal")).await;
    }
    assert_eq!(db.drain(saying(&db)).await.unwrap().failed.len(), 2);
    db.advance(second).await.unwrap();
    assert_eq!(db.drain(saying(&db)).await.unwrap().tasks().len(), 0);
    let probe = schedule(&db, "say", json!("success")).await;
    assert_eq!(db.drain(saying(&db)).await.unwrap().tasks().len(), 0);
    db.advance(second * 30).await.unwrap();
    assert_eq!(db.drain(saying(&db)).await.unwrap().succeeded, [probe]);
}

#[tokio::test]
async fn a_redrive_goes_on_while_it_is_drained() {
    let db = pinned().await;
    for _ in 0..20 {
        schedule(&db, "say", json!("fatal")).await;
    }
    assert_eq!(db.drain(saying(&db)).await.unwrap().failed.len(), 20);
    db.run(
        "select tuskline.start_operation('redrive', 'say', p_canary => true, p_reason => 'mended')",
    )
    .await
    .unwrap();
    let mended = || db.worker().serve(echo("say"));
    let drained = db.drain(mended()).await.unwrap();
    assert_eq!(drained.succeeded.len(), 20);
}

#[tokio::test]
async fn a_tick_that_is_due_becomes_a_task() {
    let db = pinned().await;
    db.pin_at(Utc.with_ymd_and_hms(2027, 3, 1, 12, 0, 0).unwrap()).await.unwrap();
    db.run("select tuskline.define_periodic('nightly', 'say', '30 2 * * *', '\"success\"')")
        .await
        .unwrap();
    assert_eq!(db.drain(saying(&db)).await.unwrap().tasks().len(), 0);
    let tick = Utc.with_ymd_and_hms(2027, 3, 2, 2, 30, 0).unwrap();
    db.pin_at(tick).await.unwrap();
    db.drain(saying(&db)).await.unwrap().assert_all_succeeded();
    assert_eq!(db.scheduled("say").await.unwrap().once().due_at, tick);
}

/// As when another session has just locked a permit or a parent.
#[tokio::test]
async fn a_task_that_asks_again_in_a_moment_is_not_left_behind() {
    let db = pinned().await;
    db.run("select tuskline.set_limit('say', 1)").await.unwrap();
    let began = db.now().await.unwrap();
    let moment = Duration::from_millis(15);
    let id = db.client().schedule(&task("say", &json!("success")).after(moment)).await.unwrap();
    let later = db.client().schedule(&task("say", &json!("success")).after(HOUR)).await.unwrap();
    assert_eq!(db.drain(saying(&db)).await.unwrap().succeeded, [id]);
    assert_eq!(db.now().await.unwrap(), began + moment);
    assert_eq!(db.task(later).await.unwrap().status, Status::New);
}

#[tokio::test]
async fn a_body_that_schedules_itself_for_ever_ends_in_an_error() {
    let db = pinned().await;
    db.define(&["again"]).await.unwrap();
    let again = |n: i64, context: Context| async move {
        context.schedule(&task("again", &json!(n + 1))).await.map(drop)
    };
    schedule(&db, "again", json!(1)).await;
    let worker = db.worker().serve(Lambda::named("again", again));
    let limit = Limit { rounds: 20, ..Limit::default() };
    let error = db.drain_within(worker, limit).await.unwrap_err().to_string();
    assert!(error.starts_with("not drained: after "), "{error}");
    assert!(error.contains(" of again is ") && error.contains("schedule itself"), "{error}");
}

#[tokio::test]
async fn a_body_that_never_ends_ends_in_an_error() {
    let db = pinned().await;
    db.define(&["stuck"]).await.unwrap();
    let stuck = |_: Value, _: Context| std::future::pending::<()>();
    let id = schedule(&db, "stuck", json!(null)).await;
    let worker = db.worker().serve(Lambda::named("stuck", stuck));
    let limit = Limit { time: Duration::from_millis(300), ..Limit::default() };
    let error = db.drain_within(worker, limit).await.unwrap_err().to_string();
    let left = format!("task {id} of stuck is being executed");
    assert_eq!(error, format!("not drained: within 300ms not all was done\n    {left}"));
}

#[tokio::test]
async fn a_worker_that_does_not_start_is_an_error() {
    let db = pinned().await;
    let error = db.drain(db.worker()).await.unwrap_err();
    let Error::Sdk(error) = error else { panic!("{error}") };
    assert_eq!(error.code(), Some(tuskline_sdk::Code::InvalidSetting), "{error}");
}
