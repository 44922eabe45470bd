//! How long recovery takes (G10): after a worker died, the database returned, a standby took over.

use std::collections::BTreeMap;

use serde::Serialize;

use super::timeliness::NO_PHASE;
use crate::history::{Claim, Fault, History, Transition};
use crate::process::Process;
use crate::span::{Span, ms_between};
use crate::{Actor, Invariant, Percentiles, Status};

/// The first claim after the database answers again.
const DATABASE_RETURN_MS: f64 = 2000.0;

/// The first claim after a failover.
const FAILOVER_MS: f64 = 5000.0;

/// The fault in which a platform drops the tables of the queues at a failover, and by when they are back.
const DROPPED_TABLES: &str = "dropped_tables";
const TABLES_BACK_NS: u64 = 5_000_000_000;

/// The first claim after a copy took the database's place, besides a lease: so long claims wait there.
const RESTORE_MS: f64 = 5000.0;

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

/// The measured times of recovery.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Recovery {
    /// From the end of a worker's process to the next claim of each task that it held, while the
    /// database was up. If a stranger had locked the task's row meanwhile, the time counts from its
    /// unlock, because no rescue can come before.
    pub worker_death: Bounded,
    /// The part of these without a store consumer that watched all the time. Each was killed,
    /// stopped or disturbed meanwhile, or had just started. The figure explains slow cases; the
    /// bound is on all of them.
    pub worker_death_unwatched: Percentiles,
    /// All of them by the phase in which the worker died, likewise.
    pub worker_death_by_phase: BTreeMap<String, Percentiles>,
    /// From the database's return, other than by failover, to the first claim of any task.
    pub database_return: Bounded,
    /// From the end of a failover to the first claim of any task.
    pub failover: Bounded,
    /// From when an earlier copy took the database's place to the first claim of any task.
    pub restore: Bounded,
}

