//! Queues share bells. The number of locks and channels of a worker is bounded, and no task is late
//! for it.

use std::time::Duration;

use tuskline_sdk::Lambda;

use crate::support::{Db, Gate, Running, calm};

/// The safety poll comes every five seconds, its longest interval. Before it, only a notification
/// can wake a worker.
fn never_polls() -> tuskline_sdk::WorkerConfig {
    let mut config = calm();
    config.safety_poll = Duration::from_secs(3_600);
    config
}

/// Lambdas `work_<first>` to `work_<last - 1>`, four queues each.
async fn define(db: &Db, first: usize, last: usize) {
    for from in (first..last).step_by(20) {
        let to = (from + 20).min(last) - 1;
        db.run(&format!(
            "select tuskline.define_lambda('work_' || n) from generate_series({from}, {to}) as n"
        ))
        .await;
    }
}

/// The queues of `work_0` and `work_64` share bells.
async fn sharing() -> Db {
    let db = Db::new().await;
    define(&db, 0, 65).await;
    let together = "select count(distinct tuskline.bell_of(queue_id)) = 4 and count(*) = 8
                      from tuskline.queue where lambda in ('work_0', 'work_64')";
    assert!(db.one::<bool>(together).await);
    db
}

const LOCKS: &str = "from pg_locks where locktype = 'advisory' and classid = 1953854315
    and mode = 'ExclusiveLock' and granted
    and database = (select oid from pg_database where datname = current_database())";

/// The locks are those of the bells that SQL computes, so SQL and Rust compute the same bells.
#[tokio::test]
async fn what_an_idle_worker_locks_and_asks_does_not_grow_with_its_queues() {
    let db = Db::new().await;
    let gate = Gate::open();
    // The test does not count transactions: an idle session begins one for each signal that other
    // tests cause.
    let calls = "select sum(calls)::bigint from pg_stat_user_functions where schemaname in ('tuskline', 'tuskline_core')
        and funcname in ('peek', 'watch', 'unwatch', 'claim', 'exchange', 'set_results', 'heartbeat')";
    let name: String = db.one("select current_database()::text").await;
    db.run(&format!("alter database {name} set track_functions = 'pl'")).await;
    let mut defined = 0;
    for lambdas in [1, 100, 300] {
        define(&db, defined, lambdas).await;
        defined = lambdas;
        let served = (0..lambdas).map(|n| gate.lambda(&format!("work_{n}"))).collect();
        let worker = Running::start(&db, calm(), served);
        db.until(&format!(
            "select array(select distinct tuskline.bell_of(queue_id) from tuskline.queue order by 1)
                  = array(select objid::integer {LOCKS} order by 1)"
        ))
        .await;
        let locks: i64 = db.one(&format!("select count(*) {LOCKS}")).await;
        assert_eq!(locks, (4 * i64::try_from(lambdas).unwrap()).min(256));
        // The last of its queues may still be falling asleep.
        let mut counts = Vec::new();
        while counts.last().is_none_or(|last| *last > 12) {
            assert!(counts.len() < 10, "{lambdas} lambdas: calls in 4 s each: {counts:?}");
            let before: Option<i64> = db.one(calls).await;
            tokio::time::sleep(Duration::from_secs(4)).await;
            let after: Option<i64> = db.one(calls).await;
            counts.push(after.unwrap_or(0) - before.unwrap_or(0));
        }
        worker.stop().await;
    }
}

#[tokio::test]
async fn a_statement_asks_once_for_each_bell() {
    let db = sharing().await;
    db.run(
        "create sequence tuskline.asked;
         create or replace function tuskline_core.is_watched(p_queue integer) returns boolean language sql as
           'select nextval(''tuskline.asked'') is null'",
    )
    .await;
    db.run("insert into tuskline.task (lambda) values ('work_0'), ('work_64'), ('work_1')").await;
    assert_eq!(db.one::<i64>("select last_value from tuskline.asked").await, 2);
}

/// Awaits the effect of a notification, which takes some ms; a safety poll would seldom be in time.
async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(3), what).await.expect("without a safety poll")
}

/// Waits until every worker that found no task sleeps.
async fn settle() {
    tokio::time::sleep(Duration::from_millis(300)).await;
}

