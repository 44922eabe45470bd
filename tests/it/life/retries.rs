//! A failed attempt is repeated, later each time, and not for ever.

use std::time::Duration;

use crate::support::{Answer, Db, LEASE, ScriptedWorker, Task};

/// Seconds from now until a task is due.
async fn due_in_seconds(db: &Db, id: i64) -> f64 {
    let sql = "select extract(epoch from due - tuskline.clock())::float8 from tuskline.timer where task_id = $1";
    db.ask(sql, &[&id]).await
}

/// Lets the clock run on to a task's due time and claims it.
async fn next_attempt(db: &Db, worker: &ScriptedWorker, id: i64) -> Task {
    // The clock has microseconds.
    db.advance(Duration::from_secs_f64(due_in_seconds(db, id).await + 0.000_001)).await;
    assert!(worker.heartbeat().await);
    assert_eq!(db.enqueue_due().await, 1);
    worker.take().await
}

#[tokio::test]
async fn the_delay_doubles_with_every_attempt_up_to_the_cap() {
    let db = Db::new().await;
    db.pin().await;
    db.define_with("work", "p_retry_base => '100 seconds', p_retry_cap => '1000 seconds'").await;
    let id = db.schedule("work").await;
    let worker = db.worker_with(&["work"], Duration::from_secs(3600)).await;
    let mut task = worker.take().await;
    for (number, delay) in [100.0, 200.0, 400.0, 800.0, 1000.0, 1000.0].into_iter().enumerate() {
        assert_eq!(usize::try_from(task.attempt).unwrap(), number + 1);
        assert_eq!(worker.fail(&task).await, Answer::Accepted);
        assert_eq!(db.status(id).await, "retriable_failure");
        let due_in = due_in_seconds(&db, id).await;
        assert!((0.75 * delay..=1.25 * delay).contains(&due_in), "{due_in} for {delay}");
        task = next_attempt(&db, &worker, id).await;
    }
}

#[tokio::test]
async fn delays_are_spread_over_a_quarter_both_ways_and_never_overflow() {
    let db = Db::new().await;
    let sample = "select min(d)::float8, max(d)::float8, avg(d)::float8 from (
        select extract(epoch from tuskline_core.backoff($1, '1 hour', '24 hours', null)) d from generate_series(1, 5000)) s";
    for (attempt, hours) in
        [(1_i16, 1.0), (2, 2.0), (5, 16.0), (6, 24.0), (64, 24.0), (i16::MAX, 24.0)]
    {
        let row = db.client.query_one(sample, &[&attempt]).await.unwrap();
        let [least, most, mean] = [0, 1, 2].map(|at| row.get::<_, f64>(at) / 3600.0 / hours);
        assert!((0.75..0.76).contains(&least), "attempt {attempt}: {least}");
        assert!((1.24..=1.25).contains(&most), "attempt {attempt}: {most}");
        assert!((0.99..1.01).contains(&mean), "attempt {attempt}: {mean}");
    }
}

#[tokio::test]
async fn a_lambda_that_says_when_is_tried_again_then() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    let worker = db.worker_with(&["work"], Duration::from_secs(3600)).await;
    let id = db.schedule("work").await;
    let later = r#""status": "retriable_failure", "after_ms": 90000"#;
    assert_eq!(worker.note(&worker.take().await, later).await, Answer::Accepted);
    assert_eq!(due_in_seconds(&db, id).await, 90.0);
    let task = next_attempt(&db, &worker, id).await;
    for now in ["0", "-5000"] {
        let now = format!(r#""status": "retriable_failure", "after_ms": {now}"#);
        let other = db.schedule("work").await;
        assert_eq!(worker.note(&worker.take().await, &now).await, Answer::Accepted);
        assert_eq!(db.enqueue_due().await, 1, "due at once");
        assert_eq!(worker.take().await.id, other);
    }
    let never = r#""status": "retriable_failure", "after_ms": 9223372036854775807"#;
    assert_eq!(worker.note(&task, never).await, Answer::Accepted);
    let years = due_in_seconds(&db, id).await / 86_400.0 / 365.0;
    assert!((9.9..=10.1).contains(&years), "capped at ten years, got {years}");
}

