//! A commit that a failover may lose never looks like success. The server reports it in a warning
//! when the wait for a synchronous standby is cancelled.

use std::future::Future;
use std::time::Duration;

use tokio_util::task::AbortOnDropHandle;
use tuskline_postgres::{Cluster, Stop};
use tuskline_sdk::{Client, ErrorKind, NewTask, TaskId, WorkerConfig};

use crate::support::{Answer, Db, Gate, Running, calm, own_cluster, within};

/// A cluster of the test's own, where every commit waits for a standby that does not exist.
/// Sessions that the test opens to read do not wait.
async fn waiting() -> (Cluster, Db) {
    let cluster = own_cluster().await;
    let db = Db::in_cluster(&cluster).await;
    db.define("work").await;
    commit(&db, "on").await;
    db.run("alter system set synchronous_standby_names = 'nobody'").await;
    db.run("set synchronous_commit = local; select pg_reload_conf()").await;
    until_commits_wait(&db).await;
    (cluster, db)
}

/// Waits until commits wait. The checkpointer may read the setting later than a session does.
async fn until_commits_wait(db: &Db) {
    let probe = db.connect().await;
    let commit = "select pg_logical_emit_message(true, 'probe', '')";
    let waits = format!("select count(*) = 1 {WAITERS}");
    within(async {
        loop {
            tokio::select! {
                answered = probe.batch_execute(commit) => answered.unwrap(),
                () = db.until(&waits) => break,
            }
        }
    })
    .await;
    db.run(&format!("select pg_cancel_backend(pid) {WAITERS}")).await;
    db.until(&format!("select count(*) = 0 {WAITERS}")).await;
}

/// Sets how later sessions commit. Throw-away clusters do not wait for the disk.
async fn commit(db: &Db, how: &str) {
    let name: String = db.one("select current_database()::text").await;
    db.run(&format!("alter database {name} set synchronous_commit = {how}")).await;
}

const WAITERS: &str =
    "from pg_stat_activity where datname = current_database() and wait_event = 'SyncRep'";

/// Cancels the wait of the call's commit, once it waits; returns the answer of the call.
async fn cancelled<T: Send + 'static>(
    db: &Db,
    call: impl Future<Output = T> + Send + 'static,
) -> T {
    ended(db, "pg_cancel_backend", call).await
}

async fn ended<T: Send + 'static>(
    db: &Db,
    how: &str,
    call: impl Future<Output = T> + Send + 'static,
) -> T {
    let call = AbortOnDropHandle::new(tokio::spawn(call));
    db.until(&format!("select count(*) = 1 {WAITERS}")).await;
    db.run(&format!("select {how}(pid) {WAITERS}")).await;
    within(call).await.unwrap()
}

fn doubtful<T: std::fmt::Debug>(answer: Result<T, tuskline_sdk::Error>) {
    let said = answer.expect_err("it is in doubt");
    let expected = "unknown outcome: committed, but the wait for a synchronous standby was cancelled: a failover may lose it";
    assert_eq!(said.kind(), ErrorKind::Unknown, "{said:?}");
    assert_eq!(said.to_string(), expected);
}

