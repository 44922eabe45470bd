//! Why a task does not run: every reason, the row that causes it, the command that changes it.

use std::time::Duration;

use crate::support::{Db, LEASE, ScriptedWorker};

/// Reasons, causes and remedies, from the top.
async fn reasons(db: &Db, task: i64) -> Vec<(String, String, String)> {
    let sql = format!(
        "select reason || '|' || coalesce(cause, '') || '|' || coalesce(remedy, '') from tuskline.explain({task})"
    );
    let rows = db.all::<String>(&sql).await;
    let words = |text: String| {
        let mut words = text.splitn(3, '|').map(str::to_owned);
        (words.next().unwrap(), words.next().unwrap(), words.next().unwrap())
    };
    rows.into_iter().map(words).collect()
}

/// The reasons alone.
async fn names(db: &Db, task: i64) -> Vec<String> {
    reasons(db, task).await.into_iter().map(|(reason, ..)| reason).collect()
}

async fn detail(db: &Db, task: i64) -> String {
    db.ask("select detail from tuskline.explain($1) limit 1", &[&task]).await
}

async fn last_of(db: &Db, key: &str) -> i64 {
    db.ask("select max(id) from tuskline.task where ordering_key = $1", &[&key]).await
}

async fn worked() -> (Db, ScriptedWorker) {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    let worker = db.worker("work").await;
    (db, worker)
}

#[tokio::test]
async fn a_task_that_is_not_due_yet_says_when_it_is() {
    let (db, _worker) = worked().await;
    let id = db.schedule_in("work", Duration::from_secs(90)).await;
    let said = reasons(&db, id).await;
    assert_eq!(said, [("not_due".into(), format!("tuskline.timer {id}"), String::new())]);
    assert!(detail(&db, id).await.starts_with("due in 00:01:30, at "));
    db.advance(Duration::from_secs(90)).await;
    let said = reasons(&db, id).await;
    let serve = "run: tuskline serve";
    assert_eq!(said, [("due".into(), format!("tuskline.timer {id}"), serve.into())]);
}

#[tokio::test]
async fn a_failure_that_backs_off_says_what_failed_and_when_it_is_tried_again() {
    let (db, worker) = worked().await;
    let id = db.schedule("work").await;
    worker.fail(&worker.take().await).await;
    assert_eq!(names(&db, id).await, ["backing_off"]);
    let said = detail(&db, id).await;
    assert!(
        said.starts_with("attempt 1 failed (") && said.contains("the next is due in"),
        "{said}"
    );
}

/// The delays of a task by cause, in seconds: dependency, retry, gate, rest, run.
async fn waits(db: &Db, task: i64) -> Vec<String> {
    let seconds = |part: &str| format!("coalesce(round(extract(epoch from {part}))::text, '-')");
    let parts = ["dependency", "retry", "gate", "rest", "run"].map(seconds).join(", ");
    db.lines(&format!(
        "select concat_ws(' ', attempt, {parts}) from tuskline.attempt_waits({task})"
    ))
    .await
}

#[tokio::test]
async fn the_delay_of_each_attempt_is_split_by_cause() {
    let (db, worker) = worked().await;
    let second = Duration::from_secs(1);
    let id = db.schedule("work").await;
    assert_eq!(waits(&db, id).await, ["1 - - 0 0 -"]);
    db.advance(2 * second).await;
    db.run("select tuskline.gate('work', 'pause', p_reason => 'r')").await;
    db.advance(5 * second).await;
    assert_eq!(waits(&db, id).await, ["1 - - 5 2 -"], "a gate that is set");
    db.run("select tuskline.ungate(g.gate_id) from tuskline.gate g").await;
    db.advance(3 * second).await;
    let task = worker.take().await;
    db.advance(4 * second).await;
    let first = "1 - - 5 5 4";
    assert_eq!(waits(&db, id).await, [first]);
    worker.note(&task, "\"status\": \"retriable_failure\", \"after_ms\": 20000").await;
    db.advance(21 * second).await;
    db.enqueue_due().await;
    assert_eq!(waits(&db, id).await, [first, "2 - 20 0 1 -"], "the attempt to come");
    worker.fail_for_good(&worker.take().await).await;
    db.advance(100 * second).await;
    assert_eq!(waits(&db, id).await, [first, "2 - 20 0 1 0"]);
    db.run(&format!("select tuskline.retry({id})")).await;
    assert_eq!(waits(&db, id).await[2], "1 - - - - -", "how long it was dead is not kept");
    assert_eq!(waits(&db, id + 1).await, [""; 0], "no such task");
}

