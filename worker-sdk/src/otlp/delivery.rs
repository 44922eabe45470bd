//! Counts the spans that end, and the spans that arrive. The difference is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use opentelemetry::Context;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{BatchSpanProcessor, Span, SpanData, SpanExporter, SpanProcessor};

/// Numbers of spans.
#[derive(Debug, Default)]
pub(super) struct Counts {
    ended: AtomicU64,
    arrived: AtomicU64,
}

impl Counts {
    /// Spans that ended and did not arrive. At the end of the process none is on its way.
    pub fn lost(&self) -> u64 {
        let arrived = self.arrived.load(Ordering::Relaxed);
        self.ended.load(Ordering::Relaxed).saturating_sub(arrived)
    }
}

/// Counts the spans before the queue.
#[derive(Debug)]
pub(super) struct Processor {
    queue: BatchSpanProcessor,
    counts: Arc<Counts>,
}

impl Processor {
    pub fn new(queue: BatchSpanProcessor, counts: Arc<Counts>) -> Self {
        Self { queue, counts }
    }
}

impl SpanProcessor for Processor {
    fn on_start(&self, span: &mut Span, context: &Context) {
        self.queue.on_start(span, context);
    }

    fn on_end(&self, span: SpanData) {
        if span.span_context.is_sampled() {
            self.counts.ended.fetch_add(1, Ordering::Relaxed);
        }
        self.queue.on_end(span);
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.queue.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.queue.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.queue.set_resource(resource);
    }
}

/// Counts the spans that the collector has taken.
#[derive(Debug)]
pub(super) struct Exporter {
    inner: opentelemetry_otlp::SpanExporter,
    counts: Arc<Counts>,
}

impl Exporter {
    pub fn new(inner: opentelemetry_otlp::SpanExporter, counts: Arc<Counts>) -> Self {
        Self { inner, counts }
    }
}

impl SpanExporter for Exporter {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len() as u64;
        self.inner.export(batch).await?;
        self.counts.arrived.fetch_add(spans, Ordering::Relaxed);
        Ok(())
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.inner.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.inner.set_resource(resource);
    }
}
