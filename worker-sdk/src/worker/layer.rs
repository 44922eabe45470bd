//! Layers around an attempt: tracing, metrics, error reports.
//!
//! Promises: each tower layer fits whose error is an error. Must never: see a claim or a lease; a layer wraps
//! the body, and the worker keeps the rest.

use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as Poller, Poll};

use crate::worker::context::Context;
use crate::worker::outcome::{Failure, IntoOutcome, Outcome};

pub use tower_layer::Layer;
pub use tower_service::Service;

/// One attempt before its body runs, as a layer sees it.
#[derive(Debug)]
pub struct Attempt {
    pub(crate) payload: String,
    pub(crate) context: Context,
}

impl Attempt {
    /// Name of the lambda.
    pub fn lambda(&self) -> &str {
        self.context.lambda()
    }

    /// The JSON text of the payload.
    pub fn payload(&self) -> &str {
        &self.payload
    }

    /// The context that the lambda gets.
    pub fn context(&self) -> &Context {
        &self.context
    }
}

/// A body that runs.
pub(crate) type Running = Pin<Box<dyn Future<Output = Outcome> + Send>>;

/// The innermost service: decodes the payload and runs the lambda. Cheap to clone.
#[derive(Clone)]
pub struct Body(Arc<dyn Fn(Attempt) -> Running + Send + Sync>);

impl Body {
    pub(crate) fn new<F, Fut>(run: F) -> Self
    where
        F: Fn(Attempt) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Outcome> + Send + 'static,
    {
        Self(Arc::new(move |attempt| Box::pin(run(attempt))))
    }

    /// An error of the layered service ends the attempt as the same error in the lambda would.
    pub(crate) fn layered<S>(service: S) -> Self
    where
        S: Service<Attempt, Response = Outcome> + Clone + Send + Sync + 'static,
        S::Future: Send,
        S::Error: Into<Failure>,
    {
        Self::new(move |attempt| {
            let mut service = service.clone();
            async move {
                if let Err(error) = std::future::poll_fn(|cx| service.poll_ready(cx)).await {
                    return error.into().into_outcome();
                }
                let called = service.call(attempt).await;
                called.unwrap_or_else(|error| error.into().into_outcome())
            }
        })
    }

    pub(crate) fn run(&self, attempt: Attempt) -> Running {
        (self.0)(attempt)
    }
}

impl Service<Attempt> for Body {
    type Response = Outcome;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Outcome, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Poller<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, attempt: Attempt) -> Self::Future {
        let run = self.run(attempt);
        Box::pin(async move { Ok(run.await) })
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Body")
    }
}
