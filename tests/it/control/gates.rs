//! A task that a gate holds does not start, whatever its state was. Other tasks do not notice the gate;
//! nothing is lost when it opens.

use std::time::Duration;

use tuskline_sdk::Priority;

use crate::support::{Db, Gate, Running, ScriptedWorker, quick};

const SECOND: Duration = Duration::from_secs(1);

/// Sets a gate with a reason; returns its number.
async fn gate(db: &Db, arguments: &str) -> i64 {
    db.one(&format!("select tuskline.gate({arguments}, p_reason => 'too many complaints')")).await
}

async fn open(db: &Db, gate: i64) {
    assert!(db.ask::<bool>("select tuskline.ungate($1)", &[&gate]).await);
}

/// Runs the store consumer's verbs once; returns the number of tasks that gates held or released.
async fn consume(db: &Db) -> i32 {
    db.enqueue_due().await;
    db.one("select moved from tuskline.run_policies()").await
}

async fn of_collection(db: &Db, collection: &str) -> i64 {
    db.ask("select tuskline.schedule('work', p_collection => $1)", &[&collection]).await
}

/// The ids of the tasks that a worker claims.
async fn claimed(worker: &ScriptedWorker) -> Vec<i64> {
    worker.claim(100).await.iter().map(|task| task.id).collect()
}

/// The ids of the tasks that wait behind gates.
async fn parked(db: &Db) -> Vec<i64> {
    db.all("select task_id from tuskline.parked order by task_id").await
}

#[tokio::test]
async fn a_paused_lambda_starts_nothing_until_its_gate_opens() {
    let db = Db::with_lambda("work").await;
    let worker = db.worker("work").await;
    let queued = db.schedule_many("work", 3).await;
    let number = gate(&db, "'work', 'pause'").await;
    let later = db.schedule("work").await;
    assert_eq!(consume(&db).await, 0, "there is nothing to do about them");
    let held = (claimed(&worker).await, parked(&db).await, db.count("enqueued").await);
    assert_eq!(held, (vec![], vec![], 4));
    assert_eq!(db.one::<i64>("select parked from tuskline.gates").await, 4);
    open(&db, number).await;
    let all: Vec<_> = queued.into_iter().chain([later]).collect();
    assert_eq!(claimed(&worker).await, all, "at once, without a store consumer");
    consume(&db).await;
    assert_eq!(db.one::<i64>("select count(*) from tuskline.gate").await, 0);
}

#[tokio::test]
async fn a_pause_and_its_end_cost_the_same_at_any_number_of_tasks() {
    let db = Db::with_lambda("work").await;
    db.schedule_many("work", 5_000).await;
    let rows = "select xmin::text || ctid from tuskline.task order by id";
    let before: Vec<String> = db.all(rows).await;
    for act in [
        "tuskline.gate('work', 'pause', p_reason => 'x')",
        "tuskline.run_policies()",
        &format!("tuskline.ungate({})", db.number(1)),
        "tuskline.run_policies()",
    ] {
        let sql = format!("explain (analyze, wal, timing off, format json) select {act}");
        let plan: serde_json::Value = db.one(&sql).await;
        let bytes = plan[0]["Plan"]["WAL Bytes"].as_i64().unwrap();
        assert!(bytes < 20_000, "{act}: {bytes} bytes of log");
    }
    assert_eq!(db.all::<String>(rows).await, before);
}

#[tokio::test]
async fn a_pause_ends_at_its_time_though_no_server_runs() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    let worker = db.worker("work").await;
    gate(&db, "'work', 'pause', p_for => '1 hour'").await;
    let id = db.schedule("work").await;
    assert!(claimed(&worker).await.is_empty());
    db.advance(SECOND * 3_600).await;
    assert_eq!(claimed(&worker).await, [id]);
}

#[tokio::test]
async fn when_the_gate_of_a_priority_ends_the_pause_of_its_lambda_holds_it() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    let worker = db.worker("work").await;
    gate(&db, "'work', 'pause'").await;
    gate(&db, "'work', 'drop', p_priority => 'low', p_for => '1 hour'").await;
    let dropped = db.schedule_at("work", "low").await;
    db.enqueue_due().await;
    assert_eq!(db.status(dropped).await, "dropped");
    db.advance(SECOND * 3_600).await;
    db.schedule_at("work", "low").await;
    db.enqueue_due().await;
    assert!(claimed(&worker).await.is_empty(), "no store consumer has looked at the gates yet");
    consume(&db).await;
    assert!(claimed(&worker).await.is_empty());
    assert_eq!(db.count("enqueued").await, 1);
}

