//! Everything that a history proves, in one value.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use anyhow::Result;
use serde::Serialize;

use crate::checks::{
    acceptance, chains, endings, executors, fences, heartbeats, leftovers, limits, order, overlap,
    recovery, redrives, repeats, restores, resumed, ticks, timeliness, transitions, wake_line,
};
use crate::history::{Accepted, History};
use crate::{
    Bounded, Chains, Invariant, Lateness, Recovery, Redrives, Restores, Tale, Ticks, tell,
};

/// The number of tasks with a printed story, when an invariant did not hold.
const TALES: usize = 3;

/// The findings of a check.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// Nothing was violated.
    pub ok: bool,
    /// Lines of the history.
    pub events: u64,
    /// Files whose last line was cut short by the death of their writer.
    pub cut_lines: u64,
    /// From the first event to the last, in seconds.
    pub lasted_s: f64,
    /// Tasks with a successful answer to their scheduling.
    pub accepted: u64,
    /// Bodies that began.
    pub executed: u64,
    /// Accepted tasks without a row, or not at an end; not those that were lost with a copy's future.
    pub lost: u64,
    /// Changes of tasks that were replayed along the table of edges.
    pub replayed: u64,
    /// Overlaps of bodies that were both free to run.
    pub overlaps: u64,
    /// Overlaps whose older process had been stopped beyond the guarantee's assumption.
    pub overlaps_stopped: u64,
    /// Overlaps of both kinds that the kernel's lock proves.
    pub overlaps_by_lock: u64,
    /// Overlaps of both kinds that the bodies' intervals show.
    pub overlaps_by_interval: u64,
    /// Tasks enqueued or claimed before they were due.
    pub early: u64,
    /// Repeats by their cause; `none`: unexplained.
    pub repeats: BTreeMap<&'static str, u64>,
    /// Executions after the first without any cause.
    pub unexplained_repeats: u64,
    /// Calls with old fences that were made on purpose.
    pub stale_tried: u64,
    /// The number of these calls that were refused.
    pub stale_refused: u64,
    /// The number of these calls that were applied.
    pub stale_applied: u64,
    /// Results that executors were refused in the run.
    pub results_refused: u64,
    /// Faults by kind.
    pub faults: BTreeMap<String, u64>,
    /// G10.
    pub recovery: Recovery,
    /// G6: from SIGCONT to the end of a process that stood still beyond its lease.
    pub resumed: Bounded,
    /// G11: from the silence of a worker's LISTENing connection to the moment when the worker gives
    /// it up.
    pub wake_lines: Bounded,
    /// I14: from the answer of the call that closed a gate to the last start behind it.
    pub gates: Bounded,
    /// I25: the graphs that were judged.
    pub chains: Chains,
    /// I26: the ticks.
    pub ticks: Ticks,
    /// I27: redrives, and the tasks that returned.
    pub redrives: Redrives,
    /// I29: restored copies, and what was lost with their futures.
    pub restores: Restores,
    /// By phase.
    pub lateness: BTreeMap<String, Lateness>,
    /// For each invariant that was checked and held: what its true rate is below.
    pub upper95: BTreeMap<&'static str, f64>,
    /// I1 to I31, then the guarantees with figures of their own.
    pub invariants: Vec<Invariant>,
    /// The stories of the first tasks that violate something.
    pub tales: Vec<Tale>,
    /// The run's seed.
    pub seed: u64,
    /// Versions of what ran.
    pub versions: Vec<String>,
}

impl Report {
    /// The invariant with an id such as `I9`.
    #[must_use]
    pub fn invariant(&self, id: &str) -> Option<&Invariant> {
        self.invariants.iter().find(|invariant| invariant.id == id)
    }

    /// The ids of the invariants that did not hold.
    #[must_use]
    pub fn violated(&self) -> Vec<&'static str> {
        let violated = self.invariants.iter().filter(|invariant| invariant.violations > 0);
        violated.map(|invariant| invariant.id).collect()
    }
}

/// Reads the history in `dir` and judges it.
///
/// # Errors
/// The history cannot be read, or there is nothing in it to judge.
pub fn check(dir: &Path) -> Result<Report> {
    check_phases(dir, &[])
}

/// The same; lateness is judged and shown for these phases only (none: for all).
///
/// # Errors
/// As [`check`].
pub fn check_phases(dir: &Path, phases: &[String]) -> Result<Report> {
    let mut report = judge(&History::read(dir)?, phases);
    let mut tasks: Vec<i64> = Vec::new();
    for task in report.invariants.iter().flat_map(|i| &i.details).filter_map(|found| found.task) {
        if tasks.len() < TALES && !tasks.contains(&task) {
            tasks.push(task);
        }
    }
    if !tasks.is_empty() {
        report.tales = tell(dir, &tasks)?;
    }
    Ok(report)
}

