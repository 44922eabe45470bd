//! The work of a run, in numbers that add up over runs.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

use crate::state::State;
use crate::step::{Said, Step};

/// Counts of one run.
#[derive(Debug, Default)]
pub struct Tally {
    pub cases: u64,
    pub steps: u64,
    pub tasks: u64,
    pub verbs: BTreeMap<&'static str, u64>,
    /// Results, starts and releases of attempts that were over.
    pub stale: u64,
    pub most_rounds: u64,
}

impl Tally {
    /// Counts a step that was taken, and the stale attempts in it that were refused.
    pub fn count(&mut self, before: &State, step: &Step, said: &Said) {
        self.steps += 1;
        *self.verbs.entry(step.verb()).or_default() += 1;
        if let Said::Accepted(tasks) = said {
            self.tasks += *tasks as u64;
        }
        let attempts = step.attempts();
        self.stale += match said {
            Said::Refusals(refused) | Said::Exchanged(refused, _) => refused.len() as u64,
            Said::Moved(moved) => {
                let stale = attempts.iter().filter(|(task, fence)| {
                    before.tasks[task].fence != Some(*fence) && !moved.contains(task)
                });
                stale.count() as u64
            }
            _ => 0,
        };
    }

    /// For machines.
    pub fn json(&self, seed: u64) -> Value {
        serde_json::json!({
            "seed": seed,
            "cases": self.cases, "steps": self.steps, "tasks": self.tasks, "verbs": self.verbs,
            "stale_attempts_refused": self.stale, "most_rounds_to_the_end": self.most_rounds,
        })
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:>8} cases", self.cases)?;
        writeln!(f, "{:>8} steps, each compared with the model", self.steps)?;
        writeln!(
            f,
            "{:>8} tasks accepted; each ended within {} fair rounds",
            self.tasks, self.most_rounds
        )?;
        writeln!(f, "{:>8} stale attempts, all refused", self.stale)?;
        let verbs = self.verbs.iter().map(|(verb, count)| format!("{verb} {count}"));
        write!(f, "   verbs: {}", verbs.collect::<Vec<_>>().join(", "))
    }
}

/// Prints counts for people, or one line of JSON when `TUSKLINE_MODEL_JSON` asks for it.
pub fn print(to_people: impl fmt::Display, json: &Value) {
    match std::env::var_os("TUSKLINE_MODEL_JSON") {
        Some(_) => println!("{json}"),
        None => println!("{to_people}"),
    }
}
