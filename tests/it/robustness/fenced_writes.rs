//! Writes of lambda code in its own transaction commit only while its attempt holds the task.

use std::time::Duration;

use tokio_postgres::Client;

use crate::support::{Answer, Db, LEASE, ScriptedWorker, Task, refusal};

/// A database with a lambda, and a table of the user's own that no constraint protects.
async fn with_bookings() -> Db {
    let db = Db::with_lambda("work").await;
    db.run("create table booking (by_fence bigint)").await;
    db.pin().await;
    db
}

/// The fences of the attempts that wrote in the user's table.
async fn bookings(db: &Db) -> Vec<i64> {
    db.all("select by_fence from booking order by 1").await
}

/// Begins a transaction of lambda code and writes in it.
async fn write(session: &Client, task: &Task) {
    session.batch_execute("begin").await.unwrap();
    session.execute("insert into booking values ($1)", &[&task.fence]).await.unwrap();
}

/// The answer of a verb on a session: nothing, or its refusal.
async fn ask(session: &Client, verb: &str, task: &Task) -> Result<(), String> {
    let sql = format!("select tuskline.{verb}({}, {})", task.id, task.fence);
    session.batch_execute(&sql).await.map_err(|error| refusal(&error))
}

/// A worker, and a task that it held until its lease ended and rescue put it back.
async fn overslept(db: &Db) -> (ScriptedWorker, Task) {
    db.schedule("work").await;
    let slow = db.worker("work").await;
    let old = slow.take().await;
    db.advance(LEASE).await;
    assert_eq!(db.rescue().await, (1, 1, 0));
    (slow, old)
}

#[tokio::test]
async fn a_zombies_write_rolls_back() {
    let db = with_bookings().await;
    let (slow, old) = overslept(&db).await;
    let fast = db.worker("work").await;
    let new = fast.take().await;
    write(&fast.client, &new).await;
    ask(&fast.client, "complete", &new).await.unwrap();
    fast.client.batch_execute("commit").await.unwrap();
    write(&slow.client, &old).await;
    let refused = ask(&slow.client, "assert_current", &old).await.unwrap_err();
    let expected = format!(
        "TK014: TK014 not_current: task {} is not held under fence {} any more [roll back: the attempt is over, another may be at work]",
        old.id, old.fence
    );
    assert_eq!(refused, expected);
    // A caller that does not listen cannot commit either.
    slow.client.batch_execute("commit").await.unwrap();
    assert_eq!(bookings(&db).await, [new.fence]);
    assert_eq!(db.status(new.id).await, "success");
}

#[tokio::test]
async fn an_attempt_is_over_when_another_has_begun() {
    let db = with_bookings().await;
    let (slow, old) = overslept(&db).await;
    let fast = db.worker("work").await;
    let new = fast.take().await;
    assert!(!slow.assert_current(&old).await);
    assert!(!slow.complete(&old).await);
    assert!(fast.assert_current(&new).await);
    assert!(fast.start(&new).await);
    assert!(fast.assert_current(&new).await);
}

#[tokio::test]
async fn an_attempt_is_over_when_its_task_waits_for_another() {
    let db = with_bookings().await;
    let (slow, old) = overslept(&db).await;
    assert_eq!(db.status(old.id).await, "enqueued");
    assert!(!slow.assert_current(&old).await);
    assert!(!slow.complete(&old).await);
    assert_eq!(db.status(old.id).await, "enqueued");
}

