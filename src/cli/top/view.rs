//! The views, and how each names its rows.

use clap::ValueEnum;

use crate::facts::Facts;

/// A list of rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum View {
    /// Lambdas.
    #[default]
    Lambdas,
    /// Queues: lambda and priority.
    Queues,
    /// Workers.
    Executors,
    /// Tasks that wait, by cause.
    Waits,
    /// Dead letters by cause.
    Dead,
}

/// The thing to look into.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// A lambda.
    Lambda(String),
    /// A worker.
    Executor(i64),
    /// A group of dead letters: lambda, cause, and the example.
    Dead(String, String, i64),
}

impl View {
    /// All, in the order of their keys.
    pub const ALL: [Self; 5] =
        [Self::Lambdas, Self::Queues, Self::Executors, Self::Waits, Self::Dead];

    /// Its name on the screen.
    pub fn title(self) -> &'static str {
        match self {
            Self::Lambdas => "Lambdas",
            Self::Queues => "Queues",
            Self::Executors => "Executors",
            Self::Waits => "Waits",
            Self::Dead => "Dead letters",
        }
    }

    /// The view that follows after so many steps.
    pub fn step(self, steps: usize) -> Self {
        let at = Self::ALL.iter().position(|one| *one == self).unwrap_or(0);
        Self::ALL[(at + steps) % Self::ALL.len()]
    }

    /// How many rows it has.
    pub fn rows(self, facts: &Facts) -> usize {
        match self {
            Self::Lambdas => facts.lambdas.len(),
            Self::Queues => facts.queues.len(),
            Self::Executors => facts.executors.len(),
            Self::Waits => facts.waits.len(),
            Self::Dead => facts.dead_groups.len(),
        }
    }

    /// The name of a row, by which it is found again.
    pub fn key(self, facts: &Facts, row: usize) -> String {
        match self {
            Self::Lambdas => facts.lambdas[row].lambda.clone(),
            Self::Queues => {
                let queue = &facts.queues[row];
                format!("{} {}", queue.lambda, queue.priority)
            }
            Self::Executors => facts.executors[row].executor.executor_id.to_string(),
            Self::Waits => format!("{} {}", facts.waits[row].cause, facts.waits[row].lambda),
            Self::Dead => {
                let group = &facts.dead_groups[row];
                format!("{} {}", group.lambda, group.fingerprint)
            }
        }
    }

    /// The text of a row that a filter looks into.
    pub fn text(self, facts: &Facts, row: usize) -> String {
        match self {
            Self::Executors => {
                let one = &facts.executors[row].executor;
                format!("{} {} {} {}", one.executor_id, one.host, one.state, one.lambdas.join(" "))
            }
            Self::Dead => {
                let message = facts.dead_groups[row].message.as_deref().unwrap_or_default();
                format!("{} {message}", self.key(facts, row))
            }
            _ => self.key(facts, row),
        }
    }

    /// The lambda of a row.
    pub fn lambda(self, facts: &Facts, row: usize) -> Option<&str> {
        match self {
            Self::Lambdas => Some(&facts.lambdas[row].lambda),
            Self::Queues => Some(&facts.queues[row].lambda),
            Self::Executors => None,
            Self::Waits => Some(&facts.waits[row].lambda),
            Self::Dead => Some(&facts.dead_groups[row].lambda),
        }
    }

    /// The thing to look into when a row is opened.
    pub fn target(self, facts: &Facts, row: usize) -> Option<Target> {
        match self {
            Self::Executors => Some(Target::Executor(facts.executors[row].executor.executor_id)),
            Self::Dead => {
                let group = &facts.dead_groups[row];
                let (lambda, cause) = (group.lambda.clone(), group.fingerprint.clone());
                Some(Target::Dead(lambda, cause, group.latest_id))
            }
            _ => self.lambda(facts, row).map(|lambda| Target::Lambda(lambda.to_owned())),
        }
    }
}
