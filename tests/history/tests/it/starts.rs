//! I10, I11, I13 and I14: when tasks start.

use tuskline_history::Status::{Claimed, Enqueued, New, Success};
use tuskline_history::{Edge, Ended, Event, Rate};

use crate::story::{DATABASE, END, INJECTOR, OTHER, Story, WORKER, caught, db_us, green, red};

/// Task 1 is due at `due`, enqueued at 1 s and claimed at `claimed`.
fn delayed(due: u64, claimed: u64) -> Story {
    let mut story = Story::idle();
    story.scheduled(1, 100);
    story.without(|event| matches!(event, Event::Transition { .. }));
    story.becomes_due(1, None, New, (0, 0, 0), 102, Some(due));
    story.becomes(1, Some(New), Enqueued, (0, 0, 0), 1000);
    story.claims(WORKER, 1, 1, 1, claimed);
    story.body(WORKER, 1, 1, claimed + 10, Some((Ended::Success, claimed + 90)));
    story.becomes(1, Some(Claimed), Success, (1, 1, 0), claimed + 100);
    story.row(1, Success, (1, 1, 0));
    story
}

#[test]
fn an_early_start_is_seen() {
    let report = green(&delayed(1000, 1010));
    assert_eq!((report.early, report.invariant("I10").unwrap().checked), (0, 1));
    assert_eq!(red(&delayed(1005, 1010), &["I10"]).early, 1);
    assert_eq!(red(&delayed(1020, 1010), &["I10"]).early, 2);
}

fn phase(story: &mut Story, name: &str, from: u64, to: u64) {
    for (at, edge) in [(from, Edge::Begin), (to, Edge::End)] {
        story.note(INJECTOR, at, Event::Phase { name: name.to_owned(), edge });
    }
}

#[test]
fn a_late_start_is_seen_in_its_phase() {
    let mut story = delayed(1000, 6000);
    phase(&mut story, "kills", 5000, 7000);
    let report = green(&story);
    let lateness = &report.lateness["kills"];
    assert_eq!((lateness.percentiles.n, lateness.percentiles.max_ms), (1, 5000.0));
    story = delayed(1000, 6001);
    phase(&mut story, "kills", 5000, 7000);
    let report = red(&story, &["I11"]);
    assert!(!report.lateness["kills"].ok);
    story.database_down(3000, 3001); // then the bound is not for it
    story.note(OTHER, 3002, Event::Claimed { fence: 4, tasks: Vec::new() });
    let report = green(&story);
    let lateness = &report.lateness["kills"];
    assert_eq!((lateness.percentiles.n, lateness.excluded), (0, 1));
    assert_eq!(lateness.excluded_max_ms, 5001.0);
}

#[test]
fn an_early_start_by_a_clock_that_stepped_within_the_verb_is_none() {
    let mut story = delayed(1020, 1010);
    red(&story, &["I10"]);
    let (kind, detail) = ("clock_step".to_owned(), "-90 s".to_owned());
    story.note(INJECTOR, 999, Event::Fault { id: 1, kind, pid: None, detail });
    story.note(INJECTOR, 1000, Event::FaultEnd { id: 1 });
    green(&story);
}

#[test]
fn a_delay_across_a_step_of_the_databases_clock_is_no_delay() {
    let mut story = delayed(1000, 6001);
    phase(&mut story, "kills", 5000, 7000);
    red(&story, &["I11"]);
    let (kind, detail) = ("clock_step".to_owned(), "+90 s".to_owned());
    story.note(INJECTOR, 3000, Event::Fault { id: 1, kind, pid: None, detail });
    story.note(INJECTOR, 3001, Event::FaultEnd { id: 1 });
    assert_eq!(green(&story).lateness["kills"].excluded, 1);
}

/// Tasks 1 and 2 have one ordering key; the second starts at `start`.
fn ordered(start: u64) -> Story {
    let mut story = Story::one_task();
    story.scheduled(2, 100);
    story.claims(OTHER, 2, 2, 1, start - 10);
    story.body(OTHER, 2, 2, start, Some((Ended::Success, start + 80)));
    story.becomes(2, Some(Claimed), Success, (2, 1, 0), start + 90);
    story.row(2, Success, (2, 1, 0));
    story.change(|event| {
        if let Event::Row { ordering_key, .. } = event {
            *ordering_key = Some("k".to_owned());
        }
    });
    story
}

/// Task 2 waits for task 1, which succeeds at 190 or so, and starts at `start`.
fn chained(start: u64, condition: &str) -> Story {
    let mut story = ordered(start);
    story.change(|event| {
        if let Event::Row { ordering_key, .. } = event {
            *ordering_key = None;
        }
    });
    let condition = condition.to_owned();
    story.note(
        DATABASE,
        END + 1000,
        Event::Dependency { task: 2, parent: 1, condition, run: false },
    );
    story
}

#[test]
fn a_task_of_a_chain_that_starts_before_its_parent_has_ended_is_seen() {
    let report = green(&chained(200, "success"));
    assert_eq!(report.invariant("I25").unwrap().checked, 1);
    green(&chained(200, "always"));
    red(&chained(199, "success"), &["I25"]);
}

#[test]
fn the_graphs_that_were_accepted_are_counted() {
    let mut story = chained(200, "success");
    assert_eq!(green(&story).chains.graphs, 0, "no record says that these were graphs");
    story.change(|event| {
        if let Event::Schedule { chain, .. } = event {
            *chain = true;
        }
    });
    let chains = green(&story).chains;
    assert_eq!((chains.graphs, chains.tasks, chains.dependencies), (2, 2, 1));
    story.change(|event| {
        if let Event::Schedule { op: 2, tasks, .. } = event {
            *tasks = 90;
        }
    });
    let chains = green(&story).chains;
    assert_eq!((chains.graphs, chains.smallest, chains.largest), (2, 1, 90));
    story.without(|event| matches!(event, Event::ScheduleOk { op: 2, .. }));
    assert_eq!(story.report().chains.graphs, 1, "of the other one there is no record");
}

