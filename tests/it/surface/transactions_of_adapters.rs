//! Each verb has the same effect in a transaction of a library that the SDK does not know. Here
//! that library is tokio-postgres, which binds texts and reads bytes.

use std::time::Duration;

use chrono::{DateTime, SubsecRound, TimeDelta, Utc};
use serde_json::json;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Transaction};
use tuskline_sdk::{
    Action, Adapter, AdapterError, AdapterValue, Breaker, Cancelled, Chain, Client, Code, Defined,
    Definition, DefinitionOutcome, Definitions, ErrorKind, Gate, Limit, NewTask, On, OnFailure,
    Operation, Periodic, Priority, Retried, Status, TaskId, TaskStatus, Throttle, Unique,
};

use crate::support::Db;

pub struct Unknown<'c, 't>(pub &'c Transaction<'t>);

impl Adapter for Unknown<'_, '_> {
    async fn query(
        &mut self,
        sql: &str,
        values: Vec<Option<AdapterValue>>,
    ) -> Result<Vec<Vec<u8>>, AdapterError> {
        let values: Vec<_> = values.iter().map(|value| value as &(dyn ToSql + Sync)).collect();
        let rows = self.0.query(sql, &values).await.map_err(error)?;
        Ok(rows.iter().map(|row| row.get("answer")).collect())
    }
}

fn error(error: Error) -> AdapterError {
    match error.as_db_error() {
        Some(said) => AdapterError::refused(Some(said.code().code()), said.message(), said.hint()),
        None => AdapterError::broken(error),
    }
}

