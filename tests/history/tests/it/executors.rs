//! I9, I12, I28 and I31 where a host controller holds the lease and another process runs the body.

use tuskline_history::Status::{Claimed, Enqueued, Success};
use tuskline_history::{Actor, Ended, Event, LockAnswer};

use crate::story::{INJECTOR, OTHER, Story, WORKER, caught, green, red};

/// The guardian above `WORKER`, and an executor of each of the two controllers.
const GUARDIAN: u32 = 31;
const EXECUTOR: u32 = 41;
const ANOTHER: u32 = 42;

fn ended(why: &str) -> Event {
    Event::ProcessEnded { pid: EXECUTOR, why: why.to_owned(), tasks: vec![1] }
}

/// `EXECUTOR` has task 1 in hand when its process ends at 300 ms. The task goes back, and succeeds in `ANOTHER`.
fn given_back(why: &str, crashes: i16) -> Story {
    let mut story = Story::idle();
    for (controller, guardian, executor) in
        [(WORKER, GUARDIAN, EXECUTOR), (OTHER, GUARDIAN + 1, ANOTHER)]
    {
        story.note(controller, 1, Event::Guarded { guardian });
        story.opens(executor, Actor::Hosted, 50);
        story.note(executor, 50, Event::Guarded { guardian });
    }
    story.scheduled(1, 100);
    story.claims(WORKER, 1, 5, 1, 110);
    story.body(EXECUTOR, 1, 5, 120, None);
    story.note(WORKER, 300, ended(why));
    story.becomes(1, Some(Claimed), Enqueued, (5, 0, crashes), 302);
    story.claims_after(OTHER, 1, (6, 1, crashes), 304);
    story.body(ANOTHER, 1, 6, 308, Some((Ended::Success, 390)));
    // The injector was late to see it.
    story.note(INJECTOR, 310, Event::Reaped { pid: EXECUTOR, code: None, signal: None });
    story.becomes(1, Some(Claimed), Success, (6, 1, 0), 400);
    story.row(1, Success, (6, 1, 0));
    story
}

#[test]
fn the_word_of_its_controller_explains_a_repeat() {
    let report = green(&given_back("overdue", 0));
    assert_eq!((report.repeats["process was ended"], report.overlaps), (1, 0));
    let report = green(&given_back("exit 1", 1));
    assert_eq!(report.repeats["process ended"], 1);
    // Without it, a charged crash does; a task that goes back uncharged has another end than its process's.
    let untold = |crashes| {
        let mut story = given_back("overdue", crashes);
        story.without(|event| matches!(event, Event::ProcessEnded { .. }));
        green(&story).repeats
    };
    assert_eq!((untold(1)["rescue"], untold(0)["release"]), (1, 1));
    // Nor does the end of the process explain that a fence runs twice.
    caught(given_back("overdue", 0), &["I12"], |story| {
        story.body(EXECUTOR, 1, 5, 130, None);
    });
}

/// The executor is free to run while its controller stands still: the guardian has to end it.
#[test]
fn a_controller_that_stood_still_excuses_no_overlap() {
    let held = |story: &mut Story| {
        story.change(|event| {
            if let Event::BodyStart { fence: 6, lock, .. } = event {
                *lock = LockAnswer::Held { pid: EXECUTOR, fence: 5 };
            }
        });
    };
    let report = caught(given_back("overdue", 0), &["I9"], held);
    assert_eq!((report.overlaps, report.overlaps_by_lock, report.overlaps_by_interval), (1, 1, 0));
    let mut frozen = given_back("overdue", 0);
    held(&mut frozen);
    frozen.stops(WORKER, 115, 3000);
    frozen.stops(EXECUTOR, 115, 300);
    assert_eq!(frozen.report().overlaps, 1);
    // Only the kernel saw the holder, which had not written its beginning.
    frozen.without(|event| matches!(event, Event::BodyStart { fence: 5, .. }));
    assert_eq!(frozen.report().overlaps, 1);
}

#[test]
fn a_body_runs_under_the_registration_of_its_controller() {
    let lost = |controller: u32| {
        let mut story = given_back("overdue", 0);
        story.note(controller, 320, Event::Lost { why: "no heartbeat".to_owned() });
        story.report().violated().contains(&"I28")
    };
    assert_eq!((lost(OTHER), lost(WORKER)), (true, false));
}

#[test]
fn a_kill_without_a_reason_is_seen() {
    red(&given_back("signal 9", 1), &["I31"]);
    for (kind, pid) in [
        ("executor_kill", EXECUTOR),
        ("guardian_kill", GUARDIAN),
        ("controller_freeze", WORKER),
        ("guardian_freeze", GUARDIAN),
    ] {
        let mut story = given_back("signal 9", 1);
        story.fault(kind, Some(pid), 290, 310);
        green(&story);
    }
    for (kind, pid) in
        [("executor_freeze", EXECUTOR), ("executor_kill", ANOTHER), ("guardian_kill", GUARDIAN + 1)]
    {
        let mut story = given_back("signal 9", 1);
        story.fault(kind, Some(pid), 290, 310);
        red(&story, &["I31"]);
    }
    // The guardian told of its own child; the controller says why it ended that.
    let mut story = given_back("signal 9", 1);
    story.note(WORKER, 301, ended("overdue"));
    green(&story);
    // It ended itself before it could say why it had killed it.
    let mut story = given_back("signal 9", 1);
    story.without(|event| matches!(event, Event::Reaped { pid: WORKER, .. }));
    story.note(INJECTOR, 1200, Event::Reaped { pid: WORKER, code: None, signal: None });
    assert!(!story.report().violated().contains(&"I31"));
    // Its lease was over.
    let mut story = given_back("signal 9", 1);
    story.without(|event| match event {
        Event::BeatSent { beat } | Event::BeatAck { beat } => *beat < 2000,
        _ => false,
    });
    story.without(|event| matches!(event, Event::ProcessEnded { .. }));
    story.note(WORKER, 1300, ended("signal 9"));
    assert!(!story.report().violated().contains(&"I31"));
}
