//! Ordered keys and gates: about when tasks may start. Nothing is checked while no event has them.

use std::collections::HashMap;

use crate::history::{Body, History};
use crate::span::ms_between;
use crate::{Bounded, Edge, Invariant, Status};

/// I13. The order of a key's tasks is that of their ids.
pub(crate) fn keys_are_ordered(history: &History) -> Invariant {
    let statement = "tasks of an ordering key run one at a time, in order, none skipped";
    let mut check = Invariant::new("I13", "ordered keys", statement);
    let mut keys: HashMap<(u32, u32), Vec<u32>> = HashMap::new();
    for row in history.rows.all() {
        if let Some(key) = row.ordering_key {
            keys.entry((row.lambda, key)).or_default().push(row.task);
        }
    }
    for mut tasks in keys.into_values() {
        tasks.sort_by_key(|task| *history.tasks.key(*task));
        check.checked += 1; // the first task of a key waits for no other
        for pair in tasks.windows(2) {
            let wrong = out_of_order(history, pair[0], pair[1]);
            check.expect(wrong.is_none(), history.id(pair[1]), || wrong.unwrap_or_default());
        }
    }
    check.done()
}

fn out_of_order(history: &History, head: u32, next: u32) -> Option<String> {
    let started = history.bodies.of(next).first()?.at;
    let id = history.tasks.key(head);
    let bodies = history.bodies.of(head);
    // A stopped body does not count: its successor has ended the task, and the order goes on.
    let stood = |body: &Body| history.process(body.process).stopped.meet(body.at, started);
    let over = |body: &Body| history.over_at(body) <= started;
    if let Some(body) = bodies.iter().find(|body| !over(body) && !stood(body)) {
        return Some(format!(
            "started before the body of {id} under fence {} was over",
            body.fence
        ));
    }
    let done = history.row(head).is_some_and(|row| row.status.is_terminal());
    let ran = !bodies.is_empty()
        || history.row(head).is_some_and(|row| row.status != Status::Success && done);
    (!done || !ran).then(|| format!("started, and {id} before it was skipped"))
}

/// I14. A gate is closed once the call returned and two polls have passed, until its opening begins. And how
/// long after the call the last start behind each gate was.
pub(crate) fn gates_hold(history: &History) -> (Invariant, Bounded) {
    let statement = "no start from two polls after a gate was closed until it is opened";
    let mut check = Invariant::new("I14", "gates hold", statement);
    let bound = 2 * history.settings.poll_ms;
    let mut lasted = Vec::new();
    let mut starts: Vec<(u32, &Body)> = history
        .bodies
        .all()
        .iter()
        .filter_map(|body| Some((lambda(history, body)?, body)))
        .collect();
    starts.sort_by_key(|(lambda, body)| (*lambda, body.at));
    for (place, (closed, gate, edge)) in history.gates.iter().enumerate() {
        if *edge == Edge::End {
            continue;
        }
        let reopened = history.gates[place..]
            .iter()
            .find(|(_, other, edge)| other == gate && *edge == Edge::End);
        let from = closed + bound * 1_000_000;
        let to = reopened.map_or(u64::MAX, |(at, ..)| *at);
        check.checked += 1;
        let first = starts.partition_point(|(lambda, body)| (*lambda, body.at) <= (*gate, *closed));
        let behind = starts[first..].iter().take_while(|(l, body)| l == gate && body.at < to);
        lasted.push(behind.clone().last().map_or(0.0, |(_, body)| ms_between(*closed, body.at)));
        for (_, body) in behind.filter(|(_, body)| body.at > from) {
            check.violated(history.id(body.task), || {
                format!("started behind the closed gate of {}", history.words.key(*gate))
            });
        }
    }
    #[allow(clippy::cast_precision_loss, reason = "seconds")]
    let lasted = Bounded::worst(lasted, bound as f64);
    (check.done(), lasted)
}

pub(super) fn lambda(history: &History, body: &Body) -> Option<u32> {
    let batch = &history.batches[body.op as usize];
    let invoked = (batch.tries > 0).then_some(batch.lambda);
    history.row(body.task).map(|row| row.lambda).or(invoked)
}
