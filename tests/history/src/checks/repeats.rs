//! Executions after a task's first: each must have a cause that another process recorded.

use std::collections::BTreeMap;

use crate::history::{Body, BodyEnd, History, ProcessEnd, Transition};
use crate::{Ended, Invariant, Status};

/// I12 (G7), and how many repeats each cause explains.
pub(crate) fn repeats_are_explained(history: &History) -> (Invariant, BTreeMap<&'static str, u64>) {
    let statement = "each execution after the first has a cause on record; N counts executions";
    let mut check = Invariant::new("I12", "repeats are explained", statement);
    let mut causes = BTreeMap::new();
    for task in history.tasks.all() {
        let mut bodies: Vec<&Body> = history.bodies.of(task).iter().collect();
        bodies.sort_by_key(|body| (body.fence, body.at));
        for pair in bodies.windows(2) {
            let cause = cause(history, pair[0], pair[1]);
            *causes.entry(cause.unwrap_or("none")).or_default() += 1;
            if cause.is_none() {
                check.violated(history.id(task), || {
                    let (before, again) = (pair[0].fence, pair[1].fence);
                    format!("executed under fence {before}, and for no reason again under {again}")
                });
            }
        }
    }
    check.checked = history.bodies.all().len() as u64;
    (check.done(), causes)
}

/// The most telling cause for `again`, after `before`.
fn cause(history: &History, before: &Body, again: &Body) -> Option<&'static str> {
    let (process, holder) = (history.process(before.process), history.holder_of(before));
    let (from, to) = (before.at, again.at.max(before.at));
    let steps = history.transitions.of(before.task);
    let left = |rule: fn(&Transition, i16) -> bool| {
        steps.windows(2).any(|two| {
            two[1].fence == before.fence && rule(&two[1], two[1].crashes - two[0].crashes)
        })
    };
    if before.fence == again.fence {
        None // no verb lets an attempt begin twice
    } else if left(|step, _| step.to == Status::RetriableFailure) {
        Some("retriable failure")
    } else if left(|step, _| step.revives()) {
        Some("redrive")
    } else if let Some(ended) = process_end(history, before, (process.pid, to)) {
        Some(ended)
    } else if [process, holder].iter().any(|one| one.stopped.within(from, to) > 0) {
        Some("stop")
    } else if holder.died_between(from, to) {
        Some("worker death")
    } else if holder.lost_between(from, to) {
        Some("registration lost")
    } else if history.database_down.meet(from, to) {
        Some("database down")
    } else if [Some(process.pid), Some(holder.pid), holder.guardian]
        .into_iter()
        .flatten()
        .any(|pid| hit_by_fault(history, pid, from, to))
    {
        Some("fault")
    } else if left(|step, crash| step.to == Status::Enqueued && crash == 1) {
        Some("rescue")
    } else if !succeeded(history, before)
        && left(|step, crash| step.to == Status::Enqueued && crash == 0)
    {
        Some("release")
    } else if history.is_lost(again.task, again.fence, again.at) {
        Some("lost with its record")
    } else {
        None
    }
}

/// The end of an executor, if its controller said that it had the task in hand: the controller ended it, as for
/// a neighbour, or it ended by itself.
fn process_end(history: &History, before: &Body, (pid, to): (u32, u64)) -> Option<&'static str> {
    let of_it = |end: &&ProcessEnd| {
        end.pid == pid && (before.at..=to).contains(&end.at) && end.tasks.contains(&before.task)
    };
    let end = history.process_ends.iter().find(of_it)?;
    let by_controller = ["overdue", "memory", "silent", "abandoned"].contains(&end.why.as_str());
    Some(if by_controller { "process was ended" } else { "process ended" })
}

/// Whether a fault, such as a partition or a cut connection, hit that process or all processes.
fn hit_by_fault(history: &History, pid: u32, from: u64, to: u64) -> bool {
    let hits = |hit: Option<u32>| hit.is_none_or(|hit| hit == pid);
    history.faults.iter().any(|fault| hits(fault.pid) && fault.span.meets(from, to))
}

/// A drain gives back what is not finished; finished work is never released.
fn succeeded(history: &History, body: &Body) -> bool {
    let ended = |end: &BodyEnd| end.ended;
    history.end_of(body).map(ended) == Some(Ended::Success)
}
