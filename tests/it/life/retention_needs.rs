//! A task that another task or operation needs outlives its retention. No open transaction loses
//! tasks that it could not see.

use std::time::Duration;

use super::retention_by_status::retire;
use crate::support::{Answer, Db, ScriptedWorker, ids_and_fences};

const DAY: Duration = Duration::from_secs(86_400);

async fn with_worker() -> (Db, ScriptedWorker) {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    db.run("select tuskline.roll_segments()").await;
    let worker = db.worker("work").await;
    (db, worker)
}

/// Waits until the segment is full, and all retentions except that of dead tasks are over.
async fn a_week_later(db: &Db) {
    db.advance(DAY).await;
    db.run("select tuskline.roll_segments()").await;
    db.advance(DAY * 7).await;
    assert_eq!(
        db.all::<i64>("select * from tuskline.segments_to_retire()").await,
        [db.first_segment()]
    );
}

async fn chain(db: &Db, tasks: &str) -> Vec<i64> {
    db.one(&format!("select ids from tuskline.schedule_chain('{tasks}')")).await
}

/// Makes a success with an output, and a task that waits for it and for another that does not end.
async fn child_of(db: &Db, worker: &ScriptedWorker) -> (i64, i64) {
    let parent = db.schedule("work").await;
    let child = chain(
        db,
        &format!(
            r#"[{{"lambda": "work", "name": "child", "after": [{parent}, "long"]}},
            {{"lambda": "work", "name": "long", "delay_ms": 6048000000}}]"#
        ),
    )
    .await[0];
    worker.succeed_with(&worker.take().await, "[1]").await;
    (parent, child)
}

#[tokio::test]
async fn a_task_for_which_another_waits_outlives_its_segment_with_its_output() {
    let (db, worker) = with_worker().await;
    let (parent, child) = child_of(&db, &worker).await;
    a_week_later(&db).await;
    assert_eq!(retire(&db).await, 1);
    db.run("select tuskline.purge_kept()").await;
    let parents = db
        .lines(&format!("select status, output from tuskline.parents({child}) order by id limit 1"))
        .await;
    assert_eq!(parents, ["success | [1]"]);
    db.advance(DAY * 63).await;
    db.enqueue_due().await;
    worker.succeed(&worker.take().await).await;
    let task = worker.take().await;
    assert_eq!(task.id, child, "it was not taken for one whose parent had failed");
    db.run("select tuskline.purge_kept()").await;
    assert_eq!(db.status(parent).await, "success", "the child has not ended");
    worker.succeed(&task).await;
    db.run("select tuskline.purge_kept()").await;
    let left: i64 = db.ask("select count(*) from tuskline.tasks where id = $1", &[&parent]).await;
    assert_eq!(left, 0);
}

#[tokio::test]
async fn a_success_is_noted_when_a_chain_is_scheduled_behind_it() {
    let (db, worker) = with_worker().await;
    let parent = db.schedule("work").await;
    worker.succeed(&worker.take().await).await;
    let ids = chain(
        &db,
        &format!(r#"[{{"lambda": "work", "name": "then", "after": [{parent}]}},
            {{"lambda": "work", "name": "else", "after": [{{"task": {parent}, "on": "failure"}}]}}]"#),
    )
    .await;
    // A statement deletes the parent before the store consumer checks the dependents.
    db.run(&format!("delete from tuskline.task where id = {parent}")).await;
    db.enqueue_due().await;
    assert_eq!(worker.take().await.id, ids[0]);
    assert_eq!(db.status(ids[1]).await, "cancelled");
}

