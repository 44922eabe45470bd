//! A circuit breaker pauses a lambda whose attempts fail with one cause. It tries one task now and
//! then, and closes when that task succeeds.

use std::time::Duration;

use crate::support::{Db, Gate, LEASE, Running, ScriptedWorker, calm};
use tuskline_sdk::Outcome;

const SECOND: Duration = Duration::from_secs(1);

/// A lambda with a breaker that trips at five failures in a minute, half of all.
async fn watched() -> (Db, ScriptedWorker) {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    db.run("select tuskline.set_breaker('work', 5, p_probe_after => '30 seconds')").await;
    let worker = db.worker("work").await;
    (db, worker)
}

/// Runs some tasks that fail once each, and some that succeed.
async fn attempts(db: &Db, worker: &ScriptedWorker, failures: i32, successes: i32) {
    db.schedule_many("work", failures + successes).await;
    for (at, task) in worker.claim(failures + successes).await.iter().enumerate() {
        if i32::try_from(at).unwrap() < failures {
            worker.fail_for_good(task).await;
        } else {
            worker.succeed(task).await;
        }
    }
}

/// Advances a second, then runs the store consumer's verbs.
async fn consume(db: &Db) {
    db.advance(SECOND).await;
    db.run("select tuskline.run_policies()").await;
    db.enqueue_due().await;
}

async fn state(db: &Db) -> String {
    db.one("select state from tuskline.breakers").await
}

/// Trips the breaker while so many tasks wait.
async fn trip(db: &Db, worker: &ScriptedWorker, waiting: i32) -> Vec<i64> {
    attempts(db, worker, 5, 0).await;
    consume(db).await;
    assert_eq!(state(db).await, "tripped");
    let ids = db.schedule_many("work", waiting).await;
    consume(db).await;
    assert!(worker.claim(100).await.is_empty());
    ids
}

#[tokio::test]
async fn a_breaker_trips_and_says_why() {
    let (db, worker) = watched().await;
    attempts(&db, &worker, 4, 0).await;
    consume(&db).await;
    assert_eq!(state(&db).await, "watching");
    attempts(&db, &worker, 1, 0).await;
    consume(&db).await;
    let cause: String = db.one("select fingerprint from tuskline.dead_groups").await;
    let reason = format!("circuit breaker: 5 of 5 attempts failed with {cause}: no");
    let gates = db.lines("select action, lambda, collection, reason from tuskline.gates").await;
    assert_eq!(gates, [format!("pause | work | - | {reason}")]);
    let shown = db.lines("select state, gate_id, fingerprint, trips, next_probe_at - tripped_at as after from tuskline.breakers").await;
    assert_eq!(shown, [format!("tripped | {} | {cause} | 1 | 00:00:30", db.number(1))]);
    let id = db.schedule("work").await;
    db.enqueue_due().await;
    let said: String = db.ask("select detail from tuskline.explain($1) limit 1", &[&id]).await;
    assert!(said.starts_with("pause, set by ") && said.ends_with(&reason), "{said}");
}

#[tokio::test]
async fn failures_of_different_causes_or_of_long_ago_do_not_trip_it() {
    let (db, worker) = watched().await;
    attempts(&db, &worker, 4, 0).await;
    db.schedule_many("work", 4).await;
    for task in worker.claim(4).await {
        worker.fail(&task).await;
    }
    consume(&db).await;
    assert_eq!(state(&db).await, "watching");
    db.advance(SECOND * 60).await;
    attempts(&db, &worker, 4, 0).await;
    consume(&db).await;
    assert_eq!(state(&db).await, "watching");
    let left: i64 = db.one("select sum(attempts)::bigint from tuskline_core.recent_failure").await;
    assert_eq!(left, 4, "what is over is forgotten");
}

#[tokio::test]
async fn enough_successes_beside_them_keep_it_from_tripping() {
    for (successes, expected) in [(6, "watching"), (5, "tripped")] {
        let (db, worker) = watched().await;
        attempts(&db, &worker, 5, successes).await;
        consume(&db).await;
        assert_eq!(state(&db).await, expected, "{successes}");
    }
}

