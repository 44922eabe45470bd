//! A limit bounds the tasks that run at a time or start in a second, over all workers. Waiting
//! tasks are served by priority and age, or in turns.

use std::time::Duration;

use crate::support::{Db, ScriptedWorker, Task};

async fn limited(arguments: &str) -> (Db, ScriptedWorker, i64) {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    let rule = db.one(&format!("select tuskline.set_limit('work', {arguments})")).await;
    let worker = db.worker("work").await;
    (db, worker, rule)
}

/// Lets the store consumer finish, then claims: the tasks that the worker gets.
async fn next(db: &Db, worker: &ScriptedWorker) -> Vec<Task> {
    while db.enqueue_due().await > 0 {}
    worker.claim(100).await
}

async fn keyed(db: &Db, column: &str, key: &str) -> i64 {
    db.ask(&format!("select tuskline.schedule('work', p_{column} => $1)"), &[&key]).await
}

#[tokio::test]
async fn no_more_than_so_many_at_a_time() {
    let (db, worker, _) = limited("3").await;
    let ids = db.schedule_many("work", 10).await;
    let mut seen = Vec::new();
    let mut held = next(&db, &worker).await;
    for _ in 0..5 {
        seen.extend(held.iter().map(|task| task.id));
        assert!(held.len() <= 3);
        assert_eq!(next(&db, &worker).await.len(), 0);
        worker.succeed_all(&held).await;
        held = next(&db, &worker).await;
    }
    assert_eq!((seen, held.len()), (ids, 0));
    assert_eq!(db.one::<i64>("select count(*) from tuskline.permit").await, 0);
}

#[tokio::test]
async fn each_key_is_counted_by_itself_and_tasks_without_one_are_not() {
    let (db, worker, _) = limited("1, p_by_key => true").await;
    let mut first = Vec::new();
    for key in ["x", "y", "x"] {
        first.push(keyed(&db, "limit_key", key).await);
    }
    let free = db.schedule("work").await;
    let held = next(&db, &worker).await;
    let mut ids: Vec<_> = held.iter().map(|task| task.id).collect();
    ids.sort_unstable();
    assert_eq!(ids, [first[0], first[1], free]);
    worker.succeed_all(&held).await;
    assert_eq!(next(&db, &worker).await[0].id, first[2]);
}

#[tokio::test]
async fn a_retry_waits_without_a_place_and_takes_one_again() {
    let (db, worker, _) = limited("1").await;
    let ids = db.schedule_many("work", 2).await;
    let held = next(&db, &worker).await;
    worker.fail(&held[0]).await;
    let other = next(&db, &worker).await;
    assert_eq!(other[0].id, ids[1], "the place of one that backs off is free");
    db.advance(Duration::from_secs(3)).await;
    assert_eq!(next(&db, &worker).await.len(), 0);
    worker.succeed(&other[0]).await;
    assert_eq!(next(&db, &worker).await[0].id, ids[0]);
}

#[tokio::test]
async fn a_dead_workers_tasks_are_counted_until_they_end() {
    let (db, worker, _) = limited("2").await;
    db.schedule_many("work", 4).await;
    assert_eq!(next(&db, &worker).await.len(), 2);
    db.advance(crate::support::LEASE).await;
    assert_eq!(db.rescue().await, (1, 2, 0));
    let other = db.worker("work").await;
    let held = next(&db, &other).await;
    assert_eq!(held.len(), 2);
    other.succeed_all(&held).await;
    assert_eq!(next(&db, &other).await.len(), 2);
}

#[tokio::test]
async fn several_limits_hold_together() {
    let (db, worker, _) = limited("3").await;
    db.run("select tuskline.set_limit('work', 1, p_by_key => true)").await;
    db.run("select tuskline.set_limit('work', 2, p_collection => 'news')").await;
    for key in ["x", "x", "y", "z"] {
        db.run(&format!(
            "select tuskline.schedule('work', p_limit_key => '{key}', p_collection => 'news')"
        ))
        .await;
    }
    db.schedule_many("work", 3).await;
    let mut executed = 0;
    loop {
        let held = next(&db, &worker).await;
        if held.is_empty() {
            break;
        }
        let running = db
            .lines(
                "select count(*) <= 3, count(*) filter (where collection = 'news') <= 2, \
                 count(*) filter (where limit_key is not null) = count(distinct limit_key) \
                 from tuskline.task where status in ('enqueued', 'claimed', 'processing')",
            )
            .await;
        assert_eq!(running, ["true | true | true"]);
        executed += held.len();
        worker.succeed(&held[0]).await;
        worker.succeed_all(&held[1..]).await;
    }
    assert_eq!(executed, 7);
}

