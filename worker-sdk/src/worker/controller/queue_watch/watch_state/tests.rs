//! The table of `next`, and properties that hold for each state and event.

use std::collections::HashSet;
use std::sync::LazyLock;
use std::time::Duration;

use super::*;

static BEGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// A time in the samples: states begin at 100, claims are sent at 150, events come at 200.
fn ms(number: u64) -> Instant {
    *BEGIN + Duration::from_millis(number)
}

fn now() -> Instant {
    ms(200)
}

/// The states, in the order of the columns.
fn states() -> [(&'static str, WatchState); 8] {
    use Role::{StandingBy, Watching};
    let since = ms(100);
    let (last_look, asleep) = (
        |role| WatchState::LastLook { role, since },
        |role| WatchState::Asleep { role, poll_at: ms(1_000) },
    );
    [
        ("awake", WatchState::Awake { since }),
        ("called", WatchState::Called { since }),
        ("poll", WatchState::Poll { at: ms(110) }),
        ("falling", WatchState::FallingAsleep { poll_at: ms(1_000) }),
        ("last W", last_look(Watching)),
        ("last S", last_look(StandingBy)),
        ("asleep W", asleep(Watching)),
        ("asleep S", asleep(StandingBy)),
    ]
}

fn name_of(state: WatchState) -> &'static str {
    match state {
        WatchState::Awake { .. } => "awake",
        WatchState::Called { .. } => "called",
        WatchState::Poll { .. } => "poll",
        WatchState::FallingAsleep { .. } => "falling",
        WatchState::LastLook { role: Role::Watching, .. } => "last W",
        WatchState::LastLook { role: Role::StandingBy, .. } => "last S",
        WatchState::Asleep { role: Role::Watching, .. } => "asleep W",
        WatchState::Asleep { role: Role::StandingBy, .. } => "asleep S",
    }
}

fn fewer(found: Found, polled: bool) -> Fewer {
    Fewer {
        found,
        sent_at: ms(150),
        poll_at: polled.then(|| ms(250)),
        again_at: ms(220),
        safety_poll_at: ms(1_200),
    }
}

/// The events, in the order of the rows.
fn events() -> Vec<(&'static str, Event)> {
    let claim = |found, polled| Event::ClaimedFewer(fewer(found, polled));
    let now = now();
    vec![
        ("claim: full", Event::ClaimedAll { sent_at: ms(150) }),
        ("claim: nothing", claim(Found::Nothing, false)),
        ("claim: one", claim(Found::One, false)),
        ("claim: several", claim(Found::Several, false)),
        ("claim: overdue", claim(Found::Overdue, false)),
        ("polled: nothing", claim(Found::Nothing, true)),
        ("polled: one", claim(Found::One, true)),
        ("polled: several", claim(Found::Several, true)),
        ("polled: overdue", claim(Found::Overdue, true)),
        ("claim out of date", out_of_date()),
        ("bell ours", Event::BellOurs { useful: true, now }),
        ("bell ours, no use", Event::BellOurs { useful: false, now }),
        ("bell taken", Event::BellTaken { follow_calls: false, now }),
        ("taken, follow calls", Event::BellTaken { follow_calls: true, now }),
        ("bell busy", Event::BellBusy { poll_at: ms(250) }),
        ("called", Event::Called { useful: true, now }),
        ("called, no use", Event::Called { useful: false, now }),
        ("may have tasks", Event::MayHaveTasks { now }),
        ("bell given up", Event::BellGivenUp { now }),
        ("bells lost", Event::BellsLost),
        ("no free slot", Event::NoFreeSlot),
        ("peek sent", Event::PeekSent { answer_by: ms(1_150) }),
        ("peek found a row", Event::PeekFound { sent_at: ms(150) }),
        ("cannot peek", Event::CannotPeek { now }),
    ]
}

fn out_of_date() -> Event {
    Event::ClaimedFewer(Fewer { sent_at: ms(50), ..fewer(Found::Nothing, false) })
}

fn each(mut check: impl FnMut(WatchState, Event)) {
    for (_, state) in states() {
        for (_, event) in events() {
            check(state, event);
        }
    }
}

/// The next state; `-`: the state and its times stay.
fn cell(state: WatchState, event: Event) -> String {
    let (after, request) = next(state, event);
    let mark = match request {
        None => "",
        Some(Request::AskForBell) => " ?",
        Some(Request::GiveUpBell) => " !",
        Some(Request::FollowCalls) => " +",
    };
    let due = if after.is_asleep() && after.claim_at() <= now() { " *" } else { "" };
    let name = if after == state { "-" } else { name_of(after) };
    format!("{name}{mark}{due}")
}

fn table() -> String {
    let head = [vec!["event".to_owned()], states().map(|(name, _)| name.to_owned()).to_vec()];
    let mut rows = vec![head.concat()];
    for (name, event) in events() {
        let cells = states().map(|(_, state)| cell(state, event));
        rows.push([vec![name.to_owned()], cells.to_vec()].concat());
    }
    let widths: Vec<usize> =
        (0..rows[0].len()).map(|at| rows.iter().map(|row| row[at].len()).max().unwrap()).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!(" {cell:<width$} |"));
        format!("|{}", cells.collect::<String>())
    };
    let mut lines: Vec<_> = rows.iter().map(line).collect();
    let rule = widths.iter().map(|width| format!("{}|", "-".repeat(width + 2)));
    lines.insert(1, format!("|{}", rule.collect::<String>()));
    lines.join("\n")
}

