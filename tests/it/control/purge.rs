//! A purge deletes what it is told to and nothing that somebody needs, and nobody waits for it.

use std::time::Duration;

use rustix::process::Signal;
use tokio_postgres::Client;

use crate::support::cli::on;
use crate::support::{Answer, Db, Hand};

const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(86_400);

async fn with_hand() -> (Db, Hand) {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    let hand = db.hand("work").await;
    (db, hand)
}

/// So many that have succeeded.
async fn succeeded(db: &Db, hand: &Hand, count: i32) -> Vec<i64> {
    let ids = db.schedule_many("work", count).await;
    hand.succeed_all(&hand.claim(count).await).await;
    ids
}

async fn start(db: &Db, what: &str) -> i64 {
    db.one(&format!("select tuskline.start_purge({what})")).await
}

/// A batch of three; state, looked, purged and spared.
async fn advance(session: &Client, purge: i64) -> (String, i64, i64, i64) {
    let sql = "select state, looked, purged, spared from tuskline.advance_purge($1, 3)";
    let row = session.query_one(sql, &[&purge]).await.unwrap();
    (row.get(0), row.get(1), row.get(2), row.get(3))
}

/// To its end; how many went and how many were spared.
async fn finish(db: &Db, purge: i64) -> (i64, i64) {
    loop {
        match advance(&db.client, purge).await {
            (state, _, purged, spared) if state != "running" => return (purged, spared),
            _ => {}
        }
    }
}

async fn left(db: &Db) -> Vec<i64> {
    db.all("select id from tuskline.tasks order by id").await
}

#[tokio::test]
async fn only_what_the_filter_names_goes_a_batch_at_a_time() {
    let (db, hand) = with_hand().await;
    db.define("other").await;
    db.run("insert into tuskline.task (lambda, collection) values ('work', 'news'), ('work', 'news'), ('work', null)").await;
    let tasks = hand.claim(3).await;
    hand.fail_for_good(&tasks[0]).await;
    hand.succeed_all(&tasks[1..]).await;
    let other = db.hand("other").await;
    db.schedule("other").await;
    other.succeed(&other.take().await).await;
    let waits = db.schedule("work").await;
    db.advance(MINUTE).await;
    let young = db.schedule("other").await;
    other.succeed(&other.take().await).await;
    for (filter, expected) in [
        ("'work'", 3),
        ("'work', array['success', 'dead']", 2),
        ("p_collection => 'news'", 2),
        ("p_statuses => array['success'], p_collection => 'news'", 1),
        ("p_statuses => array['success']", 3),
        ("p_older_than => '0'", 5),
        ("p_older_than => '61 seconds'", 0),
    ] {
        db.run("begin").await;
        let purge = start(&db, filter).await;
        let counted: i64 = db
            .ask(
                "select coalesce(sum(tasks), 0)::bigint from tuskline.preview_purge($1)",
                &[&purge],
            )
            .await;
        assert_eq!((counted, finish(&db, purge).await), (expected, (expected, 0)), "{filter}");
        db.run("rollback").await;
    }
    let purge =
        start(&db, "p_statuses => array['success', 'fatal_failure'], p_reason => 'x'").await;
    let preview = db.lines(&format!("select * from tuskline.preview_purge({purge})")).await;
    assert_eq!(preview, ["other | success | 1", "work | success | 2", "work | fatal_failure | 1"]);
    assert_eq!(advance(&db.client, purge).await, ("running".into(), 3, 3, 0));
    assert_eq!(finish(&db, purge).await, (4, 0));
    assert_eq!(left(&db).await, [waits, young]);
    assert_eq!(db.one::<i64>("select count(*) from tuskline.task_failure").await, 0);
    assert_eq!(db.one::<i64>("select count(*) from tuskline.dead_letter").await, 0);
    let audit =
        db.lines("select subject, detail from tuskline.audit where verb = 'start_purge'").await;
    assert_eq!(audit, [format!("all lambdas | purge {purge} {{success,fatal_failure}} x")]);
    assert_eq!(advance(&db.client, purge).await.0, "done");
    assert!(!db.one::<bool>(&format!("select tuskline.stop_purge({purge})")).await);
}

