//! Tasks of one ordering key run one at a time, in the order of acceptance. A failure stops at most
//! its own key.

use std::time::Duration;

use crate::support::{Db, ScriptedWorker};

async fn ordered(policy: &str) -> (Db, ScriptedWorker) {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    db.run(&format!("select tuskline.set_order('work', '{policy}')")).await;
    let worker = db.worker("work").await;
    (db, worker)
}

async fn of_key(db: &Db, key: &str) -> i64 {
    db.ask("select tuskline.schedule('work', p_ordering_key => $1)", &[&key]).await
}

/// Lets the store consumer run once, then claims: the ids that the worker gets.
async fn next(db: &Db, worker: &ScriptedWorker) -> Vec<i64> {
    db.enqueue_due().await;
    worker.claim(100).await.iter().map(|task| task.id).collect()
}

#[tokio::test]
async fn tasks_of_one_key_run_one_at_a_time_and_in_order() {
    let (db, worker) = ordered("block").await;
    let mut ids = vec![of_key(&db, "a").await, of_key(&db, "a").await];
    let other = of_key(&db, "b").await;
    db.enqueue_due().await;
    let mut held = worker.claim(100).await;
    assert_eq!(held.iter().map(|task| task.id).collect::<Vec<_>>(), [ids[0], other]);
    ids.push(of_key(&db, "a").await); // it comes due while the first one runs
    for expected in &ids[1..] {
        assert!(next(&db, &worker).await.is_empty(), "one at a time");
        worker.succeed(&held[0]).await;
        db.enqueue_due().await;
        held = worker.claim(100).await;
        assert_eq!(held[0].id, *expected);
    }
    worker.succeed(&held[0]).await;
    assert_eq!(db.one::<i64>("select count(*) from tuskline.permit").await, 1, "that of b");
    assert_eq!(db.one::<i64>("select count(*) from tuskline.wait_list").await, 0);
}

#[tokio::test]
async fn the_first_to_commit_is_first_and_may_have_the_higher_id() {
    let (db, worker) = ordered("block").await;
    let slow = db.connect().await;
    slow.batch_execute("begin; select tuskline.schedule('work', p_ordering_key => 'a')")
        .await
        .unwrap();
    let second = of_key(&db, "a").await;
    assert_eq!(next(&db, &worker).await, [second]);
    slow.batch_execute("commit").await.unwrap();
    assert!(next(&db, &worker).await.is_empty(), "it waits for the second");
}

#[tokio::test]
async fn a_retry_keeps_its_place() {
    let (db, worker) = ordered("block").await;
    let first = of_key(&db, "a").await;
    of_key(&db, "a").await;
    db.enqueue_due().await;
    worker.fail(&worker.take().await).await;
    assert!(next(&db, &worker).await.is_empty());
    db.advance(Duration::from_secs(2)).await;
    assert_eq!(next(&db, &worker).await, [first]);
}

#[tokio::test]
async fn a_failure_blocks_its_key_until_it_is_unblocked() {
    let (db, worker) = ordered("block").await;
    let (failed, next_one) = (of_key(&db, "a").await, of_key(&db, "a").await);
    let other = of_key(&db, "b").await;
    db.enqueue_due().await;
    let held = worker.claim(100).await;
    worker.fail_for_good(&held[0]).await;
    assert!(next(&db, &worker).await.is_empty());
    let blocked = db
        .lines("select lambda, ordering_key, task_id, status, waiting from tuskline.blocked_keys")
        .await;
    assert_eq!(blocked, [format!("work | a | {failed} | fatal_failure | 1")]);
    let said =
        db.lines(&format!("select reason, detail, remedy from tuskline.explain({next_one})")).await;
    assert_eq!(
        said,
        [format!(
            "ordered | task {failed} of key 'a' has failed and blocks it; 0 ahead | select tuskline.unblock('work', 'a')"
        )]
    );
    assert!(db.one::<bool>("select tuskline.unblock('work', 'a')").await);
    assert!(
        !db.one::<bool>("select tuskline.unblock('work', 'a')").await,
        "it is not blocked any more"
    );
    assert!(!db.one::<bool>("select tuskline.unblock('work', 'b')").await, "its task is at work");
    db.advance(Duration::from_secs(1)).await;
    assert_eq!(next(&db, &worker).await, [next_one]);
    worker.succeed(&held[1]).await;
    assert_eq!(db.status(other).await, "success");
}

