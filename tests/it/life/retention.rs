//! Ended tasks past their retention are deleted in whole segments. Tasks that must stay, stay.
//! Every id resolves until its task is deleted.

use std::time::Duration;

use crate::support::{Answer, Db, LEASE, ScriptedWorker};

const DAY: Duration = Duration::from_secs(86_400);

/// A used-up segment: a success, a retry in 20 days, a dead and a cancelled task.
struct Old {
    db: Db,
    success: i64,
    waits: i64,
    dead: i64,
    cancelled: i64,
}

async fn old() -> Old {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    db.run("select tuskline.alter_lambda('work', p_retention => '7 days', p_dead_retention => '30 days')").await;
    db.run("select tuskline.roll_segments()").await;
    let worker = db.worker("work").await;
    db.schedule_many("work", 4).await;
    let [success, waits, dead, cancelled] = worker.claim(4).await.try_into().unwrap();
    assert_eq!(worker.succeed_with(&success, "[1]").await, Answer::Accepted);
    worker.note(&waits, r#""status": "retriable_failure", "after_ms": 1728000000"#).await;
    worker.fail_for_good(&dead).await;
    worker.stopped(&cancelled).await;
    db.advance(DAY).await;
    assert_eq!(db.one::<i32>("select tuskline.roll_segments()").await, 1);
    Old { db, success: success.id, waits: waits.id, dead: dead.id, cancelled: cancelled.id }
}

impl Old {
    /// Counted from the first segment.
    async fn to_retire(&self) -> Vec<i64> {
        let first = self.db.first_segment();
        self.db.all(&format!("select no - {first} from tuskline.segments_to_retire() no")).await
    }

    async fn stage(&self) -> Vec<String> {
        self.db.lines("select * from tuskline.segments_to_finish()").await
    }

    /// Checks that the ids of the waiting and the dead task resolve.
    async fn check_resolves(&self, when: &str) {
        let found = self
            .db
            .lines(&format!(
                "select id, status from tuskline.tasks where id in ({}, {}) order by id",
                self.waits, self.dead
            ))
            .await;
        assert_eq!(
            found,
            [
                format!("{} | retriable_failure", self.waits),
                format!("{} | fatal_failure", self.dead)
            ],
            "{when}"
        );
        let known: i64 =
            self.db.ask("select count(*) from tuskline.task_status($1)", &[&self.waits]).await;
        assert_eq!(known, 1, "{when}");
    }

    /// Performs the janitor's steps for a segment.
    async fn retire(&self) {
        let no = self.db.first_segment();
        self.check_resolves("before").await;
        assert_eq!(self.db.one::<i64>(&format!("select tuskline.keep_remaining({no})")).await, 2);
        self.check_resolves("kept").await;
        self.db
            .run(&format!("alter table tuskline_core.task_store detach partition tuskline_core.task_{no} concurrently"))
            .await;
        assert_eq!(self.stage().await, [format!("{no} | detached")]);
        self.check_resolves("detached").await;
        self.db.run(&format!("drop table tuskline_core.task_{no}")).await;
        assert_eq!(self.stage().await, [format!("{no} | dropped")]);
        self.check_resolves("dropped").await;
        let mut from = Some(0_i64);
        while let Some(after) = from {
            let purge = format!("select mark from tuskline.purge_history({no}, {after}, 1)");
            from = self.db.one::<Option<i64>>(&purge).await;
        }
        assert_eq!(self.db.one::<i64>(&format!("select tuskline.return_kept({no})")).await, 1);
        assert!(self.stage().await.is_empty());
        self.check_resolves("returned").await;
    }
}

#[tokio::test]
async fn a_segment_is_retired_when_every_task_is_past_its_retention() {
    let old = old().await;
    assert!(old.to_retire().await.is_empty());
    // Finished a day ago.
    old.db.advance(DAY * 6 - Duration::from_secs(1)).await;
    assert!(old.to_retire().await.is_empty(), "a second too early");
    old.db.advance(Duration::from_secs(1)).await;
    assert_eq!(old.to_retire().await, [0]);
}

#[tokio::test]
async fn ids_resolve_throughout_and_the_ended_are_gone() {
    let old = old().await;
    old.db.advance(DAY * 8).await;
    old.retire().await;
    for gone in [old.success, old.cancelled] {
        let left: i64 =
            old.db.ask("select count(*) from tuskline.tasks where id = $1", &[&gone]).await;
        assert_eq!(left, 0);
    }
    assert_eq!(old.db.one::<i64>("select count(*) from tuskline.task_output").await, 0);
    let failures: Vec<i64> =
        old.db.all("select task_id from tuskline.task_failure order by 1").await;
    assert_eq!(failures, [old.waits, old.dead], "the history of what stays, stays");
}

async fn run_it(db: &Db) -> (ScriptedWorker, i64) {
    let worker = db.worker("work").await;
    let task = worker.take().await;
    assert_eq!(task.attempt, 2);
    assert_eq!(worker.succeed(&task).await, Answer::Accepted);
    (worker, task.id)
}

#[tokio::test]
async fn a_waiting_leftover_comes_back_and_runs() {
    let old = old().await;
    old.db.advance(DAY * 8).await;
    old.retire().await;
    assert!(old.to_retire().await.is_empty(), "what a retired segment left behind is left alone");
    old.db.advance(DAY * 11).await;
    assert_eq!(old.db.enqueue_due().await, 1);
    assert_eq!(run_it(&old.db).await.1, old.waits);
    assert_eq!(old.db.status(old.waits).await, "success");
}

#[tokio::test]
async fn a_leftover_that_falls_due_while_its_segment_goes_runs_after_its_return() {
    let old = old().await;
    let no = old.db.first_segment();
    old.db.advance(DAY * 8).await;
    old.db.run(&format!("select tuskline.keep_remaining({no})")).await;
    old.db.advance(DAY * 11).await;
    old.db.enqueue_due().await;
    assert_eq!(
        (old.db.status(old.waits).await.as_str(), old.db.timers().await),
        ("retriable_failure", 0),
        "it is not in the way of others"
    );
    old.db
        .run(&format!("alter table tuskline_core.task_store detach partition tuskline_core.task_{no} concurrently"))
        .await;
    old.db
        .run(&format!("drop table tuskline_core.task_{no}; select tuskline.return_kept({no})"))
        .await;
    assert_eq!(
        (old.db.enqueue_due().await, old.db.queued().await, old.db.timers().await),
        (1, 1, 0)
    );
    assert_eq!(run_it(&old.db).await.1, old.waits);
}

#[tokio::test]
async fn a_leftover_can_be_cancelled_while_its_segment_goes() {
    let old = old().await;
    let no = old.db.first_segment();
    old.db.advance(DAY * 8).await;
    old.db.run(&format!("select tuskline.keep_remaining({no})")).await;
    assert_eq!(old.db.cancel(old.dead).await, "too_late");
    assert_eq!(old.db.cancel(old.waits).await, "cancelled");
    assert_eq!(old.db.status(old.waits).await, "cancelled");
    assert_eq!(old.db.timers().await, 0, "as for every task that waits");
    let audited: i64 =
        old.db.one("select count(*) from tuskline.audit where verb = 'cancel'").await;
    assert_eq!(audited, 1);
}

#[tokio::test]
async fn a_segment_in_which_something_runs_or_is_queued_stays() {
    let old = old().await;
    old.db
        .run(&format!("update tuskline.task set status = 'enqueued' where id = {}", old.waits))
        .await;
    old.db.advance(DAY * 60).await;
    assert!(old.to_retire().await.is_empty());
}

#[tokio::test]
async fn kept_tasks_go_after_the_retention_of_the_dead() {
    let old = old().await;
    old.db.advance(DAY * 8).await;
    old.retire().await;
    old.db.advance(DAY * 21 - Duration::from_secs(1)).await;
    assert_eq!(old.db.one::<i64>("select count(*) from tuskline.task_kept").await, 1);
    old.db.run("select tuskline.purge_kept()").await;
    assert_eq!(old.db.one::<i64>("select count(*) from tuskline.task_kept").await, 1);
    old.db.advance(Duration::from_secs(1)).await;
    old.db.run("select tuskline.purge_kept()").await;
    assert_eq!(old.db.one::<i64>("select count(*) from tuskline.task_kept").await, 0);
}

#[tokio::test]
async fn a_shorter_retention_is_heeded_at_once() {
    let old = old().await;
    old.db.advance(DAY).await;
    assert!(old.to_retire().await.is_empty());
    old.db.run("select tuskline.alter_lambda('work', p_retention => '1 day')").await;
    assert_eq!(old.to_retire().await, [0]);
}

#[tokio::test]
async fn an_ended_worker_is_forgotten_after_a_day_and_not_while_it_has_leases() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    let (idle, busy) = (db.worker("work").await, db.worker("work").await);
    db.schedule("work").await;
    busy.take().await;
    db.advance(LEASE).await;
    db.run("update tuskline.executor set ended_at = tuskline.clock(), end_reason = 'expired'")
        .await;
    db.advance(DAY + LEASE).await;
    db.run("select tuskline.purge()").await;
    assert_eq!(db.all::<i64>("select executor_id from tuskline.executor").await, [busy.executor]);
    db.rescue().await;
    db.run("select tuskline.purge()").await;
    assert!(db.all::<i64>("select executor_id from tuskline.executor").await.is_empty());
    assert!(!idle.heartbeat().await);
}