/// G10.
pub(crate) fn recovery_is_bounded(history: &History) -> (Invariant, Recovery) {
    let statement =
        "P99: worker death L + 2 polls, database back 2 s, failover 5 s, restore L + 5 s";
    let mut check = Invariant::new("G10", "recovery is bounded", statement);
    let settings = &history.settings;
    #[allow(clippy::cast_precision_loss, reason = "milliseconds")]
    let (lease_ms, polls_ms) = (settings.lease_ms as f64, (2 * settings.poll_ms) as f64);
    let rescue_ms = lease_ms + polls_ms;
    let waits = worker_deaths(history);
    let ms = |wait: &(u64, u64)| ms_between(wait.0, wait.1);
    let unwatched = waits.iter().filter(|(from, to)| !was_watched(history, *from, *to));
    let mut by_phase: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for wait in &waits {
        let phase = history.phase_at(wait.0).unwrap_or(NO_PHASE);
        by_phase.entry(phase.to_owned()).or_default().push(ms(wait));
    }
    let recovery = Recovery {
        worker_death: Bounded::p99(waits.iter().map(ms).collect(), rescue_ms),
        worker_death_unwatched: Percentiles::of(unwatched.map(ms).collect()),
        worker_death_by_phase: by_phase
            .into_iter()
            .map(|(phase, waits)| (phase, Percentiles::of(waits)))
            .collect(),
        database_return: Bounded::p99(database_returns(history), DATABASE_RETURN_MS),
        failover: Bounded::p99(failovers(history), FAILOVER_MS),
        restore: Bounded::p99(restores(history), lease_ms + RESTORE_MS),
    };
    let parts = [
        ("worker death", &recovery.worker_death),
        ("database return", &recovery.database_return),
        ("failover", &recovery.failover),
        ("restore", &recovery.restore),
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

/// The span in which each task of a dead worker waited, as far as a rescue was possible.
fn worker_deaths(history: &History) -> Vec<(u64, u64)> {
    history.claims.all().iter().filter_map(|claim| after_death(history, claim)).collect()
}

/// From the death of a claim's process to the next claim of its task, if the death interrupted it.
/// A task that had its result by then and waited for a retry does not count. Nor does one of a host controller, whose
/// next claim waits for a process of its lambda, too.
fn after_death(history: &History, claim: &Claim) -> Option<(u64, u64)> {
    let process = history.process(claim.process);
    let died = process.reaped.filter(|_| {
        process.actor == Actor::Executor && process.exit.is_none() && process.guardian.is_none()
    })?;
    let steps = history.transitions.of(claim.task);
    let is_held = |from| matches!(from, Some(Status::Claimed | Status::Processing));
    let taken_back = |step: &&Transition| is_held(step.from) && step.to == Status::Enqueued;
    steps.iter().filter(taken_back).find(|step| step.fence == claim.fence)?;
    let next = steps.iter().find(|step| step.fence > claim.fence && step.to == Status::Claimed)?;
    let claimed = history.held_at(claim.task, next.fence)?;
    let counts = claimed > died
        && !history.database_down.meet(died, claimed)
        && !lacked_tables(history, died, claimed)
        && !history.is_gated(claim.task);
    let held = history.held_rows.of(claim.task).iter();
    let held = held.filter(|held| held.from <= claimed && held.to >= died).map(|held| held.to);
    counts.then(|| (held.fold(died, u64::max).min(claimed), claimed))
}

/// Whether at least one store consumer ran undisturbed from the last heartbeat before `from` until
/// `to`. A history without store consumers had none killed either.
fn was_watched(history: &History, from: u64, to: u64) -> bool {
    let heartbeat = history.settings.heartbeat_ms * 1_000_000;
    let disturbed = |watcher: &Process| {
        let of_it = |fault: &&Fault| fault.pid == Some(watcher.pid);
        history.faults.iter().filter(of_it).any(|fault| fault.span.meets(from, to))
    };
    let watches = |watcher: &Process| {
        watcher.ran_through(from.saturating_sub(heartbeat), to) && !disturbed(watcher)
    };
    history.store_consumers.is_empty() || history.store_consumers.iter().any(watches)
}

fn database_returns(history: &History) -> Vec<f64> {
    let failover = |from, to| {
        let faults = history.faults.iter().filter(|fault| is_failover(fault));
        faults.into_iter().any(|fault| fault.span.meets(from, to))
    };
    let down = history.database_down.iter().filter(|span| span.to < history.end);
    let restored = |span: &Span| {
        history.restores.iter().any(|restored| span.meets(restored.lost.to, restored.lost.to))
    };
    let down = down.filter(|span| !failover(span.from, span.to) && !restored(span));
    down.filter_map(|span| first_claim(history, span.to)).collect()
}

/// Whether the tables of the queues were dropped meanwhile, and perhaps not back: a bound of its own.
fn lacked_tables(history: &History, from: u64, to: u64) -> bool {
    let dropped = history.faults.iter().filter(|fault| fault.kind == DROPPED_TABLES);
    dropped.into_iter().any(|fault| fault.span.meets(from.saturating_sub(TABLES_BACK_NS), to))
}

/// In the second, the platform also dropped the tables of the queues, just before its end.
fn is_failover(fault: &Fault) -> bool {
    ["failover", DROPPED_TABLES].contains(&fault.kind.as_str())
}

fn failovers(history: &History) -> Vec<f64> {
    let faults = history.faults.iter().filter(|fault| is_failover(fault) && fault.ended);
    faults.filter_map(|fault| first_claim(history, fault.span.to)).collect()
}

/// From the end of the outage in which the copy took the database's place.
fn restores(history: &History) -> Vec<f64> {
    let back = |at: u64| {
        let outage = history.database_down.iter().find(|span| span.meets(at, at));
        outage.map_or(at, |span| span.to)
    };
    let moments = history.restores.iter().map(|restored| back(restored.lost.to));
    moments.filter_map(|back| first_claim(history, back)).collect()
}

/// Until the first claim after `since`; none when there is none, or the database went down first.
fn first_claim(history: &History, since: u64) -> Option<f64> {
    let claimed = history.next_claim(since)?;
    (!history.database_down.meet(since, claimed)).then(|| ms_between(since, claimed))
}
