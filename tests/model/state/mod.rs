//! The model: what the task store holds, as far as the verbs care, and what each verb makes of it.
//!
//! Written from the table in ARCHITECTURE.md and from the promises in docs/guarantees.md, not from the SQL. Time
//! is milliseconds since the start of a case. Where the store draws lots (the jitter of a retry) the
//! model holds a range.

mod executors;
mod queues;
mod results;
pub mod rules;
mod schedule;

use std::collections::BTreeMap;

use crate::step::{Said, Step};

/// How long after it was enqueued a task is looked at again, and `find_stalled`'s grace.
pub const TEN_MINUTES: i64 = 600_000;

/// A task, by the order in which it was scheduled. Names outlive the steps around them, so that a
/// failing sequence can be shortened and still speak of the same task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TaskNo(pub u32);

/// A registration of an executor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ExecutorNo(pub u32);

/// A lease, and so a fence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LeaseNo(pub u32);

/// Where a task stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Status {
    New,
    Enqueued,
    Claimed,
    Processing,
    Retriable,
    Success,
    Fatal,
    Dead,
    Cancelled,
}

impl Status {
    /// As the store writes it.
    pub fn label(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Enqueued => "enqueued",
            Self::Claimed => "claimed",
            Self::Processing => "processing",
            Self::Retriable => "retriable_failure",
            Self::Success => "success",
            Self::Fatal => "fatal_failure",
            Self::Dead => "dead",
            Self::Cancelled => "cancelled",
        }
    }

    /// A worker has it.
    pub fn is_held(self) -> bool {
        matches!(self, Self::Claimed | Self::Processing)
    }

    /// A timer has it.
    pub fn waits(self) -> bool {
        matches!(self, Self::New | Self::Retriable)
    }

    /// It has ended.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Success | Self::Fatal | Self::Dead | Self::Cancelled)
    }
}

/// An instant, or the range in which it was drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct When {
    pub earliest: i64,
    pub latest: i64,
}

impl When {
    pub fn exactly(at: i64) -> Self {
        Self { earliest: at, latest: at }
    }

    pub fn is_exact(self) -> bool {
        self.earliest == self.latest
    }

    /// Whether it may or may not have come; never asked of an exact instant.
    pub fn is_open_at(self, now: i64) -> bool {
        !self.is_exact() && self.earliest - 2 <= now && now <= self.latest + 2
    }

    pub fn has_come(self, now: i64) -> bool {
        self.latest <= now
    }
}

/// A lambda and what counts of its settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lambda {
    pub direct: bool,
    pub max_attempts: i16,
    pub max_crashes: i16,
    pub retry_base: i64,
    pub retry_cap: i64,
    pub attempt_timeout: i64,
}

/// A task.
#[derive(Debug, Clone)]
pub struct Task {
    pub lambda: &'static str,
    pub priority: &'static str,
    pub status: Status,
    /// Under which lease it was last claimed.
    pub fence: Option<LeaseNo>,
    pub attempt: i16,
    pub crashes: i16,
    pub trigger: Option<When>,
    pub started: i64,
    /// Its id comes from the range for later tasks.
    pub later: bool,
    pub failures: i64,
    pub output: bool,
    /// A fault deleted the rows that point to it; only `find_stalled` can find it.
    pub astray: bool,
}

/// A worker process.
#[derive(Debug, Clone)]
pub struct Executor {
    /// Which of the sessions speaks for it.
    pub slot: usize,
    pub lease: i64,
    pub expires: i64,
    pub ended: bool,
}

/// A claimed batch. It stays here when its row has gone, for the sake of stale attempts.
#[derive(Debug, Clone)]
pub struct Lease {
    pub executor: ExecutorNo,
    pub tasks: Vec<TaskNo>,
    pub gone: bool,
}

/// The task store.
#[derive(Debug, Clone)]
pub struct State {
    pub now: i64,
    /// False between a crash and the rebuild.
    pub booted: bool,
    pub lambdas: BTreeMap<&'static str, Lambda>,
    pub executors: BTreeMap<ExecutorNo, Executor>,
    pub leases: BTreeMap<LeaseNo, Lease>,
    pub tasks: BTreeMap<TaskNo, Task>,
    /// Rows of each queue, oldest first; some may be of tasks that have left.
    pub queues: BTreeMap<(&'static str, &'static str), Vec<TaskNo>>,
    pub timers: Vec<(When, TaskNo)>,
    /// Requests to stop, and of which attempt.
    pub requests: BTreeMap<TaskNo, LeaseNo>,
    /// The next name to give.
    pub names: u32,
    /// The required answer of the last verb.
    pub said: Said,
}