#[tokio::test]
async fn a_limit_changes_at_once_and_ends_when_it_is_dropped() {
    let (db, worker, rule) = limited("1").await;
    db.schedule_many("work", 6).await;
    let held = next(&db, &worker).await;
    assert_eq!(held.len(), 1);
    db.run("select tuskline.set_limit('work', 3)").await;
    let more = next(&db, &worker).await;
    assert_eq!(more.len(), 2);
    db.run("select tuskline.set_limit('work', 1)").await;
    worker.succeed_all(&more).await;
    assert_eq!(next(&db, &worker).await.len(), 0, "one is at work still");
    assert!(db.ask::<bool>("select tuskline.drop_limit($1)", &[&rule]).await);
    assert_eq!(db.one::<i32>("select moved from tuskline.run_policies()").await, 3);
    assert_eq!(next(&db, &worker).await.len(), 3);
    db.run("select tuskline.run_policies()").await;
    assert_eq!(db.one::<i64>("select count(*) from tuskline.limits").await, 0);
    assert!(!db.ask::<bool>("select tuskline.drop_limit($1)", &[&rule]).await);
}

#[tokio::test]
async fn no_more_than_so_many_in_a_second() {
    let (db, worker, _) = limited("p_per_second => 2, p_burst => 3").await;
    db.schedule_many("work", 12).await;
    let mut started = Vec::new();
    for _ in 0..6 {
        started.push(next(&db, &worker).await.len());
        db.advance(Duration::from_millis(500)).await;
    }
    assert_eq!(started, [3, 1, 1, 1, 1, 1]);
    db.advance(Duration::from_secs(60)).await;
    assert_eq!(next(&db, &worker).await.len(), 3, "a rest is worth a burst");
}

/// Waits until no queue is flagged: claims then check no limit.
async fn sorted(db: &Db) {
    while db.one::<bool>("select exists (select from tuskline_core.flagged_queue)").await {
        db.run("select tuskline.run_policies()").await;
    }
}

/// Runs policies for ten seconds. A worker, if there is one, claims after each round.
async fn ten_seconds(db: &Db, worker: Option<&ScriptedWorker>) -> Vec<usize> {
    sorted(db).await;
    let mut started = Vec::new();
    for _ in 0..100 {
        db.advance(Duration::from_millis(100)).await;
        while db.enqueue_due().await > 0 {}
        if let Some(worker) = worker {
            started.push(worker.claim(100).await.len());
        }
    }
    started
}

fn most_in(starts: &[usize], looks: usize) -> usize {
    starts.windows(looks).map(|window| window.iter().sum()).max().unwrap_or(0)
}

#[tokio::test]
async fn a_rate_saves_up_no_more_than_a_burst_while_no_worker_is_there() {
    let (db, worker, _) = limited("p_per_second => 5").await;
    db.schedule_many("work", 300).await;
    ten_seconds(&db, None).await;
    ten_seconds(&db, None).await;
    let started = ten_seconds(&db, Some(&worker)).await;
    assert_eq!(most_in(&started, 1), 5, "at once: {started:?}");
    assert_eq!(most_in(&started, 11), 10, "in a second: {started:?}");
    let total = started.iter().sum::<usize>();
    assert!((52..=54).contains(&total), "5 a second, and the burst: {total}");
}

#[tokio::test]
async fn a_rate_is_reached_with_the_smallest_burst_that_is_accepted() {
    let (db, worker, _) = limited("p_per_second => 50, p_burst => 5").await;
    db.schedule_many("work", 700).await;
    let started = ten_seconds(&db, Some(&worker)).await;
    assert!((495..=505).contains(&started.iter().sum::<usize>()), "{started:?}");
    assert_eq!(most_in(&started, 1), 5);
}

#[tokio::test]
async fn each_claim_needs_a_permit_of_a_rate_and_keeps_that_of_a_concurrency_limit() {
    let (db, worker, _) = limited("2").await;
    db.run("select tuskline.set_limit('work', p_per_second => 1, p_burst => 1)").await;
    sorted(&db).await;
    let ids = db.schedule_many("work", 3).await;
    let held = next(&db, &worker).await;
    assert_eq!(held.iter().map(|task| task.id).collect::<Vec<_>>(), ids[..1]);
    assert!(worker.release(&held[0]).await);
    assert_eq!(next(&db, &worker).await.len(), 0, "given back: it waits for a token, too");
    db.advance(Duration::from_secs(1)).await;
    assert_eq!(next(&db, &worker).await[0].id, ids[0], "and keeps its turn");
    db.advance(Duration::from_secs(30)).await;
    assert_eq!(db.rescue().await.1, 1);
    let waits = "select status::text from tuskline.task where id = $1";
    assert_eq!(db.ask::<String>(waits, &[&ids[0]]).await, "enqueued", "30 s are worth a token");
    let permits = "select count(*) from tuskline.permit where fence is null";
    assert_eq!(db.one::<i64>(permits).await, 2, "of the concurrency limit");
    let second = db.worker("work").await;
    let started: usize = ten_seconds(&db, Some(&second)).await.iter().sum();
    assert_eq!(started, 2, "two at a time");
}

