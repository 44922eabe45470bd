//! The net under every other: a task that nothing points to any more is found again.

use std::time::Duration;

use crate::support::Db;

const MINUTE: Duration = Duration::from_secs(60);

async fn find(db: &Db) -> String {
    let no = db.first_segment();
    db.lines(&format!("select * from tuskline.find_stalled({no})")).await.remove(0)
}

#[tokio::test]
async fn an_enqueued_task_without_a_queue_row_is_queued_again() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    let id = db.schedule("work").await;
    db.run("delete from tuskline.queued").await;
    assert_eq!(find(&db).await, "0 | 0 | 0", "its next trigger has not passed");
    db.advance(MINUTE * 21).await;
    assert_eq!(find(&db).await, "0 | 1 | 0");
    assert_eq!(find(&db).await, "0 | 0 | 0", "once");
    assert_eq!(db.worker("work").await.take().await.id, id);
}

#[tokio::test]
async fn a_waiting_task_without_a_timer_gets_one() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    db.run("insert into tuskline.task (lambda, scheduled_at) values ('work', tuskline.clock() + interval '1 hour')").await;
    db.run("delete from tuskline.timer").await;
    db.advance(MINUTE * 69).await;
    assert_eq!(find(&db).await, "0 | 0 | 0");
    db.advance(MINUTE * 2).await;
    assert_eq!(find(&db).await, "1 | 0 | 0");
    db.run("select tuskline.enqueue_due()").await;
    assert_eq!(db.queued().await, 1);
}

#[tokio::test]
async fn a_claimed_task_without_a_lease_returns_when_no_body_can_still_run() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    db.run("select tuskline.alter_lambda('work', p_attempt_timeout => '1 hour')").await;
    let id = db.schedule("work").await;
    db.worker("work").await.take().await;
    db.advance(MINUTE * 69).await;
    db.run("delete from tuskline.lease").await;
    assert_eq!(find(&db).await, "0 | 0 | 0", "its body may still run");
    db.advance(MINUTE * 2).await;
    assert_eq!(find(&db).await, "0 | 0 | 1");
    let again = db.worker("work").await.take().await;
    assert_eq!((again.id, db.one::<i16>("select attempt from tuskline.task").await), (id, 1));
}

#[tokio::test]
async fn a_claimed_task_without_a_lease_that_was_asked_to_stop_is_cancelled() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    let id = db.schedule("work").await;
    db.worker("work").await.take().await;
    assert_eq!(db.cancel(id).await, "requested");
    db.run("delete from tuskline.lease").await;
    db.advance(MINUTE * 71).await;
    assert_eq!(find(&db).await, "0 | 0 | 1");
    assert_eq!((db.status(id).await.as_str(), db.queued().await), ("cancelled", 0));
    assert_eq!(db.one::<i64>("select count(*) from tuskline.cancellation").await, 0);
}

/// The janitor is no worker, so the task is no lease of its own.
#[tokio::test]
async fn a_claimed_task_without_a_lease_returns_where_its_lambda_is_closed() {
    let db = Db::owned().await;
    db.pin().await;
    db.define("work").await;
    db.run("select tuskline.grant_lambda('work', 'app_owner', 'own')").await;
    let id = db.schedule("work").await;
    db.worker("work").await.take().await;
    db.run("delete from tuskline.lease").await;
    db.advance(MINUTE * 71).await;
    assert_eq!(find(&db).await, "0 | 0 | 1");
    assert_eq!(db.worker("work").await.take().await.id, id);
}

#[tokio::test]
async fn tasks_that_something_points_to_are_left_alone() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    db.schedule_many("work", 2).await;
    db.run("insert into tuskline.task (lambda, scheduled_at) values ('work', tuskline.clock() + interval '1 hour')").await;
    db.worker("work").await.take().await;
    db.advance(MINUTE * 600).await;
    assert_eq!(find(&db).await, "0 | 0 | 0");
    let in_use: Vec<i64> = db.all("select * from tuskline.segments_in_use()").await;
    assert!(in_use.contains(&db.first_segment()));
}

#[tokio::test]
async fn a_wait_list_of_which_no_task_holds_a_permit_asks_again() {
    let db = Db::with_lambda("work").await;
    let no = db.first_segment();
    db.pin().await;
    db.run("select tuskline.set_limit('work', 1)").await;
    let ids = db.schedule_many("work", 2).await;
    db.run("delete from tuskline.timer").await;
    assert_eq!(find(&db).await, "0 | 0 | 0");
    db.run("select tuskline.enqueue_due()").await;
    assert_eq!(db.worker("work").await.take().await.id, ids[0]);
    db.run(&format!("select * from tuskline.find_stalled({no})")).await;
    let timers = "select count(*) from tuskline.timer";
    assert_eq!(db.one::<i64>(timers).await, 0, "another task has the permit");
}
