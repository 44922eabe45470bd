//! The harness itself: a pin holds, and a scripted worker takes a task through its life.

use std::time::Duration;

use crate::support::{Answer, Db};

#[tokio::test]
async fn a_pinned_clock_stands_still_until_advanced() {
    let db = Db::new().await;
    db.pin().await;
    let before = db.now().await;
    assert_eq!(db.now().await, before);
    db.advance(Duration::from_secs(20)).await;
    assert_eq!((db.now().await - before).num_seconds(), 20);
}

#[tokio::test]
async fn a_task_goes_from_schedule_to_success() {
    let db = Db::with_lambda("mail").await;
    let id = db.schedule("mail").await;
    let hand = db.hand("mail").await;
    let task = hand.take().await;
    assert_eq!((task.id, db.status(id).await.as_str()), (id, "claimed"));
    assert!(hand.start(&task).await);
    assert_eq!(db.status(id).await, "processing");
    assert_eq!(hand.succeed(&task).await, Answer::Accepted);
    assert_eq!(db.status(id).await, "success");
}
