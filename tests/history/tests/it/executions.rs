//! I9, I12, I21, G6, G10 and G11: bodies and the processes that run them.

use tuskline_history::Status::{Claimed, Enqueued, RetriableFailure, Success};
use tuskline_history::{Ended, Event, LockAnswer, Role};

use crate::story::{END, INJECTOR, OTHER, Story, WORKER, caught, green, ns, red};

/// `WORKER` is killed with task 1 at 300 ms. The task is rescued and succeeds on `OTHER`.
fn rescued(next_claim: u64) -> Story {
    let mut story = Story::idle();
    story.scheduled(1, 100);
    story.claims(WORKER, 1, 5, 1, 110);
    story.body(WORKER, 1, 5, 120, None);
    story.dies(WORKER, 300, 310);
    let before = next_claim - 20;
    story.becomes(1, Some(Claimed), Enqueued, (5, 0, 1), before);
    story.failed(1, 5);
    story.claims_after(OTHER, 1, (6, 1, 1), next_claim);
    story.body(OTHER, 1, 6, next_claim + 10, Some((Ended::Success, next_claim + 90)));
    story.becomes(1, Some(Claimed), Success, (6, 1, 0), next_claim + 100);
    story.row(1, Success, (6, 1, 0));
    story
}

#[test]
fn a_kill_explains_a_repeat() {
    let report = green(&rescued(2400));
    assert_eq!(report.repeats["worker death"], 1);
    assert_eq!((report.executed, report.overlaps), (2, 0));
    let death = &report.recovery.worker_death;
    assert_eq!((death.percentiles.n, death.percentiles.p99_ms), (1, 2402.0 - 310.0));
    assert_eq!((death.bound_ms, death.ok), (4000.0, true));
}

#[test]
fn a_late_rescue_is_seen() {
    let mut story = rescued(2400);
    green(&story);
    story = rescued(4400);
    red(&story, &["G10"]);
    story.database_down(1000, 1500); // the bound does not apply then
    story.note(OTHER, 1510, Event::Claimed { fence: 4, tasks: Vec::new() });
    green(&story);
}

#[test]
fn a_rescue_waits_for_the_tables_of_the_queues() {
    let dropped = |from, to| {
        let mut story = rescued(4400);
        story.fault("dropped_tables", None, from, to);
        story
    };
    assert_eq!(green(&dropped(4000, 4200)).recovery.worker_death.percentiles.n, 0);
    red(&dropped(4500, 4600), &["G10"]); // after the claim
}

#[test]
fn a_row_that_a_stranger_has_locked_is_due_when_it_is_let_go() {
    let locked = |task, next_claim, from, to| {
        let mut story = rescued(next_claim);
        story.fault("lock_contention", None, from, to);
        story.note(INJECTOR, from, Event::RowsHeld { id: from, tasks: vec![task] });
        story
    };
    let report = green(&locked(1, 4400, 200, 4300));
    assert_eq!(report.recovery.worker_death.percentiles.max_ms, 102.0);
    red(&locked(2, 4400, 200, 4300), &["G10"]); // another's row
    red(&locked(1, 4400, 100, 300), &["G10"]); // let go before
    red(&locked(1, 8400, 200, 4300), &["G10"]); // and then left lying
}

#[test]
fn what_no_store_consumer_watched_all_the_time_is_told_apart_and_bound_alike() {
    let unwatched = |next_claim, watch: &dyn Fn(&mut Story)| {
        let mut story = rescued(next_claim);
        story.note(INJECTOR, 1, Event::Spawned { pid: 31, role: Role::StoreConsumer });
        watch(&mut story);
        let late = next_claim > 4310;
        let report = if late { red(&story, &["G10"]) } else { green(&story) };
        assert_eq!(report.recovery.worker_death.percentiles.n, 1);
        report.recovery.worker_death_unwatched.n
    };
    for next_claim in [2400, 4400] {
        assert_eq!(unwatched(next_claim, &|_| ()), 0);
        assert_eq!(unwatched(next_claim, &|story| story.reaped(31, 400)), 1);
        assert_eq!(unwatched(next_claim, &|story| story.stops(31, 400, 410)), 1);
        assert_eq!(unwatched(next_claim, &|story| story.fault("delay", Some(31), 400, 500)), 1);
        let with_another = |story: &mut Story| {
            story.reaped(31, 400);
            story.note(INJECTOR, 2, Event::Spawned { pid: 32, role: Role::StoreConsumer });
        };
        assert_eq!(unwatched(next_claim, &with_another), 0);
    }
}

