//! The LISTENing connections of workers: one that has gone silent is noticed.

use crate::history::{Fault, History};
use crate::process::Process;
use crate::span::ms_between;
use crate::{Bounded, Invariant};

/// The injector's word for a connection that gets no more answers, and no notice of an end.
const DEAF: &str = "deaf_line";

/// From silence to the worker's record that its connection is lost.
const BOUND_MS: f64 = 15_000.0;

/// G11, and how long noticing took.
pub(crate) fn a_dead_line_is_noticed(history: &History) -> (Invariant, Bounded) {
    let statement = "a worker whose LISTEN went silent gives that connection up within 15 s";
    let mut check = Invariant::new("G11", "a dead line is noticed", statement);
    let mut took = Vec::new();
    for fault in history.faults.iter().filter(|fault| fault.kind == DEAF) {
        let Some(process) = listener(history, fault) else { continue };
        let silent = fault.span.from;
        // The line ends with the registration for which it listens, or with the process.
        let lost = process.lost.iter().map(|(at, _)| *at).find(|at| *at >= silent);
        let ended = lost.or(process.exit).or(process.reaped).unwrap_or(history.end);
        let noticed = process.lines_lost.iter().find(|at| (silent..=ended).contains(*at));
        let ms = ms_between(silent, noticed.copied().unwrap_or(ended));
        // A line that ended before its time was up proves nothing.
        if noticed.is_none() && ms <= BOUND_MS {
            continue;
        }
        took.push(ms);
        check.expect(ms <= BOUND_MS, None, || {
            let said = if noticed.is_some() { "noticed after" } else { "had not noticed after" };
            format!("pid {} {said} {ms:.0} ms that its line was silent", process.pid)
        });
    }
    (check.done(), Bounded::worst(took, BOUND_MS))
}

/// The process that had the fault's number when it was done.
fn listener<'a>(history: &'a History, fault: &Fault) -> Option<&'a Process> {
    let was_it = |process: &&Process| {
        let alive = process.reaped.is_none_or(|reaped| reaped > fault.span.from);
        Some(process.pid) == fault.pid && process.opened <= fault.span.from && alive
    };
    history.processes.iter().find(was_it)
}
