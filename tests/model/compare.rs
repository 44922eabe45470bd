//! The store beside the model: every difference, in words.

use std::collections::{BTreeMap, BTreeSet};

use crate::sight::{SeenTask, Sight};
use crate::state::{State, Task};
use crate::store::Names;

/// The differences; empty when the two agree.
pub fn differences(state: &State, names: &Names, sight: &Sight) -> Vec<String> {
    let mut wrong = Vec::new();
    if sight.tasks.len() != state.tasks.len() {
        wrong.push(format!("{} tasks, not {}", sight.tasks.len(), state.tasks.len()));
    }
    for (no, task) in &state.tasks {
        let id = names.tasks[no];
        let Some(seen) = sight.tasks.get(&id) else {
            wrong.push(format!("{no:?} is gone"));
            continue;
        };
        let fence = task.fence.map_or(0, |fence| names.leases[&fence]);
        let failures = sight.failures.get(&id).copied().unwrap_or(0);
        let same = same_task(task, seen)
            && fence == seen.fence
            && failures == task.failures
            && sight.outputs.contains(&id) == task.output;
        if !same {
            wrong.push(format!(
                "{no:?} is {seen:?} (failures {failures}), not {task:?} (fence {fence})"
            ));
        }
    }
    wrong.extend(places(state, names, sight));
    wrong
}

fn same_task(task: &Task, seen: &SeenTask) -> bool {
    let same_trigger = match (task.trigger, seen.trigger) {
        (None, None) => true,
        (Some(when), Some(at)) => {
            when.earliest as f64 - 1.0 <= at && at <= when.latest as f64 + 1.0
        }
        _ => false,
    };
    seen.status == task.status.label()
        && seen.attempt == task.attempt
        && seen.crashes == task.crashes
        && same_trigger
}

/// Queues, timers, leases, requests and executors.
fn places(state: &State, names: &Names, sight: &Sight) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut queues: BTreeMap<(&str, &str), Vec<i64>> = BTreeMap::new();
    for (lambda, priority, id) in &sight.queued {
        queues.entry((lambda, priority)).or_default().push(*id);
    }
    let ids = |tasks: &[_]| tasks.iter().map(|no| names.tasks[no]).collect::<Vec<_>>();
    let filled = state.queues.iter().filter(|(_, rows)| !rows.is_empty());
    check(
        &mut wrong,
        "queues",
        &queues,
        &filled.map(|(queue, rows)| (*queue, ids(rows))).collect(),
    );

    let timers: BTreeSet<_> = sight.timers.iter().map(|(_, id)| *id).collect();
    check(
        &mut wrong,
        "timers",
        &timers,
        &state.timers.iter().map(|(_, no)| names.tasks[no]).collect(),
    );

    let leases: BTreeMap<_, _> = sight.leases.iter().map(|l| (l.1, (l.0, l.2.clone()))).collect();
    let there = state.leases.iter().filter(|(_, lease)| !lease.gone);
    let expected = there.map(|(no, lease)| {
        (names.leases[no], (names.executors[&lease.executor], ids(&lease.tasks)))
    });
    check(&mut wrong, "leases", &leases, &expected.collect());

    let asked = state.requests.iter().map(|(no, fence)| (names.tasks[no], names.leases[fence]));
    check(&mut wrong, "requests to stop", &sight.requests, &asked.collect());

    let executors = state.executors.iter().map(|(no, e)| (names.executors[no], e.ended));
    check(&mut wrong, "executors that ended", &sight.executors, &executors.collect());
    check(&mut wrong, "booted", &sight.booted, &state.booted);
    wrong
}

fn check<T: PartialEq + std::fmt::Debug>(wrong: &mut Vec<String>, what: &str, is: &T, must: &T) {
    if is != must {
        wrong.push(format!("{what}: {is:?}, not {must:?}"));
    }
}