#[test]
fn a_task_that_waited_for_its_retry_had_no_lease() {
    let mut story = Story::idle();
    story.scheduled(1, 100);
    story.claims(WORKER, 1, 5, 1, 110);
    story.body(WORKER, 1, 5, 120, Some((Ended::Retriable, 200)));
    story.becomes_due(1, Some(Claimed), RetriableFailure, (5, 1, 0), 210, Some(6000));
    story.failed(1, 5);
    story.dies(WORKER, 300, 310);
    story.becomes(1, Some(RetriableFailure), Enqueued, (5, 1, 0), 6010);
    story.claims(OTHER, 1, 6, 2, 6020);
    story.body(OTHER, 1, 6, 6030, Some((Ended::Success, 6100)));
    story.becomes(1, Some(Claimed), Success, (6, 2, 0), 6110);
    story.row(1, Success, (6, 2, 0));
    assert_eq!(green(&story).recovery.worker_death.percentiles.n, 0);
}

#[test]
fn a_body_that_outlives_its_rescue_overlaps() {
    let alive = |story: &mut Story| {
        story.without(|event| matches!(event, Event::Reaped { pid: WORKER, .. }));
        story.without(|event| matches!(event, Event::Fault { .. } | Event::FaultEnd { .. }));
        story.beats(WORKER, 500, END);
        story.note(WORKER, END, Event::Exit);
        story.reaped(WORKER, END + 10);
    };
    let report = caught(rescued(2400), &["I9"], alive);
    assert_eq!((report.overlaps, report.overlaps_by_interval, report.overlaps_by_lock), (1, 1, 0));
    assert_eq!(report.repeats["rescue"], 1);
}

fn lock_was_held(event: &mut Event) {
    if let Event::BodyStart { fence: 6, lock, .. } = event {
        *lock = LockAnswer::Held { pid: WORKER, fence: 5 };
    }
}

#[test]
fn a_held_lock_proves_an_overlap_whatever_the_clocks_say() {
    let report = caught(rescued(2400), &["I9"], |story| story.change(lock_was_held));
    assert_eq!((report.overlaps, report.overlaps_by_interval, report.overlaps_by_lock), (1, 0, 1));
}

#[test]
fn a_lock_held_by_an_unknown_body_is_an_overlap() {
    caught(Story::one_task(), &["I9"], |story| {
        story.change(|event| {
            if let Event::BodyStart { lock, .. } = event {
                *lock = LockAnswer::Held { pid: 99, fence: 99 };
            }
        });
    });
}

#[test]
fn a_holder_that_was_stopped_before_it_could_write_is_counted_apart() {
    let mut story = frozen(40);
    story.without(|event| matches!(event, Event::BodyStart { fence: 5, .. }));
    story.without(|event| matches!(event, Event::BodyTick { fence: 5, .. }));
    let report = green(&story);
    assert_eq!((report.overlaps, report.overlaps_stopped, report.overlaps_by_interval), (0, 1, 0));
}

/// As [`rescued`], but `WORKER` was stopped from 300 ms until 3 s and ended `after` that.
fn frozen(after: u64) -> Story {
    let mut story = rescued(2400);
    story.without(|event| matches!(event, Event::Reaped { pid: WORKER, .. }));
    story.stops(WORKER, 300, 3000);
    story.reaped(WORKER, 3000 + after);
    story.change(lock_was_held);
    story
}

#[test]
fn a_stopped_holder_is_counted_apart() {
    let report = green(&frozen(40));
    assert_eq!((report.overlaps, report.overlaps_stopped), (0, 1));
    assert_eq!((report.overlaps_by_interval, report.overlaps_by_lock), (1, 1));
    assert_eq!(report.repeats["stop"], 1);
    assert_eq!((report.resumed.percentiles.n, report.resumed.percentiles.max_ms), (1, 40.0));
}

#[test]
fn a_stop_shorter_than_the_margin_excuses_nothing() {
    let mut story = frozen(40);
    story.without(|event| matches!(event, Event::Continued { .. }));
    story.note(INJECTOR, 1200, Event::Continued { pid: WORKER });
    let report = red(&story, &["I9"]);
    assert_eq!((report.overlaps, report.overlaps_stopped), (1, 0));
}

#[test]
fn a_process_that_lives_on_after_its_lease_is_seen() {
    green(&frozen(100));
    let report = red(&frozen(101), &["G6"]);
    assert_eq!(report.resumed.bound_ms, 100.0);
    let mut story = frozen(40);
    story.without(|event| matches!(event, Event::Reaped { pid: WORKER, .. }));
    red(&story, &["G6"]);
}