#[tokio::test]
async fn a_crash_is_a_failed_attempt_too() {
    let (db, worker) = watched().await;
    db.schedule_many("work", 5).await;
    for task in worker.claim(5).await {
        worker.start(&task).await;
    }
    db.advance(LEASE).await;
    db.rescue().await;
    consume(&db).await;
    assert_eq!(state(&db).await, "tripped");
}

#[tokio::test]
async fn a_probe_that_succeeds_opens_the_gate() {
    let (db, worker) = watched().await;
    let waiting = trip(&db, &worker, 3).await;
    db.advance(SECOND * 27).await;
    consume(&db).await;
    assert!(worker.claim(100).await.is_empty(), "29 s are not 30");
    consume(&db).await;
    assert_eq!(state(&db).await, "probing");
    let probe = worker.take().await;
    assert_eq!(probe.id, waiting[0]);
    assert!(worker.claim(100).await.is_empty(), "one task only");
    consume(&db).await;
    assert_eq!(state(&db).await, "probing", "it has not ended");
    worker.succeed(&probe).await;
    consume(&db).await;
    assert_eq!(state(&db).await, "watching");
    consume(&db).await;
    assert_eq!(worker.claim(100).await.len(), 2);
    let said: String = db.one("select detail from tuskline.audit where verb = 'ungate'").await;
    let gate = db.number(1);
    assert_eq!(said, format!("gate {gate} pause circuit breaker: task {} succeeded", probe.id));
}

#[tokio::test]
async fn a_probe_that_fails_lets_another_task_try_later() {
    let (db, worker) = watched().await;
    let waiting = trip(&db, &worker, 2).await;
    for expected in [waiting[0], waiting[1]] {
        db.advance(SECOND * 30).await;
        consume(&db).await;
        let probe = worker.take().await;
        assert_eq!(probe.id, expected);
        worker.fail(&probe).await;
        consume(&db).await;
        assert_eq!(state(&db).await, "tripped");
        consume(&db).await;
        assert!(worker.claim(100).await.is_empty(), "not at once");
    }
    let passing = "select count(passing) from tuskline_core.flagged_queue";
    assert_eq!(db.one::<i64>(passing).await, 0);
}

#[tokio::test]
async fn a_probe_that_ends_otherwise_or_comes_back_says_nothing() {
    let (db, worker) = watched().await;
    let waiting = trip(&db, &worker, 3).await;
    db.advance(SECOND * 30).await;
    consume(&db).await;
    assert_eq!(db.cancel(waiting[0]).await, "cancelled", "in its queue");
    consume(&db).await;
    assert_eq!(state(&db).await, "tripped");
    let passing = "select count(passing) from tuskline_core.flagged_queue";
    assert_eq!(db.one::<i64>(passing).await, 0);
    db.advance(SECOND * 30).await;
    consume(&db).await;
    let probe = worker.take().await;
    assert_eq!(probe.id, waiting[1]);
    assert!(worker.release(&probe).await);
    consume(&db).await;
    consume(&db).await;
    assert_eq!(state(&db).await, "tripped");
    assert_eq!(db.status(waiting[1]).await, "enqueued", "it waits as before");
}

#[tokio::test]
async fn what_failed_before_it_opened_counts_no_more_and_it_trips_again() {
    let (db, worker) = watched().await;
    trip(&db, &worker, 1).await;
    db.advance(SECOND * 30).await;
    consume(&db).await;
    worker.succeed(&worker.take().await).await;
    consume(&db).await;
    consume(&db).await;
    assert_eq!(state(&db).await, "watching");
    attempts(&db, &worker, 5, 0).await;
    consume(&db).await;
    let shown = db.lines("select state, trips from tuskline.breakers").await;
    assert_eq!(shown, ["tripped | 2"]);
}

