//! The timetable: the moment and the target of each fault, drawn from a seed before anything runs.
//! The same seed gives the same faults at the same moments. The interleaving with the processes
//! under test is not reproducible.

mod phases;

use serde::Serialize;

use Kind::*;
pub use phases::{
    CHAINS, CONTROL, ENDED_EXECUTORS, EXECUTORS, FROZEN_CONTROLLERS, REDRIVES, TICKS,
};
use phases::{COURSE, Dose, EXTRA, LAST};

/// A kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// SIGKILL of a worker.
    WorkerKill,
    /// SIGKILL of a store consumer.
    StoreConsumerKill,
    /// SIGSTOP of a worker, and SIGCONT after 0.2 to 3 L.
    WorkerFreeze,
    /// The same to a store consumer.
    StoreConsumerFreeze,
    /// SIGSTOP of all store consumers at once, until ticks have been missed.
    StoreConsumersGone,
    /// SIGTERM to a worker.
    WorkerDrain,
    /// A worker gets no more memory, and is killed if that does not end it.
    OutOfMemoryKill,
    /// The functions are renewed under load, as an upgrade does.
    Upgrade,
    /// `pg_terminate_backend`.
    TerminateBackend,
    /// `pg_cancel_backend`.
    CancelBackend,
    /// SIGKILL of one backend: the whole server recovers.
    BackendKill,
    /// Immediate stop of the server, and its start.
    ImmediateStop,
    /// SIGKILL of the postmaster, and its start.
    PostmasterKill,
    /// Nothing passes a process's door, both ways, until it heals.
    Partition,
    /// Nothing passes one way.
    OneWayPartition,
    /// A side of a connection never learns that the other has closed.
    HalfOpen,
    /// Everything is late.
    Delay,
    /// Answers are very late, then the server hears nothing more.
    LateThenSilent,
    /// Every connection of a process is reset.
    Reset,
    /// A call is cut before the server sees it.
    CutBefore,
    /// A call is cut after the server has committed, before the client hears of it.
    CutAfter,
    /// A worker's LISTENing connection falls silent; nothing ends.
    DeafLine,
    /// The primary freezes, its synchronous standby is promoted, the old primary thaws, then dies.
    Failover,
    /// The same, on a platform that drops every unlogged table: at the promotion, and again once all have
    /// recovered from it.
    DroppedTables,
    /// A dump of the database is restored, and takes its place.
    DumpRestore,
    /// A database that was made from it takes its place.
    TemplateSwap,
    /// A copy of the data directory, taken at a clean stop, is put back.
    ColdCopy,
    /// A base backup is recovered to a point, and takes the place of the data directory.
    PointInTime,
    /// The server's wall clock steps.
    ClockStep,
    /// Two workers live an hour off.
    WorkerClock,
    /// No space left for tables.
    DataDiskFull,
    /// No space left for WAL.
    WalDiskFull,
    /// Every connection slot is taken.
    PoolExhaustion,
    /// A session sits idle on the row locks of many tasks.
    LockContention,
    /// A session sits on a snapshot.
    HeldSnapshot,
    /// Nothing is vacuumed.
    NoAutovacuum,
    /// No NOTIFY is sent.
    NotifyOff,
    /// Some of the clients' payloads have up to 250 KiB.
    LargePayloads,
    /// PgBouncer in transaction mode stands between.
    Pooler,
    /// A lambda is paused.
    Gate,
    /// A rate limit is lowered to a fifth.
    LowRate,
    /// A hundred schedules tick; some are paused now and then.
    Schedules,
    /// A part that tasks need breaks and is repaired, again and again.
    Parts,
    /// A redrive is set.
    Redrive,
    /// A session sits idle on the row locks of dead tasks.
    LockedDead,
    /// Hosts run, and tasks whose bodies are executed in processes; some of these end their process, or have it
    /// ended.
    HostedTasks,
    /// SIGKILL of an executor.
    ExecutorKill,
    /// SIGSTOP of an executor, and SIGCONT after 0.2 to 3 L.
    ExecutorFreeze,
    /// SIGKILL of a host controller.
    ControllerKill,
    /// The same to a host controller.
    ControllerFreeze,
    /// SIGKILL of a zygote.
    ZygoteKill,
    /// The same to a zygote.
    ZygoteFreeze,
    /// SIGKILL of a guardian.
    GuardianKill,
    /// The same to a guardian, while its controller runs.
    GuardianFreeze,
}

