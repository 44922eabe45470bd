//! A claim whose answer never reaches the worker is released and executed. No process waits for
//! ever for a silent server.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::net::UnixStream;
use tokio_postgres::Config;
use tuskline::session::{Deadlines, ErrorChain, Session};
use tuskline_sdk::{Client, ErrorKind, NewTask, Worker};

use crate::support::{Db, Gate, Running, quick, tasks, within};

#[tokio::test]
async fn a_claim_whose_answer_is_lost_is_given_back_and_executed() {
    let db = Db::with_lambda("work").await;
    let gate = Gate::open();
    let worker = Running::start(&db, quick(), vec![gate.lambda("work")]);
    db.until_asleep("work").await;
    // The test claims in the worker's name in the transaction that schedules, so no other session
    // can claim.
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

/// The first answer of `start` refuses the attempt, as if the call had been repeated after its
/// answer was lost.
const LOSE_ONE_START: &str = "
    alter function tuskline.start(bigint, bigint[], bigint[], integer[]) rename to start_unharmed;
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
    // The task is a suspect of a crash: its start is reported before its body begins.
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
    let client = Client::connect(db.config.clone()).await.unwrap();
    let client = client.with_deadline(Duration::from_millis(300));
    let task = NewTask::new("work", &0);
    db.run("begin; lock table tuskline.queue in access exclusive mode").await;
    let unknown = client.schedule(&task).await.unwrap_err();
    assert_eq!(unknown.kind(), ErrorKind::Unknown, "{unknown}");
    assert!(unknown.to_string().contains("no answer within 300ms"), "{unknown}");
    let sessions = "select count(*) from pg_stat_activity where datname = current_database() \
                    and application_name = 'tuskline-client'";
    db.run("commit").await;
    // The call had reached the server, which carries it out without a reader.
    db.until("select count(*) = 1 from tuskline.task").await;
    db.until(&format!("select ({sessions}) = 0")).await;
    let second = client.schedule(&task).await.unwrap();
    assert_eq!(db.status(second.0).await, "enqueued");
    assert_eq!(db.one::<i64>(sessions).await, 1);
}

/// Opens the server on a loopback port; returns how many more connections it answers. Further
/// connections are accepted and hear nothing.
async fn through_a_port(db: &Db) -> (Config, Arc<AtomicUsize>) {
    let (listener, config, socket) = db.port().await;
    let left = Arc::new(AtomicUsize::new(usize::MAX));
    let answers = Arc::clone(&left);
    tokio::spawn(async move {
        let mut silent = Vec::new();
        loop {
            let (mut here, _) = listener.accept().await.unwrap();
            let one_less = |left: usize| left.checked_sub(1);
            if answers.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less).is_err() {
                silent.push(here);
                continue;
            }
            let mut there = UnixStream::connect(&socket).await.unwrap();
            tokio::spawn(async move {
                let _ = tokio::io::copy_bidirectional(&mut here, &mut there).await;
            });
        }
    });
    (config, left)
}

#[tokio::test]
async fn a_server_that_accepts_and_never_answers_is_given_up() {
    let db = Db::new().await;
    let (mut config, left) = through_a_port(&db).await;
    left.store(0, Ordering::SeqCst);
    config.connect_timeout(Duration::from_millis(50));
    let opened = within(Session::open(&config, "test", Deadlines::USUAL)).await;
    let said = ErrorChain(&opened.unwrap_err()).to_string();
    assert!(said.contains("no answer within 100ms"), "{said}");
}

#[tokio::test]
async fn a_host_that_accepts_and_never_answers_leaves_the_next_its_turn() {
    let mut db = Db::with_lambda("work").await;
    let (mut both, left) = through_a_port(&db).await;
    left.store(0, Ordering::SeqCst);
    let (answers, _) = through_a_port(&db).await;
    both.host("127.0.0.1").port(answers.get_ports()[0]);
    let mut hurried = both.clone();
    hurried.connect_timeout(Duration::from_millis(400)); // also enough for the other one, under load

    let opened = within(Session::open(&hurried, "test", Deadlines::USUAL)).await.unwrap();
    assert_eq!(opened.client().query_one("select 1", &[]).await.unwrap().get::<_, i32>(0), 1);
    let client = within(Client::connect(hurried)).await.unwrap();
    let task = client.schedule(&NewTask::new("work", &())).await.unwrap();
    let mut config = quick();
    config.request_timeout = Duration::from_secs(3);
    let direct = std::mem::replace(&mut db.config, both);
    let worker = Running::start(&db, config, vec![Gate::open().lambda("work")]);
    db.config = direct;
    db.until_status(task.0, "success").await;
    worker.stop().await;
}

#[tokio::test]
async fn a_drain_ends_although_new_connections_are_never_answered() {
    let mut db = Db::with_lambda("work").await;
    let (config, left) = through_a_port(&db).await;
    let direct = std::mem::replace(&mut db.config, config);
    let mut config = quick();
    config.request_timeout = Duration::from_secs(3);
    let worker = Running::start(&db, config, vec![Gate::open().lambda("work")]);
    db.config = direct;
    db.until_asleep("work").await;
    left.store(0, Ordering::SeqCst);
    let side: i64 = db
        .one(
            "select count(pg_terminate_backend(pid)) from pg_stat_activity
              where datname = current_database() and query like '%max_attempts%'
                and pid <> pg_backend_pid()",
        )
        .await;
    assert_eq!(side, 1);
    worker.stop().await;
    // The worker could not report its end, so its lease expires.
    let ended: bool = db.one("select ended_at is not null from tuskline.executor").await;
    assert!(!ended);
}