/// `TUSKLINE_UPDATE=1` writes the page.
#[test]
fn the_documents_show_the_table_of_states_and_events() {
    let table = table();
    assert!(table.lines().all(|line| line.len() <= 120), "{table}");
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/queue-watch.md");
    let page = std::fs::read_to_string(path).unwrap();
    let (before, rest) = page.split_once("<!-- states -->\n").unwrap();
    let (shown, after) = rest.split_once("\n<!-- /states -->").unwrap();
    if std::env::var_os("TUSKLINE_UPDATE").is_some() {
        let page = format!("{before}<!-- states -->\n{table}\n<!-- /states -->{after}");
        std::fs::write(path, page).unwrap();
    } else {
        assert_eq!(shown, table, "docs/queue-watch.md: run this test with TUSKLINE_UPDATE=1");
    }
}

#[test]
fn the_same_input_has_the_same_output() {
    each(|state, event| assert_eq!(next(state, event), next(state, event)));
}

/// Also if a claim is under way that was sent before: its answer proves nothing.
#[test]
fn no_state_loses_a_call() {
    let calls = [
        Event::Called { useful: true, now: now() },
        Event::Called { useful: false, now: now() },
        Event::MayHaveTasks { now: now() },
    ];
    for ((name, state), call) in states().into_iter().flat_map(|one| calls.map(|call| (one, call)))
    {
        let (called, _) = next(state, call);
        assert!(called.claim_at() <= now(), "{name}, {call:?}");
        let (full, _) = next(called, Event::ClaimedAll { sent_at: ms(150) });
        assert_eq!(full.claims_since(), Some(now()), "{name}, {call:?}");
        for found in [Found::Nothing, Found::One, Found::Several, Found::Overdue] {
            for polled in [false, true] {
                let early = Event::ClaimedFewer(fewer(found, polled));
                assert_eq!(next(called, early), (called, None), "{name}, {call:?}, {found:?}");
            }
        }
    }
}

/// A row that a peek found is claimed, and so is what lies under a bell that goes or that cannot be peeked at.
#[test]
fn what_sleeps_is_claimed_when_it_may_have_missed_a_task() {
    each(|state, event| {
        let concerned = match event {
            Event::PeekFound { .. } => state.is_asleep(),
            Event::CannotPeek { .. } => state.is_asleep() && !state.is_watching(),
            Event::BellGivenUp { .. } => state.is_watching(),
            _ => false,
        };
        let (after, _) = next(state, event);
        assert!(!concerned || after.claim_at() <= now(), "{state:?}, {event:?}: {after:?}");
    });
}

/// The times of the samples end at 1,200 ms.
#[test]
fn each_state_has_a_next_claim_and_a_claim_leads_on() {
    each(|state, event| {
        let (after, _) = next(state, event);
        assert!(after.claim_at() <= ms(1_200), "{state:?}, {event:?}: {after:?}");
        let nothing = Fewer { sent_at: ms(1_500), ..fewer(Found::Nothing, false) };
        let (led, _) = next(after, Event::ClaimedFewer(nothing));
        assert!(led.claims_since().is_none(), "a claim that found nothing ends {after:?}");
    });
}

/// Else a task that was inserted before the lock, and committed after the look, would be missed.
#[test]
fn only_a_claim_after_the_lock_lets_a_queue_sleep_under_it() {
    each(|state, event| {
        let (after, _) = next(state, event);
        if after.is_watching() && !state.is_watching() {
            assert!(after.is_last_look(), "{state:?}, {event:?}: {after:?}");
        }
        if after.is_asleep() && state.is_last_look() {
            let claim = matches!(event, Event::ClaimedFewer(claim) if claim.sent_at > ms(100));
            assert!(claim || event == Event::BellsLost, "{state:?}, {event:?}: {after:?}");
        }
        let far = state.claims_since().is_some() && !state.is_last_look() || state.is_polled();
        assert!(!(far && after.is_asleep()), "{state:?}, {event:?}: {after:?}");
    });
}

#[test]
fn a_bell_is_asked_for_by_a_queue_that_falls_asleep_and_given_up_by_one_that_needs_it() {
    each(|state, event| {
        let (after, request) = next(state, event);
        let falls = matches!(after, WatchState::FallingAsleep { .. });
        if request == Some(Request::AskForBell) {
            assert!(falls && !state.is_watching(), "{state:?}, {event:?}");
        } else {
            assert!(!falls || after == state, "{state:?}, {event:?}: not asked for");
        }
        if request == Some(Request::GiveUpBell) {
            assert!(state.needs_bell() && !after.needs_bell(), "{state:?}, {event:?}");
        }
        let kept = !state.needs_bell() || after.needs_bell() || request.is_some();
        // The watch connection releases the lock at these events. Or the call is answered.
        let released = match event {
            Event::Called { useful: false, .. } | Event::MayHaveTasks { .. } => true,
            Event::BellGivenUp { .. } | Event::BellsLost => true,
            Event::ClaimedFewer(_) => !state.is_watching(),
            _ => false,
        };
        assert!(kept || released, "{state:?}, {event:?}: the bell is held for nothing");
    });
}

/// Behind a transaction pooler each answer comes with the time of a poll, and no bell is heard of.
#[test]
fn a_queue_that_is_polled_never_sleeps() {
    let mut reached = HashSet::from(["awake"]);
    let mut left = vec![WatchState::Awake { since: ms(100) }];
    while let Some(state) = left.pop() {
        for (name, event) in events() {
            if name.starts_with("polled") || name == "claim: full" || name == "no free slot" {
                let (after, request) = next(state, event);
                assert_eq!(request, None, "{state:?}, {name}");
                if reached.insert(name_of(after)) {
                    left.push(after);
                }
            }
        }
    }
    assert_eq!(reached, HashSet::from(["awake", "poll"]));
}
