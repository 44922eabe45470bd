//! Only sleeping controllers are notified. A busy system sends no notification, and an idle one
//! misses none.

use std::time::Duration;

use tokio_postgres::Client;

use crate::support::{Db, LEASE};

/// Watches these bells before a controller sleeps; returns the names in the answer.
async fn watch(session: &Client, bells: &[i32]) -> Vec<String> {
    session.query_one("select tuskline.watch($1)", &[&bells]).await.unwrap().get(0)
}

async fn unwatch(session: &Client, bells: &[i32]) {
    session.execute("select tuskline.unwatch($1)", &[&bells]).await.unwrap();
}

#[tokio::test]
async fn one_controller_holds_a_queue_and_the_remaining_ones_know() {
    let db = Db::with_lambda("work").await;
    let (one, two) = (db.connect().await, db.connect().await);
    assert_eq!(watch(&one, &[1, 2]).await, ["held", "held"]);
    assert_eq!(watch(&two, &[2, 3]).await, ["taken", "held"]);
    unwatch(&one, &[1, 2]).await;
    assert_eq!(watch(&two, &[1, 2]).await, ["held", "held"]);
}

#[tokio::test]
async fn a_controller_that_dies_leaves_its_queue_to_another() {
    let db = Db::with_lambda("work").await;
    let (one, two) = (db.connect().await, db.connect().await);
    assert_eq!(watch(&one, &[1]).await, ["held"]);
    drop(one);
    db.until("select count(*) = 0 from pg_locks where locktype = 'advisory' and database = (select oid from pg_database where datname = current_database())").await;
    assert_eq!(watch(&two, &[1]).await, ["held"]);
}

#[tokio::test]
async fn no_controller_falls_asleep_past_an_uncommitted_task() {
    let db = Db::with_lambda("work").await;
    let queue = db.queue("work", "normal").await;
    let (service, controller) = (db.connect().await, db.connect().await);
    for tasks in [1, 2] {
        let schedule = format!(
            "begin; insert into tuskline.task (lambda) select 'work' from generate_series(1, {tasks})"
        );
        service.batch_execute(&schedule).await.unwrap();
        assert_eq!(watch(&controller, &[queue]).await, ["busy"], "{tasks}");
        service.batch_execute("commit").await.unwrap();
        assert_eq!(watch(&controller, &[queue]).await, ["held"]);
        unwatch(&controller, &[queue]).await;
    }
}

#[tokio::test]
async fn a_task_for_a_sleeping_controller_notifies_its_queue_and_no_other() {
    let db = Db::with_lambda("work").await;
    let [normal, low] = [db.queue("work", "normal").await, db.queue("work", "low").await];
    let channels = [normal, low].map(|queue| format!("tuskline_bell_{queue}"));
    let mut ear = db.ear(&["tuskline_queue", &channels[0], &channels[1]]).await;
    assert_eq!(watch(&ear.client, &[normal, low]).await, ["held", "held"]);
    db.schedule("work").await;
    assert_eq!(ear.heard().await, [channels[0].clone()]);
    for rows in ["('work', 'low')", "('work', 'low'), ('work', 'low')"] {
        db.run(&format!("insert into tuskline.task (lambda, priority) values {rows}")).await;
        assert_eq!(ear.heard().await, [channels[1].clone()], "{rows}");
    }
}

#[tokio::test]
async fn a_busy_system_sends_no_notification() {
    let db = Db::with_lambda("work").await;
    let queues: Vec<i32> = db.all("select queue_id from tuskline.queue").await;
    let channels: Vec<_> = queues.iter().map(|queue| format!("tuskline_bell_{queue}")).collect();
    let mut listen: Vec<_> = channels.iter().map(String::as_str).collect();
    listen.extend(["tuskline_queue", "tuskline_timer"]);
    let mut ear = db.ear(&listen).await;
    db.schedule_many("work", 9).await;
    db.schedule("work").await;
    db.run("insert into tuskline.task (lambda) values ('work')").await;
    db.schedule_in("work", Duration::from_millis(10)).await;
    let worker = db.worker("work").await;
    let tasks = worker.claim(11).await;
    worker.release(&tasks[0]).await;
    worker.fail(&tasks[1]).await;
    worker.succeed_all(&tasks[2..]).await;
    assert!(ear.heard().await.is_empty());
}

