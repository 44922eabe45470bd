//! I27: dead letters are listed and return, each as often as a redrive says.

use tuskline_history::Status::{Claimed, Enqueued, FatalFailure, New, Success};
use tuskline_history::{Ended, Event, Redrive};

use crate::story::{DATABASE, END, OTHER, Story, WORKER, caught, db_us, green, red};

/// The redrive of every story.
const REDRIVE: i64 = 7;

/// A task fails for good on `WORKER` with a cause. Its own id is the fence.
fn dies(story: &mut Story, task: i64, cause: &str) {
    story.scheduled(task, 100);
    story.claims(WORKER, task, task, 1, 110);
    story.body(WORKER, task, task, 120, Some((Ended::Fatal, 190)));
    story.becomes(task, Some(Claimed), FatalFailure, (task, 1, 0), 200);
    story.failed_of(task, task, cause);
}

/// Redrives let a dead task go, in a transaction of the number of the change.
fn returns(story: &mut Story, task: i64, fence: i64, at: u64, redrives: &[i64]) {
    story.becomes(task, Some(FatalFailure), New, (fence, 0, 0), at);
    let (step, xid) = (story.last_step(), story.last_step().unsigned_abs());
    for redrive in redrives {
        let event = Event::Redriven { task, redrive: *redrive, step, xid };
        story.note(DATABASE, END + 1000, event);
    }
    story.becomes(task, Some(New), Enqueued, (fence, 0, 0), at + 5);
}

/// The task runs on `OTHER` under a fence that is 100 greater, and ends as given.
fn ends(story: &mut Story, task: i64, fence: i64, at: u64, ended: Ended) -> i64 {
    let (fence, to) = (fence + 100, if ended == Ended::Success { Success } else { FatalFailure });
    story.claims(OTHER, task, fence, 1, at);
    story.body(OTHER, task, fence, at + 10, Some((ended, at + 80)));
    story.becomes(task, Some(Claimed), to, (fence, 1, 0), at + 90);
    if to == FatalFailure {
        story.failed_of(task, fence, "pump");
    }
    fence
}

fn redrive() -> Redrive {
    Redrive {
        redrive: REDRIVE,
        lambda: Some("mail".to_owned()),
        fingerprint: Some("pump".to_owned()),
        ids: None,
        most: None,
        per_second: None,
        canary: false,
        set_us: db_us(2500),
        ended_us: Some(db_us(3500)),
        outcome: Some("done".to_owned()),
        released: 1,
        died_again: 0,
    }
}

/// Task 1 dies of the pump, is let go, and succeeds; task 2 is dead of the fan.
fn returned() -> Story {
    let mut story = Story::idle();
    dies(&mut story, 1, "pump");
    dies(&mut story, 2, "fan");
    returns(&mut story, 1, 1, 3000, &[REDRIVE]);
    let fence = ends(&mut story, 1, 1, 3010, Ended::Success);
    story.row(1, Success, (fence, 1, 0));
    story.row(2, FatalFailure, (2, 1, 0));
    story.note(DATABASE, END + 1000, Event::Redrive(redrive()));
    story
}

/// Task 1 is let go and dies again; a canary is stopped by that.
fn died_again() -> Story {
    let mut story = Story::idle();
    dies(&mut story, 1, "pump");
    returns(&mut story, 1, 1, 3000, &[REDRIVE]);
    let fence = ends(&mut story, 1, 1, 3010, Ended::Fatal);
    story.row(1, FatalFailure, (fence, 1, 0));
    let (canary, outcome) = (true, Some("died_again".to_owned()));
    let stopped = Redrive { canary, outcome, died_again: 1, ..redrive() };
    story.note(DATABASE, END + 1000, Event::Redrive(stopped));
    story
}

fn change_redrive(story: &mut Story, change: impl Fn(&mut Redrive)) {
    story.change(|event| {
        if let Event::Redrive(redrive) = event {
            change(redrive);
        }
    });
}

/// With `change` made to its redrive, the story is red, and says so.
#[track_caller]
fn expect_wrong(story: Story, change: impl Fn(&mut Redrive), wrong: &str) {
    let report = caught(story, &["I27"], |story| change_redrive(story, change));
    let said = &report.invariant("I27").unwrap().details[0].what;
    assert_eq!(said, &format!("redrive 7: {wrong}"));
}

