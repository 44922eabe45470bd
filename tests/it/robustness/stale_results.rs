//! A result counts under the fence of the current attempt; any other changes nothing, and says so.

use crate::support::{Answer, Db, LEASE, ScriptedWorker, Task};

/// Everything that a result could change, for one task.
async fn everything(db: &Db, id: i64) -> Vec<String> {
    db.lines(&format!(
        "select t.status, t.fence, t.attempt, t.crashes, t.next_trigger_at, t.finished_at,
                (select count(*) from tuskline.timer where task_id = t.id) timers,
                (select count(*) from tuskline.queued where task_id = t.id) queued,
                (select count(*) from tuskline.task_failure where task_id = t.id) failures,
                (select count(*) from tuskline.task_output where task_id = t.id) outputs,
                (select count(*) from tuskline.lease where t.id = any (task_ids)) leases
           from tuskline.task t where t.id = {id}"
    ))
    .await
}

/// Sends a result of every kind, each of which must be refused and change nothing.
async fn check_refused(db: &Db, worker: &ScriptedWorker, task: &Task) {
    let before = everything(db, task.id).await;
    assert_eq!(worker.succeed(task).await, Answer::Refused);
    assert_eq!(worker.succeed_with(task, r#"{"late": true}"#).await, Answer::Refused);
    assert_eq!(worker.fail(task).await, Answer::Refused);
    assert_eq!(worker.fail_for_good(task).await, Answer::Refused);
    assert_eq!(worker.stopped(task).await, Answer::Refused);
    assert!(!worker.crash(task).await);
    assert_eq!(everything(db, task.id).await, before);
}

/// A worker, and a task that it held until its lease ended and rescue put it back.
async fn overslept(db: &Db) -> (ScriptedWorker, Task) {
    db.pin().await;
    db.schedule("work").await;
    let slow = db.worker("work").await;
    let old = slow.take().await;
    db.advance(LEASE).await;
    assert_eq!(db.rescue().await, (1, 1, 0));
    (slow, old)
}

#[tokio::test]
async fn a_late_result_after_reclaim_changes_nothing() {
    let db = Db::with_lambda("work").await;
    let (slow, old) = overslept(&db).await;
    let fast = db.worker("work").await;
    let new = fast.take().await;
    check_refused(&db, &slow, &old).await;
    assert!(fast.start(&new).await);
    check_refused(&db, &slow, &old).await;
    assert_eq!(fast.succeed(&new).await, Answer::Accepted);
    assert_eq!(slow.fail(&old).await, Answer::Refused);
    assert_eq!(db.status(new.id).await, "success");
}

#[tokio::test]
async fn a_late_result_before_reclaim_changes_nothing() {
    let db = Db::with_lambda("work").await;
    let (slow, old) = overslept(&db).await;
    check_refused(&db, &slow, &old).await;
    assert_eq!(db.status(old.id).await, "enqueued");
}

#[tokio::test]
async fn a_result_under_a_fence_that_is_not_the_tasks_changes_nothing() {
    let db = Db::with_lambda("work").await;
    db.schedule("work").await;
    let (worker, other) = (db.worker("work").await, db.worker("work").await);
    let task = worker.take().await;
    for fence in [0, -1, task.fence - 1, task.fence + 1, i64::MAX] {
        check_refused(&db, &other, &Task { fence, ..task.clone() }).await;
        check_refused(&db, &worker, &Task { fence, ..task.clone() }).await;
    }
}

#[tokio::test]
async fn a_result_for_a_task_that_was_never_claimed_or_is_not_there_changes_nothing() {
    let db = Db::with_lambda("work").await;
    let worker = db.worker("work").await;
    let ids = [db.schedule("work").await, db.schedule_in("work", LEASE).await, 77, -1, i64::MAX];
    for id in ids {
        let task = Task::unclaimed(id);
        check_refused(&db, &worker, &task).await;
    }
}

#[tokio::test]
async fn a_result_sent_twice_is_accepted_twice_and_counts_once() {
    let db = Db::with_lambda("work").await;
    let worker = db.worker("work").await;
    db.schedule_many("work", 5).await;
    let [success, output, retriable, fatal, stopped] = worker.claim(5).await.try_into().unwrap();
    let mut before = Vec::new();
    for time in 0..2 {
        assert_eq!(worker.succeed(&success).await, Answer::Accepted);
        assert_eq!(worker.succeed_with(&output, "[1]").await, Answer::Accepted);
        assert_eq!(worker.fail(&retriable).await, Answer::Accepted);
        assert_eq!(worker.fail_for_good(&fatal).await, Answer::Accepted);
        assert_eq!(worker.stopped(&stopped).await, Answer::Accepted);
        let mut now = Vec::new();
        for task in [&success, &output, &retriable, &fatal, &stopped] {
            now.extend(everything(&db, task.id).await);
        }
        if time == 1 {
            assert_eq!(now, before);
        }
        before = now;
    }
}

#[tokio::test]
async fn another_result_for_a_finished_attempt_is_refused() {
    let db = Db::with_lambda("work").await;
    let worker = db.worker("work").await;
    db.schedule_many("work", 4).await;
    let [success, retriable, fatal, stopped] = worker.claim(4).await.try_into().unwrap();
    worker.succeed(&success).await;
    worker.fail(&retriable).await;
    worker.fail_for_good(&fatal).await;
    worker.stopped(&stopped).await;
    for task in [&retriable, &fatal, &stopped] {
        assert_eq!(worker.succeed(task).await, Answer::Refused);
    }
    for task in [&success, &fatal, &stopped] {
        assert_eq!(worker.fail(task).await, Answer::Refused);
    }
    for task in [&success, &retriable, &stopped] {
        assert_eq!(worker.fail_for_good(task).await, Answer::Refused);
    }
    assert_eq!(db.status(retriable.id).await, "retriable_failure");
}

#[tokio::test]
async fn one_stale_result_in_a_batch_is_refused_alone() {
    let db = Db::with_lambda("work").await;
    let worker = db.worker("work").await;
    db.schedule_many("work", 6).await;
    let mut plain = worker.claim(3).await;
    plain[1].fence -= 1;
    assert_eq!(worker.succeed_all(&plain).await, [plain[1].id]);
    let noted = worker.claim(3).await;
    let notes = format!(
        r#"[{{"task": {}, "fence": {}, "status": "fatal_failure"}}, {{"task": {}, "fence": 1, "status": "success", "output": 1}}]"#,
        noted[0].id, noted[0].fence, noted[1].id
    );
    let sql =
        "select tuskline.set_results($1, array[$2]::bigint[], array[$3]::bigint[], $4::text::json)";
    let refused: Vec<i64> =
        db.ask(sql, &[&worker.executor, &noted[2].id, &noted[2].fence, &notes]).await;
    assert_eq!(refused, [noted[1].id]);
    let statuses: Vec<String> = db.all("select status::text from tuskline.task order by id").await;
    assert_eq!(statuses, ["success", "claimed", "success", "fatal_failure", "claimed", "success"]);
}

#[tokio::test]
async fn the_current_attempt_counts_though_an_old_one_speaks_in_the_same_batch() {
    let db = Db::with_lambda("work").await;
    let worker = db.worker("work").await;
    db.schedule_many("work", 2).await;
    for old in worker.claim(2).await {
        assert!(worker.release(&old).await);
        let new = worker.take().await;
        assert_eq!((new.id, new.fence > old.fence), (old.id, true));
        worker.succeed_all(&[new.clone(), old]).await;
        assert_eq!(db.status(new.id).await, "success");
    }
    db.schedule_many("work", 2).await;
    for old in worker.claim(2).await {
        assert!(worker.release(&old).await);
        let new = worker.take().await;
        let note = |task: &Task, status| {
            format!(r#"{{"task": {}, "fence": {}, "status": "{status}"}}"#, task.id, task.fence)
        };
        let notes = format!("[{}, {}]", note(&new, "fatal_failure"), note(&old, "success"));
        let sql = "select tuskline.set_results($1, '{}', '{}', $2::text::json)";
        db.ask::<Vec<i64>>(sql, &[&worker.executor, &notes]).await;
        assert_eq!(db.status(new.id).await, "fatal_failure");
    }
}

#[tokio::test]
async fn a_worker_cannot_end_the_lease_of_another_worker() {
    let db = Db::with_lambda("work").await;
    db.schedule("work").await;
    let (worker, other) = (db.worker("work").await, db.worker("work").await);
    let task = worker.take().await;
    let end = "select tuskline.set_results($1, '{}', '{}', null, array[$2]::bigint[])";
    db.ask::<Vec<i64>>(end, &[&other.executor, &task.fence]).await;
    assert_eq!(db.one::<i64>("select count(*) from tuskline.lease").await, 1);
    db.ask::<Vec<i64>>(end, &[&worker.executor, &task.fence]).await;
    assert_eq!(db.one::<i64>("select count(*) from tuskline.lease").await, 0);
}

/// The lease of a dead worker names each task that it claimed, also one that it gave back.
#[tokio::test]
async fn a_rescue_leaves_a_task_to_the_worker_that_has_claimed_it_since() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    db.schedule_many("work", 2).await;
    let (dead, live) = (db.worker("work").await, db.worker("work").await);
    let [released, held] = dead.claim(2).await.try_into().unwrap();
    assert!(dead.release(&released).await);
    db.advance(LEASE / 2).await;
    assert!(live.heartbeat().await);
    let task = live.take().await;
    assert_eq!(task.id, released.id);
    db.advance(LEASE / 2).await;
    assert_eq!(db.rescue().await, (1, 1, 0), "leases, rescued and dead tasks");
    assert_eq!(db.status(held.id).await, "enqueued");
    assert_eq!(live.succeed(&task).await, Answer::Accepted);
}
