//! Each status may have a retention of its own. A few tasks that stay longer hold no segment.

use std::time::Duration;

use crate::support::{Db, ScriptedWorker};

const DAY: Duration = Duration::from_secs(86_400);

/// A hundred tasks of a segment that is full a day later: so many cancelled, the rest succeeded.
async fn hundred(cancelled: usize) -> Db {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    db.run("select tuskline.alter_lambda('work', p_cancelled_retention => '90 days'); select tuskline.roll_segments()").await;
    let worker = db.worker("work").await;
    db.schedule_many("work", 100).await;
    let tasks = worker.claim(100).await;
    for task in &tasks[..cancelled] {
        worker.stopped(task).await;
    }
    worker.succeed_all(&tasks[cancelled..]).await;
    db.advance(DAY).await;
    assert_eq!(db.one::<i32>("select tuskline.roll_segments()").await, 1);
    db
}

async fn to_retire(db: &Db) -> Vec<i64> {
    db.all("select * from tuskline.segments_to_retire()").await
}

/// Performs the janitor's steps for a segment; returns the number of tasks kept.
pub async fn retire(db: &Db) -> i64 {
    let no = db.first_segment();
    let kept = db.one(&format!("select tuskline.keep_remaining({no})")).await;
    db.run(&format!(
        "alter table tuskline_core.task_store detach partition tuskline_core.task_{no} concurrently"
    ))
    .await;
    assert!(db.one::<bool>(&format!("select tuskline.keep_late({no})")).await);
    db.run(&format!("drop table tuskline_core.task_{no}")).await;
    db.run(&format!("select tuskline.purge_history({no})")).await;
    db.run(&format!("select tuskline.return_kept({no})")).await;
    kept
}

async fn spans(db: &Db) -> Vec<String> {
    db.lines(
        "select s, tuskline_core.kept_for(l, s) from tuskline.lambda l, unnest(enum_range(null::tuskline.status)) s
          where l.name = 'work' order by s",
    )
    .await
}

#[tokio::test]
async fn a_status_without_a_retention_of_its_own_has_the_general_one() {
    let db = Db::with_lambda("work").await;
    let waits = ["new", "enqueued", "claimed", "processing", "retriable_failure"];
    let expect = |ended: [&str; 5]| -> Vec<String> {
        let waits = waits.iter().map(|status| format!("{status} | -"));
        let names = ["success", "fatal_failure", "dead", "cancelled", "dropped"];
        let ended = names.iter().zip(ended).map(|(name, span)| format!("{name} | {span}"));
        waits.chain(ended).collect()
    };
    assert_eq!(spans(&db).await, expect(["7 days", "30 days", "30 days", "7 days", "7 days"]));
    db.run(
        "select tuskline.alter_lambda('work', p_cancelled_retention => '1 day', p_dropped_retention => '2 days',
           p_fatal_retention => '3 days')",
    )
    .await;
    assert_eq!(spans(&db).await, expect(["7 days", "3 days", "30 days", "1 day", "2 days"]));
    db.run(
        "select tuskline.alter_lambda('work', p_as_others => array['cancelled', 'fatal_failure'])",
    )
    .await;
    assert_eq!(spans(&db).await, expect(["7 days", "30 days", "30 days", "7 days", "2 days"]));
    db.define_with("other", "p_fatal_retention => '1 hour', p_archive => 'table'").await;
    let other = db
        .lines("select fatal_retention, archive from tuskline.lambdas where name = 'other'")
        .await;
    assert_eq!(other, ["01:00:00 | table"]);
}

#[tokio::test]
async fn settings_of_retention_that_make_no_sense_are_refused() {
    let db = Db::with_lambda("work").await;
    for (setting, said) in [
        (
            "p_cancelled_retention => '-1 day'",
            "cancelled_retention must be 0 to 3650 days, got -1 days",
        ),
        (
            "p_dropped_retention => '4000 days'",
            "dropped_retention must be 0 to 3650 days, got 4000 days",
        ),
        ("p_fatal_retention => '-1 day'", "fatal_retention must be 0 to 3650 days, got -1 days"),
        ("p_archive => 'tape'", "archive must be none, table or file, got 'tape'"),
        (
            "p_as_others => array['dead']",
            "as_others must name cancelled, dropped or fatal_failure, got {dead}",
        ),
    ] {
        let answer = db.refused(&format!("select tuskline.alter_lambda('work', {setting})")).await;
        assert!(answer.ends_with(&format!("TK009 invalid_setting: {said}")), "{answer}");
    }
    let answer = db.refused("select tuskline.define_lambda('other', p_archive => null)").await;
    assert!(answer.ends_with("archive must be none, table or file, got null"), "{answer}");
}