/// A fault of the plan.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Planned {
    /// Since the phase began.
    pub at_ms: u64,
    pub kind: Kind,
    /// Decides the target, and the manner.
    pub choice: u64,
    /// How long it lasts, where that is for the plan to say.
    pub span_ms: u64,
}

/// A part of the run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Phase {
    pub name: &'static str,
    pub seconds: u64,
    pub faults: Vec<Planned>,
}

/// How much of a course, and how long.
#[derive(Debug, Clone, PartialEq)]
pub struct Extent {
    /// Phases by name; none: all of the course.
    pub only: Vec<String>,
    /// Percentage of each phase's time and doses.
    pub percent: u64,
    /// Percentage of the time alone: the same doses are spread over it.
    pub stretch_percent: u64,
    /// L, of which freezes and partitions take their lengths.
    pub lease_ms: u64,
}

impl Extent {
    /// The whole course, for the timings of runs of minutes.
    pub fn whole() -> Self {
        Self { only: Vec::new(), percent: 100, stretch_percent: 100, lease_ms: 2_000 }
    }

    /// Stretched so that the course takes so long, quiet and check not counted.
    #[must_use]
    pub fn lasting(mut self, seconds: u64) -> Self {
        let course: u64 = COURSE.iter().chain(&LAST).map(|(_, seconds, _)| seconds).sum();
        self.stretch_percent = (seconds * 100).div_ceil(course).max(100);
        self
    }
}

/// The timetable of one course.
pub fn course(seed: u64, extent: &Extent) -> Vec<Phase> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let only = &extent.only;
    let mut phases = Vec::new();
    for (name, seconds, doses) in COURSE.into_iter().chain(EXTRA).chain(LAST) {
        // Drawn even if it is left out, so that a phase is the same alone and in company.
        let mut rng = rng.fork();
        let extra = EXTRA.iter().any(|one| one.0 == name);
        let wanted = if only.is_empty() { !extra } else { only.iter().any(|one| one == name) };
        if wanted {
            let seconds = (seconds * extent.percent * extent.stretch_percent / 10_000).max(5);
            phases.push(phase(name, seconds, doses, extent, &mut rng));
        }
    }
    phases
}

fn phase(
    name: &'static str,
    seconds: u64,
    doses: &[Dose],
    extent: &Extent,
    rng: &mut fastrand::Rng,
) -> Phase {
    let mut faults = Vec::new();
    for (kind, count) in doses {
        let count = (u64::from(*count) * extent.percent).div_ceil(100);
        // The clock must be right again at the end, or tasks wait for a time that is past.
        let count = if *kind == ClockStep { count.next_multiple_of(4) } else { count };
        // One set of hosts, however long.
        let count = if *kind == HostedTasks { 1 } else { count };
        for n in 0..count {
            faults.push(plan(*kind, (n, count), seconds * 1_000, extent, rng));
        }
    }
    faults.sort_by_key(|fault| fault.at_ms);
    Phase { name, seconds, faults }
}

/// The n-th of `count`: spread evenly, each anywhere within its share of the time.
fn plan(
    kind: Kind,
    (n, count): (u64, u64),
    phase_ms: u64,
    extent: &Extent,
    rng: &mut fastrand::Rng,
) -> Planned {
    let share = (phase_ms / count).max(1);
    let at_ms = match kind {
        // These last as long as their phase.
        NotifyOff | Pooler | WorkerClock | HeldSnapshot | NoAutovacuum | Schedules | Parts
        | LargePayloads | HostedTasks => 0,
        _ => n * share + rng.u64(0..share),
    };
    let lease_ms = extent.lease_ms;
    // Leases of many seconds get shorter freezes, so that not all processes stand still at once.
    let (freeze_most, partition_most) = match lease_ms {
        ..5_000 => (lease_ms * 3, lease_ms * 2),
        _ => (lease_ms * 3 / 2, lease_ms * 6 / 5),
    };
    let span_ms = match kind {
        WorkerFreeze | StoreConsumerFreeze | ExecutorFreeze | ControllerFreeze | ZygoteFreeze
        | GuardianFreeze => rng.u64(lease_ms / 5..freeze_most),
        Partition | OneWayPartition | HalfOpen => rng.u64(lease_ms / 10..partition_most),
        Delay => rng.u64(500..3_000),
        LateThenSilent => 2 * lease_ms,
        LockContention | LockedDead => rng.u64(1_000..4_000),
        Gate | LowRate => rng.u64(1_500..4_000),
        // Longer than a tick's grace, and shorter than what a dead worker's tasks may wait besides L.
        StoreConsumersGone => 1_500,
        PoolExhaustion => rng.u64(1_000..3_000),
        // The time in which work is done after the copy was taken, and lost.
        DumpRestore | TemplateSwap | ColdCopy | PointInTime => rng.u64(1_000..2_000),
        DataDiskFull | WalDiskFull => rng.u64(2_000..4_000),
        NotifyOff | Pooler | WorkerClock | HeldSnapshot | NoAutovacuum | Schedules | Parts
        | LargePayloads | HostedTasks => phase_ms,
        _ => 0,
    };
    Planned { at_ms, kind, choice: rng.u64(..), span_ms }
}

