//! Chains, progress and snoozes as an application sees them: through the SDK and a running worker.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tuskline_sdk::{
    Chain, Client, Code, Context, Error, Lambda, NewTask, On, OnParentFailure, Outcome, Retried,
    Status,
};

use crate::support::{Db, Gate, Running, calm, within};

async fn client(db: &Db) -> Client {
    Client::connect(db.config.clone()).await.unwrap()
}

/// Returns a result as its payload asks: a number; the sum of its parents' outputs; a failure while
/// `broken`.
async fn calculate(payload: Value, context: Context) -> Result<Outcome, Error> {
    match &payload {
        Value::Number(_) => Ok(Outcome::Success(Some(payload))),
        Value::String(word) if word == "fail" => Ok(Outcome::fatal("as it was told")),
        _ => {
            let parents = context.parents().await?;
            let outputs = parents.iter().filter_map(|parent| parent.output.as_ref()?.as_i64());
            Ok(Outcome::Success(Some(json!(outputs.sum::<i64>()))))
        }
    }
}

fn task(payload: &Value) -> NewTask {
    NewTask::new("work", payload)
}

#[tokio::test]
async fn a_chain_runs_in_order_and_hands_on_what_was_returned() {
    let db = Db::with_lambda("work").await;
    let _consumer = db.store_consumer();
    let sdk_worker = Running::start(&db, calm(), vec![Lambda::named("work", calculate)]);
    let client = client(&db).await;
    let mut chain = Chain::new();
    let numbers = [1, 2, 3].map(|n| chain.task(task(&json!(n))));
    let sum = chain.task(task(&json!("sum")));
    for number in numbers {
        chain.after(sum, number);
    }
    let failing = chain.task(task(&json!("fail")));
    chain.after(failing, sum);
    let handler = chain.task(task(&json!("sum")));
    chain.after_end(handler, failing, On::Failure).after_end(handler, sum, On::Always);
    let unneeded = chain.task(task(&json!("sum")));
    chain.after(unneeded, failing);
    let held = chain.task(task(&json!("sum")));
    chain.name(held, "held").after(held, failing);
    chain.on_parent_failure(held, OnParentFailure::Hold);
    let scheduled = client.schedule_chain(&chain).await.unwrap();
    db.until_status(scheduled.id(handler).0, "success").await;
    db.until_status(scheduled.id(unneeded).0, "cancelled").await;
    let status = client.status(scheduled.id(handler)).await.unwrap().unwrap();
    assert_eq!(status.output, Some(json!(6)), "of the sum; the failed one returned nothing");
    let parents = client.parents(scheduled.id(held)).await.unwrap();
    assert_eq!(parents[0].status, Some(Status::FatalFailure));
    assert_eq!(db.status(scheduled.id(held).0).await, "new");
    let ended = client.cancel_chain(scheduled.id(sum), None).await.unwrap();
    assert_eq!((ended.cancelled, ended.requested), (1, 0));
    assert_eq!(client.retry(scheduled.id(sum)).await.unwrap(), Retried::Succeeded);
    // The retry covers the failed, the unneeded and the held task.
    assert_eq!(client.retry_chain(scheduled.id(sum)).await.unwrap(), 3);
    db.until_status(scheduled.id(unneeded).0, "cancelled").await;
    sdk_worker.stop().await;
}

#[tokio::test]
async fn a_running_task_extends_its_chain() {
    let db = Db::with_lambda("work").await;
    let _consumer = db.store_consumer();
    let body = |payload: i64, context: Context| async move {
        if payload > 0 {
            let mut more = Chain::new();
            let next = more.task(NewTask::new("work", &(payload - 1)));
            more.after(next, context.task());
            context.client().schedule_chain(&more).await?;
        }
        Ok::<_, Error>(())
    };
    let sdk_worker = Running::start(&db, calm(), vec![Lambda::named("work", body)]);
    db.schedule_with("work", "5").await;
    db.until_count("success", 6).await;
    sdk_worker.stop().await;
    let chains = db.lines("select tasks, ended from tuskline.chains").await;
    assert_eq!(chains, ["6 | 6"]);
}

