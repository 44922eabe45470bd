//! A task with dependencies runs once, when its parents have ended as it requires, and not before.

use std::collections::HashMap;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{Db, ScriptedWorker};

async fn chained() -> (Db, ScriptedWorker) {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    let worker = db.worker("work").await;
    (db, worker)
}

/// Describes a task of `work` with a name and dependencies.
fn task(name: &str, after: &Value) -> Value {
    json!({ "lambda": "work", "name": name, "after": after })
}

/// Schedules a chain; ids by name.
async fn schedule(db: &Db, tasks: &[Value]) -> HashMap<String, i64> {
    let text = Value::from(tasks.to_vec()).to_string();
    let ids: Vec<i64> =
        db.ask("select ids from tuskline.schedule_chain($1::text::json)", &[&text]).await;
    tasks.iter().map(|task| task["name"].as_str().unwrap().to_owned()).zip(ids).collect()
}

/// Lets the store consumer run once, then claims: the ids that the worker gets.
async fn next(db: &Db, worker: &ScriptedWorker) -> Vec<i64> {
    db.enqueue_due().await;
    worker.claim(100).await.iter().map(|task| task.id).collect()
}

async fn refused(db: &Db, tasks: &Value) -> String {
    db.refused(&format!("select tuskline.schedule_chain('{tasks}')")).await
}

#[tokio::test]
async fn a_task_runs_when_the_one_before_it_has_succeeded_in_the_same_transaction() {
    let (db, worker) = chained().await;
    let ids = schedule(&db, &[task("b", &json!(["a"])), task("a", &json!([]))]).await;
    assert_eq!(db.status(ids["b"]).await, "new");
    db.enqueue_due().await;
    let held = worker.claim(100).await;
    assert_eq!(held.iter().map(|task| task.id).collect::<Vec<_>>(), [ids["a"]]);
    worker.succeed(&held[0]).await;
    // No store consumer has run in between.
    assert_eq!(worker.take().await.id, ids["b"]);
    assert_eq!(db.timers().await, 0);
}

#[tokio::test]
async fn ids_grow_along_the_arrows_and_come_back_in_the_order_given() {
    let (db, _worker) = chained().await;
    let ids =
        schedule(&db, &[task("c", &json!(["b"])), task("a", &json!([])), task("b", &json!(["a"]))])
            .await;
    assert!(ids["a"] < ids["b"] && ids["b"] < ids["c"], "{ids:?}");
    let shown = db
        .lines("select name, depth, cardinality(parents) from tuskline.chain_tasks order by depth")
        .await;
    assert_eq!(shown, ["a | 0 | 0", "b | 1 | 1", "c | 2 | 1"]);
}

#[tokio::test]
async fn a_task_that_waits_for_many_runs_after_the_last_of_them_in_any_order() {
    let (db, worker) = chained().await;
    let names: Vec<String> = (0..6).map(|n| format!("p{n}")).collect();
    let mut tasks: Vec<Value> = names.iter().map(|name| task(name, &json!([]))).collect();
    tasks.push(task("last", &json!(names)));
    let ids = schedule(&db, &tasks).await;
    let mut held = worker.claim(100).await;
    for at in [5, 0, 3, 2, 1, 0] {
        assert_eq!(db.status(ids["last"]).await, "new");
        let one = held.remove(at.min(held.len() - 1));
        worker.succeed(&one).await;
    }
    assert_eq!(worker.take().await.id, ids["last"]);
}