#[tokio::test]
async fn a_task_that_comes_back_keeps_its_turn_under_a_rate() {
    let (db, worker, _) = limited("p_per_second => 0.1, p_burst => 1").await;
    let first = db.schedule("work").await;
    while db.enqueue_due().await > 0 {}
    db.advance(Duration::from_secs(5)).await;
    db.schedule("work").await;
    let held = next(&db, &worker).await;
    db.advance(Duration::from_secs(1)).await;
    assert!(worker.release(&held[0]).await);
    db.advance(Duration::from_secs(20)).await;
    assert_eq!(next(&db, &worker).await[0].id, first);
}

#[tokio::test]
async fn a_lowered_burst_takes_back_what_has_not_started() {
    let (db, worker, _) = limited("p_per_second => 10").await;
    let ids = db.schedule_many("work", 30).await;
    while db.enqueue_due().await > 0 {}
    assert_eq!(db.count("enqueued").await, 10);
    db.run("select tuskline.set_limit('work', p_per_second => 1, p_burst => 2)").await;
    let started: Vec<_> = worker.claim(100).await.iter().map(|task| task.id).collect();
    assert_eq!(started, ids[..2]);
    db.advance(Duration::from_secs(1)).await;
    assert_eq!(next(&db, &worker).await[0].id, ids[2], "the next one keeps its turn");
}

#[tokio::test]
async fn the_permit_of_a_task_that_ended_unclaimed_is_free_again() {
    let (db, worker, _) = limited("p_per_second => 0.001, p_burst => 2").await;
    let ids = db.schedule_many("work", 4).await;
    while db.enqueue_due().await > 0 {}
    assert_eq!(db.cancel(ids[0]).await, "cancelled");
    while db.enqueue_due().await > 0 {}
    db.advance(Duration::from_millis(20)).await;
    let started: Vec<_> = next(&db, &worker).await.iter().map(|task| task.id).collect();
    assert_eq!(started, ids[1..3]);
}

#[tokio::test]
async fn spent_permits_of_a_key_that_comes_no_more_are_counted_by_the_janitor() {
    let (db, worker, _) = limited("p_per_second => 1, p_by_key => true").await;
    keyed(&db, "limit_key", "once").await;
    worker.succeed_all(&next(&db, &worker).await).await;
    let permits = "select count(*) from tuskline.permit";
    assert_eq!(db.one::<i64>(permits).await, 1);
    db.run("select tuskline.find_stalled(segment_no) from tuskline.segment").await;
    assert_eq!(db.one::<i64>(permits).await, 0);
    let shown = "select held from tuskline.limits";
    assert_eq!(db.one::<i64>(shown).await, 0);
}

#[tokio::test]
async fn a_step_back_of_the_clock_stops_no_rate() {
    let (db, worker, _) = limited("p_per_second => 1, p_burst => 1").await;
    db.schedule_many("work", 5).await;
    assert_eq!(next(&db, &worker).await.len(), 1);
    db.advance(Duration::from_secs(1)).await;
    assert_eq!(next(&db, &worker).await.len(), 1, "the bucket has moved by the first claim");
    db.turn_back(Duration::from_secs(3600)).await;
    db.run("update tuskline.timer set due = tuskline.clock()").await;
    assert_eq!(next(&db, &worker).await.len(), 0);
    assert_eq!(ten_seconds(&db, Some(&worker)).await.iter().sum::<usize>(), 3);
}

#[tokio::test]
async fn a_throttle_lets_so_many_start_in_a_second_and_ends_at_its_time() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    let worker = db.worker("work").await;
    let ids = db.schedule_many("work", 30).await;
    db.run("select tuskline.throttle('work', 4, p_for => '1 hour', p_reason => 'ill')").await;
    let mut started = vec![worker.claim(100).await.len()];
    for _ in 0..15 {
        db.advance(Duration::from_millis(250)).await;
        started.push(next(&db, &worker).await.len());
    }
    assert_eq!(started, [1; 16], "what was queued before is throttled, too");
    db.advance(Duration::from_secs(60)).await;
    let ids_of = |tasks: Vec<Task>| tasks.iter().map(|task| task.id).collect::<Vec<_>>();
    let after = ids_of(next(&db, &worker).await);
    assert_eq!(after, ids[16..20], "a minute of rest is worth a second's tasks");
    let waits: i64 = db.one("select max(task_id) from tuskline.wait_list").await;
    let said: String = db.ask("select detail from tuskline.explain($1)", &[&waits]).await;
    assert!(said.contains("; a throttle, set by ") && said.ends_with(": ill"), "{said}");
    let due: i64 = db.one("select next_due_ms from tuskline.run_policies()").await;
    assert_eq!(due, 3_600_000 - 60_000 - 15 * 250);
    db.advance(Duration::from_millis(due.unsigned_abs())).await;
    db.run("select tuskline.run_policies()").await;
    assert_eq!(ids_of(next(&db, &worker).await), ids[20..]);
    let audited = "select detail from tuskline.audit where verb = 'drop_limit'";
    let expected = format!("limit {} rate its time was over", db.number(1));
    assert_eq!(db.one::<String>(audited).await, expected);
}

