//! Limits: about how many tasks of a lambda run at a time.

use std::collections::HashMap;

use super::order::lambda;
use crate::Invariant;
use crate::history::History;

/// I24. A task counts once, however many hold on to it: one that stood still and came back runs beside
/// its successor for as long as its process needs to end itself, and is not looked at.
pub(crate) fn limits_hold(history: &History) -> Invariant {
    let statement = "no more tasks of a limited lambda run at a time than its limit says";
    let mut check = Invariant::new("I24", "limits hold", statement);
    for (name, most) in &history.settings.limits {
        let mut edges = Vec::new();
        for body in history.bodies.all() {
            let over = history.over_at(body);
            let named = lambda(history, body).is_some_and(|own| history.words.key(own) == name);
            if named && !history.process(body.process).stopped.meet(body.at, over) {
                edges.extend([(body.at, 1_i32, body.task), (over, -1, body.task)]);
            }
        }
        edges.sort_unstable();
        let mut running: HashMap<u32, i32> = HashMap::new();
        for (_, change, task) in edges {
            let bodies = running.entry(task).or_default();
            *bodies += change;
            if *bodies == 0 {
                running.remove(&task);
            }
            if change > 0 {
                check.expect(running.len() <= *most as usize, history.id(task), || {
                    format!("started as number {} of {most} of {name}", running.len())
                });
            }
        }
    }
    check.done()
}
