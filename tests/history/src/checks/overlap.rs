//! Two bodies of one task at one moment.
//!
//! The check finds overlaps twice: by the kernel's lock, which needs no clock, and by the intervals
//! of the bodies. An overlap is *live* if both processes were free to run: the guarantee was
//! broken. Or its *holder was stopped* beyond the guarantee's assumption. The latter are counted
//! and shown, never dropped.

use serde::Serialize;

use crate::history::{Body, History};
use crate::{Actor, Invariant, LockAnswer};

/// The overlaps found.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct Overlaps {
    pub(crate) live: u64,
    pub(crate) stopped: u64,
    /// The number that the kernel's lock refused, of both kinds.
    pub(crate) by_lock: u64,
    /// The number of intervals that overlap, of both kinds.
    pub(crate) by_interval: u64,
}

/// Two bodies of one task, by their positions among its bodies, and the evidence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Pair {
    one: usize,
    other: usize,
    lock: bool,
    interval: bool,
}

/// I9.
pub(crate) fn one_at_a_time(history: &History) -> (Invariant, Overlaps) {
    let statement = "no two live bodies of a task at once, by the kernel's lock and by intervals";
    let mut check = Invariant::new("I9", "no live overlap", statement);
    let mut found = Overlaps::default();
    for task in history.tasks.all() {
        let bodies = history.bodies.of(task);
        for pair in pairs(history, bodies) {
            let (one, other) = (&bodies[pair.one], &bodies[pair.other]);
            found.by_lock += u64::from(pair.lock);
            found.by_interval += u64::from(pair.interval);
            let silent_holder =
                pair.one == pair.other && unrecorded_holder_was_stopped(history, one);
            if silent_holder || holder_was_stopped(history, one, other) {
                found.stopped += 1;
                continue;
            }
            found.live += 1;
            check.violated(history.id(task), || describe(history, one, other, pair));
        }
    }
    check.checked = history.bodies.all().len() as u64;
    (check.done(), found)
}

fn pairs(history: &History, bodies: &[Body]) -> Vec<Pair> {
    let mut pairs: Vec<Pair> = Vec::new();
    for (at, body) in bodies.iter().enumerate() {
        if let LockAnswer::Held { fence, .. } = body.lock {
            let holds = |other: &usize| *other != at && bodies[*other].fence == fence;
            let holder = (0..at).rev().find(holds).or_else(|| (0..bodies.len()).find(holds));
            // A holder that is nowhere on record still held the lock.
            note(&mut pairs, holder.unwrap_or(at), at, true);
        }
        for (place, earlier) in bodies[..at].iter().enumerate() {
            if history.over_at(earlier) > body.at {
                note(&mut pairs, place, at, false);
            }
        }
    }
    pairs
}

fn note(pairs: &mut Vec<Pair>, one: usize, other: usize, by_lock: bool) {
    let (one, other) = (one.min(other), one.max(other));
    if let Some(pair) = pairs.iter_mut().find(|pair| (pair.one, pair.other) == (one, other)) {
        pair.lock |= by_lock;
        pair.interval |= !by_lock;
    } else {
        pairs.push(Pair { one, other, lock: by_lock, interval: !by_lock });
    }
}

/// Whether the process with the older claim had been stopped for longer than the margin. The time
/// counts from the last heartbeat that the database acknowledged. Its watchdog could not end it in
/// time then.
fn holder_was_stopped(history: &History, one: &Body, other: &Body) -> bool {
    if one.fence == other.fence {
        return false;
    }
    let holder = if one.fence < other.fence { one } else { other };
    let moment = one.at.max(other.at);
    let process = history.process(holder.process);
    if process.actor == Actor::Hosted {
        return false; // its controller or its guardian ends it
    }
    let stopped = process.stopped.within(process.last_word(moment), moment);
    stopped > history.settings.margin_ms * 1_000_000
}

/// The same for a holder that was stopped between taking the lock and recording its body's
/// beginning. Only the kernel knows of it, and names its process.
fn unrecorded_holder_was_stopped(history: &History, refused: &Body) -> bool {
    let LockAnswer::Held { pid, .. } = refused.lock else { return false };
    let bearers = history.processes.iter();
    let bearers = bearers.filter(|process| process.pid == pid && process.opened <= refused.at);
    let Some(holder) = bearers.max_by_key(|process| process.opened) else { return false };
    if holder.actor == Actor::Hosted {
        return false;
    }
    let stopped = holder.stopped.within(holder.last_word(refused.at), refused.at);
    stopped > history.settings.margin_ms * 1_000_000
}

fn describe(history: &History, one: &Body, other: &Body, pair: Pair) -> String {
    let pid = |body: &Body| history.process(body.process).pid;
    let by = match (pair.lock, pair.interval) {
        (true, true) => "lock and intervals",
        (true, false) => "lock",
        _ => "intervals",
    };
    let (a, b) = (pid(one), pid(other));
    format!(
        "bodies of fence {} (pid {a}) and {} (pid {b}) at once, by {by}",
        one.fence, other.fence
    )
}
