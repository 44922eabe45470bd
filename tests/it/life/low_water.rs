//! A low-water mark saves cost and decides nothing. A scan from the start finds rows that commit
//! late below it. The oldest writing transaction that verbs report keeps the mark behind it.

use std::time::Duration;

use tokio_postgres::{Client, Row};
use tuskline_postgres::Stop;

use crate::support::{Db, ScriptedWorker, own_cluster, tasks};

async fn claim_above(worker: &ScriptedWorker, mark: i64) -> Row {
    worker.claim_by(&worker.client, 10, mark).await.unwrap()
}

#[tokio::test]
async fn a_number_drawn_long_before_its_commit_is_found_by_a_look_from_the_start() {
    let db = Db::with_lambda("work").await;
    let worker = db.worker("work").await;
    let slow = db.connect().await;
    slow.batch_execute("begin; select tuskline.schedule('work')").await.unwrap();
    let quick = db.schedule("work").await;
    let row = claim_above(&worker, 0).await;
    assert_eq!(tasks(&row)[0].id, quick);
    let last = row.get::<_, Vec<Option<i64>>>("last_seq")[2].unwrap();
    slow.batch_execute("commit").await.unwrap();
    assert_eq!(tasks(&claim_above(&worker, last).await), []);
    assert_eq!(tasks(&claim_above(&worker, 0).await).len(), 1);
}

/// Waits until the answer lies above a number. Every transaction of this cluster counts, also those
/// of other tests.
async fn until_above(number: i64, mut ask: impl AsyncFnMut() -> i64) {
    let limit = std::time::Instant::now() + Duration::from_secs(20);
    while ask().await <= number {
        assert!(std::time::Instant::now() < limit, "not above {number}");
    }
}

/// Makes an open transaction old. So many other transactions pass that the verb examines it more
/// closely.
const TIME_PASSES: &str =
    "do $$ begin for n in 1..220 loop perform pg_current_xact_id(); commit; end loop; end $$";

async fn begin(client: &Client, work: &str) -> i64 {
    client.batch_execute(&format!("begin; select pg_current_xact_id(); {work}")).await.unwrap();
    client.query_one("select pg_current_xact_id()::text::bigint", &[]).await.unwrap().get(0)
}

#[tokio::test]
async fn a_mark_may_not_advance_while_a_lower_number_is_uncommitted() {
    let db = Db::with_lambda("work").await;
    let worker = db.worker("work").await;
    let slow = db.connect().await;
    let open = begin(&slow, "select tuskline.schedule('work')").await;
    db.schedule("work").await;
    claim_above(&worker, 0).await;
    db.schedule("work").await;
    let second: i64 = claim_above(&worker, 0).await.get("xid");
    assert!(open < second, "a row drawn before the second claim has a lower number");
    for passed in ["", TIME_PASSES] {
        db.run(passed).await;
        let ended: i64 = claim_above(&worker, 0).await.get("oldest_writer_xid");
        assert!(ended <= open, "not settled: {ended} {open}");
    }
    slow.batch_execute("commit").await.unwrap();
    until_above(second - 1, async || claim_above(&worker, 0).await.get("oldest_writer_xid")).await;
}

#[tokio::test]
async fn a_claim_s_own_number_is_above_those_of_all_earlier_transactions() {
    let db = Db::with_lambda("work").await;
    let (worker, other) = (db.worker("work").await, db.connect().await);
    let slow = db.connect().await;
    begin(&other, "").await;
    let first = begin(&worker.client, "").await;
    let open = begin(&slow, "select tuskline.schedule('work')").await;
    other.batch_execute("select tuskline.schedule('work'); commit").await.unwrap();
    let row = claim_above(&worker, 0).await;
    assert_eq!((tasks(&row).len(), row.get::<_, i64>("xid")), (1, first));
    assert!(first < open, "the first claim's number is no bound, whatever it found");
    worker.client.batch_execute("commit").await.unwrap();
    db.schedule("work").await;
    let row = claim_above(&worker, 0).await;
    assert!(row.get::<_, i64>("oldest_writer_xid") <= open && open < row.get::<_, i64>("xid"));
}

#[tokio::test]
async fn a_claim_that_takes_nothing_has_no_number() {
    let db = Db::with_lambda("work").await;
    let worker = db.worker("work").await;
    assert_eq!(claim_above(&worker, 0).await.get::<_, Option<i64>>("xid"), None);
}

#[tokio::test]
async fn an_old_transaction_that_wrote_to_no_queue_holds_no_mark_back_until_it_does() {
    // The test has its own cluster: in the shared one, neighbouring tests draw two hundred
    // transaction numbers in a moment.
    let mut cluster = own_cluster().await;
    let db = Db::in_cluster(&cluster).await;
    db.define("work").await;
    let worker = db.worker("work").await;
    let bystander = db.connect().await;
    let open = begin(&bystander, "create table elsewhere ()").await;
    let ended = async || claim_above(&worker, 0).await.get::<_, i64>("oldest_writer_xid");
    assert!(ended().await <= open, "a young one is not looked at closer");
    db.run(TIME_PASSES).await;
    until_above(open, ended).await;
    bystander.batch_execute("select tuskline.schedule('work')").await.unwrap();
    assert!(ended().await <= open);
    bystander.batch_execute("commit").await.unwrap();
    until_above(open, ended).await;
    cluster.stop(Stop::Immediate).await.unwrap();
}

#[tokio::test]
async fn an_old_claim_that_may_still_be_undone_holds_the_mark_back() {
    let db = Db::with_lambda("work").await;
    let (worker, other) = (db.worker("work").await, db.worker("work").await);
    db.schedule("work").await;
    let open = begin(&other.client, "").await;
    assert_eq!(tasks(&claim_above(&other, 0).await).len(), 1);
    db.run(TIME_PASSES).await;
    assert!(claim_above(&worker, 0).await.get::<_, i64>("oldest_writer_xid") <= open);
    other.client.batch_execute("rollback").await.unwrap();
    assert_eq!(tasks(&claim_above(&worker, 0).await).len(), 1);
}

#[tokio::test]
async fn an_old_transaction_that_wrote_to_no_timer_holds_the_store_consumer_s_mark_back_no_more() {
    let db = Db::with_lambda("work").await;
    let bystander = db.connect().await;
    let open = begin(&bystander, "select tuskline.schedule('work')").await;
    db.run(TIME_PASSES).await;
    let ended =
        async || db.one::<i64>("select oldest_writer_xid from tuskline.enqueue_due()").await;
    until_above(open, ended).await;
    let later = "select tuskline.schedule('work', p_delay => '1 hour')";
    bystander.batch_execute(later).await.unwrap();
    assert!(ended().await <= open);
}

#[tokio::test]
async fn the_mark_leaves_out_what_is_below_it() {
    let db = Db::with_lambda("work").await;
    let worker = db.worker("work").await;
    let ids = db.schedule_many("work", 4).await;
    let seqs: Vec<i64> = db.all("select seq from tuskline.queued order by seq").await;
    let row = claim_above(&worker, seqs[1]).await;
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
