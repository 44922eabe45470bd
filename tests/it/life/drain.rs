//! A worker that drains claims nothing more, releases tasks that have not begun, and finishes the
//! tasks that have. It leaves no lease behind.

use std::os::unix::process::ExitStatusExt as _;
use std::time::Duration;

use rustix::process::Signal;
use tokio_util::sync::CancellationToken;
use tuskline_sdk::Worker;

use crate::support::{DEADLINE, Db, Gate, Process, Running, calm, quick, within};

#[tokio::test]
async fn sigterm_drains_a_worker() {
    let db = Db::with_lambda("work").await;
    let mut worker = Process::draining_within(&db, "work", 1, DEADLINE);
    let executor = worker.executor(&db).await;
    let first = db.schedule_with("work", r#""go""#).await;
    db.until_status(first, "success").await;
    // The first task runs; the other two wait in the worker.
    let ids = db.schedule_many("work", 3).await;
    worker.record().until_begun(2).await;
    db.until("select count(*) = 3 from tuskline.task where status in ('claimed', 'processing')")
        .await;
    worker.signal(Signal::TERM);
    for id in &ids[1..] {
        db.until_status(*id, "enqueued").await;
    }
    let charged: i64 = db
        .one("select count(*) from tuskline.task where status = 'enqueued' and (attempt, crashes) <> (0, 0)")
        .await;
    assert_eq!(charged, 0);
    assert_eq!(db.queued().await, 2);
    db.until(&format!(
        "select draining and ended_at is null from tuskline.executor where executor_id = {executor}"
    ))
    .await;
    let late = db.schedule("work").await;
    worker.open();
    assert!(worker.ended().await.success(), "{}", worker.said());
    assert_eq!(db.status(ids[0]).await, "success");
    assert_eq!(db.status(late).await, "enqueued");
    assert_eq!(worker.record().tasks(), [first, ids[0]]);
    let reason: String = db
        .ask("select end_reason from tuskline.executor where executor_id = $1", &[&executor])
        .await;
    assert_eq!(reason, "stopped");
    assert_eq!(db.one::<i64>("select count(*) from tuskline.lease").await, 0);
}

#[tokio::test]
async fn a_task_that_outlasts_the_grace_is_told_to_stop_and_given_back() {
    let db = Db::with_lambda("work").await;
    let mut worker = Process::draining_within(&db, "work", 2, Duration::from_millis(50));
    let heeding = db.schedule("work").await;
    let stubborn = db.schedule_with("work", r#""stubborn""#).await;
    worker.record().until_begun(2).await;
    worker.signal(Signal::TERM);
    assert!(worker.ended().await.success(), "{}", worker.said());
    for id in [heeding, stubborn] {
        assert_eq!(db.status(id).await, "enqueued");
        assert_eq!(db.failures(id).await, []);
    }
    assert_eq!(worker.record().ended(), 2);
    assert_eq!(db.queued().await, 2);
    assert_eq!(db.one::<i64>("select count(*) from tuskline.lease").await, 0);
}

#[tokio::test]
async fn a_body_that_does_not_yield_ends_the_process_with_it() {
    let db = Db::with_lambda("work").await;
    let mut worker = Process::draining_within(&db, "work", 1, Duration::from_millis(50));
    let executor = worker.executor(&db).await;
    let stuck = db.schedule_with("work", r#""stuck""#).await;
    worker.record().until_begun(1).await;
    worker.signal(Signal::TERM);
    assert_eq!(worker.ended().await.signal(), Some(9), "{}", worker.said());
    assert!(worker.said().contains(&format!("task {stuck} ignored")), "{}", worker.said());
    // The task runs again only after this worker is known to be dead.
    let held: bool = db
        .ask(
            "select ended_at is null and exists (select from tuskline.lease
               where executor_id = e.executor_id)
               from tuskline.executor e where executor_id = $1",
            &[&executor],
        )
        .await;
    assert!(held);
    assert_ne!(db.status(stuck).await, "enqueued");
}

#[tokio::test]
async fn a_drain_does_not_wait_for_anything_but_the_bodies() {
    let db = Db::with_lambda("work").await;
    let mut config = calm();
    config.drain_grace = Duration::from_millis(50);
    // The timeout exceeds the test's deadline: a drain would wait so long for an exchange
    // connection left behind.
    config.request_timeout = Duration::from_secs(300);
    let gate = Gate::new();
    let worker = Running::start(&db, config, vec![gate.lambda("work")]);
    let id = db.schedule("work").await;
    gate.next().await;
    worker.stop().await;
    assert_eq!(db.status(id).await, "enqueued");
}

#[tokio::test]
async fn a_drain_waits_for_the_second_attempt_when_the_first_of_the_same_task_has_ended() {
    let db = Db::with_lambda("work").await;
    let gate = Gate::new();
    let worker = Running::start(&db, quick(), vec![gate.lambda("work").slots(2)]);
    let id = db.schedule("work").await;
    let first = gate.next().await.context;
    // The release imitates a failover that lost the claim.
    let executor: i64 = db.one("select max(executor_id) from tuskline.executor").await;
    let released = format!(
        "select cardinality(deferred) = 0 from tuskline.release({executor}, '{{{id}}}', '{{{}}}', '{{}}')",
        first.fence().0
    );
    assert!(db.one::<bool>(&released).await);
    let second = gate.next().await.context;
    assert_eq!((second.task().0, second.fence() > first.fence()), (id, true));
    gate.let_pass(1);
    gate.record().until(|all| all.iter().any(|one| one.ended_ns.is_some())).await;
    worker.tell_to_stop();
    db.until(&format!(
        "select draining or ended_at is not null from tuskline.executor where executor_id = {executor}"
    ))
    .await;
    gate.let_pass(1);
    worker.stop().await;
    assert_eq!(db.status(id).await, "success");
    assert_eq!(db.one::<i64>("select count(*) from tuskline.lease").await, 0);
}

#[tokio::test]
async fn durations_of_ages_are_waited_for_without_an_overflow() {
    let db = Db::with_lambda("work").await;
    let ages = Duration::MAX;
    let mut config = quick();
    config.request_timeout = ages;
    config.buffer_target = ages;
    config.linger = ages;
    config.safety_poll = ages;
    config.busy_poll = ages;
    config.priority_ageing = ages;
    config.drain_grace = ages;
    config.cancel_grace = ages;
    let gate = Gate::new();
    let worker = Running::start(&db, config, vec![gate.lambda("work").slots(1)]);
    let id = db.schedule("work").await;
    gate.next().await;
    // A heartbeat has passed. Each heartbeat checks for bodies that outlast their graces.
    db.until_status(id, "processing").await;
    worker.tell_to_stop();
    db.until("select draining from tuskline.executor").await;
    gate.let_pass(1);
    worker.stop().await;
    assert_eq!(db.status(id).await, "success");
}

/// The answer to the second claim that brings tasks is one that no exchange connection can read.
const SPOIL_A_CLAIM: &str = "
    alter function tuskline.exchange rename to exchange_unharmed;
    create sequence tuskline_test.claims;
    create function tuskline.exchange(
      p_executor bigint, p_tasks bigint[], p_fences bigint[], p_notes json, p_done_leases bigint[],
      p_queues integer[], p_marks bigint[], p_groups smallint[], p_budgets integer[], p_bounds integer[],
      p_max_bytes bigint)
    returns tuskline_core.exchanged language plpgsql as $$
    declare
      v tuskline_core.exchanged := tuskline.exchange_unharmed(p_executor, p_tasks, p_fences, p_notes, p_done_leases,
        p_queues, p_marks, p_groups, p_budgets, p_bounds, p_max_bytes);
    begin
      if v.lease_id is not null and nextval('tuskline_test.claims') = 2 then
        v.refused := null;
      end if;
      return v;
    end $$";

#[tokio::test]
async fn a_worker_that_loses_an_exchange_connection_drains_and_says_so() {
    let db = Db::with_lambda("work").await;
    db.run(SPOIL_A_CLAIM).await;
    let gate = Gate::new();
    let mut config = quick();
    // The drain does not wait for the requests that were under way on that connection.
    config.drain_grace = Duration::MAX;
    let token = CancellationToken::new();
    let worker = Worker::builder(db.config.clone())
        .config(config)
        .serve(gate.lambda("work").slots(2))
        .until(token.clone().cancelled_owned())
        .on_lost(|_| ());
    let run = tokio::spawn(worker.run());
    let first = db.schedule("work").await;
    gate.next().await;
    db.schedule("work").await;
    db.until("select draining from tuskline.executor").await;
    assert!(!token.is_cancelled(), "that is the caller's");
    gate.let_pass(1);
    let said = within(run).await.unwrap().unwrap_err().to_string();
    assert!(said.contains("an exchange connection of the worker ended before"), "{said}");
    assert_eq!(db.status(first).await, "success");
    let reason: String = db.one("select end_reason from tuskline.executor").await;
    assert_eq!(reason, "stopped");
}

#[tokio::test]
async fn an_idle_worker_ends_at_once() {
    let db = Db::with_lambda("work").await;
    let worker = Running::start(&db, calm(), vec![Gate::open().lambda("work")]);
    db.until_asleep("work").await;
    worker.stop().await;
    let reasons: Vec<String> = db.all("select end_reason from tuskline.executor").await;
    assert_eq!(reasons, ["stopped"]);
}

#[tokio::test]
async fn workers_that_come_and_go_lose_nothing() {
    let db = Db::with_lambda("work").await;
    let _consumer = db.store_consumer();
    let gate = Gate::open();
    let ids = db.schedule_many("work", 2_000).await;
    for round in 1..=5 {
        let worker = Running::start(&db, calm(), vec![gate.lambda("work").slots(4)]);
        db.until_count("success", round * 100).await;
        worker.stop().await;
        let held: i64 = db
            .one("select count(*) from tuskline.task where status in ('claimed', 'processing')")
            .await;
        assert_eq!(held, 0);
    }
    let worker = Running::start(&db, calm(), vec![gate.lambda("work").slots(4)]);
    db.until_count("success", ids.len()).await;
    worker.stop().await;
    assert_eq!(gate.record().ended(), ids.len());
    db.assert_nothing_left().await;
}
