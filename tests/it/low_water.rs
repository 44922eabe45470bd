//! A low-water mark saves cost and decides nothing: what commits late below it is found by the next
//! look from the start, and the snapshots that verbs report keep the mark from passing it.

use std::time::Duration;

use tokio_postgres::Row;

use crate::support::{Db, Hand, tasks};

async fn claim_above(hand: &Hand, mark: i64) -> Row {
    hand.claim_by(&hand.client, 10, mark).await.unwrap()
}

#[tokio::test]
async fn a_number_drawn_long_before_its_commit_is_found_by_a_look_from_the_start() {
    let db = Db::with_lambda("work").await;
    let hand = db.hand("work").await;
    let slow = db.connect().await;
    slow.batch_execute("begin; select tuskline.schedule('work')").await.unwrap();
    let quick = db.schedule("work").await;
    let row = claim_above(&hand, 0).await;
    assert_eq!(tasks(&row)[0].id, quick);
    let last = row.get::<_, Vec<Option<i64>>>("last_seq")[2].unwrap();
    slow.batch_execute("commit").await.unwrap();
    assert_eq!(tasks(&claim_above(&hand, last).await), []);
    assert_eq!(tasks(&claim_above(&hand, 0).await).len(), 1);
}

#[tokio::test]
async fn a_mark_may_not_advance_while_a_lower_number_is_uncommitted() {
    let db = Db::with_lambda("work").await;
    let hand = db.hand("work").await;
    let slow = db.connect().await;
    slow.batch_execute("begin; select tuskline.schedule('work')").await.unwrap();
    db.schedule("work").await;
    let first: i64 = claim_above(&hand, 0).await.get("snapshot_xmax");
    db.schedule("work").await;
    let during: i64 = claim_above(&hand, 0).await.get("snapshot_xmin");
    assert!(during < first, "not settled: {during} {first}");
    slow.batch_execute("commit").await.unwrap();
    // Every transaction of this cluster counts, those of other tests, too.
    let mut after = 0;
    while after < first {
        after = claim_above(&hand, 0).await.get("snapshot_xmin");
    }
}

#[tokio::test]
async fn the_mark_leaves_out_what_is_below_it() {
    let db = Db::with_lambda("work").await;
    let hand = db.hand("work").await;
    let ids = db.schedule_many("work", 4).await;
    let seqs: Vec<i64> = db.all("select seq from tuskline.queued order by seq").await;
    let row = claim_above(&hand, seqs[1]).await;
    assert_eq!(tasks(&row).iter().map(|task| task.id).collect::<Vec<_>>(), ids[2..]);
    assert_eq!(row.get::<_, Vec<i32>>("popped"), [0, 0, 2, 0]);
    assert_eq!(row.get::<_, Vec<Option<i64>>>("first_seq"), [None, None, Some(seqs[2]), None]);
    assert_eq!(row.get::<_, Vec<Option<i64>>>("last_seq"), [None, None, Some(seqs[3]), None]);
}

#[tokio::test]
async fn a_timer_that_commits_below_the_mark_is_found_by_a_look_from_the_start() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    let slow = db.connect().await;
    slow.batch_execute("begin; select tuskline.schedule('work', p_delay => '1 second')")
        .await
        .unwrap();
    db.schedule_in("work", Duration::from_secs(2)).await;
    db.advance(Duration::from_secs(2)).await;
    db.run("create table mark as select * from tuskline.enqueue_due()").await;
    assert_eq!(db.one::<i32>("select moved from mark").await, 1);
    assert!(db.one::<bool>("select looked_until = tuskline.clock() from mark").await);
    slow.batch_execute("commit").await.unwrap();
    let above: i32 =
        db.one("select moved from tuskline.enqueue_due((select looked_until from mark))").await;
    assert_eq!((above, db.enqueue_due().await), (0, 1));
}
