//! Processes below a host controller: each that was killed was killed for a reason.

use crate::Invariant;
use crate::history::{Fault, History, ProcessEnd};

/// The end of a process that was killed, and not by its controller.
const KILLED: &str = "signal 9";

/// So long before a controller tells of an end it may have been brought about: the controller may have stood
/// still meanwhile.
const BEFORE_NS: u64 = 10_000_000_000;

/// So soon after it has seen the end of a process, a controller has told of the tasks that this had in hand.
const TELLING_NS: u64 = 1_000_000_000;

/// I31.
pub(crate) fn each_kill_has_a_reason(history: &History) -> Invariant {
    let statement = "a process below a controller is killed for a reason on record; N counts ends";
    let mut check = Invariant::new("I31", "each kill has a reason", statement);
    for end in &history.process_ends {
        check.expect(end.why != KILLED || has_reason(history, end), None, || {
            format!("process {} got SIGKILL, with {} tasks in hand", end.pid, end.tasks.len())
        });
    }
    check.done()
}

/// The injector killed it; or the guardian did, whose controller stood still, was killed, or had lost its lease. A
/// controller that ended just then may not have told its own reason.
fn has_reason(history: &History, end: &ProcessEnd) -> bool {
    let controller = history.process(end.controller);
    let since = end.at.saturating_sub(BEFORE_NS);
    let of_itself = |fault: &Fault| fault.pid == Some(end.pid) && fault.kind.ends_with("kill");
    let of_its_host = |fault: &Fault| {
        fault.pid.is_some() && [Some(controller.pid), controller.guardian].contains(&fault.pid)
    };
    // The process that the guardian had started may be the executor itself, of which the controller tells, too.
    let explained = |other: &ProcessEnd| {
        other.pid == end.pid && other.why != KILLED && other.at.abs_diff(end.at) <= BEFORE_NS
    };
    let limit = history.settings.self_termination_ms * 1_000_000;
    let mut faults = history.faults.iter().filter(|fault| fault.span.meets(since, end.at));
    faults.any(|fault| of_itself(fault) || of_its_host(fault))
        || history.process_ends.iter().any(explained)
        || controller.died_between(end.at, end.at + TELLING_NS)
        || end.at.saturating_sub(controller.last_word(end.at)) >= limit
}
