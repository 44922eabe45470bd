//! A role that may insert may also draw ids without a task, as fast as the server issues them. The
//! janitor adds segments in time.

use std::time::Duration;

use tokio_util::sync::{CancellationToken, DropGuard};
use tuskline::config::JanitorOptions;
use tuskline::janitor;

use crate::support::Db;

const AHEAD: &str = "select tuskline.segments_ahead()";

/// The segments exist, and every session knows them: their creator releases its lock last.
const MADE: &str = "select tuskline.segments_ahead() >= 8
    and tuskline_core.lock_holders('tuskline_core.segment_guard', '{ShareRowExclusiveLock}') is null";

/// Starts a janitor whose full rounds are rare, compared with the rate at which ids are drawn.
fn janitor(db: &Db) -> DropGuard {
    let options = JanitorOptions {
        every: Duration::from_secs(3_600),
        segments_check_every: Duration::from_millis(100),
        detach_patience: Duration::from_secs(3_600),
        ..JanitorOptions::default()
    };
    let token = CancellationToken::new();
    tokio::spawn(janitor::run(
        db.config.clone(),
        options,
        tuskline::recovery::RoleHealth::default(),
        token.clone(),
    ));
    token.drop_guard()
}

/// Draws the ids of so many segments, and one more.
async fn draw(db: &Db, segments: i64) {
    let draw = format!(
        "select setval('tuskline.task_seq', ((last_value >> 24) + {segments}) << 24) from tuskline.task_seq"
    );
    db.run(&draw).await;
}

#[tokio::test]
async fn segments_are_made_between_two_rounds_of_a_janitor() {
    let db = Db::with_lambda("work").await;
    let no = db.first_segment();
    // The setting precedes the janitor's first round; its next round comes much later.
    db.run(&format!("update tuskline.segment set opened_at = null where segment_no = {no}")).await;
    let _janitor = janitor(&db);
    db.until(&format!(
        "select opened_at is not null from tuskline.segment where segment_no = {no}"
    ))
    .await;
    for _ in 0..3 {
        draw(&db, 6).await;
        assert_eq!(db.one::<i32>(AHEAD).await, 2);
        db.schedule("work").await;
        db.until(MADE).await;
    }
}

/// A scheduler may read ids, so it may hold up the retirement of a segment as long as it likes.
#[tokio::test]
async fn segments_are_made_while_a_round_of_a_janitor_waits_for_a_reader() {
    let db = Db::with_lambda("work").await;
    draw(&db, 6).await; // the segments that are passed over retire
    let reader = db.connect().await;
    reader.batch_execute("begin; select id from tuskline.task limit 1").await.unwrap();
    let _janitor = janitor(&db);
    db.until("select exists (select from pg_inherits where inhdetachpending)").await;
    for _ in 0..3 {
        draw(&db, 6).await;
        db.schedule("work").await;
        db.until(MADE).await;
    }
    reader.batch_execute("rollback").await.unwrap();
}

#[tokio::test]
async fn ids_beyond_every_segment_stop_scheduling_for_a_moment_only() {
    let db = Db::with_lambda("work").await;
    draw(&db, 20).await;
    let refused = db.refused("select tuskline.schedule('work')").await;
    assert!(refused.contains("no partition"), "{refused}");
    let _janitor = janitor(&db);
    db.until(MADE).await;
    let id = db.schedule("work").await;
    assert_eq!(db.status(id).await, "enqueued");
    // The janitor deletes the segments that were passed over.
    let no = db.first_segment();
    let left = "select count(*) = 0 from tuskline.segment where segment_no between";
    db.until(&format!("{left} {} and {}", no + 1, no + 19)).await;
}
