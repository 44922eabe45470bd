//! I5 to I8, I15 and I17 to I20, I22: how tasks change and end.

use tuskline_history::Status::{
    Cancelled, Claimed, Dead, Enqueued, Processing, RetriableFailure, Success,
};
use tuskline_history::{Ended, Event, Verb};

use crate::story::{DATABASE, END, INJECTOR, OTHER, Story, WORKER, caught, green};

#[test]
fn a_task_that_is_not_at_its_end_is_lost() {
    let report = caught(Story::one_task(), &["I5"], |story| {
        story.without(|event| matches!(event, Event::Transition { to: Success, .. }));
        story.change(|event| {
            if let Event::Row { status, .. } = event {
                *status = Claimed;
            }
        });
    });
    assert_eq!(report.lost, 1);
}

#[test]
fn two_ends_of_a_task_are_seen() {
    caught(Story::one_task(), &["I5", "I6"], |story| {
        story.becomes(1, Some(Success), Success, (1, 1, 0), 220);
    });
}

#[test]
fn a_row_that_disagrees_with_the_last_transition_is_seen() {
    caught(Story::one_task(), &["I5"], |story| {
        story.change(|event| {
            if let Event::Row { fence, .. } = event {
                *fence = 9;
            }
        });
    });
}

#[test]
fn an_edge_that_no_verb_has_is_seen() {
    let report = caught(Story::one_task(), &["I6"], |story| {
        story.change(|event| match event {
            Event::Transition { to: to @ Claimed, .. } => *to = Processing,
            Event::Transition { from: from @ Some(Claimed), .. } => *from = Some(Processing),
            _ => {}
        });
        story.without(|event| matches!(event, Event::Claimed { .. }));
    });
    assert_eq!(report.replayed, 3);
}

#[test]
fn a_gap_between_changes_is_seen() {
    caught(Story::one_task(), &["I6"], |story| {
        story.change(|event| {
            if let Event::Transition { to: Success, from, .. } = event {
                *from = Some(Processing);
            }
        });
    });
}

#[test]
fn a_claim_that_costs_no_attempt_is_seen() {
    caught(Story::one_task(), &["I6"], |story| {
        story.change(|event| match event {
            Event::Transition { attempt, .. } | Event::Row { attempt, .. } => *attempt = 0,
            _ => {}
        });
    });
}

#[test]
fn a_result_that_keeps_crashes_is_seen() {
    caught(Story::one_task(), &["I6"], |story| {
        story.change(|event| match event {
            Event::Transition { to: Success, crashes, .. } | Event::Row { crashes, .. } => {
                *crashes = 1
            }
            _ => {}
        });
    });
}

/// Task 1 fails on `WORKER` and then succeeds on `OTHER`.
fn failed_once() -> Story {
    let mut story = Story::idle();
    story.scheduled(1, 100);
    story.claims(WORKER, 1, 5, 1, 110);
    story.body(WORKER, 1, 5, 120, Some((Ended::Retriable, 200)));
    story.becomes_due(1, Some(Claimed), RetriableFailure, (5, 1, 0), 210, Some(300));
    story.failed(1, 5);
    story.becomes(1, Some(RetriableFailure), Enqueued, (5, 1, 0), 310);
    story.claims(OTHER, 1, 6, 2, 320);
    story.body(OTHER, 1, 6, 330, Some((Ended::Success, 400)));
    story.becomes(1, Some(Claimed), Success, (6, 2, 0), 410);
    story.row(1, Success, (6, 2, 0));
    story
}

#[test]
fn a_fence_that_does_not_rise_is_seen() {
    // The first claim has fence 7 everywhere, and the second keeps 6. So the second also seems to
    // be the first of two executions, of which only the other has failed.
    caught(failed_once(), &["I6", "I7", "I8", "I12"], |story| {
        story.change(|event| match event {
            Event::Transition { fence, .. }
            | Event::Claimed { fence, .. }
            | Event::BodyStart { fence, .. }
            | Event::BodyEnd { fence, .. }
            | Event::Failure { fence, .. }
                if *fence == 5 =>
            {
                *fence = 7;
            }
            _ => {}
        });
    });
}

#[test]
fn a_claim_answered_twice_is_seen() {
    caught(Story::one_task(), &["I7"], |story| {
        story.note(OTHER, 113, Event::Claimed { fence: 1, tasks: vec![1] });
    });
}

#[test]
fn a_claim_that_the_database_does_not_know_is_seen() {
    caught(Story::one_task(), &["I7"], |story| {
        story.note(OTHER, 113, Event::Claimed { fence: 9, tasks: vec![1] });
    });
}