fn task() -> NewTask {
    NewTask::new("work", &7)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_wait_for_a_standby_is_unknown_and_no_success() {
    let (mut cluster, db) = waiting().await;
    let client = Client::connect(db.config.clone()).await.unwrap();
    let with = || client.clone();
    let one = with();
    doubtful(cancelled(&db, async move { one.schedule(&task()).await }).await);
    assert_eq!(db.count("enqueued").await, 1, "it is there, though");
    let many = with();
    doubtful(cancelled(&db, async move { many.schedule_many(&[task(), task()]).await }).await);
    assert_eq!(db.count("enqueued").await, 3);
    let id: i64 = db.one("select min(id) from tuskline.task").await;
    let cancelling = with();
    doubtful(cancelled(&db, async move { cancelling.cancel(TaskId(id), None).await }).await);
    assert_eq!(db.status(id).await, "cancelled");
    let defining = with();
    doubtful(cancelled(&db, async move { defining.define_lambda("more").await }).await);
    // An uncertain commit concerns only its own call.
    let read = within(client.status(TaskId(id))).await.unwrap();
    assert!(read.is_some());
    db.run("alter system set synchronous_standby_names = ''").await;
    db.run("select pg_reload_conf()").await;
    db.until("select current_setting('synchronous_standby_names') = ''").await;
    within(client.schedule(&task())).await.unwrap();
    drop(client);
    cluster.stop(Stop::Immediate).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_ended_while_it_waits_for_a_standby_is_unknown_too() {
    let (mut cluster, db) = waiting().await;
    let client = Client::connect(db.config.clone()).await.unwrap();
    let one = client.clone();
    let call = async move { one.schedule(&task()).await };
    let said = ended(&db, "pg_terminate_backend", call).await.unwrap_err();
    assert_eq!(said.kind(), ErrorKind::Unknown, "{said:?}");
    assert_eq!(db.count("enqueued").await, 1, "it is there, though");
    drop(client);
    cluster.stop(Stop::Immediate).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_of_the_callers_own_can_be_asked_after() {
    let (mut cluster, db) = waiting().await;
    let client = Client::connect(db.config.clone()).await.unwrap();
    let mut connection = client.connection().await.unwrap();
    let (connection, answers) = cancelled(&db, async move {
        let before = connection.confirm();
        let mut transaction = connection.transaction().await.unwrap();
        Client::within(&mut transaction).schedule(&task()).await.unwrap();
        transaction.commit().await.unwrap();
        let answers = [before, connection.confirm(), connection.confirm()];
        (connection, answers)
    })
    .await;
    let [before, after, asked_again] = answers;
    assert!(before.is_ok() && asked_again.is_ok());
    doubtful(after);
    assert_eq!(db.count("enqueued").await, 1);
    drop((connection, client));
    cluster.stop(Stop::Immediate).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_warning_of_another_kind_is_no_doubt() {
    let db = Db::with_lambda("work").await;
    // The warning has the words of the server, but comes from a trigger.
    db.run(
        "create function tuskline_test.warn() returns trigger language plpgsql as
           $$ begin raise warning 'canceling wait for synchronous replication due to user request'; return null; end $$;
         create trigger warn after insert on tuskline.task for each statement execute function tuskline_test.warn()",
    )
    .await;
    let client = Client::connect(db.config.clone()).await.unwrap();
    client.schedule(&task()).await.unwrap();
}

/// Counts the calls with results, and makes the first of them wait for the standby.
const WATCH_RESULTS: &str = "
    create table tuskline_test.sent (task bigint);
    alter function tuskline_core.record_results(bigint, bigint[], bigint[], json, bigint[]) rename to record_results_unharmed;
    create function tuskline_core.record_results(
      p_executor bigint, p_tasks bigint[], p_fences bigint[], p_notes json, p_done_leases bigint[])
    returns bigint[] language plpgsql as $$
    begin
      if cardinality(p_tasks) > 0 and not exists (select from tuskline_test.sent) then
        perform set_config('synchronous_commit', 'on', true);
      end if;
      insert into tuskline_test.sent select unnest(p_tasks);
      return tuskline_core.record_results_unharmed(p_executor, p_tasks, p_fences, p_notes, p_done_leases);
    end $$";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn results_committed_in_doubt_are_sent_again() {
    let (mut cluster, db) = waiting().await;
    db.run(WATCH_RESULTS).await;
    commit(&db, "local").await;
    let gate = Gate::open();
    let sdk_worker = Running::start(&db, calm(), vec![gate.lambda("work")]);
    let first = db.schedule("work").await;
    db.until(&format!("select count(*) = 1 {WAITERS}")).await;
    db.run(&format!("select pg_cancel_backend(pid) {WAITERS}")).await;
    db.until("select count(*) = 2 from tuskline_test.sent").await;
    let second = db.schedule("work").await;
    db.until_status(second, "success").await;
    let sent: Vec<i64> = db.all("select task from tuskline_test.sent").await;
    assert_eq!(sent, [first, first, second], "again once, and what is not in doubt once");
    assert_eq!(
        (gate.record().tasks(), db.status(first).await.as_str()),
        (vec![first, second], "success")
    );
    sdk_worker.stop().await;
    db.assert_nothing_left().await;
    cluster.stop(Stop::Immediate).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_changes_nothing_waits_for_the_standby_too() {
    let (mut cluster, db) = waiting().await;
    commit(&db, "local").await;
    db.schedule_many("work", 2).await;
    let worker = db.worker("work").await;
    let [done, open] = worker.claim(2).await.try_into().expect("two");
    assert_eq!(worker.succeed(&done).await, Answer::Accepted);
    commit(&db, "on").await;
    let (executor, fence) = (worker.executor, done.fence);
    let results = |task: i64, fence: i64| format!("{executor}, array[{task}], array[{fence}]");
    let note =
        format!("[{{\"task\":{},\"fence\":{},\"status\":\"fatal_failure\"}}]", open.id, fence + 1);
    let calls = [
        // The call is repeated after an uncertain commit: the effect of the first call is no proof.
        (format!("tuskline.set_results({})", results(done.id, fence)), vec![]),
        // A demoted primary does not know the attempt.
        (format!("tuskline.set_results({})", results(open.id, fence + 1)), vec![open.id]),
        (format!("tuskline.set_results({executor}, '{{}}', '{{}}', '{note}')"), vec![open.id]),
        (
            format!(
                "(tuskline.exchange({}, null, null, '{{}}', '{{}}', '{{}}', '{{}}')).refused",
                results(open.id, fence + 1)
            ),
            vec![open.id],
        ),
        (format!("(tuskline.release({})).released", results(open.id, fence + 1)), vec![]),
        (format!("tuskline.start({})", results(open.id, fence + 1)), vec![]),
    ];
    for (call, expected) in calls {
        let session = db.connect().await;
        let sql = format!("select {call}");
        let asking = async move { session.query_one(&sql, &[]).await.unwrap().get(0) };
        let answer: Vec<i64> = cancelled(&db, asking).await;
        assert_eq!(answer, expected, "{call}");
    }
    assert_eq!(db.status(open.id).await, "claimed");
    cluster.stop(Stop::Immediate).await.unwrap();
}

/// The first release, and the first heartbeat, waits for the standby; both are counted.
const WATCH_CALLS: &str = "
    create sequence tuskline_test.releases;
    create sequence tuskline_test.beats;
    alter function tuskline.release(bigint, bigint[], bigint[], bigint[]) rename to release_unharmed;
    create function tuskline.release(
      p_executor bigint, p_tasks bigint[], p_fences bigint[], p_done_leases bigint[] default null,
      out released bigint[], out deferred bigint[]) language plpgsql as $$
    begin
      if nextval('tuskline_test.releases') = 1 then
        perform set_config('synchronous_commit', 'on', true);
      end if;
      select r.released, r.deferred into released, deferred
        from tuskline.release_unharmed(p_executor, p_tasks, p_fences, p_done_leases) r;
    end $$;
    create function tuskline_test.wait() returns trigger language plpgsql as $$
    begin
      if nextval('tuskline_test.beats') = 1 then
        perform set_config('synchronous_commit', 'on', true);
      end if;
      return null;
    end $$;
    create trigger wait after update of beats on tuskline.executor
      for each row execute function tuskline_test.wait()";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_given_back_in_doubt_is_given_back_again() {
    let (mut cluster, db) = waiting().await;
    db.run(WATCH_CALLS).await;
    commit(&db, "local").await;
    let gate = Gate::new();
    let mut config = calm();
    config.drain_grace = Duration::from_millis(300);
    db.run("select nextval('tuskline_test.beats')").await;
    let sdk_worker = Running::start(&db, config, vec![gate.lambda("work")]);
    let id = db.schedule("work").await;
    gate.next().await;
    sdk_worker.tell_to_stop();
    db.until(&format!("select count(*) = 1 {WAITERS}")).await;
    db.run(&format!("select pg_cancel_backend(pid) {WAITERS}")).await;
    sdk_worker.stop().await;
    assert_eq!(db.one::<i64>("select last_value from tuskline_test.releases").await, 2);
    assert_eq!(db.status(id).await, "enqueued");
    cluster.stop(Stop::Immediate).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_heartbeat_in_doubt_is_sent_again_and_counts_for_nothing() {
    let (mut cluster, db) = waiting().await;
    db.run(WATCH_CALLS).await;
    commit(&db, "local").await;
    let gate = Gate::open();
    let sdk_worker = Running::start(
        &db,
        WorkerConfig::with_heartbeat(Duration::from_secs(600)),
        vec![gate.lambda("work")],
    );
    db.until(&format!("select count(*) = 1 {WAITERS}")).await;
    db.run(&format!("select pg_cancel_backend(pid) {WAITERS}")).await;
    // The heartbeat is repeated well before ten minutes: a promoted standby does not know the
    // first.
    db.until("select last_value = 2 from tuskline_test.beats").await;
    sdk_worker.stop().await;
    cluster.stop(Stop::Immediate).await.unwrap();
}
