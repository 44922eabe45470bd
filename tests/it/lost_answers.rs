//! A claim whose answer never reaches the worker is given back and executed.

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
