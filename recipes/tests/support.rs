//! The parts that the tests of all recipes share.

use serde_json::json;
use tuskline_sdk::chrono::{SubsecRound, TimeDelta, Utc};
use tuskline_sdk::{
    Action, Cancelled, Chain, Code, Defined, Definition, Definitions, Error, ErrorKind, Gate,
    Limit, NewTask, OnFailure, Operation, Periodic, Priority, Status, TransactionClient, Unique,
};
use tuskline_testing::Database;

/// A database with the lambda `work` and a table of the caller.
pub async fn database() -> Database {
    let db = Database::new().await.unwrap();
    db.define(&["work"]).await.unwrap();
    db.run("create table purchase (number bigint primary key)").await.unwrap();
    db
}

pub async fn purchases(db: &Database) -> i64 {
    db.sql().query_one("select count(*) from purchase", &[]).await.unwrap().get(0)
}

/// The task that goes with a purchase.
pub fn task_of(number: i64) -> NewTask {
    let task = NewTask::new("work", &json!({ "number": number }));
    task.priority(Priority::High).collection("shop").limit_key("ada")
}

/// Only the first purchase was committed, and its task with it.
pub async fn only_the_first_is_there(db: &Database) {
    assert_eq!(purchases(db).await, 1);
    let tasks = db.tasks().await.unwrap().collection("shop").priority(Priority::High);
    tasks.with(json!({ "number": 1 })).once();
    db.tasks().await.unwrap().times(1);
}

pub fn is_an_unknown_lambda(error: &Error) {
    assert_eq!((error.kind(), error.code()), (ErrorKind::Invalid, Some(Code::UnknownLambda)));
    assert!(error.hint().unwrap().contains("define it"), "{error:?}");
}

/// Sends each type of value: texts, numbers, times, JSON, and arrays of these with nulls in them. Leaves six tasks
/// of the lambda `work`, one of them cancelled.
pub async fn every_kind_of_value(tasks: TransactionClient<'_>) {
    let at = (Utc::now() + TimeDelta::days(365)).trunc_subsecs(6);
    tasks.set_unique("work", &Unique::queued()).await.unwrap();
    tasks.set_order("work", OnFailure::Skip).await.unwrap();
    let one = NewTask::new("work", &"a \"b\" \\ {c}").at(at).unique_key("NULL");
    tasks.schedule(one).await.unwrap();
    let many = (0..3).map(|n| match n {
        0 => NewTask::new("work", &n),
        _ => NewTask::new("work", &n).ordering_key(r#"a,"b" \ {c}"#).at(at),
    });
    let ids = tasks.schedule_many(many).await.unwrap();
    assert_eq!(tasks.cancel(ids[1], Some("no need")).await.unwrap(), Cancelled::Cancelled);
    let status = tasks.status(ids[1]).await.unwrap().unwrap();
    assert_eq!((status.status, status.payload), (Status::Cancelled, Some(json!(1))));
    assert_eq!((status.due_at, &*status.ordering_key.unwrap()), (at, r#"a,"b" \ {c}"#));

    let mut chain = Chain::new();
    let [first, second] = [1, 2].map(|n| chain.task(NewTask::new("work", &n)));
    chain.after(second, first);
    assert_eq!(tasks.schedule_chain(&chain).await.unwrap().ids.len(), 2);
    let defined = Definitions::new().lambda(Definition::new("other").max_attempts(3));
    assert_eq!(tasks.define(&defined).await.unwrap()[0].lambda, "other");
    tasks.gate("work", &Gate::pause("a sale").until(at)).await.unwrap();
    let limit = tasks.set_limit("work", &Limit::concurrency(3).fair()).await.unwrap();
    tasks.set_weight(limit, "ada", 2.5).await.unwrap();
    let nightly = Periodic::new("nightly", "work", "0 3 * * *").payload(&1).ends_at(at);
    assert_eq!(tasks.define_periodic(&nightly).await.unwrap(), Defined::Defined);
    let cancel = Operation::new(Action::Cancel).tasks(&ids).statuses(&[Status::New]).limit(9);
    tasks.start_operation(&cancel.created_to(at), None).await.unwrap();
}
