//! `tuskline.invariants()` finds each way in which the stored state can break a guarantee, and
//! reports none in a sound state. The tests break the state by hand, as no verb does.

use std::time::Duration;

use crate::support::Db;

const MINUTE: Duration = Duration::from_secs(60);

/// A store with a task in each state.
async fn store() -> Db {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    db.define("order").await;
    db.define("once").await;
    db.define("child").await;
    db.run(
        "select tuskline.set_limit('work', 3);
         select tuskline.set_order('order');
         select tuskline.set_unique('once', 'running')",
    )
    .await;
    // Starts before a limit was set do not count.
    db.advance(MINUTE).await;
    db.schedule_many("work", 6).await;
    db.run("select tuskline.enqueue_due()").await;
    let worker = db.worker("work").await;
    let [first, second, third] = worker.claim(3).await.try_into().unwrap();
    worker.fail_for_good(&first).await;
    worker.succeed(&second).await;
    worker.fail(&third).await;
    assert_eq!(worker.claim(1).await.len(), 1);
    db.schedule_in("work", MINUTE).await;
    let ordered = db.worker("order").await;
    db.run(
        "insert into tuskline.task (lambda, ordering_key) select 'order', 'a' from generate_series(1, 3);
         insert into tuskline.task (lambda, unique_key) values ('once', 'a'), ('once', 'b')",
    )
    .await;
    db.run("select tuskline.enqueue_due()").await;
    assert_eq!(ordered.claim(3).await.len(), 1);
    db.run(
        "select tuskline.schedule_chain('[{\"name\": \"a\", \"lambda\": \"child\"},
           {\"name\": \"b\", \"lambda\": \"child\", \"after\": [\"a\"]}]')",
    )
    .await;
    db.assert_invariants().await;
    db
}

/// The invariants that a harm breaks, each with its violations. The harm is rolled back.
async fn broken_by(db: &Db, harm: &str) -> Vec<String> {
    db.run("begin; set local session_replication_role = replica").await;
    db.run(harm).await;
    let broken = db
        .lines("select invariant, violations from tuskline.invariants() where violations > 0")
        .await;
    db.run("rollback").await;
    broken
}

/// Breaks of the state, each with what is seen.
const HARMS: [(&str, &[&str]); 24] = [
    ("update tuskline.task set finished_at = null where status = 'success'", &["ended_tasks | 1"]),
    ("update tuskline.task set finished_at = now() where lambda = 'once'",
     &["ended_tasks | 2"]),
    ("update tuskline.task set next_trigger_at = now() where status = 'success'", &["ended_tasks | 1"]),
    ("delete from tuskline.lease l using tuskline.task t
       where t.lambda = 'order' and t.fence = l.lease_id and t.status = 'claimed'", &["leases | 1"]),
    ("insert into tuskline.lease select 4711, l.lease_id, l.task_ids from tuskline.lease l
        join tuskline.task t on t.fence = l.lease_id and t.lambda = 'order' and t.status = 'claimed';
      insert into tuskline.executor (executor_id, host, pid, lambdas, sdk_version, lease, started_at, beat_at, expires_at)
      values (4711, 'h', 1, '{order}', '0', '20 s', now(), now(), now());
      insert into tuskline_core.live_executor values (4711, '20 s')", &["one_lease | 1"]),
    ("delete from tuskline.executor where lambdas = '{order}';
      delete from tuskline_core.live_executor a where not exists (
        select from tuskline.executor e where e.executor_id = a.executor_id)", &["lease_owners | 1"]),
    ("delete from tuskline_core.live_executor where executor_id = (
        select max(executor_id) from tuskline_core.live_executor)", &["live_executors | 1"]),
    ("insert into tuskline_core.live_executor values (4711, '20 s')", &["live_executors | 1"]),
    ("delete from tuskline.queued d using tuskline.queue q where q.queue_id = d.queue_id and q.lambda = 'once'",
     &["queues | 2"]),
    ("insert into tuskline.queued (queue_id, task_id) select q.queue_id, t.id
        from tuskline.task t join tuskline.queue q on q.lambda = 'child' and q.priority = 'normal'
       where t.unique_key = 'a'", &["queues | 1"]),
    ("update tuskline_test.pin set at = at + interval '2 hours'; delete from tuskline.timer where kind = 'due'",
     &["waiting | 2"]),
    ("update tuskline.task set scheduled_at = started_at + interval '11 s'
       where lambda = 'order' and status = 'claimed'", &["due_times | 1"]),
    ("insert into tuskline.permit (limit_id, key, permit_no, task_id, acquired_at)
      select limit_id, '', n, 1000 + n, tuskline.clock() from tuskline.task_limit, generate_series(4, 7) n
       where kind = 'concurrency'", &["concurrency | 4"]),
    ("with r as (insert into tuskline.task_limit (lambda, kind, by_key, fair, per_second, burst, set_at)
        values ('child', 'rate', false, false, 1, 1, tuskline.clock() - interval '1 hour') returning limit_id)
      insert into tuskline.permit (limit_id, key, permit_no, task_id, acquired_at, fence)
      select r.limit_id, '', t.id, t.id, tuskline.clock(), t.fence from r, tuskline.task t where t.lambda = 'child'",
     &["rate | 1"]),
    ("update tuskline.task set status = 'claimed', started_at = tuskline.clock(),
        fence = (select fence from tuskline.task where lambda = 'order' and status = 'claimed')
       where id = (select max(id) from tuskline.task where lambda = 'order')", &["leases | 1", "order | 2"]),
    ("update tuskline.permit s set task_id = t.id from tuskline.task t
       where t.status = 'success' and s.permit_no = 1 and s.key = ''", &["permits | 1"]),
    ("update tuskline.task set unique_key = 'a' where unique_key = 'b'", &["unique_keys | 2"]),
    ("update tuskline.task set status = 'success', finished_at = now(), next_trigger_at = null
       where id = (select parent_id from tuskline.dependency)", &["dependencies | 1"]),
    ("with p as (update tuskline.task set status = 'success', finished_at = now(), next_trigger_at = null
                   where id = (select parent_id from tuskline.dependency))
      update tuskline.dependency set outcome = 'success'", &["dependencies | 1"]),
    ("update tuskline.dependency set parent_id = (select id from tuskline.task where status = 'success')",
     &["dependencies | 1"]),
    ("delete from tuskline.dead_letter", &["dead_letters | 1"]),
    ("insert into tuskline.dead_letter select id, lambda, 'dead', '', now() from tuskline.task where status = 'success'",
     &["dead_letters | 1"]),
    ("delete from tuskline.task where status = 'fatal_failure'", &["dead_letters | 1"]),
    ("update tuskline.task set fence = 1e12 where status = 'success'", &["fences | 1"]),
];

#[tokio::test]
async fn each_break_of_the_stored_state_is_seen() {
    let db = store().await;
    for (harm, seen) in HARMS {
        assert_eq!(broken_by(&db, harm).await, seen, "{harm}");
    }
    db.assert_invariants().await;
    let named: Vec<String> = db.all("select invariant from tuskline.invariants()").await;
    for invariant in named {
        let seen = |(_, seen): &(&str, &[&str])| {
            seen.iter().any(|one| one.starts_with(&format!("{invariant} ")))
        };
        assert!(HARMS.iter().any(seen), "no harm breaks {invariant}");
    }
}

#[tokio::test]
async fn what_an_owner_or_a_restart_does_breaks_no_invariant() {
    let db = store().await;
    // A lower limit than runs, a task that runs again before it was due, and a key with a second task.
    let later = db.schedule_in("work", MINUTE * 600).await;
    assert_eq!(db.cancel(later).await, "cancelled");
    let held: i64 = db.one("select id from tuskline.task where unique_key = 'a'").await;
    assert_eq!(db.cancel(held).await, "cancelled");
    db.run("insert into tuskline.task (lambda, unique_key) values ('once', 'a')").await;
    for task in [later, held] {
        let retried: String = db.ask("select tuskline.retry($1, true)", &[&task]).await;
        assert_eq!(retried, "retried");
    }
    db.run("select tuskline.set_limit('work', 8); select tuskline.enqueue_due()").await;
    assert!(db.worker("work").await.claim(8).await.iter().any(|task| task.id == later));
    let two =
        "select count(*) = 2 from tuskline.task where unique_key = 'a' and finished_at is null";
    assert!(db.one::<bool>(two).await);
    db.run("select tuskline.set_limit('work', 1)").await;
    db.assert_invariants().await;
    // The clock is set back between the enqueueing of a task and its claim.
    db.define("clocked").await;
    let due = db.schedule_in("clocked", MINUTE).await;
    db.advance(MINUTE).await;
    db.run("select tuskline.enqueue_due(); select tuskline.schedule('clocked')").await;
    let worker = db.worker("clocked").await;
    db.run("update tuskline.queued set seq = seq + 1000 where task_id = (select min(id) from tuskline.task \
            where lambda = 'clocked' and scheduled_at is not null)")
        .await;
    assert_ne!(worker.take().await.id, due);
    db.turn_back(MINUTE / 2).await;
    assert_eq!(worker.take().await.id, due);
    db.assert_invariants().await;
    // A child that waits for hours.
    db.advance(MINUTE * 120).await;
    db.run("select tuskline.enqueue_due()").await;
    assert_eq!(
        db.one::<i64>("select count(*) from tuskline.chain_task where waits_for is not null").await,
        1
    );
    db.assert_invariants().await;
    // After a crash the queues are empty, and are no violation: the line `queues` says so.
    db.run("delete from tuskline_core.queues_complete; delete from tuskline.queued").await;
    db.assert_invariants().await;
}

#[tokio::test]
async fn the_invariants_are_read_in_one_snapshot_that_writes_nothing() {
    let db = store().await;
    db.run("begin isolation level repeatable read read only").await;
    db.assert_invariants().await;
    let other = db.connect().await;
    // A change that commits now is not seen: the counts agree with each other.
    other.batch_execute("delete from tuskline.dead_letter").await.unwrap();
    db.assert_invariants().await;
    let written = db.one::<bool>("select pg_current_xact_id_if_assigned() is not null").await;
    assert!(!written);
    db.run("commit").await;
    let broken = "select invariant from tuskline.invariants() where violations > 0";
    assert_eq!(db.all::<String>(broken).await, ["dead_letters"]);
}
