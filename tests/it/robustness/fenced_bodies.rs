//! Bodies that write in transactions of their own. The task's success and its writes agree, whether
//! the transaction commits or not, and the worker's bookkeeping agrees with both.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tuskline_sdk::{Code, Context, Error, ErrorKind, Lambda, Outcome};

use crate::support::{Db, Gate, LEASE, Running, calm, within};

type Failure = Box<dyn std::error::Error + Send + Sync>;

async fn with_bookings() -> Db {
    let db = Db::with_lambda("work").await;
    db.run("create table booking (by_fence bigint)").await;
    db
}

async fn bookings(db: &Db) -> Vec<i64> {
    db.all("select by_fence from booking order by 1").await
}

/// Writes a booking, and ends the transaction and the body as `how` says.
async fn book(how: &str, context: &Context) -> Result<Outcome, Failure> {
    let mut connection = context.client().connection().await?;
    let mut transaction = connection.transaction().await?;
    transaction.execute("insert into booking values ($1)", &[&context.fence().0]).await?;
    let done = match how {
        "output" => context.complete_in(&mut transaction, &json!({ "seat": "7\0" })).await?,
        "too deep" => {
            let deep = (0..70).fold(json!(1), |inner, _| json!([inner]));
            let refused = context.complete_in(&mut transaction, &deep).await.unwrap_err();
            assert!(refused.to_string().starts_with("TK012 invalid_result: output too deep"));
            return Err(refused.into());
        }
        _ => context.complete_in(&mut transaction, &()).await?,
    };
    match how {
        "roll back, once" if context.attempt() == 1 => {
            transaction.rollback().await?;
            return Err("it was rolled back".into());
        }
        "roll back" => transaction.rollback().await?,
        _ => transaction.commit().await?,
    }
    match how {
        "then fail" => Err("after the commit".into()),
        "then panic" => panic!("after the commit"),
        _ => Ok(done),
    }
}

fn booking() -> Lambda {
    Lambda::named("work", |how: String, context: Context| async move { book(&how, &context).await })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_success_commits_with_the_writes_whatever_the_body_says_then() {
    let db = with_bookings().await;
    let sdk_worker = Running::start(&db, calm(), vec![booking()]);
    for how in ["commit", "output", "then fail", "then panic"] {
        let id = db.schedule_with("work", &json!(how).to_string()).await;
        db.until_status(id, "success").await;
        assert_eq!(db.failures(id).await, []);
    }
    let outputs: Vec<String> = db.all("select output::text from tuskline.task_output").await;
    assert_eq!(outputs, ["{\"seat\":\"7\u{fffd}\"}"]);
    assert_eq!(bookings(&db).await.len(), 4);
    sdk_worker.stop().await;
    db.assert_nothing_left().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_rolled_back_is_decided_by_what_the_body_says() {
    let db = Db::new().await;
    db.define_with("work", "p_retry_base => '10 ms', p_max_attempts => 2").await;
    db.run("create table booking (by_fence bigint)").await;
    let _store_consumer = db.store_consumer();
    let sdk_worker = Running::start(&db, calm(), vec![booking()]);
    let again = db.schedule_with("work", r#""roll back, once""#).await;
    db.until_status(again, "success").await;
    assert_eq!(db.failures(again).await, [("error".into(), "it was rolled back".into())]);
    assert_eq!(bookings(&db).await.len(), 1, "of the second attempt");
    let said = db.schedule_with("work", r#""roll back""#).await;
    db.until_status(said, "success").await;
    let deep = db.schedule_with("work", r#""too deep""#).await;
    db.until_status(deep, "dead").await;
    assert_eq!(bookings(&db).await.len(), 1);
    sdk_worker.stop().await;
    db.assert_nothing_left().await;
}

/// A lambda that stops at a gate before its writes, and reports the answer to its check.
fn stopping(gate: &Gate, answers: UnboundedSender<Result<(), Error>>) -> Lambda {
    let gate = gate.clone();
    Lambda::named("work", move |payload: Value, context: Context| {
        let (gate, answers) = (gate.clone(), answers.clone());
        async move {
            gate.stop_here(payload, context.clone()).await;
            let mut connection = context.client().connection().await?;
            let mut transaction = connection.transaction().await?;
            transaction.execute("insert into booking values ($1)", &[&context.fence().0]).await?;
            let asserted = context.assert_current(&mut transaction).await;
            let refused = asserted.is_err();
            answers.send(asserted)?;
            transaction.commit().await?;
            if refused { Err(Failure::from("refused")) } else { Ok(()) }
        }
    })
}

async fn next(answers: &mut UnboundedReceiver<Result<(), Error>>) -> Result<(), Error> {
    within(answers.recv()).await.expect("the body speaks")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_resumes_after_its_lease_writes_nothing() {
    let db = with_bookings().await;
    db.pin().await;
    let gate = Gate::new();
    let (sender, mut answers) = unbounded_channel();
    // The worker has one slot. A claim under way while the test ends its lease would take the task
    // again.
    let sdk_worker = Running::start(&db, calm(), vec![stopping(&gate, sender).slots(1)]);
    let id = db.schedule_with("work", "1").await;
    let stopped = gate.next().await;
    // The worker's first beat must not come after the clock's step. The next beat is 5 s away.
    db.until("select beats > 0 from tuskline.executor").await;
    db.advance(LEASE).await;
    // After that beat the worker may be reporting its task: rescue skips the row while it is
    // locked.
    let mut rescued = 0;
    while rescued == 0 {
        rescued = db.rescue().await.1;
    }
    let successor = db.worker("work").await;
    let new = successor.take().await;
    assert!(new.fence > stopped.context.fence().0);
    successor.client.execute("insert into booking values ($1)", &[&new.fence]).await.unwrap();
    assert!(successor.complete(&new).await);
    gate.let_pass(1);
    let refused = next(&mut answers).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Fenced, "{refused}");
    assert_eq!(refused.code(), Some(Code::NotCurrent), "{refused}");
    assert_eq!(bookings(&db).await, [new.fence]);
    db.until("select count(*) = 0 from pg_stat_activity where datname = current_database() and state like 'idle in transaction%'").await;
    assert_eq!((db.status(id).await.as_str(), bookings(&db).await.len()), ("success", 1));
    drop(sdk_worker);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_whose_answer_is_lost_is_decided_by_the_database() {
    let db = with_bookings().await;
    let rounds = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&rounds);
    // Commits, and then reports a failure, as if the connection had broken.
    let lambda = Lambda::named("work", move |(): (), context: Context| {
        count.fetch_add(1, Ordering::Relaxed);
        async move {
            book("commit", &context).await?;
            Err::<Outcome, Failure>("connection closed".into())
        }
    });
    let sdk_worker = Running::start(&db, calm(), vec![lambda]);
    let id = db.schedule_with("work", "null").await;
    db.until_status(id, "success").await;
    db.until("select count(*) = 0 from tuskline.lease").await;
    assert_eq!((db.status(id).await.as_str(), bookings(&db).await.len()), ("success", 1));
    assert_eq!((rounds.load(Ordering::Relaxed), db.failures(id).await), (1, vec![]));
    sdk_worker.stop().await;
    db.assert_nothing_left().await;
}