#[tokio::test]
async fn a_statement_for_more_than_sixteen_queues_sends_one_general_notification() {
    let db = Db::new().await;
    for number in 0..5 {
        db.define(&format!("work_{number}")).await;
    }
    let mut ear = db.ear(&["tuskline_queue", "tuskline_bell_1", "tuskline_bell_2"]).await;
    let spread = |queues: i32| {
        format!(
            "insert into tuskline.task (lambda, priority)
             select lambda, priority from tuskline.queue where queue_id <= {queues}"
        )
    };
    db.run(&spread(17)).await;
    assert_eq!(ear.heard().await, ["tuskline_queue"]);
    let locks =
        "select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()";
    db.run("begin").await;
    db.run(&spread(17)).await;
    assert_eq!(db.one::<i64>(locks).await, 0);
    db.run("rollback; begin").await;
    db.run(&spread(16)).await;
    assert_eq!(db.one::<i64>(locks).await, 16);
    db.run("commit").await;
    assert!(ear.heard().await.is_empty());
}

#[tokio::test]
async fn every_road_into_a_queue_wakes_its_controller() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    let queue = db.queue("work", "normal").await;
    let channel = format!("tuskline_bell_{queue}");
    let mut ear = db.ear(&[&channel]).await;
    let worker = db.worker("work").await;
    db.schedule_many("work", 2).await;
    let [given_back, rescued] = worker.claim(2).await.try_into().unwrap();
    db.schedule_in("work", LEASE).await;
    assert_eq!(watch(&ear.client, &[queue]).await, ["held"]);
    assert!(worker.release(&given_back).await);
    assert_eq!(ear.heard().await, [channel.as_str()], "release");
    db.advance(LEASE).await;
    assert_eq!(db.enqueue_due().await, 1);
    assert_eq!(ear.heard().await, [channel.as_str()], "enqueue_due");
    assert_eq!(db.rescue().await.1, 1);
    assert_eq!(ear.heard().await, [channel.as_str()], "rescue");
    assert_eq!(db.status(rescued.id).await, "enqueued");
    db.run("select tuskline.schedule_many(array['work', 'work'], p_delays => array[null, interval '1 s'])").await;
    assert_eq!(ear.heard().await, [channel.as_str()], "a batch of which one task is due later");
}

#[tokio::test]
async fn a_timer_due_within_a_second_wakes_a_sleeping_store_consumer() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    let worker = db.worker("work").await;
    let mut ear = db.ear(&["tuskline_timer"]).await;
    assert_eq!(watch(&ear.client, &[0]).await, ["held"]);
    db.schedule_in("work", Duration::from_secs(1)).await;
    assert!(ear.heard().await.is_empty(), "it looks again within a second anyway");
    db.schedule_in("work", Duration::from_millis(999)).await;
    assert_eq!(ear.heard().await, ["tuskline_timer"]);
    let batch = |ms: i32| {
        format!(
            "select tuskline.schedule_many(array['work', 'work', 'work'],
               p_delays => array[interval '1 h', '{ms} ms', null])"
        )
    };
    db.run(&batch(1000)).await;
    assert!(ear.heard().await.is_empty(), "it looks again within a second anyway");
    db.run(&batch(999)).await;
    assert_eq!(ear.heard().await, ["tuskline_timer"], "a batch");
    db.run("delete from tuskline.queued; delete from tuskline.task").await;
    db.schedule("work").await;
    let soon = r#""status": "retriable_failure", "after_ms": 100"#;
    worker.note(&worker.take().await, soon).await;
    assert_eq!(ear.heard().await, ["tuskline_timer"], "a retry");
    db.run("select tuskline.alter_lambda('work', p_direct => false)").await;
    db.schedule("work").await;
    assert_eq!(ear.heard().await, ["tuskline_timer"], "a lambda that is not direct");
}