#[test]
fn a_task_of_a_chain_that_starts_though_its_parent_ended_otherwise_is_seen() {
    red(&chained(200, "failure"), &["I25"]);
    let mut lost = chained(200, "success");
    lost.without(|event| matches!(event, Event::Dependency { .. }));
    let (condition, run) = ("success".to_owned(), false);
    lost.note(DATABASE, END + 1000, Event::Dependency { task: 2, parent: 7, condition, run });
    red(&lost, &["I25"]);
}

#[test]
fn an_inversion_of_an_ordered_key_is_seen() {
    let report = green(&ordered(200));
    assert_eq!(report.invariant("I13").unwrap().checked, 2);
    red(&ordered(199), &["I13"]);
}

#[test]
fn a_skipped_head_of_an_ordered_key_is_seen() {
    caught(ordered(300), &["I5", "I13"], |story| {
        story.without(|event| {
            let (Event::BodyStart { task, .. } | Event::BodyEnd { task, .. }) = event else {
                return matches!(
                    event,
                    Event::Claimed { fence: 1, .. }
                        | Event::Transition { task: 1, to: Claimed | Success, .. }
                );
            };
            *task == 1
        });
        story.change(|event| {
            if let Event::Row { task: 1, status, .. } = event {
                *status = Enqueued;
            }
        });
    });
}

#[test]
fn a_start_behind_a_closed_gate_is_seen() {
    let gated = |closed, opened| {
        let mut story = delayed(1000, 3000); // the body starts at 3010
        for (at, edge) in [(closed, Edge::Begin), (opened, Edge::End)] {
            story.note(INJECTOR, at, Event::Gate { lambda: "mail".to_owned(), edge });
        }
        story
    };
    green(&gated(1010, 9000)); // within two polls of the closing
    let report = green(&gated(500, 3010));
    assert_eq!(report.gates.percentiles.n, 1, "and how long after the call the last start was");
    assert_eq!(
        (green(&gated(1010, 9000)).gates.percentiles.max_ms, report.gates.percentiles.max_ms),
        (2000.0, 0.0)
    );
    red(&gated(1009, 9000), &["I14"]);
    red(&gated(500, 3011), &["I14"]);
    let mut other = gated(500, 9000);
    other.change(|event| {
        if let Event::Gate { lambda, .. } = event {
            *lambda = "sms".to_owned();
        }
    });
    green(&other);
}

#[test]
fn a_clock_set_back_after_the_task_was_due_makes_no_start_early() {
    green(&delayed(1000, 1010));
    let mut story = delayed(1000, 1010);
    story.change(|event| {
        if let Event::Transition { to: Claimed | Success, db_us, .. } = event {
            *db_us -= 90_000_000;
        }
    });
    green(&story);
}

#[test]
fn a_task_beyond_a_limit_is_seen() {
    let limited = |start, most| {
        let mut story = ordered(start);
        story.change(|event| match event {
            Event::Settings(settings) => settings.limits = vec![("mail".to_owned(), most)],
            Event::Row { ordering_key, .. } => *ordering_key = None,
            _ => {}
        });
        story
    };
    let report = green(&limited(200, 1));
    assert_eq!(report.invariant("I24").unwrap().checked, 2);
    red(&limited(199, 1), &["I24"]);
    green(&limited(199, 2));
}

/// Three starts at these milliseconds, under 10 a second and a burst of 2; the third is given back or not.
fn rated(starts: [u64; 3], given_back: bool) -> Story {
    let mut story = Story::idle();
    for (task, at) in (1..).zip(starts) {
        story.scheduled(task, 100);
        story.claims(WORKER, task, task, 1, at);
        let numbers = if task == 3 && given_back {
            story.becomes(task, Some(Claimed), Enqueued, (task, 0, 0), at + 10);
            let again = task + 10;
            story.claims(WORKER, task, again, 1, 1_000);
            story.body(WORKER, task, again, 1_010, Some((Ended::Success, 1_080)));
            (again, 1, 0)
        } else {
            story.body(WORKER, task, task, at + 10, Some((Ended::Success, at + 80)));
            (task, 1, 0)
        };
        let ended = if numbers.0 > 10 { 1_090 } else { at + 90 };
        story.becomes(task, Some(Claimed), Success, numbers, ended);
        story.row(task, Success, numbers);
    }
    story.change(|event| {
        if let Event::Settings(settings) = event {
            let lambda = "mail".to_owned();
            let rate = Rate { lambda, per_second: 10.0, burst: 2, from_us: None, to_us: None };
            settings.rates = vec![rate];
        }
    });
    story
}

#[test]
fn a_start_beyond_a_rate_is_seen() {
    let report = green(&rated([200, 200, 300], false));
    assert_eq!(report.invariant("I30").unwrap().checked, 3);
    red(&rated([200, 200, 295], false), &["I30"]);
    red(&rated([200, 250, 295], false), &["I30"]);
    green(&rated([200, 200, 295], true));
}

#[test]
fn a_lowered_rate_is_checked_from_then_on() {
    let lowered = |from, to| {
        let mut story = rated([200, 300, 400], false);
        let (from_us, to_us) = (Some(db_us(from)), Some(db_us(to)));
        let lambda = "mail".to_owned();
        let rate = Rate { lambda, per_second: 1.0, burst: 1, from_us, to_us };
        story.note(INJECTOR, 500, Event::Rate(rate));
        story
    };
    red(&lowered(250, 450), &["I30"]);
    green(&lowered(350, 450));
    green(&lowered(250, 400));
}
