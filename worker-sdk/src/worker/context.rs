//! The attempt as its lambda sees it.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::Value;
use tokio_postgres::types::Type;

use crate::client::Client;
use crate::client::chain::ParentTask;
use crate::client::payload::IntoTask;
use crate::client::session::Transaction;
use crate::db::Parameters;
use crate::db::json::JsonText;
use crate::error::{Code, Error};
use crate::task::{Fence, TaskId};
use crate::worker::bodies::BodyGuard;
use crate::worker::data::DataMap;
use crate::worker::outcome::Outcome;
use crate::worker::work::{Stop, StopReason, checked_output};

/// The attempt at hand. Cheap to clone. The attempt counts as running for as long as a clone is kept: when
/// the worker has lost the database for `self_termination`, that ends the process.
#[derive(Debug, Clone)]
pub struct Context {
    pub(crate) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub lambda: Arc<str>,
    pub task: TaskId,
    pub fence: Fence,
    pub attempt: i16,
    pub collection: Option<String>,
    pub traceparent: Option<String>,
    pub waited: Duration,
    pub crashes: i16,
    pub deadline: Instant,
    pub stop: Arc<Stop>,
    /// This attempt or an earlier one may have kept a checkpoint.
    pub may_have_checkpoint: AtomicBool,
    /// A host controller runs this process.
    #[cfg(feature = "executor")]
    pub process: Option<Arc<super::process::Handed>>,
    pub client: Client,
    pub data: Arc<DataMap>,
    /// Code that keeps the context counts as a part of the body.
    pub _running: BodyGuard,
}

impl Context {
    /// Name of the lambda.
    pub fn lambda(&self) -> &str {
        &self.inner.lambda
    }

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

    /// The trace context that the task was scheduled with, as W3C Trace Context writes it. None: it had none.
    /// [`TraceLayer`](crate::TraceLayer) links each attempt to it.
    pub fn traceparent(&self) -> Option<&str> {
        self.inner.traceparent.as_deref()
    }

    /// How long the task had been due when it was claimed, on the database's clock. If it was claimed before
    /// (a retry, a snooze, a restart): how long it has been in its queue again.
    pub fn waited(&self) -> Duration {
        self.inner.waited
    }

    /// When this attempt will be told to stop (the lambda's `attempt_timeout` after it began).
    pub fn deadline(&self) -> Instant {
        self.inner.deadline
    }

    /// Completes when the attempt shall stop: deadline, cancel, shutdown past its grace, lost lease.
    pub async fn cancelled(&self) {
        self.inner.stop.token.cancelled().await;
    }

    /// True when the attempt shall stop; for blocking lambdas to ask now and then.
    pub fn is_cancelled(&self) -> bool {
        self.inner.stop.token.is_cancelled()
    }

    /// Why the attempt shall stop. None: it may go on.
    pub fn stop_reason(&self) -> Option<StopReason> {
        self.inner.stop.reason()
    }

    /// The attempt runs in this process, which a host controller has started.
    #[doc(hidden)]
    pub fn runs_in(&self, process: u32) {
        self.inner.stop.runs_in(i32::try_from(process).unwrap_or(0));
    }

    /// How often the task's worker, or the process that ran it, has died with it since an attempt ended last.
    /// At the lambda's `max_crashes` the task is dead.
    pub fn crashes(&self) -> i16 {
        self.inner.crashes
    }

    /// Schedules a follow-up task at once. It stays scheduled if this attempt fails.
    ///
    /// # Errors
    /// As [`Client::schedule`].
    pub async fn schedule(&self, task: impl IntoTask) -> Result<TaskId, Error> {
        self.inner.client.schedule(task).await
    }

    /// The tasks that this task waited for, and their results: the tasks before it in its chain. To
    /// extend the chain, let tasks wait for [`Context::task`] and schedule them through
    /// [`Context::client`].
    ///
    /// # Errors
    /// As [`Client::parents`].
    pub async fn parents(&self) -> Result<Vec<ParentTask>, Error> {
        self.inner.client.parents(self.inner.task).await
    }

    /// Goes on only while this attempt holds the task. Until `transaction` ends the task can not go to
    /// another attempt, so only the attempt that counts writes in it, even if this process was frozen
    /// for an hour. Call it in every transaction with writes of your own.
    ///
    /// # Errors
    /// [`Fenced`](crate::ErrorKind::Fenced): the attempt is over, and the transaction cannot commit any more.
    /// Return the error; what this attempt says is refused. Else as [`Client::schedule`].
    ///
    /// # Example
    /// ```no_run
    /// # use tuskline_sdk::{Context, Failure, Outcome};
    /// async fn book(order: i64, context: Context) -> Result<Outcome, Failure> {
    ///     let mut connection = context.client().connection().await?;
    ///     let mut transaction = connection.transaction().await?;
    ///     context.assert_current(&mut transaction).await?; // or another attempt may be at work
    ///     transaction.execute("insert into booking values ($1)", &[&order]).await?;
    ///     let done = context.complete_in(&mut transaction, &()).await?;
    ///     transaction.commit().await?; // the booking and the task's success, or neither
    ///     Ok(done)
    /// }
    /// ```
    pub async fn assert_current(&self, transaction: &mut impl Transaction) -> Result<(), Error> {
        let Inner { task, fence, .. } = *self.inner;
        let parameters: &Parameters<'_> = &[(&task.0, Type::INT8), (&fence.0, Type::INT8)];
        let within = Client::within(transaction);
        within.one("select tuskline.assert_current($1, $2)", parameters).await.map(drop)
    }

    /// Records the success of this attempt in `transaction`, with an output or with `&()`: it commits with your
    /// writes or not at all. Includes [`Context::assert_current`]. Commit, then return the outcome it answers
    /// with, which says the same once more. When the transaction did not commit, or you do not know, return
    /// the error: the attempt counts as failed, unless its success is recorded.
    ///
    /// # Errors
    /// As [`Context::assert_current`]. Above `READ COMMITTED` also SQLSTATE 40001, if the task was asked
    /// to stop, or counted as processing, after the transaction took its snapshot.
    /// [`Invalid`](crate::ErrorKind::Invalid): the output has no JSON form, is larger than 1 MiB or nests
    /// deeper than 64.
    pub async fn complete_in(
        &self,
        transaction: &mut impl Transaction,
        output: &impl Serialize,
    ) -> Result<Outcome, Error> {
        let output = serde_json::to_value(output)
            .map_err(|error| error.to_string())
            .and_then(checked_output)
            .map_err(|reason| Error::refused(Code::InvalidResult, reason))?;
        let output = Some(output).filter(|output| !output.is_null());
        let text = output.as_ref().map(Value::to_string);
        let json = text.as_deref().map(JsonText);
        let Inner { task, fence, .. } = *self.inner;
        let parameters: &Parameters<'_> =
            &[(&task.0, Type::INT8), (&fence.0, Type::INT8), (&json, Type::JSON)];
        let within = Client::within(transaction);
        within.one("select tuskline.complete($1, $2, $3)", parameters).await?;
        Ok(Outcome::Success(output))
    }

    /// The worker's client, for anything else.
    pub fn client(&self) -> &Client {
        &self.inner.client
    }
}
