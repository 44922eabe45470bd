//! I26 and I16: each tick of a schedule becomes one task.

use tuskline_history::Status::{Claimed, Enqueued, Success};
use tuskline_history::{Ended, Event, Periodic};

use crate::story::{DATABASE, END, INJECTOR, Story, WORKER, caught, db_us, green, red};

const NAME: &str = "each";

/// The schedule has a task for its tick in that second of the story, and a record of it.
fn ticks(story: &mut Story, task: i64, second: u64) {
    makes(story, task, second);
    let (name, tick_us, fired_us) =
        (NAME.to_owned(), db_us(second * 1000), db_us(second * 1000 + 20));
    let event = Event::Tick { name, tick_us, task: Some(task), reason: None, fired_us };
    story.note(DATABASE, END + 1000, event);
}

fn makes(story: &mut Story, task: i64, second: u64) {
    let at = second * 1000;
    story.becomes_due(task, None, Enqueued, (0, 0, 0), at + 20, Some(at));
    story.claims(WORKER, task, task, 1, at + 30);
    story.body(WORKER, task, task, at + 40, Some((Ended::Success, at + 100)));
    story.becomes(task, Some(Claimed), Success, (task, 1, 0), at + 110);
    story.row(task, Success, (task, 1, 0));
    story.change(|event| {
        if let Event::Row { task: made, tick, .. } = event
            && *made == task
        {
            *tick = Some((NAME.to_owned(), db_us(at)));
        }
    });
}

/// A tick each second. Ticks of seconds 1 to 3 are owed, as tasks 11 to 13, and that of second 4
/// may be.
fn ticking() -> Story {
    let mut story = Story::one_task();
    for second in 1..=3 {
        ticks(&mut story, 10 + i64::try_from(second).unwrap(), second);
    }
    let periodic = Periodic {
        name: NAME.to_owned(),
        lambda: "mail".to_owned(),
        cron: "* * * * * *".to_owned(),
        zone: "Asia/Kolkata".to_owned(),
        grace_ms: 1_000,
        owed: vec![(db_us(500), db_us(3001))],
        open: vec![(db_us(3001), db_us(4500))],
    };
    story.note(INJECTOR, END, Event::Periodic(periodic));
    story
}

/// Nothing of a task is on record.
fn without(story: &mut Story, gone: i64) {
    story.without(|event| match event {
        Event::Transition { task, .. }
        | Event::Row { task, .. }
        | Event::Tick { task: Some(task), .. }
        | Event::BodyStart { task, .. }
        | Event::BodyTick { task, .. }
        | Event::BodyEnd { task, .. } => *task == gone,
        Event::Claimed { tasks, .. } => tasks.contains(&gone),
        _ => false,
    });
}

fn cron(story: &mut Story, other: &str) {
    story.change(|event| {
        if let Event::Periodic(periodic) = event {
            periodic.cron = other.to_owned();
        }
    });
}

#[test]
fn ticks_that_were_owed_are_counted() {
    let report = green(&ticking());
    assert_eq!(report.invariant("I26").unwrap().checked, 3);
    let ticks = report.ticks;
    assert_eq!((ticks.schedules, ticks.owed, ticks.doubled, ticks.missing), (1, 3, 0, 0));
    assert_eq!((ticks.late.n, ticks.late.max_ms, ticks.made_up_for), (3, 20.0, 0));
}

#[test]
fn ticks_that_had_been_missed_are_told() {
    let mut story = ticking();
    story.change(|event| {
        if let Event::Tick { tick_us, fired_us, .. } = event {
            *fired_us = *tick_us + if *tick_us == db_us(2000) { 1_000_001 } else { 1_000_000 };
        }
    });
    assert_eq!(green(&story).ticks.made_up_for, 1);
}

#[test]
fn a_tick_without_a_task_is_seen() {
    let report = caught(ticking(), &["I26"], |story| without(story, 12));
    assert_eq!(report.ticks.missing, 1);
    let said = &report.invariant("I26").unwrap().details[0].what;
    assert!(said.ends_with("has no task (and no record says why)"), "{said}");
}

#[test]
fn a_tick_that_was_left_out_for_a_reason_is_missing_too() {
    let report = caught(ticking(), &["I26"], |story| {
        without(story, 12);
        let (name, tick_us, fired_us) = (NAME.to_owned(), db_us(2000), db_us(2020));
        let reason = Some("overlap: task 11 has not ended".to_owned());
        let event = Event::Tick { name, tick_us, task: None, reason, fired_us };
        story.note(DATABASE, END + 1000, event);
    });
    assert_eq!(report.ticks.missing, 1);
}

#[test]
fn two_tasks_of_one_tick_are_seen() {
    let report = caught(ticking(), &["I26", "I16"], |story| makes(story, 14, 2));
    assert_eq!((report.ticks.doubled, report.ticks.missing), (1, 0));
}

#[test]
fn a_tick_that_may_have_a_task_may_have_one_only() {
    let mut story = ticking();
    ticks(&mut story, 14, 4);
    caught(story, &["I26", "I16"], |story| makes(story, 15, 4));
}

#[test]
fn a_task_of_a_tick_that_there_is_not_is_seen() {
    caught(ticking(), &["I26"], |story| ticks(story, 15, 5));
    caught(ticking(), &["I26"], |story| cron(story, "*/2 * * * * *"));
    caught(ticking(), &["I26"], |story| story.without(|e| matches!(e, Event::Periodic(_))));
}

#[test]
fn a_task_of_another_lambda_than_the_schedules_is_seen() {
    caught(ticking(), &["I26"], |story| {
        story.change(|event| {
            if let Event::Row { task: 12, lambda, .. } = event {
                *lambda = "sms".to_owned();
            }
        });
    });
}

#[test]
fn a_record_that_names_another_task_is_seen() {
    caught(ticking(), &["I26"], |story| {
        story.change(|event| {
            if let Event::Tick { task: task @ Some(12), .. } = event {
                *task = Some(13);
            }
        });
    });
}

#[test]
fn a_cron_that_cannot_be_counted_proves_nothing() {
    let mut story = ticking();
    cron(&mut story, "0 * * * * *");
    let report = red(&story, &["I26"]);
    let said = &report.invariant("I26").unwrap().details[0].what;
    assert_eq!(said, "no cron library can read 0 * * * * *");
}
