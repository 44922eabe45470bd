//! A commit that a failover may lose never looks like success: the server says so in a warning when
//! somebody cancels the wait for a synchronous standby.

use std::future::Future;

use tokio_util::task::AbortOnDropHandle;
use tuskline::embedded::{Cluster, Stop};
use tuskline_sdk::{Client, Error, NewTask, TaskId};

use crate::support::{Db, Gate, Running, calm, own_cluster, within};

/// A cluster of the test's own whose every commit waits for a standby that does not exist, but for
/// those of sessions that the test opens to look.
async fn waiting() -> (Cluster, Db) {
    let cluster = own_cluster().await;
    let db = Db::in_cluster(&cluster).await;
    db.define("work").await;
    commit(&db, "on").await;
    db.run("alter system set synchronous_standby_names = 'nobody'").await;
    db.run("set synchronous_commit = local; select pg_reload_conf()").await;
    db.until("select current_setting('synchronous_standby_names') = 'nobody'").await;
    (cluster, db)
}

/// How sessions commit that begin from now on. Throw-away clusters do not wait for anything.
async fn commit(db: &Db, how: &str) {
    let name: String = db.one("select current_database()::text").await;
    db.run(&format!("alter database {name} set synchronous_commit = {how}")).await;
}

const WAITERS: &str =
    "from pg_stat_activity where datname = current_database() and wait_event = 'SyncRep'";

/// Cancels the wait of the call's commit, once it is there; what the call answered.
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

fn doubtful<T: std::fmt::Debug>(answer: Result<T, Error>) {
    let said = answer.expect_err("it is in doubt");
    let expected = "unknown outcome: committed, but the wait for a synchronous standby was cancelled: a failover may lose it";
    assert!(matches!(said, Error::Unknown(_)), "{said:?}");
    assert_eq!(said.to_string(), expected);
}

fn task() -> NewTask {
    NewTask::new("work", &7).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_wait_for_a_standby_is_unknown_and_no_success() {
    let (mut cluster, db) = waiting().await;
    let client = Client::with_config(db.config.clone()).await.unwrap();
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
    // A doubt belongs to the call it came with.
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
    let client = Client::with_config(db.config.clone()).await.unwrap();
    let one = client.clone();
    let call = async move { one.schedule(&task()).await };
    let said = ended(&db, "pg_terminate_backend", call).await.unwrap_err();
    assert!(matches!(said, Error::Unknown(_)), "{said:?}");
    assert_eq!(db.count("enqueued").await, 1, "it is there, though");
    drop(client);
    cluster.stop(Stop::Immediate).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_of_the_callers_own_can_be_asked_after() {
    let (mut cluster, db) = waiting().await;
    let client = Client::with_config(db.config.clone()).await.unwrap();
    let mut connection = client.connection().await.unwrap();
    let (connection, answers) = cancelled(&db, async move {
        let before = connection.confirm();
        let transaction = connection.transaction().await.unwrap();
        Client::within(&*transaction).schedule(&task()).await.unwrap();
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
    // In the words of the server, from another place.
    db.run(
        "create function tuskline_test.warn() returns trigger language plpgsql as
           $$ begin raise warning 'canceling wait for synchronous replication due to user request'; return null; end $$;
         create trigger warn after insert on tuskline.task for each statement execute function tuskline_test.warn()",
    )
    .await;
    let client = Client::with_config(db.config.clone()).await.unwrap();
    client.schedule(&task()).await.unwrap();
}

/// Counts the calls with results, and makes the first of them wait for the standby.
const WATCH_RESULTS: &str = "
    create table tuskline_test.sent (task bigint);
    alter function tuskline.record_results(bigint, bigint[], bigint[], json, bigint[]) rename to record_results_unharmed;
    create function tuskline.record_results(
      p_executor bigint, p_tasks bigint[], p_fences bigint[], p_notes json, p_done_leases bigint[])
    returns bigint[] language plpgsql as $$
    begin
      if cardinality(p_tasks) > 0 and not exists (select from tuskline_test.sent) then
        perform set_config('synchronous_commit', 'on', true);
      end if;
      insert into tuskline_test.sent select unnest(p_tasks);
      return tuskline.record_results_unharmed(p_executor, p_tasks, p_fences, p_notes, p_done_leases);
    end $$";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn results_committed_in_doubt_are_sent_again() {
    let (mut cluster, db) = waiting().await;
    db.run(WATCH_RESULTS).await;
    commit(&db, "local").await;
    let gate = Gate::open();
    let worker = Running::start(&db, calm(), vec![gate.lambda("work")]);
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
    worker.stop().await;
    db.assert_nothing_left().await;
    cluster.stop(Stop::Immediate).await.unwrap();
}