#[test]
fn a_change_under_an_old_fence_is_seen() {
    caught(failed_once(), &["I5", "I6", "I8"], |story| {
        story.change(|event| {
            if let Event::Transition { to: Success, fence, attempt, .. } = event {
                (*fence, *attempt) = (5, 1);
            }
        });
        // Its body did end so, or it would be a phantom success as well.
        story.note(WORKER, 405, Event::BodyEnd { task: 1, fence: 5, ended: Ended::Success });
    });
}

#[test]
fn an_applied_stale_call_is_seen() {
    let stale = |applied| Event::Stale { verb: Verb::SetResults, tried: 100, refused: 90, applied };
    let mut story = Story::one_task();
    story.note(INJECTOR, 500, stale(0));
    let report = caught(story, &["I8"], |story| story.note(INJECTOR, 600, stale(2)));
    assert_eq!((report.stale_tried, report.stale_refused, report.stale_applied), (200, 180, 2));
    assert_eq!(report.invariant("I8").unwrap().violations, 2);
}

#[test]
fn a_failure_on_record_that_never_was_is_seen() {
    caught(failed_once(), &["I8"], |story| story.failed(1, 6));
}

#[test]
fn the_end_of_a_task_without_an_attempt_is_no_failure_of_an_attempt() {
    let mut story = failed_once();
    let class = "parent".to_owned();
    story.note(
        DATABASE,
        END + 1000,
        Event::Failure { task: 1, fence: 0, class, fingerprint: String::new() },
    );
    green(&story);
}

#[test]
fn a_phantom_success_is_seen() {
    caught(Story::one_task(), &["I15"], |story| {
        story.change(|event| {
            if let Event::BodyEnd { ended, .. } = event {
                *ended = Ended::Stopped;
            }
        });
    });
}

#[test]
fn more_attempts_than_allowed_are_seen() {
    caught(failed_once(), &["I17"], |story| {
        story.change(|event| {
            if let Event::Row { max_attempts, .. } = event {
                *max_attempts = 1;
            }
        });
    });
}

/// Task 1 kills its worker once and is rescued; then it is buried, at a limit of `max_crashes`.
fn crashed_to_death() -> Story {
    let mut story = Story::idle();
    story.scheduled(1, 100);
    story.claims(WORKER, 1, 5, 1, 110);
    story.body(WORKER, 1, 5, 120, None);
    story.dies(WORKER, 200, 210);
    story.becomes(1, Some(Claimed), Processing, (5, 1, 0), 150);
    story.becomes(1, Some(Processing), Dead, (5, 0, 1), 2300);
    story.failed(1, 5);
    story.row(1, Dead, (5, 0, 1));
    story.change(|event| {
        if let Event::Row { max_crashes, .. } = event {
            *max_crashes = 1;
        }
    });
    story
}

fn limit_crashes(limit: i16) -> impl Fn(&mut Event) {
    move |event| {
        if let Event::Row { max_crashes, .. } = event {
            *max_crashes = limit;
        }
    }
}

#[test]
fn more_crashes_than_allowed_are_seen() {
    caught(crashed_to_death(), &["I18"], |story| story.change(limit_crashes(0)));
}

#[test]
fn a_task_that_died_too_soon_is_seen() {
    caught(crashed_to_death(), &["I19"], |story| story.change(limit_crashes(3)));
}

#[test]
fn a_dead_task_without_a_failure_is_seen() {
    caught(crashed_to_death(), &["I19"], |story| {
        story.without(|event| matches!(event, Event::Failure { .. }));
    });
}

#[test]
fn a_number_shown_that_is_not_true_is_seen() {
    let shown = |shown| Event::Shown { what: "success".to_owned(), shown, counted: 1 };
    let mut story = Story::one_task();
    story.note(INJECTOR, 9000, shown(1));
    caught(story, &["I20"], |story| story.note(INJECTOR, 9000, shown(2)));
}

#[test]
fn a_leftover_is_seen() {
    let left = |count| Event::Left { what: "leases".to_owned(), count };
    let mut story = Story::one_task();
    story.note(INJECTOR, 9000, left(0));
    caught(story, &["I22"], |story| story.note(INJECTOR, 9000, left(1)));
}

#[test]
fn a_released_or_cancelled_task_is_legal() {
    let mut story = Story::idle();
    story.scheduled(1, 100);
    story.claims(WORKER, 1, 5, 1, 110);
    story.becomes(1, Some(Claimed), Enqueued, (5, 0, 0), 120);
    story.becomes(1, Some(Enqueued), Cancelled, (5, 0, 0), 130);
    story.row(1, Cancelled, (5, 0, 0));
    green(&story);
}
