//! Each attempt and each wait is counted once, by queue, lambda and worker, and the counts outlive the
//! processes that counted.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tuskline::store::figures;
use tuskline_sdk::{Context, Lambda, Outcome};

use crate::support::cli::on;
use crate::support::{Db, Running, ScriptedWorker, calm, quick};

const MINUTE: Duration = Duration::from_secs(60);

/// Outcomes of a queue, of everything that was ever counted.
async fn outcomes(db: &Db) -> Vec<String> {
    db.lines(
        "select lambda, success, retriable_failure, fatal_failure, snoozed, cancelled, refused, dead, \
         crashed, dropped from tuskline.statistics(null)",
    )
    .await
}

async fn fold(db: &Db) -> Option<i32> {
    db.one("select tuskline.fold_statistics()").await
}

/// Each wait that was counted: lambda, cause, how many, how many ms.
async fn waits(db: &Db) -> Vec<String> {
    db.lines(
        "select lambda, cause, (select sum(n) from unnest(waits) as n), total_ms \
         from tuskline.wait_times(null)",
    )
    .await
}

#[tokio::test]
async fn a_worker_reports_what_became_of_its_attempts() {
    let db = Db::with_lambda("work").await;
    db.run("select tuskline.alter_lambda('work', p_retry_base => '1 ms')").await;
    for text in ["success", "retry", "fatal", "snooze", "success"] {
        db.ask::<i64>("select tuskline.schedule('work', to_json($1::text))", &[&text]).await;
    }
    static SNOOZED: AtomicBool = AtomicBool::new(false);
    let body = |text: String, context: Context| async move {
        match text.as_str() {
            "retry" if context.attempt() == 1 => Outcome::retriable("once"),
            "snooze" if !SNOOZED.swap(true, Ordering::Relaxed) => Outcome::Snooze(Duration::ZERO),
            "fatal" => Outcome::fatal("never"),
            _ => Outcome::Success(None),
        }
    };
    let sdk_worker = Running::start(&db, calm(), vec![Lambda::named("work", body)]);
    let consumer = db.store_consumer();
    db.until("select count(*) = 5 from tuskline.task where finished_at is not null").await;
    sdk_worker.stop().await;
    drop(consumer);
    assert_eq!(outcomes(&db).await, ["work | 4 | 1 | 1 | 1 | 0 | 0 | 0 | 0 | 0"]);
    let counted = "select (select sum(n) from unnest(starts) as n), (select sum(n) from unnest(runs) as n) \
                   from tuskline.statistics(null)";
    // The attempt after a snooze has number 1 again, and is no first start.
    assert_eq!(db.lines(counted).await, ["5 | 7"], "first starts, and all attempts that ended");
    let of_worker = "select success, failed, refused from tuskline.executor_loads(null)";
    assert_eq!(db.lines(of_worker).await, ["4 | 2 | 0"]);
}

#[tokio::test]
async fn only_the_first_claim_of_a_task_tells_how_long_it_was_due() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    let worker = db.worker_with(&["work"], MINUTE * 60).await;
    let seconds = Duration::from_secs;
    // Makes a task due, then claims it after a time in the queue.
    let claimed = async |due_in: Duration, queued: Duration| {
        db.advance(due_in).await;
        while db.enqueue_due().await > 0 {}
        db.advance(queued).await;
        let task = worker.take().await;
        ((task.queued_ms, task.claimed_before), task)
    };
    let id = db.schedule("work").await;
    let (waited, task) = claimed(seconds(0), seconds(7)).await;
    assert_eq!((waited, task.attempt), ((7_000, false), 1));
    worker.snooze(&task).await;
    let (waited, task) = claimed(MINUTE * 30, seconds(3)).await;
    assert_eq!((waited, task.attempt), ((3_000, true), 1), "after a snooze");
    assert!(worker.release(&task).await);
    let (waited, task) = claimed(seconds(0), seconds(4)).await;
    assert_eq!((waited, task.attempt), ((4_000, true), 1), "after it came back");
    worker.fail(&task).await;
    let (waited, task) = claimed(MINUTE * 30, seconds(2)).await;
    assert_eq!((waited, task.attempt), ((2_000, true), 2), "a retry");
    worker.fail_for_good(&task).await;
    db.advance(MINUTE * 60).await;
    assert_eq!(db.one::<String>(&format!("select tuskline.retry({id})")).await, "retried");
    let (waited, task) = claimed(seconds(0), seconds(1)).await;
    assert_eq!((waited, task.attempt), ((1_000, true), 1), "after an operator restarted it");
    worker.succeed(&task).await;
}

