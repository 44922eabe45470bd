//! Fences: each claimed once, each greater than the last, and nothing done under an old one.

use std::collections::HashMap;

use crate::Invariant;
use crate::Status;
use crate::history::{Failure, History, Transition};

/// I7.
pub(crate) fn fences_rise(history: &History) -> Invariant {
    let statement = "fences of a task rise, each is claimed once, by one process, and on record";
    let mut check = Invariant::new("I7", "fences rise", statement);
    let mut owners: HashMap<i64, u32> = HashMap::new();
    for task in history.tasks.all() {
        let claims = history.transitions.of(task).iter().filter(|step| step.to == Status::Claimed);
        let mut last = 0;
        for claim in claims {
            check.expect(claim.fence > last, history.id(task), || {
                format!("claimed under fence {} after {last}", claim.fence)
            });
            last = last.max(claim.fence);
        }
        let mut before = None;
        for claim in history.claims.of(task) {
            let owner = *owners.entry(claim.fence).or_insert(claim.process);
            let known = is_on_record(history, task, claim.fence)
                || history.is_lost(task, claim.fence, claim.at);
            let holds = known && owner == claim.process && before != Some(claim.fence);
            check.expect(holds, history.id(task), || {
                let (pid, other) = (history.process(claim.process).pid, history.process(owner).pid);
                let fence = claim.fence;
                format!(
                    "pid {pid} was given fence {fence} (first: pid {other}; on record: {known})"
                )
            });
            before = Some(claim.fence);
        }
    }
    check.done()
}

fn is_on_record(history: &History, task: u32, fence: i64) -> bool {
    let steps = history.transitions.of(task);
    steps.iter().any(|step| step.to == Status::Claimed && step.fence == fence)
}

/// I8.
pub(crate) fn old_fences_change_nothing(history: &History) -> Invariant {
    let statement =
        "nothing changes under a fence once a later one is claimed; stale calls: refused";
    let mut check = Invariant::new("I8", "old fences change nothing", statement);
    for task in history.tasks.all() {
        let mut newest = 0;
        for step in history.transitions.of(task) {
            check.expect(step.fence >= newest, history.id(task), || {
                format!("step {} under fence {}, after {newest} was claimed", step.step, step.fence)
            });
            newest = newest.max(step.fence);
        }
        for failure in history.failures.of(task) {
            check.expect(has_its_step(history, failure), history.id(task), || {
                format!(
                    "a failure on record under fence {}, which failed at nothing",
                    failure.fence
                )
            });
        }
    }
    let stale = history.stale;
    check.checked += stale.tried;
    if stale.applied > 0 {
        check.violated(None, || format!("{} stale calls were applied", stale.applied));
        check.violations += stale.applied - 1;
    }
    check.done()
}

/// A failure is written with the change it belongs to: a result that failed, or a counted crash.
fn has_its_step(history: &History, failure: &Failure) -> bool {
    let steps = history.transitions.of(failure.task);
    steps.iter().any(|step| step.fence == failure.fence && leaves_a_failure(step))
}

fn leaves_a_failure(step: &Transition) -> bool {
    let failed = matches!(step.to, Status::RetriableFailure | Status::FatalFailure | Status::Dead);
    failed || step.crashes > 0 && matches!(step.to, Status::Enqueued | Status::Cancelled)
}