#[tokio::test]
async fn a_fan_in_looks_at_its_parents_a_few_times_and_not_once_for_each() {
    let (db, worker) = chained().await;
    let names: Vec<String> = (0..200).map(|n| format!("p{n}")).collect();
    let mut tasks: Vec<Value> = names.iter().map(|name| task(name, &json!([]))).collect();
    tasks.push(task("last", &json!(names)));
    let ids = schedule(&db, &tasks).await;
    worker.client.batch_execute("set track_functions = 'pl'").await.unwrap();
    for one in worker.claim(1000).await {
        worker.succeed(&one).await;
    }
    assert_eq!(worker.take().await.id, ids["last"]);
    worker.client.batch_execute("select pg_stat_force_next_flush()").await.unwrap();
    let looks =
        "select sum(calls)::bigint from pg_stat_user_functions where funcname = 'read_parents'";
    let looks: i64 = db.one(looks).await;
    assert!(looks <= 2, "{looks}");
}

#[tokio::test]
async fn a_failure_cancels_those_that_needed_its_success_and_runs_those_that_needed_that() {
    let (db, worker) = chained().await;
    let on = |end: &str| json!([{ "task": "a", "on": end }]);
    let ids = schedule(
        &db,
        &[
            task("a", &json!([])),
            task("then", &on("success")),
            task("else", &on("failure")),
            task("finally", &on("always")),
            task("after_then", &json!(["then"])),
            task("after_both", &json!([{ "task": "then", "on": "always" }, "else"])),
        ],
    )
    .await;
    worker.fail_for_good(&worker.take().await).await;
    let held = next(&db, &worker).await;
    assert_eq!(held, [ids["else"], ids["finally"]]);
    db.enqueue_due().await;
    assert_eq!(db.status(ids["then"]).await, "cancelled");
    assert_eq!(db.status(ids["after_then"]).await, "cancelled");
    assert_eq!(db.status(ids["after_both"]).await, "new");
    let why = db
        .lines(&format!(
            "select error_class, message from tuskline.task_failure where task_id = {}",
            ids["then"]
        ))
        .await;
    let a = ids["a"];
    assert_eq!(
        why,
        [format!("parent | task {a}, for whose success it waited, ended as fatal_failure")]
    );
}

#[tokio::test]
async fn a_branch_for_a_failure_is_cancelled_when_there_is_none() {
    let (db, worker) = chained().await;
    let mut other = task("else", &json!([{ "task": "a", "on": "failure" }]));
    other["on_parent_failure"] = json!("hold");
    let ids = schedule(&db, &[task("a", &json!([])), other]).await;
    worker.succeed(&worker.take().await).await;
    assert!(next(&db, &worker).await.is_empty());
    assert_eq!(db.status(ids["else"]).await, "cancelled");
}

#[tokio::test]
async fn a_retry_that_fails_and_succeeds_later_is_one_end() {
    let (db, worker) = chained().await;
    let ids = schedule(&db, &[task("a", &json!([])), task("b", &json!(["a"]))]).await;
    worker.fail(&worker.take().await).await;
    assert!(next(&db, &worker).await.is_empty(), "it will be tried again");
    db.advance(Duration::from_secs(60)).await;
    db.enqueue_due().await;
    worker.succeed(&worker.take().await).await;
    assert_eq!(worker.take().await.id, ids["b"]);
}

#[tokio::test]
async fn a_task_that_is_to_run_all_the_same_waits_for_all_of_them() {
    let (db, worker) = chained().await;
    let mut last = task("last", &json!(["a", "b"]));
    last["on_parent_failure"] = json!("run");
    let ids = schedule(&db, &[task("a", &json!([])), task("b", &json!([])), last]).await;
    let held = worker.claim(100).await;
    worker.fail_for_good(&held[1]).await;
    assert!(next(&db, &worker).await.is_empty());
    worker.fail_for_good(&held[0]).await;
    assert_eq!(next(&db, &worker).await, [ids["last"]]);
}

#[tokio::test]
async fn a_task_is_cancelled_at_once_though_more_of_its_parents_still_run() {
    let (db, worker) = chained().await;
    let ids = schedule(
        &db,
        &[task("a", &json!([])), task("b", &json!([])), task("c", &json!(["a", "b"]))],
    )
    .await;
    let held = worker.claim(2).await;
    assert_eq!(held[0].id, ids["a"], "c watches the other one");
    worker.fail_for_good(&held[0]).await;
    assert_eq!(db.status(ids["c"]).await, "cancelled");
    worker.succeed(&held[1]).await;
    assert!(next(&db, &worker).await.is_empty());
}