#[tokio::test]
async fn a_snooze_or_a_restart_ends_no_wait_for_the_due_time_again() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    let worker = db.worker_with(&["work"], MINUTE * 60).await;
    let id = db.schedule_in("work", MINUTE).await;
    for again in ["snooze", "restart", "end"] {
        db.advance(MINUTE * 2).await;
        while db.enqueue_due().await > 0 {}
        let task = worker.take().await;
        match again {
            "snooze" => drop(worker.snooze(&task).await),
            "restart" => {
                worker.fail_for_good(&task).await;
                db.run(&format!("select tuskline.retry({id})")).await;
            }
            _ => drop(worker.succeed(&task).await),
        }
    }
    assert_eq!(waits(&db).await, ["work | due | 1 | 60000"]);
}

#[tokio::test]
async fn a_running_worker_reports_with_each_heartbeat() {
    let db = Db::with_lambda("work").await;
    let body = |_: serde_json::Value, _: Context| async { Outcome::Success(None) };
    let sdk_worker = Running::start(&db, quick(), vec![Lambda::named("work", body)]);
    db.schedule_many("work", 20).await;
    db.until("select coalesce(sum(success), 0) = 20 from tuskline.statistics()").await;
    let reports: i64 = db.one("select count(*) from tuskline_core.attempt_count").await;
    assert!(reports < 20, "a report has many attempts, got {reports} reports");
    let bounded = "select s.start_ms > 0 and s.run_ms > 0 and q.most <= 1000 * s.run_ms
                     from tuskline.longest_attempts() s cross join (
                       select max(u.amount) as most
                         from tuskline_core.attempt_count a
                              cross join unnest(a.counters, a.amounts) as u (counter, amount)
                        where u.counter = 217) q
                    where s.priority = 'normal' limit 1";
    assert_eq!(db.one::<Option<bool>>(bounded).await, Some(true), "the longest ones are told");
    sdk_worker.stop().await;
}

/// p95 of run times as the view has it for the last minute, the bound of the last five minutes, and
/// what `stats` shows.
async fn slowest(db: &Db) -> (Option<f64>, Option<f64>, Option<f64>) {
    let minute =
        "select (select run_p95_ms from tuskline.queue_statistics order by at desc limit 1)";
    let bound = "select run_ms from tuskline.longest_attempts() where priority = 'normal'";
    let shown = on(&db.config, "--json stats").run().json()[0]["run_p95_ms"].as_f64();
    (db.one(minute).await, db.one(bound).await, shown)
}

#[tokio::test]
async fn no_percentile_is_above_the_longest_duration() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    let worker = db.worker("work").await;
    let (executor, queue) = (worker.executor, db.queue("work", "normal").await);
    let report = async |counters: &str, amounts: &str| {
        let sql = format!(
            "select tuskline.report_attempts({executor}, array_fill({queue}, array[cardinality('{counters}'::int[])]),
               '{counters}', '{amounts}')"
        );
        db.run(&sql).await;
        db.advance(MINUTE).await;
    };
    // 20 attempts of up to 164 s, all between 1 and 5 minutes: p95 would be 4.8 minutes.
    report("{1,200,214,217}", "{20,3000000,20,164000000}").await;
    assert_eq!(slowest(&db).await, (None, Some(164_000.0), Some(164_000.0)), "not folded");
    fold(&db).await;
    assert_eq!(slowest(&db).await, (Some(164_000.0), Some(164_000.0), Some(164_000.0)));
    // A worker of an older SDK does not tell its longest one: the end of its bucket counts.
    report("{1,200,214}", "{1,70000,1}").await;
    fold(&db).await;
    assert_eq!(slowest(&db).await.1, Some(300_000.0));
    report("{1,200,216}", "{1,2000000,1}").await;
    assert_eq!(slowest(&db).await.1, None, "the last bucket has no end");
    fold(&db).await;
    assert_eq!(slowest(&db).await.1, None);
    // The first minutes have passed. Bodies take 10 µs: p95 would be 4.8 ms.
    db.advance(MINUTE * 10).await;
    report("{1,200,201,217}", "{100,1,100,10}").await;
    fold(&db).await;
    assert_eq!(slowest(&db).await, (Some(0.0), Some(0.01), Some(0.01)));
}