#[tokio::test]
async fn a_throttle_holds_beside_a_limit_for_good() {
    let (db, worker, _) = limited("p_per_second => 100, p_burst => 100").await;
    let throttle: i64 = db.one("select tuskline.throttle('work', 1, p_reason => 'ill')").await;
    db.schedule_many("work", 10).await;
    assert_eq!(next(&db, &worker).await.len(), 1);
    let shown = db.lines("select per_second, reason from tuskline.limits order by 1").await;
    assert_eq!(shown, ["1 | ill", "100 | -"]);
    assert!(db.ask::<bool>("select tuskline.drop_limit($1)", &[&throttle]).await);
    db.run("select tuskline.run_policies()").await;
    assert_eq!(next(&db, &worker).await.len(), 9);
}

#[tokio::test]
async fn of_those_in_line_the_more_urgent_go_first_but_age_counts() {
    let (db, worker, _) = limited("1").await;
    let first = db.schedule("work").await;
    let held = next(&db, &worker).await;
    let low = db.schedule_at("work", "low").await;
    next(&db, &worker).await;
    db.advance(Duration::from_secs(30)).await;
    let high = db.schedule_at("work", "high").await;
    next(&db, &worker).await;
    db.advance(Duration::from_secs(30)).await;
    let late = db.schedule_at("work", "critical").await;
    next(&db, &worker).await;
    let (mut held, mut order) = (held, vec![]);
    while let Some(task) = held.first() {
        order.push(task.id);
        worker.succeed(task).await;
        held = next(&db, &worker).await;
    }
    // Critical counts 60 s, low 0 + 60 s (the older wins a tie), high 30 + 20 s.
    assert_eq!(order, [first, high, low, late]);
}

#[tokio::test]
async fn one_tenants_many_delay_anothers_one_by_a_round_at_most() {
    let (db, worker, rule) = limited("1, p_fair => true").await;
    let mut flood = Vec::new();
    for _ in 0..50 {
        flood.push(keyed(&db, "fairness_key", "flood").await);
    }
    let mut held = next(&db, &worker).await;
    let small = keyed(&db, "fairness_key", "small").await;
    db.run(&format!("select tuskline.set_weight({rule}, 'big', 2)")).await;
    let mut order = Vec::new();
    for _ in 0..4 {
        keyed(&db, "fairness_key", "big").await;
    }
    next(&db, &worker).await;
    while let Some(task) = held.first() {
        let key = "select fairness_key from tuskline.task where id = $1";
        order.push(db.ask::<String>(key, &[&task.id]).await);
        assert_eq!(worker.succeed(task).await, crate::support::Answer::Accepted);
        held = next(&db, &worker).await;
    }
    assert_eq!(order.len(), 55);
    let place = order.iter().position(|key| key == "small").unwrap();
    assert!(place <= 4, "one each of the flood and of itself, two of the big one: {order:?}");
    let bigs = order[..10].iter().filter(|key| *key == "big").count();
    assert!(bigs >= 3, "twice in a round: {order:?}");
    assert_eq!(db.status(small).await, "success");
    let _ = flood;
}

#[tokio::test]
async fn what_a_limit_holds_up_says_so() {
    let (db, worker, rule) = limited("2").await;
    db.schedule_many("work", 3).await;
    next(&db, &worker).await;
    let waits: i64 = db.one("select task_id from tuskline.wait_list").await;
    let said =
        db.lines(&format!("select reason, detail, cause from tuskline.explain({waits})")).await;
    assert_eq!(
        said,
        [format!("limit | 2 at a time, 2 running; 0 ahead | tuskline.task_limit {rule} on work")]
    );
    let shown = db.lines("select kind, max_concurrency, held, waiting from tuskline.limits").await;
    assert_eq!(shown, ["concurrency | 2 | 2 | 1"]);
}

#[tokio::test]
async fn a_lambda_without_limits_keeps_its_short_way() {
    let (db, _worker, _) = limited("2").await;
    db.define("other").await;
    let direct = db
        .lines(
            "select lambda, bool_and(direct) as direct from tuskline.queue group by 1 order by 1",
        )
        .await;
    assert_eq!(direct, ["other | true", "work | false"]);
}

#[tokio::test]
async fn what_stood_in_the_queue_before_is_limited_too() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    let worker = db.worker("work").await;
    let ids = db.schedule_many("work", 10).await;
    db.run("select tuskline.set_limit('work', 2)").await;
    let mut held = worker.claim(100).await;
    let mut seen: Vec<_> = held.iter().map(|task| task.id).collect();
    assert_eq!((seen.as_slice(), db.queued().await), (&ids[..2], 0), "eight stand in line");
    while !held.is_empty() {
        worker.succeed_all(&held).await;
        held = next(&db, &worker).await;
        assert!(held.len() <= 2);
        seen.extend(held.iter().map(|task| task.id));
    }
    assert_eq!(seen, ids);
}

