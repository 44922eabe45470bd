//! Within a transaction of sqlx: tasks, cancellations and results commit or roll back with the caller's own
//! writes.

use serde_json::json;
use sqlx::PgPool;
use tokio::sync::mpsc;
use tuskline_sdk::{
    Cancelled, Client, Code, Context, Data, ErrorKind, Failure, Lambda, NewTask, Outcome, Priority,
    Status, Worker,
};

use crate::support::{Db, Running, calm, sqlx_pool, within};

async fn purchases(pool: &PgPool) -> i64 {
    sqlx::query_scalar("select count(*) from purchase").fetch_one(pool).await.unwrap()
}

async fn with_purchases() -> (Db, PgPool) {
    let db = Db::with_lambda("work").await;
    db.run("create table purchase (number bigint primary key)").await;
    let pool = sqlx_pool(&db).await;
    (db, pool)
}

#[tokio::test]
async fn a_task_commits_with_the_writes_of_the_caller_or_not_at_all() {
    let (db, pool) = with_purchases().await;
    for (number, commits) in [(1_i64, true), (2, false)] {
        let mut tx = pool.begin().await.unwrap();
        sqlx::query("insert into purchase values ($1)")
            .bind(number)
            .execute(&mut *tx)
            .await
            .unwrap();
        let task = NewTask::new("work", &json!({ "number": number }))
            .priority(Priority::High)
            .collection("shop")
            .limit_key("ada");
        Client::within(&mut tx).schedule(task).await.unwrap();
        match commits {
            true => tx.commit().await.unwrap(),
            false => tx.rollback().await.unwrap(),
        }
    }
    assert_eq!(purchases(&pool).await, 1);
    let seen = db
        .all::<String>(
            "select payload ->> 'number' || priority || collection || limit_key
                                   from tuskline.tasks",
        )
        .await;
    assert_eq!(seen, ["1highshopada"]);
}

#[tokio::test]
async fn many_tasks_their_status_and_a_cancel_pass_through_the_transaction() {
    let (db, pool) = with_purchases().await;
    let mut tx = pool.begin().await.unwrap();
    let tasks = Client::within(&mut tx);
    let many = (0..3).map(|n| NewTask::new("work", &n));
    let ids = tasks.schedule_many(many).await.unwrap();
    assert_eq!(ids.len(), 3);
    assert_eq!(tasks.cancel(ids[1], Some("no need")).await.unwrap(), Cancelled::Cancelled);
    let status = tasks.status(ids[1]).await.unwrap().unwrap();
    assert_eq!((status.status, status.payload), (Status::Cancelled, Some(json!(1))));
    assert!(tasks.explain(ids[0]).await.is_ok());
    tx.commit().await.unwrap();
    assert_eq!(db.status(ids[0].0).await, "enqueued");
    assert_eq!(db.status(ids[1].0).await, "cancelled");
}

#[tokio::test]
async fn a_savepoint_takes_its_task_back_and_the_transaction_goes_on() {
    let (db, pool) = with_purchases().await;
    let mut tx = pool.begin().await.unwrap();
    let first = Client::within(&mut tx).schedule(NewTask::new("work", &1)).await.unwrap();
    let mut savepoint = sqlx::Acquire::begin(&mut tx).await.unwrap();
    Client::within(&mut savepoint).schedule(NewTask::new("work", &2)).await.unwrap();
    savepoint.rollback().await.unwrap();
    let mut savepoint = sqlx::Acquire::begin(&mut tx).await.unwrap();
    let refused = Client::within(&mut savepoint).schedule(NewTask::new("no_such", &3)).await;
    let refused = refused.unwrap_err();
    assert_eq!((refused.kind(), refused.code()), (ErrorKind::Invalid, Some(Code::UnknownLambda)));
    assert!(refused.hint().unwrap().contains("define it"), "{refused:?}");
    savepoint.rollback().await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(db.all::<i64>("select id from tuskline.task").await, [first.0]);
}

#[tokio::test]
async fn a_serialization_failure_is_retryable_and_leaves_nothing() {
    let (db, pool) = with_purchases().await;
    db.run("insert into purchase values (1)").await;
    let serializable = "set transaction isolation level serializable";
    let (mut one, mut two) = (pool.begin().await.unwrap(), pool.begin().await.unwrap());
    for tx in [&mut one, &mut two] {
        sqlx::query(serializable).execute(&mut **tx).await.unwrap();
        sqlx::query("select sum(number) from purchase").execute(&mut **tx).await.unwrap();
    }
    for (tx, number) in [(&mut one, 2_i64), (&mut two, 3)] {
        sqlx::query("insert into purchase values ($1)")
            .bind(number)
            .execute(&mut **tx)
            .await
            .unwrap();
    }
    Client::within(&mut one).schedule(NewTask::new("work", &2)).await.unwrap();
    one.commit().await.unwrap();
    let refused = match Client::within(&mut two).schedule(NewTask::new("work", &3)).await {
        Err(error) => error.is_retryable() && error.sqlstate() == Some("40001"),
        Ok(_) => two.commit().await.is_err(),
    };
    assert!(refused, "the second would not be serializable");
    assert_eq!(db.one::<i64>("select count(*) from tuskline.task").await, 1);
}

#[tokio::test]
async fn a_body_records_its_success_in_a_transaction_of_its_pool() {
    let (db, pool) = with_purchases().await;
    let (sender, mut received) = mpsc::unbounded_channel();
    let body = move |number: i64, pool: Data<PgPool>, context: Context| {
        let sender = sender.clone();
        async move {
            let mut tx = pool.begin().await?;
            context.assert_current(&mut tx).await?;
            sqlx::query("insert into purchase values ($1)").bind(number).execute(&mut *tx).await?;
            let done = context.complete_in(&mut tx, &number).await?;
            tx.commit().await?;
            // Its success is recorded: the attempt is over.
            let mut tx = pool.begin().await?;
            let late = context.assert_current(&mut tx).await.map_err(|error| error.kind());
            let _ = sender.send(late);
            Ok::<Outcome, Failure>(done)
        }
    };
    let worker = Worker::builder(&db.config).config(calm()).data(pool.clone());
    let worker = Running::of(worker.serve(Lambda::named("work", body)));
    let id = db.schedule_with("work", "7").await;
    db.until_status(id, "success").await;
    assert_eq!(within(received.recv()).await, Some(Err(ErrorKind::Fenced)));
    assert_eq!(purchases(&pool).await, 1);
    worker.stop().await;
}