#[tokio::test]
async fn a_circle_is_refused_before_anything_is_scheduled() {
    let db = Db::with_lambda("work").await;
    let mut chain = Chain::new();
    let (a, b) = (chain.task(task(&json!(1))), chain.task(task(&json!(2))));
    chain.name(a, "a").after(a, b).name(b, "b").after(b, a);
    let refused = client(&db).await.schedule_chain(&chain).await.unwrap_err();
    assert_eq!(refused.code(), Some(Code::InvalidChain), "{refused}");
    assert_eq!(db.one::<i64>("select count(*) from tuskline.task").await, 0);
}

#[tokio::test]
async fn a_unique_key_within_a_chain_is_refused() {
    let db = Db::with_lambda("work").await;
    let client = client(&db).await;
    let keyed = NewTask::new("work", &()).unique_key("order 9");
    let plain = NewTask::new("work", &());
    let mut chain = Chain::new();
    chain.task(keyed.clone());
    for refused in [
        client.schedule_chain(&chain).await.unwrap_err(),
        client.schedule_many_then(&[plain], &keyed).await.unwrap_err(),
    ] {
        assert_eq!(refused.code(), Some(Code::InvalidChain), "{refused}");
        let text = refused.to_string();
        assert!(text.contains("unique key (task work_1)"), "{text}");
    }
    assert_eq!(db.one::<i64>("select count(*) from tuskline.task").await, 0);
}

#[tokio::test]
async fn a_checkpoint_is_read_as_it_was_saved_or_refused_when_it_is_saved() {
    let db = Db::with_lambda("work").await;
    let _consumer = db.store_consumer();
    let body = |(): (), context: Context| async move {
        let large = (u128::MAX, i128::MIN);
        context.save(&large).await?;
        assert_eq!(context.checkpoint().await?, Some(large));
        let deep =
            |depth: usize| -> Value { (1..depth).fold(json!([]), |inner, _| json!([inner])) };
        context.save(&deep(64)).await?;
        assert_eq!(context.checkpoint().await?, Some(deep(64)));
        let refused = context.save(&deep(65)).await.unwrap_err();
        Ok::<_, Error>(json!(refused.to_string()))
    };
    let sdk_worker = Running::start(&db, calm(), vec![Lambda::named("work", body)]);
    let client = client(&db).await;
    let id = client.schedule(&NewTask::new("work", &())).await.unwrap();
    let status = client.wait(id, Duration::from_secs(10)).await.unwrap().unwrap();
    assert_eq!(
        status.output,
        Some(json!("TK028 invalid_progress: a checkpoint nests at most 64 deep, got 65")),
        "{:?}",
        status.error
    );
    sdk_worker.stop().await;
}

#[tokio::test]
async fn the_next_attempt_goes_on_from_the_checkpoint() {
    let db = Db::new().await;
    db.define_with("work", "p_retry_base => '1 millisecond'").await;
    let _consumer = db.store_consumer();
    let body = |(): (), context: Context| async move {
        let done: u32 = context.checkpoint().await?.unwrap_or(0);
        context.progress(40.0, "at it").await?;
        context.save(&(done + 1)).await?;
        match done {
            2 => Ok(Outcome::Success(Some(json!(done)))),
            _ => Ok::<_, Error>(Outcome::retriable("not yet")),
        }
    };
    let sdk_worker = Running::start(&db, calm(), vec![Lambda::named("work", body)]);
    let client = client(&db).await;
    let id = client.schedule(&NewTask::new("work", &())).await.unwrap();
    db.until_status(id.0, "success").await;
    let status = client.status(id).await.unwrap().unwrap();
    assert_eq!((status.attempt, status.output), (3, Some(json!(2))));
    assert_eq!((status.percent, status.message.as_deref()), (Some(40.0), Some("at it")));
    sdk_worker.stop().await;
}

#[tokio::test]
async fn a_body_that_snoozes_runs_again_as_the_same_attempt() {
    let db = Db::new().await;
    db.define_with("work", "p_max_attempts => 1").await;
    let _consumer = db.store_consumer();
    let runs = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&runs);
    let body = move |(): (), context: Context| {
        let run = count.fetch_add(1, Ordering::Relaxed);
        assert_eq!(context.attempt(), 1);
        std::future::ready(match run {
            0..3 => Outcome::Snooze(Duration::from_millis(1)),
            _ => Outcome::Success(None),
        })
    };
    let sdk_worker = Running::start(&db, calm(), vec![Lambda::named("work", body)]);
    let id = client(&db).await.schedule(&NewTask::new("work", &())).await.unwrap();
    db.until_status(id.0, "success").await;
    sdk_worker.stop().await;
    assert_eq!(runs.load(Ordering::Relaxed), 4);
}

