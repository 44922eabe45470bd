//! Injects the faults of a phase at their moments. Faults of one process run beside the others;
//! faults of the server run one after the other.

mod contention;
mod disks;
mod gates;
mod hosts;
mod network;
mod pooler;
mod processes;
mod rates;
mod redrives;
mod restores;
mod schedules;
mod servers;

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tuskline_history::{Edge, Event};

use crate::stage::Stage;
use crate::timetable::{Kind, Phase, Planned};
use crate::workers::Ongoing;

/// A fault that was not injected, and the reason.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Skipped {
    pub what: String,
    pub why: String,
}

/// How a fault went.
pub type Done = anyhow::Result<Option<Skipped>>;

/// The faults of a phase that were not injected.
#[derive(Debug, Clone, Default)]
pub struct Undone {
    /// This machine does not allow them.
    pub skipped: Vec<Skipped>,
    /// They failed.
    pub failed: Vec<Skipped>,
}

impl Undone {
    fn take(&mut self, kind: Kind, done: Done) {
        match done {
            Ok(skipped) => self.skipped.extend(skipped),
            Err(error) => {
                self.failed.push(Skipped { what: word(kind), why: format!("{error:#}") });
            }
        }
    }
}

/// Plays a phase to its end. A fault that fails does not end the run: the history of the other
/// faults is worth checking.
pub async fn play(stage: &Arc<Stage>, phase: &Phase) -> Undone {
    let writer = stage.faults.writer();
    writer.note(Event::Phase { name: phase.name.into(), edge: Edge::Begin });
    let began = Instant::now();
    let mut beside: JoinSet<(Kind, Done)> = JoinSet::new();
    let mut undone = Undone::default();
    for fault in &phase.faults {
        sleep_until(began + Duration::from_millis(fault.at_ms)).await;
        let stage = Arc::clone(stage);
        let fault = *fault;
        match is_of_server(fault.kind) {
            true => undone.take(fault.kind, inflict(&stage, fault).await),
            false => {
                beside.spawn(async move { (fault.kind, inflict(&stage, fault).await) });
            }
        }
    }
    sleep_until(began + Duration::from_secs(phase.seconds)).await;
    while let Some(done) = beside.join_next().await {
        if let Ok((kind, done)) = done {
            undone.take(kind, done);
        }
    }
    writer.note(Event::Phase { name: phase.name.into(), edge: Edge::End });
    undone
}

fn is_of_server(kind: Kind) -> bool {
    use Kind::*;
    matches!(
        kind,
        BackendKill
            | ImmediateStop
            | PostmasterKill
            | Failover
            | DroppedTables
            | DumpRestore
            | TemplateSwap
            | ColdCopy
            | PointInTime
            | ClockStep
            | DataDiskFull
            | WalDiskFull
            | Pooler
            | Upgrade
    )
}

async fn inflict(stage: &Arc<Stage>, fault: Planned) -> Done {
    use Kind::*;
    match fault.kind {
        WorkerKill | StoreConsumerKill => processes::kill(stage, fault).await,
        WorkerFreeze | StoreConsumerFreeze => processes::freeze(stage, fault).await,
        StoreConsumersGone => processes::be_gone(stage, fault).await,
        WorkerDrain => processes::drain(stage, fault).await,
        OutOfMemoryKill => processes::starve(stage, fault).await,
        Upgrade => servers::renew_functions(stage, fault).await,
        WorkerClock => processes::shift_clocks(stage, fault).await,
        TerminateBackend | CancelBackend => servers::disturb_session(stage, fault).await,
        BackendKill | ImmediateStop | PostmasterKill => servers::crash(stage, fault).await,
        Failover | DroppedTables => servers::fail_over(stage, fault).await,
        DumpRestore | TemplateSwap => restores::swap_databases(stage, fault).await,
        ColdCopy | PointInTime => restores::put_directories_back(stage, fault).await,
        ClockStep => servers::step_clock(stage, fault).await,
        Partition | OneWayPartition | HalfOpen | Delay => network::disturb(stage, fault).await,
        LateThenSilent => network::fall_silent(stage, fault).await,
        Reset => network::reset(stage, fault).await,
        DeafLine => network::deafen(stage, fault).await,
        CutBefore | CutAfter => network::cut(stage, fault).await,
        DataDiskFull | WalDiskFull => disks::fill(stage, fault).await,
        PoolExhaustion => contention::use_up_connections(stage, fault).await,
        LockContention => contention::lock_rows(stage, fault).await,
        HeldSnapshot => contention::hold_snapshot(stage, fault).await,
        NoAutovacuum => contention::stop_autovacuum(stage, fault).await,
        NotifyOff => contention::silence_notify(stage, fault).await,
        LargePayloads => processes::schedule_large_payloads(stage, fault).await,
        Pooler => pooler::stand_between(stage, fault).await,
        Gate => gates::pause(stage, fault).await,
        LowRate => rates::lower(stage, fault).await,
        Schedules => schedules::tick(stage, fault).await,
        Parts => redrives::break_parts(stage, fault).await,
        Redrive => redrives::set(stage, fault).await,
        LockedDead => redrives::lock_dead(stage, fault).await,
        HostedTasks => hosts::run(stage, fault).await,
        ExecutorKill | ControllerKill | ZygoteKill | GuardianKill => {
            hosts::kill(stage, fault).await
        }
        ExecutorFreeze | ControllerFreeze | ZygoteFreeze | GuardianFreeze => {
            hosts::freeze(stage, fault).await
        }
    }
}

/// Notes an act of the injector as an owner or a neighbour. No process under test suffers from it,
/// so the history excuses nothing for it.
fn of_our_own(stage: &Stage, fault: Planned) -> Ongoing {
    stage.faults.begin(&word(fault.kind), Some(std::process::id()), format!("{} ms", fault.span_ms))
}

/// Name of a kind in the history and the report.
pub fn word(kind: Kind) -> String {
    match serde_json::to_value(kind) {
        Ok(serde_json::Value::String(word)) => word,
        _ => format!("{kind:?}"),
    }
}