#[tokio::test]
async fn it_goes_on_where_it_stood_and_ends_where_it_is_told_or_has_enough() {
    let (db, hand) = with_hand().await;
    let ids = succeeded(&db, &hand, 10).await;
    db.advance(MINUTE).await;
    let purge = start(&db, "'work'").await;
    assert_eq!(advance(&db.client, purge).await, ("running".into(), 3, 3, 0));
    assert!(db.one::<bool>(&format!("select tuskline.stop_purge({purge})")).await);
    assert_eq!(advance(&db.client, purge).await, ("stopped".into(), 3, 3, 0));
    let purge = start(&db, "'work', p_limit => 4").await;
    assert_eq!(finish(&db, purge).await, (4, 0));
    assert_eq!(left(&db).await, ids[7..], "in the order of their ids");
}

#[tokio::test]
async fn a_kept_task_goes_as_well() {
    let (db, hand) = with_hand().await;
    db.run("select tuskline.roll_segments()").await;
    db.schedule("work").await;
    hand.fail_for_good(&hand.take().await).await;
    db.advance(DAY * 2).await;
    db.run("select tuskline.roll_segments()").await;
    assert_eq!(crate::life::retention_by_status::retire(&db).await, 1);
    let purge = start(&db, "p_older_than => '1 day'").await;
    assert_eq!(finish(&db, purge).await, (1, 0));
    assert!(left(&db).await.is_empty());
}

#[tokio::test]
async fn what_a_chain_or_a_key_or_somebody_waits_for_stays() {
    let (db, hand) = with_hand().await;
    let [parent, awaited, free] = succeeded(&db, &hand, 3).await.try_into().unwrap();
    db.run("select tuskline.set_order('work', 'block')").await;
    let blocks: i64 = db.one("select tuskline.schedule('work', p_ordering_key => 'a')").await;
    db.enqueue_due().await;
    hand.fail_for_good(&hand.take().await).await;
    let child: i64 = db
        .one(&format!(
            r#"select ids[1] from tuskline.schedule_chain('[{{"lambda": "work", "after": [{parent}], "delay_ms": 900000}}]')"#
        ))
        .await;
    db.run(&format!("insert into tuskline.awaited values ({awaited}, tuskline.clock())")).await;
    db.advance(MINUTE).await;
    assert_eq!(finish(&db, start(&db, "'work'").await).await, (1, 3));
    assert_eq!(left(&db).await, [parent, awaited, blocks, child]);
    let gone: i64 = db.ask("select count(*) from tuskline.tasks where id = $1", &[&free]).await;
    assert_eq!(gone, 0);
    assert_eq!(db.cancel(child).await, "cancelled");
    db.run("select tuskline.unblock('work', 'a'); delete from tuskline.awaited").await;
    assert_eq!(finish(&db, start(&db, "p_older_than => '0'").await).await, (4, 0));
}

#[tokio::test]
async fn what_a_redrive_has_in_hand_stays() {
    let (db, hand) = with_hand().await;
    db.run("insert into tuskline.task (lambda, collection) select 'work', 'news' from generate_series(1, 2)").await;
    db.schedule("work").await;
    let tasks = hand.claim(3).await;
    for task in &tasks {
        hand.fail_for_good(task).await;
    }
    let redrive: i64 = db
        .one("select tuskline.redrive('work', p_collection => 'news', p_canary => true, p_reason => 'x')")
        .await;
    db.run("select tuskline.promote()").await;
    db.enqueue_due().await;
    let canary = hand.take().await;
    hand.succeed(&canary).await;
    db.advance(MINUTE).await;
    // One that it watches, one that it is to let go, and one of another collection.
    assert_eq!(finish(&db, start(&db, "'work'").await).await, (1, 2));
    assert_eq!(left(&db).await, [tasks[0].id, tasks[1].id]);
    db.run(&format!("select tuskline.stop_redrive({redrive})")).await;
    assert_eq!(finish(&db, start(&db, "'work'").await).await, (2, 0));
}

#[tokio::test]
async fn a_key_for_ever_outlives_a_purge_of_its_holder() {
    let (db, hand) = with_hand().await;
    db.run("select tuskline.set_unique('work', 'forever')").await;
    let charge = "select tuskline.schedule('work', p_unique_key => 'order 9')";
    let first: i64 = db.one(charge).await;
    hand.succeed(&hand.take().await).await;
    db.advance(MINUTE).await;
    assert_eq!(finish(&db, start(&db, "'work'").await).await, (1, 0));
    db.run("select tuskline.purge_keys('', '')").await;
    assert_eq!(db.one::<i64>(charge).await, first);
}