#[tokio::test]
async fn a_full_backlog_refuses_until_there_is_room() {
    let db = Db::new().await;
    db.define_with("work", "p_max_backlog => 5").await;
    let worker = db.worker("work").await;
    db.schedule_many("work", 5).await;
    db.schedule("work").await; // the backlog is not counted yet
    assert!(db.one::<bool>("select gates from tuskline.enqueue_due()").await);
    db.run("select tuskline.run_policies()").await;
    let said = db.refused("select tuskline.schedule('work')").await;
    let hint = "[try again later, or: select tuskline.alter_lambda('work', p_max_backlog => ...)]";
    assert_eq!(said, format!("TK020: TK020 backlog_full: 5 tasks of work wait already {hint}"));
    for sql in [
        "insert into tuskline.task (lambda) values ('work')",
        "select tuskline.schedule_many(array['work'])",
        "select tuskline.schedule('work', p_delay => '1 hour')",
    ] {
        assert!(db.refused(sql).await.starts_with("TK020"), "{sql}");
    }
    worker.succeed_all(&worker.claim(2).await).await;
    db.run("select tuskline.run_policies()").await;
    db.schedule("work").await;
    db.run("select tuskline.run_policies()").await;
    assert!(db.refused("select tuskline.schedule('work')").await.starts_with("TK020"));
    db.run("select tuskline.alter_lambda('work', p_max_backlog => 0)").await;
    db.schedule("work").await;
}

/// The number of rows in the wait list, and of timers.
async fn in_line(db: &Db) -> (i64, i64) {
    let line = db.one("select count(*) from tuskline.wait_list").await;
    (line, db.one("select count(*) from tuskline.timer").await)
}

#[tokio::test]
async fn what_an_old_snapshot_queues_is_limited_too() {
    let db = Db::with_lambda("work").await;
    let worker = db.worker("work").await;
    let late = db.connect().await;
    late.batch_execute("begin isolation level repeatable read; select from tuskline.lambda")
        .await
        .unwrap();
    db.run("select tuskline.set_limit('work', 1)").await;
    let flags = "select count(*) from tuskline_core.flagged_queue";
    db.run("select tuskline.run_policies()").await;
    assert_eq!(db.one::<i64>(flags).await, 4);
    late.batch_execute("select tuskline.schedule_many(array['work', 'work', 'work'])")
        .await
        .unwrap();
    db.run("select tuskline.run_policies()").await;
    assert_eq!(db.one::<i64>(flags).await, 4, "it may still commit");
    late.batch_execute("commit").await.unwrap();
    assert_eq!(db.queued().await, 3, "they are in the queue, and hold no permit");
    db.run("select tuskline.run_policies()").await;
    assert_eq!((db.one::<i64>(flags).await, db.queued().await), (0, 1));
    assert_eq!(worker.claim(100).await.len(), 1);
}

#[tokio::test]
async fn what_ran_when_the_limit_was_set_asks_when_it_comes_back() {
    for by_rescue in [false, true] {
        let db = Db::with_lambda("work").await;
        db.pin().await;
        let worker = db.worker("work").await;
        let ids = db.schedule_many("work", 3).await;
        let held = worker.claim(3).await;
        db.run("select tuskline.set_limit('work', 1)").await;
        db.run("select tuskline.run_policies()").await;
        assert_eq!(db.one::<i64>("select count(*) from tuskline_core.flagged_queue").await, 0);
        let other = db.worker("work").await;
        if by_rescue {
            db.run(&format!(
                "update tuskline.executor set expires_at = tuskline.clock() where executor_id = {}",
                worker.executor
            ))
            .await;
            assert_eq!(db.rescue().await, (1, 3, 0));
        } else {
            for task in &held {
                assert!(worker.release(task).await);
            }
        }
        let first = other.claim(10).await;
        assert_eq!((first.len(), db.queued().await), (1, 0), "the others wait for its permit");
        assert!(other.succeed_all(&first).await.is_empty());
        assert_eq!(next(&db, &other).await.len(), 1);
        assert!(ids.contains(&first[0].id));
    }
}

#[tokio::test]
async fn a_queue_is_sorted_once_and_keeps_its_order() {
    let db = Db::with_lambda("work").await;
    let worker = db.worker("work").await;
    let ids = db.schedule_many("work", 25).await;
    db.run("select tuskline.set_limit('work', 30), tuskline.set_limit('work', 2, p_collection => 'news')").await;
    for looked in [10, 10, 5, 0] {
        assert_eq!(db.one::<i32>("select moved from tuskline.run_policies(10)").await, looked);
    }
    let held = "select count(*) from tuskline.permit";
    assert_eq!((db.one::<i64>(held).await, db.queued().await), (25, 25));
    let claimed: Vec<i64> = worker.claim(100).await.iter().map(|task| task.id).collect();
    assert_eq!(claimed, ids);
}

#[tokio::test]
async fn a_flood_waits_in_line_from_the_start_and_costs_one_timer() {
    let (db, worker, _) = limited("2").await;
    let ids = db.schedule_many("work", 500).await;
    assert_eq!(in_line(&db).await, (500, 1));
    assert_eq!(next(&db, &worker).await.len(), 2);
    db.schedule_many("work", 500).await;
    assert_eq!(in_line(&db).await, (998, 1));
    next(&db, &worker).await;
    assert_eq!(in_line(&db).await, (998, 0), "no permit is free, so no waiter asks");
    assert_eq!(db.one::<i64>("select min(task_id) from tuskline.wait_list").await, ids[2]);
}