#[tokio::test]
async fn a_narrower_gate_drops_and_parks_in_a_paused_lambda() {
    let db = Db::with_lambda("work").await;
    let worker = db.worker("work").await;
    let all = gate(&db, "'work', 'pause'").await;
    gate(&db, "'work', 'drop', 'spam', p_unseen => true").await;
    gate(&db, "'work', 'pause', 'news', p_unseen => true").await;
    let spam = of_collection(&db, "spam").await;
    let news = of_collection(&db, "news").await;
    let other = db.schedule("work").await;
    consume(&db).await;
    assert_eq!((db.status(spam).await.as_str(), parked(&db).await), ("dropped", vec![news]));
    open(&db, all).await;
    consume(&db).await;
    assert_eq!((claimed(&worker).await, parked(&db).await), (vec![other], vec![news]));
}

/// For each queue of `work`: whether the safety poll finds a task in it.
async fn peeked(db: &Db, worker: &ScriptedWorker) -> Vec<bool> {
    db.ask("select tuskline.peek($1, array_fill(0::bigint, array[4]))", &[&worker.queues]).await
}

#[tokio::test]
async fn a_paused_queue_looks_empty_to_workers_and_moves_no_mark() {
    let db = Db::with_lambda("work").await;
    let worker = db.worker("work").await;
    db.schedule_many("work", 3).await;
    assert_eq!(peeked(&db, &worker).await, [false, false, true, false]);
    let number = gate(&db, "'work', 'pause'").await;
    assert_eq!(peeked(&db, &worker).await, [false; 4]);
    let said = db
        .lines(&format!(
            "select popped, first_seq, last_seq from tuskline.claim({}, array[{}], '{{7}}', '{{1}}', '{{100}}')",
            worker.executor, worker.queues[2]
        ))
        .await;
    assert_eq!(said, ["[0] | [8] | [null]"]);
    open(&db, number).await;
    assert_eq!(peeked(&db, &worker).await, [false, false, true, false]);
}

#[tokio::test]
async fn a_paused_priority_keeps_no_permit_from_another_one() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    let worker = db.worker("work").await;
    db.run("select tuskline.set_limit('work', 2)").await;
    let low = [db.schedule_at("work", "low").await, db.schedule_at("work", "low").await];
    consume(&db).await;
    let held = worker.claim(1).await;
    let others = db.schedule_many("work", 2).await;
    consume(&db).await;
    let number = gate(&db, "'work', 'pause', p_priority => 'low'").await;
    consume(&db).await;
    assert_eq!(claimed(&worker).await, [others[0]], "by the permit of the low one in its queue");
    assert!(worker.release(&held[0]).await);
    assert_eq!(claimed(&worker).await, [others[1]], "by the permit of the one that came back");
    let later = db.schedule_at("work", "low").await;
    consume(&db).await;
    let held: Vec<i64> = db.all("select task_id from tuskline.permit order by 1").await;
    assert_eq!((held, db.queued().await), (others.clone(), 3));
    open(&db, number).await;
    consume(&db).await;
    assert_eq!((claimed(&worker).await, db.queued().await), (vec![], 0), "they ask for permits");
    db.run("delete from tuskline.permit; select tuskline.set_limit('work', 3)").await;
    consume(&db).await;
    assert_eq!(claimed(&worker).await, [low[0], low[1], later]);
}

#[tokio::test]
async fn those_of_a_paused_priority_that_wait_for_a_permit_are_passed_over() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    let worker = db.worker("work").await;
    db.run("select tuskline.set_limit('work', 1)").await;
    let first = db.schedule("work").await;
    consume(&db).await;
    let held = worker.take().await;
    for _ in 0..150 {
        db.schedule_at("work", "high").await;
    }
    let last = db.schedule("work").await;
    consume(&db).await;
    gate(&db, "'work', 'pause', p_priority => 'high'").await;
    worker.succeed(&held).await;
    for _ in 0..5 {
        consume(&db).await;
        db.advance(Duration::from_millis(20)).await;
    }
    assert_eq!((held.id, claimed(&worker).await), (first, vec![last]));
    assert_eq!(db.queued().await, 150);
}

