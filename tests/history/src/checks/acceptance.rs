//! Every accepted task exists, every task was asked for, and each exists once.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::Invariant;
use crate::history::{Accepted, Batch, History};

/// I1.
pub(crate) fn accepted_tasks_exist(history: &History) -> Invariant {
    let statement = "an accepted task has a row and the transition that made it, under its op";
    let mut check = Invariant::new("I1", "accepted tasks exist", statement);
    for accepted in &history.accepted {
        let wrong = missing(history, accepted);
        if wrong.is_some() && history.lost_batch(accepted.op).is_some() {
            continue; // with the future of a copy
        }
        check.expect(wrong.is_none(), history.id(accepted.task), || wrong.unwrap_or_default());
    }
    check.done()
}

fn missing(history: &History, accepted: &Accepted) -> Option<String> {
    let op = history.ops.key(accepted.op);
    let Some(row) = history.row(accepted.task) else {
        return Some(format!("accepted by op {op}, and there is no row"));
    };
    if !same_batch(history, row.op, accepted.op) {
        return Some(format!("accepted by op {op}, its row says op {}", history.ops.key(row.op)));
    }
    let made =
        history.transitions.of(accepted.task).first().is_some_and(|step| step.from.is_none());
    (!made).then(|| format!("accepted by op {op}, and no transition made it"))
}

/// Ops with the same key are one batch: the second op gets the ids of the first.
pub(super) fn same_batch(history: &History, one: u32, other: u32) -> bool {
    let (a, b) = (batch(history, one), batch(history, other));
    one == other || a.key.is_some() && (a.key, a.lambda) == (b.key, b.lambda)
}

fn batch(history: &History, op: u32) -> &Batch {
    &history.batches[op as usize]
}

/// I2.
pub(crate) fn rows_were_asked_for(history: &History) -> Invariant {
    let statement = "a row's op was invoked and not refused, and has each of its tasks once";
    let mut check = Invariant::new("I2", "rows were asked for", statement);
    let mut seen = HashSet::new();
    // I26 covers the tasks of schedules.
    for row in history.rows.all().iter().filter(|row| row.tick.is_none()) {
        let (batch, op) = (batch(history, row.op), history.ops.key(row.op));
        let wrong = if batch.tries == 0 {
            Some("never invoked")
        } else if batch.failed() {
            Some("refused")
        } else if row.n >= batch.tasks {
            Some("smaller than that")
        } else if !seen.insert((row.op, row.n)) {
            Some("has it twice")
        } else {
            None
        };
        check.expect(wrong.is_none(), history.id(row.task), || {
            format!("a row of op {op}, task {}: {}", row.n, wrong.unwrap_or_default())
        });
    }
    check.done()
}

/// I3.
pub(crate) fn batches_are_whole(history: &History) -> Invariant {
    let statement = "a schedule with unknown outcome, or lost, left all of its tasks, or none";
    let mut check = Invariant::new("I3", "unknown batches are whole", statement);
    let mut rows = vec![0_u32; history.batches.len()];
    for row in history.rows.all() {
        rows[row.op as usize] += 1;
    }
    for (op, batch) in history.ops.all().zip(&history.batches) {
        if batch.unknown() || history.lost_batch(op).is_some() {
            let found = rows[op as usize];
            check.expect(found == 0 || found == batch.tasks, None, || {
                format!("op {} of {} tasks left {found}", history.ops.key(op), batch.tasks)
            });
        }
    }
    check.done()
}

/// I4.
pub(crate) fn keys_are_unique(history: &History) -> Invariant {
    let statement = "one idempotency key of a lambda made at most one task of each number";
    let mut check = Invariant::new("I4", "one task per key", statement);
    let mut tasks: HashMap<(u32, u32, u32), Vec<u32>> = HashMap::new();
    for row in history.rows.all() {
        if let Some(key) = batch(history, row.op).key {
            tasks.entry((row.lambda, key, row.n)).or_default().push(row.task);
        }
    }
    for ((_, key, _), tasks) in tasks {
        check.expect(tasks.len() == 1, history.id(tasks[0]), || {
            format!("key {} made {} tasks", history.words.key(key), tasks.len())
        });
    }
    check.done()
}

/// I16.
pub(crate) fn ticks_are_unique(history: &History) -> Invariant {
    let statement = "one tick of a schedule made one task";
    let mut check = Invariant::new("I16", "one task per tick", statement);
    for ((name, tick_us), tasks) in tasks_of_ticks(history) {
        check.expect(tasks.len() == 1, history.id(tasks[0]), || {
            let (name, tasks) = (history.words.key(name), tasks.len());
            format!("the tick of {name} at {tick_us} us made {tasks} tasks")
        });
    }
    check.done()
}

/// By schedule and tick, what was made of it.
pub(super) fn tasks_of_ticks(history: &History) -> BTreeMap<(u32, i64), Vec<u32>> {
    let mut tasks: BTreeMap<_, Vec<u32>> = BTreeMap::new();
    for row in history.rows.all() {
        if let Some(tick) = row.tick {
            tasks.entry(tick).or_default().push(row.task);
        }
    }
    tasks
}