#[test]
fn a_number_that_is_kept_after_its_lease_is_seen() {
    // Stopped from 2 s until 6 s while no body runs; the registration before is over `lost` after that.
    let stopped = |lost: u64| {
        let mut story = Story::one_task();
        story.without(|event| match event {
            Event::BeatSent { beat } | Event::BeatAck { beat } => (2000..6500).contains(beat),
            _ => false,
        });
        story.stops(WORKER, 2010, 6000);
        for (pid, lost) in [(WORKER, 6000 + lost), (OTHER, 2900)] {
            story.note(pid, lost, Event::Lost { why: "no heartbeat".to_owned() });
            story.note(pid, 6500, Event::Registered { executor: 7, answered: None });
        }
        story
    };
    let report = green(&stopped(200));
    assert_eq!(report.resumed.percentiles.n, 0, "no process ended");
    red(&stopped(201), &["G6"]);
    // Its idle threads did not end in time, so the process did.
    let ended = |after: u64| {
        let mut story = stopped(0);
        story.without(|event| {
            matches!(event, Event::Lost { .. } | Event::Reaped { pid: WORKER, .. })
        });
        story.falls_silent(WORKER, 2010, 6000 + after);
        story
    };
    assert!(!ended(200).report().violated().contains(&"G6"));
    assert!(ended(201).report().violated().contains(&"G6"));
    // Its registration was over before it was stopped: it has nothing to give up.
    let mut between = stopped(0);
    between.without(|event| matches!(event, Event::Lost { .. }));
    for pid in [WORKER, OTHER] {
        between.note(pid, 2009, Event::Lost { why: "the database does not know it".to_owned() });
    }
    assert!(!between.report().violated().contains(&"G6"));
}

#[test]
fn a_body_that_goes_on_after_its_lease_is_seen() {
    let mut story = frozen(90);
    story.note(WORKER, 3010, Event::BodyTick { task: 1, fence: 5 });
    caught(story, &["G6"], |story| {
        story.note(WORKER, 3060, Event::BodyTick { task: 1, fence: 5 });
    });
}

/// Task 1 is released before it succeeds on another worker.
fn released(ended: Ended) -> Story {
    let mut story = Story::idle();
    story.scheduled(1, 100);
    story.claims(WORKER, 1, 5, 1, 110);
    story.body(WORKER, 1, 5, 120, Some((ended, 200)));
    story.becomes(1, Some(Claimed), Enqueued, (5, 0, 0), 210);
    story.claims(OTHER, 1, 6, 1, 220);
    story.body(OTHER, 1, 6, 230, Some((Ended::Success, 300)));
    story.becomes(1, Some(Claimed), Success, (6, 1, 0), 310);
    story.row(1, Success, (6, 1, 0));
    story
}

#[test]
fn a_repeat_of_finished_work_has_no_cause() {
    assert_eq!(green(&released(Ended::Stopped)).repeats["release"], 1);
    let mut story = released(Ended::Success);
    assert_eq!(red(&story, &["I12"]).unexplained_repeats, 1);
    story.fault("partition", Some(WORKER), 150, 250);
    assert_eq!(green(&story).repeats["fault"], 1);
    let mut elsewhere = released(Ended::Success);
    elsewhere.fault("partition", Some(OTHER), 150, 250);
    elsewhere.fault("partition", Some(WORKER), 400, 500);
    red(&elsewhere, &["I12"]);
    let mut everybody = released(Ended::Success);
    everybody.fault("cut", None, 150, 250);
    green(&everybody);
}

#[test]
fn a_fault_of_the_database_explains_a_repeat() {
    let mut story = released(Ended::Success);
    red(&story, &["I12"]);
    story.database_down(190, 215);
    assert_eq!(green(&story).repeats["database down"], 1);
}

#[test]
fn an_attempt_that_begins_twice_is_seen() {
    caught(Story::one_task(), &["I12"], |story| {
        story.body(OTHER, 1, 1, 300, Some((Ended::Success, 400)));
    });
}

#[test]
fn a_gap_between_heartbeats_is_seen() {
    let silent = |from: u64, to: u64| {
        move |event: &Event| {
            let (Event::BeatSent { beat } | Event::BeatAck { beat }) = event else { return false };
            (from..to).contains(beat)
        }
    };
    let mut story = Story::one_task();
    story.without(silent(4000, 5500));
    caught(story, &["I21"], |story| story.without(silent(4000, 5900)));
    let mut stopped = Story::one_task();
    stopped.without(silent(4000, 5900));
    stopped.stops(WORKER, 4000, 5000);
    stopped.stops(OTHER, 4000, 5000);
    green(&stopped);
}

#[test]
fn a_process_that_outlives_its_last_heartbeat_is_seen() {
    let dies = |reaped| {
        let mut story = Story::one_task();
        story.dies(OTHER, 1100, reaped);
        story
    };
    green(&dies(2900));
    red(&dies(3100), &["I21"]);
}