#[tokio::test]
async fn a_drop_of_a_lambda_reaches_what_stands_in_its_queues_a_batch_at_a_time() {
    let db = Db::with_lambda("work").await;
    db.schedule_many("work", 25).await;
    let locker = db.connect().await;
    let lock = "begin; select from tuskline.task where id = (select min(id) from tuskline.task) for update";
    locker.batch_execute(lock).await.unwrap();
    gate(&db, "'work', 'drop'").await;
    for looked in [10, 10, 5] {
        assert_eq!(db.one::<i32>("select moved from tuskline.run_policies(10)").await, looked);
    }
    assert_eq!((db.count("dropped").await, db.queued().await), (24, 1));
    locker.batch_execute("rollback").await.unwrap();
    db.run("select tuskline.run_policies(10)").await; // the batch was open during the first check
    assert_eq!((db.count("dropped").await, db.queued().await), (25, 0));
    assert_eq!(db.one::<i64>("select count(*) from tuskline_core.flagged_queue").await, 0);
}

#[tokio::test]
async fn what_stands_in_a_queue_is_held_by_the_claim_that_meets_it() {
    let db = Db::with_lambda("work").await;
    let worker = db.worker("work").await;
    let (held, free) = (of_collection(&db, "news").await, of_collection(&db, "receipts").await);
    gate(&db, "'work', 'pause', 'news'").await;
    assert_eq!(claimed(&worker).await, [free]);
    assert_eq!((parked(&db).await, db.status(held).await.as_str()), (vec![held], "new"));
    assert_eq!(db.queued().await, 0);
}

#[tokio::test]
async fn a_retry_comes_due_into_the_paused_queue() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    let worker = db.worker("work").await;
    let id = db.schedule("work").await;
    let task = worker.take().await;
    let number = gate(&db, "'work', 'pause'").await;
    worker.fail(&task).await;
    db.advance(SECOND * 2).await;
    consume(&db).await;
    assert_eq!((claimed(&worker).await, db.status(id).await.as_str()), (vec![], "enqueued"));
    open(&db, number).await;
    assert_eq!(worker.take().await.attempt, 2);
}

#[tokio::test]
async fn a_retry_is_parked_by_a_gate_on_its_collection_and_keeps_its_state() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    let worker = db.worker("work").await;
    let id = of_collection(&db, "news").await;
    let task = worker.take().await;
    let number = gate(&db, "'work', 'pause', 'news'").await;
    worker.fail(&task).await;
    db.advance(SECOND * 2).await;
    consume(&db).await;
    assert_eq!((parked(&db).await, db.status(id).await.as_str()), (vec![id], "retriable_failure"));
    open(&db, number).await;
    consume(&db).await;
    assert_eq!(worker.take().await.attempt, 2);
}

#[tokio::test]
async fn what_is_dropped_or_diverted_ends_and_says_why() {
    for (action, status, said) in [
        ("drop", "dropped", vec![]),
        ("divert", "dead", vec!["diverted | gate <1>: too many complaints"]),
    ] {
        let db = Db::with_lambda("work").await;
        let number = db.number(1).to_string();
        let said: Vec<_> = said.iter().map(|line| line.replace("<1>", &number)).collect();
        let worker = db.worker("work").await;
        let queued = db.schedule("work").await;
        gate(&db, &format!("'work', '{action}'")).await;
        let due = db.schedule("work").await;
        assert_eq!(consume(&db).await, 1);
        assert!(claimed(&worker).await.is_empty());
        for id in [queued, due] {
            assert_eq!(db.status(id).await, status);
        }
        let mut failures = db.lines("select error_class, message from tuskline.task_failure").await;
        failures.dedup();
        assert_eq!(failures, said);
        let ended = "select bool_and(finished_at is not null and next_trigger_at is null) from tuskline.task";
        assert!(db.one::<bool>(ended).await);
    }
}

#[tokio::test]
async fn a_gate_opens_by_itself_when_its_time_is_over() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    let worker = db.worker("work").await;
    gate(&db, "'work', 'pause', p_for => '1 hour'").await;
    let id = db.schedule("work").await;
    consume(&db).await;
    let wait: i64 = db.one("select next_due_ms from tuskline.run_policies()").await;
    assert_eq!(wait, 3_600_000);
    db.advance(SECOND * 3_600).await;
    consume(&db).await;
    assert_eq!(claimed(&worker).await, [id]);
    consume(&db).await;
    let audited = db
        .lines("select verb, detail from tuskline.audit where verb like '%gate' order by at")
        .await;
    let expected = format!("gate {} pause its time was over", db.number(1));
    assert!(audited[1].ends_with(&expected), "{audited:?}");
    assert_eq!(db.one::<i64>("select count(*) from tuskline.gates").await, 0);
}

