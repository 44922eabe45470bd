//! Lambdas: the callbacks a worker executes, typed by serde, known by name.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use serde::de::DeserializeOwned;

use crate::task::Priority;
use crate::worker::context::Context;
use crate::worker::outcome::{IntoOutcome, Outcome};

pub(crate) type Body = Pin<Box<dyn Future<Output = Outcome> + Send>>;

/// Turns a payload and a context into the body to run; `Err`: the payload does not decode.
pub(crate) type Start = Arc<dyn Fn(&str, Context) -> Result<Body, String> + Send + Sync>;

/// A lambda of this worker: its name, its body and how many may run at once.
#[derive(Clone)]
pub struct Lambda {
    pub(crate) name: String,
    pub(crate) start: Start,
    pub(crate) slots: Option<usize>,
    /// Bounds within these, for some priorities.
    pub(crate) bounds: Vec<(Priority, usize)>,
    pub(crate) blocking: bool,
}

impl Lambda {
    /// An async lambda. While it blocks its thread, other tasks of the same lambda may have to wait for one.
    pub fn new<P, F, R>(name: &str, body: impl Fn(P, Context) -> F + Send + Sync + 'static) -> Self
    where
        P: DeserializeOwned + Send + 'static,
        F: Future<Output = R> + Send + 'static,
        R: IntoOutcome,
    {
        let start: Start = Arc::new(move |payload, context| {
            let future = body(decode(payload)?, context);
            Ok(Box::pin(async move { future.await.into_outcome() }))
        });
        Self { name: name.into(), start, slots: None, bounds: Vec::new(), blocking: false }
    }

    /// A lambda that blocks its thread: each execution gets one of the runtime's blocking threads.
    /// It cannot be stopped from outside: if it ignores [`Context::cancelled`] past its deadline and
    /// grace, the process is ended.
    pub fn blocking<P, R>(
        name: &str,
        body: impl Fn(P, Context) -> R + Send + Sync + 'static,
    ) -> Self
    where
        P: DeserializeOwned + Send + 'static,
        R: IntoOutcome,
    {
        let body = Arc::new(body);
        let start: Start = Arc::new(move |payload, context| {
            let (payload, body) = (decode(payload)?, Arc::clone(&body));
            // A blocking body goes on when its task is dropped, so the thread holds a guard of its own.
            let running = context.inner.running.clone();
            let run = move || {
                let outcome = body(payload, context).into_outcome();
                drop(running);
                outcome
            };
            Ok(Box::pin(async move {
                match tokio::task::spawn_blocking(run).await {
                    Ok(outcome) => outcome,
                    Err(error) => match error.try_into_panic() {
                        Ok(panic) => std::panic::resume_unwind(panic),
                        Err(error) => Outcome::retriable(error),
                    },
                }
            }))
        });
        Self { name: name.into(), start, slots: None, bounds: Vec::new(), blocking: true }
    }

    /// How many executions of it may run at once in this process; default
    /// [`WorkerConfig::slots`](crate::WorkerConfig).
    #[must_use]
    pub fn slots(mut self, slots: usize) -> Self {
        self.slots = Some(slots);
        self
    }

    /// How many of its slots tasks of one priority may hold at once; default all. Bounding `Low`
    /// keeps some slots free for urgent tasks, however long the tasks of low priority take.
    #[must_use]
    pub fn slots_for(mut self, priority: Priority, slots: usize) -> Self {
        self.bounds.retain(|(bounded, _)| *bounded != priority);
        self.bounds.push((priority, slots));
        self
    }

    pub(crate) fn bound(&self, priority: Priority) -> Option<usize> {
        self.bounds.iter().find_map(|(bounded, slots)| (*bounded == priority).then_some(*slots))
    }
}

impl std::fmt::Debug for Lambda {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lambda").field("name", &self.name).finish_non_exhaustive()
    }
}

fn decode<P: DeserializeOwned>(payload: &str) -> Result<P, String> {
    serde_json::from_str(payload).map_err(|error| error.to_string())
}