#[tokio::test]
async fn a_task_that_fails_max_attempts_times_is_dead() {
    let db = Db::new().await;
    db.pin().await;
    db.define_with("work", "p_max_attempts => 3").await;
    let id = db.schedule("work").await;
    let worker = db.worker_with(&["work"], Duration::from_secs(3600)).await;
    let mut task = worker.take().await;
    for _ in 0..2 {
        assert_eq!(worker.fail(&task).await, Answer::Accepted);
        assert_eq!(db.status(id).await, "retriable_failure");
        task = next_attempt(&db, &worker, id).await;
    }
    assert_eq!(worker.fail(&task).await, Answer::Accepted);
    assert_eq!(db.status(id).await, "dead");
    let dead = db.lines("select attempt, crashes, next_trigger_at, finished_at = tuskline.clock() ended from tuskline.task").await;
    assert_eq!(dead, ["3 | 0 | - | true"]);
    assert_eq!(db.timers().await, 0);
    assert_eq!(
        db.all::<i16>("select attempt from tuskline.task_failure order by 1").await,
        [1, 2, 3]
    );
}

#[tokio::test]
async fn a_fatal_failure_is_not_tried_again() {
    let db = Db::with_lambda("work").await;
    let id = db.schedule("work").await;
    let worker = db.worker("work").await;
    assert_eq!(worker.fail_for_good(&worker.take().await).await, Answer::Accepted);
    assert_eq!(
        (db.status(id).await.as_str(), db.timers().await, db.queued().await),
        ("fatal_failure", 0, 0)
    );
    let class: String =
        db.one("select error_class || ': ' || message from tuskline.task_failure").await;
    assert_eq!(class, "fatal: no");
}

/// A new worker claims the task, begins or not, and dies.
async fn crash(db: &Db, begun: bool) -> (i32, i32, i32) {
    let worker = db.worker("work").await;
    let task = worker.take().await;
    if begun {
        assert!(worker.start(&task).await);
    }
    db.advance(LEASE).await;
    db.rescue().await
}

async fn crashes(db: &Db) -> i16 {
    db.one("select crashes from tuskline.task").await
}

#[tokio::test]
async fn a_task_that_takes_three_workers_with_it_is_dead() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    let id = db.schedule("work").await;
    assert_eq!(crash(&db, true).await, (1, 1, 0));
    assert_eq!(crash(&db, true).await, (1, 1, 0));
    assert_eq!(crash(&db, true).await, (1, 0, 1));
    assert_eq!((db.status(id).await.as_str(), db.queued().await), ("dead", 0));
    let failures: Vec<String> =
        db.all("select distinct error_class from tuskline.task_failure").await;
    assert_eq!(failures, ["crash"]);
    assert_eq!(db.one::<i64>("select count(*) from tuskline.task_failure").await, 3);
    assert_eq!(db.one::<i64>("select count(*) from tuskline.lease").await, 0);
}

#[tokio::test]
async fn a_suspect_is_charged_only_for_a_death_after_it_began() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    let id = db.schedule("work").await;
    crash(&db, false).await;
    assert_eq!(crashes(&db).await, 1, "the first death makes it a suspect, begun or not");
    for _ in 0..3 {
        crash(&db, false).await;
        assert_eq!(crashes(&db).await, 1);
    }
    crash(&db, true).await;
    assert_eq!(crashes(&db).await, 2);
    crash(&db, true).await;
    assert_eq!(db.status(id).await, "dead");
}

