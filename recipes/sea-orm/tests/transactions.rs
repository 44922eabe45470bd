//! Within a transaction of SeaORM: tasks, cancellations and results commit or roll back with the caller's own
//! writes.

#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "../../tests/support.rs"]
mod support;

use sea_orm::{ConnectionTrait, DatabaseConnection, DbErr, IsolationLevel, TransactionTrait};
use tuskline_recipe_sea_orm::SeaOrm;
use tuskline_sdk::{
    Cancelled, Client, Code, Context, Data, ErrorKind, Failure, Lambda, NewTask, Outcome, Status,
};
use tuskline_testing::Database;

async fn database() -> (Database, DatabaseConnection) {
    let db = support::database().await;
    let connection = sea_orm::Database::connect(db.url()).await.unwrap();
    (db, connection)
}

async fn buy(connection: &impl ConnectionTrait, number: i64) -> Result<(), DbErr> {
    let purchase = format!("insert into purchase values ({number})");
    connection.execute_unprepared(&purchase).await.map(drop)
}

#[tokio::test]
async fn a_task_commits_with_the_writes_of_the_caller_or_not_at_all() {
    let (db, connection) = database().await;
    for (number, commits) in [(1_i64, true), (2, false)] {
        let transaction = connection.begin().await.unwrap();
        buy(&transaction, number).await.unwrap();
        let task = support::task_of(number);
        Client::within(&mut SeaOrm(&transaction)).schedule(task).await.unwrap();
        match commits {
            true => transaction.commit().await.unwrap(),
            false => transaction.rollback().await.unwrap(),
        }
    }
    support::only_the_first_is_there(&db).await;
}

#[tokio::test]
async fn a_savepoint_takes_its_task_back_and_the_transaction_goes_on() {
    let (db, connection) = database().await;
    let transaction = connection.begin().await.unwrap();
    let first = Client::within(&mut SeaOrm(&transaction)).schedule(NewTask::new("work", &1)).await;
    for lambda in ["work", "no_such"] {
        let savepoint = transaction.begin().await.unwrap();
        let second = NewTask::new(lambda, &2);
        if let Err(error) = Client::within(&mut SeaOrm(&savepoint)).schedule(second).await {
            support::is_an_unknown_lambda(&error);
        }
        savepoint.rollback().await.unwrap();
    }
    transaction.commit().await.unwrap();
    assert_eq!(db.tasks().await.unwrap().once().id, first.unwrap());
}

#[tokio::test]
async fn a_refusal_without_a_savepoint_ends_the_transaction() {
    let (db, connection) = database().await;
    let transaction = connection.begin().await.unwrap();
    buy(&transaction, 1).await.unwrap();
    let mut session = SeaOrm(&transaction);
    let tasks = Client::within(&mut session);
    let refused = tasks.schedule(NewTask::new("no_such", &1)).await.unwrap_err();
    assert_eq!(refused.code(), Some(Code::UnknownLambda));
    // The transaction is aborted: each statement is refused.
    let aborted = tasks.schedule(NewTask::new("work", &2)).await.unwrap_err();
    assert_eq!((aborted.kind(), aborted.sqlstate()), (ErrorKind::Invalid, Some("25P02")));
    // PostgreSQL answers the commit of such a transaction with a rollback.
    transaction.commit().await.unwrap();
    assert_eq!(support::purchases(&db).await, 0);
    db.tasks().await.unwrap().never();
}

#[tokio::test]
async fn a_serialization_failure_is_retryable() {
    let (db, connection) = database().await;
    let id = db.client().schedule(NewTask::new("work", &1)).await.unwrap();
    let level = Some(IsolationLevel::RepeatableRead);
    let transaction = connection.begin_with_config(level, None).await.unwrap();
    transaction.execute_unprepared("select from tuskline.tasks").await.unwrap();
    assert_eq!(db.client().cancel(id, None).await.unwrap(), Cancelled::Cancelled);
    let error = Client::within(&mut SeaOrm(&transaction)).cancel(id, None).await.unwrap_err();
    assert!(error.is_retryable(), "{error:?}");
    assert_eq!(error.sqlstate(), Some("40001"));
}

#[tokio::test]
async fn without_an_answer_the_outcome_of_a_change_is_unknown() {
    let (db, connection) = database().await;
    let end = "select pg_terminate_backend(pid) from pg_stat_activity
                where datname = current_database() and application_name = 'ends'";
    let transaction = connection.begin().await.unwrap();
    transaction.execute_unprepared("set application_name = 'ends'").await.unwrap();
    db.run(end).await.unwrap();
    let mut session = SeaOrm(&transaction);
    let tasks = Client::within(&mut session);
    let error = tasks.schedule(NewTask::new("work", &1)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unknown, "{error:?}");
}

#[tokio::test]
async fn every_kind_of_value_passes_through_the_transaction() {
    let (db, connection) = database().await;
    let transaction = connection.begin().await.unwrap();
    support::every_kind_of_value(Client::within(&mut SeaOrm(&transaction))).await;
    transaction.commit().await.unwrap();
    db.tasks().await.unwrap().status(Status::Cancelled).once();
    db.tasks().await.unwrap().times(6);
}

#[tokio::test]
async fn a_body_records_its_success_in_a_transaction_of_its_pool() {
    let (db, connection) = database().await;
    let body = |number: i64, pool: Data<DatabaseConnection>, context: Context| async move {
        let transaction = pool.begin().await?;
        context.assert_current(&mut SeaOrm(&transaction)).await?;
        buy(&transaction, number).await?;
        let done = context.complete_in(&mut SeaOrm(&transaction), &number).await?;
        transaction.commit().await?;
        // Its success is recorded: the attempt is over.
        let late = context.assert_current(&mut SeaOrm(&*pool)).await.unwrap_err();
        assert_eq!(late.kind(), ErrorKind::Fenced);
        Ok::<Outcome, Failure>(done)
    };
    let id = db.client().schedule(NewTask::new("work", &7)).await.unwrap();
    let worker = db.worker().data(connection).serve(Lambda::named("work", body));
    db.drain(worker).await.unwrap().assert_all_succeeded();
    assert_eq!(db.task(id).await.unwrap().output_as::<i64>(), 7);
    assert_eq!(support::purchases(&db).await, 1);
}
