//! A purge deletes the tasks that its filter matches, unless something still needs them. No other
//! session waits for it.

use std::time::Duration;

use rustix::process::Signal;
use tokio_postgres::Client;

use crate::support::cli::on;
use crate::support::{Answer, Db, ScriptedWorker};

const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(86_400);
const REST: Duration = Duration::from_millis(200);

async fn with_worker() -> (Db, ScriptedWorker) {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    let worker = db.worker("work").await;
    (db, worker)
}

/// Makes so many tasks that have succeeded.
async fn succeeded(db: &Db, worker: &ScriptedWorker, count: i32) -> Vec<i64> {
    let ids = db.schedule_many("work", count).await;
    worker.succeed_all(&worker.claim(count).await).await;
    ids
}

async fn start(db: &Db, what: &str) -> i64 {
    db.one(&format!("select tuskline.start_operation('purge', {what})")).await
}

/// Runs a batch of three; returns the state and the counts of tasks looked at, purged and spared.
async fn advance(session: &Client, purge: i64) -> (String, i64, i64, i64) {
    let sql = "select state, looked, changed, spared from tuskline.advance_operation($1, 3)";
    let row = session.query_one(sql, &[&purge]).await.unwrap();
    (row.get(0), row.get(1), row.get(2), row.get(3))
}

/// Runs the purge to its end; returns the counts of tasks purged and spared.
async fn finish(db: &Db, purge: i64) -> (i64, i64) {
    loop {
        match advance(&db.client, purge).await {
            (state, _, purged, spared) if state != "running" => return (purged, spared),
            // After a look at locked tasks it rests.
            _ => db.advance(REST).await,
        }
    }
}

/// Acts as [`finish`], for a purge whose client writes the files.
async fn finish_with_files(db: &Db, purge: i64) -> (i64, i64) {
    let sql = "select state = 'done', changed, spared from tuskline.advance_operation($1, 3, true)";
    loop {
        let row = db.client.query_one(sql, &[&purge]).await.unwrap();
        if row.get(0) {
            return (row.get(1), row.get(2));
        }
    }
}

async fn left(db: &Db) -> Vec<i64> {
    db.all("select id from tuskline.tasks order by id").await
}

#[tokio::test]
async fn only_what_the_filter_names_goes_a_batch_at_a_time() {
    let (db, worker) = with_worker().await;
    db.define("other").await;
    db.run("insert into tuskline.task (lambda, collection) values ('work', 'news'), ('work', 'news'), ('work', null)").await;
    let tasks = worker.claim(3).await;
    worker.fail_for_good(&tasks[0]).await;
    worker.succeed_all(&tasks[1..]).await;
    let other = db.worker("other").await;
    db.schedule("other").await;
    other.succeed(&other.take().await).await;
    let waits = db.schedule("work").await;
    db.advance(MINUTE).await;
    let young = db.schedule("other").await;
    other.succeed(&other.take().await).await;
    for (filter, expected) in [
        ("'work'", 3),
        ("'work', p_statuses => array['success', 'dead']", 2),
        ("p_collection => 'news'", 2),
        ("p_statuses => array['success'], p_collection => 'news'", 1),
        ("p_statuses => array['success']", 3),
        ("p_ended_to => tuskline.clock()", 5),
        ("p_ended_to => tuskline.clock() - interval '61 seconds'", 0),
    ] {
        db.run("begin").await;
        let sql = format!(
            "select coalesce(sum(tasks), 0)::bigint from tuskline.preview_operation('purge', {filter})"
        );
        let counted: i64 = db.one(&sql).await;
        let purge = start(&db, filter).await;
        assert_eq!((counted, finish(&db, purge).await), (expected, (expected, 0)), "{filter}");
        db.run("rollback").await;
    }
    let filter = "p_statuses => array['success', 'fatal_failure']";
    let preview = format!("select * from tuskline.preview_operation('purge', {filter})");
    assert_eq!(
        db.lines(&preview).await,
        [
            format!("other | success | false | 1 | [{}]", db.id(4)),
            format!("work | success | false | 2 | [{},{}]", db.id(2), db.id(3)),
            format!("work | fatal_failure | false | 1 | [{}]", db.id(1))
        ]
    );
    let purge = start(&db, &format!("{filter}, p_reason => 'x'")).await;
    assert_eq!(advance(&db.client, purge).await, ("running".into(), 3, 3, 0));
    assert_eq!(finish(&db, purge).await, (4, 0));
    assert_eq!(left(&db).await, [waits, young]);
    assert_eq!(db.one::<i64>("select count(*) from tuskline.task_failure").await, 0);
    assert_eq!(db.one::<i64>("select count(*) from tuskline.dead_letter").await, 0);
    let audit =
        db.lines("select subject, detail from tuskline.audit where verb like '%operation' order by at, verb desc").await;
    assert!(audit[0].starts_with(&format!(
        "all lambdas | operation {purge}: purge, statuses {{success,fatal_failure}}, created to "
    )));
    assert!(audit[0].ends_with(", reason x"), "{}", audit[0]);
    assert_eq!(audit[1..], [format!("operation {purge} | done 4 changed")]);
    assert_eq!(advance(&db.client, purge).await.0, "done");
    assert!(!db.one::<bool>(&format!("select tuskline.stop_operation({purge})")).await);
}

