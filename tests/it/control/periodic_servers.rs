//! Any number of servers fire the ticks of schedules, each once, through whatever happens to them.

use std::time::Duration;

use tokio_util::sync::{CancellationToken, DropGuard};
use tuskline::config::PeriodicOptions;

use crate::support::Db;

/// Starts a server that reacts to notifications, or polls once an hour.
fn server(db: &Db) -> DropGuard {
    let options =
        PeriodicOptions { longest_nap: Duration::from_secs(3600), ..PeriodicOptions::default() };
    let token = CancellationToken::new();
    tokio::spawn(tuskline::periodic::run(
        db.config.clone(),
        options,
        tuskline::recovery::RoleHealth::default(),
        token.clone(),
    ));
    token.drop_guard()
}

async fn define(db: &Db, cron: &str, settings: &str) {
    db.run(&format!("select tuskline.define_periodic('nightly', 'work', '{cron}'{settings})"))
        .await;
}

/// Waits until so many ticks have become tasks.
async fn until_fired(db: &Db, ticks: i64) {
    db.until(&format!("select count(*) >= {ticks} from tuskline.tick where task_id is not null"))
        .await;
}

/// Every second from the first tick to the last has one task, and there is no other.
async fn assert_one_task_each_second(db: &Db) {
    let gaps = "select count(*) from (select scheduled_at - lag(scheduled_at) over (order by scheduled_at) as step from tuskline.task) s where step <> '1 s'";
    assert_eq!(db.one::<i64>(gaps).await, 0);
    let both = "select (select count(*) from tuskline.task) = count(task_id) and count(*) = count(task_id) from tuskline.tick";
    assert!(db.one::<bool>(both).await);
}

#[tokio::test]
async fn three_servers_fire_every_second_once() {
    let db = Db::with_lambda("work").await;
    let _servers = [server(&db), server(&db), server(&db)];
    define(&db, "* * * * * *", "").await;
    until_fired(&db, 4).await;
    assert_one_task_each_second(&db).await;
}

#[tokio::test]
async fn servers_that_come_and_go_miss_no_tick() {
    let db = Db::with_lambda("work").await;
    define(&db, "* * * * * *", "").await;
    for ticks in 1..=4 {
        let server = server(&db);
        until_fired(&db, ticks).await;
        drop(server);
    }
    let cut = "select count(pg_terminate_backend(pid)) from pg_stat_activity
                where datname = current_database() and application_name = 'tuskline periodic'";
    let _server = server(&db);
    until_fired(&db, 5).await;
    assert!(db.one::<i64>(cut).await >= 1);
    until_fired(&db, 7).await;
    assert_one_task_each_second(&db).await;
}

#[tokio::test]
async fn a_change_reaches_a_server_that_sleeps() {
    let db = Db::with_lambda("work").await;
    let _server = server(&db);
    define(&db, "0 0 1 1 *", "").await;
    db.until("select coalesce(next_tick > tuskline.clock(), false) from tuskline.periodic").await;
    db.run("select tuskline.pause_periodic('nightly')").await;
    define(&db, "* * * * * *", "").await;
    db.run("select tuskline.resume_periodic('nightly')").await;
    until_fired(&db, 2).await;
    db.run("select tuskline.pause_periodic('nightly')").await;
    assert_one_task_each_second(&db).await;
}

#[tokio::test]
async fn what_was_missed_is_made_up_for_when_a_server_comes() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    define(&db, "* * * * *", ", p_missed => 'all', p_missed_most => 5").await;
    db.advance(Duration::from_secs(3600 * 24 * 40)).await;
    let _server = server(&db);
    db.until("select coalesce(next_tick > tuskline.clock(), false) from tuskline.periodic").await;
    let late = "select count(*) filter (where fired_at - tick > '1 minute') || ' late, ' || count(*) filter (where fired_at - tick <= '1 minute') || ' on time' from tuskline.tick";
    assert_eq!(db.one::<String>(late).await, "5 late, 1 on time");
    let apart = "select max(step) from (select tick - lag(tick) over (order by tick) as step from tuskline.tick) s";
    assert_eq!(db.one::<String>(&format!("select ({apart})::text")).await, "00:01:00");
    db.advance(Duration::from_secs(60)).await;
    // The test moved the clock, so it sends the notification itself.
    db.run("notify tuskline_periodic").await;
    until_fired(&db, 7).await;
}

