//! A copy of an earlier state takes the database's place: what is forgiven, and what is not.

use tuskline_history::Status::{Claimed, Enqueued, Success};
use tuskline_history::{Actor, Ended, Event, LockAnswer};

use crate::story::{CLIENT, INJECTOR, OTHER, Story, WORKER, caught, green, ns, red};

/// When the copy was taken, and when it took the database's place.
const TAKEN: u64 = 2000;
const PLACED: u64 = 3000;

/// A worker that registers with the copy, which has recovered by then.
const NEWCOMER: u32 = 23;

fn restored(ids_again: bool) -> Event {
    Event::Restored { how: "by hand".to_owned(), taken: ns(TAKEN), ids_again }
}

/// Nothing of a task is in the database.
fn is_gone(story: &mut Story, task: i64) {
    story.without(|event| match event {
        Event::Transition { task: t, .. } | Event::Row { task: t, .. } => *t == task,
        _ => false,
    });
}

/// Task 1 is done before the copy is taken; task 2 is accepted at `at`, executed by `WORKER` under
/// fence 20, and gone.
fn with_a_loss(at: u64) -> Story {
    let mut story = Story::one_task();
    story.scheduled(2, at);
    story.claims(WORKER, 2, 20, 1, at + 10);
    story.body(WORKER, 2, 20, at + 20, Some((Ended::Success, at + 80)));
    is_gone(&mut story, 2);
    story.note(INJECTOR, PLACED, restored(false));
    story
}

#[test]
fn what_was_accepted_after_the_copy_was_taken_is_forgiven_and_nothing_else() {
    let report = green(&with_a_loss(2100));
    assert_eq!((report.accepted, report.lost, report.executed), (2, 0, 2));
    let found = &report.restores;
    assert_eq!((found.done, found.accepted_before), (1, 1));
    assert_eq!((found.gone, found.claims_gone, found.ids_again), (1, 1, 0));
    // On its way when the copy was taken.
    green(&with_a_loss(TAKEN - 2));
    assert_eq!(red(&with_a_loss(1800), &["I1", "I7"]).lost, 1);
    assert_eq!(red(&with_a_loss(PLACED + 1), &["I1", "I7"]).lost, 1);
    caught(with_a_loss(2100), &["I1", "I7"], |story| {
        story.without(|event| matches!(event, Event::Restored { .. }));
    });
}

#[test]
fn a_task_that_the_copy_knows_must_end() {
    let mut story = with_a_loss(2100);
    story.scheduled(3, 2100);
    story.row(3, Enqueued, (0, 0, 0));
    assert_eq!(red(&story, &["I5"]).lost, 1);
}

#[test]
fn half_of_a_lost_batch_is_seen() {
    let mut story = with_a_loss(2100);
    story.succeeds(3);
    story.change(|event| match event {
        Event::Schedule { op: 2, tasks, .. } => *tasks = 2,
        Event::ScheduleOk { op: 2, ids } => *ids = vec![2, 3],
        Event::Row { task: 3, op, n, .. } => (*op, *n) = (2, 1),
        _ => {}
    });
    story.without(|event| {
        matches!(event, Event::Schedule { op: 3, .. } | Event::ScheduleOk { op: 3, .. })
    });
    red(&story, &["I3"]);
}

/// As [`with_a_loss`], and another task gets the id of the lost one. Its body runs under fence 30
/// beside that of the lost task.
fn with_its_id_again(ids_again: bool) -> Story {
    let mut story = with_a_loss(2100);
    story.without(|event| matches!(event, Event::Restored { .. }));
    story.without(|event| matches!(event, Event::BodyEnd { fence: 20, .. }));
    story.note(INJECTOR, PLACED, restored(ids_again));
    story.note(WORKER, 3200, Event::BodyEnd { task: 2, fence: 20, ended: Ended::Stopped });
    story.scheduled(3, 3100);
    story.claims(OTHER, 3, 30, 1, 3110);
    story.body(OTHER, 3, 30, 3120, Some((Ended::Success, 3300)));
    story.becomes(3, Some(Claimed), Success, (30, 1, 0), 3310);
    story.row(3, Success, (30, 1, 0));
    story.change(|event| match event {
        Event::ScheduleOk { ids, .. } if *ids == [3] => *ids = vec![2],
        Event::Claimed { tasks, .. } if *tasks == [3] => *tasks = vec![2],
        Event::BodyStart { task, .. }
        | Event::BodyTick { task, .. }
        | Event::BodyEnd { task, .. }
        | Event::Transition { task, .. }
        | Event::Row { task, .. }
            if *task == 3 =>
        {
            *task = 2;
        }
        _ => {}
    });
    story
}