#[tokio::test]
async fn no_percentile_of_waits_is_above_the_longest_wait() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    let wait = async |seconds: &str| {
        db.run(&format!(
            "select tuskline_core.count_waits('limit', 'work',
                      array(select tuskline.clock() - n * interval '1 s' from unnest(array[{seconds}]) n),
                      tuskline.clock())"
        ))
        .await;
    };
    wait("70, 80, 164").await;
    let shown = || on(&db.config, "--json stats --by cause").run().json()[0]["p95_ms"].as_f64();
    assert_eq!(shown(), Some(164_000.0));
    fold(&db).await;
    assert_eq!(shown(), Some(164_000.0));
    db.advance(MINUTE).await;
    wait("65").await;
    fold(&db).await;
    let minutes = "select concat_ws(' ', p95_ms, max_ms) from tuskline.wait_statistics order by at";
    assert_eq!(db.lines(minutes).await, ["164000 164000", "65000 65000"]);
    assert_eq!(shown(), Some(164_000.0));
}

#[tokio::test]
async fn a_locked_table_of_counts_costs_no_worker_its_lease() {
    let mut db = Db::with_lambda("work").await;
    let other = db.connect().await;
    other.batch_execute("begin; lock table tuskline_core.attempt_count").await.unwrap();
    let body = |_: serde_json::Value, _: Context| async { Outcome::Success(None) };
    let sdk_worker = Running::start(&db, quick(), vec![Lambda::named("work", body)]);
    db.schedule_many("work", 20).await;
    db.until("select count(*) = 20 from tuskline.task where status = 'success'").await;
    let beats = "select max(beats) >= (select max(beats) + 3 from before) from tuskline.executor";
    db.run("create temp table before as select beats from tuskline.executor").await;
    db.until(beats).await;
    sdk_worker.stop().await;
    other.batch_execute("rollback").await.unwrap();
    db.reconnect().await;
    assert_eq!(db.lines("select end_reason from tuskline.executor").await, ["stopped"]);
}

#[tokio::test]
async fn each_end_that_no_worker_reports_is_counted() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    db.run("select tuskline.alter_lambda('work', p_max_attempts => 1, p_max_crashes => 2)").await;
    let worker = db.worker("work").await;
    db.schedule_many("work", 2).await;
    let task = worker.take().await;
    worker.fail(&task).await; // dead: it had one attempt
    worker.take().await;
    let cancelled = db.schedule("work").await;
    db.cancel(cancelled).await;
    db.advance(MINUTE).await;
    db.rescue().await; // its body had not begun
    let next = db.worker("work").await;
    let again = next.claim(10).await;
    assert!(next.start(&again[0]).await);
    db.advance(MINUTE).await;
    db.rescue().await; // crashed, and dead
    db.run("select tuskline.gate('work', 'drop', p_reason => 'a test')").await;
    db.schedule("work").await;
    while db.enqueue_due().await > 0 {}
    assert_eq!(outcomes(&db).await, ["work | 0 | 0 | 0 | 0 | 1 | 0 | 2 | 1 | 1"]);
}

#[tokio::test]
async fn each_cancelled_task_is_counted_however_its_attempt_ends() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    db.schedule_many("work", 6).await;
    let worker = db.worker("work").await;
    let tasks = worker.claim(6).await;
    for task in &tasks {
        db.cancel(task.id).await; // asks the attempt to stop
    }
    worker.fail(&tasks[0]).await;
    worker.snooze(&tasks[1]).await;
    assert!(worker.release(&tasks[2]).await);
    worker.succeed(&tasks[3]).await; // not cancelled: it was done
    worker.stopped(&tasks[4]).await; // the worker counts it
    db.advance(MINUTE).await;
    db.rescue().await; // the last one
    assert_eq!(db.count("cancelled").await, 5);
    assert_eq!(outcomes(&db).await, ["work | 0 | 0 | 0 | 0 | 4 | 0 | 0 | 0 | 0"]);
    // A task that waits outside of the segments.
    db.run("select tuskline.roll_segments()").await;
    let kept = db.schedule_in("work", MINUTE * 60_000).await;
    db.run(&format!("select tuskline.keep_remaining(tuskline_core.segment_of({kept}))")).await;
    assert_eq!(db.one::<i64>("select count(*) from tuskline.task_kept").await, 1);
    assert_eq!(db.cancel(kept).await, "cancelled");
    assert_eq!(outcomes(&db).await, ["work | 0 | 0 | 0 | 0 | 5 | 0 | 0 | 0 | 0"]);
}

