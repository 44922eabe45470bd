//! Dead letters and redrives: every dead task is listed, and returns as often as redrives return
//! it, not more.
//!
//! In these runs only redrives restart tasks: a return without a redrive is a violation.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::history::{History, Redriven, Row, Transition};
use crate::{Invariant, Redrive, Status};

/// Tasks of a canary's first two steps.
const STEPS: [usize; 2] = [1, 10];

/// The effects of the redrives.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Redrives {
    /// How many were set.
    pub set: u64,
    /// The number that ended, with nothing left to release.
    pub done: u64,
    /// The number that their canary stopped.
    pub died_again: u64,
    /// Returns of dead tasks.
    pub let_go: u64,
    /// The number of returns that belong to no redrive, or to two.
    pub astray: u64,
    /// Tasks that are dead at the end.
    pub dead: u64,
    /// The number of dead tasks that are not listed, and so cannot be found.
    pub lost: u64,
}

/// I27.
pub(crate) fn dead_letters_return(history: &History) -> (Invariant, Redrives) {
    let statement = "the dead tasks are listed, and no others; a redrive lets each go once, counts them, and ends";
    let mut check = Invariant::new("I27", "dead letters return", statement);
    let outcome = |outcome: &str| {
        let such = |redrive: &&Redrive| redrive.outcome.as_deref() == Some(outcome);
        history.redrives.iter().filter(such).count() as u64
    };
    let mut found = Redrives {
        set: history.redrives.len() as u64,
        done: outcome("done"),
        died_again: outcome("died_again"),
        ..Redrives::default()
    };
    the_dead_are_listed(history, &mut check, &mut found);
    returns_are_laid_at_one_door(history, &mut check, &mut found);
    let mut let_go: BTreeMap<i64, Vec<&Redriven>> = BTreeMap::new();
    for redriven in history.redriven.all() {
        let_go.entry(redriven.redrive).or_default().push(redriven);
    }
    for redrive in &history.redrives {
        let mut let_go = let_go.remove(&redrive.redrive).unwrap_or_default();
        let_go.sort_by_key(|redriven| redriven.step);
        let wrong = wrong(history, redrive, &let_go);
        check.expect(wrong.is_none(), None, || {
            format!("redrive {}: {}", redrive.redrive, wrong.unwrap_or_default())
        });
    }
    for (redrive, let_go) in let_go {
        check.violated(history.id(let_go[0].task), || format!("there is no redrive {redrive}"));
    }
    (check.done(), found)
}

fn the_dead_are_listed(history: &History, check: &mut Invariant, found: &mut Redrives) {
    for task in history.tasks.all() {
        let status = history.row(task).map(|row| row.status);
        let dead = matches!(status, Some(Status::Dead | Status::FatalFailure));
        let letters = history.letters.of(task);
        if !dead && letters.is_empty() {
            continue;
        }
        let listed = letters.len() == 1 && letters[0].shown;
        found.dead += u64::from(dead);
        found.lost += u64::from(dead && !listed);
        check.expect(dead && listed, history.id(task), || {
            let shown = letters.iter().filter(|letter| letter.shown).count();
            format!("{status:?}, listed {} times as dead, shown {shown} times", letters.len())
        });
    }
}

/// Each return of a task is one redrive's, in the same transaction, and no redrive lets a task go twice.
fn returns_are_laid_at_one_door(history: &History, check: &mut Invariant, found: &mut Redrives) {
    for task in history.tasks.all() {
        let doors = history.redriven.of(task);
        for step in history.transitions.of(task).iter().filter(|step| step.revives()) {
            let own = doors.iter().filter(|door| door.xid == step.xid).count();
            found.let_go += 1;
            found.astray += u64::from(own != 1);
            check.expect(own == 1, history.id(task), || {
                format!("begins anew with step {}, let go by {own} redrives", step.step)
            });
        }
        for (at, door) in doors.iter().enumerate() {
            let again = doors[..at].iter().any(|before| before.redrive == door.redrive);
            let returns = revival(history, door).is_some();
            check.expect(returns && !again, history.id(task), || match again {
                true => format!("let go by redrive {} again", door.redrive),
                false => format!("let go by redrive {}, and does not begin anew", door.redrive),
            });
        }
    }
}

/// The change by which a task begins anew that a redrive let go.
fn revival<'h>(history: &'h History, door: &Redriven) -> Option<&'h Transition> {
    let steps = history.transitions.of(door.task);
    steps.iter().find(|step| step.revives() && step.xid == door.xid)
}

/// The errors of a redrive, by excess or by omission. `let_go` has the tasks that it released, in
/// order.
fn wrong(history: &History, redrive: &Redrive, let_go: &[&Redriven]) -> Option<String> {
    let (released, again) = (redrive.released, died_again(history, redrive, let_go));
    let Some((ended_us, outcome)) = redrive.ended_us.zip(redrive.outcome.as_deref()) else {
        return Some("goes on".to_owned());
    };
    if !matches!(outcome, "done" | "died_again") {
        return Some(format!("did not end by itself: {outcome}"));
    }
    if usize::try_from(released) != Ok(let_go.len()) {
        return Some(format!("says that it let {released} go, it was {}", let_go.len()));
    }
    if usize::try_from(redrive.died_again) != Ok(again) {
        return Some(format!("says {} are dead again, it is {again}", redrive.died_again));
    }
    if let Some(most) = redrive.most.filter(|most| released > *most) {
        return Some(format!("let {released} go, and at most {most} were to"));
    }
    too_fast(redrive, ended_us)
        .or_else(|| out_of_step(history, redrive, let_go, outcome))
        .or_else(|| left_behind(history, redrive, ended_us, outcome))
}

