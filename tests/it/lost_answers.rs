//! A claim whose answer never reaches the worker is given back and executed.

use std::time::Duration;

use tuskline_sdk::{Client, Error, NewTask};

use super::support::{Db, Gate, Running, quick, tasks};

#[tokio::test]
async fn a_claim_whose_answer_is_lost_is_given_back_and_executed() {
    let db = Db::with_lambda("work").await;
    let gate = Gate::open();
    let worker = Running::start(&db, quick(), vec![gate.lambda("work")]);
    db.until_asleep("work").await;
    // Claimed in the worker's name in the transaction that schedules, so that nobody else can.
    db.run("begin").await;
    let ids = db.schedule_many("work", 5).await;
    let executor: i64 = db.one("select max(executor_id) from tuskline.executor").await;
    let queue = db.queue("work", "normal").await;
    let row = db
        .client
        .query_one(
            "select * from tuskline.claim($1, array[$2]::integer[], '{0}', '{1}', '{10}')",
            &[&executor, &queue],
        )
        .await
        .unwrap();
    assert_eq!(tasks(&row).len(), 5);
    db.run("commit").await;
    db.until_count("success", 5).await;
    let mut executed = gate.record().tasks();
    executed.sort_unstable();
    assert_eq!(executed, ids);
    let attempts: Vec<i16> = db.all("select distinct attempt from tuskline.task").await;
    assert_eq!(attempts, [1], "the lost claim was free of charge");
    assert_eq!(db.one::<i64>("select count(*) from tuskline.task_failure").await, 0);
    worker.stop().await;
    db.assert_nothing_left().await;
}

/// The first answer of `start` says that the attempt is not ours, as if the call had been repeated
/// after its answer was lost.
const LOSE_ONE_START: &str = "
    alter function tuskline.start(bigint, bigint[], bigint[]) rename to start_unharmed;
    create sequence tuskline_test.starts;
    create function tuskline.start(p_executor bigint, p_tasks bigint[], p_fences bigint[])
    returns bigint[] language plpgsql as $$
    declare
      v_started bigint[] := tuskline.start_unharmed(p_executor, p_tasks, p_fences);
    begin
      return case when nextval('tuskline_test.starts') = 1 then '{}' else v_started end;
    end $$";

#[tokio::test]
async fn a_suspect_whose_start_was_not_answered_is_given_back_and_executed() {
    let db = Db::with_lambda("work").await;
    db.run(LOSE_ONE_START).await;
    let id = db.schedule("work").await;
    // It was part of a worker's death: its start is reported before its body begins.
    db.run("update tuskline.task set crashes = 1").await;
    let gate = Gate::open();
    let worker = Running::start(&db, quick(), vec![gate.lambda("work")]);
    db.until_status(id, "success").await;
    assert_eq!(gate.record().tasks(), [id]);
    let attempt: i16 = db.one("select attempt from tuskline.task").await;
    assert_eq!(attempt, 1);
    worker.stop().await;
    db.assert_nothing_left().await;
}

#[tokio::test]
async fn a_call_without_an_answer_is_unknown_and_its_connection_is_not_used_again() {
    let db = Db::with_lambda("work").await;
    let client = Client::with_config(db.config.clone()).await.unwrap();
    let client = client.deadline(Duration::from_millis(300));
    let task = NewTask::new("work", &0).unwrap();
    db.run("begin; lock table tuskline.queue in access exclusive mode").await;
    let unknown = client.schedule(&task).await.unwrap_err();
    assert!(matches!(unknown, Error::Unknown(_)), "{unknown}");
    assert!(unknown.to_string().contains("no answer within 300ms"), "{unknown}");
    let sessions = "select count(*) from pg_stat_activity where datname = current_database() \
                    and application_name = 'tuskline-client'";
    db.run("commit").await;
    // It was on its way: the server goes on with it, for nobody.
    db.until("select count(*) = 1 from tuskline.task").await;
    db.until(&format!("select ({sessions}) = 0")).await;
    let second = client.schedule(&task).await.unwrap();
    assert_eq!(db.status(second.0).await, "enqueued");
    assert_eq!(db.one::<i64>(sessions).await, 1);
}
