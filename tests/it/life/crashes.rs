//! An attempt whose process has ended, while its worker has not, is charged one crash with its cause.

use crate::support::{Answer, Db};

#[tokio::test]
async fn a_crash_that_a_worker_reports_is_charged_with_its_cause_and_costs_no_attempt() {
    let db = Db::with_lambda("work").await;
    let id = db.schedule("work").await;
    let worker = db.worker("work").await;
    let task = worker.take().await;
    assert_eq!(worker.crash(&task).await, Answer::Accepted);
    assert_eq!(worker.crash(&task).await, Answer::Accepted, "sent twice, charged once");
    let charged = db.lines("select attempt, error_class, message from tuskline.task_failure").await;
    assert_eq!(charged, ["1 | signal 11 | process 7 ended"]);
    let charged = db.lines("select status, attempt, crashes from tuskline.task").await;
    assert_eq!(charged, ["enqueued | 0 | 1"]);
    let again = worker.take().await;
    assert_eq!((again.id, again.attempt), (id, 1));
    assert_eq!(worker.succeed(&again).await, Answer::Accepted);
    let crashes: i16 = db.one("select crashes from tuskline.task").await;
    assert_eq!(crashes, 0, "in a row");
}

/// The worker has seen that each had begun: also a suspect whose start it has not reported.
#[tokio::test]
async fn a_crash_that_a_worker_reports_ends_at_max_crashes() {
    let db = Db::with_lambda("work").await;
    db.schedule("work").await;
    let worker = db.worker("work").await;
    for crashes in 1..=3 {
        let task = worker.take().await;
        assert_eq!(worker.crash(&task).await, Answer::Accepted);
        let counted: i16 = db.one("select crashes from tuskline.task").await;
        assert_eq!(counted, crashes);
    }
    assert_eq!(db.lines("select status, attempt from tuskline.task").await, ["dead | 0"]);
    let letters: i64 = db.one("select count(*) from tuskline.dead_letters").await;
    assert_eq!(letters, 1);
}

/// One call brings a crash and other results, of tasks in any order.
#[tokio::test]
async fn a_crash_is_recorded_among_other_results() {
    let db = Db::with_lambda("work").await;
    let ids = [db.schedule("work").await, db.schedule("work").await, db.schedule("work").await];
    let worker = db.worker("work").await;
    let held = worker.claim(3).await;
    let fence = held[0].fence;
    let notes = format!(
        r#"[{{"task": {}, "fence": {fence}, "status": "crashed", "error_class": "exit 1"}},
            {{"task": {}, "fence": {fence}, "status": "fatal_failure", "message": "no"}}]"#,
        ids[1], ids[0]
    );
    let sql = "select cardinality(tuskline.set_results($1, array[$2::bigint], array[$3::bigint], ($4::text)::json))";
    let refused: i32 = db.ask(sql, &[&worker.executor, &ids[2], &fence, &notes]).await;
    assert_eq!(refused, 0);
    let ended = db.lines("select status, crashes from tuskline.task order by id").await;
    assert_eq!(ended, ["fatal_failure | 0", "enqueued | 1", "success | 0"]);
    let classes = db.lines("select error_class from tuskline.task_failure order by task_id").await;
    assert_eq!(classes, ["error", "exit 1"]);
}

/// The call locks in the order of ids, although crashes are recorded before the rest.
#[tokio::test]
async fn a_crash_and_other_results_lock_in_the_order_of_their_ids() {
    let db = Db::with_lambda("work").await;
    let ids = [db.schedule("work").await, db.schedule("work").await];
    let worker = db.worker("work").await;
    let fence = worker.claim(2).await[0].fence;
    let mut client = db.connect().await;
    let other = client.transaction().await.unwrap();
    let lock = "select from tuskline.task where id = $1 for update";
    other.query(lock, &[&ids[0]]).await.unwrap();
    let notes = format!(
        r#"[{{"task": {}, "fence": {fence}, "status": "crashed"}}, {{"task": {}, "fence": {fence}, "status": "fatal_failure"}}]"#,
        ids[1], ids[0]
    );
    let sql =
        format!("select tuskline.set_results({}, null, null, '{notes}'::json)", worker.executor);
    let call = tokio::spawn({
        let caller = db.connect().await;
        async move { caller.batch_execute(&sql).await }
    });
    let blocked = "select exists (select from pg_locks where not granted)";
    db.until(blocked).await;
    // The later row is free: the call waits for the earlier one first.
    other.query(lock, &[&ids[1]]).await.unwrap();
    other.rollback().await.unwrap();
    call.await.unwrap().unwrap();
    let ended = db.lines("select status from tuskline.task order by id").await;
    assert_eq!(ended, ["fatal_failure", "enqueued"]);
}