#[tokio::test]
async fn an_attempt_that_writes_is_not_taken_away() {
    let db = with_bookings().await;
    db.schedule("work").await;
    let slow = db.worker("work").await;
    let task = slow.take().await;
    write(&slow.client, &task).await;
    ask(&slow.client, "assert_current", &task).await.unwrap();
    db.advance(LEASE).await;
    assert_eq!(db.rescue().await, (1, 0, 0), "it steps around");
    let fast = db.worker("work").await;
    assert_eq!(fast.claim(1).await, [], "no worker executes it meanwhile");
    ask(&slow.client, "complete", &task).await.unwrap();
    slow.client.batch_execute("commit").await.unwrap();
    assert_eq!((bookings(&db).await, db.status(task.id).await.as_str()), (vec![1], "success"));
    assert_eq!((db.rescue().await, fast.claim(1).await), ((1, 0, 0), vec![]));
    assert_eq!(db.one::<i64>("select count(*) from tuskline.lease").await, 0);
}

#[tokio::test]
async fn rescue_comes_back_for_an_attempt_whose_transaction_was_rolled_back() {
    let db = with_bookings().await;
    db.schedule("work").await;
    let slow = db.worker("work").await;
    let task = slow.take().await;
    write(&slow.client, &task).await;
    ask(&slow.client, "complete", &task).await.unwrap();
    db.advance(LEASE).await;
    assert_eq!(db.rescue().await, (1, 0, 0));
    slow.client.batch_execute("rollback").await.unwrap();
    assert_eq!(db.rescue().await, (1, 1, 0));
    assert_eq!(db.worker("work").await.take().await.id, task.id);
    assert_eq!(bookings(&db).await, [0; 0]);
}

#[tokio::test]
async fn a_transaction_with_an_old_view_of_the_world_is_not_trusted() {
    let db = with_bookings().await;
    db.schedule("work").await;
    let slow = db.worker("work").await;
    let old = slow.take().await;
    slow.client.batch_execute("begin isolation level repeatable read").await.unwrap();
    slow.client.query("select * from booking", &[]).await.unwrap();
    db.advance(LEASE).await;
    assert_eq!(db.rescue().await, (1, 1, 0));
    let refused = ask(&slow.client, "assert_current", &old).await.unwrap_err();
    assert!(refused.starts_with("40001"), "{refused}");
}

#[tokio::test]
async fn one_attempt_may_write_in_two_transactions_at_once() {
    let db = with_bookings().await;
    db.schedule("work").await;
    let worker = db.worker("work").await;
    let task = worker.take().await;
    let (one, two) = (db.connect().await, db.connect().await);
    for session in [&one, &two] {
        write(session, &task).await;
        ask(session, "assert_current", &task).await.unwrap();
    }
    one.batch_execute("commit").await.unwrap();
    two.batch_execute("commit").await.unwrap();
    assert_eq!(bookings(&db).await.len(), 2);
}

