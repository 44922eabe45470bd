//! What the clocks of three zones do twice a year, and which ticks are owed.

use chrono::{NaiveDate, NaiveDateTime, TimeZone as _, Timelike as _};
use chrono_tz::Tz;

use super::*;

fn at(text: &str) -> DateTime<Utc> {
    text.parse().unwrap()
}

fn cron_schedule(cron: &str, zone: &str) -> CronSchedule {
    CronSchedule::parse(cron, zone).unwrap()
}

/// The next ticks after an instant.
fn next(cron: &str, zone: &str, after: &str, count: usize) -> Vec<String> {
    let cron_schedule = cron_schedule(cron, zone);
    let mut last = at(after);
    let mut ticks = Vec::new();
    for _ in 0..count {
        last = cron_schedule.next(last).unwrap().unwrap();
        ticks.push(last.to_rfc3339_opts(chrono::SecondsFormat::Secs, true));
    }
    ticks
}

#[test]
fn a_time_that_is_left_out_ticks_once_at_the_first_instant_after() {
    let berlin = next("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", 2);
    assert_eq!(berlin, ["2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"]);
    let new_york = next("30 2 * * *", "America/New_York", "2026-03-07T12:00:00Z", 2);
    assert_eq!(new_york, ["2026-03-08T07:00:00Z", "2026-03-09T06:30:00Z"]);
    // From 2:00 to 2:30.
    let lord_howe = next("15 2 * * *", "Australia/Lord_Howe", "2026-10-03T00:00:00Z", 2);
    assert_eq!(lord_howe, ["2026-10-03T15:30:00Z", "2026-10-04T15:15:00Z"]);
}

#[test]
fn a_time_that_comes_twice_ticks_the_first_time_only() {
    let berlin = next("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", 2);
    assert_eq!(berlin, ["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"]);
    let new_york = next("30 1 * * *", "America/New_York", "2026-10-31T12:00:00Z", 2);
    assert_eq!(new_york, ["2026-11-01T05:30:00Z", "2026-11-02T06:30:00Z"]);
    // From 2:00 back to 1:30.
    let lord_howe = next("45 1 * * *", "Australia/Lord_Howe", "2026-04-04T00:00:00Z", 2);
    assert_eq!(lord_howe, ["2026-04-04T14:45:00Z", "2026-04-05T15:15:00Z"]);
}

#[test]
fn what_ticks_at_a_distance_goes_on_evenly() {
    for (zone, midday_before) in [
        ("Europe/Berlin", "2026-03-28T12:00:00Z"),
        ("Europe/Berlin", "2026-10-24T12:00:00Z"),
        ("America/New_York", "2026-03-07T12:00:00Z"),
        ("America/New_York", "2026-10-31T12:00:00Z"),
        ("Australia/Lord_Howe", "2026-10-03T00:00:00Z"),
        ("Australia/Lord_Howe", "2026-04-04T00:00:00Z"),
    ] {
        for (cron, seconds) in [("*/5 * * * *", 300), ("* * * * *", 60), ("*/20 * * * * *", 20)] {
            let cron_schedule = cron_schedule(cron, zone);
            let (from, mut last) = (at(midday_before), at(midday_before));
            for tick in cron_schedule.between(from, from + TimeDelta::hours(36)).unwrap() {
                assert_eq!((tick - last).num_seconds(), seconds, "{cron} {zone} {tick}");
                last = tick;
            }
            assert!(last >= from + TimeDelta::hours(36) - TimeDelta::seconds(seconds));
        }
    }
}

