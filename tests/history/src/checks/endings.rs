//! How tasks end: once, for a reason, within their limits.

use crate::history::{BodyEnd, History, Row};
use crate::{Ended, Invariant, Status};

/// I5.
pub(crate) fn each_ends_once(history: &History) -> Invariant {
    let statement =
        "each life of a task has one terminal transition, the last is one, and its row agrees";
    let mut check = Invariant::new("I5", "one terminal state each", statement);
    for task in history.tasks.all() {
        let (row, steps) = (history.row(task), history.transitions.of(task));
        if row.is_none() && steps.is_empty() {
            continue; // I1 speaks of it
        }
        let ends = steps.iter().filter(|step| step.to.is_terminal()).count();
        let lives = 1 + steps.iter().filter(|step| step.revives()).count();
        let last = steps.last().map(|step| (step.to, step.fence, step.attempt, step.crashes));
        let says = row.map(|row| (row.status, row.fence, row.attempt, row.crashes));
        let ended = last.is_some_and(|(status, ..)| status.is_terminal());
        check.expect(ends == lives && ended && last == says, history.id(task), || {
            format!(
                "{ends} ends of {lives} lives, the last change leads to {last:?}, its row says {says:?}"
            )
        });
    }
    check.done()
}

/// I15.
pub(crate) fn successes_happened(history: &History) -> Invariant {
    let statement = "a task that succeeded under a fence has a body that did";
    let mut check = Invariant::new("I15", "no phantom success", statement);
    for step in history.transitions.all().iter().filter(|step| step.to == Status::Success) {
        let did = |end: &BodyEnd| end.fence == step.fence && end.ended == Ended::Success;
        let happened = history.ends.of(step.task).iter().any(did);
        check.expect(happened, history.id(step.task), || {
            format!("success under fence {}, and no body ended so", step.fence)
        });
    }
    check.done()
}

/// I17.
pub(crate) fn attempts_are_bounded(history: &History) -> Invariant {
    let statement = "attempts <= max_attempts";
    let mut check = Invariant::new("I17", "attempts are bounded", statement);
    each_row(history, &mut check, |row| (row.attempt, row.max_attempts), |step| step.0)
}

/// I18.
pub(crate) fn crashes_are_bounded(history: &History) -> Invariant {
    let statement = "crashes in a row <= max_crashes";
    let mut check = Invariant::new("I18", "crashes are bounded", statement);
    each_row(history, &mut check, |row| (row.crashes, row.max_crashes), |step| step.1)
}

/// Compares the greatest number a task ever had, by its row and by its changes, with its limit.
fn each_row(
    history: &History,
    check: &mut Invariant,
    of_row: impl Fn(&Row) -> (i16, i16),
    of_step: impl Fn((i16, i16)) -> i16,
) -> Invariant {
    for row in history.rows.all() {
        let (last, limit) = of_row(row);
        let steps = history.transitions.of(row.task).iter();
        let most = steps.map(|step| of_step((step.attempt, step.crashes))).fold(last, i16::max);
        check.expect(most <= limit, history.id(row.task), || format!("{most} of {limit}"));
    }
    check.clone().done()
}

/// I19.
pub(crate) fn the_dead_had_their_chances(history: &History) -> Invariant {
    let statement =
        "a dead task used up its attempts or crashes; it and a fatal one have a failure";
    let mut check = Invariant::new("I19", "dead letters by the rules", statement);
    for row in history.rows.all() {
        let used_up = row.attempt >= row.max_attempts || row.crashes >= row.max_crashes;
        let chances = match row.status {
            Status::Dead => used_up,
            Status::FatalFailure => true,
            _ => continue,
        };
        let failures = history.failures.of(row.task).len();
        check.expect(chances && failures > 0, history.id(row.task), || {
            let (attempt, crashes) = (row.attempt, row.crashes);
            let of = format!("{attempt} of {}, {crashes} of {}", row.max_attempts, row.max_crashes);
            format!("{:?} with {failures} failures on record; attempts, crashes {of}", row.status)
        });
    }
    check.done()
}
