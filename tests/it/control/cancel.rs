//! A waiting task is cancelled at once. A task that a worker holds is asked to stop.

use std::time::Duration;

use crate::support::{Answer, Db, LEASE, ScriptedWorker, Task, within};

#[tokio::test]
async fn a_task_that_waits_is_cancelled_with_its_timer() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    let later = db.schedule_in("work", LEASE).await;
    let failed = db.schedule("work").await;
    let worker = db.worker("work").await;
    worker.fail(&worker.take().await).await;
    assert_eq!(db.timers().await, 2);
    for id in [later, failed] {
        assert_eq!(db.cancel(id).await, "cancelled");
        assert_eq!(db.status(id).await, "cancelled");
    }
    assert_eq!(db.timers().await, 0);
    let ended: Vec<bool> = db
        .all("select finished_at = tuskline.clock() and next_trigger_at is null from tuskline.task")
        .await;
    assert_eq!(ended, [true, true]);
}

#[tokio::test]
async fn the_queue_row_of_a_cancelled_task_is_skipped_and_removed() {
    let db = Db::with_lambda("work").await;
    let ids = db.schedule_many("work", 3).await;
    assert_eq!(db.cancel(ids[1]).await, "cancelled");
    assert_eq!(db.queued().await, 3);
    let claimed: Vec<_> =
        db.worker("work").await.claim(10).await.iter().map(|task| task.id).collect();
    assert_eq!(claimed, [ids[0], ids[2]]);
    assert_eq!(db.queued().await, 0);
}

/// A worker's task, cancelled while it was held.
async fn asked_to_stop(db: &Db, begun: bool) -> (crate::support::ScriptedWorker, Task) {
    db.pin().await;
    let id = db.schedule("work").await;
    let worker = db.worker("work").await;
    let task = worker.take().await;
    if begun {
        assert!(worker.start(&task).await);
    }
    assert_eq!(db.cancel(id).await, "requested");
    (worker, task)
}

#[tokio::test]
async fn a_worker_hears_of_it_at_once_and_with_every_heartbeat() {
    for begun in [false, true] {
        let db = Db::with_lambda("work").await;
        let mut ear = db.ear(&["tuskline_executor_1"]).await;
        let (worker, task) = asked_to_stop(&db, begun).await;
        assert_eq!(worker.executor, 1);
        assert_eq!(ear.heard().await, ["tuskline_executor_1"]);
        assert_ne!(db.status(task.id).await, "cancelled");
        for _ in 0..2 {
            let row =
                db.client.query_one("select * from tuskline.heartbeat(1)", &[]).await.unwrap();
            assert_eq!(row.get::<_, Option<Vec<i64>>>("cancelled_tasks"), Some(vec![task.id]));
            assert_eq!(row.get::<_, Option<Vec<i64>>>("cancelled_fences"), Some(vec![task.fence]));
        }
        assert_eq!(worker.stopped(&task).await, Answer::Accepted);
        assert_eq!(db.status(task.id).await, "cancelled");
        assert_eq!(db.one::<i64>("select count(*) from tuskline.cancellation").await, 0);
    }
}

#[tokio::test]
async fn another_worker_does_not_hear_of_it() {
    let db = Db::with_lambda("work").await;
    asked_to_stop(&db, true).await;
    let other = db.worker("work").await;
    let requested: Option<Vec<i64>> =
        db.ask("select cancelled_tasks from tuskline.heartbeat($1)", &[&other.executor]).await;
    assert_eq!(requested, None);
}

#[tokio::test]
async fn a_success_may_win_the_race_against_cancel() {
    let db = Db::with_lambda("work").await;
    let (worker, task) = asked_to_stop(&db, true).await;
    assert_eq!(worker.succeed(&task).await, Answer::Accepted);
    assert_eq!(db.status(task.id).await, "success");
    assert_eq!(db.cancel(task.id).await, "too_late");
}