#[tokio::test]
async fn the_narrower_gate_counts() {
    let db = Db::with_lambda("work").await;
    let worker = db.worker("work").await;
    gate(&db, "'work', 'pause'").await;
    gate(&db, "'work', 'drop', p_priority => 'low'").await;
    gate(&db, "'work', 'pause', p_priority => 'low', p_collection => 'news', p_unseen => true")
        .await;
    let paused = db.schedule("work").await;
    let dropped = db.schedule_at("work", "low").await;
    let held: i64 = db
        .one("select tuskline.schedule('work', p_priority => 'low', p_collection => 'news')")
        .await;
    consume(&db).await;
    assert_eq!((claimed(&worker).await, parked(&db).await), (vec![], vec![held]));
    assert_eq!(db.status(paused).await, "enqueued");
    assert_eq!(db.status(dropped).await, "dropped");
}

#[tokio::test]
async fn gates_that_only_overlap_are_refused_and_so_is_a_second_one_of_the_same_scope() {
    let db = Db::with_lambda("work").await;
    of_collection(&db, "news").await;
    let number = gate(&db, "'work', 'pause', 'news'").await;
    for other in ["'work', 'drop', 'news'", "'work', 'pause', p_priority => 'high'"] {
        let said = db.refused(&format!("select tuskline.gate({other}, p_reason => 'x')")).await;
        let expected = format!("TK015: TK015 gate_conflict: gate {number} of ");
        assert!(said.starts_with(&expected), "{said}");
        assert!(said.ends_with(&format!("[select tuskline.ungate({number})]")), "{said}");
    }
    gate(&db, "'work', 'divert'").await;
    gate(&db, "'work', 'drop', 'news', 'high'").await;
    assert_eq!(db.one::<i64>("select count(*) from tuskline.gate").await, 3);
}

#[tokio::test]
async fn what_a_gate_holds_can_be_cancelled_and_is_seen_waiting() {
    for (on, status, moved) in [("", "enqueued", 0), (", 'news', p_unseen => true", "new", 1)] {
        let db = Db::with_lambda("work").await;
        let number = gate(&db, &format!("'work', 'pause'{on}")).await;
        let (id, other) = (of_collection(&db, "news").await, of_collection(&db, "news").await);
        consume(&db).await;
        let waiting =
            db.lines(&format!("select status, reason from tuskline.waiting where id = {id}")).await;
        let expected = format!("{status} | gate {number} (pause) of ");
        assert!(waiting[0].starts_with(&expected), "{waiting:?}");
        assert!(waiting[0].ends_with(": too many complaints"), "{waiting:?}");
        assert_eq!(waiting.len(), 1);
        assert_eq!(db.cancel(id).await, "cancelled");
        let left: Vec<i64> = db.all("select id from tuskline.waiting").await;
        assert_eq!(left, [other]);
        open(&db, number).await;
        assert_eq!(consume(&db).await, moved);
        let end = (db.status(id).await, db.status(other).await);
        assert_eq!(end, ("cancelled".to_owned(), "enqueued".to_owned()));
    }
}

#[tokio::test]
async fn two_store_consumers_do_not_wait_for_each_other_at_an_open_gate() {
    let db = Db::with_lambda("work").await;
    let number = gate(&db, "'work', 'pause', 'news', p_unseen => true").await;
    for _ in 0..30 {
        of_collection(&db, "news").await;
    }
    consume(&db).await;
    open(&db, number).await;
    let other = db.connect().await;
    other.batch_execute("begin; select tuskline.run_policies(10)").await.unwrap();
    assert_eq!(
        db.one::<i32>("select moved from tuskline.run_policies(10)").await,
        0,
        "one at a time"
    );
    other.batch_execute("commit").await.unwrap();
    assert_eq!(db.one::<i32>("select moved from tuskline.run_policies(100)").await, 20);
    assert_eq!((db.queued().await, parked(&db).await), (30, vec![]));
}