#[tokio::test]
async fn a_quiet_install_moves_on_and_an_empty_one_does_not() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    db.run("select tuskline.roll_segments()").await;
    db.advance(DAY * 2).await;
    assert_eq!(db.one::<i32>("select tuskline.roll_segments()").await, 0, "nothing in it");
    db.schedule("work").await;
    db.schedule_in("work", DAY).await;
    assert_eq!(db.one::<i32>("select tuskline.roll_segments()").await, 2);
    assert_eq!(db.one::<i32>("select tuskline.roll_segments()").await, 0);
    let id = db.schedule("work").await;
    assert!(id > (db.first_segment() + 1) << 24);
}

#[tokio::test]
async fn a_rebuild_reads_no_sealed_segment() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    db.run("select tuskline.roll_segments()").await;
    db.schedule("work").await;
    let worker = db.worker("work").await;
    worker.succeed(&worker.take().await).await;
    db.advance(DAY).await;
    db.run("select tuskline.roll_segments(); select tuskline.segments_to_retire()").await;
    let sealed: Vec<i64> =
        db.all("select segment_no from tuskline.segment where sealed_at is not null").await;
    assert_eq!(sealed, [db.first_segment()]);
    // Only a reader of the sealed segment would find this change.
    db.run("update tuskline.task set status = 'enqueued'; truncate tuskline.queued, tuskline_core.queues_complete")
        .await;
    assert_eq!(db.one::<i64>("select tasks from tuskline.rebuild_queues()").await, 0);
}

