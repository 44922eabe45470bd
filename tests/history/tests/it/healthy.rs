//! A history as a good run leaves it: kills, stops, repeats, a database that went away, and no
//! violation. If this is red, the checker cries wolf.

use tuskline_history::Status::{
    Cancelled, Claimed, Dead, Enqueued, New, Processing, RetriableFailure, Success,
};
use tuskline_history::{Actor, Edge, Ended, Event, LockAnswer};

use crate::story::{CLIENT, INJECTOR, OTHER, Story, WORKER, green};

const NEXT: u32 = 23;

fn rich() -> Story {
    let mut story = Story::idle();
    for (at, edge) in [(0, Edge::Begin), (9000, Edge::End)] {
        story.note(INJECTOR, at, Event::Phase { name: "all".to_owned(), edge });
    }
    for task in 100..150 {
        story.succeeds(task);
    }
    killed(&mut story);
    fails_and_succeeds(&mut story);
    frozen(&mut story);
    buried(&mut story);
    cancelled(&mut story);
    story.database_down(6000, 6500);
    story.note(OTHER, 7000, Event::Claimed { fence: 900, tasks: Vec::new() });
    story
}

/// Its worker is killed while another one runs on.
fn killed(story: &mut Story) {
    story.scheduled(1, 250);
    story.claims(WORKER, 1, 201, 1, 260);
    story.body(WORKER, 1, 201, 265, None);
    story.becomes(1, Some(Claimed), Processing, (201, 1, 0), 270);
    story.dies(WORKER, 400, 410);
    story.fault("kill", Some(WORKER), 400, 400);
    story.becomes(1, Some(Processing), Enqueued, (201, 0, 1), 2410);
    story.failed(1, 201);
    story.claims_after(OTHER, 1, (202, 1, 1), 2420);
    story.body(OTHER, 1, 202, 2430, Some((Ended::Success, 2500)));
    story.becomes(1, Some(Claimed), Success, (202, 1, 0), 2510);
    story.row(1, Success, (202, 1, 0));
}

/// Due later, fails once.
fn fails_and_succeeds(story: &mut Story) {
    story.scheduled(2, 100);
    story.without(|event| matches!(event, Event::Transition { task: 2, .. }));
    story.becomes_due(2, None, New, (0, 0, 0), 102, Some(600));
    story.becomes(2, Some(New), Enqueued, (0, 0, 0), 610);
    story.claims(OTHER, 2, 203, 1, 620);
    story.body(OTHER, 2, 203, 630, Some((Ended::Retriable, 700)));
    story.becomes_due(2, Some(Claimed), RetriableFailure, (203, 1, 0), 710, Some(1710));
    story.failed(2, 203);
    story.becomes(2, Some(RetriableFailure), Enqueued, (203, 1, 0), 1800);
    story.claims(OTHER, 2, 204, 2, 1810);
    story.body(OTHER, 2, 204, 1820, Some((Ended::Success, 1900)));
    story.becomes(2, Some(Claimed), Success, (204, 2, 0), 1910);
    story.row(2, Success, (204, 2, 0));
}

/// Its worker is stopped beyond the lease, and its lock is still held when the next body begins.
fn frozen(story: &mut Story) {
    story.opens(NEXT, Actor::Executor, 1000);
    story.note(NEXT, 1000, Event::Registered { executor: 23, answered: None });
    story.scheduled(3, 1100);
    story.claims(NEXT, 3, 205, 1, 1110);
    story.body(NEXT, 3, 205, 1120, None);
    story.stops(NEXT, 1200, 5000);
    story.note(NEXT, 5010, Event::BodyTick { task: 3, fence: 205 });
    story.reaped(NEXT, 5030);
    story.becomes(3, Some(Claimed), Enqueued, (205, 0, 1), 3110);
    story.failed(3, 205);
    story.claims_after(OTHER, 3, (206, 1, 1), 3120);
    story.body(OTHER, 3, 206, 3130, Some((Ended::Success, 3200)));
    story.change(|event| {
        if let Event::BodyStart { fence: 206, lock, .. } = event {
            *lock = LockAnswer::Held { pid: NEXT, fence: 205 };
        }
    });
    story.becomes(3, Some(Claimed), Success, (206, 1, 0), 3210);
    story.row(3, Success, (206, 1, 0));
}

/// Fails for good at its last attempt.
fn buried(story: &mut Story) {
    story.scheduled(4, 300);
    story.claims(OTHER, 4, 207, 1, 310);
    story.body(OTHER, 4, 207, 320, Some((Ended::Retriable, 400)));
    story.becomes(4, Some(Claimed), Dead, (207, 1, 0), 410);
    story.failed(4, 207);
    story.row(4, Dead, (207, 1, 0));
    story.change(|event| {
        if let Event::Row { task: 4, max_attempts, .. } = event {
            *max_attempts = 1;
        }
    });
}

fn cancelled(story: &mut Story) {
    story.scheduled(5, 300);
    story.note(CLIENT, 310, Event::Cancel { task: 5 });
    story.becomes(5, Some(Enqueued), Cancelled, (0, 0, 0), 315);
    story.note(CLIENT, 320, Event::CancelAnswer { task: 5, answer: "cancelled".to_owned() });
    story.row(5, Cancelled, (0, 0, 0));
}

#[test]
fn a_good_run_is_green() {
    let report = green(&rich());
    assert_eq!((report.accepted, report.executed, report.lost), (55, 57, 0));
    assert_eq!((report.overlaps, report.overlaps_stopped), (0, 1));
    let causes: Vec<_> = report.repeats.into_iter().collect();
    assert_eq!(causes, [("retriable failure", 1), ("stop", 1), ("worker death", 1)]);
    assert_eq!(report.faults["kill"], 1);
    assert_eq!(report.recovery.worker_death.percentiles.max_ms, 2012.0);
    let by_phase: Vec<_> = report.recovery.worker_death_by_phase.into_iter().collect();
    assert_eq!(by_phase, [("all".to_owned(), report.recovery.worker_death.percentiles)]);
    assert_eq!(report.recovery.database_return.percentiles.max_ms, 500.0);
    assert_eq!(report.resumed.percentiles.max_ms, 30.0);
    assert_eq!(
        (report.lateness["all"].percentiles.n, report.lateness["all"].excluded),
        (54 + 1, 2)
    );
}