#[tokio::test]
async fn a_task_that_waits_for_parents_was_delayed_by_them() {
    let (db, worker) = worked().await;
    db.run(r#"select tuskline.schedule_chain('[{"name":"a","lambda":"work"},{"lambda":"work","after":["a"]}]'::text)"#).await;
    let child: i64 = db.one("select max(task_id) from tuskline.dependency").await;
    db.advance(Duration::from_secs(7)).await;
    assert_eq!(waits(&db, child).await, ["1 7 - 0 0 -"]);
    worker.succeed(&worker.take().await).await;
    db.advance(Duration::from_secs(2)).await;
    worker.take().await;
    assert_eq!(waits(&db, child).await, ["1 7 - 0 2 0"]);
}

#[tokio::test]
async fn a_task_in_its_queue_counts_the_tasks_ahead() {
    let (db, _worker) = worked().await;
    let ids = db.schedule_many("work", 3).await;
    db.schedule_at("work", "high").await;
    let leaf: i32 = db.one("select queue_id from tuskline.queue where priority = 'normal'").await;
    let said = reasons(&db, ids[2]).await;
    assert_eq!(said, [("ahead".into(), format!("tuskline_core.queue_{leaf}"), String::new())]);
    assert_eq!(detail(&db, ids[2]).await, "2 ahead in its queue, 1 of higher priority");
}

#[tokio::test]
async fn a_lambda_that_no_worker_serves_says_so() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    let id = db.schedule("work").await;
    let said = reasons(&db, id).await;
    let remedy = "start a worker with lambda work".to_owned();
    assert_eq!(said[0], ("no_worker".into(), "tuskline.executors".into(), remedy));
    assert_eq!(detail(&db, id).await, "no live worker serves work");
    let _worker = db.worker("work").await;
    assert_eq!(names(&db, id).await, ["ahead"]);
    db.advance(LEASE).await;
    assert_eq!(detail(&db, id).await, "no live worker serves work (1 silent, 0 draining)");
}

#[tokio::test]
async fn a_claimed_task_names_its_worker() {
    let (db, worker) = worked().await;
    let id = db.schedule("work").await;
    let task = worker.take().await;
    let said = reasons(&db, id).await;
    let cancel = format!("select tuskline.cancel({id})");
    assert_eq!(said, [("claimed".into(), format!("tuskline.lease {}", task.fence), cancel)]);
    worker.start(&task).await;
    assert_eq!(names(&db, id).await, ["processing"]);
    assert_eq!(db.cancel(id).await, "requested");
    assert_eq!(names(&db, id).await, ["cancel_requested", "processing"]);
    db.advance(LEASE).await;
    assert_eq!(names(&db, id).await, ["cancel_requested", "worker_silent"]);
    db.run("update tuskline.executor set ended_at = tuskline.clock(), end_reason = 'expired'")
        .await;
    let said = reasons(&db, id).await;
    assert_eq!((said[1].0.as_str(), said[1].2.as_str()), ("worker_ended", "run: tuskline serve"));
}

#[tokio::test]
async fn a_gate_says_whose_it_is_and_how_to_open_it() {
    let (db, _worker) = worked().await;
    db.run("select tuskline.schedule('work', p_collection => 'news')").await;
    for (on, name) in [("", "work"), (", 'news'", "work collection news")] {
        let sql = format!("select tuskline.gate('work', 'pause'{on}, p_reason => 'complaints')");
        let gate: i64 = db.one(&sql).await;
        let due = db.one("select tuskline.schedule('work', p_collection => 'news')").await;
        let expected = (
            "gated".to_owned(),
            format!("tuskline.gate {gate} on {name}"),
            format!("select tuskline.ungate({gate})"),
        );
        if !on.is_empty() {
            assert_eq!(names(&db, due).await, ["due"], "no verb has read the gate yet");
        }
        db.run("select tuskline.enqueue_due()").await;
        assert_eq!(reasons(&db, due).await[0], expected);
        assert!(detail(&db, due).await.starts_with("pause, set by "));
        db.run(&format!("select tuskline.ungate({gate})")).await;
        let said = reasons(&db, due).await;
        match on {
            "" => assert_eq!(said[0].0, "ahead", "it is in its queue already"),
            _ => {
                let opened = (said[0].0.as_str(), said[0].2.as_str());
                assert_eq!(opened, ("gate_opened", "run: tuskline serve"));
            }
        }
    }
}