/// Texts that are special in arrays, in records or in JSON.
const AWKWARD: [&str; 5] = [r#"a,b {"c"} \d"#, "NULL", " ", "é\n\t'", "$1"];

const COLUMNS: &str = "
    select lambda, payload::text, collection, priority, ordering_key, limit_key, fairness_key,
           replace(unique_key, 'true', 'false'),
           case when due_at > created_at + '1 h' then due_at::text
                when due_at > created_at + '1.4 s' then 'after 1.5 s' end
      from tuskline.tasks where id = any ('{$ids}') order by id";

fn in_a_year() -> DateTime<Utc> {
    (Utc::now() + TimeDelta::days(365)).trunc_subsecs(6)
}

#[tokio::test]
async fn what_is_scheduled_is_the_same_to_the_last_character() {
    let db = Db::with_lambda("work").await;
    db.run("select tuskline.set_unique('work'), tuskline.set_order('work')").await;
    let at = in_a_year();
    let mut seen = Vec::new();
    for adapted in [false, true] {
        let mut client = db.connect().await;
        let mut transaction = client.transaction().await.unwrap();
        let key = |n: usize| AWKWARD[n % AWKWARD.len()];
        let alone = NewTask::new("work", &json!({ "text": AWKWARD, "number": 0.1 }))
            .collection("shop")
            .priority(Priority::High)
            .ordering_key(key(0))
            .limit_key(key(1))
            .fairness_key(key(2))
            .unique_key(format!("{}{adapted}", key(3)))
            .at(at);
        let many = |n: usize| {
            let task = NewTask::new("work", &key(n));
            match n % 3 {
                0 => task.ordering_key(key(n)).at(at),
                1 => task.limit_key(key(n)).collection("shop").after(Duration::from_millis(1_500)),
                _ => task.fairness_key(key(n)).priority(Priority::Low),
            }
        };
        let many = (0..9).map(many);
        let mut unknown = Unknown(&transaction);
        let ids = match adapted {
            true => schedule(Client::within(&mut unknown), alone, many).await,
            false => schedule(Client::within(&mut transaction), alone, many).await,
        };
        transaction.commit().await.unwrap();
        seen.push(db.lines(&COLUMNS.replace("$ids", &ids)).await);
    }
    assert_eq!(seen[0], seen[1]);
    assert_eq!(seen[0].len(), 10);
    assert_eq!(seen[0].iter().filter(|line| line.contains("after 1.5 s")).count(), 3);
}

async fn schedule(
    tasks: tuskline_sdk::TransactionClient<'_>,
    alone: NewTask,
    many: impl Iterator<Item = NewTask>,
) -> String {
    let mut ids = vec![tasks.schedule(alone).await.unwrap()];
    ids.extend(tasks.schedule_many(many).await.unwrap());
    ids.iter().map(TaskId::to_string).collect::<Vec<_>>().join(",")
}

#[tokio::test]
async fn tasks_and_chains_are_read_and_steered() {
    let db = Db::with_lambda("work").await;
    let mut client = db.connect().await;
    let mut transaction = client.transaction().await.unwrap();
    let ids;
    {
        let mut unknown = Unknown(&transaction);
        let tasks = Client::within(&mut unknown);
        ids = tasks.schedule_many((0..3).map(|n| NewTask::new("work", &n))).await.unwrap();
        assert_eq!(tasks.cancel(ids[0], Some("no \"need\"")).await.unwrap(), Cancelled::Cancelled);
        assert_eq!(tasks.cancel(TaskId(0), None).await.unwrap(), Cancelled::Unknown);
        assert!(tasks.status(TaskId(0)).await.unwrap().is_none());
        let _ = tasks.explain(ids[1]).await.unwrap();

        let mut chain = Chain::new();
        let first = chain.task(NewTask::new("work", &AWKWARD));
        let second = chain.task(NewTask::new("work", &2));
        chain.after(second, first);
        let chain = tasks.schedule_chain(&chain).await.unwrap();
        let then = tasks.schedule_then(&ids[1..2], On::Always, NewTask::new("work", &3)).await;
        let parents = tasks.parents(then.unwrap()).await.unwrap();
        assert_eq!(parents.iter().map(|parent| parent.id).collect::<Vec<_>>(), &ids[1..2]);
        assert_eq!(tasks.cancel_chain(chain.ids[1], None).await.unwrap().cancelled, 2);
        assert_eq!(tasks.retry_chain(chain.ids[0]).await.unwrap(), 2);
        assert_eq!(tasks.retry(ids[0]).await.unwrap(), Retried::Retried);
        assert_eq!(tasks.retry(ids[0]).await.unwrap(), Retried::TooEarly);
    }
    let text = |status: Option<TaskStatus>| serde_json::to_string(&status.unwrap()).unwrap();
    for id in &ids {
        let known = Client::within(&mut transaction).status(*id).await.unwrap();
        let unknown = Client::within(&mut Unknown(&transaction)).status(*id).await.unwrap();
        assert_eq!(text(unknown), text(known));
    }
}

#[tokio::test]
async fn owners_have_their_calls() {
    let db = Db::with_lambda("work").await;
    let mut client = db.connect().await;
    let transaction = client.transaction().await.unwrap();
    let mut unknown = Unknown(&transaction);
    let tasks = Client::within(&mut unknown);
    let until = in_a_year();

    assert!(tasks.define_lambda("other").await.unwrap());
    let lambdas = Definitions::of_version("1").lambda(Definition::new("third").max_attempts(3));
    let defined = tasks.define(&lambdas).await.unwrap();
    assert_eq!((&*defined[0].lambda, defined[0].outcome), ("third", DefinitionOutcome::Created));
    assert!(!defined[0].changes.is_empty());

    let gate = tasks.gate("work", &Gate::pause(AWKWARD[0]).until(until)).await.unwrap();
    assert!(tasks.ungate(gate).await.unwrap());
    let throttle = tasks.throttle("work", &Throttle::new(0.5, "slow").unseen()).await.unwrap();
    assert!(tasks.drop_limit(throttle).await.unwrap());
    let limit = tasks.set_limit("other", &Limit::concurrency(3).fair()).await.unwrap();
    tasks.set_weight(limit, AWKWARD[0], 2.5).await.unwrap();
    tasks.set_order("third", OnFailure::Block).await.unwrap();
    assert!(!tasks.unblock("third", AWKWARD[0]).await.unwrap());
    tasks.set_unique("work", &Unique::queued()).await.unwrap();
    assert!(tasks.drop_unique("work").await.unwrap());
    tasks.set_breaker("work", &Breaker::new(5, Duration::from_secs(60))).await.unwrap();
    assert!(tasks.drop_breaker("work").await.unwrap());

    let nightly = Periodic::new("nightly", "work", "0 3 * * *")
        .payload(&AWKWARD)
        .grace(Duration::from_millis(90_500))
        .ends_at(until);
    assert_eq!(tasks.define_periodic(&nightly).await.unwrap(), Defined::Defined);
    assert_eq!(tasks.define_periodic(&nightly).await.unwrap(), Defined::Unchanged);
    assert!(tasks.pause_periodic("nightly", Some(AWKWARD[0])).await.unwrap());
    assert!(tasks.resume_periodic("nightly", None).await.unwrap());
    assert!(tasks.drop_periodic("nightly", None).await.unwrap());
}

#[tokio::test]
async fn operations_have_their_calls() {
    let db = Db::with_lambda("work").await;
    let mut client = db.connect().await;
    let transaction = client.transaction().await.unwrap();
    let mut unknown = Unknown(&transaction);
    let tasks = Client::within(&mut unknown);
    let ids = tasks.schedule_many((0..3).map(|n| NewTask::new("work", &n))).await.unwrap();
    let all = Operation::new(Action::Cancel)
        .lambda("work")
        .statuses(&[Status::Enqueued, Status::New])
        .tasks(&ids)
        .created_to(in_a_year())
        .limit(2)
        .per_second(1_000.0);
    let preview = tasks.preview_operation(&all).await.unwrap();
    assert_eq!(
        (&*preview[0].lambda, preview[0].status, preview[0].tasks),
        ("work", Status::Enqueued, 2)
    );
    assert_eq!(preview[0].first_ids, &ids[..2]);
    let operation = tasks.start_operation(&all, Some(AWKWARD[0])).await.unwrap();
    assert_eq!(tasks.operation_progress(operation).await.unwrap().unwrap().looked, 0);
    assert!(tasks.stop_operation(operation).await.unwrap());
}

#[tokio::test]
async fn a_refusal_ends_the_transaction_as_without_an_adapter() {
    let db = Db::with_lambda("work").await;
    let mut client = db.connect().await;
    let transaction = client.transaction().await.unwrap();
    let mut unknown = Unknown(&transaction);
    let tasks = Client::within(&mut unknown);
    tasks.schedule(NewTask::new("work", &1)).await.unwrap();
    let refused = tasks.schedule(NewTask::new("no_such", &2)).await.unwrap_err();
    assert_eq!((refused.kind(), refused.code()), (ErrorKind::Invalid, Some(Code::UnknownLambda)));
    assert!(refused.hint().unwrap().contains("define it"), "{refused:?}");
    let after = tasks.schedule(NewTask::new("work", &3)).await.unwrap_err();
    assert_eq!(after.sqlstate(), Some("25P02"));
    transaction.commit().await.unwrap();
    assert_eq!(db.one::<i64>("select count(*) from tuskline.task").await, 0);
}