#[test]
fn a_slow_return_of_the_database_is_seen() {
    let back = |claimed| {
        let mut story = Story::one_task();
        story.database_down(1000, 2000);
        story.note(OTHER, claimed, Event::Claimed { fence: 4, tasks: Vec::new() });
        story
    };
    let report = green(&back(4000));
    assert_eq!(report.recovery.database_return.percentiles.max_ms, 2000.0);
    red(&back(4001), &["G10"]);
    for kind in ["failover", "dropped_tables"] {
        let mut failover = back(6900);
        failover.fault(kind, None, 1000, 2000);
        let report = green(&failover);
        assert_eq!(report.recovery.database_return.percentiles.n, 0);
        assert_eq!(report.recovery.failover.percentiles.max_ms, 4900.0);
        let mut slow = back(7001);
        slow.fault(kind, None, 1000, 2000);
        red(&slow, &["G10"]);
    }
}

#[test]
fn a_process_number_that_is_used_again_confuses_nothing() {
    let mut story = rescued(2400);
    // Another worker bore WORKER's number and was reaped before it began.
    story.reaped(WORKER, 0);
    story.without(|event| matches!(event, Event::Opened { pid: WORKER, .. }));
    let opened = Event::Opened { actor: tuskline_history::Actor::Executor, pid: WORKER };
    story.first(WORKER, ns(1), opened);
    green(&story);
    // Nor does a store consumer that bears it afterwards.
    story.note(INJECTOR, 3000, Event::Spawned { pid: WORKER, role: Role::StoreConsumer });
    story.reaped(WORKER, 9000);
    green(&story);
}

#[test]
fn a_worker_that_is_given_up_while_it_beats_is_seen() {
    // T is 1 s; the last heartbeat before 2 s was sent at 1750 ms.
    let given_up = |reaped| {
        let mut story = Story::one_task();
        story.falls_silent(OTHER, 2000, reaped);
        story
    };
    red(&given_up(2740), &["I23"]);
    let mut said = given_up(2740);
    said.note(OTHER, 2735, Event::Ends { why: "as dead".to_owned() });
    let report = red(&said, &["I23"]);
    let details =
        report.invariants.iter().find(|check| check.id == "I23").map(|check| &check.details);
    let what = &details.expect("it was checked")[0].what;
    assert!(
        what.ends_with("ended itself 990 ms after its last heartbeat, in -: as dead"),
        "{what}"
    );
    green(&given_up(2760));
    let mut killed = given_up(2740);
    killed.fault("worker_kill", Some(OTHER), 2730, 2741);
    green(&killed);
    let mut stopped = given_up(2740);
    stopped.stops(OTHER, 2000, 2300);
    green(&stopped);
}

#[test]
fn a_silent_connection_that_is_not_noticed_is_seen() {
    let silent_at_50 = |noticed: Option<u64>| {
        let mut story = Story::one_task();
        story.without(|event| matches!(event, Event::Exit | Event::Reaped { .. }));
        story.beats(WORKER, END, 20_000);
        story.beats(OTHER, END, 20_000);
        story.fault("deaf_line", Some(WORKER), 50, 51);
        // An earlier loss does not answer this silence.
        story.note(WORKER, 40, Event::LineLost);
        if let Some(at) = noticed {
            story.note(WORKER, at, Event::LineLost);
        }
        story
    };
    let report = green(&silent_at_50(Some(15_050)));
    assert_eq!(
        (report.wake_lines.percentiles.n, report.wake_lines.percentiles.max_ms),
        (1, 15_000.0)
    );
    red(&silent_at_50(Some(15_051)), &["G11"]);
    red(&silent_at_50(None), &["G11"]);
    let mut ended = silent_at_50(None);
    ended.dies(WORKER, 15_000, 15_040);
    assert_eq!(green(&ended).wake_lines.percentiles.n, 0);
    // A line ends with its registration.
    let lost_at = |at: u64| {
        let mut story = silent_at_50(None);
        story.note(WORKER, at, Event::Lost { why: "no heartbeat".to_owned() });
        story
    };
    assert!(!lost_at(15_050).report().violated().contains(&"G11"));
    assert!(lost_at(15_051).report().violated().contains(&"G11"));
}

#[test]
fn a_registration_that_is_over_at_t_costs_no_process() {
    // No heartbeat between 2 s and 6 s: the bodies stop at 2.9 s, and it registers again at 6 s.
    let outage = |lost: u64| {
        let mut story = Story::one_task();
        story.without(|event| match event {
            Event::BeatSent { beat } | Event::BeatAck { beat } => (2000..6000).contains(beat),
            _ => false,
        });
        for pid in [WORKER, OTHER] {
            story.note(pid, lost, Event::Lost { why: "no heartbeat".to_owned() });
            story.note(pid, 6000, Event::Registered { executor: 7, answered: None });
        }
        story
    };
    green(&outage(2900));
    red(&outage(2700), &["I23"]);
    red(&outage(4000), &["I21"]);
    let mut ran = outage(2900);
    ran.body(OTHER, 1, 1, 2800, Some((Ended::Stopped, 2901)));
    assert!(ran.report().violated().contains(&"I28"));
}
