//! Heartbeats of executors: each is acknowledged within the lease, or the process is over. No
//! executor that beats is declared dead.

use crate::history::History;
use crate::process::Process;
use crate::span::{Span, ms_between};
use crate::{Actor, Invariant};

/// I21.
pub(crate) fn beats_keep_the_lease(history: &History) -> Invariant {
    let statement = "between acknowledged heartbeats of a live executor lies less than the lease";
    let mut check = Invariant::new("I21", "heartbeats keep the lease", statement);
    #[allow(clippy::cast_precision_loss, reason = "milliseconds")]
    let lease_ms = history.settings.lease_ms as f64;
    for process in history.processes.iter().filter(|process| process.actor == Actor::Executor) {
        for (from, to) in gaps(history, process) {
            let ms = ms_between(from, to);
            let stopped = process.stopped.within(from, to) > 0;
            check.expect(ms < lease_ms || stopped, None, || {
                format!("pid {} lived {ms:.0} ms without an acknowledged heartbeat", process.pid)
            });
        }
    }
    check.done()
}

/// From each registration to its end, cut at the acknowledged heartbeats.
fn gaps(history: &History, process: &Process) -> Vec<(u64, u64)> {
    let ended = process.exit.or(process.reaped).unwrap_or(history.end);
    let gaps_of = |life: Span| {
        let beats = process.beats.iter().map(|beat| beat.acked);
        let mut moments = vec![life.from];
        moments.extend(beats.filter(|acked| life.from < *acked && *acked < life.to));
        moments.push(life.to);
        moments.windows(2).map(|pair| (pair[0], pair[1])).collect::<Vec<_>>()
    };
    process.lives(ended).into_iter().flat_map(gaps_of).collect()
}

/// I28.
pub(crate) fn nothing_runs_unregistered(history: &History) -> Invariant {
    let statement = "once a registration is over no body runs until the next one; N counts bodies";
    let mut check = Invariant::new("I28", "nothing runs unregistered", statement);
    for body in history.bodies.all() {
        let process = history.holder_of(body);
        let over = history.over_at(body);
        if process.has_two_registrations() {
            continue;
        }
        let runs = |span: &Span| body.at < span.to && over > span.from;
        let found = process.between_lives().into_iter().find(runs);
        check.expect(found.is_none(), history.id(body.task), || {
            format!("pid {} ran it under fence {} without a number", process.pid, body.fence)
        });
    }
    check.done()
}

/// The signal by which a worker ends itself, and by which it is killed.
const SIGKILL: i32 = 9;

/// I23. A worker stops its bodies, or ends itself, at T after its last acknowledged heartbeat, or
/// when it learns that it was given up. No store consumer may give it up before L. A worker that
/// ended itself sooner was given up while it beat.
pub(crate) fn no_worker_that_beats_is_given_up(history: &History) -> Invariant {
    let statement = "a worker that beats within T, and was not killed or stopped, goes on";
    let mut check = Invariant::new("I23", "no live worker is given up", statement);
    let limit = history.settings.self_termination_ms * 1_000_000;
    for process in history.processes.iter().filter(|process| process.actor == Actor::Executor) {
        let judged = if process.has_two_registrations() { &[] } else { process.lost.as_slice() };
        for (lost, why) in judged {
            let last = counted_from(process, *lost);
            let stopped = process.stopped.within(last, *lost) > 0;
            let stopped = stopped || is_of_the_past(history, last, *lost);
            check.expect(stopped || lost.saturating_sub(last) >= limit, None, || {
                let (pid, ms) = (process.pid, ms_between(last, *lost));
                let phase = history.phase_at(*lost).unwrap_or("-");
                format!(
                    "pid {pid} was given up {ms:.0} ms after its last heartbeat, in {phase}: {why}"
                )
            });
        }
        let abrupt = process.signal == Some(SIGKILL) && process.exit.is_none();
        let ended = process.reaped.filter(|_| abrupt);
        let Some(ended) = ended.filter(|ended| !was_killed(history, process, *ended)) else {
            check.checked += 1;
            continue;
        };
        // The first T counts from the sending of the registration, which the history does not have.
        let last = match process.beats.is_empty() {
            true => process.opened,
            false => process.last_word(ended),
        };
        let stopped = process.stopped.within(last, ended) > 0;
        let stopped = stopped || is_of_the_past(history, last, ended);
        check.expect(stopped || ended.saturating_sub(last) >= limit, None, || {
            let (pid, ms) = (process.pid, ms_between(last, ended));
            let phase = history.phase_at(ended).unwrap_or("-");
            let why = process.last_words.as_deref().unwrap_or("it did not say why");
            format!("pid {pid} ended itself {ms:.0} ms after its last heartbeat, in {phase}: {why}")
        });
    }
    check.done()
}

/// The start of T at a moment: the sending of the last acknowledged heartbeat, or of the
/// registration. The history lacks the latter, which comes after the end of the registration
/// before.
fn counted_from(process: &Process, at: u64) -> u64 {
    let last = process.last_word(at);
    if !process.registered.contains(&last) {
        return last;
    }
    let former = process.lost.iter().map(|(lost, _)| *lost).filter(|lost| *lost < last);
    former.max().unwrap_or(process.opened)
}

/// Whether a database that knows less of a worker replaced the one that acknowledged its last
/// heartbeat. Then the worker must not go on.
fn is_of_the_past(history: &History, last: u64, at: u64) -> bool {
    history.restores.iter().any(|restored| last < restored.lost.to && restored.lost.to <= at)
}

/// Whether the injector says that it killed the process, which had its number by then.
fn was_killed(history: &History, process: &Process, ended: u64) -> bool {
    history.faults.iter().any(|fault| {
        let hit = fault.pid == Some(process.pid) && fault.kind.ends_with("kill");
        hit && process.opened <= fault.span.from && fault.span.from <= ended
    })
}