#[tokio::test]
async fn a_worker_that_is_not_answered_does_not_start() {
    let db = Db::with_lambda("work").await;
    // The client gets an answer; then, one by one, the worker's own connections do.
    for answered in 1..=2 {
        let (config, left) = through_a_port(&db).await;
        left.store(answered, Ordering::SeqCst);
        let mut timings = quick();
        timings.request_timeout = Duration::from_millis(500);
        let worker = Worker::builder(config).config(timings).serve(Gate::open().lambda("work"));
        let refused = within(worker.until(std::future::pending()).run()).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");
    }
}

/// The first results, the first release and a suspect's first start get the answer of a server that
/// knows none of their attempts. A demoted primary answers like that. A heartbeat starts running
/// tasks, too, perhaps before the suspect's own start.
const ANSWER_AS_A_STRANGER: &str = "
    create sequence tuskline_test.refusals;
    create sequence tuskline_test.starts;
    create sequence tuskline_test.releases;
    alter function tuskline_core.record_results(bigint, bigint[], bigint[], json, bigint[]) rename to record_results_unharmed;
    create function tuskline_core.record_results(
      p_executor bigint, p_tasks bigint[], p_fences bigint[], p_notes json, p_done_leases bigint[])
    returns bigint[] language plpgsql as $$
    begin
      if cardinality(p_tasks) > 0 and nextval('tuskline_test.refusals') = 1 then return p_tasks; end if;
      return tuskline_core.record_results_unharmed(p_executor, p_tasks, p_fences, p_notes, p_done_leases);
    end $$;
    alter function tuskline.start(bigint, bigint[], bigint[], integer[]) rename to start_unharmed;
    create function tuskline.start(p_executor bigint, p_tasks bigint[], p_fences bigint[])
    returns bigint[] language plpgsql as $$
    begin
      if exists (select from tuskline.task where id = any (p_tasks) and crashes > 0) then
        if nextval('tuskline_test.starts') = 1 then return '{}'; end if;
      end if;
      return tuskline.start_unharmed(p_executor, p_tasks, p_fences);
    end $$;
    alter function tuskline.release(bigint, bigint[], bigint[], bigint[]) rename to release_unharmed;
    create function tuskline.release(
      p_executor bigint, p_tasks bigint[], p_fences bigint[], p_done_leases bigint[] default null,
      out released bigint[], out deferred bigint[]) language plpgsql as $$
    begin
      released := '{}'; deferred := '{}';
      if nextval('tuskline_test.releases') > 1 then
        select r.released, r.deferred into released, deferred
          from tuskline.release_unharmed(p_executor, p_tasks, p_fences, p_done_leases) r;
      end if;
    end $$";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_whose_result_was_refused_beside_the_rest_of_its_lease_is_not_lost() {
    let db = Db::with_lambda("work").await;
    db.run(ANSWER_AS_A_STRANGER).await;
    db.run("select nextval('tuskline_test.starts'), nextval('tuskline_test.releases')").await;
    let gate = Gate::new();
    let worker = Running::start(&db, quick(), vec![gate.lambda("work")]);
    db.until_asleep("work").await;
    let ids = db.schedule_many("work", 2).await;
    gate.next_many(2).await;
    assert_eq!(db.one::<i64>("select count(*) from tuskline.lease").await, 1);
    gate.let_pass(1);
    db.until("select is_called from tuskline_test.refusals").await;
    // This task is the last of its lease, as far as the worker knows.
    gate.let_pass(1);
    db.until_count("success", 1).await;
    gate.open_for_good();
    db.until_count("success", 2).await;
    assert_eq!(gate.record().executions().len(), 3, "the one without a recorded result, again");
    assert_eq!(db.count("success").await, i64::try_from(ids.len()).unwrap());
    worker.stop().await;
    db.assert_nothing_left().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_was_not_returned_with_the_rest_of_its_lease_is_not_lost() {
    let db = Db::with_lambda("work").await;
    db.run(ANSWER_AS_A_STRANGER).await;
    db.run("select nextval('tuskline_test.refusals')").await;
    let gate = Gate::new();
    // The second task is a suspect of a crash. Its start is reported and refused, and the worker
    // releases it.
    db.run("begin").await;
    let ids = db.schedule_many("work", 2).await;
    db.run(&format!("update tuskline.task set crashes = 1 where id = {}", ids[1])).await;
    db.run("commit").await;
    let worker = Running::start(&db, quick(), vec![gate.lambda("work")]);
    gate.next().await;
    db.until("select is_called from tuskline_test.releases").await;
    gate.let_pass(1);
    db.until_status(ids[0], "success").await;
    gate.open_for_good();
    db.until_status(ids[1], "success").await;
    assert_eq!(gate.record().tasks(), ids, "each once");
    worker.stop().await;
    db.assert_nothing_left().await;
}
