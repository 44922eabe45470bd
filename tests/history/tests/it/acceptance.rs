//! I1 to I4: what was accepted exists, what exists was asked for.

use tuskline_history::Event;
use tuskline_history::Status::{Enqueued, New};

use crate::story::{CLIENT, Story, caught, green};

#[test]
fn an_accepted_task_without_a_row_is_lost() {
    let report = caught(Story::one_task(), &["I1", "I5"], |story| {
        story.without(|event| matches!(event, Event::Row { .. }));
    });
    assert_eq!((report.accepted, report.lost), (1, 1));
}

#[test]
fn an_accepted_task_under_another_op_is_seen() {
    let mut story = Story::one_task();
    story.succeeds(2);
    caught(story, &["I1", "I2"], |story| {
        story.change(|event| {
            if let Event::Row { task: 1, op, .. } = event {
                *op = 2;
            }
        });
    });
}

#[test]
fn an_accepted_task_that_nothing_made_is_seen() {
    caught(Story::one_task(), &["I1", "I6"], |story| {
        story.without(|event| matches!(event, Event::Transition { from: None, .. }));
    });
}

#[test]
fn a_row_from_nowhere_is_seen() {
    caught(Story::one_task(), &["I2"], |story| {
        story.succeeds(2);
        story.without(|event| {
            matches!(event, Event::Schedule { op: 2, .. } | Event::ScheduleOk { op: 2, .. })
        });
    });
}

#[test]
fn a_row_of_a_refused_schedule_is_seen() {
    caught(Story::one_task(), &["I2"], |story| {
        story.succeeds(2);
        story.without(|event| matches!(event, Event::ScheduleOk { op: 2, .. }));
        story.note(CLIENT, 105, Event::ScheduleFail { op: 2, why: "refused".to_owned() });
    });
}

/// Tasks 2 and 3 are one batch. Its commit broke, and its outcome is unknown.
fn broken_commit() -> Story {
    let mut story = Story::one_task();
    story.succeeds(2);
    story.succeeds(3);
    story.without(|event| {
        matches!(event, Event::ScheduleOk { op: 2 | 3, .. } | Event::Schedule { op: 3, .. })
    });
    story.change(|event| match event {
        Event::Schedule { op: 2, tasks, .. } => *tasks = 2,
        Event::Row { task: 3, op, n, .. } => (*op, *n) = (2, 1),
        _ => {}
    });
    story.note(CLIENT, 105, Event::ScheduleInfo { op: 2, why: "connection lost".to_owned() });
    story
}

#[test]
fn half_of_an_unknown_batch_is_seen() {
    let of = |task| move |event: &Event| matches!(event, Event::Row { task: t, .. } if *t == task);
    caught(broken_commit(), &["I3", "I5"], |story| story.without(of(3)));
    let mut nothing = broken_commit();
    nothing.without(|event| {
        let (Event::Row { task, .. } | Event::Transition { task, .. }) = event else {
            return false;
        };
        *task > 1
    });
    nothing.without(|event| {
        let (Event::BodyStart { task, .. } | Event::BodyEnd { task, .. }) = event else {
            return matches!(event, Event::Claimed { fence: 2 | 3, .. });
        };
        *task > 1
    });
    green(&nothing);
}

#[test]
fn a_schedule_without_any_answer_is_unknown_too() {
    let mut story = broken_commit();
    story.without(|event| matches!(event, Event::ScheduleInfo { .. }));
    let report = green(&story);
    assert_eq!(report.invariant("I3").unwrap().checked, 1);
}

#[test]
fn two_tasks_of_one_key_are_seen() {
    let mut story = Story::one_task();
    story.succeeds(2);
    let key = |word: &'static str| {
        move |event: &mut Event| {
            if let Event::Schedule { op, key, .. } = event {
                *key = Some(if *op == 1 { "a".to_owned() } else { word.to_owned() });
            }
        }
    };
    story.change(key("b"));
    caught(story, &["I4"], |story| story.change(key("a")));
}

#[test]
fn a_repeated_schedule_may_be_told_the_first_ones_task() {
    let mut story = Story::one_task();
    story.scheduled(2, 300);
    story.change(|event| match event {
        Event::Schedule { key, .. } => *key = Some("a".to_owned()),
        Event::ScheduleOk { ids, .. } => *ids = vec![1],
        _ => {}
    });
    story.without(|event| matches!(event, Event::Transition { task: 2, .. }));
    assert_eq!(green(&story).invariant("I4").unwrap().checked, 1);
}

#[test]
fn what_a_history_has_nothing_of_is_not_checked() {
    let report = green(&Story::one_task());
    for id in ["I4", "I13", "I14", "I16", "I25", "I26", "I27"] {
        let check = report.invariant(id).unwrap();
        assert_eq!((check.checked, check.upper95), (0, None), "{id}");
    }
    assert_eq!(report.upper95["I1"], 3.0);
}

#[test]
fn a_delayed_task_may_begin_as_new() {
    let mut story = Story::one_task();
    story.change(|event| {
        if let Event::Transition { from: None, to, due_us, db_us, .. } = event {
            (*to, *due_us) = (New, Some(*db_us + 5000));
        }
    });
    story.change(|event| {
        if let Event::Transition { step, .. } = event
            && *step > 1
        {
            *step += 1;
        }
    });
    story.becomes(1, Some(New), Enqueued, (0, 0, 0), 108);
    story.change(|event| {
        if let Event::Transition { step, from: Some(New), .. } = event {
            *step = 2;
        }
    });
    green(&story);
}
