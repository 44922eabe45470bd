//! The queues are buffers: after a crash they are filled again from the task store, and nothing is
//! claimed before that.

use std::time::Duration;

use tuskline::embedded::Stop;

use crate::support::{Answer, Db, LEASE, own_cluster, refusal, within};

#[tokio::test]
async fn after_a_crash_nothing_is_lost_and_nothing_is_claimed_before_the_rebuild() {
    let mut cluster = own_cluster().await;
    let mut db = Db::in_cluster(&cluster).await;
    // A throw-away cluster does not wait for its log.
    db.run("set synchronous_commit = on").await;
    db.define("work").await;
    db.define("other").await;
    db.pin().await;
    let queued = db.schedule_many("work", 20).await;
    let later = db.schedule_in("work", Duration::from_secs(60)).await;
    let mut hand = db.hand("work").await;
    hand.client.batch_execute("set synchronous_commit = on").await.unwrap();
    let [held, finished] = hand.claim(2).await.try_into().unwrap();
    assert_eq!(hand.succeed(&finished).await, Answer::Accepted);
    db.schedule_many("other", 5).await;

    within(cluster.stop(Stop::Immediate)).await.unwrap();
    within(cluster.start_again()).await.unwrap();
    db.reconnect().await;
    hand.client = db.connect().await;

    let ready: bool = db.one("select queues_rebuilt from tuskline.readiness()").await;
    assert_eq!((ready, db.queued().await, db.count("enqueued").await), (false, 0, 23));
    // Scheduled while nobody may claim: rebuild finds it a second time.
    let meanwhile = db.schedule("work").await;
    let refused = refusal(&hand.claim_by(&hand.client, 100, 0).await.unwrap_err());
    assert!(refused.starts_with("TK011"), "{refused}");
    assert_eq!(db.one::<i64>("select tasks from tuskline.rebuild_queues()").await, 24);

    // Held work is still held, under its lease and fence.
    assert_eq!(db.rescue().await, (0, 0, 0));
    assert_eq!(hand.succeed(&held).await, Answer::Accepted);
    let claimed = hand.claim(100).await;
    let mut expected = queued[2..].to_vec();
    expected.push(meanwhile);
    assert_eq!(claimed.iter().map(|task| task.id).collect::<Vec<_>>(), expected);
    assert!(claimed[0].fence > 1_000_000_000, "no fence of the lost past is issued again");
    let newcomer = db.hand("other").await;
    assert!(newcomer.executor > 1_000_000);
    assert_eq!(newcomer.claim(100).await.len(), 5);
    db.advance(Duration::from_secs(60)).await;
    assert_eq!(db.enqueue_due().await, 1);
    assert_eq!(db.status(later).await, "enqueued");
}

/// What a crash does to the unlogged tables.
async fn lose_the_queues(db: &Db) {
    db.run("truncate tuskline.queued, tuskline.boot").await;
}

#[tokio::test]
async fn two_failovers_that_know_nothing_of_each_other_issue_no_number_twice() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    let first = db.hand("work").await;
    db.schedule_many("work", 2).await;
    let before = first.take().await;
    let mut seen = vec![(before.fence, first.executor)];
    for _ in 0..2 {
        // Each new primary has what was there before the first failover, and nothing since.
        for (sequence, at) in [("fence_seq", before.fence), ("executor_seq", first.executor)] {
            db.run(&format!("select setval('tuskline.{sequence}', {at})")).await;
        }
        lose_the_queues(&db).await;
        db.advance(Duration::from_secs(1)).await;
        db.one::<bool>("select rebuilt from tuskline.rebuild_queues()").await;
        let hand = db.hand("work").await;
        let task = hand.take().await;
        assert!(hand.release(&task).await);
        seen.push((task.fence, hand.executor));
    }
    let rises = |pair: &[(i64, i64)]| pair[0].0 < pair[1].0 && pair[0].1 < pair[1].1;
    assert!(seen.windows(2).all(rises), "{seen:?}");
}

#[tokio::test]
async fn of_two_sessions_that_rebuild_one_does_it_and_the_other_waits() {
    let db = Db::with_lambda("work").await;
    db.schedule_many("work", 7).await;
    lose_the_queues(&db).await;
    let (one, two) = (db.connect().await, db.connect().await);
    let rebuild = "select rebuilt from tuskline.rebuild_queues()";
    one.batch_execute("begin").await.unwrap();
    assert!(one.query_one(rebuild, &[]).await.unwrap().get::<_, bool>(0));
    let pid: i32 = two.query_one("select pg_backend_pid()", &[]).await.unwrap().get(0);
    let ((), second) = tokio::join!(
        async {
            db.until_blocked(pid).await;
            one.batch_execute("commit").await.unwrap();
        },
        two.query_one(rebuild, &[]),
    );
    assert!(!second.unwrap().get::<_, bool>(0));
    assert_eq!(db.queued().await, 7);
}

#[tokio::test]
async fn a_rebuild_that_rolls_back_leaves_the_door_closed() {
    let db = Db::with_lambda("work").await;
    db.schedule("work").await;
    let hand = db.hand("work").await;
    lose_the_queues(&db).await;
    db.run("begin; select tuskline.rebuild_queues(); rollback").await;
    assert!(hand.claim_by(&hand.client, 1, 0).await.is_err());
    assert_eq!(db.queued().await, 0);
}

#[tokio::test]
async fn a_rebuild_wakes_every_sleeping_worker() {
    let db = Db::with_lambda("work").await;
    let mut ear = db.ear(&["tuskline_queue"]).await;
    db.run("select tuskline.rebuild_queues()").await;
    assert!(ear.heard().await.is_empty(), "the queues were complete");
    lose_the_queues(&db).await;
    db.run("select tuskline.rebuild_queues()").await;
    assert_eq!(ear.heard().await, ["tuskline_queue"]);
}

#[tokio::test]
async fn a_lease_that_ended_while_the_server_was_down_is_rescued_after_the_rebuild() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    db.schedule("work").await;
    let dead = db.hand("work").await;
    let task = dead.take().await;
    lose_the_queues(&db).await;
    db.advance(LEASE).await;
    // Before or after the rebuild: the task is in its queue, and claimed once.
    assert_eq!(db.rescue().await, (1, 1, 0));
    db.run("select tuskline.rebuild_queues()").await;
    let hand = db.hand("work").await;
    assert_eq!(hand.claim(10).await.iter().map(|task| task.id).collect::<Vec<_>>(), [task.id]);
    assert_eq!(db.queued().await, 0);
}

#[tokio::test]
async fn a_rebuild_takes_in_only_what_is_enqueued() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    db.schedule_in("work", LEASE).await;
    let hand = db.hand("work").await;
    db.schedule_many("work", 6).await;
    let tasks = hand.claim(5).await;
    assert!(hand.start(&tasks[1]).await);
    hand.succeed(&tasks[2]).await;
    hand.fail(&tasks[3]).await;
    hand.fail_for_good(&tasks[4]).await;
    lose_the_queues(&db).await;
    assert_eq!(db.one::<i64>("select tasks from tuskline.rebuild_queues()").await, 1);
}
