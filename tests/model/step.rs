//! The steps of a sequence, in the words of the model, and the answers they get.

use std::collections::BTreeSet;

use crate::state::{ExecutorNo, LeaseNo, TaskNo};

/// Highest first, as queues are tried.
pub const PRIORITIES: [&str; 4] = ["critical", "high", "normal", "low"];

/// When a task shall be due, in milliseconds from now.
#[derive(Debug, Clone, Copy)]
pub enum Due {
    Now,
    /// An instant, which may have passed.
    At(i64),
    /// After a duration.
    In(i64),
}

/// A task to be scheduled.
#[derive(Debug, Clone)]
pub struct Order {
    pub task: TaskNo,
    pub lambda: &'static str,
    pub priority: &'static str,
    pub due: Due,
}

/// An executor's report on an attempt.
#[derive(Debug, Clone, Copy)]
pub enum Word {
    Success,
    SuccessWith(u8),
    /// With the delay it asks for, if it does.
    Retriable(Option<i64>),
    Fatal,
    Cancelled,
}

/// A result.
#[derive(Debug, Clone)]
pub struct Report {
    pub task: TaskNo,
    pub fence: LeaseNo,
    pub word: Word,
}

/// A change of a lambda's settings.
#[derive(Debug, Clone, Copy)]
pub enum Change {
    Direct(bool),
    Attempts(i16),
    Crashes(i16),
    Base(i64),
}

/// A step by one actor. `by` picks among the sessions of its kind.
#[derive(Debug, Clone)]
pub enum Step {
    Define,
    Alter {
        lambda: &'static str,
        change: Change,
    },
    Schedule {
        by: usize,
        order: Order,
    },
    ScheduleMany {
        by: usize,
        orders: Vec<Order>,
    },
    Insert {
        by: usize,
        orders: Vec<Order>,
    },
    Mistake {
        sql: &'static str,
        code: &'static str,
    },
    Register {
        executor: ExecutorNo,
        slot: usize,
        lease: i64,
    },
    Heartbeat {
        executor: ExecutorNo,
        draining: bool,
    },
    EndExecutor {
        executor: ExecutorNo,
    },
    Claim {
        executor: ExecutorNo,
        lease: LeaseNo,
        budget: i32,
    },
    Exchange {
        executor: ExecutorNo,
        reports: Vec<Report>,
        done: Vec<LeaseNo>,
        lease: LeaseNo,
        budget: i32,
    },
    SetResults {
        executor: ExecutorNo,
        reports: Vec<Report>,
        done: Vec<LeaseNo>,
    },
    Start {
        executor: ExecutorNo,
        attempts: Vec<(TaskNo, LeaseNo)>,
    },
    Release {
        executor: ExecutorNo,
        attempts: Vec<(TaskNo, LeaseNo)>,
        done: Vec<LeaseNo>,
    },
    ReleaseLease {
        executor: ExecutorNo,
        lease: LeaseNo,
    },
    EnqueueDue {
        by: usize,
        limit: usize,
    },
    Rescue {
        by: usize,
        limit: usize,
    },
    FindStalled {
        by: usize,
    },
    Rebuild {
        by: usize,
    },
    Cancel {
        by: usize,
        task: TaskNo,
    },
    Advance {
        by: i64,
    },
    /// A crash of the server, as far as the tables show it.
    LoseQueues,
    /// A fault deletes the queue row or the timer of a task.
    Mislay {
        task: TaskNo,
    },
}

impl Step {
    /// The verb under which the step is counted.
    pub fn verb(&self) -> &'static str {
        match self {
            Self::Define => "define_lambda",
            Self::Alter { .. } => "alter_lambda",
            Self::Schedule { .. } => "schedule",
            Self::ScheduleMany { .. } => "schedule_many",
            Self::Insert { .. } => "insert",
            Self::Mistake { .. } => "mistake",
            Self::Register { .. } => "register_executor",
            Self::Heartbeat { .. } => "heartbeat",
            Self::EndExecutor { .. } => "end_executor",
            Self::Claim { .. } => "claim",
            Self::Exchange { .. } => "exchange",
            Self::SetResults { .. } => "set_results",
            Self::Start { .. } => "start",
            Self::Release { .. } => "release",
            Self::ReleaseLease { .. } => "release_lease",
            Self::EnqueueDue { .. } => "enqueue_due",
            Self::Rescue { .. } => "rescue",
            Self::FindStalled { .. } => "find_stalled",
            Self::Rebuild { .. } => "rebuild_queues",
            Self::Cancel { .. } => "cancel",
            Self::Advance { .. } => "(time passes)",
            Self::LoseQueues => "(the server crashes)",
            Self::Mislay { .. } => "(a row is mislaid)",
        }
    }

    /// The tasks it names for the first time.
    pub fn orders(&self) -> &[Order] {
        match self {
            Self::Schedule { order, .. } => std::slice::from_ref(order),
            Self::ScheduleMany { orders, .. } | Self::Insert { orders, .. } => orders,
            _ => &[],
        }
    }

    /// The highest name it gives, so that no other step gives it again.
    pub fn last_name(&self) -> u32 {
        match self {
            Self::Register { executor, .. } => executor.0,
            Self::Claim { lease, .. } | Self::Exchange { lease, .. } => lease.0,
            _ => self.orders().last().map_or(0, |order| order.task.0),
        }
    }

    /// The attempts it speaks for.
    pub fn attempts(&self) -> Vec<(TaskNo, LeaseNo)> {
        match self {
            Self::SetResults { reports, .. } | Self::Exchange { reports, .. } => {
                reports.iter().map(|report| (report.task, report.fence)).collect()
            }
            Self::Start { attempts, .. } | Self::Release { attempts, .. } => attempts.clone(),
            _ => Vec::new(),
        }
    }
}

/// The answer of a claim.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Taken {
    pub alive: bool,
    /// Rows popped from each queue; none: the queue's budget was used up.
    pub popped: Vec<Option<i32>>,
    pub has_fence: bool,
    /// Task, attempt and crashes, in id order.
    pub tasks: Vec<(TaskNo, i16, i16)>,
}

/// The answer of a verb.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    Nothing,
    /// A mistake of the caller's, by its code.
    Refused(&'static str),
    Defined(bool),
    /// So many tasks.
    Accepted(usize),
    Dead,
    Alive {
        leases: Vec<LeaseNo>,
        stop: BTreeSet<(TaskNo, LeaseNo)>,
    },
    Claimed(Taken),
    Refusals(BTreeSet<TaskNo>),
    Exchanged(BTreeSet<TaskNo>, Taken),
    Moved(BTreeSet<TaskNo>),
    Enqueued(i32),
    Rescued {
        leases: i32,
        rescued: i32,
        buried: i32,
    },
    Cancel(&'static str),
    /// With how many tasks; none: there was nothing to rebuild.
    Rebuilt(Option<i64>),
    /// Untimed, unqueued, unleased.
    Stalled([i32; 3]),
}
