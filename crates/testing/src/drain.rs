//! A drain: wait until nothing is due and nothing runs, then say what became of it.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use tokio::time::sleep;
use tuskline_sdk::{Status, TaskId};

use super::left::{Left, LeftQuery};
use super::workers::Workers;
use super::{Database, Error, Failure, Task, Tasks, report};

/// The rest between two looks: the first, doubled each time up to the last.
const RESTS: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(16));

/// Bounds of a drain, so that a body that schedules itself again and again ends in an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// Most claims, each of which takes as many tasks as the worker has slots for. Default 2,000: such a
    /// body needs one each time, and is found out within seconds.
    pub rounds: u32,
    /// Longest time. Default 60 s.
    pub time: Duration,
}

impl Default for Limit {
    fn default() -> Self {
        Self { rounds: 2_000, time: Duration::from_secs(60) }
    }
}

/// Result of a drain: every task that had an attempt, or ended without one, in the order of their ids.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Drained {
    /// Done.
    pub succeeded: Vec<TaskId>,
    /// Their body said that they can never succeed, or their payload did not decode (`fatal_failure`).
    pub failed: Vec<TaskId>,
    /// Their attempts are used up, or a gate or an order ended them (`dead`).
    pub dead: Vec<TaskId>,
    /// They failed and will be tried again, later than now.
    pub retriable: Vec<TaskId>,
    /// Their body put them off, to later than now.
    pub snoozed: Vec<TaskId>,
    /// Ended by request, or because a task they waited for did not succeed.
    pub cancelled: Vec<TaskId>,
    /// Ended by a gate.
    pub dropped: Vec<TaskId>,
    /// Due, and of lambdas that the worker does not serve.
    pub unserved: Vec<TaskId>,
    /// Every attempt that failed meanwhile, also of tasks that have succeeded since, in their order.
    pub failures: Vec<Failure>,
    tasks: Vec<Task>,
}

impl Drained {
    /// The tasks themselves, without the unserved.
    pub fn tasks(&self) -> &[Task] {
        &self.tasks
    }

    /// Something was executed, and all of it has succeeded; attempts that failed before do not count.
    ///
    /// # Panics
    /// Else, and shows what did not.
    #[track_caller]
    pub fn assert_all_succeeded(&self) -> &Self {
        let others: Vec<_> = self.tasks.iter().filter(|t| t.status != Status::Success).collect();
        if self.tasks.is_empty() || !others.is_empty() {
            panic!("{}", self.shortfall(&others));
        }
        self
    }

    fn shortfall(&self, others: &[&Task]) -> String {
        if self.tasks.is_empty() {
            let mut text = "expected tasks to succeed, but nothing was due".to_owned();
            if !self.unserved.is_empty() {
                let ids: Vec<_> = self.unserved.iter().map(ToString::to_string).collect();
                text += " that the worker serves";
                report::line(&mut text, 1, &format!("of other lambdas: {}", ids.join(", ")));
            }
            return text;
        }
        let (all, rest) = (self.tasks.len(), others.len());
        let mut text = format!("expected {all} to succeed, but {rest} did not:\n");
        report::stories(&mut text, others);
        text
    }

    /// Puts every task where it belongs.
    fn sorted(tasks: Tasks, mark: &Mark) -> Self {
        let mut drained = Self::default();
        for task in tasks.into_list() {
            if task.status == Status::Enqueued {
                drained.unserved.push(task.id);
            } else if mark.is_news(&task) {
                let failures = task.failures.iter().filter(|f| f.fence > mark.fence);
                drained.failures.extend(failures.cloned());
                if let Some(list) = drained.list_of(task.status) {
                    list.push(task.id);
                }
                drained.tasks.push(task);
            }
        }
        drained.failures.sort_by_key(|failure| (failure.failed_at, failure.fence, failure.task));
        drained
    }

    fn list_of(&mut self, status: Status) -> Option<&mut Vec<TaskId>> {
        Some(match status {
            Status::Success => &mut self.succeeded,
            Status::FatalFailure => &mut self.failed,
            Status::Dead => &mut self.dead,
            Status::RetriableFailure => &mut self.retriable,
            Status::New => &mut self.snoozed,
            Status::Cancelled => &mut self.cancelled,
            Status::Dropped => &mut self.dropped,
            // Enqueued, claimed or processing: a drain does not return before it is not.
            _ => return None,
        })
    }
}

/// Where a drain began: what was done before is none of its own.
#[derive(Debug)]
pub(super) struct Mark {
    fence: i64,
    ended: HashSet<i64>,
}

impl Mark {
    pub async fn here(db: &Database) -> Result<Self, Error> {
        let fence = last_fence(db).await?;
        let sql = "select id from tuskline.tasks where finished_at is not null";
        let ended = db.own().query(sql, &[]).await?.iter().map(|row| row.get(0)).collect();
        Ok(Self { fence, ended })
    }

    /// It was claimed since, or has ended without that.
    fn is_news(&self, task: &Task) -> bool {
        task.fence > self.fence || task.status.is_terminal() && !self.ended.contains(&task.id.0)
    }
}

/// Waits until nothing is left.
pub(super) async fn drain(
    db: &Database,
    workers: &mut Workers,
    mark: &Mark,
    limit: Limit,
) -> Result<Drained, Error> {
    let query = LeftQuery::of(db, workers.executor).await?;
    let began = Instant::now();
    let mut rest = RESTS.0;
    loop {
        workers.check().await?;
        let left = query.left().await?;
        if left.is_empty() {
            return Ok(Drained::sorted(db.tasks().await?, mark));
        }
        let rounds = last_fence(db).await? - mark.fence;
        if rounds > i64::from(limit.rounds) {
            let why = format!("after {rounds} claims there is still more");
            return Err(not_drained(
                &why,
                &left,
                "\nDoes a body schedule itself again and again? If not, raise Limit::rounds.",
            ));
        }
        if began.elapsed() > limit.time {
            let why = format!("within {:?} not all was done", limit.time);
            return Err(not_drained(&why, &left, ""));
        }
        sleep(rest).await;
        rest = (rest * 2).min(RESTS.1);
    }
}

/// The error of those who have waited for long enough.
pub(super) fn not_drained(why: &str, left: &[Left], advice: &str) -> Error {
    let mut text = format!("not drained: {why}");
    for one in left {
        let _ = write!(text, "\n    {one}");
    }
    Error::NotDrained(text + advice)
}

/// Number of the last claim.
async fn last_fence(db: &Database) -> Result<i64, Error> {
    let sql = "select case when is_called then last_value else 0 end from tuskline.fence_seq";
    Ok(db.own().query_one(sql, &[]).await?.get(0))
}
