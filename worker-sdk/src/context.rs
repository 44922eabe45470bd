//! What a lambda knows of the attempt it is.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use crate::{Client, Error, Fence, NewTask, TaskId};

/// The attempt at hand. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Context {
    pub(crate) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub task: TaskId,
    pub fence: Fence,
    pub attempt: i16,
    pub collection: Option<String>,
    pub waited: Duration,
    pub deadline: Instant,
    pub cancelled: CancellationToken,
    pub client: Client,
}

impl Context {
    /// The task.
    pub fn task(&self) -> TaskId {
        self.inner.task
    }

    /// Number of this attempt, from 1. An attempt cut short by the death of its worker is repeated
    /// under the same number.
    pub fn attempt(&self) -> i16 {
        self.inner.attempt
    }

    /// Fence of this attempt: differs between any two executions of the task, and only grows.
    pub fn fence(&self) -> Fence {
        self.inner.fence
    }

    /// Collection of the task.
    pub fn collection(&self) -> Option<&str> {
        self.inner.collection.as_deref()
    }

    /// How long the task had been due when it was claimed, on the database's clock.
    pub fn waited(&self) -> Duration {
        self.inner.waited
    }

    /// When this attempt will be told to stop (the lambda's `attempt_timeout` after it began).
    pub fn deadline(&self) -> Instant {
        self.inner.deadline
    }

    /// Completes when the attempt shall stop: deadline, cancel, shutdown past its grace, lost lease.
    pub async fn cancelled(&self) {
        self.inner.cancelled.cancelled().await;
    }

    /// True when the attempt shall stop; for blocking lambdas to ask now and then.
    pub fn is_cancelled(&self) -> bool {
        self.inner.cancelled.is_cancelled()
    }

    /// Schedules a follow-up task at once, whatever becomes of this attempt.
    ///
    /// # Errors
    /// As [`Client::schedule`].
    pub async fn schedule(&self, task: &NewTask) -> Result<TaskId, Error> {
        self.inner.client.schedule(task).await
    }

    /// The worker's client, for anything else.
    pub fn client(&self) -> &Client {
        &self.inner.client
    }
}