fn judge(history: &History, phases: &[String]) -> Report {
    let (overlap, overlaps) = overlap::one_at_a_time(history);
    let (late, lateness) = timeliness::on_time(history, phases);
    let (repeat, repeats) = repeats::repeats_are_explained(history);
    let (resumed_end, resumed) = resumed::the_resumed_end(history);
    let (noticed, wake_lines) = wake_line::a_dead_line_is_noticed(history);
    let (recovered, recovery) = recovery::recovery_is_bounded(history);
    let (gated, gates) = order::gates_hold(history);
    let (ticked, ticks) = ticks::each_tick_has_one_task(history);
    let (returned, redrives) = redrives::dead_letters_return(history);
    let (issued, restores) = restores::ids_are_issued_once(history);
    let with_figures =
        [overlap, late, repeat, gated, ticked, returned, issued, resumed_end, recovered, noticed];
    let invariants = invariants(history, with_figures);
    let upper = |invariant: &Invariant| invariant.upper95.map(|upper| (invariant.id, upper));
    Report {
        ok: invariants.iter().all(|invariant| invariant.violations == 0),
        events: history.events,
        cut_lines: history.cut_lines,
        lasted_s: crate::span::ms_between(history.begin, history.end) / 1000.0,
        accepted: history.accepted.len() as u64,
        executed: history.bodies.all().len() as u64,
        lost: lost(history),
        replayed: history.transitions.all().len() as u64,
        overlaps: overlaps.live,
        overlaps_stopped: overlaps.stopped,
        overlaps_by_lock: overlaps.by_lock,
        overlaps_by_interval: overlaps.by_interval,
        early: violations(&invariants, "I10"),
        unexplained_repeats: violations(&invariants, "I12"),
        repeats,
        stale_tried: history.stale.tried,
        stale_refused: history.stale.refused,
        stale_applied: history.stale.applied,
        results_refused: history.refused,
        faults: faults(history),
        recovery,
        resumed,
        wake_lines,
        gates,
        chains: chains::graphs(history),
        ticks,
        redrives,
        restores,
        lateness,
        upper95: invariants.iter().filter_map(upper).collect(),
        invariants,
        tales: Vec::new(),
        seed: history.settings.seed,
        versions: history.settings.versions.clone(),
    }
}

/// All of them; those that come with figures of their own are judged already.
fn invariants(history: &History, with_figures: [Invariant; 10]) -> Vec<Invariant> {
    let [overlap, late, repeat, gated, ticked, returned, issued, resumed_end, recovered, noticed] =
        with_figures;
    vec![
        acceptance::accepted_tasks_exist(history),
        acceptance::rows_were_asked_for(history),
        acceptance::batches_are_whole(history),
        acceptance::keys_are_unique(history),
        endings::each_ends_once(history),
        transitions::changes_are_legal(history),
        fences::fences_rise(history),
        fences::old_fences_change_nothing(history),
        overlap,
        timeliness::never_early(history),
        late,
        repeat,
        order::keys_are_ordered(history),
        gated,
        limits::limits_hold(history),
        limits::rates_hold(history),
        chains::chains_are_in_order(history),
        ticked,
        returned,
        endings::successes_happened(history),
        acceptance::ticks_are_unique(history),
        endings::attempts_are_bounded(history),
        endings::crashes_are_bounded(history),
        endings::the_dead_had_their_chances(history),
        leftovers::shown_numbers_are_true(history),
        heartbeats::beats_keep_the_lease(history),
        leftovers::nothing_is_left(history),
        heartbeats::no_worker_that_beats_is_given_up(history),
        heartbeats::nothing_runs_unregistered(history),
        executors::each_kill_has_a_reason(history),
        issued,
        resumed_end,
        recovered,
        noticed,
    ]
}

fn violations(invariants: &[Invariant], id: &str) -> u64 {
    let of = |invariant: &&Invariant| invariant.id == id;
    invariants.iter().find(of).map_or(0, |invariant| invariant.violations)
}

fn lost(history: &History) -> u64 {
    let ended = |task| history.row(task).is_some_and(|row| row.status.is_terminal());
    let forgiven = |Accepted { task, op }: &Accepted| {
        history.row(*task).is_none() && history.lost_batch(*op).is_some()
    };
    let lost = history.accepted.iter().filter(|accepted| !ended(accepted.task));
    let lost = lost.filter(|accepted| !forgiven(accepted));
    lost.map(|accepted| accepted.task).collect::<HashSet<_>>().len() as u64
}

fn faults(history: &History) -> BTreeMap<String, u64> {
    let mut kinds = BTreeMap::new();
    for fault in &history.faults {
        *kinds.entry(fault.kind.clone()).or_default() += 1;
    }
    kinds
}