#[tokio::test]
async fn a_result_of_any_kind_clears_the_crashes_of_a_task() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    db.schedule("work").await;
    crash(&db, true).await;
    crash(&db, true).await;
    let worker = db.worker_with(&["work"], Duration::from_secs(3600)).await;
    let task = worker.take().await;
    assert_eq!((task.attempt, task.crashes), (1, 2), "a death costs no attempt");
    worker.fail(&task).await;
    assert_eq!(crashes(&db).await, 0);
    let task = next_attempt(&db, &worker, task.id).await;
    assert_eq!((task.attempt, task.crashes), (2, 0));
}

#[tokio::test]
async fn failures_of_one_cause_share_a_fingerprint_and_long_ones_are_cut() {
    let db = Db::with_lambda("work").await;
    let worker = db.worker("work").await;
    db.schedule_many("work", 4).await;
    let tasks = worker.claim(4).await;
    let long = "x".repeat(10_000_000);
    for (task, message) in
        tasks.iter().zip(["row 17 is bad", "row 4711 is bad", "disk full", &long])
    {
        let said =
            format!(r#""status": "fatal_failure", "error_class": "error", "message": "{message}""#);
        assert_eq!(worker.note(task, &said).await, Answer::Accepted);
    }
    let prints: Vec<String> =
        db.all("select fingerprint from tuskline.task_failure order by task_id").await;
    assert_eq!(prints[0], prints[1]);
    assert_ne!(prints[1], prints[2]);
    assert_eq!(db.one::<i32>("select max(length(message)) from tuskline.task_failure").await, 8192);
}

#[tokio::test]
async fn an_error_that_holds_a_nul_does_not_spoil_the_results_beside_it() {
    let db = Db::with_lambda("work").await;
    let worker = db.worker("work").await;
    db.schedule_many("work", 2).await;
    let [bad, good] = worker.claim(2).await.try_into().unwrap();
    let notes = format!(
        r#"[{{"task": {}, "fence": {}, "status": "fatal_failure", "error_class": "a\u0000b", "message": "c:\\u0000 \u0000 \ud800! \udfff \ud83d\ude00"}},
            {{"task": {}, "fence": {}, "status": "success", "output": {{"a": "\u0000"}}}}]"#,
        bad.id, bad.fence, good.id, good.fence
    );
    let sql = "select tuskline.set_results($1, '{}', '{}', $2::text::json)";
    assert!(db.ask::<Vec<i64>>(sql, &[&worker.executor, &notes]).await.is_empty());
    let said: String =
        db.one("select error_class || ' ' || message from tuskline.task_failure").await;
    assert_eq!(said, "a\u{fffd}b c:\\u0000 \u{fffd} \u{fffd}! \u{fffd} \u{1f600}");
    assert_eq!(db.status(good.id).await, "success");
}

#[tokio::test]
async fn a_snoozed_task_comes_back_in_time_and_has_used_up_no_attempt() {
    let db = Db::new().await;
    db.define_with("work", "p_max_attempts => 1").await;
    db.pin().await;
    let worker = db.worker("work").await;
    let id = db.schedule("work").await;
    for _ in 0..3 {
        let task = worker.take().await;
        assert_eq!((task.id, task.attempt), (id, 1));
        assert_eq!(worker.snooze(&task).await, Answer::Accepted);
        assert_eq!(worker.snooze(&task).await, Answer::Accepted, "the same again");
        assert_eq!(db.status(id).await, "new");
        db.advance(Duration::from_secs(59)).await;
        assert_eq!(db.enqueue_due().await, 0);
        db.advance(Duration::from_secs(1)).await;
        assert_eq!(db.enqueue_due().await, 1);
    }
    let untimed = worker.note(&worker.take().await, r#""status": "snoozed""#).await;
    assert_eq!((untimed, db.timers().await), (Answer::Accepted, 1), "it backs off");
    db.advance(Duration::from_secs(2)).await;
    assert_eq!(db.enqueue_due().await, 1);
    assert_eq!(db.one::<i64>("select count(*) from tuskline.task_failure").await, 0);
    worker.fail(&worker.take().await).await;
    assert_eq!(db.status(id).await, "dead", "its one attempt");
}
