//! An attempt whose process has ended, while its worker has not, is charged one crash with its cause.

use crate::support::{Answer, Db, ids_and_fences};

#[tokio::test]
async fn a_crash_that_a_worker_reports_is_charged_with_its_cause_and_costs_no_attempt() {
    let db = Db::with_lambda("work").await;
    let id = db.schedule("work").await;
    let worker = db.worker("work").await;
    let task = worker.take().await;
    assert!(worker.crash(&task).await);
    assert!(!worker.crash(&task).await, "sent twice, charged once");
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
        assert!(worker.crash(&task).await);
        let counted: i16 = db.one("select crashes from tuskline.task").await;
        assert_eq!(counted, crashes);
    }
    assert_eq!(db.lines("select status, attempt from tuskline.task").await, ["dead | 0"]);
    let letters: i64 = db.one("select count(*) from tuskline.dead_letters").await;
    assert_eq!(letters, 1);
}

/// A row that another session has locked delays its own report only, and keeps its lease.
#[tokio::test]
async fn a_locked_row_delays_only_its_own_crash() {
    let db = Db::with_lambda("work").await;
    let ids = [db.schedule("work").await, db.schedule("work").await];
    let worker = db.worker("work").await;
    let (tasks, fences) = ids_and_fences(&worker.claim(2).await);
    let other = db.connect().await;
    other.batch_execute("begin").await.unwrap();
    let lock = "select from tuskline.task where id = $1 for update";
    other.query(lock, &[&ids[0]]).await.unwrap();
    let sql = "select returned, deferred from tuskline.report_crashes(
        $1, $2, $3, '{exit 1,exit 1}', '{a,b}', array[$4::bigint])";
    let arguments: [&(dyn tokio_postgres::types::ToSql + Sync); 4] =
        [&worker.executor, &tasks, &fences, &fences[0]];
    let row = worker.client.query_one(sql, &arguments).await.unwrap();
    assert_eq!(row.get::<_, Vec<i64>>(0), [ids[1]]);
    assert_eq!(row.get::<_, Vec<i64>>(1), [ids[0]]);
    let leases = "select count(*) from tuskline.lease";
    assert_eq!(db.one::<i64>(leases).await, 1);
    other.batch_execute("rollback").await.unwrap();
    let row = worker.client.query_one(sql, &arguments).await.unwrap();
    assert_eq!(row.get::<_, Vec<i64>>(0), [ids[0]]);
    assert_eq!(db.one::<i64>(leases).await, 0);
    let ended = db.lines("select status, crashes from tuskline.task order by id").await;
    assert_eq!(ended, ["enqueued | 1", "enqueued | 1"]);
    let messages = db.lines("select message from tuskline.task_failure order by task_id").await;
    assert_eq!(messages, ["a", "b"]);
}