#[tokio::test]
async fn each_wait_is_counted_by_its_cause_when_it_ends() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    for lambda in ["gated", "limited", "rated", "ordered", "child"] {
        db.define(lambda).await;
    }
    let worker = db
        .worker_with(&["work", "gated", "limited", "rated", "ordered", "child"], MINUTE * 60)
        .await;
    db.schedule_in("work", MINUTE).await; // due
    let gate =
        "select tuskline.gate('gated', 'pause', 'x', p_reason => 'a test', p_unseen => true)";
    let gate: i64 = db.one(gate).await;
    db.run("insert into tuskline.task (lambda, collection) values ('gated', 'x')").await;
    db.run("select tuskline.set_limit('limited', 1)").await;
    db.run("select tuskline.set_limit('rated', p_per_second => 0.1, p_burst => 1)").await;
    db.run("select tuskline.set_order('ordered')").await;
    db.schedule_many("limited", 2).await;
    db.schedule_many("rated", 2).await;
    for _ in 0..2 {
        db.run("select tuskline.schedule('ordered', p_ordering_key => 'k')").await;
    }
    let parent = db.schedule("work").await;
    db.run(&format!("select tuskline.schedule_then('{{{parent}}}', 'child')")).await;
    while db.enqueue_due().await > 0 {}
    let held = worker.claim(100).await;
    db.advance(Duration::from_secs(10)).await;
    assert_eq!(waits(&db).await, Vec::<String>::new(), "none has ended");
    worker.succeed_all(&held).await;
    db.run(&format!("select tuskline.ungate({gate})")).await;
    db.run("select tuskline.run_policies()").await;
    while db.enqueue_due().await > 0 {}
    db.advance(MINUTE).await;
    while db.enqueue_due().await > 0 {}
    let expected = [
        "child | dependency | 1 | 10000",
        "gated | gate | 1 | 10000",
        "limited | limit | 1 | 10000",
        "ordered | order | 1 | 10000",
        "rated | limit | 1 | 10000",
        "work | due | 1 | 60000",
    ];
    assert_eq!(waits(&db).await, expected);
    let buckets = "select distinct array_position(waits, 1) from tuskline.wait_times(null) where cause <> 'due'";
    assert_eq!(db.all::<i32>(buckets).await, [11], "above 5 s, up to 10 s");
    db.advance(MINUTE).await;
    assert_eq!(fold(&db).await, Some(6));
    assert_eq!(waits(&db).await, expected, "folded, they are the same");
}

#[tokio::test]
async fn counts_are_folded_once_a_minute_by_one_janitor_and_no_total_changes() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    let worker = db.worker("work").await;
    let report = |counter: i32, amount: i32| {
        let (executor, queue) = (worker.executor, worker.queues[0]);
        format!(
            "select tuskline.report_attempts({executor}, '{{{queue}}}', '{{{counter}}}', '{{{amount}}}')"
        )
    };
    db.run(&report(1, 7)).await;
    assert_eq!(fold(&db).await, Some(1));
    assert_eq!(fold(&db).await, None, "once a minute");
    db.run(&report(1, 5)).await;
    db.run(&report(2, 1)).await;
    assert_eq!(outcomes(&db).await, ["work | 12 | 1 | 0 | 0 | 0 | 0 | 0 | 0 | 0"], "folded or not");
    db.advance(MINUTE * 2).await;
    // A janitor that folds holds the mark.
    let other = db.connect().await;
    other
        .batch_execute("begin; select from tuskline_core.statistics_mark for update")
        .await
        .unwrap();
    assert_eq!(fold(&db).await, None);
    other.batch_execute("rollback").await.unwrap();
    assert_eq!(fold(&db).await, Some(2));
    assert_eq!(outcomes(&db).await, ["work | 12 | 1 | 0 | 0 | 0 | 0 | 0 | 0 | 0"]);
    let minutes = "select success, retriable_failure, at - from_at from tuskline.queue_statistics order by at";
    assert_eq!(db.lines(minutes).await, ["7 | 0 | 00:01:00", "5 | 1 | 00:02:00"]);
    assert_eq!(db.one::<i64>("select count(*) from tuskline_core.attempt_count").await, 0);
    let last = "select success from tuskline.statistics('2 minutes')";
    assert_eq!(db.lines(last).await, ["5"], "what the last two minutes brought");
}