#[tokio::test]
async fn a_task_that_is_due_later_or_fair_or_free_does_not_join_a_wait_list_at_once() {
    let (db, _, _) = limited("1, p_collection => 'news'").await;
    db.run("select tuskline.schedule('work', p_collection => 'news', p_delay => '1 hour')").await;
    db.schedule_many("work", 2).await;
    assert_eq!(in_line(&db).await, (0, 3));
    db.run("select tuskline.set_limit('work', 1, p_collection => 'news', p_fair => true)").await;
    db.run("select tuskline.schedule('work', p_collection => 'news')").await;
    assert_eq!(in_line(&db).await, (0, 4));
}

#[tokio::test]
async fn when_the_head_of_a_wait_list_is_cancelled_the_next_task_asks() {
    let (db, worker, _) = limited("1").await;
    let ids = db.schedule_many("work", 3).await;
    db.cancel(ids[0]).await;
    db.advance(Duration::from_millis(20)).await;
    assert_eq!(next(&db, &worker).await[0].id, ids[1]);
}

#[tokio::test]
async fn a_dropped_limit_stays_until_no_task_can_join_its_wait_lists_any_more() {
    let (db, worker, rule) = limited("1").await;
    let late = db.connect().await;
    late.batch_execute("begin; select tuskline.schedule('work')").await.unwrap();
    db.ask::<bool>("select tuskline.drop_limit($1)", &[&rule]).await;
    let left = "select count(*) from tuskline.task_limit";
    db.run("select tuskline.run_policies()").await;
    assert_eq!(db.one::<i64>(left).await, 1);
    late.batch_execute("commit").await.unwrap();
    db.run("select tuskline.run_policies()").await;
    assert_eq!(next(&db, &worker).await.len(), 1);
    db.run("select tuskline.run_policies()").await;
    assert_eq!((in_line(&db).await, db.one::<i64>(left).await), ((0, 0), 0));
}

#[tokio::test]
async fn a_rate_is_flat_under_a_held_snapshot() {
    let (db, worker, _) = limited("p_per_second => 1000, p_burst => 100").await;
    let held = db.connect().await;
    held.batch_execute("begin isolation level repeatable read; select 1").await.unwrap();
    db.schedule_many("work", 3_000).await;
    // Entries of the indexes of wait list and permits that one round reads.
    let round = async || {
        db.advance(Duration::from_millis(50)).await;
        let read = "select sum(idx_tup_read)::bigint from pg_stat_user_indexes \
                    where indexrelname in ('wait_list_pkey', 'permit_pkey')";
        db.run("select pg_stat_force_next_flush()").await;
        let before: i64 = db.one(read).await;
        while db.enqueue_due().await > 0 {}
        db.run("select pg_stat_force_next_flush()").await;
        let entries = db.one::<i64>(read).await - before;
        worker.claim(100).await;
        entries
    };
    for _ in 0..5 {
        round().await;
    }
    let early = round().await;
    for _ in 0..40 {
        round().await;
    }
    let gone = 3_000 - in_line(&db).await.0;
    assert!((2_000..2_900).contains(&gone), "{gone}");
    let late = round().await;
    assert!(late < early + 200, "{early} entries, with {gone} dead ones {late}");
}

#[tokio::test]
async fn a_task_that_joins_behind_unspent_permits_reads_none_of_them() {
    let (db, worker, _) = limited("p_per_second => 1000, p_burst => 500").await;
    db.schedule_many("work", 600).await;
    while db.enqueue_due().await > 0 {}
    assert_eq!(in_line(&db).await.0, 100);
    let read = "select sum(idx_tup_read)::bigint from pg_stat_user_indexes
                where indexrelname = 'permit_pkey'";
    db.run("select pg_stat_force_next_flush()").await;
    let before: i64 = db.one(read).await;
    for _ in 0..10 {
        db.schedule("work").await;
        db.enqueue_due().await;
    }
    db.run("select pg_stat_force_next_flush()").await;
    let entries = db.one::<i64>(read).await - before;
    assert!(entries < 500, "10 tasks read {entries} entries of 500 permits");

    // A higher rate does not wait for the recheck of the lower rate.
    worker.claim(300).await;
    db.run("select tuskline.set_limit('work', p_per_second => 5000, p_burst => 500)").await;
    db.advance(Duration::from_millis(60)).await;
    while db.enqueue_due().await > 0 {}
    assert_eq!(in_line(&db).await.0, 0);
}

