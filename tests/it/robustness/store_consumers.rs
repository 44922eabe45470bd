//! Any number of store consumers share the work. A locked row delays only itself.

use std::time::Duration;

use futures_util::future::join_all;
use tokio_postgres::Client;

use crate::support::{Db, LEASE, refusal, within};

/// Tasks that are due, as timers.
async fn due(db: &Db, count: i32) -> Vec<i64> {
    db.pin().await;
    let sql = "select tuskline.schedule_many(array_fill('work'::text, array[$1::integer]), p_delays => array_fill('1 s'::interval, array[$1::integer]))";
    let ids = db.ask(sql, &[&count]).await;
    db.advance(Duration::from_secs(1)).await;
    ids
}

/// A session that holds the rows of these tasks locked, in an open transaction.
async fn lock(db: &Db, ids: &[i64]) -> Client {
    let session = db.connect().await;
    session.batch_execute("begin").await.unwrap();
    session
        .execute("select from tuskline.task where id = any ($1) order by id for update", &[&ids])
        .await
        .unwrap();
    session
}

#[tokio::test]
async fn many_store_consumers_move_every_due_task_once() {
    let db = Db::with_lambda("work").await;
    due(&db, 600).await;
    let sessions = join_all((0..6).map(|_| db.connect())).await;
    let moved = join_all(sessions.iter().map(|session| async move {
        let mut moved = 0;
        loop {
            let row =
                session.query_one("select moved from tuskline.enqueue_due(null, 25)", &[]).await;
            match row.unwrap_or_else(|error| panic!("{}", refusal(&error))).get::<_, i32>(0) {
                0 => return moved,
                more => moved += more,
            }
        }
    }))
    .await;
    assert_eq!(moved.iter().sum::<i32>(), 600);
    let queued: i64 = db.one("select count(distinct task_id) from tuskline.queued").await;
    assert_eq!((queued, db.queued().await, db.timers().await), (600, 600, 0));
}

#[tokio::test]
async fn timers_that_another_store_consumer_holds_do_not_stop_the_rest() {
    let db = Db::with_lambda("work").await;
    due(&db, 6).await;
    let (one, two) = (db.connect().await, db.connect().await);
    for session in [&one, &two] {
        session.batch_execute("begin").await.unwrap();
        let row = session
            .query_one("select moved from tuskline.enqueue_due(null, 2)", &[])
            .await
            .unwrap();
        assert_eq!(row.get::<_, i32>(0), 2);
    }
    assert_eq!(db.enqueue_due().await, 2);
    one.batch_execute("rollback").await.unwrap();
    two.batch_execute("commit").await.unwrap();
    assert_eq!((db.enqueue_due().await, db.queued().await), (2, 6));
}

/// A store consumer looks for the leases of such an executor in one call of 30, by chance.
#[tokio::test]
async fn a_lease_of_an_executor_that_ended_an_hour_ago_is_rescued() {
    let db = Db::with_lambda("work").await;
    let id = db.schedule("work").await;
    db.worker("work").await.take().await;
    db.run("update tuskline.executor set ended_at = tuskline.clock() - interval '1 hour'").await;
    let rescue = "select rescued from tuskline_core.verified_incarnation,
                    tuskline.rescue(100, '{}', '{}', verified_at)";
    within(async { while db.one::<i32>(rescue).await == 0 {} }).await;
    assert_eq!(db.status(id).await, "enqueued");
}

#[tokio::test]
async fn a_cancel_waits_for_no_timer_that_a_store_consumer_has_locked() {
    let db = Db::with_lambda("work").await;
    let id = due(&db, 1).await[0];
    let consumer = db.connect().await;
    consumer
        .batch_execute("begin; select from tuskline.timer order by due, task_id for update")
        .await
        .unwrap();
    within(db.run(&format!("select tuskline.cancel({id})"))).await;
    assert_eq!((db.status(id).await.as_str(), db.timers().await), ("cancelled", 1));
    consumer.batch_execute("select tuskline.enqueue_due(); commit").await.unwrap();
    assert_eq!((db.queued().await, db.timers().await), (0, 0));
}