#[tokio::test]
async fn an_unblock_in_a_transaction_that_stays_open_holds_up_no_session() {
    let (db, worker) = ordered("block").await;
    db.run("select tuskline.set_limit('work', 9)").await;
    of_key(&db, "a").await;
    let waits = of_key(&db, "a").await;
    db.enqueue_due().await;
    worker.fail_for_good(&worker.take().await).await;
    let owner = db.connect().await;
    owner.batch_execute("begin; select tuskline.unblock('work', 'a')").await.unwrap();
    let locks = "select from tuskline.task where id = $1 for update nowait";
    db.client.query(locks, &[&waits]).await.unwrap();
    let limit = "select count(*) from tuskline.permit s join tuskline.task_limit r using (limit_id) where r.kind <> 'order'";
    let held: i64 = owner.query_one(limit, &[]).await.unwrap().get(0);
    assert_eq!(held, 0, "nor has it a place elsewhere");
    owner.batch_execute("commit").await.unwrap();
    db.advance(Duration::from_secs(1)).await;
    assert_eq!(next(&db, &worker).await, [waits]);
}

#[tokio::test]
async fn with_skip_the_next_one_goes_on() {
    let (db, worker) = ordered("skip").await;
    of_key(&db, "a").await;
    let second = of_key(&db, "a").await;
    db.enqueue_due().await;
    worker.fail_for_good(&worker.take().await).await;
    assert_eq!(next(&db, &worker).await, [second]);
}

#[tokio::test]
async fn with_dead_all_that_wait_for_the_key_end_and_say_why() {
    let (db, worker) = ordered("dead").await;
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(of_key(&db, "a").await);
    }
    db.enqueue_due().await;
    worker.fail_for_good(&worker.take().await).await;
    assert_eq!((db.count("fatal_failure").await, db.count("dead").await), (1, 2));
    let said =
        db.lines("select message from tuskline.task_failure where error_class = 'order'").await;
    assert_eq!(said[0], format!("task {} before it, of the same ordering key, has failed", ids[0]));
    let later = of_key(&db, "a").await;
    assert_eq!(next(&db, &worker).await, [later], "the key is free for what comes later");
}

#[tokio::test]
async fn a_cancelled_task_leaves_the_line_and_gives_its_place_back() {
    let (db, worker) = ordered("block").await;
    let (first, second, third) =
        (of_key(&db, "a").await, of_key(&db, "a").await, of_key(&db, "a").await);
    db.enqueue_due().await;
    assert_eq!(db.cancel(second).await, "cancelled");
    assert_eq!(db.all::<i64>("select task_id from tuskline.wait_list").await, [third]);
    assert_eq!(db.cancel(first).await, "cancelled", "it is enqueued and holds the place");
    assert_eq!(next(&db, &worker).await, [third]);
}

#[tokio::test]
async fn the_tasks_of_a_dead_worker_keep_their_places() {
    let (db, worker) = ordered("block").await;
    let first = of_key(&db, "a").await;
    of_key(&db, "a").await;
    assert_eq!(next(&db, &worker).await, [first]);
    db.advance(crate::support::LEASE).await;
    assert_eq!(db.rescue().await, (1, 1, 0));
    let other = db.worker("work").await;
    assert_eq!(next(&db, &other).await, [first]);
}

#[tokio::test]
async fn a_place_given_back_while_another_joins_the_line_is_not_lost() {
    let (db, worker) = ordered("block").await;
    of_key(&db, "a").await;
    db.enqueue_due().await;
    let held = worker.take().await;
    worker.client.batch_execute("begin").await.unwrap();
    worker.succeed(&held).await; // finds the wait list empty
    let next_one = of_key(&db, "a").await;
    assert_eq!(db.enqueue_due().await, 1, "it finds the place taken, and just being given back");
    worker.client.batch_execute("commit").await.unwrap();
    db.advance(Duration::from_millis(20)).await;
    assert_eq!(next(&db, &worker).await, [next_one]);
}

#[tokio::test]
async fn a_key_needs_a_lambda_that_keeps_an_order() {
    let db = Db::with_lambda("work").await;
    let said = db.refused("select tuskline.schedule('work', p_ordering_key => 'a')").await;
    assert_eq!(
        said,
        "TK019: TK019 invalid_key: lambda work keeps no order and takes no ordering_key \
         [select tuskline.set_order('work')]"
    );
}

#[tokio::test]
async fn keys_that_no_task_uses_any_more_leave_nothing_behind() {
    let (db, worker) = ordered("block").await;
    db.run(
        "select tuskline.schedule_many(array_fill('work'::text, array[2000]), \
         p_ordering_keys => array(select 'key ' || i from generate_series(1, 2000) i))",
    )
    .await;
    let mut done = 0;
    while done < 2_000 {
        db.enqueue_due().await;
        let held = worker.claim(1_000).await;
        done += held.len();
        assert!(worker.succeed_all(&held).await.is_empty());
    }
    for table in ["permit", "wait_list", "timer"] {
        assert_eq!(db.one::<i64>(&format!("select count(*) from tuskline.{table}")).await, 0);
    }
}