#[tokio::test]
async fn a_held_task_goes_on_when_its_parent_was_retried() {
    let (db, worker) = chained().await;
    let mut held = task("b", &json!(["a", "other"]));
    held["on_parent_failure"] = json!("hold");
    let ids = schedule(&db, &[task("a", &json!([])), task("other", &json!([])), held]).await;
    let both = worker.claim(100).await;
    worker.fail_for_good(both.iter().find(|task| task.id == ids["a"]).unwrap()).await;
    worker.succeed(both.iter().find(|task| task.id == ids["other"]).unwrap()).await;
    assert!(next(&db, &worker).await.is_empty());
    let said = db
        .lines(&format!("select reason, detail, remedy from tuskline.explain({})", ids["b"]))
        .await;
    let (a, b) = (ids["a"], ids["b"]);
    assert_eq!(
        said,
        [format!(
            "held_by_parent | task {a} (a), for whose success it waits, ended as fatal_failure | \
             select tuskline.retry({a}), or tuskline.cancel({b})"
        )]
    );
    let retried: String = db.ask("select tuskline.retry($1)", &[&a]).await;
    assert_eq!(retried, "retried");
    db.enqueue_due().await;
    let said = db.lines(&format!("select reason, detail from tuskline.explain({b})")).await;
    assert_eq!(said, [format!("parents | waits for task {a} (a), which is enqueued")]);
    worker.succeed(&worker.take().await).await;
    assert_eq!(worker.take().await.id, b);
}

#[tokio::test]
async fn a_chain_is_cancelled_from_any_of_its_tasks_and_retried_from_any() {
    let (db, worker) = chained().await;
    let tasks: Vec<Value> = (0..5)
        .map(|n| {
            let after = if n == 0 { json!([]) } else { json!([format!("t{}", n - 1)]) };
            task(&format!("t{n}"), &after)
        })
        .collect();
    let ids = schedule(&db, &tasks).await;
    worker.succeed(&worker.take().await).await;
    let held = worker.take().await;
    let said = db
        .lines(&format!(
            "select cancelled, requested from tuskline.cancel_chain({}, 'no more')",
            ids["t4"]
        ))
        .await;
    assert_eq!(said, ["3 | 1"]);
    worker.stopped(&held).await;
    while db.enqueue_due().await > 0 {}
    assert_eq!((db.count("cancelled").await, db.count("success").await), (4, 1));
    let retried: i32 = db.ask("select retried from tuskline.retry_chain($1)", &[&ids["t0"]]).await;
    assert_eq!(retried, 4);
    for n in 1..5 {
        assert_eq!(next(&db, &worker).await, [ids[&format!("t{n}")]], "one after the other");
        let held: i64 =
            db.one("select max(fence) from tuskline.task where status = 'claimed'").await;
        let task = crate::support::Task { id: ids[&format!("t{n}")], fence: held, ..again() };
        worker.succeed(&task).await;
    }
    assert_eq!(db.count("success").await, 5);
    let shown = db.lines("select tasks, ended, failed, cancelled from tuskline.chains").await;
    assert_eq!(shown, ["5 | 5 | 0 | 0"]);
}

fn again() -> crate::support::Task {
    crate::support::Task::unclaimed(0)
}

