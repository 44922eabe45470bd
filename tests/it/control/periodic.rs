//! A tick becomes one task, however many sessions fire it and however often. Late, overlapping and
//! paused ticks follow the settings of their schedule.

use std::time::Duration;

use futures_util::future::join_all;
use tokio_postgres::Client;

use crate::support::{Db, ScriptedWorker, refusal};

const MINUTE: Duration = Duration::from_secs(60);
const DAY: i64 = 86_400;

/// A store with a lambda, and a clock that stands.
async fn store() -> (Db, ScriptedWorker) {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    let worker = db.worker("work").await;
    (db, worker)
}

/// Defines the schedule `nightly` of `work`, with these settings.
async fn define(db: &Db, settings: &str) -> String {
    let settings = if settings.is_empty() { String::new() } else { format!(", {settings}") };
    db.one(&format!("select tuskline.define_periodic('nightly', 'work', '* * * * *'{settings})"))
        .await
}

/// Fires ticks of so many seconds ago under the current version. Returns the number of tasks, or
/// none if the caller must read the schedule again.
async fn fire(db: &Db, seconds_ago: &[i64]) -> Option<i32> {
    fire_by(&db.client, seconds_ago).await
}

const FIRE: &str = "
    select tuskline.fire_periodic('nightly', s.version, c.now, array(select c.now - ago * interval '1 second' from unnest($1::bigint[]) as ago),
                                  c.now + interval '1 minute')
      from tuskline.periodic s, (select tuskline.clock() as now) c";

async fn fire_by(session: &Client, seconds_ago: &[i64]) -> Option<i32> {
    match session.query_one(FIRE, &[&seconds_ago]).await {
        Ok(row) => row.get(0),
        Err(error) => panic!("{}", refusal(&error)),
    }
}

/// Names of the schedules that are due.
async fn due(db: &Db) -> Vec<String> {
    db.one("select coalesce(names, '{}') from tuskline.due_periodic()").await
}

/// The outcome of every tick: its age in seconds, and its task or the reason why it has none.
async fn ticks(db: &Db) -> Vec<String> {
    db.lines(
        "select extract(epoch from tuskline.clock() - tick)::integer as ago, task_id, reason from tuskline.tick order by tick",
    )
    .await
}

async fn tasks(db: &Db) -> i64 {
    db.one("select count(*) from tuskline.task").await
}

