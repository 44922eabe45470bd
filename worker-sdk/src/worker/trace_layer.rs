//! The layer that makes a span for each attempt.
//!
//! Promises: the span has the names of OpenTelemetry's messaging conventions, and holds no payload.

use std::pin::Pin;
use std::task::{Context as Poller, Poll};

use tracing::Instrument as _;
use tracing::field::Empty;

use crate::trace;
use crate::worker::layer::{Attempt, Layer, Service};
use crate::worker::outcome::Outcome;

/// Runs each attempt in a span of its own, named `attempt`. With the feature `opentelemetry` the span is linked
/// to the span that scheduled the task; without it the span has the field `traceparent`.
///
/// # Example
/// ```
/// # use tuskline_sdk::{Lambda, TraceLayer, Worker};
/// # let lambda = Lambda::named("work", async |_: serde_json::Value| ());
/// let worker = Worker::builder("postgresql://localhost/app").layer(TraceLayer).serve(lambda);
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct TraceLayer;

impl<S> Layer<S> for TraceLayer {
    type Service = Traced<S>;

    fn layer(&self, inner: S) -> Traced<S> {
        Traced { inner }
    }
}

/// The service that [`TraceLayer`] makes.
#[derive(Debug, Clone)]
pub struct Traced<S> {
    inner: S,
}

impl<S> Service<Attempt> for Traced<S>
where
    S: Service<Attempt, Response = Outcome>,
    S::Future: Send + 'static,
{
    type Response = Outcome;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Outcome, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Poller<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, attempt: Attempt) -> Self::Future {
        let span = span_of(&attempt);
        let running = span.in_scope(|| self.inner.call(attempt));
        let within = span.clone();
        Box::pin(
            async move {
                let ended = running.await;
                match &ended {
                    Ok(outcome) => record(&span, outcome),
                    Err(_) => drop(span.record("otel.status_code", "ERROR")),
                }
                ended
            }
            .instrument(within),
        )
    }
}

fn span_of(attempt: &Attempt) -> tracing::Span {
    let context = &attempt.context.inner;
    let span = tracing::info_span!(
        "attempt",
        "otel.name" = %context.lambda,
        "otel.kind" = "consumer",
        "otel.status_code" = Empty,
        "messaging.system" = "tuskline",
        "messaging.operation.name" = "process",
        "messaging.operation.type" = "process",
        "messaging.destination.name" = %context.lambda,
        "messaging.message.id" = %context.task.0,
        "error.type" = Empty,
        attempt = context.attempt,
        traceparent = Empty,
        outcome = Empty,
    );
    if let Some(traceparent) = &context.traceparent {
        trace::link(&span, traceparent);
    }
    span
}

/// Only a failure is an error of the span: a snooze is not.
fn record(span: &tracing::Span, outcome: &Outcome) {
    let (name, failed) = match outcome {
        Outcome::Success(_) | Outcome::SuccessJson(_) => ("success", false),
        Outcome::Snooze(_) => ("snoozed", false),
        Outcome::Returned => ("returned", false),
        Outcome::Crashed { .. } => ("crashed", true),
        Outcome::Retriable { .. } => ("retriable_failure", true),
        Outcome::Fatal { .. } | Outcome::Undecodable { .. } => ("fatal_failure", true),
    };
    span.record("outcome", name);
    if failed {
        span.record("error.type", name);
        span.record("otel.status_code", "ERROR");
    }
}