#[test]
fn an_id_that_is_issued_twice_is_seen_and_counted_where_it_cannot_be_told() {
    let registers_after = |at: u64, ms: u64| {
        let mut story = with_its_id_again(false);
        let (executor, answered) = (99, Some(ns(at + ms)));
        story.opens(NEWCOMER, Actor::Executor, at);
        story.note(NEWCOMER, at, Event::Registered { executor, answered });
        story.note(NEWCOMER, at + 1, Event::Exit);
        story.reaped(NEWCOMER, at + 2);
        story
    };
    let registers = |at: u64| registers_after(at, 0);
    red(&registers(3090), &["I29"]);
    // Its registration is under way: the copy may have recovered, or not.
    green(&registers_after(3090, 60));
    // Nothing recovers the copy before the id is drawn.
    let report = green(&registers(3150));
    assert_eq!((report.restores.ids_again, report.restores.ids_before_recovery), (0, 1));
    let report = green(&with_its_id_again(true));
    assert_eq!((report.restores.ids_again, report.restores.gone, report.overlaps), (1, 1, 0));
    // Not lost with a copy: nothing explains it.
    let mut before = with_its_id_again(true);
    before.without(|event| matches!(event, Event::Restored { .. }));
    assert!(before.report().violated().contains(&"I29"));
}

#[test]
fn an_id_that_is_in_the_row_of_an_unanswered_schedule_is_issued_twice_too() {
    let mut story = with_its_id_again(false);
    story.without(|event| matches!(event, Event::ScheduleOk { op: 3, .. }));
    story.note(CLIENT, 3105, Event::ScheduleInfo { op: 3, why: "connection lost".to_owned() });
    story.opens(NEWCOMER, Actor::Executor, 3050);
    story.note(NEWCOMER, 3050, Event::Registered { executor: 99, answered: None });
    story.note(NEWCOMER, 3051, Event::Exit);
    story.reaped(NEWCOMER, 3052);
    red(&story, &["I29"]);
}

#[test]
fn a_fence_of_the_lost_future_that_is_issued_again_is_seen() {
    let again = |fence: i64| {
        let mut story = with_a_loss(2100);
        story.scheduled(4, 3100);
        story.claims(OTHER, 4, fence, 1, 3110);
        story.body(OTHER, 4, fence, 3120, Some((Ended::Success, 3200)));
        story.becomes(4, Some(Claimed), Success, (fence, 1, 0), 3210);
        story.row(4, Success, (fence, 1, 0));
        story
    };
    green(&again(30));
    red(&again(20), &["I7"]);
}

/// Task 2 was accepted before the copy was taken. `WORKER` claims it after that and goes on until
/// `ends`; `OTHER` claims it from the copy at 3.1 s.
fn claimed_again(ends: u64) -> Story {
    let mut story = Story::one_task();
    story.scheduled(2, 1900);
    story.note(WORKER, 2112, Event::Claimed { fence: 20, tasks: vec![2] });
    story.body(WORKER, 2, 20, 2120, Some((Ended::Stopped, ends)));
    story.claims(OTHER, 2, 30, 1, 3100);
    story.body(OTHER, 2, 30, 3110, Some((Ended::Success, 3300)));
    story.becomes(2, Some(Claimed), Success, (30, 1, 0), 3310);
    story.row(2, Success, (30, 1, 0));
    story.database_down(2900, PLACED);
    story.note(INJECTOR, PLACED, restored(false));
    story
}

#[test]
fn a_body_of_the_lost_future_beside_its_successor_overlaps() {
    let report = green(&claimed_again(3050));
    assert_eq!((report.executed, report.repeats["database down"]), (3, 1));
    let mut story = claimed_again(3200);
    story.change(|event| {
        if let Event::BodyStart { fence: 30, lock, .. } = event {
            *lock = LockAnswer::Held { pid: WORKER, fence: 20 };
        }
    });
    assert_eq!(red(&story, &["I9"]).overlaps_by_lock, 1);
}

#[test]
fn a_repeat_within_the_lost_future_has_its_cause_there() {
    let mut story = claimed_again(2200);
    story.note(OTHER, 2300, Event::Claimed { fence: 21, tasks: vec![2] });
    story.body(OTHER, 2, 21, 2310, Some((Ended::Success, 2400)));
    assert_eq!(green(&story).repeats["lost with its record"], 1);
}

#[test]
fn a_worker_that_meets_a_copy_of_the_past_may_give_up_its_number_at_once() {
    // The last heartbeat before the copy took the place was sent at 2750 ms.
    let given_up = |beats_from: u64| {
        let mut story = Story::one_task();
        story.without(|event| match event {
            Event::BeatSent { beat } | Event::BeatAck { beat } => (2800..beats_from).contains(beat),
            _ => false,
        });
        story.note(OTHER, 3300, Event::Lost { why: "a state of the past".to_owned() });
        story.note(OTHER, 3310, Event::Registered { executor: 7, answered: None });
        story.note(INJECTOR, PLACED, restored(false));
        story
    };
    green(&given_up(3310));
    caught(given_up(3310), &["I23"], |story| {
        story.without(|event| matches!(event, Event::Restored { .. }));
    });
    // The copy had acknowledged a heartbeat.
    red(&given_up(3000), &["I23"]);
}

#[test]
fn a_restored_copy_without_a_claim_is_seen() {
    let back = |claimed: u64| {
        let mut story = Story::one_task();
        story.database_down(2900, 3100);
        story.note(INJECTOR, PLACED, restored(false));
        story.note(OTHER, claimed, Event::Claimed { fence: 4, tasks: Vec::new() });
        story
    };
    // A lease of 2 s, and 5 s.
    let report = green(&back(3100 + 7000 - 200));
    assert_eq!(report.recovery.database_return.percentiles.n, 0);
    assert_eq!(report.recovery.restore.percentiles.max_ms, 6800.0);
    red(&back(3100 + 7001), &["G10"]);
}
