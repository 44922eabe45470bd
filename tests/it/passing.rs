//! A claim that may pass begins beyond what others are taking, and passes nothing for good.

use tokio_postgres::{Client, Row};

use crate::support::{Db, Hand, tasks};

/// Claims by a session of the test's choice. True: others that are at work may be passed.
async fn claim(hand: &Hand, session: &Client, limit: i32, pass: bool) -> Row {
    let groups = vec![1_i16; hand.queues.len()];
    let marks = vec![0_i64; hand.queues.len()];
    let sql = "select * from tuskline.claim($1, $2, $3, $4, array[$5]::integer[], null, $6)";
    let values: [&(dyn tokio_postgres::types::ToSql + Sync); 6] =
        [&hand.executor, &hand.queues, &marks, &groups, &limit, &pass];
    session.query_one(sql, &values).await.unwrap()
}

fn ids(row: &Row) -> Vec<i64> {
    tasks(row).iter().map(|task| task.id).collect()
}

/// A queue of 500 tasks and their numbers. Claims under way: of the first 100, of 150 after them, of 150
/// after these. The last one knows where the second ended.
struct Busy {
    db: Db,
    hand: Hand,
    ids: Vec<i64>,
    seqs: Vec<i64>,
    under_way: [Client; 3],
}

impl Busy {
    async fn new() -> Self {
        let db = Db::with_lambda("work").await;
        let hand = db.hand("work").await;
        let all = db.schedule_many("work", 500).await;
        let seqs = db.all("select seq from tuskline.queued order by seq").await;
        let under_way = [db.connect().await, db.connect().await, db.connect().await];
        for (session, taken) in under_way.iter().zip([0..100, 100..250, 250..400]) {
            session.batch_execute("begin").await.unwrap();
            let limit = i32::try_from(taken.len()).unwrap();
            assert_eq!(ids(&claim(&hand, session, limit, true).await), all[taken]);
        }
        Self { db, hand, ids: all, seqs, under_way }
    }

    /// The claim of a session never was.
    async fn undo(&self, session: usize) {
        self.under_way[session].batch_execute("rollback").await.unwrap();
    }

    async fn claim(&self, limit: i32, pass: bool) -> Row {
        claim(&self.hand, &self.hand.client, limit, pass).await
    }
}

#[tokio::test]
async fn who_finds_others_at_work_begins_beyond_the_last_of_them_and_says_where_it_saw_the_first() {
    let busy = Busy::new().await;
    busy.undo(1).await;
    let row = busy.claim(60, true).await;
    assert_eq!(ids(&row), busy.ids[400..460]);
    let of_normal = |name| row.get::<_, Vec<Option<i64>>>(name)[2].unwrap();
    assert_eq!(of_normal("first_seq"), busy.seqs[0], "nothing above it is settled");
    assert_eq!(of_normal("last_seq"), busy.seqs[459]);
}

#[tokio::test]
async fn who_may_not_pass_takes_the_first_that_is_free() {
    let busy = Busy::new().await;
    busy.undo(1).await;
    assert_eq!(ids(&busy.claim(60, false).await), busy.ids[100..160]);
}

#[tokio::test]
async fn who_finds_too_little_beyond_takes_what_it_passed_in_the_order_of_ids() {
    let busy = Busy::new().await;
    busy.undo(1).await;
    let row = busy.claim(180, true).await;
    assert_eq!(ids(&row), [&busy.ids[100..180], &busy.ids[400..]].concat());
    assert_eq!(row.get::<_, Vec<Option<i32>>>("popped")[2], Some(180));
    assert_eq!(ids(&busy.claim(500, true).await), busy.ids[180..250]);
    assert_eq!(ids(&busy.claim(500, true).await), Vec::<i64>::new());
}

#[tokio::test]
async fn what_a_claim_left_that_was_undone_is_taken_first() {
    let busy = Busy::new().await;
    busy.undo(0).await;
    assert_eq!(ids(&busy.claim(60, true).await), busy.ids[..60]);
}

#[tokio::test]
async fn where_a_small_claim_ended_leads_nobody_on() {
    let busy = Busy::new().await;
    let small = busy.db.connect().await;
    small.batch_execute("begin").await.unwrap();
    assert_eq!(ids(&claim(&busy.hand, &small, 99, true).await), busy.ids[400..499]);
    let taken = format!("select last_value from tuskline.queue_{}_taken", busy.hand.queues[2]);
    assert_eq!(busy.db.one::<i64>(&taken).await, busy.seqs[399]);
}