#[tokio::test]
async fn a_rate_serves_a_task_that_commits_long_after_later_ones_ran() {
    let (db, worker, _) = limited("p_per_second => 1, p_burst => 1").await;
    let late = db.connect().await;
    late.batch_execute("begin; select tuskline.schedule('work') from generate_series(1, 2)")
        .await
        .unwrap();
    let mut seen = 0;
    for _ in 0..4 {
        db.schedule("work").await;
        seen += next(&db, &worker).await.len();
        db.advance(Duration::from_secs(1)).await;
    }
    late.batch_execute("commit").await.unwrap();
    for _ in 0..3 {
        seen += next(&db, &worker).await.len();
        db.advance(Duration::from_secs(1)).await;
    }
    assert_eq!((seen, in_line(&db).await), (6, (0, 0)));
}

#[tokio::test]
async fn a_narrower_limit_that_is_set_later_stops_no_task_for_good() {
    let (db, worker, _) = limited("1").await;
    let first = keyed(&db, "limit_key", "c").await;
    db.enqueue_due().await; // it has the lambda's permit
    db.run("select tuskline.set_limit('work', 1, p_by_key => true)").await;
    let second = keyed(&db, "limit_key", "c").await;
    let third = keyed(&db, "limit_key", "d").await;
    assert_eq!(next(&db, &worker).await.len(), 0, "the second has the key's place, the first asks");
    let mut seen = Vec::new();
    for _ in 0..3 {
        db.advance(Duration::from_millis(20)).await;
        let held = next(&db, &worker).await;
        seen.extend(held.iter().map(|task| task.id));
        worker.succeed_all(&held).await;
    }
    seen.sort_unstable();
    assert_eq!((seen, in_line(&db).await.0), (vec![first, second, third], 0));
}

#[tokio::test]
async fn a_flood_in_a_wider_line_goes_over_to_a_narrower_one() {
    let (db, worker, _) = limited("3").await;
    for _ in 0..150 {
        keyed(&db, "limit_key", "c").await;
    }
    let mut held = next(&db, &worker).await;
    assert_eq!(held.len(), 3);
    db.run("select tuskline.set_limit('work', 1, p_by_key => true)").await;
    let mut done = 0;
    for round in 0..200 {
        assert!(round == 0 || held.len() <= 1);
        done += held.len();
        worker.succeed_all(&held).await;
        db.advance(Duration::from_millis(20)).await;
        held = next(&db, &worker).await;
    }
    assert_eq!((done, in_line(&db).await), (150, (0, 0)));
}

#[tokio::test]
async fn an_open_cancel_of_the_first_in_line_lets_the_second_go() {
    let (db, worker, _) = limited("1").await;
    let ids = db.schedule_many("work", 3).await;
    db.enqueue_due().await;
    let first = worker.take().await;
    assert_eq!(first.id, ids[0]);
    let owner = db.connect().await;
    owner.batch_execute(&format!("begin; select tuskline.cancel({})", ids[1])).await.unwrap();
    worker.succeed(&first).await;
    assert_eq!(worker.take().await.id, ids[2], "given by who left");
    owner.batch_execute("rollback").await.unwrap();
}

#[tokio::test]
async fn a_new_permit_goes_to_a_task_that_is_free() {
    let (db, worker, _) = limited("1").await;
    let ids = db.schedule_many("work", 3).await;
    db.enqueue_due().await;
    worker.take().await;
    let owner = db.connect().await;
    owner.batch_execute(&format!("begin; select tuskline.cancel({})", ids[1])).await.unwrap();
    db.advance(Duration::from_secs(1)).await;
    db.run("select tuskline.set_limit('work', 2)").await;
    let late = db.schedule("work").await;
    db.advance(Duration::from_secs(1)).await;
    let given = next(&db, &worker).await;
    assert!(given.len() == 1 && [ids[2], late].contains(&given[0].id), "{given:?}");
    owner.batch_execute("rollback").await.unwrap();
}

#[tokio::test]
async fn the_owner_of_a_lambda_holds_up_no_other_owner() {
    let db = Db::with_lambda("work").await;
    db.define_with("other", "p_max_backlog => 1").await;
    db.schedule("other").await;
    let owner = db.connect().await;
    owner
        .batch_execute("begin; select tuskline.alter_lambda('work', p_max_attempts => 3)")
        .await
        .unwrap();
    db.run("set lock_timeout = '2s'; select tuskline.alter_lambda('other', p_max_backlog => 5)")
        .await;
    owner.batch_execute("rollback").await.unwrap();
}

#[tokio::test]
async fn a_raised_limit_reaches_tasks_that_join_its_wait_list_meanwhile() {
    let (db, worker, _) = limited("1").await;
    for _ in 0..6 {
        db.schedule_in("work", Duration::from_secs(1)).await;
    }
    db.advance(Duration::from_secs(1)).await;
    let (joins, owner) = (db.connect().await, db.connect().await);
    joins.batch_execute("begin; select tuskline.enqueue_due()").await.unwrap();
    let pid: i32 = owner.query_one("select pg_backend_pid()", &[]).await.unwrap().get(0);
    let commits = async {
        db.until_blocked(pid).await;
        joins.batch_execute("commit").await.unwrap();
    };
    let (raised, ()) =
        tokio::join!(owner.batch_execute("select tuskline.set_limit('work', 100)"), commits);
    raised.unwrap();
    assert_eq!(next(&db, &worker).await.len(), 6);
}