/// A pattern, which minutes of a day it means, and whether it is of fixed times.
type Pattern = (&'static str, fn(u32, u32) -> bool, bool);

const PATTERNS: [Pattern; 10] = [
    ("30 2 * * *", |h, m| h == 2 && m == 30, true),
    ("45 1 * * *", |h, m| h == 1 && m == 45, true),
    ("0 3 * * *", |h, m| h == 3 && m == 0, true),
    ("0,15,30,45 1,2 * * *", |h, m| m % 15 == 0 && (h == 1 || h == 2), true),
    ("15-45/15 2 * * *", |h, m| m % 15 == 0 && m > 0 && h == 2, true),
    ("*/15 * * * *", |_, m| m % 15 == 0, false),
    ("0 * * * *", |_, m| m == 0, false),
    ("*/20 1,2 * * *", |h, m| m % 20 == 0 && (h == 1 || h == 2), false),
    ("40 */2 * * *", |h, m| m == 40 && h % 2 == 0, false),
    ("* * * * *", |_, _| true, false),
];

/// The rule, minute by minute.
fn by_the_rule(pattern: &Pattern, zone: Tz, days: [NaiveDate; 3]) -> Vec<DateTime<Utc>> {
    let (_, means, fixed) = pattern;
    let minutes = days.into_iter().flat_map(|day| {
        (0..24 * 60).map(move |minute| day.and_hms_opt(minute / 60, minute % 60, 0).unwrap())
    });
    let mut ticks = Vec::new();
    for local in minutes.filter(|local| means(local.hour(), local.minute())) {
        let instants = zone.from_local_datetime(&local);
        ticks.extend(instants.earliest());
        match fixed {
            true => {
                ticks.extend(after_the_gap(zone, local).filter(|_| instants.earliest().is_none()))
            }
            false => ticks.extend(instants.latest()),
        }
    }
    let mut ticks: Vec<_> = ticks.into_iter().map(|tick| tick.to_utc()).collect();
    ticks.sort();
    ticks.dedup();
    ticks
}

fn after_the_gap(zone: Tz, local: NaiveDateTime) -> Option<DateTime<Tz>> {
    (0..180)
        .find_map(|more| zone.from_local_datetime(&(local + TimeDelta::minutes(more))).earliest())
}

#[test]
fn every_pattern_keeps_the_rule_on_both_days_in_three_zones() {
    for (zone, year, month, day) in [
        (Tz::Europe__Berlin, 2026, 3, 28),
        (Tz::Europe__Berlin, 2026, 10, 24),
        (Tz::America__New_York, 2026, 3, 7),
        (Tz::America__New_York, 2026, 10, 31),
        (Tz::Australia__Lord_Howe, 2026, 10, 3),
        (Tz::Australia__Lord_Howe, 2026, 4, 4),
    ] {
        let first = NaiveDate::from_ymd_opt(year, month, day).unwrap();
        let days = [0, 1, 2].map(|more| first + TimeDelta::days(more));
        let start = zone.from_local_datetime(&first.and_hms_opt(0, 0, 0).unwrap()).unwrap();
        for pattern in &PATTERNS {
            let wanted = by_the_rule(pattern, zone, days);
            let from = start.to_utc() - TimeDelta::seconds(1);
            let end = days[2].and_hms_opt(23, 59, 0).unwrap();
            let end = zone.from_local_datetime(&end).unwrap().to_utc();
            let found = cron_schedule(pattern.0, zone.name()).between(from, end).unwrap();
            assert_eq!(found, wanted, "{} {zone} {first}", pattern.0);
            // From any instant, and not only from a tick, the next is the same.
            for minute in (0..3 * 24 * 60).step_by(7) {
                let after = start.to_utc() + TimeDelta::minutes(minute);
                let next = wanted.iter().find(|tick| **tick > after);
                let Some(next) = next else { break };
                let found = cron_schedule(pattern.0, zone.name()).next(after).unwrap();
                assert_eq!(found.as_ref(), Some(next), "{} {zone} after {after}", pattern.0);
            }
        }
    }
}

#[test]
fn a_cron_has_five_fields_or_six_and_a_zone_a_name() {
    let ticks = next("15 30 2 * * *", "UTC", "2026-01-01T00:00:00Z", 1);
    assert_eq!(ticks, ["2026-01-01T02:30:15Z"]);
    let last_day = next("0 0 L * *", "UTC", "2026-02-01T00:00:00Z", 1);
    assert_eq!(last_day, ["2026-02-28T00:00:00Z"]);
    assert!(CronSchedule::parse("@daily", "UTC").is_ok());
    for wrong in ["", "* * * *", "60 * * * *", "* * * * * * 2030", "a b c d e", "0 0 32 * *"] {
        let said = CronSchedule::parse(wrong, "UTC").unwrap_err();
        assert!(matches!(said, ScheduleError::Cron(..)), "{wrong}: {said}");
    }
    for wrong in ["", "Europe/Berln", "europe", "+01:00"] {
        let said = CronSchedule::parse("* * * * *", wrong).unwrap_err();
        assert_eq!(said, ScheduleError::Zone(wrong.to_owned()));
    }
}

#[test]
fn a_day_that_never_comes_has_no_tick() {
    assert_eq!(cron_schedule("0 0 30 2 *", "UTC").next(at("2026-01-01T00:00:00Z")), Ok(None));
}

/// A schedule that was last looked at then; ticks of the last minute are on time.
fn schedule(cron: &str, since: &str, until: &str, most: usize) -> (Schedule, DateTime<Utc>) {
    let until = at(until);
    let schedule = Schedule {
        name: "nightly".to_owned(),
        version: 1,
        cron: cron.to_owned(),
        zone: "UTC".to_owned(),
        since: at(since),
        on_time: until - TimeDelta::minutes(1),
        max_ticks: most,
        ends: None,
        last_error: None,
    };
    (schedule, until)
}

/// Minutes and seconds of the ticks that are owed, how far, and the next.
fn described(fire: &Fire) -> String {
    let clock = |tick: &DateTime<Utc>| tick.format("%H:%M:%S").to_string();
    let ticks: Vec<_> = fire.ticks.iter().map(clock).collect();
    let next = fire.next.as_ref().map_or_else(|| "none".to_owned(), clock);
    format!("{} until {} then {next}", ticks.join(" "), clock(&fire.until))
}

#[test]
fn what_is_on_time_is_owed_and_the_latest_of_what_was_missed() {
    let owed = |schedule: &(Schedule, DateTime<Utc>)| {
        described(&super::owed(&schedule.0, schedule.1, 1000).unwrap())
    };
    let day = |since, until, most| schedule("*/30 * * * *", since, until, most);
    let usual = day("2026-01-01T11:30:00Z", "2026-01-01T12:00:00Z", 1);
    assert_eq!(owed(&usual), "12:00:00 until 12:00:00 then 12:30:00");
    let early = day("2026-01-01T11:30:00Z", "2026-01-01T11:59:59.9Z", 1);
    assert_eq!(owed(&early), " until 11:59:59 then 12:00:00");
    let down = day("2025-01-01T00:00:00Z", "2026-01-01T12:00:30Z", 1);
    assert_eq!(owed(&down), "11:30:00 12:00:00 until 12:00:30 then 12:30:00");
    let three = day("2025-01-01T00:00:00Z", "2026-01-01T12:01:30Z", 3);
    assert_eq!(owed(&three), "11:00:00 11:30:00 12:00:00 until 12:01:30 then 12:30:00");
    let few = day("2026-01-01T11:00:00Z", "2026-01-01T12:01:30Z", 100);
    assert_eq!(owed(&few), "11:30:00 12:00:00 until 12:01:30 then 12:30:00");
    let mut ends = day("2026-01-01T11:00:00Z", "2026-01-01T12:00:00Z", 1);
    ends.0.ends = Some(at("2026-01-01T12:00:00Z"));
    assert_eq!(owed(&ends), "11:30:00 until 12:00:00 then none");
    let starts_later = day("2026-01-01T17:29:59.999999Z", "2026-01-01T12:00:00Z", 1);
    assert_eq!(owed(&starts_later), " until 12:00:00 then 17:30:00");
}

#[test]
fn what_is_too_much_for_a_call_is_left_for_the_next() {
    let (schedule, until) =
        schedule("* * * * * *", "2026-01-01T00:00:00Z", "2026-01-01T12:00:00Z", 3);
    let first = owed(&schedule, until, 5).unwrap();
    assert_eq!(
        described(&first),
        "11:58:57 11:58:58 11:58:59 11:59:00 11:59:01 until 11:59:01 then 11:59:02"
    );
    let rest = Schedule { since: first.until, ..schedule };
    assert_eq!(owed(&rest, until, 1000).unwrap().ticks.len(), 59);
}

#[test]
fn the_latest_of_a_year_are_found_without_a_look_at_all_of_them() {
    let (from, until) = (at("2025-01-01T00:00:00Z"), at("2026-01-01T00:00:00Z"));
    let ticks = cron_schedule("* * * * * *", "UTC").latest(from, until, 2).unwrap();
    assert_eq!(ticks, [until - TimeDelta::seconds(1), until]);
    let first = cron_schedule("0 0 2 1 *", "UTC").latest(from, until, 5).unwrap();
    assert_eq!(first, [at("2025-01-02T00:00:00Z")]);
    assert!(cron_schedule("0 0 2 1 *", "UTC").latest(until, until, 5).unwrap().is_empty());
}
