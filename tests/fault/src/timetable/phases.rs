//! The phases of a run, and what is done in each.

use super::Kind::{self, *};

/// How many of a kind a phase holds.
pub(super) type Dose = (Kind, u32);

/// Phases of the ten minutes, with the doses of the acceptance figures. Disks and clocks come before
/// the failover: the standby that takes over has the machine's.
pub(super) const COURSE: [(&str, u64, &[Dose]); 15] = [
    ("baseline", 10, &[]),
    // While the database is small: it is copied as a whole.
    (RESTORES, 40, &[(DumpRestore, 1), (TemplateSwap, 1), (ColdCopy, 1), (PointInTime, 1)]),
    ("kills", 118, &[(WorkerKill, 470), (StoreConsumerKill, 100), (OutOfMemoryKill, 5)]),
    ("drains", 38, &[(WorkerDrain, 200), (Upgrade, 3)]),
    ("freezes", 45, &[(WorkerFreeze, 52), (StoreConsumerFreeze, 8)]),
    ("sessions", 30, &[(TerminateBackend, 300), (CancelBackend, 300)]),
    ("crashes", 60, &[(ImmediateStop, 10), (PostmasterKill, 5), (BackendKill, 5)]),
    (
        "network",
        62,
        &[
            (Partition, 60),
            (OneWayPartition, 25),
            (HalfOpen, 15),
            (Delay, 20),
            (Reset, 60),
            (CutBefore, 150),
            (CutAfter, 350),
            (DeafLine, 20),
        ],
    ),
    ("clocks", 30, &[(ClockStep, 4), (WorkerClock, 1)]),
    ("disks", 25, &[(DataDiskFull, 1), (WalDiskFull, 1)]),
    ("failover", 30, &[(Failover, 2), (DroppedTables, 1)]),
    (
        "contention",
        28,
        &[(PoolExhaustion, 2), (LockContention, 6), (HeldSnapshot, 1), (NoAutovacuum, 1)],
    ),
    // They return to their queues after kills and cut sessions, too.
    ("large payloads", 20, &[(LargePayloads, 1), (WorkerKill, 30), (TerminateBackend, 30)]),
    ("no notify", 12, &[(NotifyOff, 1)]),
    ("pooler", 12, &[(Pooler, 1)]),
];

/// Phases that are played only when they are asked for: those that catch a mutant, and those of what
/// only some tasks use.
pub(super) const EXTRA: [(&str, u64, &[Dose]); 8] = [
    ("partitions", 60, &[(Partition, 60)]),
    ("late answers", 60, &[(LateThenSilent, 16)]),
    (
        CONTROL,
        60,
        &[
            (WorkerKill, 120),
            (WorkerDrain, 40),
            (StoreConsumerKill, 30),
            (Gate, 10),
            (LowRate, 4),
            (TerminateBackend, 60),
        ],
    ),
    (CHAINS, 60, &[(WorkerKill, 120), (StoreConsumerKill, 30), (TerminateBackend, 60)]),
    (
        TICKS,
        110,
        &[
            (Schedules, 1),
            (StoreConsumerKill, 100),
            (StoreConsumerFreeze, 4),
            (StoreConsumersGone, 3),
            (WorkerKill, 60),
            (TerminateBackend, 60),
        ],
    ),
    (
        REDRIVES,
        60,
        &[
            (Parts, 1),
            (Redrive, 60),
            (LockedDead, 12),
            (StoreConsumerKill, 60),
            (WorkerKill, 120),
            (TerminateBackend, 60),
        ],
    ),
    (FROZEN_CONTROLLERS, 20, &[(HostedTasks, 1), (ControllerFreeze, 8)]),
    (ENDED_EXECUTORS, 20, &[(HostedTasks, 1)]),
];
/// The last phase of the course. It is drawn after all others, which have the timetables they had without it.
pub(super) const LAST: [(&str, u64, &[Dose]); 1] = [(
    EXECUTORS,
    60,
    &[
        (HostedTasks, 1),
        (ExecutorKill, 40),
        (ExecutorFreeze, 16),
        (ControllerKill, 8),
        (ControllerFreeze, 10),
        (ZygoteKill, 8),
        (ZygoteFreeze, 5),
        (GuardianKill, 8),
        (GuardianFreeze, 5),
    ],
)];
/// In which host controllers execute tasks in processes.
pub const EXECUTORS: &str = "executors";
/// In which these stand still, and nothing else happens to hosts.
pub const FROZEN_CONTROLLERS: &str = "frozen controllers";
/// In which no process is ended but for its tasks.
pub const ENDED_EXECUTORS: &str = "ended executors";
/// In which earlier copies take the database's place.
const RESTORES: &str = "restores";
/// In which tasks have keys, limits and gates.
pub const CONTROL: &str = "control";
/// In which tasks wait for other tasks.
pub const CHAINS: &str = "chains";
/// In which schedules make tasks.
pub const TICKS: &str = "ticks";
/// In which dead letters return.
pub const REDRIVES: &str = "redrives";