#[tokio::test]
async fn a_fiftieth_that_stays_longer_outlives_its_segment() {
    let db = hundred(2).await;
    db.advance(DAY * 6 - Duration::from_secs(1)).await;
    assert!(to_retire(&db).await.is_empty(), "a second too early for the others");
    db.advance(Duration::from_secs(1)).await;
    assert_eq!(to_retire(&db).await, [db.first_segment()]);
    assert_eq!(retire(&db).await, 2);
    assert_eq!((db.count("cancelled").await, db.count("success").await), (2, 0));
    db.advance(DAY * 83).await;
    assert_eq!(db.one::<i64>("select gone from tuskline.purge_kept()").await, 2);
    assert_eq!(db.count("cancelled").await, 0);
}

#[tokio::test]
async fn more_than_a_fiftieth_holds_its_segment() {
    let db = hundred(3).await;
    db.advance(DAY * 60).await;
    assert!(to_retire(&db).await.is_empty());
    db.advance(DAY * 29).await;
    assert_eq!(to_retire(&db).await, [db.first_segment()]);
    assert_eq!(retire(&db).await, 0);
}

#[tokio::test]
async fn a_retention_that_is_taken_back_is_heeded_at_once() {
    let db = hundred(3).await;
    db.advance(DAY * 6).await;
    assert!(to_retire(&db).await.is_empty());
    db.run("select tuskline.alter_lambda('work', p_as_others => array['cancelled'])").await;
    assert_eq!(to_retire(&db).await, [db.first_segment()]);
}

/// A dead task and a fatal one, which stays for a day only.
async fn failed() -> (Db, ScriptedWorker, i64, i64) {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    db.run("select tuskline.alter_lambda('work', p_fatal_retention => '1 day', p_max_attempts => 1); select tuskline.roll_segments()").await;
    let worker = db.worker("work").await;
    let [fatal, dead] = db.schedule_many("work", 2).await.try_into().unwrap();
    let tasks = worker.claim(2).await;
    worker.fail_for_good(&tasks[0]).await;
    worker.fail(&tasks[1]).await;
    (db, worker, fatal, dead)
}

#[tokio::test]
async fn a_fatal_failure_past_its_own_retention_does_not_return() {
    let (db, _worker, fatal, dead) = failed().await;
    let listed = async || db.all::<i64>("select id from tuskline.dead_letters order by id").await;
    assert_eq!(listed().await, [fatal, dead]);
    db.advance(DAY).await;
    assert_eq!(listed().await, [dead]);
    let groups = db.lines("select tasks, latest_id from tuskline.dead_groups").await;
    assert_eq!(groups, [format!("1 | {dead}")]);
    for whose in ["'work'".to_owned(), format!("p_ids => array[{fatal}, {dead}]")] {
        let preview =
            format!("select first_ids from tuskline.preview_operation('redrive', {whose})");
        assert_eq!(db.one::<Vec<i64>>(&preview).await, [dead]);
    }
    assert_eq!(db.one::<String>(&format!("select tuskline.retry({fatal})")).await, "unknown");
    assert_eq!(db.one::<String>(&format!("select tuskline.retry({dead})")).await, "retried");
}

#[tokio::test]
async fn a_fatal_failure_past_its_own_retention_goes_with_its_segment() {
    let (db, _worker, fatal, dead) = failed().await;
    db.advance(DAY).await;
    db.run("select tuskline.roll_segments()").await;
    assert_eq!(to_retire(&db).await, [db.first_segment()], "failures hold no segment");
    assert_eq!(retire(&db).await, 1);
    let left: Vec<i64> = db.all("select id from tuskline.tasks").await;
    assert_eq!(left, [dead]);
    let gone: i64 =
        db.ask("select count(*) from tuskline.task_failure where task_id = $1", &[&fatal]).await;
    assert_eq!(gone, 0);
}
