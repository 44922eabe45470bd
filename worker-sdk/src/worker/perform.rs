//! A body by itself: decoded, executed and its output checked as by a worker, but of no task. For tests of
//! lambdas that need no queue (`tuskline-testing`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;
use tokio_util::sync::CancellationToken;

use crate::client::Client;
use crate::client::new_task::NewTask;
use crate::error::Error;
use crate::task::{Fence, TaskId};
use crate::worker::bodies::BodyGuard;
use crate::worker::context::Context;
use crate::worker::context::Inner;
use crate::worker::lambda::Lambda;
use crate::worker::outcome::Outcome;
use crate::worker::work::checked_output;

/// The value of [`Context::deadline`]: the default `attempt_timeout` from now. Nothing ends the body then.
const DEADLINE: Duration = Duration::from_secs(300);

impl Lambda {
    /// Executes the body once, in the caller's own runtime, and answers with what it said. Its context is
    /// of task 0 under fence 0, which there is not: what asks for the attempt gets [`Error::Fenced`]. A
    /// panic of the body is the caller's.
    ///
    /// # Errors
    /// [`Error::Invalid`]: a payload or a name that could not be scheduled.
    #[doc(hidden)]
    pub async fn perform(
        &self,
        payload: &impl Serialize,
        attempt: i16,
        client: &Client,
    ) -> Result<Outcome, Error> {
        let task = NewTask::new(&self.name, payload)?;
        let inner = Inner {
            task: TaskId(0),
            fence: Fence(0),
            attempt,
            collection: None,
            waited: Duration::ZERO,
            deadline: Instant::now() + DEADLINE,
            cancelled: CancellationToken::new(),
            client: client.clone(),
            running: BodyGuard::alone(),
        };
        let said = match (self.start)(&task.payload, Context { inner: Arc::new(inner) }) {
            Ok(body) => body.await,
            Err(reason) => Outcome::fatal(format!("payload does not decode: {reason}")),
        };
        Ok(match said {
            Outcome::Success(Some(output)) => match checked_output(output) {
                Ok(output) => Outcome::Success(Some(output)),
                Err(reason) => Outcome::fatal(reason),
            },
            other => other,
        })
    }
}
