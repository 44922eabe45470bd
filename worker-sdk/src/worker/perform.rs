//! A body by itself: decoded, executed and its output checked as by a worker, but of no task. For tests of
//! lambdas that need no queue (`tuskline-testing`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::client::Client;
use crate::client::new_task::NewTask;
use crate::error::Error;
use crate::worker::bodies::BodyGuard;
use crate::worker::body::context_of;
use crate::worker::context::Context;
use crate::worker::data::DataMap;
use crate::worker::lambda::Lambda;
use crate::worker::layer::Attempt;
use crate::worker::outcome::Outcome;
use crate::worker::work::{Work, checked_output};

/// The value of [`Context::deadline`]: the default `attempt_timeout` from now. Nothing ends the body then.
const DEADLINE: Duration = Duration::from_secs(300);

impl Lambda {
    /// Executes the body once, in the caller's own runtime, and answers with what it said. Its context is
    /// of task 0 under fence 0. There is no such attempt, so a call that asks for it gets
    /// [`Fenced`](crate::ErrorKind::Fenced). A panic of the body is the caller's.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid): a payload or a name that could not be scheduled.
    #[doc(hidden)]
    pub async fn perform(
        &self,
        payload: &impl Serialize,
        attempt: i16,
        client: &Client,
        data: &DataMap,
    ) -> Result<Outcome, Error> {
        let task = NewTask::new(&*self.name, payload);
        let payload = task.checked()?.to_owned();
        (self.check)(data)?;
        let mut work = Work {
            task: 0,
            fence: 0,
            attempt,
            crashes: 0,
            counts: 0,
            first_start: true,
            waited: Duration::ZERO,
            claimed_at: Instant::now(),
            collection: None,
            traceparent: task.traceparent.clone(),
            payload: String::new(),
            stop: Arc::default(),
            crash: None,
        };
        let (data, alone) = (Arc::new(data.clone()), BodyGuard::alone());
        let inner = context_of(self, &mut work, DEADLINE, client, &data, alone);
        let context = Context { inner: Arc::new(inner) };
        Ok(match self.body.run(Attempt { payload, context }).await {
            Outcome::Success(Some(output)) => match checked_output(output) {
                Ok(output) => Outcome::Success(Some(output)),
                Err(reason) => Outcome::fatal(reason),
            },
            other => other,
        })
    }
}