#[tokio::test]
async fn a_failure_that_blocks_its_key_stays_until_it_is_unblocked() {
    let (db, worker) = with_worker().await;
    db.run("select tuskline.set_order('work', 'block')").await;
    let of_key =
        async || db.one::<i64>("select tuskline.schedule('work', p_ordering_key => 'a')").await;
    let (first, second) = (of_key().await, of_key().await);
    db.enqueue_due().await;
    worker.fail_for_good(&worker.take().await).await;
    db.advance(DAY * 30).await;
    a_week_later(&db).await;
    assert_eq!(retire(&db).await, 2);
    db.run("select tuskline.purge_kept()").await;
    let blocked =
        db.lines("select ordering_key, task_id, waiting from tuskline.blocked_keys").await;
    assert_eq!(blocked, [format!("a | {first} | 1")]);
    assert!(db.one::<bool>("select tuskline.unblock('work', 'a')").await);
    db.advance(Duration::from_secs(1)).await;
    db.enqueue_due().await;
    assert_eq!(worker.take().await.id, second);
    db.run("select tuskline.purge_kept()").await;
    let left: i64 = db.ask("select count(*) from tuskline.tasks where id = $1", &[&first]).await;
    assert_eq!(left, 0);
}

#[tokio::test]
async fn a_key_for_ever_outlives_the_segment_of_its_holder() {
    let (db, worker) = with_worker().await;
    db.run("select tuskline.set_unique('work', 'forever')").await;
    let charge = "select tuskline.schedule('work', p_unique_key => 'order 9')";
    let first: i64 = db.one(charge).await;
    worker.succeed(&worker.take().await).await;
    a_week_later(&db).await;
    assert_eq!(retire(&db).await, 0);
    db.run("select tuskline.purge_keys('', '')").await;
    assert_eq!(db.one::<i64>(charge).await, first);
    assert!(worker.claim(10).await.is_empty());
}

