//! Every accepted task is executed at least once, whichever process dies on the way.

use std::time::Duration;

use crate::support::{Answer, Db, LEASE, refusal};

#[tokio::test]
async fn a_task_whose_worker_died_runs_again() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    let id = db.schedule("work").await;
    let dead = db.worker("work").await;
    let first = dead.take().await;
    assert!(dead.start(&first).await);
    db.advance(LEASE).await;
    assert_eq!(db.rescue().await, (1, 1, 0));
    let other = db.worker("work").await;
    let second = other.take().await;
    assert_eq!((second.id, second.attempt, second.crashes), (id, 1, 1));
    assert!(second.fence > first.fence);
    assert_eq!(other.succeed(&second).await, Answer::Accepted);
}

#[tokio::test]
async fn a_claim_that_rolls_back_leaves_the_task_in_its_queue() {
    let db = Db::with_lambda("work").await;
    let id = db.schedule("work").await;
    let mut worker = db.worker("work").await;
    worker.client.batch_execute("begin").await.unwrap();
    assert_eq!(worker.take().await.id, id);
    worker.client.batch_execute("rollback").await.unwrap();
    assert_eq!((db.status(id).await.as_str(), db.queued().await), ("enqueued", 1));
    // The end of its session has the same effect.
    worker.client.batch_execute("begin").await.unwrap();
    worker.take().await;
    let pid: i32 = worker.client.query_one("select pg_backend_pid()", &[]).await.unwrap().get(0);
    worker.client = db.connect().await;
    db.until(&format!("select not exists (select from pg_stat_activity where pid = {pid})")).await;
    assert_eq!(worker.take().await.id, id);
}

#[tokio::test]
async fn a_result_that_rolls_back_leaves_the_task_with_its_worker() {
    let db = Db::with_lambda("work").await;
    db.schedule("work").await;
    let worker = db.worker("work").await;
    let task = worker.take().await;
    worker.client.batch_execute("begin").await.unwrap();
    assert_eq!(worker.succeed(&task).await, Answer::Accepted);
    worker.client.batch_execute("rollback").await.unwrap();
    assert_eq!(db.status(task.id).await, "claimed");
    assert_eq!(worker.succeed(&task).await, Answer::Accepted);
}

#[tokio::test]
async fn a_claim_without_an_answer_is_found_by_its_lease_and_given_back() {
    let db = Db::with_lambda("work").await;
    db.schedule_many("work", 3).await;
    let worker = db.worker("work").await;
    let lost = worker.claim(3).await;
    let leases: Vec<i64> =
        db.ask("select leases from tuskline.heartbeat($1)", &[&worker.executor]).await;
    assert_eq!(leases, [lost[0].fence]);
    let back: Vec<i64> =
        db.ask("select tuskline.release_lease($1, $2)", &[&worker.executor, &leases[0]]).await;
    assert_eq!(back.len(), 3);
    assert_eq!(db.one::<i64>("select count(*) from tuskline.lease").await, 0);
    assert!(worker.claim(3).await.iter().all(|task| (task.attempt, task.crashes) == (1, 0)));
}

#[tokio::test]
async fn a_store_consumer_that_dies_half_way_loses_no_task() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    let id = db.schedule_in("work", Duration::from_secs(1)).await;
    db.advance(Duration::from_secs(1)).await;
    let consumer = db.connect().await;
    consumer.batch_execute("begin; select tuskline.enqueue_due()").await.unwrap();
    let pid: i32 = consumer.query_one("select pg_backend_pid()", &[]).await.unwrap().get(0);
    drop(consumer);
    db.until(&format!("select not exists (select from pg_stat_activity where pid = {pid})")).await;
    assert_eq!((db.status(id).await.as_str(), db.timers().await), ("new", 1));
    assert_eq!((db.enqueue_due().await, db.queued().await), (1, 1));
}

#[tokio::test]
async fn what_a_worker_still_holds_at_its_orderly_end_is_rescued_at_once() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    let id = db.schedule("work").await;
    let worker = db.worker("work").await;
    worker.take().await;
    assert_eq!(db.rescue().await, (0, 0, 0));
    db.run(&format!("select tuskline.end_executor({})", worker.executor)).await;
    assert_eq!(db.rescue().await, (1, 1, 0));
    assert_eq!(db.status(id).await, "enqueued");
    assert!(!worker.heartbeat().await);
}

#[tokio::test]
async fn released_work_costs_neither_an_attempt_nor_a_crash() {
    let db = Db::with_lambda("work").await;
    db.schedule("work").await;
    let worker = db.worker("work").await;
    let first = worker.take().await;
    assert!(worker.release(&first).await);
    let second = worker.take().await;
    assert_eq!((second.id, second.attempt, second.crashes), (first.id, 1, 0));
    assert_eq!(worker.succeed(&first).await, Answer::Refused);
}

#[tokio::test]
async fn exchange_records_results_even_when_its_worker_may_claim_no_more() {
    let db = Db::with_lambda("work").await;
    let ids = db.schedule_many("work", 2).await;
    let worker = db.worker("work").await;
    let task = worker.take().await;
    db.run(&format!("select tuskline.end_executor({})", worker.executor)).await;
    let exchange = "select refused, alive, task_id from tuskline.exchange($1, array[$2]::bigint[], array[$3]::bigint[], null, array[$3]::bigint[], $4, '{0}', '{1}', '{1}')";
    let row = worker
        .client
        .query_one(exchange, &[&worker.executor, &task.id, &task.fence, &vec![worker.queues[2]]])
        .await
        .unwrap_or_else(|error| panic!("{}", refusal(&error)));
    assert!(row.get::<_, Vec<i64>>("refused").is_empty());
    assert!(!row.get::<_, bool>("alive"));
    assert_eq!(row.get::<_, Option<Vec<i64>>>("task_id"), None);
    assert_eq!(
        (db.status(ids[0]).await, db.status(ids[1]).await),
        ("success".into(), "enqueued".into())
    );
}
