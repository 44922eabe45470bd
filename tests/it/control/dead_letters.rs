//! A task that fails for good is listed with its error, until it is redriven or purged.

use std::time::Duration;

use crate::support::{Db, LEASE, ScriptedWorker};

const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(86_400);

async fn with_worker() -> (Db, ScriptedWorker) {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    let worker = db.worker("work").await;
    (db, worker)
}

/// A task that fails for good, with a message.
async fn die(db: &Db, worker: &ScriptedWorker, message: &str) -> i64 {
    let id = db.schedule("work").await;
    let task = worker.take().await;
    assert_eq!(task.id, id);
    let note =
        format!(r#""status": "fatal_failure", "error_class": "fatal", "message": "{message}""#);
    worker.note(&task, &note).await;
    id
}

async fn listed(db: &Db) -> Vec<String> {
    db.lines("select id, status, error_class, message from tuskline.dead_letters order by id").await
}

async fn letters(db: &Db) -> i64 {
    db.one("select count(*) from tuskline.dead_letter").await
}

#[tokio::test]
async fn a_result_that_is_final_is_listed() {
    let (db, worker) = with_worker().await;
    let fatal = die(&db, &worker, "no such address").await;
    db.run("select tuskline.alter_lambda('work', p_max_attempts => 1)").await;
    let dead = db.schedule("work").await;
    worker.fail(&worker.take().await).await;
    assert_eq!(
        listed(&db).await,
        [
            format!("{fatal} | fatal_failure | fatal | no such address"),
            format!("{dead} | dead | error | boom 1")
        ]
    );
}

#[tokio::test]
async fn a_task_that_died_before_there_was_a_list_is_on_it() {
    let (db, worker, kept) = kept().await;
    let id = die(&db, &worker, "no money").await;
    db.schedule("work").await;
    let before = db.lines("select * from tuskline.dead_letter order by task_id").await;
    assert_eq!((before.len(), kept < id), (2, true));
    let migration = include_str!("../../../migrations/V6__dead_letters.sql");
    let fill = &migration[migration.rfind("insert into tuskline.dead_letter").unwrap()..];
    db.run(&format!("delete from tuskline.dead_letter; {fill}")).await;
    let after = db.lines("select * from tuskline.dead_letter order by task_id").await;
    assert_eq!(after, before);
}

#[tokio::test]
async fn a_task_that_took_its_workers_along_is_listed() {
    let (db, _idle) = with_worker().await;
    let id = db.schedule("work").await;
    for _ in 0..3 {
        let worker = db.worker("work").await;
        worker.start(&worker.take().await).await;
        db.advance(LEASE).await;
        db.rescue().await;
    }
    let seen =
        db.lines("select id, status, error_class, failures from tuskline.dead_letters").await;
    assert_eq!(seen, [format!("{id} | dead | crash | 3")]);
}

#[tokio::test]
async fn what_a_gate_diverts_is_listed_and_says_so_even_after_a_failure() {
    let (db, worker) = with_worker().await;
    let failed = db.schedule("work").await;
    worker.fail(&worker.take().await).await;
    let queued = db.schedule("work").await;
    db.run("select tuskline.gate('work', 'divert', p_reason => 'too late')").await;
    db.advance(SECOND * 2).await;
    db.enqueue_due().await;
    assert!(worker.claim(10).await.is_empty());
    assert_eq!(
        listed(&db).await,
        [failed, queued]
            .map(|id| format!("{id} | dead | diverted | gate {}: too late", db.number(1)))
    );
}

#[tokio::test]
async fn a_task_that_waits_behind_a_failed_task_and_dies_with_it_is_listed() {
    let (db, worker) = with_worker().await;
    db.run("select tuskline.set_order('work', 'dead')").await;
    let of_key =
        async || db.one::<i64>("select tuskline.schedule('work', p_ordering_key => 'a')").await;
    let (first, second) = (of_key().await, of_key().await);
    db.enqueue_due().await;
    worker.fail_for_good(&worker.take().await).await;
    assert_eq!(
        listed(&db).await,
        [
            format!("{first} | fatal_failure | fatal | no"),
            format!(
                "{second} | dead | order | task {first} before it, of the same ordering key, has failed"
            )
        ]
    );
}

#[tokio::test]
async fn a_task_that_succeeds_is_cancelled_or_dropped_or_will_be_tried_again_is_no_dead_letter() {
    let (db, worker) = with_worker().await;
    db.schedule_many("work", 4).await;
    let [good, again, stopped, _] = worker.claim(4).await.try_into().unwrap();
    worker.succeed(&good).await;
    worker.fail(&again).await;
    worker.stopped(&stopped).await;
    db.run("select tuskline.gate('work', 'drop', p_reason => 'x')").await;
    db.schedule("work").await;
    db.enqueue_due().await;
    assert_eq!((letters(&db).await, db.count("dropped").await), (0, 1));
}

#[tokio::test]
async fn dead_letters_of_one_cause_are_one_group() {
    let (db, worker) = with_worker().await;
    let mut ids = Vec::new();
    for message in ["order 17 is unknown", "order 4 is unknown", "no money"] {
        ids.push(die(&db, &worker, message).await);
        db.advance(SECOND).await;
    }
    let groups = db
        .lines("select lambda, tasks, error_class, message, oldest_id, latest_id, last_died_at - first_died_at as span from tuskline.dead_groups order by tasks desc")
        .await;
    assert_eq!(
        groups,
        [
            format!("work | 2 | fatal | order 4 is unknown | {} | {} | 00:00:01", ids[0], ids[1]),
            format!("work | 1 | fatal | no money | {} | {} | 00:00:00", ids[2], ids[2])
        ]
    );
    let seen: Vec<String> = db
        .all(&format!(
            "select distinct fingerprint from tuskline.dead_letters where id in ({}, {})",
            ids[0], ids[1]
        ))
        .await;
    assert_eq!(seen.len(), 1);
}

#[tokio::test]
async fn a_dead_letter_tells_when_it_failed_and_until_when_it_can_return() {
    let (db, worker) = with_worker().await;
    db.run(
        "select tuskline.alter_lambda('work', p_max_attempts => 2, p_dead_retention => '30 days')",
    )
    .await;
    db.one::<i64>("select tuskline.schedule('work', '{\"n\": 1}', p_collection => 'news')").await;
    worker.fail(&worker.take().await).await;
    db.advance(SECOND * 2).await;
    db.enqueue_due().await;
    worker.fail(&worker.take().await).await;
    let seen = db
        .lines("select lambda, collection, priority, attempt, failures, last_failed_at - first_failed_at as took, finished_at = last_failed_at as at, expires_at - finished_at as stays, payload from tuskline.dead_letters")
        .await;
    assert_eq!(seen, [r#"work | news | normal | 2 | 2 | 00:00:02 | true | 30 days | {"n": 1}"#]);
    db.advance(DAY * 30).await;
    assert!(listed(&db).await.is_empty(), "its retention is over");
}

#[tokio::test]
async fn a_restarted_task_is_no_dead_letter_until_it_dies_again() {
    let (db, worker) = with_worker().await;
    let id = die(&db, &worker, "no").await;
    assert_eq!(db.one::<String>(&format!("select tuskline.retry({id})")).await, "retried");
    assert_eq!(letters(&db).await, 0);
    db.enqueue_due().await;
    worker.fail_for_good(&worker.take().await).await;
    assert_eq!(listed(&db).await, [format!("{id} | fatal_failure | fatal | no")]);
}

/// Makes a dead letter whose segment is retired; returns its id.
async fn kept() -> (Db, ScriptedWorker, i64) {
    let (db, worker) = with_worker().await;
    let no = db.first_segment();
    db.run("select tuskline.alter_lambda('work', p_retention => '1 day', p_dead_retention => '30 days'); select tuskline.roll_segments()").await;
    let id = die(&db, &worker, "no").await;
    db.advance(DAY).await;
    db.run(&format!("select tuskline.roll_segments(); select tuskline.keep_remaining({no})")).await;
    db.run(&format!(
        "alter table tuskline_core.task_store detach partition tuskline_core.task_{no} concurrently"
    ))
    .await;
    db.run(&format!("drop table tuskline_core.task_{no}")).await;
    db.run(&format!("select tuskline.purge_history({no}); select tuskline.return_kept({no})"))
        .await;
    (db, worker, id)
}

#[tokio::test]
async fn a_dead_letter_outlives_its_segment_and_goes_with_all_its_history_when_its_time_is_over() {
    let (db, _worker, id) = kept().await;
    assert_eq!(listed(&db).await, [format!("{id} | fatal_failure | fatal | no")]);
    db.advance(DAY * 29).await;
    db.run("select tuskline.purge_kept()").await;
    for table in ["task_kept", "dead_letter", "task_failure"] {
        assert_eq!(
            db.one::<i64>(&format!("select count(*) from tuskline.{table}")).await,
            0,
            "{table}"
        );
    }
}

#[tokio::test]
async fn a_dead_letter_that_goes_with_its_segment_leaves_no_row_behind() {
    let (db, worker) = with_worker().await;
    let no = db.first_segment();
    db.run("select tuskline.roll_segments()").await;
    let id = die(&db, &worker, "no").await;
    db.run(&format!("insert into tuskline.redriven values ({id}, 1, 'f')")).await;
    db.advance(DAY * 40).await;
    db.run("select tuskline.roll_segments()").await;
    assert_eq!(db.one::<i64>(&format!("select tuskline.keep_remaining({no})")).await, 0);
    db.run(&format!(
        "alter table tuskline_core.task_store detach partition tuskline_core.task_{no} concurrently"
    ))
    .await;
    db.run(&format!("drop table tuskline_core.task_{no}")).await;
    db.run(&format!("select tuskline.purge_history({no})")).await;
    for table in ["dead_letter", "redriven", "task_failure"] {
        assert_eq!(
            db.one::<i64>(&format!("select count(*) from tuskline.{table}")).await,
            0,
            "{table}"
        );
    }
}

/// Purges dead letters of the lambda; how many had gone after each call for a batch of three.
async fn purge(db: &Db, filter: &str) -> Vec<i64> {
    let start = format!(
        "select tuskline.start_operation('purge', 'work', p_statuses => '{{dead,fatal_failure}}', {filter})"
    );
    let operation: i64 = db.one(&start).await;
    let advance = format!("select changed from tuskline.advance_operation({operation}, 3)");
    let state = format!("select state from tuskline.operations where operation_id = {operation}");
    let mut gone = Vec::new();
    while gone.len() < 10 && db.one::<String>(&state).await == "running" {
        gone.push(db.one(&advance).await);
    }
    gone
}

const ALL: &str = "p_ended_to => tuskline.clock()";

#[tokio::test]
async fn dead_letters_are_purged_by_cause_and_time_a_batch_at_a_time() {
    let (db, worker) = with_worker().await;
    for n in 0..5 {
        die(&db, &worker, &format!("order {n} is unknown")).await;
    }
    let other = die(&db, &worker, "no money").await;
    db.schedule_many("work", 2).await;
    worker.succeed_all(&worker.claim(2).await).await;
    let cause: String =
        db.one("select fingerprint from tuskline.dead_groups where tasks = 5").await;
    assert_eq!(purge(&db, &format!("p_fingerprint => '{cause}', {ALL}")).await, [3, 5, 5]);
    assert_eq!(listed(&db).await, [format!("{other} | fatal_failure | fatal | no money")]);
    assert_eq!(db.one::<i64>("select count(*) from tuskline.tasks").await, 3);
    assert_eq!(db.one::<i64>("select count(*) from tuskline.task_failure").await, 1);
    let looked: i64 = db.one("select looked from tuskline.operations").await;
    assert_eq!(looked, 5, "it reads their list, not all tasks");
    db.advance(SECOND).await;
    let later = die(&db, &worker, "no money").await;
    let before = "p_ended_to => tuskline.clock() - interval '1 second'";
    assert_eq!(purge(&db, before).await, [1, 1]);
    assert_eq!(listed(&db).await, [format!("{later} | fatal_failure | fatal | no money")]);
}

#[tokio::test]
async fn a_kept_dead_letter_is_purged_as_well() {
    let (db, _worker, _id) = kept().await;
    assert_eq!(purge(&db, ALL).await, [1, 1]);
    assert_eq!(db.one::<i64>("select count(*) from tuskline.task_kept").await, 0);
}

#[tokio::test]
async fn a_purge_of_dead_letters_unblocks_their_keys() {
    let (db, worker) = with_worker().await;
    db.run("select tuskline.set_order('work', 'block')").await;
    let of_key =
        async || db.one::<i64>("select tuskline.schedule('work', p_ordering_key => 'a')").await;
    let (_first, second) = (of_key().await, of_key().await);
    db.enqueue_due().await;
    worker.fail_for_good(&worker.take().await).await;
    assert!(worker.claim(10).await.is_empty());
    assert_eq!(purge(&db, ALL).await, [1, 1]);
    db.advance(Duration::from_secs(1)).await;
    db.enqueue_due().await;
    assert_eq!(worker.take().await.id, second);
}

#[tokio::test]
async fn a_restarted_task_of_a_sealed_segment_is_found_when_the_queues_are_rebuilt() {
    let (db, worker) = with_worker().await;
    db.run("select tuskline.roll_segments()").await;
    let id = die(&db, &worker, "no").await;
    db.advance(DAY).await;
    db.run("select tuskline.roll_segments(); select tuskline.segments_to_retire()").await;
    let sealed = "select count(*) from tuskline.segment where sealed_at is not null";
    assert_eq!(db.one::<i64>(sealed).await, 1);
    db.run(&format!("select tuskline.retry({id})")).await;
    db.enqueue_due().await;
    assert_eq!((db.one::<i64>(sealed).await, db.status(id).await.as_str()), (0, "enqueued"));
    db.run("truncate tuskline.queued, tuskline_core.queues_complete").await;
    assert_eq!(db.one::<i64>("select tasks from tuskline.rebuild_queues()").await, 1);
}

#[tokio::test]
async fn a_segment_with_a_restarted_task_is_not_sealed_by_a_look_that_began_before() {
    let (db, worker) = with_worker().await;
    db.run("select tuskline.roll_segments()").await;
    let id = die(&db, &worker, "no").await;
    db.advance(DAY).await;
    db.run("select tuskline.roll_segments()").await;
    let sealed = "select count(*) from tuskline.segment where sealed_at is not null";
    let (operator, janitor) = (db.connect().await, db.connect().await);
    // The retry is open: the janitor's check skips the segment.
    operator.batch_execute(&format!("begin; select tuskline.retry({id})")).await.unwrap();
    db.run("select tuskline.segments_to_retire()").await;
    operator.batch_execute("rollback").await.unwrap();
    assert_eq!(db.one::<i64>(sealed).await, 0);
    // The janitor's check is open: the retry waits for it and sees its result.
    janitor.batch_execute("begin; select tuskline.segments_to_retire()").await.unwrap();
    let pid: i32 = operator.query_one("select pg_backend_pid()", &[]).await.unwrap().get(0);
    let retry = format!("select tuskline.retry({id})");
    let retries = operator.query_one(&retry, &[]);
    let commits = async {
        db.until_blocked(pid).await;
        assert_eq!(db.one::<i64>(sealed).await, 0);
        janitor.batch_execute("commit").await.unwrap();
    };
    let (said, ()) = tokio::join!(retries, commits);
    assert_eq!((said.unwrap().get::<_, &str>(0), db.one::<i64>(sealed).await), ("retried", 0));
}

#[tokio::test]
async fn a_task_that_is_restarted_while_its_segment_is_retired_is_not_lost() {
    let (db, worker) = with_worker().await;
    let no = db.first_segment();
    db.run("select tuskline.roll_segments()").await;
    let id = die(&db, &worker, "no").await;
    db.advance(DAY).await;
    db.run("select tuskline.roll_segments()").await;
    let operator = db.connect().await;
    operator.batch_execute(&format!("begin; select tuskline.retry({id})")).await.unwrap();
    db.advance(DAY * 30).await;
    let janitor = db.connect().await;
    let pid: i32 = janitor.query_one("select pg_backend_pid()", &[]).await.unwrap().get(0);
    let keep = format!("select tuskline.keep_remaining({no})");
    let keeps = janitor.query_one(&keep, &[]);
    let commits = async {
        db.until_blocked(pid).await;
        operator.batch_execute("commit").await.unwrap();
    };
    let (kept, ()) = tokio::join!(keeps, commits);
    assert_eq!(kept.unwrap().get::<_, i64>(0), 1, "it waited, and saw a task that waits");
}

#[tokio::test]
async fn a_task_past_its_retention_is_not_restarted() {
    let (db, worker) = with_worker().await;
    let id = die(&db, &worker, "no").await;
    let stopped = db.schedule("work").await;
    db.cancel(stopped).await;
    db.advance(DAY * 8).await;
    let retry = async |id: i64| db.ask::<String>("select tuskline.retry($1)", &[&id]).await;
    assert_eq!(retry(stopped).await, "unknown", "that was 7 days");
    db.advance(DAY * 22).await;
    assert_eq!(retry(id).await, "unknown", "that was 30");
    assert_eq!(db.status(id).await, "fatal_failure");
}

#[tokio::test]
async fn a_restarted_kept_task_runs_as_soon_as_its_segment_is_back() {
    let (db, worker, id) = kept().await;
    let no = db.first_segment();
    assert_eq!(db.one::<String>(&format!("select tuskline.retry({id})")).await, "retried");
    assert_eq!(db.timers().await, 0, "no worker can find it yet");
    assert_eq!(
        db.lines("select * from tuskline.segments_to_finish()").await,
        [format!("{no} | dropped")]
    );
    db.advance(SECOND).await;
    assert_eq!(db.one::<i64>(&format!("select tuskline.return_kept({no})")).await, 1);
    let due: bool = db.one("select due = tuskline.clock() from tuskline.timer").await;
    assert!(due, "no mark has passed it");
    db.enqueue_due().await;
    assert_eq!(worker.take().await.id, id);
}

#[tokio::test]
async fn a_kept_task_that_is_restarted_when_its_segment_is_back_already_runs_at_once() {
    let (db, worker, id) = kept().await;
    db.run(&format!("select tuskline_core.add_segment({})", db.first_segment())).await;
    assert_eq!(db.one::<String>(&format!("select tuskline.retry({id})")).await, "retried");
    assert!(db.lines("select * from tuskline.segments_to_finish()").await.is_empty());
    db.enqueue_due().await;
    assert_eq!(worker.take().await.id, id);
}

#[tokio::test]
async fn a_kept_task_that_is_restarted_while_the_janitor_drops_its_segment_is_not_stranded() {
    let (db, _worker, id) = kept().await;
    let no = db.first_segment();
    db.run(&format!("insert into tuskline.segment (segment_no) values ({no})")).await;
    let operator = db.connect().await;
    operator.batch_execute(&format!("begin; select tuskline.retry({id})")).await.unwrap();
    let janitor = db.connect().await;
    let pid: i32 = janitor.query_one("select pg_backend_pid()", &[]).await.unwrap().get(0);
    let give_back = format!("select tuskline.return_kept({no})");
    let returns = janitor.query_one(&give_back, &[]);
    let commits = async {
        db.until_blocked(pid).await;
        operator.batch_execute("commit").await.unwrap();
    };
    let (returned, ()) = tokio::join!(returns, commits);
    assert_eq!(returned.unwrap().get::<_, i64>(0), 1);
}

#[tokio::test]
async fn a_kept_task_that_is_restarted_as_its_segment_is_deleted_is_found() {
    let (db, _worker, id) = kept().await;
    let no = db.first_segment();
    // An earlier retry of the task was cancelled. The janitor finds no waiting task, and deletes
    // the row of the segment.
    db.run(&format!("insert into tuskline.segment (segment_no) values ({no})")).await;
    let (janitor, operator) = (db.connect().await, db.connect().await);
    janitor.batch_execute(&format!("begin; select tuskline.return_kept({no})")).await.unwrap();
    let pid: i32 = operator.query_one("select pg_backend_pid()", &[]).await.unwrap().get(0);
    let retry = format!("select tuskline.retry({id})");
    let commits = async {
        db.until_blocked(pid).await;
        janitor.batch_execute("commit").await.unwrap();
    };
    let (said, ()) = tokio::join!(operator.query_one(&retry, &[]), commits);
    assert_eq!(said.unwrap().get::<_, &str>(0), "retried");
    assert_eq!(
        db.lines("select * from tuskline.segments_to_finish()").await,
        [format!("{no} | dropped")]
    );
    assert_eq!(db.one::<i64>(&format!("select tuskline.return_kept({no})")).await, 1);
}

#[tokio::test]
async fn dead_letters_that_are_archived_are_archived_before_they_are_purged() {
    let (db, worker) = with_worker().await;
    db.run("select tuskline.alter_lambda('work', p_archive => 'table')").await;
    let id = die(&db, &worker, "no").await;
    assert_eq!(purge(&db, ALL).await, [1, 1]);
    let archived = db
        .lines(
            "select id, status, json_array_length(failures) as failures from tuskline.task_archive",
        )
        .await;
    assert_eq!(archived, [format!("{id} | fatal_failure | 1")]);
    assert_eq!(db.one::<i64>("select count(*) from tuskline.tasks").await, 0);
}