#[tokio::test]
async fn success_is_recorded_with_the_writes_and_the_workers_result_says_it_again() {
    let db = with_bookings().await;
    db.schedule_many("work", 2).await;
    let worker = db.worker("work").await;
    let [plain, with_output] = worker.claim(2).await.try_into().unwrap();
    for (task, output) in [(&plain, "null"), (&with_output, r#"'{"seat": 7}'"#)] {
        write(&worker.client, task).await;
        let complete = format!("select tuskline.complete({}, {}, {output})", task.id, task.fence);
        worker.client.batch_execute(&complete).await.unwrap();
        assert_eq!(db.status(task.id).await, "claimed", "no session sees it before it commits");
        worker.client.batch_execute("commit").await.unwrap();
        assert_eq!(db.status(task.id).await, "success");
        assert_eq!(worker.succeed(task).await, Answer::Accepted);
        assert_eq!(worker.succeed_with(task, "8").await, Answer::Accepted);
        assert_eq!(worker.fail(task).await, Answer::Refused);
        assert_eq!(worker.fail_for_good(task).await, Answer::Refused);
    }
    let outputs: Vec<String> = db.all("select output::text from tuskline.task_output").await;
    assert_eq!(outputs, [r#"{"seat": 7}"#], "the first word stands");
}

#[tokio::test]
async fn after_a_rollback_the_workers_result_decides() {
    let db = with_bookings().await;
    db.schedule_many("work", 3).await;
    let worker = db.worker("work").await;
    let tasks: [Task; 3] = worker.claim(3).await.try_into().unwrap();
    for task in &tasks {
        write(&worker.client, task).await;
        ask(&worker.client, "complete", task).await.unwrap();
        worker.client.batch_execute("rollback").await.unwrap();
        assert_eq!(db.status(task.id).await, "claimed");
    }
    let [retried, failed, done] = &tasks;
    assert_eq!(worker.fail(retried).await, Answer::Accepted);
    assert_eq!(worker.fail_for_good(failed).await, Answer::Accepted);
    assert_eq!(worker.succeed(done).await, Answer::Accepted);
    let statuses: Vec<String> = db.all("select status::text from tuskline.task order by id").await;
    assert_eq!(statuses, ["retriable_failure", "fatal_failure", "success"]);
    assert_eq!(bookings(&db).await, [0; 0]);
}

#[tokio::test]
async fn the_writes_of_one_attempt_commit_once_though_it_completes_twice() {
    let db = with_bookings().await;
    db.schedule("work").await;
    let worker = db.worker("work").await;
    let task = worker.take().await;
    for committed in [true, false] {
        // The repetition imitates a first commit without an answer.
        write(&worker.client, &task).await;
        assert_eq!(ask(&worker.client, "complete", &task).await.is_ok(), committed);
        worker.client.batch_execute("commit").await.unwrap();
    }
    assert_eq!(bookings(&db).await.len(), 1);
}

/// Opens a transaction that sees the store as it is now, until it ends.
async fn freeze(session: &Client) {
    session.batch_execute("begin isolation level repeatable read").await.unwrap();
    session.query("select * from booking", &[]).await.unwrap();
}

/// Schedules a task of `lambda` after another.
async fn schedule_after(db: &Db, parent: i64, lambda: &str) -> i64 {
    let chain = format!(r#"[{{"lambda": "{lambda}", "after": [{parent}]}}]"#);
    db.one(&format!("select ids[1] from tuskline.schedule_chain('{chain}')")).await
}

/// Lets the store consumer finish, then claims: the ids that the worker gets.
async fn next(db: &Db, worker: &ScriptedWorker) -> Vec<i64> {
    for _ in 0..3 {
        db.enqueue_due().await;
    }
    worker.claim(100).await.iter().map(|task| task.id).collect()
}

#[tokio::test]
async fn a_child_that_the_snapshot_of_its_parents_end_does_not_show_goes_on() {
    let db = with_bookings().await;
    let parent = db.schedule("work").await;
    let worker = db.worker("work").await;
    let task = worker.take().await;
    // The snapshot does not even show that chains exist.
    freeze(&worker.client).await;
    let child = schedule_after(&db, parent, "work").await;
    let other = db.worker("work").await;
    assert_eq!(next(&db, &other).await, [0; 0], "it watches its parent now");
    ask(&worker.client, "complete", &task).await.unwrap();
    worker.client.batch_execute("commit").await.unwrap();
    assert_eq!(next(&db, &worker).await, [child]);
    assert_eq!(db.timers().await, 0);
}

#[tokio::test]
async fn a_child_that_began_to_watch_a_parent_after_the_snapshot_of_its_end_goes_on() {
    let db = with_bookings().await;
    let worker = db.worker("work").await;
    let other = db.worker("work").await;
    let parents = db.schedule_many("work", 2).await;
    let tasks = [worker.take().await, other.take().await];
    let chain = format!(r#"[{{"lambda": "work", "after": [{}, {}]}}]"#, parents[0], parents[1]);
    let child: i64 =
        db.one(&format!("select ids[1] from tuskline.schedule_chain('{chain}')")).await;
    freeze(&worker.client).await;
    other.succeed(&tasks[1]).await;
    assert_eq!(next(&db, &other).await, [0; 0], "it watches the first one now");
    ask(&worker.client, "complete", &tasks[0]).await.unwrap();
    worker.client.batch_execute("commit").await.unwrap();
    assert_eq!(next(&db, &other).await, [child]);
}

#[tokio::test]
async fn a_task_that_joined_a_wait_list_after_the_snapshot_of_an_end_gets_the_permit() {
    let db = with_bookings().await;
    db.run("select tuskline.set_limit('work', 1)").await;
    db.schedule("work").await;
    let worker = db.worker("work").await;
    while db.enqueue_due().await > 0 {}
    let task = worker.take().await;
    freeze(&worker.client).await;
    let waits = db.schedule("work").await;
    let other = db.worker("work").await;
    assert_eq!(next(&db, &other).await, [0; 0]);
    ask(&worker.client, "complete", &task).await.unwrap();
    worker.client.batch_execute("commit").await.unwrap();
    assert_eq!(next(&db, &other).await, [waits]);
    let slots: Vec<i64> = db.all("select task_id from tuskline.permit").await;
    assert_eq!(slots, [waits]);
}

#[tokio::test]
async fn an_open_end_stops_no_lambda_of_those_that_wait_for_it() {
    for verb in ["complete", "cancel"] {
        let db = with_bookings().await;
        db.define("limited").await;
        db.run("select tuskline.set_limit('limited', 100)").await;
        let parent = db.schedule("work").await;
        let child = schedule_after(&db, parent, "limited").await;
        let (open, worker, limited) =
            (db.connect().await, db.worker("work").await, db.worker("limited").await);
        open.batch_execute("begin").await.unwrap();
        let mut goes_on = Vec::new();
        if verb == "complete" {
            ask(&open, verb, &worker.take().await).await.unwrap();
            goes_on.push(child);
        } else {
            open.query("select tuskline.cancel($1)", &[&parent]).await.unwrap();
        }
        let fresh = db.schedule("limited").await;
        assert_eq!(next(&db, &limited).await, [fresh], "{verb} is open");
        open.batch_execute("commit").await.unwrap();
        assert_eq!(next(&db, &limited).await, goes_on, "{verb} is committed");
        assert!(["enqueued", "claimed", "cancelled"].contains(&db.status(child).await.as_str()));
    }
}

#[tokio::test]
async fn an_open_cancel_of_a_task_with_a_permit_stops_no_second_limit() {
    let db = with_bookings().await;
    db.run("select tuskline.set_order('work')").await;
    db.run("select tuskline.set_limit('work', 100)").await;
    let keyed = "select tuskline.schedule('work', p_ordering_key => 'x')";
    let (first, second): (i64, i64) = (db.one(keyed).await, db.one(keyed).await);
    while db.enqueue_due().await > 0 {}
    let (open, worker) = (db.connect().await, db.worker("work").await);
    open.batch_execute(&format!("begin; select tuskline.cancel({first})")).await.unwrap();
    let free = db.schedule("work").await;
    assert_eq!(next(&db, &worker).await, [free]);
    open.batch_execute("commit").await.unwrap();
    assert_eq!(next(&db, &worker).await, [second]);
}

#[tokio::test]
async fn a_locked_permit_is_released_later_and_stops_no_timer() {
    let db = with_bookings().await;
    db.define("other").await;
    db.run("select tuskline.set_limit('work', 1)").await;
    db.schedule_many("work", 2).await;
    let (worker, others) = (db.worker("work").await, db.worker("other").await);
    db.enqueue_due().await;
    ask(&worker.client, "complete", &worker.take().await).await.unwrap();
    let due = db.schedule_in("other", Duration::from_secs(1)).await;
    let open = db.connect().await;
    open.batch_execute("begin; select from tuskline.permit for update").await.unwrap();
    db.advance(Duration::from_secs(1)).await;
    assert_eq!(next(&db, &others).await, [due]);
    open.batch_execute("commit").await.unwrap();
    db.advance(Duration::from_secs(1)).await;
    assert_eq!(next(&db, &worker).await.len(), 1);
}
