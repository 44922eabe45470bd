//! Never early, and on time.
//!
//! The database's clock, which alone decides when a task is due, judges both. The phase of a start
//! is judged by the monotonic clock, at the moment when a worker had the task.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::history::{History, Transition};
use crate::{Invariant, Percentiles, Status};

/// 95 % start within this, while one fault is active.
const BOUND_MS: f64 = 5000.0;

/// How soon after a step of the clock a claim still belongs to a verb that had begun before it.
const JUST_NS: u64 = 1_000_000_000;

/// The phase of claims that the monotonic clock has no time for, or that were outside all phases.
pub(super) const NO_PHASE: &str = "-";

/// How late tasks were claimed in one phase.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Lateness {
    /// The lateness of the starts to which the bound applies.
    #[serde(flatten)]
    pub percentiles: Percentiles,
    /// P95 is at most this.
    pub bound_ms: f64,
    /// Whether it is.
    pub ok: bool,
    /// The number of starts to which the bound does not apply. The database was down or its clock
    /// stepped meanwhile, or a worker gave up the task or died with it.
    pub excluded: u64,
    /// The latest of them.
    pub excluded_max_ms: f64,
}

/// I10.
pub(crate) fn never_early(history: &History) -> Invariant {
    let statement = "enqueued and claimed not before due, by the database's clock";
    let mut check = Invariant::new("I10", "never early", statement);
    for task in history.tasks.all() {
        let mut due_us = None;
        for step in history.transitions.of(task) {
            let begins = matches!(step.to, Status::New | Status::RetriableFailure);
            if begins || step.from.is_none() {
                due_us = step.due_us;
            }
            let starts = matches!(step.to, Status::Enqueued | Status::Claimed);
            // Judged due before a step back of the clock, noted after it: no judgement of ours.
            if starts && due_us.is_some_and(|due| step.db_us < due) && stepped_back(history, step) {
                due_us = None;
            }
            if let (true, Some(due)) = (starts, due_us) {
                check.expect(step.db_us >= due, history.id(task), || {
                    format!("{:?} {} us before it was due", step.to, due - step.db_us)
                });
                // A task that was due once stays due, because that clock may be set back
                // afterwards.
                due_us = due_us.filter(|due| step.db_us < *due);
            }
        }
    }
    check.done()
}

/// Whether the clock was stepped just before the claim that this change was or led to.
fn stepped_back(history: &History, step: &Transition) -> bool {
    let later = history.transitions.of(step.task).iter();
    let claim = later.skip_while(|later| later.step < step.step);
    let claim = claim.into_iter().find(|later| later.to == Status::Claimed);
    let at = claim.and_then(|claim| history.held_at(claim.task, claim.fence));
    let within =
        |at: u64| history.clock_steps.iter().any(|step| (*step..=*step + JUST_NS).contains(&at));
    at.is_some_and(within)
}

/// I11, and the figures by phase. `phases`: judge and show only these; empty: all.
pub(crate) fn on_time(
    history: &History,
    phases: &[String],
) -> (Invariant, BTreeMap<String, Lateness>) {
    let statement = "P95 of claimed - due <= 5 s in each phase, N counts starts";
    let mut check = Invariant::new("I11", "on time", statement);
    let mut latenesses = BTreeMap::new();
    for (phase, delays) in by_phase(history) {
        if !phases.is_empty() && !phases.contains(&phase) {
            continue;
        }
        let lateness = delays.judge();
        check.checked += lateness.percentiles.n;
        if !lateness.ok {
            check.violated(None, || {
                format!("phase {phase}: P95 is {:.0} ms", lateness.percentiles.p95_ms)
            });
        }
        latenesses.insert(phase, lateness);
    }
    (check.done(), latenesses)
}

#[derive(Default)]
struct Delays {
    bound: Vec<f64>,
    excluded: Vec<f64>,
}

impl Delays {
    fn judge(self) -> Lateness {
        let excluded = Percentiles::of(self.excluded);
        let percentiles = Percentiles::of(self.bound);
        let ok = percentiles.p95_ms <= BOUND_MS;
        let (excluded_max_ms, excluded) = (excluded.max_ms, excluded.n);
        Lateness { percentiles, bound_ms: BOUND_MS, ok, excluded, excluded_max_ms }
    }
}

/// The wait of a task.
#[derive(Clone, Copy)]
struct Wait {
    due_us: i64,
    /// It came back from a worker.
    again: bool,
}

fn by_phase(history: &History) -> BTreeMap<String, Delays> {
    let mut phases: BTreeMap<String, Delays> = BTreeMap::new();
    for task in history.tasks.all().filter(|task| !history.is_held_up(*task)) {
        let mut wait = None;
        for step in history.transitions.of(task) {
            if step.to == Status::Claimed
                && let Some(wait) = wait.take()
            {
                let (phase, ms, excluded) = place(history, step, wait);
                let delays = match phases.get_mut(phase) {
                    Some(delays) => delays,
                    None => phases.entry(phase.to_owned()).or_default(),
                };
                if excluded { &mut delays.excluded } else { &mut delays.bound }.push(ms);
            }
            wait = begin(step).or(wait);
        }
    }
    phases
}

/// The wait that a change begins, if it does.
fn begin(step: &Transition) -> Option<Wait> {
    let again = matches!(step.from, Some(Status::Claimed | Status::Processing)) || step.revives();
    let waits = matches!(step.to, Status::New | Status::Enqueued | Status::RetriableFailure);
    let back = again && step.to == Status::Enqueued;
    let due_us = step.due_us.filter(|_| !back).unwrap_or(step.db_us).max(step.db_us);
    (waits && (step.from.is_none() || again)).then_some(Wait { due_us, again: back })
}

/// The phase and the delay of a claim, and whether the bound is not for it.
#[allow(clippy::cast_precision_loss, clippy::cast_sign_loss, reason = "spans, far below 2^53 us")]
fn place<'h>(history: &'h History, claim: &Transition, wait: Wait) -> (&'h str, f64, bool) {
    let late_us = claim.db_us.saturating_sub(wait.due_us).max(0);
    let ms = late_us as f64 / 1000.0;
    let Some(at) = history.held_at(claim.task, claim.fence) else {
        // The answer may have been lost with the database that a copy replaced, so the moment is
        // unknown.
        return (NO_PHASE, ms, wait.again || !history.restores.is_empty());
    };
    let due = at.saturating_sub(late_us as u64 * 1000);
    let down = history.database_down.meet(due, at);
    // A delay that spans a step of the clock it is measured by says nothing.
    let stepped = history.clock_steps.iter().any(|step| (due..=at).contains(step));
    (history.phase_at(at).unwrap_or(NO_PHASE), ms, down || stepped || wait.again)
}