#[tokio::test]
async fn a_task_may_wait_for_one_that_was_scheduled_before_wherever_that_stands() {
    let (db, worker) = chained().await;
    let ended = db.schedule("work").await;
    worker.succeed(&worker.take().await).await;
    let failed = db.schedule("work").await;
    worker.fail_for_good(&worker.take().await).await;
    let running = db.schedule("work").await;
    let held = worker.take().await;
    let ids = schedule(
        &db,
        &[
            task("a", &json!([ended])),
            task("b", &json!([ended, running])),
            task("c", &json!([failed])),
            task("d", &json!([{ "task": failed, "on": "always" }])),
        ],
    )
    .await;
    assert_eq!(next(&db, &worker).await, [ids["a"], ids["d"]]);
    assert_eq!(db.status(ids["c"]).await, "cancelled");
    worker.succeed(&held).await;
    assert_eq!(next(&db, &worker).await, [ids["b"]]);
}

#[tokio::test]
async fn a_parent_whose_end_is_not_committed_yet_is_waited_for() {
    let (db, worker) = chained().await;
    db.schedule("work").await;
    let parent = worker.take().await;
    let other = db.connect().await;
    other.batch_execute("begin").await.unwrap();
    let sql = "select tuskline.set_results($1, array[$2::bigint], array[$3::bigint])";
    other.query(sql, &[&worker.executor, &parent.id, &parent.fence]).await.unwrap();
    let ids = schedule(&db, &[task("a", &json!([parent.id]))]).await;
    assert!(next(&db, &worker).await.is_empty(), "the end is not committed yet");
    other.batch_execute("commit").await.unwrap();
    assert!(next(&db, &worker).await.is_empty(), "it looks again after 20 ms");
    db.advance(Duration::from_millis(20)).await;
    assert_eq!(next(&db, &worker).await, [ids["a"]]);
}

#[tokio::test]
async fn a_child_that_has_just_chosen_whom_to_watch_hears_of_that_end() {
    let (db, worker) = chained().await;
    db.schedule("work").await;
    let parent = worker.take().await;
    let ids = schedule(&db, &[task("a", &json!([parent.id]))]).await;
    // The check of dependencies locks the parent's row. The parent's end waits for the check and
    // sees the new dependent.
    let store_consumer = db.connect().await;
    store_consumer.batch_execute("begin; select tuskline.enqueue_due()").await.unwrap();
    let session = db.connect().await;
    let pid: i32 = session.query_one("select pg_backend_pid()", &[]).await.unwrap().get(0);
    let sql = "select tuskline.set_results($1, array[$2::bigint], array[$3::bigint])";
    let params: [&(dyn tokio_postgres::types::ToSql + Sync); 3] =
        [&worker.executor, &parent.id, &parent.fence];
    let ends = session.query(sql, &params);
    let commits = async {
        db.until_blocked(pid).await;
        store_consumer.batch_execute("commit").await.unwrap();
    };
    let (ended, ()) = tokio::join!(ends, commits);
    ended.unwrap();
    assert_eq!(worker.take().await.id, ids["a"]);
}