/// Tasks that are dead, and that this redrive let go last.
fn died_again(history: &History, redrive: &Redrive, let_go: &[&Redriven]) -> usize {
    let dead = |task| {
        history
            .row(task)
            .is_some_and(|row| matches!(row.status, Status::Dead | Status::FatalFailure))
    };
    let last = |task| history.redriven.of(task).last().map(|door| door.redrive);
    let such = |door: &&&Redriven| dead(door.task) && last(door.task) == Some(redrive.redrive);
    let_go.iter().filter(such).count()
}

/// The first task returns at once, the others at their rate; one more is allowed for the two
/// clocks.
#[allow(clippy::cast_precision_loss, reason = "counts and spans, far below 2^53")]
fn too_fast(redrive: &Redrive, ended_us: i64) -> Option<String> {
    let pace = redrive.per_second?;
    let seconds = (ended_us - redrive.set_us) as f64 / 1e6;
    let most = 2.0 + pace * seconds;
    let released = redrive.released;
    (released as f64 > most)
        .then(|| format!("let {released} go in {seconds:.1} s, at {pace} a second"))
}

/// A canary stops when a task of its first two steps has died again, and for no other reason. A
/// task that another redrive has returned since then is not judged: its recorded end is that of the
/// other redrive.
fn out_of_step(
    history: &History,
    redrive: &Redrive,
    let_go: &[&Redriven],
    outcome: &str,
) -> Option<String> {
    let died = |door: &Redriven| end_of_life(history, door).is_some_and(Transition::kills);
    let stopped = outcome == "died_again";
    if stopped && !(redrive.canary && let_go.iter().any(|door| died(door))) {
        return Some("was stopped though none of its tasks died again".to_owned());
    }
    if !redrive.canary {
        return None;
    }
    let batches: Vec<&[&Redriven]> = let_go.chunk_by(|one, next| one.xid == next.xid).collect();
    let stays_dead = |door: &Redriven| {
        let last = history.redriven.of(door.task).last().map(|last| last.step);
        died(door) && last == Some(door.step)
    };
    for (at, (batch, most)) in batches.iter().zip(STEPS).enumerate() {
        if batch.len() > most {
            return Some(format!("let {} go as its step {}", batch.len(), at + 1));
        }
        if batch.iter().any(|door| stays_dead(door)) {
            let went_on = !stopped || batches.len() > at + 1;
            return went_on.then(|| format!("went on though one of step {} died again", at + 1));
        }
        // A step without a success (all were cancelled, say) is repeated, and the steps can no
        // longer be told apart.
        let good = |door: &Redriven| {
            end_of_life(history, door).is_some_and(|end| end.to == Status::Success)
        };
        if !batch.iter().any(|door| good(door)) {
            return None;
        }
    }
    None
}

/// How the life ended that a redrive gave a task.
fn end_of_life<'h>(history: &'h History, door: &Redriven) -> Option<&'h Transition> {
    let begun = revival(history, door)?.step;
    let mut later = history.transitions.of(door.task).iter().filter(|step| step.step > begun);
    later.find(|step| step.to.is_terminal())
}

/// A task that the redrive should have returned: it had died long enough before, and was still dead
/// when the redrive was done.
fn left_behind(
    history: &History,
    redrive: &Redrive,
    ended_us: i64,
    outcome: &str,
) -> Option<String> {
    if outcome != "done" || redrive.most.is_some_and(|most| redrive.released >= most) {
        return None;
    }
    let long_us = i64::try_from(history.settings.lease_ms * 1000).unwrap_or(i64::MAX);
    let meant = |row: &&Row| {
        let lambda = redrive.lambda.as_ref();
        let id = history.tasks.key(row.task);
        lambda.is_none_or(|lambda| lambda == history.words.key(row.lambda))
            && redrive.ids.as_ref().is_none_or(|ids| ids.contains(id))
    };
    let left = history.rows.all().iter().filter(meant).find(|row| {
        let steps = history.transitions.of(row.task);
        steps.iter().enumerate().any(|(at, death)| {
            let next = steps.get(at + 1).map_or(i64::MAX, |next| next.db_us);
            death.kills()
                && death.db_us < redrive.set_us - long_us
                && next > ended_us + long_us
                && is_cause(history, redrive, death)
        })
    })?;
    Some(format!("is done, and task {} was left behind", history.tasks.key(left.task)))
}

/// Whether a task died of what a redrive is about.
fn is_cause(history: &History, redrive: &Redrive, death: &Transition) -> bool {
    let Some(cause) = &redrive.fingerprint else { return true };
    let failures = history.failures.of(death.task);
    let own = failures.iter().find(|failure| failure.fence == death.fence);
    own.is_some_and(|failure| history.words.key(failure.fingerprint) == cause)
}