#[tokio::test]
async fn a_repeated_call_with_a_unique_key_is_harmless() {
    let db = Db::with_lambda("work").await;
    db.run("select tuskline.set_unique('work', 'forever')").await;
    let client = client(&db).await;
    let order = || task(&json!(9)).unique_key("order 9");
    let first = client.schedule(&order()).await.unwrap();
    assert_eq!(client.schedule(&order()).await.unwrap(), first);
    let many = client.schedule_many(&[order(), task(&json!(1)), order()]).await.unwrap();
    assert_eq!((many[0], many[2]), (first, first));
    assert_eq!(db.one::<i64>("select count(*) from tuskline.task").await, 2);
    db.run("select tuskline.set_unique('work', 'forever', 'reject')").await;
    let refused = client.schedule(&order()).await.unwrap_err();
    assert!(refused.to_string().contains("TK027 duplicate"), "{refused}");
}

#[tokio::test]
async fn the_end_of_a_task_is_waited_for_by_many_and_heard_of() {
    let db = Db::with_lambda("work").await;
    let gate = Gate::new();
    let sdk_worker = Running::start(&db, calm(), vec![gate.lambda("work")]);
    let client = client(&db).await;
    let id = client.schedule(&task(&json!(1))).await.unwrap();
    gate.next().await;
    let early = client.wait(id, Duration::from_millis(30)).await.unwrap().unwrap();
    assert!(!early.status.is_terminal());
    let waits: Vec<_> = (0..20)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move { client.wait(id, Duration::from_secs(60)).await })
        })
        .collect();
    db.until("select exists (select from tuskline_core.awaited)").await;
    gate.open_for_good();
    for wait in waits {
        let status = within(wait).await.unwrap().unwrap().unwrap();
        assert_eq!(status.status, Status::Success);
    }
    assert!(client.wait(tuskline_sdk::TaskId(4711), Duration::ZERO).await.unwrap().is_none());
    sdk_worker.stop().await;
}

#[tokio::test]
async fn an_end_is_notified_only_to_the_sessions_that_asked_for_it() {
    let db = Db::with_lambda("work").await;
    let worker = db.worker("work").await;
    let (asked, other) = (db.schedule("work").await, db.schedule("work").await);
    let channels = [format!("tuskline_ended_{asked}"), format!("tuskline_ended_{other}")];
    let mut ear = db.ear(&[&channels[0], &channels[1]]).await;
    db.run(&format!("select tuskline.await_end({asked})")).await;
    for task in worker.claim(2).await {
        worker.succeed(&task).await;
    }
    assert_eq!(ear.heard().await, [channels[0].clone()]);
}

#[tokio::test]
async fn waiting_ends_in_time_though_no_notification_can_be_requested() {
    let db = Db::with_lambda("work").await;
    let id = db.schedule("work").await;
    let open = db.connect().await;
    let asks = format!("begin; select tuskline.await_end({id})");
    open.batch_execute(&asks).await.unwrap();
    let client = client(&db).await;
    let begun = std::time::Instant::now();
    let waits = client.wait(tuskline_sdk::TaskId(id), Duration::from_millis(300));
    let status = within(waits).await.unwrap().unwrap();
    assert_eq!(status.status, Status::Enqueued);
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_given_pool_that_hears_nothing_asks_for_no_notification() {
    let db = Db::with_lambda("work").await;
    let id = db.schedule("work").await;
    let manager = deadpool_postgres::Manager::new(db.config.clone(), tokio_postgres::NoTls);
    let pool = deadpool_postgres::Pool::builder(manager).build().unwrap();
    let client = Client::on(pool);
    client.wait(tuskline_sdk::TaskId(id), Duration::from_millis(100)).await.unwrap();
    assert_eq!(db.one::<i64>("select count(*) from tuskline_core.awaited").await, 0);
}

#[tokio::test]
async fn a_task_may_be_waited_for_without_a_limit() {
    let db = Db::with_lambda("work").await;
    let id = db.schedule("work").await;
    db.cancel(id).await;
    let waits = client(&db).await.wait(tuskline_sdk::TaskId(id), Duration::MAX).await;
    assert_eq!(waits.unwrap().unwrap().status, Status::Cancelled);
}
