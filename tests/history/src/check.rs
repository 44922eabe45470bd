//! The result of checking an invariant.

use serde::Serialize;

/// The most violations that are described; further ones are counted.
const DESCRIBED: usize = 5;

/// An invariant, how often it was checked, and how often it did not hold.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Invariant {
    /// I1 to I31, or the guarantee.
    pub id: &'static str,
    /// In a few words.
    pub name: &'static str,
    /// The invariant, in one line.
    pub statement: &'static str,
    /// The number of cases that were checked.
    pub checked: u64,
    /// The number of cases that violated it.
    pub violations: u64,
    /// With no violation the true rate is below this with 95 % confidence: 3 / checked.
    pub upper95: Option<f64>,
    /// The first violations.
    pub details: Vec<Violation>,
}

/// A case that violated an invariant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Violation {
    /// The task, where there is one.
    pub task: Option<i64>,
    /// A description of the violation.
    pub what: String,
}

impl Invariant {
    pub(crate) fn new(id: &'static str, name: &'static str, statement: &'static str) -> Self {
        let (checked, violations, upper95, details) = (0, 0, None, Vec::new());
        Self { id, name, statement, checked, violations, upper95, details }
    }

    /// Counts a case. If it does not hold, `wrong` describes it.
    pub(crate) fn expect(
        &mut self,
        holds: bool,
        task: Option<i64>,
        wrong: impl FnOnce() -> String,
    ) {
        self.checked += 1;
        if !holds {
            self.violated(task, wrong);
        }
    }

    /// A violation that is no case of its own: the cases are counted by the caller.
    pub(crate) fn violated(&mut self, task: Option<i64>, wrong: impl FnOnce() -> String) {
        self.violations += 1;
        if self.details.len() < DESCRIBED {
            self.details.push(Violation { task, what: wrong() });
        }
    }

    /// After the last case.
    #[allow(clippy::cast_precision_loss, reason = "far below 2^53")]
    pub(crate) fn done(mut self) -> Self {
        self.upper95 =
            (self.violations == 0 && self.checked > 0).then(|| 3.0 / self.checked as f64);
        self
    }
}