#[tokio::test]
async fn a_tick_becomes_one_task_that_was_due_at_the_tick() {
    let (db, worker) = store().await;
    define(&db, "p_payload => '{\"n\": 1}', p_collection => 'eu', p_priority => 'high'").await;
    assert_eq!(due(&db).await, ["nightly"], "its first tick is to be calculated");
    db.advance(MINUTE).await;
    assert_eq!(fire(&db, &[30]).await, Some(1));
    assert_eq!(
        (ticks(&db).await, due(&db).await),
        (vec![format!("30 | {} | -", db.id(1))], vec![])
    );
    let task = db.lines("select lambda, collection, priority, payload::text, due_at = (select tick from tuskline.tick) on_tick from tuskline.tasks").await;
    assert_eq!(task, [r#"work | eu | high | {"n": 1} | true"#]);
    assert_eq!((worker.take().await.id, worker.claim(9).await.len()), (db.id(1), 0));
    let shown = db.lines("select enabled, last_tick = (select tick from tuskline.tick) last, next_tick > tuskline.clock() next, last_task, last_status, problem from tuskline.periodics").await;
    assert_eq!(shown, [format!("true | true | true | {} | claimed | -", db.id(1))]);
}

#[tokio::test]
async fn a_tick_calculated_for_another_version_is_refused() {
    let (db, _worker) = store().await;
    define(&db, "").await;
    for change in [
        "select tuskline.define_periodic('nightly', 'work', '* * * * *', p_priority => 'low')",
        "select tuskline.pause_periodic('nightly')",
        "select tuskline.resume_periodic('nightly')",
        "select tuskline.fire_periodic('nightly', version, tuskline.clock(), '{}', null) from tuskline.periodic",
        "select tuskline.drop_periodic('nightly'), tuskline.define_periodic('nightly', 'work', '* * * * *')",
    ] {
        let seen: i64 = db.one("select version from tuskline.periodic").await;
        db.run(change).await;
        let sql = "select tuskline.fire_periodic('nightly', $1, tuskline.clock(), array[tuskline.clock()], null)";
        assert_eq!(db.ask::<Option<i32>>(sql, &[&seen]).await, None, "{change}");
    }
    assert_eq!(tasks(&db).await, 0);
}

/// Fires the next five seconds that are due, up to now. Returns false if none are due.
const NEXT_FIVE: &str = "
    with d as (select * from tuskline.due_periodic()),
         w as (select d.*, date_trunc('second', d.sinces[1]) as since, least(date_trunc('second', d.sinces[1]) + interval '5 s', d.until) as upto from d)
    select w.names is not null,
           tuskline.fire_periodic('nightly', w.versions[1], w.upto, array(select g from generate_series(w.since, w.upto, '1 s') g where g > w.sinces[1] and g <= w.upto),
                                  date_trunc('second', w.upto) + interval '1 s')
      from w";

#[tokio::test]
async fn sessions_that_race_for_the_same_ticks_fire_each_once() {
    let (db, _worker) = store().await;
    define(&db, "p_missed => 'all', p_missed_most => 1000").await;
    db.advance(Duration::from_secs(600)).await;
    let sessions = join_all((0..6).map(|_| db.connect())).await;
    let fired = join_all(sessions.iter().map(|session| async move {
        let mut fired = 0;
        loop {
            let row = session.query_one(NEXT_FIVE, &[]).await;
            let row = row.unwrap_or_else(|error| panic!("{}", refusal(&error)));
            if !row.get::<_, bool>(0) {
                return fired;
            }
            fired += row.get::<_, Option<i32>>(1).unwrap_or(0);
        }
    }))
    .await;
    assert_eq!((fired.iter().sum::<i32>(), tasks(&db).await), (600, 600));
    let seen = "select count(distinct scheduled_at) || ' ' || count(distinct date_trunc('second', scheduled_at)) from tuskline.task";
    assert_eq!(db.one::<String>(seen).await, "600 600");
    assert_eq!(
        db.one::<i64>("select count(*) from tuskline.tick where task_id is not null").await,
        600
    );
}

#[tokio::test]
async fn a_tick_of_a_server_that_dies_before_its_commit_is_fired_by_another() {
    let (db, _worker) = store().await;
    define(&db, "").await;
    let dying = db.connect().await;
    dying.batch_execute("begin").await.unwrap();
    assert_eq!(fire_by(&dying, &[0]).await, Some(1));
    // The second call does not wait for the first.
    assert_eq!(fire(&db, &[0]).await, None);
    dying.batch_execute("rollback").await.unwrap();
    assert_eq!((fire(&db, &[0]).await, tasks(&db).await), (Some(1), 1));
}

#[tokio::test]
async fn a_tick_is_not_fired_again_when_the_clock_has_stepped_back() {
    let (db, _worker) = store().await;
    define(&db, "").await;
    db.advance(MINUTE).await;
    assert_eq!(fire(&db, &[0]).await, Some(1));
    db.turn_back(MINUTE / 2).await;
    assert_eq!(due(&db).await, ["nightly"], "ticks that come again are looked at again");
    assert_eq!(fire(&db, &[]).await, Some(0));
    assert!(due(&db).await.is_empty());
    db.advance(MINUTE / 2).await;
    assert_eq!((fire(&db, &[0]).await, tasks(&db).await), (Some(0), 1));
}

#[tokio::test]
async fn a_server_that_was_told_of_a_later_time_looks_again() {
    let (db, _worker) = store().await;
    define(&db, "").await;
    let ahead = "select tuskline.fire_periodic('nightly', version, tuskline.clock() + interval '1 s', '{}', null) from tuskline.periodic";
    assert_eq!(db.one::<Option<i32>>(ahead).await, None);
}

#[tokio::test]
async fn missed_ticks_are_skipped_fired_once_or_all_as_the_schedule_says() {
    for (settings, fired, said) in [
        (
            "p_missed => 'skip'",
            1,
            vec!["240 | - | missed", "180 | - | missed", "120 | - | missed", "60 | 1 | -"],
        ),
        (
            "p_missed => 'once'",
            2,
            vec!["240 | - | missed", "180 | - | missed", "120 | 1 | -", "60 | 2 | -"],
        ),
        (
            "p_missed => 'all', p_missed_most => 2",
            3,
            vec!["240 | - | missed", "180 | 1 | -", "120 | 2 | -", "60 | 3 | -"],
        ),
        ("p_missed => 'all'", 4, vec!["240 | 1 | -", "180 | 2 | -", "120 | 3 | -", "60 | 4 | -"]),
        (
            "p_missed => 'skip', p_grace => '3 minutes'",
            3,
            vec!["240 | - | missed", "180 | 1 | -", "120 | 2 | -", "60 | 3 | -"],
        ),
    ] {
        let (db, _worker) = store().await;
        define(&db, settings).await;
        db.advance(MINUTE * 5).await;
        assert_eq!(fire(&db, &[60, 120, 240, 180]).await, Some(fired), "{settings}");
        let became: Vec<_> = ticks(&db)
            .await
            .iter()
            .map(|tick| tick.split(':').next().unwrap().to_owned())
            // The lines name tasks by their position, not by their id.
            .map(|tick| {
                (1..=4).fold(tick, |line, nth| {
                    line.replace(&format!("| {} |", db.id(nth)), &format!("| {nth} |"))
                })
            })
            .collect();
        assert_eq!(became, said, "{settings}");
    }
}

#[tokio::test]
async fn a_server_is_told_what_is_owed_and_how_much_of_what_was_missed() {
    let (db, _worker) = store().await;
    define(&db, "p_missed => 'all', p_missed_most => 7, p_grace => '2 minutes'").await;
    let query = "select extract(epoch from until - sinces[1])::integer as since, extract(epoch from until - on_times[1])::integer as on_time,
                       max_ticks[1], crons[1], zones[1], ends[1], next_due_ms from tuskline.due_periodic()";
    db.advance(MINUTE).await;
    assert_eq!(db.lines(query).await, ["60 | 120 | 7 | * * * * * | UTC | - | 0"]);
    fire(&db, &[0]).await;
    db.advance(MINUTE / 2).await;
    let next = "select names, next_due_ms from tuskline.due_periodic()";
    assert_eq!(db.lines(next).await, ["- | 30000"]);
    define(&db, "p_missed => 'once', p_starts_at => tuskline.clock() + interval '1 hour', p_ends_at => tuskline.clock() + interval '2 hours'").await;
    let query = "select extract(epoch from sinces[1] - until)::numeric(12, 6) as since, max_ticks[1], ends[1] = until + interval '2 hours' as ends from tuskline.due_periodic()";
    assert_eq!(db.lines(query).await, ["3599.999999 | 1 | true"]);
}

#[tokio::test]
async fn every_schedule_is_told_a_page_at_a_time_and_those_that_are_due_in_any_order() {
    let (db, _worker) = store().await;
    db.run("select tuskline.define_periodic('s' || n, 'work', '0 0 1 1 *') from generate_series(1, 5) n").await;
    let page = async |after: &str| {
        db.one::<String>(&format!("select coalesce(array_to_string(names, ' '), '') from tuskline.due_periodic(2, '{after}')")).await
    };
    assert_eq!(
        [page("").await, page("s2").await, page("s4").await, page("s5").await],
        ["s1 s2", "s3 s4", "s5", ""]
    );
    let mut orders: Vec<String> = Vec::new();
    for _ in 0..50 {
        orders
            .push(db.one("select array_to_string(names, ' ') from tuskline.due_periodic()").await);
    }
    orders.sort();
    orders.dedup();
    assert!(orders.len() > 1, "servers that begin with the same one get in each other's way");
}

#[tokio::test]
async fn a_tick_beside_a_task_that_has_not_ended_is_allowed_skipped_or_queued() {
    let (db, worker) = store().await;
    define(&db, "p_overlap => 'skip'").await;
    assert_eq!(fire(&db, &[0]).await, Some(1));
    let first = worker.take().await;
    db.advance(MINUTE).await;
    assert_eq!(fire(&db, &[0]).await, Some(0));
    assert_eq!(
        ticks(&db).await,
        [
            format!("60 | {} | -", db.id(1)),
            format!("0 | - | overlap: task {} has not ended", db.id(1))
        ]
    );
    define(&db, "p_overlap => 'allow'").await;
    db.advance(MINUTE).await;
    assert_eq!((fire(&db, &[0]).await, worker.take().await.id), (Some(1), db.id(2)));
    worker.succeed(&first).await;
    define(&db, "p_overlap => 'skip'").await;
    db.advance(MINUTE).await;
    assert_eq!(fire(&db, &[0]).await, Some(0), "the latest task counts, not the first");
}

#[tokio::test]
async fn queued_ticks_run_one_after_the_other_however_each_ends() {
    let (db, worker) = store().await;
    define(&db, "p_overlap => 'queue', p_payload => '7', p_collection => 'eu', p_priority => 'low', p_missed => 'all'").await;
    db.advance(MINUTE).await;
    assert_eq!(fire(&db, &[20, 10, 0]).await, Some(3));
    let seen = db.lines("select t.lambda, t.collection, t.priority, t.payload::text, t.due_at = k.tick as on_tick from tuskline.tasks t join tuskline.tick k on k.task_id = t.id order by k.tick").await;
    assert_eq!(seen, ["work | eu | low | 7 | true"; 3]);
    let order: Vec<i64> = db.all("select task_id from tuskline.tick order by tick").await;
    for (at, id) in order.iter().enumerate() {
        db.enqueue_due().await;
        let task = worker.take().await;
        assert_eq!((task.id, worker.claim(9).await.len()), (*id, 0));
        match at {
            0 => worker.fail_for_good(&task).await,
            _ => worker.succeed(&task).await,
        };
    }
    assert_eq!(fire(&db, &[0]).await, Some(0), "that one was fired");
    db.advance(MINUTE).await;
    assert_eq!(fire(&db, &[0]).await, Some(1));
    assert_eq!(worker.claim(9).await.len(), 1, "no task to wait for");
}

#[tokio::test]
async fn a_pause_counts_at_once_and_its_ticks_are_not_owed() {
    let (db, _worker) = store().await;
    define(&db, "p_missed => 'all'").await;
    fire(&db, &[]).await;
    db.advance(MINUTE).await;
    assert!(db.one::<bool>("select tuskline.pause_periodic('nightly', 'noise')").await);
    assert_eq!((due(&db).await, fire(&db, &[0]).await), (vec![], None));
    assert_eq!(define(&db, "p_missed => 'all'").await, "unchanged");
    assert_eq!(define(&db, "p_missed => 'once'").await, "changed");
    assert_eq!(
        (due(&db).await, fire(&db, &[0]).await),
        (vec![], None),
        "a deploy does not resume it"
    );
    assert_eq!(db.lines("select enabled, problem from tuskline.periodics").await, ["false | -"]);
    db.advance(MINUTE * 5).await;
    assert!(db.one::<bool>("select tuskline.resume_periodic('nightly')").await);
    let since =
        "select extract(epoch from until - sinces[1])::integer from tuskline.due_periodic()";
    assert_eq!((due(&db).await, db.one::<i32>(since).await), (vec!["nightly".to_owned()], 0));
    db.advance(MINUTE).await;
    assert!(db.one::<bool>("select tuskline.resume_periodic('nightly')").await);
    assert_eq!(db.one::<i32>(since).await, 60, "what runs is left as it is");
    assert!(!db.one::<bool>("select tuskline.pause_periodic('weekly')").await);
    let audit = db
        .lines(
            "select verb, subject, detail from tuskline.audit where verb ~ '_periodic' order by at",
        )
        .await;
    assert_eq!(audit[1..2], ["pause_periodic | periodic nightly | noise"]);
    assert_eq!(
        (audit.len(), audit.last().unwrap().as_str()),
        (4, "resume_periodic | periodic nightly | -")
    );
}

#[tokio::test]
async fn the_same_definition_again_changes_nothing_and_loses_no_tick() {
    let (db, _worker) = store().await;
    let settings = "'{\"n\": 1}', 'Europe/Berlin', 'eu', 'high', 'all', 9, '2 min', 'queue', '2030-01-01', '2031-01-01'";
    assert_eq!(define(&db, settings).await, "defined");
    let before = db.lines("select * from tuskline.periodic").await;
    db.advance(MINUTE).await;
    assert_eq!(define(&db, settings).await, "unchanged");
    assert_eq!(db.lines("select * from tuskline.periodic").await, before);
    for (from, to) in [
        ("\"n\": 1", "\"n\":  1"),
        ("'eu'", "null"),
        ("high", "low"),
        ("all", "once"),
        ("9", "8"),
        ("2 min", "3 min"),
        ("queue", "skip"),
    ] {
        let since = "select done_until from tuskline.periodic";
        let owed: chrono::DateTime<chrono::Utc> = db.one(since).await;
        assert_eq!(define(&db, &settings.replace(from, to)).await, "changed", "{to}");
        assert_eq!(db.one::<chrono::DateTime<chrono::Utc>>(since).await, owed, "{to}");
    }
}

#[tokio::test]
async fn a_changed_cron_starts_again() {
    let (db, _worker) = store().await;
    define(&db, "p_zone => 'UTC'").await;
    for settings in [
        "p_zone => 'Europe/Berlin'",
        "p_zone => 'Europe/Berlin', p_starts_at => '2020-01-01'",
        "p_zone => 'Europe/Berlin', p_ends_at => '2120-01-01'",
    ] {
        fire(&db, &[]).await;
        db.run("select tuskline.note_schedule_error('nightly', version, 'it was unreadable') from tuskline.periodic").await;
        db.advance(MINUTE).await;
        assert_eq!(define(&db, settings).await, "changed");
        let now = "select done_until = tuskline.clock() done, next_tick, last_error from tuskline.periodic";
        assert_eq!(db.lines(now).await, ["true | - | -"], "{settings}");
    }
    let other = "select tuskline.define_periodic('nightly', 'work', ' 0  3 * * * ', p_zone => 'Europe/Berlin', p_ends_at => '2120-01-01')";
    assert_eq!(db.one::<String>(other).await, "changed");
    assert_eq!(db.one::<String>("select cron from tuskline.periodic").await, "0 3 * * *");
}

#[tokio::test]
async fn what_the_store_refuses_is_told_and_the_schedule_goes_on() {
    let (db, worker) = store().await;
    define(&db, "p_payload => '\"abcdefgh\"'").await;
    db.run("select tuskline.alter_lambda('work', p_max_payload_bytes => 5)").await;
    assert_eq!(fire(&db, &[0]).await, Some(0));
    let said = "its last tick was refused: TK004 payload_too_large: at most 5 bytes, got 10";
    assert_eq!(db.one::<String>("select problem from tuskline.periodics").await, said);
    db.run("select tuskline.alter_lambda('work', p_max_payload_bytes => 50)").await;
    db.advance(MINUTE).await;
    assert_eq!((fire(&db, &[0]).await, worker.claim(9).await.len()), (Some(1), 1));
    assert_eq!(db.lines("select problem from tuskline.periodics").await, ["-"]);
}

#[tokio::test]
async fn any_other_error_leaves_the_tick_to_be_fired() {
    let (db, _worker) = store().await;
    define(&db, "").await;
    db.run("alter table tuskline.queued rename to queued_away").await;
    let refused = FIRE.replace("$1::bigint[]", "array[0]");
    assert!(db.refused(&refused).await.starts_with("42P01"));
    db.run("alter table tuskline.queued_away rename to queued").await;
    assert_eq!((fire(&db, &[0]).await, tasks(&db).await), (Some(1), 1));
}

#[tokio::test]
async fn a_schedule_without_a_server_or_that_none_can_read_says_so() {
    let (db, _worker) = store().await;
    define(&db, "").await;
    let problem = "select problem from tuskline.periodics";
    assert!(db.one::<String>(problem).await.starts_with("no server has calculated"));
    let version: i64 = db.one("select version from tuskline.periodic").await;
    db.run(&format!("select tuskline.note_schedule_error('nightly', {version}, 'no such zone'), tuskline.note_schedule_error('nightly', {version} - 1, 'old')")).await;
    assert_eq!(db.one::<String>(problem).await, "no such zone");
    let due = "select names[1], troubles[1], next_due_ms from tuskline.due_periodic()";
    assert_eq!(db.lines(due).await, ["nightly | no such zone | -"], "looked at, but not at once");
    // Another server may know the zone.
    assert_eq!(fire(&db, &[]).await, Some(0));
    assert_eq!(db.lines(problem).await, ["-"]);
    db.advance(MINUTE * 3).await;
    assert!(db.one::<String>(problem).await.starts_with("its next tick is due"));
}

#[tokio::test]
async fn a_schedule_without_a_tick_ahead_is_at_rest() {
    let (db, _worker) = store().await;
    define(&db, "").await;
    let last = "select tuskline.fire_periodic('nightly', version, tuskline.clock(), '{}', null) from tuskline.periodic";
    assert_eq!(db.one::<Option<i32>>(last).await, Some(0));
    let at_rest = "select names, next_due_ms from tuskline.due_periodic()";
    assert_eq!(db.lines(at_rest).await, ["- | -"]);
    assert_eq!(db.lines("select next_tick, problem from tuskline.periodics").await, ["- | -"]);
}

#[tokio::test]
async fn what_is_calculated_again_and_is_the_same_writes_nothing() {
    let (db, _worker) = store().await;
    define(&db, "").await;
    let again = "select tuskline.fire_periodic('nightly', version, tuskline.clock(), '{}', '2100-01-01') from tuskline.periodic";
    assert_eq!(db.one::<Option<i32>>(again).await, Some(0));
    let version: i64 = db.one("select version from tuskline.periodic").await;
    db.advance(MINUTE).await;
    assert_eq!(db.one::<Option<i32>>(again).await, Some(0));
    assert_eq!(db.one::<i64>("select version from tuskline.periodic").await, version);
}

#[tokio::test]
async fn ticks_that_cannot_be_those_of_the_schedule_are_refused() {
    let (db, _worker) = store().await;
    define(&db, "p_starts_at => tuskline.clock() - interval '1 minute', p_ends_at => tuskline.clock() + interval '1 minute'").await;
    db.advance(MINUTE * 2).await;
    for (ticks, next) in [
        ("array[c.now + interval '1 s']", "null"),
        ("array[c.now - interval '4 minutes']", "null"),
        ("array[c.now - interval '1 minute']", "null"),
        ("array[null]::timestamptz[]", "null"),
        ("array['-infinity']::timestamptz[]", "null"),
        ("array_fill(c.now - interval '90 s', array[1001])", "null"),
        ("'{}'", "c.now"),
        ("'{}'", "c.now + interval '1 s'"),
    ] {
        let sql = format!(
            "select tuskline.fire_periodic('nightly', s.version, c.now, {ticks}, {next}) from tuskline.periodic s, (select tuskline.clock() as now) c"
        );
        let said = db.refused(&sql).await;
        assert!(said.starts_with("TK024: TK024 invalid_tick: "), "{ticks} {next}: {said}");
    }
    assert_eq!(fire_up_to_its_end(&db).await, Some(1));
}

async fn fire_up_to_its_end(db: &Db) -> Option<i32> {
    db.one("select tuskline.fire_periodic('nightly', version, tuskline.clock(), array[ends_at - interval '1 s'], null) from tuskline.periodic").await
}

#[tokio::test]
async fn a_definition_that_makes_no_sense_is_refused() {
    let (db, _worker) = store().await;
    db.run("select tuskline.alter_lambda('work', p_max_payload_bytes => 10)").await;
    let good = ["'nightly'", "'work'", "'* * * * *'", "p_zone => 'UTC'"];
    let with = |at: usize, text: &'static str| {
        let mut words = good;
        words[at] = text;
        words.join(", ")
    };
    let and = |more: &str| format!("{}, {more}", good.join(", "));
    for (arguments, said) in [
        (with(0, "'Nightly'"), "TK002"),
        (with(0, "null"), "TK002"),
        (with(1, "'nobody'"), "TK001"),
        (with(1, "null"), "TK001"),
        (
            with(2, "null"),
            "TK023 invalid_periodic: cron must have 5 fields, or 6 with seconds, got null",
        ),
        (with(2, "'* * * *'"), "TK023"),
        (with(2, "'* * * * * * *'"), "TK023"),
        (with(2, "'* * * * ' || repeat('1', 200)"), "TK023"),
        (with(3, "p_zone => 'Europe Berlin'"), "TK023 invalid_periodic: zone"),
        (and("p_payload => '\"123456789\"'"), "TK004"),
        (and("p_payload => '\"\\u0000\"'"), "TK003"),
        (and("p_collection => 'A'"), "TK002"),
        (and("p_priority => 'urgent'"), "TK006"),
        (and("p_missed => 'twice'"), "TK023 invalid_periodic: missed"),
        (and("p_missed_most => 0"), "TK023 invalid_periodic: missed_max"),
        (and("p_missed_most => 1001"), "TK023"),
        (and("p_grace => '0'"), "TK023 invalid_periodic: grace"),
        (and("p_grace => '61 minutes'"), "TK023"),
        (and("p_overlap => 'both'"), "TK023 invalid_periodic: overlap"),
        (and("p_starts_at => 'infinity'"), "TK023 invalid_periodic: starts_at"),
        (and("p_starts_at => '2030-01-01', p_ends_at => '2030-01-01'"), "TK023"),
    ] {
        let refused = db.refused(&format!("select tuskline.define_periodic({arguments})")).await;
        assert!(refused[7..].starts_with(said), "{arguments}: {refused}");
        assert!(!refused.contains('\n'));
    }
    assert_eq!(db.one::<i64>("select count(*) from tuskline.periodic").await, 0);
}

#[tokio::test]
async fn a_schedule_that_was_dropped_fires_no_more_and_its_tasks_stay() {
    let (db, worker) = store().await;
    define(&db, "").await;
    assert_eq!(fire(&db, &[0]).await, Some(1));
    assert!(db.one::<bool>("select tuskline.drop_periodic('nightly', 'no use')").await);
    assert!(!db.one::<bool>("select tuskline.drop_periodic('nightly')").await);
    assert!(due(&db).await.is_empty());
    assert_eq!(worker.claim(9).await.len(), 1);
    let audit: String =
        db.one("select detail from tuskline.audit where verb = 'drop_periodic'").await;
    assert_eq!(audit, "work * * * * * UTC no use");
}

#[tokio::test]
async fn a_change_of_a_schedule_wakes_the_servers() {
    let (db, _worker) = store().await;
    let mut ear = db.ear(&["tuskline_periodic"]).await;
    for (change, heard) in [
        ("select tuskline.define_periodic('nightly', 'work', '* * * * *')", 1),
        ("select tuskline.define_periodic('nightly', 'work', '* * * * *')", 0),
        ("select tuskline.define_periodic('nightly', 'work', '0 * * * *')", 1),
        ("select tuskline.pause_periodic('nightly')", 1),
        ("select tuskline.pause_periodic('nightly')", 0),
        ("select tuskline.resume_periodic('nightly')", 1),
        ("select tuskline.drop_periodic('nightly')", 1),
    ] {
        db.run(change).await;
        assert_eq!(ear.heard().await.len(), heard, "{change}");
    }
}

#[tokio::test]
async fn two_deploys_at_once_define_a_schedule_once() {
    let (db, _worker) = store().await;
    let other = db.connect().await;
    other
        .batch_execute("begin; select tuskline.define_periodic('nightly', 'work', '* * * * *')")
        .await
        .unwrap();
    let pid: i32 = db.one("select pg_backend_pid()").await;
    let watch = db.connect().await;
    let both = async {
        let waits = "select cardinality(pg_blocking_pids($1)) > 0";
        while !watch.query_one(waits, &[&pid]).await.unwrap().get::<_, bool>(0) {
            tokio::task::yield_now().await;
        }
        other.batch_execute("commit").await.unwrap();
    };
    let (said, ()) = tokio::join!(define(&db, ""), both);
    assert_eq!((said.as_str(), due(&db).await.len()), ("unchanged", 1));
}

#[tokio::test]
async fn old_ticks_go_but_none_that_its_schedule_may_have_to_know_of() {
    let (db, _worker) = store().await;
    define(&db, "p_missed => 'all'").await;
    assert_eq!(fire(&db, &[9 * DAY, 8 * DAY, 0]).await, Some(3));
    db.run("insert into tuskline.tick select 'gone', tuskline.clock() - n * interval '1 day', n, null, tuskline.clock() from generate_series(1, 20) n").await;
    let purge = async || db.one::<i64>("select tuskline.purge(10)").await;
    assert_eq!([purge().await, purge().await, purge().await], [10, 5, 0]);
    let left = "select name, count(*) from tuskline.tick group by name order by name";
    assert_eq!(db.lines(left).await, ["gone | 7", "nightly | 1"]);
    db.advance(Duration::from_secs(30 * 86_400)).await;
    purge().await;
    assert_eq!(db.lines(left).await, ["nightly | 1"]);
}
