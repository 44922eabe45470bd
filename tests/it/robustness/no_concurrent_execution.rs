//! No task is executed by two workers at a time. The lease keeps other workers away; the fence
//! refuses a worker that lost its lease.

use std::time::Duration;

use crate::support::{Answer, Db, LEASE};

const MS: Duration = Duration::from_millis(1);

#[tokio::test]
async fn of_two_workers_one_gets_the_task() {
    let db = Db::with_lambda("work").await;
    db.schedule("work").await;
    let (one, two) = (db.worker("work").await, db.worker("work").await);
    let (one, two) = tokio::join!(one.claim(1), two.claim(1));
    assert_eq!(one.len() + two.len(), 1);
}

#[tokio::test]
async fn a_silent_worker_keeps_its_task_until_its_lease_ends_and_not_longer() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    db.schedule("work").await;
    let silent = db.worker("work").await;
    silent.take().await;
    db.advance(LEASE - MS).await;
    assert_eq!(db.rescue().await, (0, 0, 0));
    db.advance(MS).await;
    assert_eq!(db.rescue().await, (1, 1, 0));
}

#[tokio::test]
async fn a_heartbeat_keeps_every_lease_of_its_worker() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    db.schedule("work").await;
    let worker = db.worker("work").await;
    let task = worker.take().await;
    for _ in 0..5 {
        db.advance(LEASE - MS).await;
        assert!(worker.heartbeat().await);
        assert_eq!(db.rescue().await, (0, 0, 0));
    }
    assert_eq!(worker.succeed(&task).await, Answer::Accepted);
}

#[tokio::test]
async fn a_claim_under_way_when_its_worker_is_ended_leaves_a_lease_that_is_rescued() {
    let db = Db::with_lambda("work").await;
    let id = db.schedule("work").await;
    let worker = db.worker("work").await;
    worker.client.batch_execute("begin").await.unwrap();
    worker.take().await;
    db.run(&format!("select tuskline.end_executor({})", worker.executor)).await;
    assert_eq!(db.rescue().await, (0, 0, 0));
    worker.client.batch_execute("commit").await.unwrap();
    assert_eq!(db.status(id).await, "claimed");
    assert_eq!(db.rescue().await, (1, 1, 0));
    assert_eq!(db.status(id).await, "enqueued");
}

#[tokio::test]
async fn a_worker_that_was_given_up_claims_no_more() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    db.schedule_many("work", 2).await;
    let worker = db.worker("work").await;
    worker.take().await;
    db.advance(crate::support::LEASE).await;
    assert_eq!(db.rescue().await, (1, 1, 0));
    let claim = worker.claim_by(&worker.client, 1, 0).await.unwrap();
    assert!(!claim.get::<_, bool>("alive"));
    assert_eq!(db.count("enqueued").await, 2);
}

#[tokio::test]
async fn an_ended_worker_never_comes_back() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    db.schedule_many("work", 2).await;
    let worker = db.worker("work").await;
    let task = worker.take().await;
    db.run(&format!("select tuskline.end_executor({})", worker.executor)).await;
    assert!(!worker.heartbeat().await);
    assert!(!worker.start(&task).await);
    let claim = worker.claim_by(&worker.client, 1, 0).await.unwrap();
    assert!(!claim.get::<_, bool>("alive"));
    assert_eq!(db.count("enqueued").await, 1);
}

#[tokio::test]
async fn a_result_that_comes_late_but_before_rescue_stands() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    let id = db.schedule("work").await;
    let worker = db.worker("work").await;
    let task = worker.take().await;
    db.advance(LEASE).await;
    assert_eq!(worker.succeed(&task).await, Answer::Accepted);
    assert_eq!(db.rescue().await, (1, 0, 0), "the lease goes, the task stays");
    assert_eq!(db.status(id).await, "success");
}

#[tokio::test]
async fn a_task_in_its_queue_twice_is_claimed_once() {
    let db = Db::with_lambda("work").await;
    let ids = db.schedule_many("work", 2).await;
    let again = "insert into tuskline.queued (queue_id, task_id) select queue_id, task_id from tuskline.queued";
    db.run(again).await;
    let (one, two) = (db.worker("work").await, db.worker("work").await);
    // The worker gets the first two rows. The third row repeats the first.
    let first: Vec<_> = one.claim(3).await.iter().map(|task| task.id).collect();
    assert_eq!(first, ids);
    assert_eq!(two.claim(3).await, []);
    assert_eq!(db.queued().await, 0);
}

#[tokio::test]
async fn every_claim_has_a_higher_fence_than_any_before() {
    let db = Db::with_lambda("work").await;
    let worker = db.worker("work").await;
    db.schedule("work").await;
    let mut last = 0;
    for _ in 0..5 {
        let task = worker.take().await;
        assert!(task.fence > last);
        last = task.fence;
        assert!(worker.release(&task).await);
    }
}

#[tokio::test]
async fn a_worker_that_overslept_cannot_say_that_it_has_begun() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    db.schedule("work").await;
    let slow = db.worker("work").await;
    let old = slow.take().await;
    db.advance(LEASE).await;
    db.rescue().await;
    let fast = db.worker("work").await;
    let new = fast.take().await;
    assert!(!slow.start(&old).await);
    assert!(!fast.start(&old).await, "the fence, not only the executor, is out of date");
    assert!(!slow.release(&old).await);
    assert!(fast.start(&new).await);
    assert_eq!(db.status(new.id).await, "processing");
}
