//! Inline: a worker at work beside the test.

use std::time::{Duration, Instant};

use tokio::time::sleep;
use tuskline_sdk::{Client, NewTask, Status, TaskId, WorkerBuilder};

use super::drain::{self, Mark, not_drained};
use super::left::LeftQuery;
use super::workers::Workers;
use super::{Database, Drained, Error, Limit, Task};

/// Longest that [`Inline::run`] waits for the end of an attempt.
const RUN_LIMIT: Duration = Duration::from_secs(60);
/// Time between two looks at its task.
const RUN_REST: Duration = Duration::from_millis(2);

/// A worker and a store consumer that are at work on a test's database, see [`Database::inline`]. Dropped, they
/// are gone at once, whatever they were at; [`Inline::stop`] lets them finish.
#[derive(Debug)]
pub struct Inline<'d> {
    db: &'d Database,
    workers: Workers,
    mark: Mark,
}

impl<'d> Inline<'d> {
    pub(super) async fn start(db: &'d Database, worker: WorkerBuilder) -> Result<Self, Error> {
        let mark = Mark::here(db).await?;
        Ok(Self { db, workers: Workers::start(db, worker).await?, mark })
    }

    /// Schedules a task, waits for the end of its attempt, and answers with the task: with its output, if it has
    /// one. One that snoozed is no error; its status is [`Status::New`]. Retries are not waited for:
    /// [`Database::advance`] and [`Inline::drain`].
    ///
    /// # Errors
    /// [`Error::Failed`]: the attempt failed, or the task ended otherwise than by success.
    /// [`Error::Waits`]: it is not executed now, being due later or held by a gate, say, or of a lambda that
    /// the worker does not serve; with the reasons. [`Error::NotDrained`]: its attempt takes longer than 60 s.
    /// [`Error::Sdk`]: what [`Client::schedule`] refuses. [`Error::Worker`], [`Error::Database`].
    pub async fn run(&mut self, task: &NewTask) -> Result<Task, Error> {
        let id = self.db.client().schedule(task).await?;
        let query = LeftQuery::of(self.db, self.workers.executor).await?;
        let began = Instant::now();
        while !has_ended(self.db, id).await? {
            self.workers.check().await?;
            let left = query.left().await?;
            // In this order: it may have ended between the two looks.
            if left.is_empty() && !has_ended(self.db, id).await? {
                return Err(Error::Waits(reasons(self.db.client(), id).await?));
            }
            if began.elapsed() > RUN_LIMIT {
                let why = format!("task {id} has not ended within {RUN_LIMIT:?}");
                return Err(not_drained(&why, &left, ""));
            }
            sleep(RUN_REST).await;
        }
        let task = self.db.task(id).await?;
        match task.status {
            Status::Success | Status::New => Ok(task),
            _ => Err(Error::Failed(Box::new(task))),
        }
    }

    /// Waits until nothing is due any more and nothing runs, and says what became of all that was executed since
    /// the last call, or since the start.
    ///
    /// # Errors
    /// As [`Database::drain`].
    pub async fn drain(&mut self) -> Result<Drained, Error> {
        self.drain_within(Limit::default()).await
    }

    /// The same within bounds of your own.
    ///
    /// # Errors
    /// As [`Database::drain`].
    pub async fn drain_within(&mut self, limit: Limit) -> Result<Drained, Error> {
        let drained = drain::drain(self.db, &mut self.workers, &self.mark, limit).await?;
        self.mark = Mark::here(self.db).await?;
        Ok(drained)
    }

    /// Ends the worker in order: bodies that run may finish, within its `drain_grace`; what has not begun is
    /// given back.
    ///
    /// # Errors
    /// [`Error::Worker`], [`Error::Sdk`].
    pub async fn stop(self) -> Result<(), Error> {
        self.workers.stop().await
    }
}

/// Its attempt, if not the task.
async fn has_ended(db: &Database, id: TaskId) -> Result<bool, Error> {
    let sql =
        "select finished_at is not null or fence > 0 and status in ('new', 'retriable_failure')
                 from tuskline.tasks where id = $1";
    Ok(db.own().query_opt(sql, &[&id.0]).await?.is_none_or(|row| row.get(0)))
}

async fn reasons(client: &Client, id: TaskId) -> Result<String, Error> {
    let mut text = format!("task {id} is not executed now");
    for reason in client.explain(id).await? {
        text += &format!("\n    {}: {}", reason.reason, reason.detail);
    }
    Ok(text)
}
