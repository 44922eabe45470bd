//! A cron or a time zone that no server can read is refused where it is defined.

use tuskline::periodic::CronSchedule;

use crate::support::Db;

/// Each line of the list: whether it can be read, and the cron.
fn crons() -> Vec<(bool, String)> {
    let lines = include_str!("crons.txt").lines().filter(|line| !line.starts_with('#'));
    let read = |line: &str| match line.split_once(' ').unwrap() {
        ("yes", cron) => (true, serde_json::from_str(cron.trim()).unwrap()),
        ("no", cron) => (false, serde_json::from_str(cron.trim()).unwrap()),
        _ => panic!("neither yes nor no: {line}"),
    };
    lines.map(read).collect()
}

#[tokio::test]
async fn sql_and_the_servers_judge_every_cron_alike() {
    let db = Db::new().await;
    let (expected, texts): (Vec<bool>, Vec<String>) = crons().into_iter().unzip();
    assert!(texts.len() >= 500, "{} crons", texts.len());
    let sql = "select tuskline_core.cron_error(c) from unnest($1::text[]) with ordinality as u (c, n) order by n";
    let said = db.client.query(sql, &[&texts]).await.unwrap();
    let mut wrong = Vec::new();
    for ((cron, readable), said) in texts.iter().zip(expected).zip(said) {
        let (by_sql, by_server) =
            (said.get::<_, Option<String>>(0), CronSchedule::parse(cron, "UTC"));
        if by_sql.is_none() != readable || by_server.is_ok() != readable {
            wrong
                .push(format!("{cron:?} {readable}: SQL {by_sql:?}, server {:?}", by_server.err()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn every_cron_that_is_accepted_has_a_tick() {
    let now = chrono::Utc::now();
    for (_, cron) in crons().iter().filter(|(readable, _)| *readable) {
        let cron_schedule = CronSchedule::parse(cron, "Europe/Berlin").unwrap();
        assert!(cron_schedule.next(now).unwrap().is_some(), "{cron:?}");
    }
}

#[tokio::test]
async fn a_schedule_that_would_never_fire_is_refused_with_what_is_wrong() {
    let db = Db::with_lambda("work").await;
    for (cron, zone, said) in [
        ("99 * * * *", "UTC", "cron must have a minute of 0 to 59, got '99'"),
        ("0 0 L-3 * *", "UTC", "cron must have a day of the month of 1 to 31, got 'L-3'"),
        ("0 0 * * FRI#6", "UTC", "cron must have a day of the week of 0 to 7, got '5#6'"),
        ("@midnight", "UTC", "cron must have 5 fields, or 6 with seconds, got '@midnight'"),
        ("* * * * \u{17f}UN", "UTC", "cron must have only ASCII characters, got"),
        ("* * * * *", "Mars/Phobos", "zone must be the name of a time zone"),
        ("* * * * *", "europe/berlin", "zone must be the name of a time zone"),
        ("* * * * *", "+02", "zone must be the name of a time zone"),
        ("* * * * *", "posixrules", "zone must be the name of a time zone"),
    ] {
        let sql = "select tuskline.define_periodic('nightly', 'work', $1, p_zone => $2)";
        let error = db.client.query_one(sql, &[&cron, &zone]).await.unwrap_err();
        let refused = error.as_db_error().unwrap().message();
        let expected = format!("TK023 invalid_periodic: {said}");
        assert!(refused.starts_with(&expected), "{cron} {zone}: {refused}");
    }
}

/// PostgreSQL has its own list; some systems leave the old names out.
#[tokio::test]
async fn the_zones_that_are_accepted_are_those_that_the_servers_know() {
    let db = Db::new().await;
    let accepted: Vec<String> = db.all("select name from tuskline_core.time_zone").await;
    assert!(accepted.len() > 500, "{}", accepted.len());
    for zone in &accepted {
        assert!(CronSchedule::parse("@daily", zone).is_ok(), "{zone}");
    }
    let others = "select name from pg_timezone_names where name not in (select name from tuskline_core.time_zone)";
    for zone in db.all::<String>(others).await {
        assert!(CronSchedule::parse("@daily", &zone).is_err(), "{zone} would be refused");
    }
}