#[tokio::test]
async fn a_raised_rate_counts_from_now() {
    let (db, worker, _) = limited("p_per_second => 0.01, p_burst => 1").await;
    db.schedule_many("work", 3).await;
    assert_eq!(next(&db, &worker).await.len(), 1);
    db.advance(Duration::from_secs(10)).await;
    assert_eq!(next(&db, &worker).await.len(), 0, "the bucket has moved by 100 s");
    db.run("select tuskline.set_limit('work', p_per_second => 1, p_burst => 1)").await;
    assert_eq!(next(&db, &worker).await.len(), 0);
    db.advance(Duration::from_secs(1)).await;
    assert_eq!(next(&db, &worker).await.len(), 1);
    db.run("select tuskline.set_limit('work', p_per_second => 0.01, p_burst => 1)").await;
    db.advance(Duration::from_secs(99)).await;
    assert_eq!(next(&db, &worker).await.len(), 0, "a lowered one counts from the last start");
    db.advance(Duration::from_secs(1)).await;
    assert_eq!(next(&db, &worker).await.len(), 1);
}

#[tokio::test]
async fn a_limit_of_none_is_why_the_first_in_line_waits() {
    let (db, worker, _) = limited("0").await;
    let id = db.schedule("work").await;
    assert_eq!(next(&db, &worker).await.len(), 0);
    let said = db.lines(&format!("select reason, detail from tuskline.explain({id})")).await;
    assert_eq!(said, ["limit | 0 at a time, 0 running; 0 ahead"]);
}

#[tokio::test]
async fn a_lambda_that_is_full_is_looked_at_though_it_has_no_limit_any_more() {
    let db = Db::with_lambda("work").await;
    db.run("update tuskline.queue set is_full = true, direct = false").await;
    assert!(db.refused("select tuskline.schedule('work')").await.starts_with("TK020"));
    assert!(db.one::<bool>("select gates from tuskline.enqueue_due()").await);
    db.run("select tuskline.run_policies()").await;
    assert!(!db.one::<bool>("select gates from tuskline.enqueue_due()").await);
    db.schedule("work").await;
}

#[tokio::test]
async fn a_backlog_limit_that_is_lifted_while_backlogs_are_counted_is_lifted() {
    let db = Db::new().await;
    for name in ["early", "work"] {
        db.define_with(name, "p_max_backlog => 2").await;
        db.schedule_many(name, 2).await;
    }
    let (holder, looks) = (db.connect().await, db.connect().await);
    let lock = "begin; select from tuskline.queue where lambda = 'early' for update";
    holder.batch_execute(lock).await.unwrap();
    let pid: i32 = looks.query_one("select pg_backend_pid()", &[]).await.unwrap().get(0);
    let lifts = async {
        db.until_blocked(pid).await; // it has read both limits
        db.run("select tuskline.alter_lambda('work', p_max_backlog => 0)").await;
        holder.batch_execute("rollback").await.unwrap();
    };
    let (looked, ()) =
        tokio::join!(looks.batch_execute("select tuskline_core.note_backlogs()"), lifts);
    looked.unwrap();
    let full = "select distinct lambda from tuskline.queue where is_full";
    assert_eq!(db.all::<String>(full).await, ["early"]);
}

#[tokio::test]
async fn a_backlog_is_noted_while_the_owner_of_another_changes_that() {
    let db = Db::new().await;
    for name in ["early", "work"] {
        db.define_with(name, "p_max_backlog => 2").await;
        db.schedule_many(name, 2).await;
    }
    let owner = db.connect().await;
    let change = "begin; update tuskline.lambda set max_backlog = 3 where name = 'early'";
    owner.batch_execute(change).await.unwrap();
    db.run("select tuskline.run_policies()").await;
    let full = "select distinct lambda from tuskline.queue where is_full";
    assert_eq!(db.all::<String>(full).await, ["work"]);
}

#[tokio::test]
async fn a_task_that_waits_for_a_permit_that_a_lowered_limit_has_not_asks_again() {
    let (db, worker, _) = limited("2").await;
    db.schedule_many("work", 2).await;
    let held = next(&db, &worker).await;
    assert_eq!(held.len(), 2);
    let first =
        db.one::<i64>("select task_id from tuskline.permit order by permit_no limit 1").await;
    let (first, second): (Vec<_>, Vec<_>) = held.into_iter().partition(|task| task.id == first);
    worker.succeed_all(&first).await;
    db.run("select tuskline.set_limit('work', 1)").await;
    let waits = db.schedule("work").await;
    assert_eq!(next(&db, &worker).await.len(), 0);
    worker.succeed_all(&second).await;
    db.advance(Duration::from_secs(1)).await;
    let now: Vec<_> = next(&db, &worker).await.iter().map(|task| task.id).collect();
    assert_eq!(now, [waits]);
}