#[tokio::test]
async fn it_goes_on_where_it_stood_and_ends_where_it_is_told_or_has_enough() {
    let (db, worker) = with_worker().await;
    let ids = succeeded(&db, &worker, 10).await;
    db.advance(MINUTE).await;
    let purge = start(&db, "'work'").await;
    assert_eq!(advance(&db.client, purge).await, ("running".into(), 3, 3, 0));
    assert!(db.one::<bool>(&format!("select tuskline.stop_operation({purge})")).await);
    assert_eq!(advance(&db.client, purge).await, ("stopped".into(), 3, 3, 0));
    let purge = start(&db, "'work', p_limit => 4").await;
    assert_eq!(finish(&db, purge).await, (4, 0));
    assert_eq!(left(&db).await, ids[7..], "in the order of their ids");
}

#[tokio::test]
async fn a_kept_task_goes_as_well() {
    let (db, worker) = with_worker().await;
    db.run("select tuskline.roll_segments()").await;
    db.schedule("work").await;
    worker.fail_for_good(&worker.take().await).await;
    db.advance(DAY * 2).await;
    db.run("select tuskline.roll_segments()").await;
    assert_eq!(crate::life::retention_by_status::retire(&db).await, 1);
    let purge = start(&db, "p_ended_to => tuskline.clock() - interval '1 day'").await;
    assert_eq!(finish(&db, purge).await, (1, 0));
    assert!(left(&db).await.is_empty());
}

#[tokio::test]
async fn a_task_that_a_chain_or_a_key_or_a_session_waits_for_stays() {
    let (db, worker) = with_worker().await;
    let [parent, awaited, free] = succeeded(&db, &worker, 3).await.try_into().unwrap();
    db.run("select tuskline.set_order('work', 'block')").await;
    let blocks: i64 = db.one("select tuskline.schedule('work', p_ordering_key => 'a')").await;
    db.enqueue_due().await;
    worker.fail_for_good(&worker.take().await).await;
    let child: i64 = db
        .one(&format!(
            r#"select ids[1] from tuskline.schedule_chain('[{{"lambda": "work", "after": [{parent}], "delay_ms": 900000}}]')"#
        ))
        .await;
    db.run(&format!("insert into tuskline_core.awaited values ({awaited}, tuskline.clock())"))
        .await;
    db.advance(MINUTE).await;
    assert_eq!(finish(&db, start(&db, "'work'").await).await, (1, 3));
    assert_eq!(left(&db).await, [parent, awaited, blocks, child]);
    let gone: i64 = db.ask("select count(*) from tuskline.tasks where id = $1", &[&free]).await;
    assert_eq!(gone, 0);
    assert_eq!(db.cancel(child).await, "cancelled");
    db.run("select tuskline.unblock('work', 'a'); delete from tuskline_core.awaited").await;
    assert_eq!(finish(&db, start(&db, "p_ended_to => tuskline.clock()").await).await, (4, 0));
}

#[tokio::test]
async fn what_a_redrive_has_in_hand_stays() {
    let (db, worker) = with_worker().await;
    db.run("insert into tuskline.task (lambda, collection) select 'work', 'news' from generate_series(1, 2)").await;
    db.schedule("work").await;
    let tasks = worker.claim(3).await;
    for task in &tasks {
        worker.fail_for_good(task).await;
    }
    let redrive: i64 = db
        .one("select tuskline.start_operation('redrive', 'work', p_collection => 'news', p_canary => true, p_reason => 'x')")
        .await;
    db.run("select tuskline.run_policies()").await;
    db.enqueue_due().await;
    let canary = worker.take().await;
    worker.succeed(&canary).await;
    db.advance(MINUTE).await;
    // A task that the redrive watches, a task that it has yet to release, and a task of another
    // collection.
    assert_eq!(finish(&db, start(&db, "'work'").await).await, (1, 2));
    assert_eq!(left(&db).await, [tasks[0].id, tasks[1].id]);
    db.run(&format!("select tuskline.stop_operation({redrive})")).await;
    assert_eq!(finish(&db, start(&db, "'work'").await).await, (2, 0));
}