#[tokio::test]
async fn it_steps_around_what_somebody_has_locked() {
    let (db, hand) = with_hand().await;
    let ids = succeeded(&db, &hand, 4).await;
    let dead = db.schedule("work").await;
    hand.fail_for_good(&hand.take().await).await;
    db.advance(MINUTE).await;
    let (reader, operator) = (db.connect().await, db.connect().await);
    let lock = format!("begin; select from tuskline.task where id = {} for share", ids[1]);
    reader.batch_execute(&lock).await.unwrap();
    operator.batch_execute(&format!("begin; select tuskline.retry({dead})")).await.unwrap();
    assert_eq!(finish(&db, start(&db, "'work'").await).await, (3, 2));
    operator.batch_execute("commit").await.unwrap();
    reader.batch_execute("commit").await.unwrap();
    assert_eq!(finish(&db, start(&db, "'work'").await).await, (1, 0));
    assert_eq!((left(&db).await, db.status(dead).await.as_str()), (vec![dead], "new"));
}

#[tokio::test]
async fn a_batch_that_is_not_committed_holds_nobody_up() {
    let (db, hand) = with_hand().await;
    let ids = succeeded(&db, &hand, 500).await;
    db.schedule_many("work", 10).await;
    let held = hand.claim(5).await;
    db.advance(MINUTE).await;
    let purge = start(&db, "'work'").await;
    let purger = db.connect().await;
    let sql = format!("begin; select tuskline.advance_purge({purge}, 1000)");
    purger.batch_execute(&sql).await.unwrap();
    // All of it is deleted there, and nothing of it here.
    assert_eq!(db.count("success").await, 500);
    let fresh = db.hand("work").await;
    for task in &held[..4] {
        assert_eq!(hand.succeed(task).await, Answer::Accepted);
    }
    hand.fail(&held[4]).await;
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
    // Another purge steps around all of it.
    let second = start(&db, "p_older_than => '2 minutes'").await;
    assert_eq!(finish(&db, second).await, (0, 500));
    purger.batch_execute("commit").await.unwrap();
    let gone: i64 =
        db.ask("select count(*) from tuskline.tasks where id = any ($1)", &[&ids]).await;
    assert_eq!((gone, db.count("success").await), (0, 5));
}

#[tokio::test]
async fn what_goes_to_the_table_or_to_a_file_goes_there_first() {
    let (db, hand) = with_hand().await;
    let ids = succeeded(&db, &hand, 4).await;
    db.advance(MINUTE).await;
    db.run("select tuskline.alter_lambda('work', p_archive => 'table')").await;
    assert_eq!(finish(&db, start(&db, "'work', p_limit => 2").await).await, (2, 0));
    let archived: Vec<i64> = db.all("select id from tuskline.task_archive order by id").await;
    assert_eq!(archived, ids[..2]);
    db.run("select tuskline.alter_lambda('work', p_archive => 'file')").await;
    let purge = start(&db, "'work'").await;
    assert_eq!(finish(&db, purge).await, (0, 2));
    let purge = start(&db, "'work'").await;
    let advance =
        format!("select purged, spared, file_ids from tuskline.advance_purge({purge}, 3, true)");
    assert_eq!(db.lines(&advance).await, [format!("0 | 0 | [{},{}]", ids[2], ids[3])]);
    assert_eq!(left(&db).await, ids[2..], "nobody has said that they are safe");
    let delete = "select tuskline.delete_written($1, $2)";
    assert_eq!(db.ask::<i64>(delete, &[&&ids[2..], &purge]).await, 2);
    let purged: i64 =
        db.one("select max(purged) from tuskline.purge_run where state = 'running'").await;
    assert_eq!((left(&db).await, purged), (vec![], 2));
}

