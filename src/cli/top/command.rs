//! A command of the operator, and the sentences that tell its effects.

use crate::cli::words::{age, at_least, count, cut, number_of, tasks};
use crate::facts::Facts;

/// A command that waits for its confirmation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Pause a whole lambda.
    Pause {
        lambda: String,
    },
    Open {
        gate: i64,
        lambda: String,
    },
    /// Redrive a group of dead letters as a canary.
    Redrive {
        lambda: String,
        fingerprint: String,
    },
}

/// Tasks that a redrive would release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Meant {
    pub status: String,
    pub tasks: i64,
}

impl Command {
    pub fn title(&self) -> String {
        match self {
            Self::Pause { lambda } => format!("Pause {lambda}?"),
            Self::Open { gate, lambda } => format!("Open gate {gate} of {lambda}?"),
            Self::Redrive { lambda, .. } => format!("Redrive dead letters of {lambda}?"),
        }
    }

    /// The verb beside the key that confirms it.
    pub fn verb(&self) -> &'static str {
        match self {
            Self::Pause { .. } => "pause",
            Self::Open { .. } => "open",
            Self::Redrive { .. } => "redrive",
        }
    }

    /// The effects of a confirmation. `meant`: what the database counted for a redrive.
    pub fn sentences(&self, facts: &Facts, meant: &[Meant]) -> Vec<String> {
        match self {
            Self::Pause { lambda } => pause(facts, lambda),
            Self::Open { gate, lambda } => open(facts, *gate, lambda),
            Self::Redrive { lambda, fingerprint } => redrive(facts, (lambda, fingerprint), meant),
        }
    }
}

fn pause(facts: &Facts, lambda: &str) -> Vec<String> {
    let row = facts.lambda(lambda);
    let queued = row.map_or(0, |row| row.queued);
    let held = row.map(|row| row.held).unwrap_or_default();
    let elsewhere = row.map(|row| row.waiting).unwrap_or_default();
    vec![
        format!("No worker claims a task of {lambda} until the gate is opened."),
        format!("{} stay queued, {} wait for other causes.", tasks(queued), number_of(elsewhere)),
        format!("Workers hold {} of its tasks: bodies that run go on.", number_of(held)),
        "New tasks are accepted and wait. No task is lost.".to_owned(),
    ]
}

fn open(facts: &Facts, number: i64, lambda: &str) -> Vec<String> {
    let Some(gate) = facts.gates.iter().find(|gate| gate.gate_id == number) else {
        return vec!["The gate is not set any more.".to_owned()];
    };
    let since = format!("Set by {} {} ago: {}", gate.author, age(gate.age_ms), gate.reason);
    let next = match &gate.collection {
        Some(collection) => format!(
            "{} parked tasks of collection {collection} return to their queues.",
            at_least(gate.parked)
        ),
        None => {
            let paused = facts.lambda(lambda).map_or(0, |row| row.paused);
            format!("Workers may claim {} that are queued behind it, at once.", tasks(paused))
        }
    };
    vec![since, next]
}

fn redrive(facts: &Facts, (lambda, fingerprint): (&str, &str), meant: &[Meant]) -> Vec<String> {
    let group = facts
        .dead_groups
        .iter()
        .find(|group| group.lambda == lambda && group.fingerprint == fingerprint);
    let message = group.and_then(|group| group.message.as_deref()).unwrap_or_default();
    let all = meant.iter().map(|one| one.tasks).sum();
    let parts: Vec<_> =
        meant.iter().map(|one| format!("{} {}", count(one.tasks), one.status)).collect();
    vec![
        format!("Cause {fingerprint}: {}", cut(message, 60)),
        format!("{} return to their queues ({}).", tasks(all), parts.join(", ")),
        "First 1, then 10, then the rest. It stops when one of them dies again.".to_owned(),
        "Each gets all its attempts again.".to_owned(),
    ]
}