#[tokio::test]
async fn a_key_for_ever_outlives_a_purge_of_its_holder() {
    let (db, worker) = with_worker().await;
    db.run("select tuskline.set_unique('work', 'forever')").await;
    let charge = "select tuskline.schedule('work', p_unique_key => 'order 9')";
    let first: i64 = db.one(charge).await;
    worker.succeed(&worker.take().await).await;
    db.advance(MINUTE).await;
    assert_eq!(finish(&db, start(&db, "'work'").await).await, (1, 0));
    db.run("select tuskline.purge_keys('', '')").await;
    assert_eq!(db.one::<i64>(charge).await, first);
}

#[tokio::test]
async fn it_steps_around_locked_tasks_and_comes_back_to_them() {
    let (db, worker) = with_worker().await;
    let ids = succeeded(&db, &worker, 4).await;
    let dead = db.schedule("work").await;
    worker.fail_for_good(&worker.take().await).await;
    db.advance(MINUTE).await;
    let (reader, operator) = (db.connect().await, db.connect().await);
    let lock = format!("begin; select from tuskline.task where id = {} for share", ids[1]);
    reader.batch_execute(&lock).await.unwrap();
    operator.batch_execute(&format!("begin; select tuskline.retry({dead})")).await.unwrap();
    let purge = start(&db, "'work'").await;
    for _ in 0..4 {
        let (state, _, purged, spared) = advance(&db.client, purge).await;
        assert_eq!((state.as_str(), purged <= 3, spared), ("running", true, 0));
        db.advance(REST).await;
    }
    assert_eq!(left(&db).await, [ids[1], dead]);
    operator.batch_execute("commit").await.unwrap();
    reader.batch_execute("commit").await.unwrap();
    assert_eq!(finish(&db, purge).await, (4, 0));
    assert_eq!((left(&db).await, db.status(dead).await.as_str()), (vec![dead], "new"));
}

#[tokio::test]
async fn a_batch_that_is_not_committed_holds_up_no_session() {
    let (db, worker) = with_worker().await;
    let ids = succeeded(&db, &worker, 500).await;
    db.schedule_many("work", 10).await;
    let held = worker.claim(5).await;
    db.advance(MINUTE).await;
    let purge = start(&db, "'work'").await;
    let purger = db.connect().await;
    let sql = format!("begin; select tuskline.advance_operation({purge}, 1000)");
    purger.batch_execute(&sql).await.unwrap();
    // The purge has deleted all tasks in its transaction, and none outside it.
    assert_eq!(db.count("success").await, 500);
    let fresh = db.worker("work").await;
    for task in &held[..4] {
        assert_eq!(worker.succeed(task).await, Answer::Accepted);
    }
    worker.fail(&held[4]).await;
    assert_eq!(fresh.claim(10).await.len(), 5);
    let new = db.schedule("work").await;
    let task = fresh.take().await;
    assert_eq!((task.id, fresh.succeed(&task).await), (new, Answer::Accepted));
    let later = db.schedule_in("work", DAY).await;
    assert_eq!(db.cancel(later).await, "cancelled");
    db.advance(MINUTE).await;
    assert_eq!(db.enqueue_due().await, 1, "the one that failed");
    db.rescue().await;
    db.run("select tuskline.segments_to_retire(); select tuskline.purge(); select tuskline.purge_kept(); select tuskline.rebuild_queues()").await;
    // Another purge skips all locked tasks.
    let second = start(&db, "p_ended_to => tuskline.clock() - interval '2 minutes'").await;
    db.run(&format!("select tuskline.advance_operation({second}, 1000)")).await;
    let seen =
        format!("select changed, locked from tuskline.operations where operation_id = {second}");
    assert_eq!(db.lines(&seen).await, ["0 | 500"]);
    purger.batch_execute("commit").await.unwrap();
    let gone: i64 =
        db.ask("select count(*) from tuskline.tasks where id = any ($1)", &[&ids]).await;
    assert_eq!((gone, db.count("success").await), (0, 5));
}

#[tokio::test]
async fn what_goes_to_the_table_or_to_a_file_goes_there_first() {
    let (db, worker) = with_worker().await;
    let ids = succeeded(&db, &worker, 4).await;
    db.advance(MINUTE).await;
    db.run("select tuskline.alter_lambda('work', p_archive => 'table')").await;
    assert_eq!(finish(&db, start(&db, "'work', p_limit => 2").await).await, (2, 0));
    let archived: Vec<i64> = db.all("select id from tuskline.task_archive order by id").await;
    assert_eq!(archived, ids[..2]);
    db.run("select tuskline.alter_lambda('work', p_archive => 'file')").await;
    let purge = start(&db, "'work'").await;
    assert_eq!(finish(&db, purge).await, (0, 2));
    let purge = start(&db, "'work', p_files => true").await;
    let said = db.refused(&format!("select tuskline.advance_operation({purge})")).await;
    assert!(said.contains(&format!("TK029 invalid_operation: operation {purge} writes files")));
    db.run("select tuskline.run_policies()").await;
    let advance = format!(
        "select changed, spared, file_ids from tuskline.advance_operation({purge}, 3, true)"
    );
    assert_eq!(db.lines(&advance).await, [format!("0 | 0 | [{},{}]", ids[2], ids[3])]);
    assert_eq!(left(&db).await, ids[2..], "no call has said that they are safe");
    assert_eq!(db.lines(&advance).await, [format!("0 | 0 | [{},{}]", ids[2], ids[3])], "once more");
    let delete = "select tuskline.delete_written($1, $2)";
    assert_eq!(db.ask::<i64>(delete, &[&&ids[2..], &purge]).await, 2);
    assert_eq!((left(&db).await, finish_with_files(&db, purge).await), (vec![], (2, 0)));
}