#[tokio::test]
async fn a_worker_gives_back_what_it_has_claimed_and_not_begun() {
    let db = Db::with_lambda("work").await;
    let _consumer = db.store_consumer();
    let bodies = Gate::new();
    // The worker claims ahead once it has seen a task end.
    let mut config = quick();
    config.buffer_target = Duration::from_secs(3600);
    let sdk_worker = Running::start(&db, config, vec![bodies.lambda("work").slots(1)]);
    bodies.let_pass(1);
    db.schedule("work").await;
    db.until_count("success", 1).await;
    db.schedule_many("work", 2).await;
    bodies.next_many(2).await;
    let held = "select count(*) = 2 from tuskline.tasks where status in ('claimed', 'processing')";
    db.until(held).await;
    let number = gate(&db, "'work', 'pause'").await;
    // The task whose body has begun goes on. The other task leaves the worker and returns to its
    // queue.
    db.until("select count(*) = 1 from tuskline.task where status = 'enqueued'").await;
    bodies.open_for_good();
    db.until_count("success", 2).await;
    assert_eq!(db.count("enqueued").await, 1);
    open(&db, number).await;
    db.until_count("success", 3).await;
    sdk_worker.stop().await;
}

#[tokio::test]
async fn a_gate_reaches_tasks_by_priority() {
    let db = Db::with_lambda("work").await;
    let worker = db.worker("work").await;
    gate(&db, &format!("'work', 'pause', p_priority => '{}'", Priority::Low)).await;
    let (low, high) = (db.schedule_at("work", "low").await, db.schedule_at("work", "high").await);
    consume(&db).await;
    assert_eq!((claimed(&worker).await, db.status(low).await.as_str()), (vec![high], "enqueued"));
}

#[tokio::test]
async fn another_lambda_does_not_feel_a_gate() {
    let db = Db::with_lambda("work").await;
    db.define("other").await;
    gate(&db, "'work', 'pause'").await;
    let direct: Vec<bool> = db
        .all("select direct and not has_policies from tuskline.queue where lambda = 'other'")
        .await;
    assert_eq!(direct, [true; 4]);
    let id = db.schedule("other").await;
    assert_eq!(claimed(&db.worker("other").await).await, [id]);
}

#[tokio::test]
async fn a_queue_is_direct_again_when_its_last_gate_has_opened() {
    let db = Db::with_lambda("work").await;
    let (one, two) = (
        gate(&db, "'work', 'pause'").await,
        gate(&db, "'work', 'drop', p_priority => 'low'").await,
    );
    open(&db, one).await;
    let direct = "select direct from tuskline.queue order by priority";
    assert_eq!(db.all::<bool>(direct).await, [true, true, true, false]);
    db.run("select tuskline.alter_lambda('work', p_direct => false)").await;
    open(&db, two).await;
    assert_eq!(db.all::<bool>(direct).await, [false; 4]);
    assert!(!db.ask::<bool>("select tuskline.ungate($1)", &[&two]).await, "it is open already");
}

#[tokio::test]
async fn a_gate_reaches_all_tasks_that_wait_before_it() {
    for (limit, action, status) in [
        ("1", "drop", "dropped"),
        ("p_per_second => 1", "divert", "dead"),
        ("1", "pause", "enqueued"),
    ] {
        let db = Db::with_lambda("work").await;
        db.pin().await;
        db.run(&format!("select tuskline.set_limit('work', {limit})")).await;
        db.schedule_many("work", 250).await;
        let number = gate(&db, &format!("'work', '{action}'")).await;
        for _ in 0..5 {
            consume(&db).await;
            db.advance(Duration::from_millis(20)).await;
        }
        assert_eq!(db.count(status).await, 250, "{action}");
        assert_eq!(db.one::<i64>("select count(*) from tuskline.wait_list").await, 0);
        assert!(parked(&db).await.is_empty());
        open(&db, number).await;
        consume(&db).await;
        assert_eq!(db.queued().await, i64::from(action == "pause"));
    }
}

#[tokio::test]
async fn a_gate_that_is_over_opens_while_the_owner_of_another_lambda_changes_that() {
    let db = Db::with_lambda("work").await;
    db.define("other").await;
    db.pin().await;
    gate(&db, "'work', 'pause', p_for => '1 second'").await;
    gate(&db, "'other', 'pause', p_for => '1 second'").await;
    db.advance(SECOND * 2).await;
    let owner = db.connect().await;
    let change = "begin; select tuskline.alter_lambda('work', p_max_attempts => 7)";
    owner.batch_execute(change).await.unwrap();
    db.run("select tuskline.run_policies()").await;
    let open = "select lambda from tuskline.gate where opened_at is null";
    assert_eq!(db.all::<String>(open).await, ["work"]);
    owner.batch_execute("rollback").await.unwrap();
    db.run("select tuskline.run_policies()").await;
    assert_eq!(db.all::<String>(open).await, Vec::<String>::new());
}