#[tokio::test]
async fn a_count_that_is_committed_late_is_found_by_a_later_fold() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    let ids = db.schedule_many("work", 2).await;
    let other = db.connect().await;
    other.batch_execute(&format!("begin; select tuskline.cancel({})", ids[0])).await.unwrap();
    db.cancel(ids[1]).await;
    db.advance(MINUTE * 20).await;
    assert_eq!(fold(&db).await, Some(1));
    other.batch_execute("commit").await.unwrap();
    db.advance(MINUTE * 2).await;
    assert_eq!(fold(&db).await, Some(0), "above the mark there is nothing");
    db.advance(MINUTE * 10).await;
    assert_eq!(fold(&db).await, Some(1), "a sweep finds it");
    assert_eq!(outcomes(&db).await, ["work | 0 | 0 | 0 | 0 | 2 | 0 | 0 | 0 | 0"]);
}

/// A worker that ends 10 attempts a second, and reports them every 5 s.
async fn steady(db: &Db, worker: &ScriptedWorker, time: Duration, folded: bool) {
    let report = format!(
        "select tuskline.report_attempts({}, '{{{}}}', '{{1}}', '{{50}}')",
        worker.executor, worker.queues[0]
    );
    for _ in 0..time.as_secs() / 5 {
        db.advance(Duration::from_secs(5)).await;
        db.run(&report).await;
        if folded {
            fold(db).await;
        }
    }
}

/// Attempts per second of the queue and of the worker, over the time that the statistics claim to
/// cover.
async fn rates(db: &Db, span: &str) -> Vec<String> {
    db.lines(&format!(
        "select round(s.success / extract(epoch from s.span), 2),
                round(l.success / extract(epoch from l.span), 2)
           from tuskline.statistics('{span}') s, tuskline.executor_loads('{span}') l"
    ))
    .await
}

#[tokio::test]
async fn a_steady_rate_is_shown_as_it_is_over_every_span() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    let worker = db.worker_with(&["work"], MINUTE * 60).await;
    steady(&db, &worker, Duration::from_secs(630), true).await;
    for span in ["10 seconds", "1 minute", "5 minutes", "9 minutes"] {
        assert_eq!(rates(&db, span).await, ["10.00 | 10.00"], "{span}");
    }
    // The folds stop: no rate grows with the rows that wait.
    steady(&db, &worker, MINUTE * 20, false).await;
    for span in ["1 minute", "5 minutes"] {
        assert_eq!(rates(&db, span).await, ["10.00 | 10.00"], "{span} without a janitor");
    }
    // A late fold adds half an hour of attempts at once: this must not count as the rate of one
    // minute.
    fold(&db).await;
    for span in ["1 minute", "5 minutes"] {
        assert_eq!(rates(&db, span).await, ["10.00 | 10.00"], "{span} after a late fold");
    }
}

#[tokio::test]
async fn the_time_before_idle_minutes_is_no_part_of_a_rate() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    let worker = db.worker_with(&["work"], MINUTE * 60).await;
    steady(&db, &worker, MINUTE * 2, true).await;
    for _ in 0..60 {
        db.advance(MINUTE).await;
        fold(&db).await;
    }
    steady(&db, &worker, Duration::from_secs(150), true).await;
    assert_eq!(rates(&db, "1 minute").await, ["10.00 | 10.00"]);
    assert_eq!(rates(&db, "5 minutes").await, ["5.00 | 5.00"], "half of them were idle");
    let minutes =
        "select success, at - from_at from tuskline.queue_statistics order by at desc limit 3";
    let expected = ["600 | 00:01:00", "600 | 00:01:00", "550 | 00:01:55"];
    assert_eq!(db.lines(minutes).await, expected, "idle time is no row");
    let busy = minutes.replace("queue_", "executor_");
    assert_eq!(db.lines(&busy).await, expected);
}

