//! Within a transaction of diesel-async: tasks, cancellations and results commit or roll back with the caller's
//! own writes.

#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "../../tests/support.rs"]
mod support;

use diesel::result::Error as DieselError;
use diesel::sql_types::BigInt;
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use tuskline_recipe_diesel::Diesel;
use tuskline_sdk::{
    Cancelled, Client, Code, Context, Data, Error, ErrorKind, Failure, Lambda, NewTask, Outcome,
    Status,
};
use tuskline_testing::Database;

/// The error of a closure, on which `transaction` rolls back.
#[derive(Debug)]
enum Ended {
    Tuskline(Error),
    OnPurpose,
}

impl From<DieselError> for Ended {
    fn from(error: DieselError) -> Self {
        panic!("{error:?}")
    }
}

impl From<Error> for Ended {
    fn from(error: Error) -> Self {
        Self::Tuskline(error)
    }
}

async fn database() -> (Database, AsyncPgConnection) {
    let db = support::database().await;
    let connection = connect(&db).await;
    (db, connection)
}

async fn connect(db: &Database) -> AsyncPgConnection {
    AsyncPgConnection::establish(db.url()).await.unwrap()
}

async fn buy(connection: &mut AsyncPgConnection, number: i64) -> Result<(), DieselError> {
    let purchase = diesel::sql_query("insert into purchase values ($1)");
    purchase.bind::<BigInt, _>(number).execute(connection).await.map(drop)
}

#[tokio::test]
async fn a_task_commits_with_the_writes_of_the_caller_or_not_at_all() {
    let (db, mut connection) = database().await;
    for (number, commits) in [(1_i64, true), (2, false)] {
        let order = async |connection: &mut AsyncPgConnection| {
            buy(connection, number).await?;
            let task = support::task_of(number);
            Client::within(&mut Diesel(connection)).schedule(task).await?;
            if commits { Ok(()) } else { Err(Ended::OnPurpose) }
        };
        let ended = connection.transaction(order).await;
        assert!(
            matches!((commits, &ended), (true, Ok(())) | (false, Err(Ended::OnPurpose))),
            "{ended:?}"
        );
    }
    support::only_the_first_is_there(&db).await;
}

#[tokio::test]
async fn a_savepoint_takes_its_task_back_and_the_transaction_goes_on() {
    let (db, mut connection) = database().await;
    let outer = async |connection: &mut AsyncPgConnection| {
        let first =
            Client::within(&mut Diesel(connection)).schedule(NewTask::new("work", &1)).await?;
        for lambda in ["work", "no_such"] {
            let inner = async |connection: &mut AsyncPgConnection| {
                Client::within(&mut Diesel(connection)).schedule(NewTask::new(lambda, &2)).await?;
                Err::<(), _>(Ended::OnPurpose)
            };
            match connection.transaction(inner).await {
                Err(Ended::Tuskline(error)) => support::is_an_unknown_lambda(&error),
                ended => assert!(matches!(ended, Err(Ended::OnPurpose)), "{ended:?}"),
            }
        }
        Ok::<_, Ended>(first)
    };
    let first = connection.transaction(outer).await.unwrap();
    assert_eq!(db.tasks().await.unwrap().once().id, first);
}

#[tokio::test]
async fn a_refusal_without_a_savepoint_ends_the_transaction() {
    let (db, mut connection) = database().await;
    let refused = async |connection: &mut AsyncPgConnection| {
        buy(connection, 1).await?;
        let mut session = Diesel(connection);
        let tasks = Client::within(&mut session);
        let refused = tasks.schedule(NewTask::new("no_such", &1)).await.unwrap_err();
        assert_eq!(refused.code(), Some(Code::UnknownLambda));
        // The transaction is aborted: each statement is refused.
        let aborted = tasks.schedule(NewTask::new("work", &2)).await.unwrap_err();
        assert_eq!((aborted.kind(), aborted.code()), (ErrorKind::Invalid, None));
        Ok::<_, DieselError>(())
    };
    // PostgreSQL answers the commit of such a transaction with a rollback.
    let _ = connection.transaction(refused).await;
    assert_eq!(support::purchases(&db).await, 0);
    db.tasks().await.unwrap().never();
}

#[tokio::test]
async fn a_serialization_failure_is_retryable() {
    let (db, mut connection) = database().await;
    let id = db.client().schedule(NewTask::new("work", &1)).await.unwrap();
    let begin = "begin isolation level repeatable read; select from tuskline.tasks";
    connection.batch_execute(begin).await.unwrap();
    assert_eq!(db.client().cancel(id, None).await.unwrap(), Cancelled::Cancelled);
    let error = Client::within(&mut Diesel(&mut connection)).cancel(id, None).await.unwrap_err();
    assert!(error.is_retryable(), "{error:?}");
    assert_eq!(error.sqlstate(), Some("40001"));
}

#[tokio::test]
async fn without_an_answer_the_outcome_of_a_change_is_unknown() {
    let (db, mut connection) = database().await;
    let end = "select pg_terminate_backend(pid) from pg_stat_activity
                where datname = current_database() and application_name = 'ends'";
    connection.batch_execute("set application_name = 'ends'").await.unwrap();
    db.run(end).await.unwrap();
    let mut session = Diesel(&mut connection);
    let tasks = Client::within(&mut session);
    let error = tasks.schedule(NewTask::new("work", &1)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unknown, "{error:?}");
}

#[tokio::test]
async fn every_kind_of_value_passes_through_the_transaction() {
    let (db, mut connection) = database().await;
    let all = async |connection: &mut AsyncPgConnection| {
        support::every_kind_of_value(Client::within(&mut Diesel(connection))).await;
        Ok::<_, DieselError>(())
    };
    connection.transaction(all).await.unwrap();
    db.tasks().await.unwrap().status(Status::Cancelled).once();
    db.tasks().await.unwrap().times(6);
}

#[tokio::test]
async fn a_body_records_its_success_in_a_transaction_of_its_own() {
    let (db, _) = database().await;
    let body = |number: i64, url: Data<String>, context: Context| async move {
        let mut connection = AsyncPgConnection::establish(&url).await?;
        let book = async |connection: &mut AsyncPgConnection| {
            context.assert_current(&mut Diesel(connection)).await?;
            buy(connection, number).await?;
            Ok::<_, Failure>(context.complete_in(&mut Diesel(connection), &number).await?)
        };
        let done = connection.transaction(book).await?;
        // Its success is recorded: the attempt is over.
        let late = context.assert_current(&mut Diesel(&mut connection)).await.unwrap_err();
        assert_eq!(late.kind(), ErrorKind::Fenced);
        Ok::<Outcome, Failure>(done)
    };
    let id = db.client().schedule(NewTask::new("work", &7)).await.unwrap();
    let worker = db.worker().data(db.url().to_owned()).serve(Lambda::named("work", body));
    db.drain(worker).await.unwrap().assert_all_succeeded();
    assert_eq!(db.task(id).await.unwrap().output_as::<i64>(), 7);
    assert_eq!(support::purchases(&db).await, 1);
}
