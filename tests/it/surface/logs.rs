//! No log holds, at any level, a payload, an output, the text of an error or a password, whatever the filter.
//!
//! The drivers log through a logger of the whole process, so the calls are made in a process of their own.

use std::io;
use std::time::Duration;

use serde_json::{Value, json};
use sqlx::PgPool;
use tokio_util::sync::CancellationToken;
use tracing::Level;
use tuskline_sdk::{
    Action, Client, Context, Failure, Lambda, NewTask, On, Operation, Outcome, Periodic, Status,
    TaskId, TraceLayer, Worker,
};

use super::transactions_of_adapters::Unknown;
use crate::support::cli::{Call, on, url};
use crate::support::{Db, quick};

const ORDER: &str = "TUSKLINE_TEST_LOGS";
/// A secret in every text that no log may hold.
const SECRET: &str = "Zq7PrivateZq7";
/// Longest that a task of the other process takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// No form of the secret is in a log.
fn assert_kept(log: &str) {
    assert!(!log.contains(SECRET), "{}", around(log, SECRET));
    let bytes = format!("{:?}", SECRET.as_bytes());
    let bytes = bytes.trim_matches(['[', ']']);
    assert!(!log.contains(bytes), "{}", around(log, bytes));
}

/// The lines of a log that contain a text.
fn around(log: &str, text: &str) -> String {
    log.lines().filter(|line| line.contains(text)).take(9).collect::<Vec<_>>().join("\n")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_level_trace_no_payload_and_no_text_of_an_error_is_logged() {
    let db = Db::with_lambda("work").await;
    db.define("typed").await;
    let _consumer = db.store_consumer();
    db.run(
        "select tuskline.set_unique('work'), tuskline.alter_lambda('work', p_max_attempts => 2)",
    )
    .await;
    let call = Call::of(
        &std::env::current_exe().unwrap(),
        &["--exact", "surface::logs::as_a_child_call_everything", "--nocapture"],
    );
    let call = call.env(ORDER, url(&db.config));
    let ran = tokio::task::spawn_blocking(|| call.run()).await.unwrap();
    assert_eq!(ran.code, 0, "{}", around(&ran.err, "panicked"));
    // The log is as loud as it can be.
    for loud in [
        "tokio_postgres::query: executing statement",
        "json of ",
        "tuskline::transition",
        "attempt failed",
        "task failed for good",
    ] {
        assert!(ran.err.contains(loud), "{loud}");
    }
    assert_kept(&ran.err);
    let kept =
        format!("select count(*) from tuskline.task_failure where message like '%{SECRET}%'");
    assert!(db.one::<i64>(&kept).await >= 5, "the database has the texts");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_that_say_everything_log_no_payload() {
    let db = Db::with_lambda("work").await;
    db.run("select tuskline.set_unique('work')").await;
    let payload = format!("\"{SECRET}\"");
    for arguments in [
        vec!["task", "schedule", "work", &payload],
        vec!["task", "schedule", "work", &payload, "--unique-key", SECRET],
        vec!["periodic", "define", "daily", "work", "0 0 1 1 *", &payload],
        vec!["task", "list"],
    ] {
        let call = on(&db.config, "-vv").env("TUSKLINE_LOG", "trace");
        let ran = arguments.iter().fold(call, |call, argument| call.arg(argument)).run();
        assert_eq!(ran.code, 0, "{arguments:?}: {}", around(&ran.err, "error"));
        assert!(ran.err.contains("TRACE"), "{arguments:?}");
        assert_kept(&ran.err);
    }
}

/// The other half, which runs in the process. Run as a test of its own it has no order and does
/// nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn as_a_child_call_everything() {
    let Ok(url) = std::env::var(ORDER) else { return };
    // Rust writes the text of a panic to standard error, which is no log.
    std::panic::set_hook(Box::new(|_| {}));
    tracing_subscriber::fmt()
        .with_max_level(Level::TRACE)
        .with_writer(io::stderr)
        .with_ansi(false)
        .init();
    let end = CancellationToken::new();
    let worker = Worker::builder(&url)
        .config(quick())
        .serve(Lambda::named("work", body))
        .serve(Lambda::named("typed", |_: u64| async { Outcome::Success(None) }))
        .layer(TraceLayer)
        .until(end.clone().cancelled_owned());
    let worker = tokio::spawn(worker.run());
    let client = Client::connect(&url).await.unwrap();
    for id in scheduled(&client, &url).await {
        assert!(client.wait(id, PATIENCE).await.unwrap().is_some(), "{id} ended");
    }
    operate(&client).await;
    end.cancel();
    worker.await.unwrap().unwrap();
}

fn task(act: &str) -> NewTask {
    NewTask::new("work", &json!({ "act": act, "card": SECRET }))
}

/// Schedules tasks in every way there is.
async fn scheduled(client: &Client, url: &str) -> Vec<TaskId> {
    let mut ids = Vec::new();
    for act in ["succeed", "retry", "fail", "panic", "complete"] {
        ids.push(client.schedule(task(act)).await.unwrap());
    }
    ids.push(client.schedule(NewTask::new("typed", &SECRET)).await.unwrap());
    ids.push(client.schedule(task("succeed").unique_key(SECRET)).await.unwrap());
    ids.extend(client.schedule_many([task("succeed"), task("fail")]).await.unwrap());
    client
        .define_periodic(&Periodic::new("daily", "work", "0 0 1 1 *").payload(&SECRET))
        .await
        .unwrap();

    let mut connection = client.connection().await.unwrap();
    let mut transaction = connection.transaction().await.unwrap();
    let within = Client::within(&mut transaction);
    ids.push(within.schedule(task("succeed")).await.unwrap());
    ids.push(within.schedule_then(&ids[..1], On::Success, task("succeed")).await.unwrap());
    transaction.commit().await.unwrap();
    let transaction = connection.transaction().await.unwrap();
    ids.push(Client::within(&mut Unknown(&transaction)).schedule(task("fail")).await.unwrap());
    transaction.commit().await.unwrap();
    let pool = PgPool::connect(url).await.unwrap();
    let mut transaction = pool.begin().await.unwrap();
    ids.push(Client::within(&mut transaction).schedule(task("fail")).await.unwrap());
    transaction.commit().await.unwrap();
    ids
}

/// Performs acts of an owner whose parameters are values of payloads.
async fn operate(client: &Client) {
    let cancel = Operation::new(Action::Cancel).lambda("work").field(&["card"], SECRET);
    client.start_operation(&cancel, Some(SECRET)).await.unwrap();
    let later = client.schedule(task("succeed").after(PATIENCE)).await.unwrap();
    client.cancel(later, Some(SECRET)).await.unwrap();
    let status = client.status(later).await.unwrap().unwrap();
    assert_eq!(status.status, Status::Cancelled);
}

async fn body(payload: Value, context: Context) -> Result<Outcome, Failure> {
    let _before: Option<Value> = context.checkpoint().await?;
    context.progress(50.0, SECRET).await?;
    context.save(&payload).await?;
    match payload["act"].as_str() {
        Some("retry") => Err(Failure::retry_after(Duration::ZERO, SECRET)),
        Some("fail") => Err(Failure::fatal(SECRET)),
        Some("panic") => panic!("{SECRET}"),
        Some("complete") => {
            let mut connection = context.client().connection().await?;
            let mut transaction = connection.transaction().await?;
            let done = context.complete_in(&mut transaction, &payload).await?;
            transaction.commit().await?;
            Ok(done)
        }
        _ => Ok(Outcome::Success(Some(payload))),
    }
}