#[tokio::test]
async fn one_that_cannot_be_read_is_shown_and_stops_none_but_itself() {
    let db = Db::with_lambda("work").await;
    let _server = server(&db);
    for name in ["cron", "zone"] {
        db.run(&format!("select tuskline.define_periodic('{name}', 'work', '* * * * *')")).await;
    }
    // A server of another version could define these schedules, which this server cannot read.
    db.run(
        "update tuskline.periodic set cron = '61 * * * *', next_tick = null,
           version = nextval('tuskline.periodic_version_seq') where name = 'cron';
         update tuskline.periodic set zone = 'Mars/Olympus', next_tick = null,
           version = nextval('tuskline.periodic_version_seq') where name = 'zone'",
    )
    .await;
    define(&db, "* * * * * *", "").await;
    until_fired(&db, 2).await;
    db.until("select count(problem) = 2 from tuskline.periodics").await;
    let said = db
        .lines(
            "select name, problem from tuskline.periodics where problem is not null order by name",
        )
        .await;
    assert!(said[0].starts_with("cron | cron '61 * * * *' is not understood: "), "{}", said[0]);
    assert_eq!(
        said[1],
        "zone | time zone 'Mars/Olympus' is not known; give one like Europe/Berlin"
    );
    db.run(
        "select tuskline.define_periodic('zone', 'work', '* * * * * *', p_zone => 'Europe/Berlin')",
    )
    .await;
    db.until("select count(*) > 1 from tuskline.tick where name = 'zone'").await;
    assert_eq!(db.one::<i64>("select count(problem) from tuskline.periodics").await, 1);
}

#[tokio::test]
async fn one_that_cannot_be_fired_stops_none_but_itself() {
    let db = Db::with_lambda("work").await;
    db.run(
        "create function refuse_bad() returns trigger language plpgsql as $$ begin raise exception 'not this one'; end $$;
         create trigger refuse_bad before insert on tuskline.tick for each row when (new.name = 'bad') execute function refuse_bad();
         select tuskline.define_periodic('bad', 'work', '* * * * * *')",
    )
    .await;
    define(&db, "* * * * * *", "").await;
    let _server = server(&db);
    until_fired(&db, 3).await;
    assert_one_task_each_second(&db).await;
    let said = "select problem from tuskline.periodics where name = 'bad'";
    assert_eq!(db.one::<String>(said).await, "not this one");
    db.run("drop trigger refuse_bad on tuskline.tick").await;
    db.until("select count(problem) = 0 from tuskline.periodics").await;
}

#[tokio::test]
async fn a_server_that_starts_calculates_every_next_tick_again() {
    let db = Db::with_lambda("work").await;
    define(&db, "* * * * * *", "").await;
    db.run("select tuskline.define_periodic('s' || n, 'work', '0 0 1 1 *') from generate_series(1, 120) n").await;
    // A server with other rules of the zone could have set these times.
    db.run("update tuskline.periodic set next_tick = tuskline.clock() + interval '10 years'").await;
    let _server = server(&db);
    until_fired(&db, 2).await;
    db.until(
        "select max(next_tick) < tuskline.clock() + interval '2 years' from tuskline.periodic",
    )
    .await;
}

#[tokio::test]
async fn the_clocks_of_the_zone_count() {
    let db = Db::with_lambda("work").await;
    db.run("update tuskline_test.pin set at = '2026-10-24 22:00:00+00'").await;
    define(&db, "30 2 * * *", ", p_zone => 'Europe/Berlin'").await;
    let _server = server(&db);
    for next in ["2026-10-25 00:30:00+00", "2026-10-26 01:30:00+00", "2026-10-27 01:30:00+00"] {
        db.until(&format!("select coalesce(next_tick = '{next}', false) from tuskline.periodic"))
            .await;
        db.run(&format!("update tuskline_test.pin set at = '{next}'; notify tuskline_periodic"))
            .await;
        db.until(&format!(
            "select exists (select from tuskline.task where scheduled_at = '{next}')"
        ))
        .await;
    }
}