#[test]
fn a_dead_task_that_returns_is_counted_and_its_second_life_has_a_cause() {
    let report = green(&returned());
    assert_eq!(report.repeats["redrive"], 1);
    let redrives = report.redrives;
    assert_eq!((redrives.set, redrives.done, redrives.died_again), (1, 1, 0));
    assert_eq!((redrives.let_go, redrives.astray), (1, 0));
    assert_eq!((redrives.dead, redrives.lost), (1, 0));
    let redrives = green(&died_again()).redrives;
    assert_eq!((redrives.done, redrives.died_again, redrives.dead), (0, 1, 1));
}

#[test]
fn a_life_without_an_end_is_seen() {
    caught(returned(), &["I5"], |story| {
        story.without(|event| matches!(event, Event::Transition { task: 1, to: Success, .. }));
        story.change(|event| {
            if let Event::Row { task: 1, status, .. } = event {
                *status = Claimed;
            }
        });
    });
}

#[test]
fn a_second_life_that_is_given_fewer_attempts_is_seen() {
    caught(returned(), &["I6"], |story| {
        story.change(|event| match event {
            Event::Transition { to: New, attempt, .. }
            | Event::Transition { from: Some(New), attempt, .. } => *attempt = 1,
            Event::Transition { fence: 101, attempt, .. }
            | Event::Row { fence: 101, attempt, .. } => {
                *attempt = 2;
            }
            _ => {}
        });
    });
}

#[test]
fn a_dead_letter_that_is_lost_is_seen() {
    let report = caught(returned(), &["I27"], |story| {
        story.without(|event| matches!(event, Event::DeadLetter { .. }));
    });
    assert_eq!(report.redrives.lost, 1);
    caught(returned(), &["I27"], |story| {
        story.change(|event| {
            if let Event::DeadLetter { shown, .. } = event {
                *shown = false;
            }
        });
    });
}

#[test]
fn a_task_that_is_listed_as_dead_though_it_succeeded_is_seen() {
    caught(returned(), &["I27"], |story| {
        story.note(DATABASE, END + 1000, Event::DeadLetter { task: 1, shown: true });
    });
}

#[test]
fn a_return_that_is_no_redrives_is_seen() {
    let report = caught(returned(), &["I27"], |story| {
        story.without(|event| matches!(event, Event::Redriven { .. }));
        change_redrive(story, |redrive| redrive.released = 0);
    });
    assert_eq!(report.redrives.astray, 1);
}

#[test]
fn a_return_at_the_door_of_two_redrives_is_seen() {
    let mut story = returned();
    let other = Redrive { redrive: 8, released: 0, ..redrive() };
    story.note(DATABASE, END + 1000, Event::Redrive(other));
    caught(story, &["I27"], |story| {
        story.change(|event| match event {
            Event::Redrive(redrive) if redrive.redrive == 8 => redrive.released = 1,
            _ => {}
        });
        let mut at_both = story.clone();
        at_both.change(|event| {
            if let Event::Redriven { redrive, .. } = event {
                *redrive = 8;
            }
        });
        at_both.without(|event| !matches!(event, Event::Redriven { .. }));
        story.adds(&at_both);
    });
}

#[test]
fn a_task_that_a_redrive_lets_go_and_that_stays_dead_is_seen() {
    caught(returned(), &["I27"], |story| {
        let event = Event::Redriven { task: 2, redrive: REDRIVE, step: 999, xid: 999 };
        story.note(DATABASE, END + 1000, event);
        change_redrive(story, |redrive| (redrive.released, redrive.died_again) = (2, 1));
    });
}

#[test]
fn a_task_that_one_redrive_lets_go_twice_is_seen() {
    let twice = |second: i64| {
        let mut story = Story::idle();
        dies(&mut story, 1, "pump");
        returns(&mut story, 1, 1, 3000, &[REDRIVE]);
        let fence = ends(&mut story, 1, 1, 3010, Ended::Fatal);
        returns(&mut story, 1, fence, 3200, &[second]);
        let fence = ends(&mut story, 1, fence, 3210, Ended::Success);
        story.row(1, Success, (fence, 1, 0));
        for number in [REDRIVE, 8] {
            let let_go = [REDRIVE, second].iter().filter(|door| **door == number).count();
            let released = i64::try_from(let_go).unwrap();
            let event = Event::Redrive(Redrive { redrive: number, released, ..redrive() });
            story.note(DATABASE, END + 1000, event);
        }
        story
    };
    green(&twice(8));
    red(&twice(REDRIVE), &["I27"]);
}