#[tokio::test]
async fn a_call_reads_so_many_rows_at_most() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    let worker = db.worker_with(&["work"], MINUTE * 60).await;
    db.run(&format!(
        "insert into tuskline_core.attempt_count (at, executor_id, queue_ids, counters, amounts)
         select tuskline.clock() + n * interval '10 ms', {}, '{{{}}}', '{{1}}', '{{1}}'
           from generate_series(1, 30000) as n",
        worker.executor, worker.queues[0]
    ))
    .await;
    db.advance(MINUTE * 5).await;
    let found = "select success, span from tuskline.statistics('4 minutes')";
    assert_eq!(db.lines(found).await, ["20000 | 00:03:19.99"], "the newest ones");
    let loads = "select success, span from tuskline.executor_loads('4 minutes')";
    assert_eq!(db.lines(loads).await, ["20000 | 00:03:19.99"]);
}

#[tokio::test]
async fn a_count_after_a_crash_of_the_server_is_seen_at_once() {
    let mut db = Db::with_lambda("work").await;
    let worker = db.worker("work").await;
    let (executor, queue) = (worker.executor, db.queue("work", "normal").await);
    let report =
        format!("select tuskline.report_attempts({executor}, '{{{queue}}}', '{{1}}', '{{3}}')");
    for _ in 0..5 {
        db.run(&report).await;
        db.schedule("work").await;
        let id: i64 = db.one("select max(id) from tuskline.task").await;
        db.cancel(id).await;
    }
    assert_eq!(fold(&db).await, Some(10));
    // A crash leaves unlogged tables empty.
    db.run(
        "truncate tuskline_core.attempt_count, tuskline_core.event_count restart identity;
         truncate tuskline_core.queues_complete, tuskline.queued",
    )
    .await;
    db.reconnect().await;
    db.run("select tuskline.rebuild_queues()").await;
    db.run(&report).await;
    let id = db.schedule("work").await;
    db.cancel(id).await;
    assert_eq!(outcomes(&db).await, ["work | 18 | 0 | 0 | 0 | 6 | 0 | 0 | 0 | 0"]);
    assert_eq!(db.one::<Option<i32>>("select tuskline.fold_statistics('0 s')").await, Some(2));
}

#[tokio::test]
async fn no_crash_of_the_server_makes_an_exported_counter_smaller() {
    let mut db = Db::with_lambda("work").await;
    db.pin().await;
    db.advance(MINUTE * 2).await; // a younger lambda shows 0
    let worker = db.worker("work").await;
    let (executor, queue) = (worker.executor, db.queue("work", "normal").await);
    let scraped = async |db: &Db| {
        let client = db.connect().await;
        let waits = figures::wait_times(&client, None).await.unwrap();
        let counts = figures::statistics(&client, None).await.unwrap();
        let attempts = counts.iter().map(|one| one.outcome("success")).sum::<i64>();
        (attempts, waits.iter().map(|one| one.waits.total_ms).sum::<i64>())
    };
    let more = format!(
        "select tuskline.report_attempts({executor}, '{{{queue}}}', '{{1}}', '{{3}}');
         select tuskline_core.count_waits('due', 'work', array[tuskline.clock() - interval '1 s'],
                                          tuskline.clock())"
    );
    db.run(&more).await;
    assert_eq!(scraped(&db).await, (0, 0), "nothing is folded");
    fold(&db).await;
    db.run(&more).await;
    assert_eq!(scraped(&db).await, (3, 1_000));
    assert_eq!(outcomes(&db).await, ["work | 6 | 0 | 0 | 0 | 0 | 0 | 0 | 0 | 0"], "for people");
    db.run("truncate tuskline_core.attempt_count, tuskline_core.event_count").await; // a crash
    db.reconnect().await;
    assert_eq!(scraped(&db).await, (3, 1_000));
}

#[tokio::test]
async fn old_statistics_go_and_the_differences_of_the_rest_stay() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    let worker = db.worker("work").await;
    for _ in 0..5 {
        let (executor, queue) = (worker.executor, worker.queues[0]);
        db.run(&format!(
            "select tuskline.report_attempts({executor}, '{{{queue}}}', '{{1}}', '{{3}}')"
        ))
        .await;
        db.advance(MINUTE * 60).await;
        assert_eq!(fold(&db).await, Some(1));
    }
    let purge = async |retention: &str, limit: i32| {
        let sql = format!("select tuskline.purge_statistics('{retention}', {limit})");
        db.one::<Option<i64>>(&sql).await
    };
    // In both tables, of queues and of workers, the base of the oldest difference stays, and
    // earlier rows go.
    assert_eq!(purge("90 minutes", 2).await, Some(2 * 2), "a full batch is not the end");
    assert_eq!(purge("90 minutes", 2).await, Some(2));
    assert_eq!(purge("0 s", 2).await, None, "once an hour");
    let minutes = "select success from tuskline.queue_statistics order by at";
    assert_eq!(db.lines(minutes).await, ["3", "3"]);
    assert_eq!(
        outcomes(&db).await,
        ["work | 15 | 0 | 0 | 0 | 0 | 0 | 0 | 0 | 0"],
        "totals are since the beginning"
    );
}

