//! Sends the spans of the process to a collector: OTLP over HTTP, as protobuf.
//!
//! Promises: a collector that is slow or cannot be reached delays no body. An ended span waits in a
//! bounded queue, and a separate thread sends it. If the queue is full, the span is dropped and
//! counted.
//! Must never: have a setting of our own where the specification of OpenTelemetry names one.

mod delivery;
mod http;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::{SpanExporter, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{BatchSpanProcessor, SdkTracerProvider};
use tracing::Subscriber;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::registry::LookupSpan;

use crate::error::{Error, ErrorKind};
use crate::otlp::delivery::Counts;

/// Sends the spans of the process to a collector, by OTLP over HTTP.
///
/// Settings come from the variables that the specification of OpenTelemetry names:
/// `OTEL_EXPORTER_OTLP_ENDPOINT` (`http://localhost:4318` by default), `OTEL_EXPORTER_OTLP_HEADERS`,
/// `OTEL_EXPORTER_OTLP_TIMEOUT` in ms, each of them with `TRACES_` behind `OTLP_` as well;
/// `OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES`, `OTEL_TRACES_SAMPLER`, `OTEL_BSP_*`, `OTEL_SPAN_*_LIMIT`
/// and `OTEL_SDK_DISABLED`. An endpoint of `https` needs the feature `tls`.
///
/// A collector that is away delays no task: spans that it does not take are dropped. A warning in the log says
/// so once, until the collector takes spans again.
///
/// When `Otlp` is dropped, it sends the remaining spans. Keep it until the worker has ended.
///
/// # Example
/// ```no_run
/// use tuskline_sdk::tracing_subscriber::prelude::*;
/// use tuskline_sdk::{Lambda, Otlp, TraceLayer, Worker, tracing_subscriber};
///
/// # #[tokio::main]
/// # async fn main() -> Result<(), tuskline_sdk::Error> {
/// # let lambda = Lambda::named("work", async |_: serde_json::Value| ());
/// let otlp = Otlp::from_env("billing")?;
/// tracing_subscriber::registry().with(otlp.layer()).init();
/// Worker::builder("postgresql://localhost/app").layer(TraceLayer).serve(lambda).run().await?;
/// otlp.shutdown();
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "a dropped `Otlp` sends no span any more"]
pub struct Otlp {
    /// None: `OTEL_SDK_DISABLED`.
    provider: Option<SdkTracerProvider>,
    counts: Arc<Counts>,
}

impl Otlp {
    /// Starts the thread that sends. `service` is the `service.name` of the process, unless the environment
    /// names one. Nothing is sent yet, and a collector that is away is no error.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`]: the endpoint is no URL.
    pub fn from_env(service: &str) -> Result<Self, Error> {
        if std::env::var("OTEL_SDK_DISABLED").is_ok_and(|value| value.eq_ignore_ascii_case("true"))
        {
            return Ok(Self { provider: None, counts: Arc::default() });
        }
        let http = SpanExporter::builder().with_http().with_http_client(http::Client::from_env());
        let exporter = http.build().map_err(|error| {
            Error::new(ErrorKind::Invalid, "the settings of OTLP are wrong").because(error)
        })?;
        Ok(Self::start(exporter, service))
    }

    fn start(exporter: SpanExporter, service: &str) -> Self {
        let counts = Arc::new(Counts::default());
        let exporter = delivery::Exporter::new(exporter, Arc::clone(&counts));
        let queue = BatchSpanProcessor::builder(exporter).build();
        let provider = SdkTracerProvider::builder()
            .with_resource(resource(service))
            .with_span_processor(delivery::Processor::new(queue, Arc::clone(&counts)))
            .build();
        Self { provider: Some(provider), counts }
    }

    /// The layer that turns the process's `tracing` spans of level `INFO` and above into spans of a
    /// trace, and the events within them into events of these spans. Add a filter to it to send
    /// fewer.
    pub fn layer<S>(&self) -> impl Layer<S> + Send + Sync + use<S>
    where
        S: Subscriber + for<'a> LookupSpan<'a> + Send + Sync,
    {
        self.provider.as_ref().map(|provider| {
            let tracer = provider.tracer("tuskline-sdk");
            tracing_opentelemetry::layer().with_tracer(tracer).with_filter(LevelFilter::INFO)
        })
    }

    /// Sends the remaining spans, and blocks the thread for at most 5 s meanwhile. Make it the last
    /// call of `main`, after the worker has ended. Returns the number of spans that were sampled
    /// and did not reach the collector since the start; a warning in the log names it, too.
    pub fn shutdown(mut self) -> u64 {
        self.finish()
    }

    fn finish(&mut self) -> u64 {
        let Some(provider) = self.provider.take() else { return 0 };
        // Its failures have been logged, and the spans are counted.
        let _ = provider.shutdown();
        let lost = self.counts.lost();
        if lost > 0 {
            tracing::warn!(lost, "spans did not reach the collector");
        }
        lost
    }
}

impl Drop for Otlp {
    fn drop(&mut self) {
        self.finish();
    }
}

/// The attributes of the process.
fn resource(service: &str) -> Resource {
    let builder = Resource::builder();
    let given = ["OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES"]
        .map(|name| std::env::var(name).unwrap_or_default());
    let [name, attributes] = &given;
    let mut keys = attributes.split(',').filter_map(|pair| pair.split('=').next());
    if !name.is_empty() || keys.any(|key| key.trim() == "service.name") {
        return builder.build();
    }
    builder.with_service_name(service.to_owned()).build()
}