#[tokio::test]
async fn what_says_not_which_tasks_is_refused() {
    let (db, _hand) = with_hand().await;
    for (call, said) in [
        (
            "start_purge()",
            "TK030 invalid_purge: say which tasks: give a lambda, statuses, a collection or an age",
        ),
        ("start_purge('nobody')", "TK001 unknown_lambda: 'nobody' is not defined"),
        (
            "start_purge(p_statuses => '{}')",
            "TK030 invalid_purge: statuses must be some of success, fatal_failure, dead, cancelled, dropped, got {}",
        ),
        (
            "start_purge(p_statuses => '{new}')",
            "TK030 invalid_purge: statuses must be some of success, fatal_failure, dead, cancelled, dropped, got {new}",
        ),
        (
            "start_purge(p_older_than => '-1 s')",
            "TK030 invalid_purge: older_than must be 0 to 3650 days, got -00:00:01",
        ),
        (
            "start_purge('work', p_limit => 0)",
            "TK030 invalid_purge: limit must be at least 1, got 0",
        ),
        ("advance_purge(77)", "TK030 invalid_purge: there is no purge 77"),
    ] {
        let told = db.refused(&format!("select tuskline.{call}")).await;
        assert_eq!(told.split_once(": ").unwrap().1, said, "{call}");
    }
    assert_eq!(db.one::<i64>("select count(*) from tuskline.purge_run").await, 0);
}

#[tokio::test]
async fn the_command_writes_files_first_and_leaves_them_out_without_a_directory() {
    let (db, hand) = with_hand().await;
    db.run("select tuskline.alter_lambda('work', p_archive => 'file')").await;
    succeeded(&db, &hand, 7).await;
    let dir = tempfile::tempdir().unwrap();
    let purge = "purge --lambda work --older-than 0s --batch 3 --json";
    let without = on(&db.config, purge).run().json();
    assert_eq!((&without["purged"], &without["spared"]), (&0.into(), &7.into()));
    let with = on(&db.config, purge).env("TUSKLINE_ARCHIVE_DIR", dir.path()).run().json();
    assert_eq!((&with["purged"], &with["state"]), (&7.into(), &"done".into()));
    assert!(left(&db).await.is_empty());
    let [file] = &std::fs::read_dir(dir.path()).unwrap().collect::<Vec<_>>()[..] else { panic!() };
    let path = file.as_ref().unwrap().path();
    let name = path.file_name().unwrap().to_str().unwrap().to_owned();
    assert!(name.starts_with("purge_2_") && name.ends_with(".jsonl"), "{name}");
    assert_eq!(std::fs::read_to_string(path).unwrap().lines().count(), 7);
}

#[tokio::test]
async fn the_command_ends_after_its_batch_when_it_is_interrupted() {
    let (db, hand) = with_hand().await;
    succeeded(&db, &hand, 2_000).await;
    let running = on(&db.config, "purge --lambda work --older-than 0s --batch 1").start();
    db.until("select exists (select from tuskline.purge_run where purged > 0)").await;
    let holder = db.connect().await;
    holder.batch_execute("begin; select from tuskline.purge_run for update").await.unwrap();
    running.signal(Signal::INT);
    holder.batch_execute("commit").await.unwrap();
    let ran = running.end();
    assert_eq!(ran.code, 1, "{}", ran.out);
    let (state, purged): (String, i64) = (
        db.one("select state from tuskline.purge_run").await,
        db.one("select purged from tuskline.purge_run").await,
    );
    assert_eq!(state, "stopped");
    assert!(ran.out.contains(&format!("purge 1 is stopped before its end: {purged} of ")));
    assert_eq!(i64::try_from(left(&db).await.len()).unwrap(), 2_000 - purged);
}

#[tokio::test]
async fn the_command_fails_when_somebody_else_has_stopped_it_and_says_who() {
    let (db, hand) = with_hand().await;
    succeeded(&db, &hand, 2_000).await;
    let running = on(&db.config, "purge --lambda work --older-than 0s --batch 1").start();
    db.until("select exists (select from tuskline.purge_run where purged > 0)").await;
    assert!(db.one::<bool>("select tuskline.stop_purge(1)").await);
    let ran = running.end();
    assert_eq!(ran.code, 1, "{}", ran.out);
    assert!(ran.out.contains("purge 1 is stopped before its end: "), "{}", ran.out);
    let who: String = db.one("select session_user::text").await;
    assert_eq!(ran.err, format!("error: purge 1 was stopped by {who} before its end\n"));
}