#[tokio::test]
async fn a_gate_opened_by_hand_stays_open() {
    let (db, worker) = watched().await;
    trip(&db, &worker, 1).await;
    assert!(db.ask::<bool>("select tuskline.ungate($1)", &[&db.number(1)]).await);
    consume(&db).await;
    consume(&db).await;
    assert_eq!((state(&db).await.as_str(), worker.claim(100).await.len()), ("watching", 1));
}

#[tokio::test]
async fn a_breaker_that_is_dropped_opens_its_gate() {
    let (db, worker) = watched().await;
    trip(&db, &worker, 1).await;
    assert!(db.one::<bool>("select tuskline.drop_breaker('work')").await);
    assert!(!db.one::<bool>("select tuskline.drop_breaker('work')").await);
    consume(&db).await;
    consume(&db).await;
    assert_eq!(worker.claim(100).await.len(), 1);
    assert_eq!(db.one::<i64>("select count(*) from tuskline_core.recent_failure").await, 0);
    let gates: bool = db.one("select gates from tuskline.enqueue_due()").await;
    assert!(!gates, "no gate asks any more");
}

#[tokio::test]
async fn a_lambda_that_is_gated_already_gets_no_second_gate() {
    let (db, worker) = watched().await;
    db.schedule_many("work", 5).await;
    let tasks = worker.claim(5).await;
    db.run("select tuskline.gate('work', 'divert', p_reason => 'x')").await;
    for task in &tasks {
        worker.fail_for_good(task).await;
    }
    consume(&db).await;
    assert_eq!(state(&db).await, "watching");
    db.run(&format!("select tuskline.ungate({})", db.number(1))).await;
    consume(&db).await;
    assert_eq!(state(&db).await, "tripped");
}

#[tokio::test]
async fn a_lambda_without_a_breaker_writes_nothing_for_one() {
    let (db, _worker) = watched().await;
    db.define("other").await;
    let worker = db.worker("other").await;
    db.schedule_many("other", 6).await;
    for task in worker.claim(6).await {
        worker.fail_for_good(&task).await;
    }
    consume(&db).await;
    assert_eq!(db.one::<i64>("select count(*) from tuskline_core.recent_failure").await, 0);
    assert_eq!(db.one::<i64>("select count(*) from tuskline.gate").await, 0);
}

#[tokio::test]
async fn of_many_tasks_it_estimates_the_successes_by_a_sample() {
    let (db, _worker) = watched().await;
    let ids = db.id(0);
    db.run(&format!(
        "insert into tuskline_core.task_store (id, lambda, status, finished_at)
         select {ids} + n, 'work', case when n % 4 = 0 then 'dead' else 'success' end::tuskline.status, tuskline.clock()
           from generate_series(1, 60000) n;
         insert into tuskline_core.recent_failure values ('work', tuskline.clock(), 'f', 15000, {ids} + 5001, {ids} + 55000, 'no')",
    ))
    .await;
    let near: i64 = db
        .one("select tuskline_core.successes_near('work', tuskline.clock() - interval '1 minute')")
        .await;
    assert!((44_000..=46_000).contains(&near), "{near}");
    let since =
        "select tuskline_core.successes_near('work', tuskline.clock() + interval '1 second')";
    assert_eq!(db.one::<i64>(since).await, 0);
}

#[tokio::test]
async fn settings_are_changed_and_senseless_ones_refused() {
    let (db, _worker) = watched().await;
    db.run("select tuskline.set_breaker('work', 7, '5 minutes', 0.9, '1 minute')").await;
    let shown = db.lines("select failures, span, share, probe_after from tuskline.breakers").await;
    assert_eq!(shown, ["7 | 00:05:00 | 0.9 | 00:01:00"]);
    for (call, said) in [
        ("set_breaker('nobody')", "TK001 unknown_lambda: 'nobody' is not defined"),
        ("set_breaker(null)", "TK001 unknown_lambda: null is not defined"),
        ("set_breaker('work', 0)", "TK026 invalid_breaker: failures must be 1 to 1000000, got 0"),
        (
            "set_breaker('work', p_window => '2 days')",
            "TK026 invalid_breaker: window must be 1 second to 1 day, got 2 days",
        ),
        (
            "set_breaker('work', p_share => 'NaN')",
            "TK026 invalid_breaker: share must be 0.001 to 1, got NaN",
        ),
        (
            "set_breaker('work', p_probe_after => '0')",
            "TK026 invalid_breaker: probe_after must be 1 second to 1 day, got 00:00:00",
        ),
    ] {
        let answer = db.refused(&format!("select tuskline.{call}")).await;
        assert!(answer.split_once(": ").unwrap().1.starts_with(said), "{call}\n{answer}");
    }
}