#[tokio::test]
async fn a_cancelled_task_is_not_tried_again() {
    let db = Db::with_lambda("work").await;
    let (worker, task) = asked_to_stop(&db, true).await;
    assert_eq!(worker.fail(&task).await, Answer::Accepted);
    assert_eq!((db.status(task.id).await.as_str(), db.timers().await), ("cancelled", 0));
}

#[tokio::test]
async fn a_cancelled_task_is_not_rescued() {
    let db = Db::with_lambda("work").await;
    let (_worker, task) = asked_to_stop(&db, true).await;
    db.advance(LEASE).await;
    assert_eq!(db.rescue().await, (1, 0, 0));
    assert_eq!((db.status(task.id).await.as_str(), db.queued().await), ("cancelled", 0));
}

#[tokio::test]
async fn a_cancelled_task_that_is_given_back_ends() {
    let db = Db::with_lambda("work").await;
    let (worker, task) = asked_to_stop(&db, false).await;
    assert!(worker.release(&task).await);
    assert_eq!((db.status(task.id).await.as_str(), db.queued().await), ("cancelled", 0));
}

#[tokio::test]
async fn what_has_ended_or_was_never_there_cannot_be_cancelled() {
    let db = Db::with_lambda("work").await;
    let id = db.schedule("work").await;
    let worker = db.worker("work").await;
    worker.succeed(&worker.take().await).await;
    assert_eq!(db.cancel(id).await, "too_late");
    for unknown in [77, 0, -1, i64::MAX, i64::MIN] {
        assert_eq!(db.cancel(unknown).await, "unknown");
    }
    let waits = db.schedule_in("work", Duration::from_secs(5)).await;
    assert_eq!(db.cancel(waits).await, "cancelled");
    assert_eq!(db.cancel(waits).await, "too_late");
}

#[tokio::test]
async fn every_cancel_that_did_something_is_audited() {
    let db = Db::with_lambda("work").await;
    let (_worker, task) = asked_to_stop(&db, true).await;
    let waits = db.schedule_in("work", LEASE).await;
    db.ask::<String>("select tuskline.cancel($1, 'by mistake')", &[&waits]).await;
    db.cancel(77).await;
    let audited = db
        .lines("select detail, subject from tuskline.audit where verb = 'cancel' order by subject")
        .await;
    assert_eq!(audited, [format!("- | task {}", task.id), format!("by mistake | task {waits}")]);
}

#[tokio::test]
async fn a_request_that_a_failure_or_a_release_had_to_wait_for_is_heeded() {
    let db = Db::with_lambda("work").await;
    db.schedule_many("work", 2).await;
    let worker = db.worker("work").await;
    let tasks = worker.claim(2).await;
    let pid: i32 = worker.client.query_one("select pg_backend_pid()", &[]).await.unwrap().get(0);
    let failed = format!(
        r#"[{{"task": {}, "fence": {}, "status": "retriable_failure"}}]"#,
        tasks[0].id, tasks[0].fence
    );
    let verbs = [
        format!("select tuskline.set_results(1, '{{}}', '{{}}', '{failed}')"),
        format!(
            "select tuskline.release(1, array[{}]::bigint[], array[{}]::bigint[])",
            tasks[1].id, tasks[1].fence
        ),
    ];
    for (task, verb) in tasks.iter().zip(verbs) {
        db.run("begin").await;
        assert_eq!(db.cancel(task.id).await, "requested");
        let watcher = db.connect().await;
        let waits = async {
            let sql = format!("select cardinality(pg_blocking_pids({pid})) > 0");
            while !watcher.query_one(&sql, &[]).await.unwrap().get::<_, bool>(0) {
                tokio::task::yield_now().await;
            }
            db.run("commit").await;
        };
        let ((), said) =
            within(async { tokio::join!(waits, worker.client.execute(&verb, &[])) }).await;
        said.unwrap();
        assert_eq!(db.status(task.id).await, "cancelled");
    }
    assert_eq!(db.one::<i64>("select count(*) from tuskline.cancellation").await, 0);
    assert_eq!(
        (db.timers().await, db.one::<i64>("select count(*) from tuskline.task_failure").await),
        (0, 0)
    );
    assert!(worker.claim(10).await.is_empty());
}