#[tokio::test]
async fn a_batch_may_reach_over_segments() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    db.run("select tuskline.roll_segments()").await;
    db.schedule_in("work", DAY).await;
    db.schedule_many("work", 3).await;
    db.advance(DAY).await;
    assert_eq!(db.one::<i32>("select tuskline.roll_segments()").await, 2);
    db.schedule_many("work", 3).await;
    assert_eq!(db.enqueue_due().await, 1);
    let worker = db.worker("work").await;
    let mut tasks = worker.claim(10).await;
    let first = db.first_segment();
    let segments: Vec<_> = tasks.iter().map(|task| (task.id >> 24) - first).collect();
    assert_eq!(segments, [0, 0, 0, 1, 1, 1, 1 << 26], "in id order");
    assert!(tasks.iter().all(|task| task.fence == tasks[0].fence && task.attempt == 1));
    // The worker has lost a task of each segment: its fence is stale.
    for stale in [1, 4] {
        tasks[stale].fence -= 1;
    }
    tasks.reverse();
    assert_eq!(worker.succeed_all(&tasks).await, [tasks[5].id, tasks[2].id]);
    assert_eq!((db.count("success").await, db.count("claimed").await), (5, 2));
}

#[tokio::test]
async fn what_a_segment_had_of_its_own_goes_with_it_and_results_for_it_are_refused() {
    let old = old().await;
    let no = old.db.first_segment();
    let of_segments = format!(
        "select proname::text from pg_proc
        where pronamespace in ('tuskline'::regnamespace, 'tuskline_core'::regnamespace) and proname ~ '^(take|end)_{no}$' order by 1"
    );
    let of_segments = of_segments.as_str();
    let late = old.db.worker("work").await;
    old.db.advance(DAY * 20).await;
    old.db.enqueue_due().await;
    let task = late.take().await;
    assert_eq!(late.succeed(&task).await, Answer::Accepted);
    old.db.advance(DAY * 31).await;
    assert_eq!(old.to_retire().await, [0]);
    assert_eq!(old.db.one::<i64>(&format!("select tuskline.keep_remaining({no})")).await, 0);
    assert_eq!(
        old.db.all::<String>(of_segments).await,
        [format!("end_{no}"), format!("take_{no}")]
    );
    old.db
        .run(&format!("alter table tuskline_core.task_store detach partition tuskline_core.task_{no} concurrently"))
        .await;
    assert_eq!(late.succeed(&task).await, Answer::Refused, "detached");
    old.db.run(&format!("drop table tuskline_core.task_{no}")).await;
    assert_eq!(late.succeed(&task).await, Answer::Refused, "dropped");
    old.db.run("insert into tuskline.queued (queue_id, task_id) select queue_id, 4711 from tuskline.queue").await;
    assert_eq!(late.claim(10).await, [], "a queue row of a task that is gone");
    assert_eq!(old.db.one::<i64>(&format!("select tuskline.return_kept({no})")).await, 0);
    assert_eq!(old.db.all::<String>(of_segments).await, Vec::<String>::new());
    assert_eq!(late.succeed(&task).await, Answer::Refused, "forgotten");
}