impl State {
    /// Two lambdas, one of which is not direct; nothing else.
    pub fn new() -> Self {
        let work = Lambda {
            direct: true,
            max_attempts: 3,
            max_crashes: 3,
            retry_base: 2_000,
            retry_cap: 60_000,
            attempt_timeout: 300_000,
        };
        let mail = Lambda { direct: false, max_attempts: 2, max_crashes: 2, ..work.clone() };
        Self {
            now: 0,
            booted: true,
            lambdas: BTreeMap::from([("work", work), ("mail", mail)]),
            executors: BTreeMap::new(),
            leases: BTreeMap::new(),
            tasks: BTreeMap::new(),
            queues: BTreeMap::new(),
            timers: Vec::new(),
            requests: BTreeMap::new(),
            names: 1,
            said: Said::Nothing,
        }
    }

    /// Takes one step and notes what its answer must be.
    pub fn take(&mut self, step: &Step) {
        self.names = self.names.max(step.last_name() + 1);
        self.said = match step {
            Step::Define => self.define(),
            Step::Alter { lambda, change } => self.alter(lambda, *change),
            Step::Schedule { order, .. } => self.schedule(std::slice::from_ref(order)),
            Step::ScheduleMany { orders, .. } => self.schedule(orders),
            Step::Insert { orders, .. } => self.insert(orders),
            Step::Mistake { code, .. } => Said::Refused(code),
            Step::Register { executor, slot, lease } => self.register(*executor, *slot, *lease),
            Step::Heartbeat { executor, .. } => self.heartbeat(*executor),
            Step::EndExecutor { executor } => self.end_executor(*executor),
            Step::Claim { executor, lease, budget } => self.claim(*executor, *lease, *budget),
            Step::Exchange { executor, reports, done, lease, budget } => {
                self.exchange(*executor, reports, done, *lease, *budget)
            }
            Step::SetResults { executor, reports, done } => {
                self.set_results(*executor, reports, done)
            }
            Step::Start { executor, attempts } => self.start(*executor, attempts),
            Step::Release { executor, attempts, done } => self.release(*executor, attempts, done),
            Step::ReleaseLease { executor, lease } => self.release_lease(*executor, *lease),
            Step::EnqueueDue { limit, .. } => self.enqueue_due(*limit),
            Step::Rescue { limit, .. } => self.rescue(*limit),
            Step::FindStalled { .. } => self.find_stalled(),
            Step::Cancel { task, .. } => self.cancel(*task),
            Step::Advance { by } => self.advance(*by),
            Step::LoseQueues => self.lose_queues(),
            Step::Rebuild { .. } => self.rebuild(),
            Step::Mislay { task } => self.mislay(*task),
        };
    }

    /// Tasks that have not ended.
    pub fn open(&self) -> usize {
        self.tasks.values().filter(|task| !task.status.is_terminal()).count()
    }

    /// Ids of one range grow with the names; those of the later range are greater than all others.
    fn in_id_order(&self, tasks: impl IntoIterator<Item = TaskNo>) -> Vec<TaskNo> {
        let mut tasks: Vec<_> = tasks.into_iter().collect();
        tasks.sort_by_key(|task| (self.tasks[task].later, *task));
        tasks.dedup();
        tasks
    }

    fn task(&mut self, no: TaskNo) -> &mut Task {
        self.tasks.get_mut(&no).expect("a task of this case")
    }

    /// Whether an attempt is still the one that the task is held under.
    fn holds(&self, (task, fence): (TaskNo, LeaseNo)) -> bool {
        let task = &self.tasks[&task];
        task.status.is_held() && task.fence == Some(fence)
    }

    /// Moves the clock on, past every instant that may or may not have come.
    fn advance(&mut self, by: i64) -> Said {
        self.now += by;
        while let Some((due, _)) = self.timers.iter().find(|(due, _)| due.is_open_at(self.now)) {
            self.now = due.latest + 3;
        }
        Said::Nothing
    }
}
