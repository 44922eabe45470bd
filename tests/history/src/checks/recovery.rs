//! How long recovery takes (G10): after a worker died, the database returned, a standby took over.

use serde::Serialize;

use crate::history::{Claim, History};
use crate::span::ms_between;
use crate::{Actor, Invariant, Percentiles, Status};

/// The first claim after the database answers again.
const DATABASE_RETURN_MS: f64 = 2000.0;

/// The first claim after a failover.
const FAILOVER_MS: f64 = 5000.0;

/// Durations and what they must not exceed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Bounded {
    /// The durations.
    #[serde(flatten)]
    pub percentiles: Percentiles,
    /// The bound.
    pub bound_ms: f64,
    /// Whether it was kept.
    pub ok: bool,
}

impl Bounded {
    /// 99 % must be within the bound.
    pub(crate) fn p99(values: Vec<f64>, bound_ms: f64) -> Self {
        let percentiles = Percentiles::of(values);
        let ok = percentiles.p99_ms <= bound_ms;
        Self { percentiles, bound_ms, ok }
    }

    /// All must be within the bound.
    pub(crate) fn worst(values: Vec<f64>, bound_ms: f64) -> Self {
        let percentiles = Percentiles::of(values);
        let ok = percentiles.max_ms <= bound_ms;
        Self { percentiles, bound_ms, ok }
    }
}

/// What was measured.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Recovery {
    /// From the end of a worker's process to the next claim of each task it had in hands, while the
    /// database was up all the time.
    pub worker_death: Bounded,
    /// From the database's return, other than by failover, to the first claim of any task.
    pub database_return: Bounded,
    /// From the end of a failover to the first claim of any task.
    pub failover: Bounded,
}

/// G10.
pub(crate) fn recovery_is_bounded(history: &History) -> (Invariant, Recovery) {
    let statement = "P99: worker death L + 2 polls, database back 2 s, failover 5 s";
    let mut check = Invariant::new("G10", "recovery is bounded", statement);
    let settings = &history.settings;
    #[allow(clippy::cast_precision_loss, reason = "milliseconds")]
    let rescue_ms = (settings.lease_ms + 2 * settings.poll_ms) as f64;
    let recovery = Recovery {
        worker_death: Bounded::p99(worker_deaths(history), rescue_ms),
        database_return: Bounded::p99(database_returns(history), DATABASE_RETURN_MS),
        failover: Bounded::p99(failovers(history), FAILOVER_MS),
    };
    let parts = [
        ("worker death", &recovery.worker_death),
        ("database return", &recovery.database_return),
        ("failover", &recovery.failover),
    ];
    for (what, bounded) in parts {
        if !bounded.ok {
            let (found, bound) = (bounded.percentiles.p99_ms, bounded.bound_ms);
            check.violated(None, || format!("{what}: P99 is {found:.0} ms of {bound:.0}"));
        }
        check.checked += bounded.percentiles.n;
    }
    (check.done(), recovery)
}

fn worker_deaths(history: &History) -> Vec<f64> {
    let claims = history.claims.all().iter();
    claims.filter_map(|claim| after_death(history, claim)).collect()
}

/// From the death of a claim's process to the next claim of its task, when it was still at it.
fn after_death(history: &History, claim: &Claim) -> Option<f64> {
    let process = history.process(claim.process);
    let died =
        process.reaped.filter(|_| process.actor == Actor::Executor && process.exit.is_none())?;
    let steps = history.transitions.of(claim.task);
    let given_back = |status| status == Status::Enqueued;
    steps.iter().find(|step| step.fence == claim.fence && given_back(step.to))?;
    let next = steps.iter().find(|step| step.fence > claim.fence && step.to == Status::Claimed)?;
    let claimed = history.in_hands_at(claim.task, next.fence)?;
    let counts = claimed > died && !history.database_down.meet(died, claimed);
    counts.then(|| ms_between(died, claimed))
}

fn database_returns(history: &History) -> Vec<f64> {
    let failover = |from, to| {
        let faults = history.faults.iter().filter(|fault| fault.kind == "failover");
        faults.into_iter().any(|fault| fault.span.meets(from, to))
    };
    let down = history.database_down.iter().filter(|span| span.to < history.end);
    let down = down.filter(|span| !failover(span.from, span.to));
    down.filter_map(|span| first_claim(history, span.to)).collect()
}

fn failovers(history: &History) -> Vec<f64> {
    let faults = history.faults.iter().filter(|fault| fault.kind == "failover" && fault.ended);
    faults.filter_map(|fault| first_claim(history, fault.span.to)).collect()
}

/// Until the first claim after `since`; none when there is none, or the database went down first.
fn first_claim(history: &History, since: u64) -> Option<f64> {
    let claimed = history.next_claim(since)?;
    (!history.database_down.meet(since, claimed)).then(|| ms_between(since, claimed))
}