#[tokio::test]
async fn a_report_that_is_none_is_refused() {
    let db = Db::with_lambda("work").await;
    let worker = db.worker("work").await;
    let executor = worker.executor;
    for arrays in ["'{1}', '{1,2}', '{1}'", "'{1}', '{1}', null", "'{1}', '{1}', '{null}'"] {
        let sql = format!("select tuskline.report_attempts({executor}, {arrays})");
        let said = db.refused(&sql).await;
        assert!(said.starts_with("TK055: TK055 invalid_report: three arrays"), "{said}");
    }
    let own = db.queue("work", "normal").await;
    db.define("other").await;
    let foreign = db.queue("other", "normal").await;
    let one = |queue: i32, counter: i32, amount: i64| {
        format!(
            "select tuskline.report_attempts({executor}, '{{{queue}}}', '{{{counter}}}', '{{{amount}}}')"
        )
    };
    let false_ones = [(own, 1, -1), (own, 1, 1_000_000_000_001), (foreign, 1, 1), (12_345, 1, 1)]
        .into_iter()
        .chain([-1, 0, 7, 8, 9, 99, 118, 199, 218].map(|counter| (own, counter, 1)));
    for (queue, counter, amount) in false_ones {
        let said = db.refused(&one(queue, counter, amount)).await;
        let got = format!("got queue {queue}, counter {counter}, amount {amount}");
        assert!(said.starts_with("TK055: TK055 invalid_report: ") && said.contains(&got), "{said}");
    }
    for arrays in ["'{null}', '{1}', '{1}'", "'{1}', '{null}', '{1}'"] {
        db.refused(&format!("select tuskline.report_attempts({executor}, {arrays})")).await;
    }
    // An executor that is not known, and nothing at all, leave no row.
    db.run("select tuskline.report_attempts(-1, '{1}', '{1}', '{1}')").await;
    db.run(&format!("select tuskline.report_attempts({executor}, '{{}}', '{{}}', '{{}}')")).await;
    assert_eq!(db.one::<i64>("select count(*) from tuskline_core.attempt_count").await, 0);
}

/// The largest total: 2^53 - 1.
const MOST: &str = "9007199254740991";

#[tokio::test]
async fn counts_that_no_integer_holds_stop_no_fold_and_no_reader() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    let worker = db.worker("work").await;
    let (executor, queue) = (worker.executor, worker.queues[0]);
    // An older set of functions accepted these counts.
    let huge = format!(
        "insert into tuskline_core.attempt_count (at, executor_id, queue_ids, counters, amounts)
         select tuskline.clock(), {executor}, array_fill({queue}, '{{6}}'), '{{1,100,110,200,210,2}}',
                array[m, m, m, m, m, -m] from (select 9223372036854775807 as m) s, generate_series(1, 3);
         insert into tuskline_core.event_count (at, lambda, event, bucket, events, total_ms)
         select tuskline.clock(), 'work', 'due', 3, 2147483647, 9223372036854775807
           from generate_series(1, 3)"
    );
    let totals = "select success, retriable_failure, start_ms, starts[10], run_ms, runs[10]
                    from tuskline.statistics(null)";
    let expected = [MOST, "0", MOST, MOST, MOST, MOST].join(" | ");
    for minute in 1..=2 {
        db.run(&huge).await;
        assert_eq!(db.lines(totals).await, [expected.as_str()], "minute {minute}, not folded");
        assert_eq!(fold(&db).await, Some(6));
        assert_eq!(db.lines(totals).await, [expected.as_str()], "minute {minute}, folded");
        db.advance(MINUTE * 2).await;
    }
    assert_eq!(waits(&db).await, [format!("work | due | 12884901882 | {MOST}")]);
    let loads = "select success, failed, run_ms from tuskline.executor_loads(null)";
    assert_eq!(db.lines(loads).await, [format!("{MOST} | 0 | {MOST}")]);
    let minutes = "select success from tuskline.queue_statistics order by at";
    assert_eq!(db.lines(minutes).await, [MOST], "a total at its end grows no more");
    db.run("select tuskline.gauges()").await;
}

