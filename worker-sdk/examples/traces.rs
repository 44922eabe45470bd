//! Traces: each attempt is a span of its own, linked to the span that scheduled the task.
//!
//! Start a database and a server with `./x dev`. Then, with the address that it prints:
//!
//! ```sh
//! TUSKLINE_DATABASE_URL=... cargo run -q -p tuskline-sdk --features opentelemetry --example traces
//! ```
//!
//! It prints:
//!
//! ```text
//! span sign_up
//! span send_welcome: consumer, attempt 1, retriable_failure, linked to sign_up
//! span send_welcome: consumer, attempt 2, success, linked to sign_up
//! ```

use std::error::Error;
use std::time::Duration;

use opentelemetry::trace::TracerProvider;
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::prelude::*;
use tuskline_sdk::{Client, Context, Failure, Lambda, NewTask, TaskId, TraceLayer, Worker};

const LAMBDA: &str = "send_welcome";

async fn send_welcome(_: String, context: Context) -> Result<(), Failure> {
    match context.attempt() {
        1 => Err(Failure::retry_after(Duration::from_millis(100), "the mail server is busy")),
        _ => Ok(()),
    }
}

/// The request of a user. The task takes the trace context of this span.
async fn sign_up(client: &Client, user: &str) -> Result<TaskId, tuskline_sdk::Error> {
    client.schedule(NewTask::new(LAMBDA, &user)).await
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // An application exports by OTLP instead.
    let exporter = InMemorySpanExporter::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).build();
    let traces = tracing_opentelemetry::layer().with_tracer(provider.tracer("example"));
    let ours = Targets::new().with_default(tracing::Level::INFO);
    tracing_subscriber::registry().with(traces.with_filter(ours)).init();

    let url = std::env::var("TUSKLINE_DATABASE_URL").map_err(|_| "set TUSKLINE_DATABASE_URL")?;
    let client = Client::connect(&url).await?;
    client.define_lambda(LAMBDA).await?;
    let stop = CancellationToken::new();
    let worker = Worker::builder(&url)
        .layer(TraceLayer)
        .serve(Lambda::named(LAMBDA, send_welcome))
        .until(stop.clone().cancelled_owned());
    let worker = tokio::spawn(worker.run());

    let id = sign_up(&client, "ada").instrument(tracing::info_span!("sign_up")).await?;
    client.wait(id, Duration::from_secs(30)).await?.ok_or("the task is gone")?;
    stop.cancel();
    worker.await??;

    let spans = exporter.get_finished_spans()?;
    for span in spans.iter().filter(|span| span.name == "sign_up" || span.name == LAMBDA) {
        print(span, &spans);
    }
    Ok(())
}

fn print(span: &SpanData, all: &[SpanData]) {
    let field = |name| {
        let found = span.attributes.iter().find(|field| field.key.as_str() == name);
        found.map(|field| format!(", {}", field.value)).unwrap_or_default()
    };
    let attempt = field("attempt").replace(", ", ", attempt ");
    let link = span.links.iter().find_map(|link| {
        let to =
            all.iter().find(|other| other.span_context.span_id() == link.span_context.span_id());
        to.map(|to| format!(", linked to {}", to.name))
    });
    let kind = if link.is_some() {
        format!(": {:?}", span.span_kind).to_lowercase()
    } else {
        String::new()
    };
    println!("span {}{kind}{attempt}{}{}", span.name, field("outcome"), link.unwrap_or_default());
}
