//! Every bound of the server's loops, with its unit, default and reason.
//!
//! Must never: read the environment or the database.

use std::time::Duration;

use crate::archive::Directory;

/// Name of an installation that was given none.
pub const DEFAULT_INSTALLATION: &str = "default";

/// Bounds of the store consumer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreConsumerOptions {
    /// Name of the installation that this server belongs to. `default`: the database has none.
    pub installation: String,
    /// Timers moved per transaction. 1,000: a commit costs as much as 50–100 row transitions, and
    /// a batch holds its rows' locks for some 20 ms.
    pub batch: u32,
    /// Leases of ended executors looked at per transaction. 100: a lease may hold thousands of tasks.
    pub rescue_batch: u32,
    /// Shortest time between two looks at the executors. 250 ms: leases end by the second, and laps
    /// follow each other by milliseconds when timers are dense.
    pub rescue_every: Duration,
    /// Longest nap, which is the safety poll. 1 s: without any notification every timer that was
    /// inserted during a nap is found within it, well inside the 5 s of the paper. A heartbeat is
    /// seen as late as that, and a dead executor's tasks return so much later than its lease.
    pub longest_nap: Duration,
    /// Longest nap when no notification can arrive, behind a transaction pooler. 200 ms.
    pub longest_deaf_nap: Duration,
    /// Nap while an open transaction inserts timers. 20 ms, jittered up to twice that.
    pub busy_nap: Duration,
    /// Mean time between two sweeps of the timers, which begin below the low-water mark. 45 s,
    /// jittered by a third, so that many store consumers do not sweep in step.
    pub sweep_every: Duration,
    /// How far the low-water mark stays behind what was seen. 1 s: a verb reads the clock before
    /// it draws its transaction number, and in between the mark must not pass its timer.
    pub mark_margin: Duration,
    /// How often to ask whether the queues still have their rows and tables. 3 s: after a nap of 1 s they are
    /// made again within 5 s of their loss. It costs 2 ms with 1,000 queues.
    pub rebuild_check_every: Duration,
    /// Longest one lap may take before its connection counts as lost. 60 s, above the server's own
    /// deadline for a statement.
    pub lap_deadline: Duration,
}

impl Default for StoreConsumerOptions {
    fn default() -> Self {
        Self {
            installation: DEFAULT_INSTALLATION.to_owned(),
            batch: 1_000,
            rescue_batch: 100,
            rescue_every: Duration::from_millis(250),
            longest_nap: Duration::from_secs(1),
            longest_deaf_nap: Duration::from_millis(200),
            busy_nap: Duration::from_millis(20),
            sweep_every: Duration::from_secs(45),
            mark_margin: Duration::from_secs(1),
            rebuild_check_every: Duration::from_secs(3),
            lap_deadline: Duration::from_secs(60),
        }
    }
}

/// Bounds of the periodic role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeriodicOptions {
    /// Name of the installation that this server belongs to. `default`: the database has none.
    pub installation: String,
    /// Schedules looked at per transaction. 50: a commit costs as much as 50–100 row transitions.
    pub batch: u32,
    /// Ticks of one schedule fired per transaction. 1,000, which the verb takes at most: after a long
    /// downtime the rest follows at once.
    pub most_ticks: usize,
    /// Longest nap, which is the safety poll. 15 s: a change of a schedule notifies, and the next due time
    /// is known. So an idle server asks four times a minute.
    pub longest_nap: Duration,
    /// Longest nap when no notification can arrive, behind a transaction pooler. 1 s.
    pub longest_deaf_nap: Duration,
    /// Nap while another server has a due schedule in hand. 50 ms, jittered up to twice that: should it
    /// die before it commits, the tick is ours.
    pub busy_nap: Duration,
    /// Longest one lap may take before its connection counts as lost. 60 s, above the server's own
    /// deadline for a statement.
    pub lap_deadline: Duration,
}

impl Default for PeriodicOptions {
    fn default() -> Self {
        Self {
            installation: DEFAULT_INSTALLATION.to_owned(),
            batch: 50,
            most_ticks: 1_000,
            longest_nap: Duration::from_secs(15),
            longest_deaf_nap: Duration::from_secs(1),
            busy_nap: Duration::from_millis(50),
            lap_deadline: Duration::from_secs(60),
        }
    }
}

/// Bounds of the janitor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JanitorOptions {
    /// Name of the installation that this server belongs to. `default`: the database has none.
    pub installation: String,
    /// Time between two rounds. 30 s: at 10,000 tasks a second a segment lasts 28 minutes.
    pub every: Duration,
    /// Time between two looks whether fewer segments are ready than half of that. 5 s: a role that may draw
    /// ids and does nothing else draws a segment's in 6 s at most (2.7 million a second).
    pub segments_check_every: Duration,
    /// Segments kept ready ahead of each id range. 8: four hours at that rate without a janitor.
    pub segments_ahead: i32,
    /// How long a segment is in use before the next is begun, full or not. 1 day: retention is as
    /// coarse as that.
    pub segment_span: Duration,
    /// Kept tasks looked at, and ended executors deleted, per transaction. 5,000.
    pub purge_batch: i32,
    /// Such transactions of each kind per round. 20, so that a flood does not keep the rest waiting: of ten
    /// million kept tasks each is looked at every 50 minutes.
    pub purge_rounds: u32,
    /// Time between two looks for tasks that nothing points to any more. 10 min: it reads every
    /// segment in use from end to end, and no verb leaves such a task behind.
    pub audit_every: Duration,
    /// Time between two folds of the statistics. 1 min: each fold adds a row of totals for each
    /// active queue.
    pub fold_every: Duration,
    /// How long statistics are kept. 3 days: each active queue, cause of waits and worker adds a
    /// row of about 430 bytes a minute.
    pub statistics_retention: Duration,
    /// Longest wait for the readers of a segment to let go of it, per round. 60 s; the detach
    /// then stays pending and the next round goes on.
    pub detach_patience: Duration,
    /// Longest wait for the lock to drop a detached segment. 1 s.
    pub drop_patience: Duration,
    /// Where tasks go that are archived to files. None: they are not deleted.
    pub archive: Option<Directory>,
}

impl Default for JanitorOptions {
    fn default() -> Self {
        Self {
            installation: DEFAULT_INSTALLATION.to_owned(),
            every: Duration::from_secs(30),
            segments_check_every: Duration::from_secs(5),
            segments_ahead: 8,
            segment_span: Duration::from_secs(24 * 60 * 60),
            purge_batch: 5_000,
            purge_rounds: 20,
            audit_every: Duration::from_secs(600),
            fold_every: Duration::from_secs(60),
            statistics_retention: Duration::from_secs(3 * 24 * 60 * 60),
            detach_patience: Duration::from_secs(60),
            drop_patience: Duration::from_secs(1),
            archive: None,
        }
    }
}