#[tokio::test]
async fn a_quantile_lies_within_its_bucket() {
    let db = Db::new().await;
    for (counts, share, expected) in [
        ("{100}", "0.5", "2.50"),
        ("{100}", "0", "0.00"),
        ("{50,50}", "0.5", "5.00"),
        ("{50,50}", "0.75", "7.50"),
        ("{0,0,0,0,0,0,0,0,0,10}", "1", "5000.00"),
        ("{0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,1}", "0.9", "1800000.00"),
    ] {
        let sql = format!("select round(tuskline.quantile('{counts}', {share})::numeric, 2)::text");
        assert_eq!(db.one::<String>(&sql).await, expected, "{counts} at {share}");
    }
    let none: Option<f64> =
        db.one("select tuskline.quantile(array_fill(0::bigint, array[16]), 0.5)").await;
    assert_eq!(none, None);
    let edges: Vec<i64> = db.one("select tuskline.histogram_edges()").await;
    let bucket = |ms: i64| format!("select tuskline_core.bucket_of({ms})");
    for (at, edge) in edges.iter().enumerate() {
        let at = i16::try_from(at).unwrap();
        assert_eq!(db.one::<i16>(&bucket(*edge)).await, at + 1);
        assert_eq!(db.one::<i16>(&bucket(edge + 1)).await, at + 2);
    }
}

#[tokio::test]
async fn no_wait_and_no_span_is_negative_when_a_clock_is_behind() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    db.run("select tuskline.set_limit('work', 1)").await;
    db.schedule_many("work", 2).await;
    let worker = db.worker("work").await;
    while db.enqueue_due().await > 0 {}
    let first = worker.take().await;
    // A release whose transaction had read the clock before the second task joined.
    db.run("update tuskline.wait_list set joined_at = joined_at + interval '1 minute'").await;
    worker.succeed(&first).await;
    db.run("select tuskline.run_policies()").await;
    assert_eq!(
        db.lines("select lambda from tuskline.wait_times() where cause = 'limit'").await,
        [""; 0]
    );
    // A failover to a machine whose clock is an hour behind.
    let (executor, queue) = (worker.executor, worker.queues[0]);
    db.run(&format!(
        "select tuskline.report_attempts({executor}, '{{{queue}}}', '{{1}}', '{{3}}')"
    ))
    .await;
    assert!(fold(&db).await > Some(0));
    for table in ["queue_statistic", "executor_statistic"] {
        db.run(&format!("update tuskline.{table} set at = at + interval '1 hour'")).await;
    }
    for function in ["statistics", "executor_loads"] {
        let least = format!("select min(span) = '1 s' from tuskline.{function}()");
        assert!(db.one::<bool>(&least).await, "{function}");
    }
}

#[tokio::test]
async fn a_fold_after_a_clock_has_stepped_back_loses_no_count() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    let worker = db.worker("work").await;
    let (executor, queue) = (worker.executor, worker.queues[0]);
    let more = format!(
        "select tuskline.report_attempts({executor}, '{{{queue}}}', '{{1}}', '{{3}}');
         select tuskline_core.count_waits('due', 'work', array[tuskline.clock() - interval '1 s'],
                                          tuskline.clock())"
    );
    for _ in 0..3 {
        db.run(&more).await;
        let folded: Option<i32> = db.one("select tuskline.fold_statistics('0 s')").await;
        assert_eq!(folded, Some(2));
        // As if the clock had stepped back by ten minutes.
        for table in ["queue_statistic", "wait_statistic", "executor_statistic"] {
            let later = format!("update tuskline.{table} set at = at + interval '10 minutes'");
            db.run(&later).await;
        }
    }
    let counted = "select concat_ws(' ', s.success, w.total_ms, e.success)
                     from tuskline.statistics(null) s, tuskline.wait_times(null) w,
                          tuskline.executor_loads(null) e";
    assert_eq!(db.one::<String>(counted).await, "9 3000 9");
}
