//! Chains: the earliest start of a task with dependencies.

use serde::Serialize;

use crate::history::{Batch, Dependency, History};
use crate::{Invariant, Status};

/// I25.
pub(crate) fn chains_are_in_order(history: &History) -> Invariant {
    let statement = "a task starts after all that it waits for have ended as it needs";
    let mut check = Invariant::new("I25", "chains are in order", statement);
    for dependency in history.dependencies.all() {
        let wrong = out_of_order(history, dependency);
        check.expect(wrong.is_none(), history.id(dependency.task), || wrong.unwrap_or_default());
    }
    check.done()
}

fn out_of_order(history: &History, dependency: &Dependency) -> Option<String> {
    let started = history.bodies.of(dependency.task).iter().map(|body| body.at).min()?;
    let id = history.tasks.key(dependency.parent);
    let Some(parent) = history.row(dependency.parent) else {
        return Some(format!("started, and {id}, for which it waited, is no task"));
    };
    let met = parent.status.is_terminal()
        && match dependency.condition.as_str() {
            "always" => true,
            "failure" => parent.status != Status::Success,
            _ => parent.status == Status::Success || dependency.run,
        };
    if !met {
        let (condition, status) = (&dependency.condition, parent.status);
        return Some(format!("started for {condition} of {id}, which is {status:?}"));
    }
    let ends = history.ends.of(dependency.parent).iter();
    let last = ends.filter(|end| end.fence == parent.fence).map(|end| end.at).min();
    let early = parent.status == Status::Success && last.is_none_or(|ended| ended > started);
    early.then(|| format!("started before {id}, for which it waited, had ended"))
}

/// The graphs of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Chains {
    /// How many were accepted.
    pub graphs: u64,
    /// Tasks in all of them.
    pub tasks: u64,
    /// Tasks of the smallest.
    pub smallest: u32,
    /// Tasks of the largest.
    pub largest: u32,
    /// The number of dependencies, in these graphs and in those with unknown acceptance.
    pub dependencies: u64,
}

/// Counts them.
pub(crate) fn graphs(history: &History) -> Chains {
    let accepted = |batch: &&Batch| batch.chain && batch.accepted > 0;
    let sizes = history.batches.iter().filter(accepted).map(|batch| batch.tasks);
    Chains {
        graphs: sizes.clone().count() as u64,
        tasks: sizes.clone().map(u64::from).sum(),
        smallest: sizes.clone().min().unwrap_or(0),
        largest: sizes.max().unwrap_or(0),
        dependencies: history.dependencies.all().len() as u64,
    }
}