/// Counted from the first segment.
async fn sealed(db: &Db) -> Vec<i64> {
    // The janitor may check the segments again.
    db.run("update tuskline.segment set ripe_at = null").await;
    db.run("select tuskline.segments_to_retire()").await;
    let sealed = "from tuskline.segment where sealed_at is not null";
    db.all(&format!("select segment_no - {} {sealed}", db.first_segment())).await
}

/// A store whose first segment holds one ended task.
async fn with_one() -> (Db, ScriptedWorker) {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    db.run("select tuskline.roll_segments()").await;
    let worker = db.worker("work").await;
    db.schedule("work").await;
    worker.succeed(&worker.take().await).await;
    db.advance(DAY).await;
    (db, worker)
}

#[tokio::test]
async fn a_segment_into_which_an_open_transaction_writes_is_not_sealed() {
    let (db, _worker) = with_one().await;
    let late = db.connect().await;
    late.batch_execute("begin; select tuskline.schedule('work')").await.unwrap();
    db.run("select tuskline.roll_segments()").await;
    assert!(sealed(&db).await.is_empty());
    late.batch_execute("commit").await.unwrap();
    db.run("truncate tuskline.queued, tuskline_core.queues_complete").await;
    assert_eq!(db.one::<i64>("select tasks from tuskline.rebuild_queues()").await, 1);
    assert!(!sealed(&db).await.contains(&0), "it is queued");
}

#[tokio::test]
async fn a_segment_into_which_a_prepared_transaction_writes_is_not_sealed() {
    let (db, _worker) = with_one().await;
    let late = db.connect().await;
    late.batch_execute("begin; insert into tuskline.task (lambda) values ('work')").await.unwrap();
    db.run("select tuskline.roll_segments()").await;
    assert!(sealed(&db).await.is_empty());
    late.batch_execute("prepare transaction 'a_prepared_one'").await.unwrap();
    // A restart gives the prepared transaction another name than the one noted.
    db.run("update tuskline.segment set late_writers = '{3/14}' where late_writers is not null")
        .await;
    assert!(sealed(&db).await.is_empty());
    db.run("commit prepared 'a_prepared_one'").await;
    assert!(sealed(&db).await.is_empty(), "it is queued");
}