#[tokio::test]
async fn every_timer_of_another_task_wakes_a_sleeping_store_consumer() {
    let db = Db::new().await;
    db.pin().await;
    for lambda in ["few", "paced", "ordered", "paused"] {
        db.define(lambda).await;
    }
    let sleeper = async || {
        let mut ear = db.ear(&["tuskline_timer"]).await;
        assert_eq!(watch(&ear.client, &[0]).await, ["held"]);
        ear.heard().await;
        ear
    };
    db.run("select tuskline.set_limit('paced', p_per_second => 5, p_burst => 1)").await;
    db.schedule_many("paced", 2).await;
    let mut ear = sleeper().await;
    db.enqueue_due().await;
    assert_eq!(ear.heard().await, ["tuskline_timer"], "the next turn under a rate");
    drop(ear);

    let limit: i64 = db.one("select tuskline.set_limit('few', 1)").await;
    db.schedule_many("few", 2).await;
    let other = db.connect().await;
    let giving = format!(
        "begin; select from tuskline.task_limit where limit_id = {limit} for no key update"
    );
    other.batch_execute(&giving).await.unwrap();
    let mut ear = sleeper().await;
    db.enqueue_due().await;
    assert_eq!(ear.heard().await, ["tuskline_timer"], "another worker grants permits");
    drop(ear);
    other.batch_execute("commit").await.unwrap();
    db.advance(Duration::from_secs(1)).await;
    db.enqueue_due().await;
    db.run("select tuskline.gate('paused', 'pause', p_reason => 'to be asked about')").await;
    let worker = db.worker("few").await;
    worker.succeed(&worker.take().await).await;
    worker.take().await; // the permit was granted at once, with or without the other gate

    db.run("select tuskline.set_order('ordered', 'block')").await;
    for _ in 0..2 {
        db.run("select tuskline.schedule('ordered', p_ordering_key => 'a')").await;
    }
    db.enqueue_due().await;
    let worker = db.worker("ordered").await;
    worker.fail_for_good(&worker.take().await).await;
    let mut ear = sleeper().await;
    db.run("select tuskline.unblock('ordered', 'a')").await;
    assert_eq!(ear.heard().await, ["tuskline_timer"], "an order that goes on");
}

#[tokio::test]
async fn a_kept_task_that_is_cancelled_wakes_a_sleeping_store_consumer_for_its_children() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    db.run("select tuskline.roll_segments()").await;
    let parent = db.schedule_in("work", LEASE * 10_000).await;
    let chain =
        format!(r#"[{{"lambda": "work", "after": [{{"task": {parent}, "on": "always"}}]}}]"#);
    db.run(&format!("select tuskline.schedule_chain('{chain}')")).await;
    db.enqueue_due().await;
    let range = format!("tuskline_core.segment_of({parent})");
    db.run(&format!("select tuskline.keep_remaining({range})")).await;
    let kept = "select count(*) from tuskline.task_kept where id = $1";
    assert_eq!(db.ask::<i64>(kept, &[&parent]).await, 1);
    let mut ear = db.ear(&["tuskline_timer"]).await;
    assert_eq!(watch(&ear.client, &[0]).await, ["held"]);
    assert_eq!(db.cancel(parent).await, "cancelled");
    assert_eq!(ear.heard().await, ["tuskline_timer"]);
}

async fn peek(session: &Client, queues: &[i32], marks: &[i64]) -> Vec<bool> {
    session.query_one("select tuskline.peek($1, $2)", &[&queues, &marks]).await.unwrap().get(0)
}

#[tokio::test]
async fn a_peek_tells_which_queues_hold_a_task_above_the_mark_and_takes_none() {
    let db = Db::with_lambda("work").await;
    let session = db.connect().await;
    let [normal, low] = [db.queue("work", "normal").await, db.queue("work", "low").await];
    assert_eq!(peek(&session, &[], &[]).await, Vec::<bool>::new());
    assert_eq!(peek(&session, &[low, normal], &[0, 0]).await, [false, false]);
    db.schedule("work").await;
    for _ in 0..2 {
        assert_eq!(peek(&session, &[low, normal], &[0, 0]).await, [false, true]);
    }
    let seq: i64 = db.one("select seq from tuskline.queued").await;
    assert_eq!(peek(&session, &[normal], &[seq - 1]).await, [true]);
    assert_eq!(peek(&session, &[normal], &[seq]).await, [false]);
    let holder = db.connect().await;
    holder.batch_execute("begin; select from tuskline.queued for update").await.unwrap();
    assert_eq!(peek(&session, &[normal], &[0]).await, [true], "the worker that takes it may fail");
}

#[tokio::test]
async fn every_queue_is_worth_a_claim_until_the_queues_are_rebuilt() {
    let db = Db::with_lambda("work").await;
    let session = db.connect().await;
    db.run("delete from tuskline_core.queues_complete").await;
    assert_eq!(peek(&session, &[1, 2, 3], &[0, 0, 0]).await, [true; 3]);
    db.run("select tuskline.rebuild_queues()").await;
    assert_eq!(peek(&session, &[1, 2, 3], &[0, 0, 0]).await, [false; 3]);
}