/// The task waits for a month, and is kept while its segment goes.
async fn kept(db: &Db, worker: &ScriptedWorker, id: i64) {
    let no = db.first_segment();
    let task = worker.take().await;
    assert_eq!(task.id, id);
    worker.note(&task, r#""status": "retriable_failure", "after_ms": 2592000000"#).await;
    db.advance(Duration::from_secs(86_400)).await;
    db.run(&format!("select tuskline.roll_segments(); select tuskline.keep_remaining({no})")).await;
    db.run(&format!(
        "alter table tuskline_core.task_store detach partition tuskline_core.task_{no} concurrently"
    ))
    .await;
    db.run(&format!("drop table tuskline_core.task_{no}")).await;
}

#[tokio::test]
async fn a_task_on_its_way_back_to_its_segment_is_waited_for_and_cancelled() {
    let db = Db::with_lambda("work").await;
    let no = db.first_segment();
    db.pin().await;
    db.run("select tuskline.roll_segments()").await;
    let worker = db.worker("work").await;
    let id = db.schedule("work").await;
    kept(&db, &worker, id).await;
    let janitor = db.connect().await;
    janitor.batch_execute(&format!("begin; select tuskline.return_kept({no})")).await.unwrap();
    let operator = db.connect().await;
    let pid: i32 = operator.query_one("select pg_backend_pid()", &[]).await.unwrap().get(0);
    let params: [&(dyn tokio_postgres::types::ToSql + Sync); 1] = [&id];
    let cancels = operator.query_one("select tuskline.cancel($1)", &params);
    let commits = async {
        db.until_blocked(pid).await;
        janitor.batch_execute("commit").await.unwrap();
    };
    let (said, ()) = tokio::join!(cancels, commits);
    assert_eq!(said.unwrap().get::<_, &str>(0), "cancelled");
    assert_eq!(db.status(id).await, "cancelled");
}

#[tokio::test]
async fn a_kept_task_that_is_cancelled_gives_its_place_in_the_order_back() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    db.run("select tuskline.roll_segments(); select tuskline.set_order('work', 'block')").await;
    let worker = db.worker("work").await;
    let of_key = "select tuskline.schedule('work', p_ordering_key => 'a')";
    let first: i64 = db.one(of_key).await;
    db.enqueue_due().await;
    kept(&db, &worker, first).await;
    let second: i64 = db.one(of_key).await;
    db.enqueue_due().await;
    assert!(worker.claim(10).await.is_empty());
    assert_eq!(db.cancel(first).await, "cancelled");
    db.advance(Duration::from_secs(1)).await;
    db.enqueue_due().await;
    assert_eq!(worker.take().await.id, second);
}

#[tokio::test]
async fn a_task_that_was_asked_to_stop_and_is_given_back_leaves_its_place_and_its_children_go_on() {
    let db = Db::with_lambda("work").await;
    db.define("child").await;
    db.pin().await;
    db.run("select tuskline.set_limit('work', 1)").await;
    let worker = db.worker_with(&["work", "child"], LEASE).await;
    let first = db.schedule("work").await;
    let second = db.schedule("work").await;
    let after =
        format!(r#"[{{"lambda": "child", "after": [{{"task": {first}, "on": "always"}}]}}]"#);
    let child: i64 =
        db.one(&format!("select ids[1] from tuskline.schedule_chain('{after}')")).await;
    while db.enqueue_due().await > 0 {}
    let task = worker.take().await;
    assert_eq!((task.id, db.cancel(first).await.as_str()), (first, "requested"));
    assert!(worker.release(&task).await);
    assert_eq!(db.status(first).await, "cancelled");
    while db.enqueue_due().await > 0 {}
    let mut ids: Vec<_> = worker.claim(10).await.iter().map(|task| task.id).collect();
    ids.sort_unstable();
    let mut all = vec![second, child];
    all.sort_unstable();
    assert_eq!(ids, all);
}
