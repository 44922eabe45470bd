//! Processes that were stopped beyond their lease. On resuming, they end first of all; a process
//! without a running body may give up its registration instead. A process without a registration
//! has nothing to give up.

use std::collections::HashMap;

use crate::history::History;
use crate::process::Process;
use crate::span::{Span, ms_between};
use crate::{Bounded, Invariant};

/// From SIGCONT to the kernel's word that it has ended, where a body runs.
const BOUND_MS: f64 = 100.0;

/// The same where none runs, or to the worker's word that its registration is over: idle threads have 100 ms to end
/// before that.
const IDLE_BOUND_MS: f64 = 200.0;

/// Signs of life that a body may give after SIGCONT.
const LIFE_SIGNS: u64 = 1;

/// G6, and how long ending took.
pub(crate) fn the_resumed_end(history: &History) -> (Invariant, Bounded) {
    let statement =
        "stopped beyond its lease, a process is gone 100 ms after SIGCONT, an idle one 200";
    let mut check = Invariant::new("G6", "the resumed end at once", statement);
    let mut took = Vec::new();
    let mut lives = signs_of_life(history);
    for (number, process) in (0_u32..).zip(&history.processes) {
        for span in process.stopped.iter().filter(|span| is_beyond(history, process, span)) {
            let lost = process.lost.iter().map(|(at, _)| *at).find(|at| *at >= span.to);
            let reaped = process.reaped.filter(|reaped| *reaped >= span.to);
            let gone = [lost, reaped].into_iter().flatten().min();
            let ms = ms_between(span.to, gone.unwrap_or(history.end));
            let runs = runs_a_body(history, number, span.to);
            if runs {
                took.push(ms);
            }
            let bound = if runs { BOUND_MS } else { IDLE_BOUND_MS };
            check.expect(gone.is_some() && ms <= bound, None, || {
                let ended = if gone.is_some() { "ended" } else { "had not ended" };
                format!("pid {} {ended} {ms:.0} ms after SIGCONT", process.pid)
            });
            for ((_, task), signs) in lives.extract_if(|key, _| key.0 == number) {
                check.expect(signs <= LIFE_SIGNS, history.id(task), || {
                    format!("pid {}: {signs} signs of life after SIGCONT", process.pid)
                });
            }
        }
    }
    (check.done(), Bounded::worst(took, BOUND_MS))
}

/// Whether a body of the process ran at that moment.
fn runs_a_body(history: &History, process: u32, at: u64) -> bool {
    let mut bodies = history.bodies.all().iter().filter(|body| body.process == process);
    bodies.any(|body| body.at <= at && history.over_at(body) > at)
}

/// Whether it was registered when it was stopped, was continued, and its lease had run out by then.
fn is_beyond(history: &History, process: &Process, span: &Span) -> bool {
    let registered = process.is_registered_at(span.from);
    let continued = span.to < process.reaped.unwrap_or(history.end);
    let silent = span.to.saturating_sub(process.last_word(span.to));
    registered && continued && silent >= history.settings.lease_ms * 1_000_000
}

/// Body starts and ticks by process and task, after a process stood still beyond its lease.
fn signs_of_life(history: &History) -> HashMap<(u32, u32), u64> {
    let mut since = HashMap::new();
    for (number, process) in (0_u32..).zip(&history.processes) {
        let first = process.stopped.iter().find(|span| is_beyond(history, process, span));
        let anew = |from: u64| process.registered.iter().find(|at| **at > from).copied();
        let of = |span: &Span| Span { from: span.to, to: anew(span.to).unwrap_or(u64::MAX) };
        since.extend(first.map(|span| (number, of(span))));
    }
    let starts = history.bodies.all().iter().map(|body| (body.process, body.task, body.at));
    let ticks = history.ticks.iter().map(|tick| (tick.process, tick.task, tick.at));
    let mut signs = HashMap::new();
    for (process, task, at) in starts.chain(ticks) {
        if since.get(&process).is_some_and(|span: &Span| span.from < at && at < span.to) {
            *signs.entry((process, task)).or_insert(0) += 1;
        }
    }
    signs
}