/// Schedules tasks in turn, each when all workers sleep again.
async fn each_is_executed(db: &Db) {
    for done in 1..=8 {
        db.until_asleep("work_0").await;
        settle().await;
        db.schedule(["work_0", "work_64"][done % 2]).await;
        soon(db.until_count("success", done)).await;
    }
}

#[tokio::test]
async fn a_task_wakes_its_worker_under_a_bell_that_two_of_its_queues_share() {
    let db = sharing().await;
    let gate = Gate::open();
    let lambdas = vec![gate.lambda("work_0"), gate.lambda("work_64")];
    let worker = Running::start(&db, never_polls(), lambdas);
    each_is_executed(&db).await;
    worker.stop().await;
}

#[tokio::test]
async fn a_task_wakes_its_worker_under_a_bell_that_another_lambdas_worker_holds() {
    let db = sharing().await;
    let gate = Gate::open();
    let one = Running::start(&db, never_polls(), vec![gate.lambda("work_0")]);
    db.until_asleep("work_0").await;
    let two = Running::start(&db, never_polls(), vec![gate.lambda("work_64")]);
    db.until("select count(*) = 2 from tuskline.executor").await;
    each_is_executed(&db).await;
    one.stop().await;
    two.stop().await;
}

#[tokio::test]
async fn a_worker_whose_slots_are_taken_leaves_a_shared_bell_to_one_with_a_free_slot() {
    let db = sharing().await;
    let gate = Gate::new();
    let start = |lambdas: Vec<Lambda>| Running::start(&db, never_polls(), lambdas);
    let one = start(vec![gate.lambda("work_0"), gate.lambda("work_64").slots(1)]);
    db.until_asleep("work_0").await;
    let two = start(vec![gate.lambda("work_64").slots(1)]);
    db.until("select count(*) = 2 from tuskline.executor").await;
    settle().await;
    for _ in 0..2 {
        db.schedule("work_64").await;
    }
    let tasks = soon(gate.next_many(2)).await;
    assert_ne!(tasks[0].context.fence(), tasks[1].context.fence());
    db.schedule("work_0").await;
    soon(gate.next()).await;
    gate.open_for_good();
    db.until_count("success", 3).await;
    one.stop().await;
    two.stop().await;
}

#[tokio::test]
async fn a_row_held_uncommitted_while_its_worker_falls_asleep_under_a_shared_bell_is_found() {
    let db = sharing().await;
    let gate = Gate::open();
    let other = db.connect().await;
    let one = Running::start(&db, never_polls(), vec![gate.lambda("work_0")]);
    db.until_asleep("work_0").await;
    other.batch_execute("begin; select tuskline.schedule('work_64')").await.unwrap();
    let two = Running::start(&db, never_polls(), vec![gate.lambda("work_64")]);
    db.until("select count(*) = 2 from tuskline.executor").await;
    settle().await;
    other.batch_execute("commit").await.unwrap();
    soon(db.until_count("success", 1)).await;
    one.stop().await;
    two.stop().await;
}

#[tokio::test]
async fn a_quiet_queue_beside_a_stream_under_one_bell_gets_its_tasks() {
    let db = sharing().await;
    let gate = Gate::open();
    let one = Running::start(&db, never_polls(), vec![gate.lambda("work_64")]);
    let two = Running::start(&db, never_polls(), vec![gate.lambda("work_0")]);
    db.until_asleep("work_0").await;
    let stream = db.connect().await;
    let streaming = stream.batch_execute(
        "do $$ begin
           for number in 1..5000 loop
             perform tuskline.schedule('work_0');
             commit;
             if number % 3 = 0 then perform pg_sleep(0.0003); end if;
           end loop;
         end $$",
    );
    let quiet = async {
        for _ in 0..20 {
            settle().await;
            let task = db.schedule("work_64").await;
            soon(db.until_status(task, "success")).await;
        }
    };
    let (streamed, ()) = tokio::join!(streaming, quiet);
    streamed.unwrap();
    db.until_count("success", 5_020).await;
    one.stop().await;
    two.stop().await;
    db.assert_nothing_left().await;
}