#[tokio::test]
async fn a_rate_says_when_the_next_may_start() {
    let (db, worker) = worked().await;
    let rule: i64 = db.one("select tuskline.set_limit('work', p_per_second => 0.5)").await;
    let ids = db.schedule_many("work", 3).await;
    db.run("select tuskline.enqueue_due()").await;
    let said = reasons(&db, ids[2]).await;
    let remedy = format!("select tuskline.set_limit(...), or tuskline.drop_limit({rule})");
    assert_eq!(said[0], ("rate".into(), format!("tuskline.task_limit {rule} on work"), remedy));
    let said = detail(&db, ids[2]).await;
    assert_eq!(said, "0.5 a second; 1 ahead, 1 before it may start and wait for a worker");
    worker.take().await;
    let said = detail(&db, ids[2]).await;
    assert!(said.starts_with("0.5 a second; 1 ahead, the next may start at 2"), "{said}");
}

#[tokio::test]
async fn several_reasons_at_once_are_all_told() {
    let (db, worker) = worked().await;
    db.run("select tuskline.set_limit('work', 1), tuskline.set_order('work')").await;
    for key in ["a", "a", "b"] {
        db.run(&format!("select tuskline.schedule('work', p_ordering_key => '{key}')")).await;
    }
    db.run("select tuskline.enqueue_due()").await;
    let held = worker.take().await;
    let (second, other) = (last_of(&db, "a").await, last_of(&db, "b").await);
    assert_eq!(names(&db, second).await, ["ordered"]);
    assert_eq!(names(&db, other).await, ["limit"], "its key is free, the lambda is not");
    worker.fail(&held).await;
    db.run("select tuskline.enqueue_due()").await;
    assert_eq!(names(&db, held.id).await, ["backing_off"]);
    assert_eq!(names(&db, second).await, ["ordered"], "a retry keeps its place");
    let later = db.schedule_in("work", Duration::from_secs(60)).await;
    db.run("select tuskline.gate('work', 'pause', p_reason => 'x')").await;
    assert_eq!(names(&db, later).await, ["not_due"]);
    let there = worker.claim(10).await;
    assert_eq!(there.len(), 0);
    assert_eq!(names(&db, other).await, ["gated", "ahead"], "it had the place");
}

#[tokio::test]
async fn what_has_ended_says_how_and_what_is_not_there_says_so() {
    let (db, worker) = worked().await;
    let id = db.schedule("work").await;
    worker.fail_for_good(&worker.take().await).await;
    assert_eq!(names(&db, id).await, ["ended"]);
    let said = detail(&db, id).await;
    assert!(said.starts_with("fatal_failure since 2") && said.ends_with(": fatal, no"), "{said}");
    assert_eq!(names(&db, 4711).await, ["unknown"]);
}

#[tokio::test]
async fn lost_queues_and_stalled_tasks_name_their_cure() {
    let (db, _worker) = worked().await;
    let id = db.schedule("work").await;
    db.run("delete from tuskline.queued").await;
    let said = reasons(&db, id).await;
    let cure = format!("select tuskline.find_stalled({}, '0')", id >> 24);
    assert_eq!((said[0].0.as_str(), said[0].2.as_str()), ("stalled", cure.as_str()));
    db.run("delete from tuskline_core.queues_complete").await;
    let said = reasons(&db, id).await;
    let cure = "select tuskline.rebuild_queues()";
    assert_eq!((said[0].0.as_str(), said[0].2.as_str()), ("not_recovered", cure));
}