#[tokio::test]
async fn what_says_not_which_tasks_is_refused() {
    let (db, _worker) = with_worker().await;
    let statuses = "invalid_operation: purge is for tasks that are success, fatal_failure, dead, cancelled, dropped, got";
    for (call, said) in [
        (
            "'purge'",
            "TK029 invalid_operation: say which tasks: purge needs a lambda, ids, a key, a field, statuses, a collection, a fingerprint or a time".to_owned(),
        ),
        ("'purge', 'nobody'", "TK001 unknown_lambda: 'nobody' is not defined".to_owned()),
        ("'purge', p_statuses => '{}'", format!("TK029 {statuses} {{}}")),
        ("'purge', p_statuses => '{new}'", format!("TK029 {statuses} {{new}}")),
        (
            "'purge', 'work', p_limit => 0",
            "TK029 invalid_operation: limit must be at least 1, got 0".to_owned(),
        ),
        (
            "'cancel', 'work', p_files => true",
            "TK029 invalid_operation: files are for a purge, got cancel".to_owned(),
        ),
    ] {
        let answer = db.refused(&format!("select tuskline.start_operation({call})")).await;
        assert!(answer.split_once(": ").unwrap().1.starts_with(&said), "{call}: {answer}");
    }
    assert_eq!(db.one::<i64>("select count(*) from tuskline.operation").await, 0);
}

#[tokio::test]
async fn the_command_writes_files_first_and_leaves_them_out_without_a_directory() {
    let (db, worker) = with_worker().await;
    db.run("select tuskline.alter_lambda('work', p_archive => 'file')").await;
    succeeded(&db, &worker, 7).await;
    let dir = tempfile::tempdir().unwrap();
    let purge = "operation start purge work --older-than 0s --wait --json";
    let without = on(&db.config, purge).run().json();
    assert_eq!((&without["changed"], &without["spared"]), (&0.into(), &7.into()));
    let with = on(&db.config, purge).env("TUSKLINE_ARCHIVE_DIR", dir.path()).run().json();
    assert_eq!((&with["changed"], &with["state"]), (&7.into(), &"done".into()));
    assert!(left(&db).await.is_empty());
    let [file] = &std::fs::read_dir(dir.path()).unwrap().collect::<Vec<_>>()[..] else { panic!() };
    let path = file.as_ref().unwrap().path();
    let name = path.file_name().unwrap().to_str().unwrap().to_owned();
    assert!(
        name.starts_with(&format!("purge_{}_", db.number(2))) && name.ends_with(".jsonl"),
        "{name}"
    );
    assert_eq!(std::fs::read_to_string(path).unwrap().lines().count(), 7);
}

#[tokio::test]
async fn a_command_that_is_killed_leaves_its_files_to_the_next() {
    let (db, worker) = with_worker().await;
    db.run("select tuskline.alter_lambda('work', p_archive => 'file')").await;
    let ids = succeeded(&db, &worker, 5).await;
    let lock = format!("begin; select from tuskline.task where id = {} for share", ids[1]);
    let reader = db.connect().await;
    reader.batch_execute(&lock).await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let purge = "operation start purge work --older-than 0s";
    let running = on(&db.config, purge).env("TUSKLINE_ARCHIVE_DIR", dir.path()).start();
    db.until("select exists (select from tuskline.operation where changed = 4)").await;
    running.signal(Signal::KILL);
    running.end();
    reader.batch_execute("commit").await.unwrap();
    db.advance(REST).await;
    let number = db.number(1);
    let wait = on(&db.config, &format!("operation wait {number}"));
    let said = wait.env("TUSKLINE_ARCHIVE_DIR", dir.path()).run().fine();
    assert_eq!(said, format!("operation {number} is done: changed 5 of 5 tasks\n"));
    let files = std::fs::read_dir(dir.path()).unwrap();
    let lines: usize = files
        .map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap().lines().count())
        .sum();
    assert_eq!((lines, left(&db).await), (5, vec![]));
}