#[tokio::test]
async fn a_segment_with_ids_that_an_open_transaction_may_still_write_is_not_sealed() {
    let (db, _worker) = with_one().await;
    let (late, busy) = (db.connect().await, db.connect().await);
    late.batch_execute("begin; select nextval('tuskline.task_seq')").await.unwrap();
    db.run("select tuskline.roll_segments()").await;
    assert!(sealed(&db).await.is_empty());
    // The next transaction takes ids of the next segment.
    busy.batch_execute("begin; select tuskline.schedule('work')").await.unwrap();
    assert!(sealed(&db).await.is_empty());
    late.batch_execute("commit").await.unwrap();
    assert_eq!(sealed(&db).await, [0]);
}

#[tokio::test]
async fn a_sealed_segment_in_which_something_waits_is_sealed_no_more() {
    let (db, _worker) = with_one().await;
    db.run("select tuskline.roll_segments()").await;
    assert_eq!(sealed(&db).await, [0]);
    db.run("update tuskline.task set status = 'new', finished_at = null").await;
    assert!(sealed(&db).await.is_empty());
}

#[tokio::test]
async fn segments_that_were_used_up_unobserved_go() {
    let db = Db::with_lambda("work").await;
    let no = db.first_segment();
    let last = db.id(4 << 24);
    db.run(&format!("select tuskline.add_segments(), setval('tuskline.task_seq', {last})")).await;
    db.run("select tuskline.add_segments()").await;
    let opened = "select segment_no from tuskline.segment where opened_at is not null order by 1";
    assert_eq!(
        db.all::<i64>(opened).await,
        [no, no + 1, no + 2, no + 3, no + 4, db.future_id(0) >> 24]
    );
    let retired: Vec<i64> = db.all("select * from tuskline.segments_to_retire()").await;
    assert_eq!(retired, [no, no + 1, no + 2, no + 3], "there is nothing in them");
}

#[tokio::test]
async fn a_shorter_retention_is_heeded_by_a_look_that_goes_on() {
    let old = old().await;
    old.db.advance(DAY).await;
    let dated = "select count(*) from tuskline.segment where ripe_at is not null";
    assert_eq!(old.db.one::<i64>(dated).await, 0);
    let (janitor, operator) = (old.db.connect().await, old.db.connect().await);
    let pid: i32 = operator.query_one("select pg_backend_pid()", &[]).await.unwrap().get(0);
    janitor.batch_execute("begin; select tuskline.segments_to_retire()").await.unwrap();
    let alters =
        operator.batch_execute("select tuskline.alter_lambda('work', p_retention => '1 day')");
    let ends = async {
        old.db.until_blocked(pid).await;
        janitor.batch_execute("commit").await.unwrap();
    };
    let (altered, ()) = tokio::join!(alters, ends);
    altered.unwrap();
    assert_eq!(old.to_retire().await, [0]);

    // The same holds for a transaction that begins during the change of the table.
    let old = self::old().await;
    old.db.advance(DAY).await;
    let (janitor, operator) = (old.db.connect().await, old.db.connect().await);
    operator
        .batch_execute("begin; select tuskline.alter_lambda('work', p_retention => '1 day')")
        .await
        .unwrap();
    let looks = "select * from tuskline.segments_to_retire()";
    assert!(
        janitor.query(looks, &[]).await.unwrap().is_empty(),
        "it does not wait, and notes nothing"
    );
    operator.batch_execute("commit").await.unwrap();
    assert_eq!(janitor.query(looks, &[]).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_segment_of_which_more_than_half_waits_stays() {
    let (db, worker) = with_one().await;
    db.schedule_many("work", 2).await;
    let tasks = worker.claim(2).await;
    for task in &tasks {
        worker.note(task, r#""status": "snoozed", "after_ms": 864000000"#).await;
    }
    db.run("select tuskline.roll_segments()").await;
    db.advance(DAY * 8).await;
    let look = "select * from tuskline.segments_to_retire()";
    assert!(db.all::<i64>(look).await.is_empty(), "two of three would move out and back");
    db.advance(DAY * 2).await;
    assert_eq!(db.enqueue_due().await, 2);
    worker.succeed(&worker.take().await).await;
    worker.note(&worker.take().await, r#""status": "snoozed", "after_ms": 864000000"#).await;
    db.run("select tuskline.alter_lambda('work', p_retention => '0')").await;
    assert_eq!(db.all::<i64>(look).await, [db.first_segment()]);
}