/// How often each kind is planned.
pub fn doses(phases: &[Phase]) -> std::collections::BTreeMap<Kind, u64> {
    let mut doses = std::collections::BTreeMap::new();
    for fault in phases.iter().flat_map(|phase| &phase.faults) {
        *doses.entry(fault.kind).or_default() += 1;
    }
    doses
}

#[cfg(test)]
mod tests {
    use super::*;

    fn only(name: &str) -> Extent {
        Extent { only: vec![name.into()], ..Extent::whole() }
    }

    #[test]
    fn the_same_seed_gives_the_same_faults() {
        let whole = Extent::whole();
        assert_eq!(course(7, &whole), course(7, &whole));
        assert_ne!(course(7, &whole), course(8, &whole));
    }

    #[test]
    fn a_phase_alone_is_the_phase_in_company() {
        let all = course(3, &Extent::whole());
        let alone = course(3, &only("network"));
        assert_eq!(all.iter().find(|phase| phase.name == "network"), alone.first());
    }

    #[test]
    fn the_doses_are_those_that_were_promised() {
        let doses = doses(&course(1, &Extent::whole()));
        for (kind, count) in [(WorkerKill, 500), (StoreConsumerKill, 100), (WorkerDrain, 200)] {
            assert_eq!(doses[&kind], count, "{kind:?}");
        }
        assert_eq!(doses[&Partition] + doses[&OneWayPartition] + doses[&HalfOpen], 100);
        assert_eq!(doses[&WorkerFreeze] + doses[&StoreConsumerFreeze], 60);
        assert_eq!(doses[&ImmediateStop] + doses[&PostmasterKill] + doses[&BackendKill], 20);
        assert_eq!(doses[&DeafLine], 20);
        assert_eq!((doses[&Failover], doses[&DroppedTables]), (2, 1));
        assert_eq!(doses[&OutOfMemoryKill], 5);
        let of_hosts = [
            ExecutorKill,
            ExecutorFreeze,
            ControllerKill,
            ControllerFreeze,
            ZygoteKill,
            ZygoteFreeze,
        ];
        assert_eq!(of_hosts.map(|kind| doses[&kind]), [40, 16, 8, 10, 8, 5]);
        assert_eq!((doses[&GuardianKill], doses[&GuardianFreeze]), (8, 5));
        for kind in [DumpRestore, TemplateSwap, ColdCopy, PointInTime] {
            assert_eq!(doses[&kind], 1, "{kind:?}");
        }
    }

    #[test]
    fn what_lasts_as_long_as_its_phase_is_there_once_in_a_short_one_too() {
        for (name, kind) in [(TICKS, Schedules), (REDRIVES, Parts), (EXECUTORS, HostedTasks)] {
            let longest = if kind == HostedTasks { 1_000 } else { 100 };
            for percent in [5, 100, longest] {
                let phases = course(1, &Extent { percent, ..only(name) });
                let lasting: Vec<_> =
                    phases[0].faults.iter().filter(|fault| fault.kind == kind).collect();
                let span_ms = phases[0].seconds * 1_000;
                assert_eq!(lasting.len(), 1);
                assert_eq!((lasting[0].at_ms, lasting[0].span_ms), (0, span_ms));
            }
        }
    }

    #[test]
    fn a_stretched_course_has_the_same_doses() {
        let hour = Extent { lease_ms: 20_000, ..Extent::whole() }.lasting(3_600);
        let hour = course(1, &hour);
        assert!(hour.iter().map(|phase| phase.seconds).sum::<u64>() >= 3_600 - 13);
        assert_eq!(doses(&hour), doses(&course(1, &Extent::whole())));
    }

    #[test]
    fn the_course_fits_into_ten_minutes() {
        let course = course(1, &Extent::whole());
        let seconds: u64 = course.iter().map(|phase| phase.seconds).sum();
        assert!(seconds <= 620, "{seconds} s and setting up, draining, checking");
    }
}