#[tokio::test]
async fn what_a_parent_returned_is_there_for_its_child() {
    let (db, worker) = chained().await;
    let ids = schedule(&db, &[task("a", &json!([])), task("b", &json!(["a"]))]).await;
    worker.succeed_with(&worker.take().await, r#"{"rows": 3}"#).await;
    let shown = db
        .lines(&format!(
            "select id, name, lambda, status, condition, output from tuskline.parents({})",
            ids["b"]
        ))
        .await;
    assert_eq!(shown, [format!(r#"{} | a | work | success | success | {{"rows": 3}}"#, ids["a"])]);
}

#[tokio::test]
async fn a_task_due_later_waits_for_its_time_and_for_its_parents() {
    let (db, worker) = chained().await;
    let mut later = task("b", &json!(["a"]));
    later["delay_ms"] = json!(60_000);
    let mut late_root = task("c", &json!([]));
    late_root["delay_ms"] = json!(30_000);
    let ids = schedule(&db, &[task("a", &json!([])), later, late_root]).await;
    worker.succeed(&worker.take().await).await;
    assert!(next(&db, &worker).await.is_empty());
    db.advance(Duration::from_secs(30)).await;
    assert_eq!(next(&db, &worker).await, [ids["c"]]);
    db.advance(Duration::from_secs(30)).await;
    assert_eq!(next(&db, &worker).await, [ids["b"]]);
}

#[tokio::test]
async fn a_lambda_extends_its_own_chain() {
    let (db, worker) = chained().await;
    let ids = schedule(&db, &[task("a", &json!([])), task("b", &json!(["a"]))]).await;
    let held = worker.take().await;
    let more = schedule(&db, &[task("more", &json!([held.id]))]).await;
    let chain: i64 = db
        .ask("select chain_id from tuskline.chain_task where task_id = $1", &[&more["more"]])
        .await;
    assert_eq!(chain, ids["a"]);
    db.enqueue_due().await;
    worker.succeed(&held).await;
    assert_eq!(next(&db, &worker).await, [ids["b"], more["more"]]);
}

#[tokio::test]
async fn a_task_without_parents_pays_no_statement_for_chains() {
    let (db, worker) = chained().await;
    schedule(&db, &[task("a", &json!([]))]).await;
    assert_eq!(db.one::<i64>("select count(*) from tuskline.dependency").await, 0);
    worker.succeed(&worker.take().await).await;
    assert_eq!(db.count("success").await, 1);
}

#[tokio::test]
async fn a_chain_may_grow_for_ever_if_not_too_many_of_it_wait() {
    let (db, worker) = chained().await;
    let after = |at: i32| if at == 0 { json!([]) } else { json!([format!("t{}", at - 1)]) };
    let tasks: Vec<_> = (0..=1000).map(|at| task(&format!("t{at}"), &after(at))).collect();
    let ids = schedule(&db, &tasks).await;
    let one_more = json!([task("more", &json!([ids["t1000"]]))]);
    let said = refused(&db, &one_more).await;
    assert!(said.contains("at most 1000 tasks one after the other, got 1001"), "{said}");
    worker.succeed(&worker.take().await).await;
    assert_eq!(next(&db, &worker).await, [ids["t1"]]);
    schedule(&db, one_more.as_array().unwrap()).await;
}

#[tokio::test]
async fn a_held_task_goes_on_though_another_parent_ended_while_its_own_was_retried() {
    let (db, worker) = chained().await;
    let mut held = task("held", &json!(["p", "q", "r"]));
    held["on_parent_failure"] = json!("hold");
    let parents = ["p", "q", "r"].map(|name| task(name, &json!([])));
    let ids = schedule(&db, &[&parents[..], &[held]].concat()).await;
    let mut running = worker.claim(3).await;
    running.sort_by_key(|task| task.id);
    worker.fail_for_good(&running[0]).await;
    worker.succeed(&running[2]).await;
    assert!(next(&db, &worker).await.is_empty());
    // The retry makes the held task wait for q. It has not committed when q ends.
    let owner = db.connect().await;
    owner.batch_execute(&format!("begin; select tuskline.retry({})", ids["p"])).await.unwrap();
    worker.succeed(&running[1]).await;
    owner.batch_execute("commit").await.unwrap();
    db.enqueue_due().await;
    let again = worker.take().await;
    assert_eq!(again.id, ids["p"]);
    worker.succeed(&again).await;
    assert_eq!(next(&db, &worker).await, [ids["held"]]);
}

#[tokio::test]
async fn a_task_that_waits_for_a_parent_again_leaves_its_permit_and_its_wait_list() {
    let (db, worker) = chained().await;
    db.run("select tuskline.set_limit('work', 1)").await;
    let last = task("c", &json!([{ "task": "p", "on": "always" }]));
    let ids = schedule(&db, &[task("p", &json!([])), last]).await;
    let taken = async || {
        db.advance(Duration::from_secs(1)).await;
        db.enqueue_due().await;
        let [task] = worker.claim(9).await.try_into().expect("one at a time");
        task
    };
    let parent = taken().await;
    let other = db.schedule("work").await;
    worker.fail_for_good(&parent).await;
    let running = taken().await;
    assert_eq!(running.id, other, "c is behind it");
    let retried: String = db.ask("select tuskline.retry($1)", &[&ids["p"]]).await;
    assert_eq!(retried, "retried");
    db.enqueue_due().await;
    worker.succeed(&running).await;
    let parent = taken().await;
    assert_eq!(parent.id, ids["p"], "its child had the place");
    worker.succeed(&parent).await;
    assert_eq!(taken().await.id, ids["c"]);
    assert_eq!(db.one::<i64>("select count(*) from tuskline.wait_list").await, 0);
}

#[tokio::test]
async fn a_parent_that_ends_otherwise_than_needed_in_the_middle_of_a_look_is_heeded() {
    let (db, worker) = chained().await;
    let child = task("else", &json!([{ "task": "a", "on": "failure" }]));
    let ids = schedule(&db, &[task("a", &json!([])), child]).await;
    let parent = worker.take().await;
    // The check of dependencies stops where it reads outcomes, at a lock that the end of the parent
    // holds.
    let stops: String = db
        .one(
            "select replace(pg_get_functiondef('tuskline_core.read_parents'::regproc), \
               'select d.parent_id', 'perform pg_advisory_xact_lock(7); select d.parent_id')",
        )
        .await;
    assert!(stops.contains("pg_advisory_xact_lock(7)"));
    db.run(&stops).await;
    worker.client.batch_execute("begin; select pg_advisory_xact_lock(7)").await.unwrap();
    let (store_consumer, child) = (db.connect().await, ids["else"]);
    let pid: i32 = store_consumer.query_one("select pg_backend_pid()", &[]).await.unwrap().get(0);
    let look = format!("select tuskline_core.read_parents({child}, {}, 'cancel')", ids["a"]);
    let ends = async {
        db.until_blocked(pid).await;
        worker.succeed(&parent).await;
        worker.client.batch_execute("commit").await.unwrap();
    };
    let (said, ()) = tokio::join!(store_consumer.query_one(&look, &[]), ends);
    assert_eq!(said.unwrap().get::<_, &str>(0), "cancel");
}

#[tokio::test]
async fn an_overdue_task_that_waits_for_no_task_is_queued_at_once() {
    let (db, worker) = chained().await;
    let mut first = task("a", &json!([]));
    first["scheduled_at"] = json!("2020-01-01T00:00:00Z");
    let ids = schedule(&db, &[first, task("b", &json!(["a"]))]).await;
    assert_eq!((db.status(ids["a"]).await.as_str(), db.timers().await), ("enqueued", 0));
    assert_eq!(worker.take().await.id, ids["a"]);
    let due: bool = db
        .ask("select scheduled_at = '2020-01-01Z' from tuskline.task where id = $1", &[&ids["a"]])
        .await;
    assert!(due);
}

#[tokio::test]
async fn tasks_that_wait_for_each_other_are_refused_by_name() {
    let (db, _worker) = chained().await;
    let tasks = json!([
        task("a", &json!(["c"])),
        task("b", &json!(["a"])),
        task("c", &json!(["b"])),
        task("d", &json!(["c"])),
    ]);
    let said = refused(&db, &tasks).await;
    assert_eq!(
        said,
        "TK021: TK021 invalid_chain: tasks wait for each other: a after c after b after a"
    );
    let said = refused(&db, &json!([task("a", &json!(["a"]))])).await;
    assert_eq!(said, "TK021: TK021 invalid_chain: tasks wait for each other: a after a");
    assert_eq!(db.one::<i64>("select count(*) from tuskline.task").await, 0);
}

#[tokio::test]
async fn what_makes_no_chain_is_refused() {
    let (db, _worker) = chained().await;
    let many = Value::from(vec![json!({ "lambda": "work" }); 10_001]);
    let mut odd = task("a", &json!([]));
    odd["on_parent_failure"] = json!("panic");
    let long: Vec<Value> = (0..1002)
        .map(|n| {
            let after = if n == 0 { json!([]) } else { json!([format!("t{}", n - 1)]) };
            task(&format!("t{n}"), &after)
        })
        .collect();
    for (tasks, expected) in [
        (json!([]), "TK007 invalid_batch: an array of 1 to 10000 tasks, got 0"),
        (json!({ "a": 1 }), "TK007 invalid_batch: an array of 1 to 10000 tasks, got object"),
        (many, "TK007 invalid_batch: an array of 1 to 10000 tasks, got 10001"),
        (json!([1]), "TK021 invalid_chain: every task must be an object"),
        (
            json!([{ "lambda": "work", "afer": [] }]),
            "TK021 invalid_chain: unknown field 'afer' (task 1)",
        ),
        (
            json!([task("a", &json!("b"))]),
            r#"TK021 invalid_chain: after must be an array, got "b" (task a)"#,
        ),
        (
            json!([task("a", &json!(["b"]))]),
            "TK021 invalid_chain: task a waits for 'b', which is neither a task of this call nor the number of one",
        ),
        (
            json!([task("a", &json!([4711]))]),
            "TK021 invalid_chain: task a waits for '4711', which is neither a task of this call nor the number of one",
        ),
        (
            json!([task("a", &json!([])), task("a", &json!([]))]),
            "TK021 invalid_chain: two tasks have the name a",
        ),
        (
            json!([task("a", &json!([])), task("b", &json!([{ "task": "a", "on": "monday" }]))]),
            "TK021 invalid_chain: on must be success, failure or always, got 'monday' (task b)",
        ),
        (
            json!([odd]),
            "TK021 invalid_chain: on_parent_failure must be cancel, hold or run, got 'panic' (task a)",
        ),
        (
            json!([task("A b", &json!([]))]),
            "TK002 invalid_name: name of task 1 must match [a-z][a-z0-9_]{0,62}, got 'A b'",
        ),
        (
            json!([task("a", &json!([])), { "lambda": "nowork", "name": "b", "after": ["a"] }]),
            "TK001 unknown_lambda: 'nowork' is not defined (task b, 2 of 2)",
        ),
        (
            Value::from(long),
            "TK021 invalid_chain: at most 1000 tasks one after the other, got 1001",
        ),
    ] {
        let said = refused(&db, &tasks).await;
        assert!(said.contains(expected), "{said} is not {expected}");
    }
    assert_eq!(db.one::<i64>("select count(*) from tuskline.task").await, 0);
    db.schedule("work").await;
    let alone: i64 = db.one("select max(id) from tuskline.task").await;
    let said = db.refused(&format!("select tuskline.cancel_chain({alone})")).await;
    assert!(said.contains("TK022 not_in_chain"), "{said}");
}

#[tokio::test]
async fn a_task_after_its_parents_is_scheduled_with_them_in_one_statement() {
    let db = Db::with_lambda("work").await;
    let worker = db.worker("work").await;
    let last: i64 = db
        .one("select tuskline.schedule_then(tuskline.schedule_many(array['work', 'work']), 'work', '[1,  2]')")
        .await;
    let parents =
        db.lines(&format!("select condition, status from tuskline.parents({last})")).await;
    assert_eq!(parents, ["always | enqueued", "always | enqueued"]);
    let payload: String =
        db.ask("select payload::text from tuskline.task where id = $1", &[&last]).await;
    assert_eq!(payload, "[1,  2]", "as it was written");
    db.enqueue_due().await;
    for task in worker.claim(10).await {
        assert_ne!(task.id, last);
        worker.fail_for_good(&task).await;
    }
    assert_eq!(worker.take().await.id, last);
}

#[tokio::test]
async fn a_name_and_a_number_that_look_alike_are_two_parents() {
    let db = Db::of_cell_0_with("work").await;
    db.pin().await;
    let worker = db.worker("work").await;
    let before = db.schedule("work").await;
    assert_eq!(before, 1, "the first task of the call has this place");
    worker.succeed(&worker.take().await).await;
    let ids =
        schedule(&db, &[task("long", &json!([])), task("last", &json!([1, "long", "long"]))]).await;
    let parents: Vec<i64> =
        db.all(&format!("select id from tuskline.parents({}) order by id", ids["last"])).await;
    let mut both = vec![before, ids["long"]];
    both.sort_unstable();
    assert_eq!(parents, both);
}

#[tokio::test]
async fn a_parent_on_its_way_back_to_its_segment_has_not_ended() {
    let (db, worker) = chained().await;
    let no = db.first_segment();
    db.run("select tuskline.roll_segments()").await;
    let parent = db.schedule("work").await;
    worker.note(&worker.take().await, r#""status": "snoozed", "after_ms": 2592000000"#).await;
    db.advance(Duration::from_secs(86_400)).await;
    db.run("select tuskline.roll_segments()").await;
    let ids = schedule(&db, &[task("a", &json!([parent]))]).await;
    db.run(&format!("select tuskline.keep_remaining({no})")).await;
    db.run(&format!(
        "alter table tuskline_core.task_store detach partition tuskline_core.task_{no} concurrently"
    ))
    .await;
    db.run(&format!("drop table tuskline_core.task_{no}")).await;
    let janitor = db.connect().await;
    janitor.batch_execute(&format!("begin; select tuskline.return_kept({no})")).await.unwrap();
    assert!(next(&db, &worker).await.is_empty());
    assert_eq!(db.status(ids["a"]).await, "new", "its parent lives");
    janitor.batch_execute("commit").await.unwrap();
    db.advance(Duration::from_secs(2_592_000)).await;
    db.enqueue_due().await;
    let held = worker.take().await;
    assert_eq!(held.id, parent);
    worker.succeed(&held).await;
    assert_eq!(next(&db, &worker).await, [ids["a"]]);
}

#[tokio::test]
async fn a_parent_that_is_waited_for_on_two_conditions_is_refused() {
    let (db, worker) = chained().await;
    let before = db.schedule("work").await;
    worker.succeed(&worker.take().await).await;
    let on = |parent: &Value, end: &str| json!({ "task": parent, "on": end });
    for parent in [json!("a"), json!(before)] {
        let after = json!([on(&parent, "success"), on(&parent, "always")]);
        let said = refused(&db, &json!([task("a", &json!([])), task("b", &after)])).await;
        let name = parent.as_str().map_or(parent.to_string(), str::to_owned);
        assert_eq!(
            said,
            format!(
                "TK021: TK021 invalid_chain: task b waits for '{name}' on two conditions, always and success \
                 [a parent is waited for once: on success, on failure (any other end), or on always (any end)]"
            )
        );
    }
    // Two entries for the same parent count once.
    let after = json!(["a", on(&json!("a"), "success"), before, before]);
    let ids = schedule(&db, &[task("a", &json!([])), task("b", &after)]).await;
    let parents = format!("select count(*) from tuskline.parents({})", ids["b"]);
    assert_eq!(db.one::<i64>(&parents).await, 2);
}

#[tokio::test]
async fn more_than_a_hundred_children_are_left_to_the_store_consumer() {
    let (db, worker) = chained().await;
    // A timer is left for the parent if more children may remain.
    for (children, at_once, timers) in [(99, 99, 0), (1000, 100, 1)] {
        let mut tasks = vec![task("parent", &json!([]))];
        tasks.extend((0..children).map(|n| task(&format!("c{n}"), &json!(["parent"]))));
        schedule(&db, &tasks).await;
        worker.succeed(&worker.take().await).await;
        assert_eq!(db.count("enqueued").await, at_once, "of {children}");
        assert_eq!(db.timers().await, timers, "of {children}");
        while db.enqueue_due().await > 0 {}
        assert_eq!(db.count("enqueued").await, children, "of {children}");
        db.empty().await;
    }
}