#[test]
fn a_redrive_that_does_not_end_by_itself_is_seen() {
    expect_wrong(returned(), |redrive| redrive.ended_us = None, "goes on");
    let by_hand = |redrive: &mut Redrive| redrive.outcome = Some("stopped".to_owned());
    expect_wrong(returned(), by_hand, "did not end by itself: stopped");
}

#[test]
fn a_redrive_that_counts_wrong_is_seen() {
    expect_wrong(returned(), |redrive| redrive.released = 2, "says that it let 2 go, it was 1");
    expect_wrong(returned(), |redrive| redrive.died_again = 1, "says 1 are dead again, it is 0");
    expect_wrong(died_again(), |redrive| redrive.died_again = 0, "says 0 are dead again, it is 1");
}

#[test]
fn a_redrive_that_lets_too_many_go_or_too_fast_is_seen() {
    expect_wrong(returned(), |redrive| redrive.most = Some(0), "let 1 go, and at most 0 were to");
    let mut story = Story::idle();
    for task in 1..=4 {
        dies(&mut story, task, "pump");
        returns(&mut story, task, task, 3000, &[REDRIVE]);
        let fence = ends(&mut story, task, task, 3010, Ended::Success);
        story.row(task, Success, (fence, 1, 0));
    }
    let four = Redrive { released: 4, per_second: Some(2.0), ..redrive() };
    story.note(DATABASE, END + 1000, Event::Redrive(four));
    expect_wrong(
        story,
        |redrive| redrive.per_second = Some(1.9),
        "let 4 go in 1.0 s, at 1.9 a second",
    );
}

#[test]
fn a_redrive_that_is_done_and_leaves_one_behind_is_seen() {
    expect_wrong(
        returned(),
        |redrive| redrive.fingerprint = None,
        "is done, and task 2 was left behind",
    );
    let limited = |redrive: &mut Redrive| (redrive.fingerprint, redrive.most) = (None, Some(1));
    let mut story = returned();
    change_redrive(&mut story, limited);
    green(&story);
    let late = |redrive: &mut Redrive| (redrive.fingerprint, redrive.set_us) = (None, db_us(2200));
    let mut story = returned();
    change_redrive(&mut story, late);
    green(&story);
}

#[test]
fn a_canary_that_goes_on_over_the_dead_is_seen() {
    let goes_on = |redrive: &mut Redrive| redrive.outcome = Some("done".to_owned());
    expect_wrong(died_again(), goes_on, "went on though one of step 1 died again");
    let blind = |redrive: &mut Redrive| redrive.canary = false;
    expect_wrong(died_again(), blind, "was stopped though none of its tasks died again");
}

#[test]
fn a_canary_that_is_stopped_for_nothing_is_seen() {
    let stopped = |redrive: &mut Redrive| {
        (redrive.canary, redrive.outcome) = (true, Some("died_again".to_owned()));
    };
    expect_wrong(returned(), stopped, "was stopped though none of its tasks died again");
}

#[test]
fn a_canary_whose_first_step_is_of_two_is_seen() {
    let mut story = Story::idle();
    for task in 1..=2 {
        dies(&mut story, task, "pump");
        returns(&mut story, task, task, 3000, &[REDRIVE]);
        let fence = ends(&mut story, task, task, 3010, Ended::Success);
        story.row(task, Success, (fence, 1, 0));
    }
    let two = Redrive { released: 2, canary: true, ..redrive() };
    story.note(DATABASE, END + 1000, Event::Redrive(two));
    green(&story);
    // Both in one transaction.
    story.change(|event| match event {
        Event::Transition { to: New, xid, .. } | Event::Redriven { xid, .. } => *xid = 999,
        _ => {}
    });
    red(&story, &["I27"]);
}
