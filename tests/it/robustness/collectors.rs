//! An OTLP collector receives the trace of a task, from the caller's span to the second attempt. A
//! collector that is silent delays no attempt.
//!
//! The program is the example `otlp`, as users run it: the settings of OTLP are variables of a
//! process.

use std::fmt::Write as _;
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::routing::post;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value::Value};
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use prost::Message as _;
use tokio::sync::watch;

use crate::support::cli::{Call, Running, on, url};
use crate::support::{Db, within};
use crate::surface::examples::build;

const PAGE: &str = include_str!("../../../docs/traces.md");

/// The payload of the task, which no span has.
const PAYLOAD: &[u8] = b"ada";

/// A collector on a port of its own.
struct Collector {
    endpoint: String,
    got: watch::Receiver<Vec<(HeaderMap, Bytes)>>,
}

/// The requests, and whether they get an answer.
type Shared = Arc<(watch::Sender<Vec<(HeaderMap, Bytes)>>, bool)>;

async fn take(State(shared): State<Shared>, headers: HeaderMap, body: Bytes) -> Bytes {
    shared.0.send_modify(|got| got.push((headers, body)));
    match shared.1 {
        true => Bytes::new(), // an ExportTraceServiceResponse without a word
        false => std::future::pending().await,
    }
}

impl Collector {
    async fn start(answers: bool) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let (sender, got) = watch::channel(Vec::new());
        let state = Arc::new((sender, answers));
        let router = Router::new().route("/v1/traces", post(take)).with_state(state);
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { endpoint, got }
    }

    /// Starts the example, which sends its spans here.
    fn example(&self, db: &Db) -> Call {
        let call = Call::of(&build().join("otlp"), &[]).database(&url(&db.config));
        call.env("OTEL_EXPORTER_OTLP_ENDPOINT", &self.endpoint)
    }

    /// All spans, each with the attributes of its process.
    fn spans(&self) -> Vec<(Vec<KeyValue>, Span)> {
        let mut spans = Vec::new();
        for (_, body) in self.got.borrow().iter() {
            let request = ExportTraceServiceRequest::decode(body.clone()).unwrap();
            for process in request.resource_spans {
                let resource = process.resource.unwrap().attributes;
                let of_scopes = process.scope_spans.into_iter().flat_map(|scope| scope.spans);
                spans.extend(of_scopes.map(|span| (resource.clone(), span)));
            }
        }
        spans.sort_by_key(|(_, span)| span.start_time_unix_nano);
        spans
    }
}

/// A text or a number.
fn value(pair: &KeyValue) -> Option<String> {
    match pair.value.as_ref()?.value.as_ref()? {
        Value::StringValue(text) => Some(text.clone()),
        Value::IntValue(number) => Some(number.to_string()),
        _ => None,
    }
}

fn get(pairs: &[KeyValue], key: &str) -> Option<String> {
    value(pairs.iter().find(|pair| pair.key == key)?)
}

/// The spans as the page shows them, without the attributes that tracing adds (places in the source, threads,
/// times).
fn shown(spans: &[(Vec<KeyValue>, Span)]) -> String {
    let mut text = String::new();
    for (process, span) in spans {
        let service = get(process, "service.name").unwrap();
        let kind = SpanKind::try_from(span.kind).unwrap().as_str_name();
        let kind = kind.trim_start_matches("SPAN_KIND_").to_lowercase();
        let failed = span.status.as_ref().is_some_and(|status| status.code == 2);
        let status = if failed { ", status error" } else { "" };
        writeln!(text, "{} (service {service}, kind {kind}{status})", span.name).unwrap();
        for link in &span.links {
            let to = spans
                .iter()
                .find(|(_, to)| (&to.trace_id, &to.span_id) == (&link.trace_id, &link.span_id));
            writeln!(text, "    linked to {}", to.unwrap().1.name).unwrap();
        }
        let ours = ["messaging.", "error.", "attempt", "outcome"];
        for pair in &span.attributes {
            if ours.iter().any(|prefix| pair.key.starts_with(prefix)) {
                writeln!(text, "    {} = {}", pair.key, value(pair).unwrap()).unwrap();
            }
        }
    }
    text
}

/// Waits until it has written a text to standard output.
fn until_printed(running: &mut Running, text: &str) {
    let mut said = String::new();
    while !said.contains(text) {
        said += &running.line();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_task_is_followed_from_its_caller_to_its_second_attempt() {
    let db = Db::new().await;
    let _server = on(&db.config, "serve").start();
    let collector = Collector::start(true).await;
    let ran = collector
        .example(&db)
        // Nothing but the shutdown sends.
        .env("OTEL_BSP_SCHEDULE_DELAY", "3600000")
        .env("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20key")
        .env("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
        .run();
    assert_eq!((ran.code, ran.out.as_str()), (0, "attempt 1\nattempt 2\nsuccess\n"), "{ran:?}");

    let spans = collector.spans();
    let [(process, caller), (_, first), (_, second)] = &spans[..] else { panic!("{spans:#?}") };
    let environment = get(process, "deployment.environment.name");
    assert_eq!(environment.as_deref(), Some("test"));
    for attempt in [first, second] {
        assert!(attempt.parent_span_id.is_empty(), "an attempt is linked, and no child");
        let links: Vec<_> = attempt.links.iter().map(|to| (&to.trace_id, &to.span_id)).collect();
        assert_eq!(links, [(&caller.trace_id, &caller.span_id)]);
    }
    let traces = [caller, first, second].map(|span| &span.trace_id);
    assert!(traces[0] != traces[1] && traces[1] != traces[2] && traces[0] != traces[2]);
    let task: i64 = db.one("select id from tuskline.task").await;
    let text = shown(&spans).replace(&format!("message.id = {task}\n"), "message.id = 41\n");
    assert!(
        PAGE.contains(&format!("```text\n{text}```\n")),
        "docs/traces.md does not show\n{text}"
    );

    let got = collector.got.borrow();
    let [(headers, body)] = &got[..] else { panic!("{} requests", got.len()) };
    assert_eq!(headers["content-type"], "application/x-protobuf");
    assert_eq!(headers["authorization"], "Bearer key");
    assert!(!body.windows(PAYLOAD.len()).any(|part| part == PAYLOAD), "no span has the payload");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_never_answers_delays_no_attempt() {
    let db = Db::with_lambda("send_receipt").await;
    db.run("select tuskline.gate('send_receipt', 'pause', p_reason => 'until it is silent')").await;
    let _server = on(&db.config, "serve").start();
    let mut collector = Collector::start(false).await;
    // A span finds the queue full while the one before it is on its way.
    let mut running = collector
        .example(&db)
        .env("OTEL_BSP_SCHEDULE_DELAY", "1")
        .env("OTEL_BSP_MAX_QUEUE_SIZE", "1")
        .env("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "1")
        .env("OTEL_EXPORTER_OTLP_TIMEOUT", "3600000")
        .start();
    within(collector.got.wait_for(|got| got.len() == 1)).await.unwrap();
    // The sender waits for an answer from here on, and the attempts begin.
    db.run("select tuskline.ungate(gate_id) from tuskline.gates").await;
    until_printed(&mut running, "success");
    let ran = running.end();
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(collector.got.borrow().len(), 1, "it still waits for the first answer");
}