#[tokio::test]
async fn a_store_consumer_and_a_worker_trip_it_probe_and_go_on() {
    let db = Db::with_lambda("work").await;
    db.run("select tuskline.set_breaker('work', 5, p_probe_after => '1 second')").await;
    let _consumer = db.store_consumer();
    let bad = Gate::open();
    let failing = bad.lambda_saying("work", |payload, _| match payload == "bad" {
        true => Outcome::fatal("no"),
        false => Outcome::Success(None),
    });
    let sdk_worker = Running::start(&db, calm(), vec![failing]);
    for _ in 0..5 {
        db.schedule_with("work", "\"bad\"").await;
    }
    db.until("select bool_or(trips = 1) from tuskline.breakers").await;
    db.schedule_many("work", 3).await;
    db.until_count("success", 3).await;
    db.until("select bool_and(state = 'watching') from tuskline.breakers").await;
    sdk_worker.stop().await;
}

#[tokio::test]
async fn a_janitor_at_work_does_not_keep_it_from_tripping() {
    let (db, worker) = watched().await;
    let janitor = db.connect().await;
    let retires = "begin; lock table tuskline_core.retention_guard in share row exclusive mode";
    janitor.batch_execute(retires).await.unwrap();
    attempts(&db, &worker, 5, 0).await;
    consume(&db).await;
    assert_eq!(state(&db).await, "tripped");
}

#[tokio::test]
async fn successes_are_counted_though_a_task_of_long_ago_fails_among_them() {
    for together in [false, true] {
        let (db, _worker) = watched().await;
        let ids = db.id(0);
        db.run(&format!(
            "insert into tuskline_core.task_store (id, lambda, status, finished_at)
             select {ids} + n, 'work', 'success', tuskline.clock() from generate_series(10000001, 10006000) n",
        ))
        .await;
        let failed =
            if together { "(20, 17, 10006000)" } else { "(19, 10000001, 10006000), (1, 17, 17)" };
        db.run(&format!(
            "insert into tuskline_core.recent_failure
             select 'work', tuskline.clock(), 'f', f.attempts, {ids} + f.first_id, {ids} + f.last_id, 'no'
               from (values {failed}) as f (attempts, first_id, last_id)"
        ))
        .await;
        let near: i64 = db
            .one("select tuskline_core.successes_near('work', tuskline.clock() - interval '1 minute')")
            .await;
        assert!((5_000..=6_000).contains(&near), "{near}");
        consume(&db).await;
        assert_eq!(state(&db).await, "watching");
    }
}

#[tokio::test]
async fn of_tasks_scattered_over_all_ids_the_latest_are_looked_at() {
    let (db, _worker) = watched().await;
    let ids = db.id(0);
    db.run(&format!(
        "insert into tuskline_core.task_store (id, lambda, status, finished_at)
         select {ids} + n, 'work', 'success', tuskline.clock() from generate_series(10000001, 10001000) n;
         insert into tuskline_core.recent_failure
         select 'work', tuskline.clock(), 'f', 2, {ids} + n * 20000, {ids} + n * 20000, 'no' from generate_series(1, 100) n;
         insert into tuskline_core.recent_failure values ('work', tuskline.clock(), 'f', 1, {ids} + 10000500, {ids} + 10000500, 'no')",
    ))
    .await;
    let near: i64 = db
        .one("select tuskline_core.successes_near('work', tuskline.clock() - interval '1 minute')")
        .await;
    assert_eq!(near, 1000);
}