#[tokio::test]
async fn a_task_that_comes_due_before_its_segment_is_kept_is_not_lost() {
    let (db, worker) = with_worker().await;
    let no = db.first_segment();
    let ids = db.schedule_many("work", 2).await;
    let tasks = worker.claim(2).await;
    worker.succeed(&tasks[0]).await;
    worker.note(&tasks[1], r#""status": "retriable_failure", "after_ms": 864000000"#).await;
    a_week_later(&db).await;
    db.advance(DAY * 2).await;
    assert_eq!(db.enqueue_due().await, 1);
    let keep = format!("select tuskline.keep_remaining({no})");
    assert_eq!(db.one::<Option<i64>>(&keep).await, None, "it is in its queue");
    assert_eq!(db.one::<i64>("select count(*) from tuskline.task_kept").await, 0);
    let task = worker.take().await;
    assert_eq!((task.id, worker.succeed(&task).await), (ids[1], Answer::Accepted));
    assert_eq!(db.one::<Option<i64>>(&keep).await, Some(1), "it has just succeeded");
}

#[tokio::test]
async fn what_is_committed_into_a_segment_while_it_goes_is_not_lost() {
    let (db, worker) = with_worker().await;
    let no = db.first_segment();
    db.schedule("work").await;
    worker.succeed(&worker.take().await).await;
    commit_late(&db).await;
    let keep_late = format!("select tuskline.keep_late({no})");
    let [held] = worker.claim(1).await.try_into().expect("it is in its queue");
    assert!(!db.one::<bool>(&keep_late).await, "a worker holds it");
    assert_eq!(worker.succeed(&held).await, Answer::Accepted);
    assert!(db.one::<bool>(&keep_late).await);
    db.run(&format!("drop table tuskline_core.task_{no}")).await;
    assert_eq!(db.one::<i64>(&format!("select tuskline.return_kept({no})")).await, 1);
    db.enqueue_due().await;
    let task = worker.take().await;
    assert_eq!((task.attempt, task.id > held.id), (1, true));
}

/// Schedules two tasks in a transaction that commits while their segment is detached.
async fn commit_late(db: &Db) {
    let no = db.first_segment();
    let late = db.connect().await;
    late.batch_execute("begin; insert into tuskline.task (lambda) values ('work'), ('work')")
        .await
        .unwrap();
    a_week_later(db).await;
    assert_eq!(db.one::<i64>(&format!("select tuskline.keep_remaining({no})")).await, 0);
    let janitor = db.connect().await;
    let pid: i32 = janitor.query_one("select pg_backend_pid()", &[]).await.unwrap().get(0);
    let detach = format!(
        "alter table tuskline_core.task_store detach partition tuskline_core.task_{no} concurrently"
    );
    let detaches = janitor.batch_execute(&detach);
    let commits = async {
        db.until_blocked(pid).await;
        late.batch_execute("commit").await.unwrap();
    };
    let (detached, ()) = tokio::join!(detaches, commits);
    detached.unwrap();
}

#[tokio::test]
async fn what_ends_while_its_segment_is_kept_outlives_it() {
    let (db, worker) = with_worker().await;
    let no = db.first_segment();
    db.schedule_many("work", 4).await;
    let [done, waits, runs, dies] = worker.claim(4).await.try_into().unwrap();
    worker.succeed(&done).await;
    worker.note(&waits, r#""status": "retriable_failure", "after_ms": 2592000000"#).await;
    let other = db.connect().await;
    let locks = format!("begin; select from tuskline.task where id = {} for update", waits.id);
    other.batch_execute(&locks).await.unwrap();
    let janitor = db.connect().await;
    let pid: i32 = janitor.query_one("select pg_backend_pid()", &[]).await.unwrap().get(0);
    let keep = format!("select tuskline.keep_remaining({no})");
    let keeps = janitor.query_one(&keep, &[]);
    let ends = async {
        db.until_blocked(pid).await;
        worker.fail_for_good(&dies).await;
        worker.succeed(&runs).await;
        other.batch_execute("commit").await.unwrap();
    };
    let (kept, ()) = tokio::join!(keeps, ends);
    assert_eq!(kept.unwrap().get::<_, Option<i64>>(0), Some(2), "nothing runs any more");
    db.run(&format!(
        "alter table tuskline_core.task_store detach partition tuskline_core.task_{no} concurrently"
    ))
    .await;
    assert!(db.one::<bool>(&format!("select tuskline.keep_late({no})")).await);
    db.run(&format!("drop table tuskline_core.task_{no}; select tuskline.return_kept({no})")).await;
    db.run(&format!("select tuskline.purge_history({no})")).await;
    assert_eq!(db.status(dies.id).await, "fatal_failure");
    assert_eq!(db.one::<i64>("select count(*) from tuskline.dead_letters").await, 1);
}

#[tokio::test]
async fn the_history_of_a_dropped_segment_is_walked_once_whichever_tasks_stay() {
    let (db, _worker) = with_worker().await;
    let no = db.first_segment();
    // 600 that failed, of which every other one is kept, and 100 that succeeded.
    let ids = db.id(0);
    db.run(&format!(
        "insert into tuskline.task_kept (id, lambda, status, finished_at)
         select {ids} + n, 'work', 'dead', tuskline.clock() from generate_series(2, 600, 2) n;
         insert into tuskline.task_failure
         select {ids} + n, fence, fence, 1, 'error', 'm', 'f', now() from generate_series(1, 600) n, generate_series(1, 3) fence;
         insert into tuskline.task_output select {ids} + n, '1', now() from generate_series(601, 700) n",
    ))
    .await;
    let (mut from, mut calls, mut purged) = (Some(0_i64), 0, 0);
    while let Some(after) = from {
        let purge = format!("select mark, gone from tuskline.purge_history({no}, $1, 100)");
        let row = db.client.query_one(&purge, &[&after]).await.unwrap();
        (from, calls, purged) = (row.get(0), calls + 1, purged + row.get::<_, i64>(1));
        assert!(calls < 9, "it goes on and on");
    }
    assert_eq!((calls, purged), (8, 400));
    let left = "select count(*), count(distinct task_id) filter (where task_id % 2 = 0) from tuskline.task_failure";
    assert_eq!(db.lines(left).await, ["900 | 300"]);
    assert_eq!(db.one::<i64>("select count(*) from tuskline.task_output").await, 0);
}

#[tokio::test]
async fn a_late_task_that_is_being_claimed_is_left_to_its_worker() {
    let (db, worker) = with_worker().await;
    let no = db.first_segment();
    db.schedule("work").await;
    worker.succeed(&worker.take().await).await;
    commit_late(&db).await;
    let keep_late = format!("select tuskline.keep_late({no})");
    db.run("set statement_timeout = '5s'").await;
    worker.client.batch_execute("begin").await.unwrap();
    let tasks = worker.claim(1).await;
    assert!(!db.one::<bool>(&keep_late).await, "another transaction has locked it");
    worker.client.batch_execute("commit").await.unwrap();
    assert!(!db.one::<bool>(&keep_late).await, "a worker holds it");
    assert_eq!(worker.succeed(&tasks[0]).await, Answer::Accepted);
    assert!(db.one::<bool>(&keep_late).await);
    assert_eq!((db.count("success").await, db.count("new").await), (1, 1));
}

#[tokio::test]
async fn a_retirement_that_waits_for_a_reader_holds_up_no_session() {
    let (db, worker) = with_worker().await;
    let no = db.first_segment();
    db.schedule_many("work", 3).await;
    worker.succeed(&worker.take().await).await;
    let waits = worker.take().await;
    worker.note(&waits, r#""status": "retriable_failure", "after_ms": 8640000000"#).await;
    worker.succeed(&worker.take().await).await;
    let reader = db.connect().await;
    reader.batch_execute("begin; select count(*) from tuskline.task").await.unwrap();
    a_week_later(&db).await;
    assert_eq!(db.one::<i64>(&format!("select tuskline.keep_remaining({no})")).await, 1);
    let janitor = db.connect().await;
    let pid: i32 = janitor.query_one("select pg_backend_pid()", &[]).await.unwrap().get(0);
    let detach = format!(
        "alter table tuskline_core.task_store detach partition tuskline_core.task_{no} concurrently"
    );
    let detaches = janitor.batch_execute(&detach);
    let worker = db.worker("work").await;
    let works = async {
        db.until_blocked(pid).await;
        for _ in 0..3 {
            let id = db.schedule("work").await;
            let task = worker.take().await;
            assert_eq!((task.id, worker.succeed(&task).await), (id, Answer::Accepted));
            assert_eq!(db.cancel(db.schedule_in("work", DAY).await).await, "cancelled");
            db.enqueue_due().await;
            db.rescue().await;
            db.run("select tuskline.add_segments()").await;
        }
        reader.batch_execute("commit").await.unwrap();
    };
    let (detached, ()) = tokio::join!(detaches, works);
    detached.unwrap();
}

#[tokio::test]
async fn a_unique_key_of_a_task_that_waits_for_its_segment_finds_the_task_there() {
    let (db, worker) = with_worker().await;
    let no = db.first_segment();
    db.run("select tuskline.set_unique('work', 'queued', 'replace')").await;
    let schedule = |payload: u8, days: u8| {
        format!(
            "select tuskline.schedule('work', '{payload}', p_unique_key => 'a', p_delay => '{days} days')"
        )
    };
    let now = "select tuskline.schedule('work', '1', p_unique_key => 'a')";
    let first: i64 = db.one(now).await;
    worker.note(&worker.take().await, r#""status": "snoozed", "after_ms": 2592000000"#).await;
    db.schedule("work").await;
    worker.succeed(&worker.take().await).await;
    a_week_later(&db).await;
    assert_eq!(db.one::<i64>(&format!("select tuskline.keep_remaining({no})")).await, 1);
    assert_eq!(db.one::<i64>(&schedule(2, 50)).await, first);
    db.run("select tuskline.set_unique('work', 'queued', 'postpone')").await;
    assert_eq!(db.one::<i64>(&schedule(3, 40)).await, first);
    db.run(&format!(
        "alter table tuskline_core.task_store detach partition tuskline_core.task_{no} concurrently"
    ))
    .await;
    db.run(&format!("drop table tuskline_core.task_{no}; select tuskline.return_kept({no})")).await;
    db.advance(DAY * 39).await;
    assert_eq!(db.enqueue_due().await, 0, "it was postponed");
    db.advance(DAY).await;
    assert_eq!(db.enqueue_due().await, 1);
    assert_eq!(worker.take().await.id, first);
    let payload: String =
        db.ask("select payload::text from tuskline.tasks where id = $1", &[&first]).await;
    assert_eq!(payload, "2");
}

#[tokio::test]
async fn kept_tasks_are_looked_at_a_batch_at_a_time() {
    let (db, worker) = with_worker().await;
    let no = db.first_segment();
    db.schedule_many("work", 5).await;
    for (n, task) in worker.claim(5).await.iter().enumerate() {
        match n {
            1 | 4 => worker.fail_for_good(task).await,
            _ => worker.note(task, r#""status": "cancelled""#).await,
        };
    }
    db.run("select tuskline.alter_lambda('work', p_cancelled_retention => '365 days')").await;
    db.advance(DAY).await;
    db.run("select tuskline.roll_segments()").await;
    assert_eq!(
        db.one::<Option<i64>>(&format!("select tuskline.keep_remaining({no})")).await,
        Some(5)
    );
    db.advance(DAY * 30).await;
    let mut after: Option<i64> = Some(0);
    let mut gone = Vec::new();
    while let Some(from) = after.filter(|_| gone.len() < 4) {
        let walk = format!("select mark, gone from tuskline.purge_kept({from}, 2)");
        let row = db.client.query_one(&walk, &[]).await.unwrap();
        after = row.get(0);
        gone.push(row.get::<_, i64>(1));
    }
    assert_eq!(gone, [1, 0, 1], "of each two");
    assert_eq!(db.one::<i64>("select count(*) from tuskline.task_kept").await, 3);
}

#[tokio::test]
async fn a_thousand_timers_of_kept_tasks_hold_up_no_task() {
    let (db, worker) = with_worker().await;
    let no = db.first_segment();
    db.schedule_many("work", 2000).await;
    let tasks = worker.claim(1000).await;
    let (ids, fences) = ids_and_fences(&tasks);
    // All due at the same moment.
    db.run("update tuskline.task set status = 'cancelled', finished_at = tuskline.clock(), next_trigger_at = null where status = 'enqueued'")
        .await;
    let snoozed = format!(
        "select tuskline.release({}, array{ids:?}, array{fences:?});
         update tuskline.task set status = 'new', next_trigger_at = tuskline.clock() + interval '9 days' where status = 'enqueued';
         insert into tuskline.timer select next_trigger_at, id from tuskline.task where status = 'new'",
        worker.executor
    );
    db.run(&snoozed).await;
    assert_eq!(db.timers().await, 1000);
    a_week_later(&db).await;
    assert_eq!(db.one::<i64>(&format!("select tuskline.keep_remaining({no})")).await, 1000);
    let other = db.schedule_in("work", DAY * 2).await;
    db.advance(DAY * 2).await;
    db.enqueue_due().await;
    db.enqueue_due().await;
    assert_eq!(db.status(other).await, "enqueued");
    assert_eq!(db.one::<i64>(&format!("select tuskline.return_kept({no})")).await, 1000);
    assert_eq!((db.timers().await, db.enqueue_due().await), (1000, 1000));
}

#[tokio::test]
async fn what_is_put_back_before_it_is_due_has_a_timer() {
    let (db, worker) = with_worker().await;
    let no = db.first_segment();
    db.schedule_many("work", 2).await;
    let [done, waits] = worker.claim(2).await.try_into().unwrap();
    worker.succeed(&done).await;
    worker.note(&waits, r#""status": "snoozed", "after_ms": 864000000"#).await;
    a_week_later(&db).await;
    assert_eq!(db.one::<i64>(&format!("select tuskline.keep_remaining({no})")).await, 1);
    db.run("delete from tuskline.timer").await;
    // The segment could not be detached, so its kept tasks return.
    assert_eq!(db.one::<i64>(&format!("select tuskline.return_kept({no})")).await, 1);
    assert_eq!(db.one::<i64>("select count(*) from tuskline.task_kept").await, 0);
    assert_eq!((db.timers().await, db.enqueue_due().await), (1, 0), "it is not due");
    db.advance(DAY * 2).await;
    assert_eq!(db.enqueue_due().await, 1);
    assert_eq!(worker.take().await.id, waits.id);
}

#[tokio::test]
async fn tasks_in_a_paused_queue_do_not_keep_their_segment() {
    let (db, worker) = with_worker().await;
    let no = db.first_segment();
    db.schedule_many("work", 3).await;
    worker.succeed_all(&worker.claim(2).await).await;
    let waits: i64 = db.one("select id from tuskline.task where status = 'enqueued'").await;
    db.run("select tuskline.gate('work', 'pause', p_reason => 'a fault')").await;
    db.advance(DAY * 20).await;
    db.run("select tuskline.roll_segments()").await;
    let ripe = "select count(*) from tuskline.segments_to_retire()";
    assert_eq!(db.one::<i64>(ripe).await, 1);
    assert_eq!(db.one::<i64>(&format!("select tuskline.keep_remaining({no})")).await, 1);
    assert_eq!(db.one::<i64>(&format!("select tuskline.return_kept({no})")).await, 1);
    db.enqueue_due().await;
    assert!(worker.claim(10).await.is_empty());
    db.run(&format!("select tuskline.ungate({})", db.number(1))).await;
    assert_eq!(worker.take().await.id, waits);
    assert!(worker.claim(10).await.is_empty(), "a second row of the task counts for nothing");
}

#[tokio::test]
async fn a_kept_task_that_stands_in_line_or_is_parked_comes_back_without_a_timer() {
    let (db, worker) = with_worker().await;
    let no = db.first_segment();
    db.run("select tuskline.set_order('work', 'block')").await;
    let of_key = async |key: &str| {
        db.one::<i64>(&format!("select tuskline.schedule('work', p_ordering_key => '{key}')")).await
    };
    let (_, second) = (of_key("a").await, of_key("a").await);
    db.enqueue_due().await;
    worker.fail_for_good(&worker.take().await).await;
    db.define("other").await;
    let gate =
        "select tuskline.gate('other', 'pause', 'news', p_reason => 'a fault', p_unseen => true)";
    let gate: i64 = db.one(gate).await;
    let parked = db.one("select tuskline.schedule('other', p_collection => 'news')").await;
    db.enqueue_due().await;
    assert_eq!(db.one::<i64>("select count(*) from tuskline.parked").await, 1);
    db.advance(DAY).await;
    db.run("select tuskline.roll_segments()").await;
    assert_eq!(db.one::<i64>(&format!("select tuskline.keep_remaining({no})")).await, 3);
    db.run("delete from tuskline.timer").await;
    assert_eq!(db.one::<i64>(&format!("select tuskline.return_kept({no})")).await, 2);
    assert_eq!(db.timers().await, 0, "something else will find them");
    db.run(&format!("select tuskline.ungate({gate})")).await;
    db.run("select tuskline.run_policies()").await;
    db.enqueue_due().await;
    assert_eq!(db.status(parked).await, "enqueued");
    assert!(db.one::<bool>("select tuskline.unblock('work', 'a')").await);
    db.advance(Duration::from_secs(1)).await;
    db.enqueue_due().await;
    assert_eq!(worker.take().await.id, second);
}