#[tokio::test]
async fn a_locked_task_delays_itself_for_enqueue_due() {
    let db = Db::with_lambda("work").await;
    let ids = due(&db, 5).await;
    let holder = lock(&db, &ids[1..2]).await;
    db.advance(Duration::from_secs(1)).await;
    let row =
        db.client.query_one("select next_due_ms from tuskline.enqueue_due()", &[]).await.unwrap();
    assert!(
        row.get::<_, Option<i64>>(0).is_some_and(|ms| ms >= 0),
        "look again, and not in the past"
    );
    assert_eq!((db.queued().await, db.timers().await), (4, 1));
    assert_eq!(db.status(ids[1]).await, "new");
    holder.batch_execute("rollback").await.unwrap();
    db.advance(Duration::from_secs(1)).await;
    assert_eq!((db.enqueue_due().await, db.queued().await, db.timers().await), (1, 5, 0));
}

#[tokio::test]
async fn as_many_locked_tasks_as_a_look_takes_do_not_hide_those_behind_them() {
    let db = Db::with_lambda("work").await;
    let ids = due(&db, 5).await;
    let last = db.schedule_in("work", Duration::from_millis(1_500)).await;
    let holder = lock(&db, &ids).await;
    db.advance(Duration::from_secs(2)).await;
    let look = "select moved, next_due_ms from tuskline.enqueue_due(null, 5)";
    assert_eq!(db.lines(look).await, ["0 | 0"], "nothing moved, and at once again");
    assert_eq!(db.lines(look).await[0].split(' ').next(), Some("1"));
    assert_eq!(db.status(last).await, "enqueued");
    holder.batch_execute("rollback").await.unwrap();
    db.advance(Duration::from_secs(1)).await;
    assert_eq!((db.enqueue_due().await, db.timers().await), (5, 0));
}

#[tokio::test]
async fn a_locked_task_delays_itself_for_claim() {
    let db = Db::with_lambda("work").await;
    let ids = db.schedule_many("work", 5).await;
    let holder = lock(&db, &ids[1..2]).await;
    let worker = db.worker("work").await;
    let claimed: Vec<_> = worker.claim(10).await.iter().map(|task| task.id).collect();
    assert_eq!(claimed, [ids[0], ids[2], ids[3], ids[4]]);
    assert_eq!((db.status(ids[1]).await.as_str(), db.queued().await), ("enqueued", 1));
    holder.batch_execute("rollback").await.unwrap();
    assert_eq!(worker.take().await.id, ids[1]);
}

#[tokio::test]
async fn a_locked_task_delays_itself_for_rescue() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    let ids = db.schedule_many("work", 5).await;
    let dead = db.worker("work").await;
    assert_eq!(dead.claim(5).await.len(), 5);
    db.advance(LEASE).await;
    let holder = lock(&db, &ids[1..2]).await;
    assert_eq!(db.rescue().await, (1, 4, 0));
    assert_eq!(db.status(ids[1]).await, "claimed");
    holder.batch_execute("rollback").await.unwrap();
    assert_eq!(db.rescue().await, (1, 1, 0));
    assert_eq!((db.rescue().await, db.queued().await), ((0, 0, 0), 5));
}

#[tokio::test]
async fn leases_of_which_nothing_can_be_freed_do_not_stop_those_behind_them() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    let ids = db.schedule_many("work", 4).await;
    for _ in 0..4 {
        db.worker("work").await.take().await;
    }
    db.advance(LEASE).await;
    let holder = lock(&db, &ids[..3]).await;
    let rescue = "select rescued from tuskline.rescue(2)";
    assert_eq!((db.one::<i32>(rescue).await, db.status(ids[3]).await.as_str()), (1, "enqueued"));
    assert_eq!(db.one::<i32>(rescue).await, 0, "it ends though they are all that is left");
    holder.batch_execute("rollback").await.unwrap();
    assert_eq!(db.rescue().await, (3, 3, 0));
}

#[tokio::test]
async fn two_store_consumers_rescue_a_lease_once() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    for _ in 0..4 {
        db.schedule_many("work", 5).await;
        db.worker("work").await.claim(5).await;
    }
    db.advance(LEASE).await;
    let (one, two) = (db.connect().await, db.connect().await);
    one.batch_execute("begin; select tuskline.rescue(2)").await.unwrap();
    let row = two.query_one("select leases, rescued from tuskline.rescue()", &[]).await.unwrap();
    // The executors that the first has found expired are its own until it commits.
    assert_eq!((row.get::<_, i32>(0), row.get::<_, i32>(1)), (0, 0));
    one.batch_execute("commit").await.unwrap();
    assert_eq!(db.rescue().await, (2, 10, 0));
    let crashes: Vec<i16> = db.all("select distinct crashes from tuskline.task").await;
    assert_eq!((crashes, db.queued().await), (vec![1], 20));
}
