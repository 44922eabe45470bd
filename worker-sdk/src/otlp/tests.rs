//! The exporter against a collector of a few lines.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::http::StatusCode;
use axum::routing::post;
use opentelemetry_http::{Bytes, HttpClient as _, Request};
use opentelemetry_otlp::{RetryPolicy, SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use tracing_subscriber::prelude::*;

use crate::otlp::{Otlp, http};

/// Answers a request with each of these statuses, and all further ones with the last.
async fn collector(statuses: &[u16]) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1/traces", listener.local_addr().unwrap());
    let statuses = Arc::new(Mutex::new(VecDeque::from(statuses.to_vec())));
    let answer = async move || {
        let mut left = statuses.lock().unwrap();
        let status = if left.len() > 1 { left.pop_front() } else { left.front().copied() };
        StatusCode::from_u16(status.unwrap()).unwrap()
    };
    let router = Router::new().route("/v1/traces", post(answer));
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    url
}

/// An address on which nothing listens.
async fn closed() -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    format!("http://{}/v1/traces", listener.local_addr().unwrap())
}

/// Lines of a log.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Log {
    fn subscriber(&self) -> impl tracing::Subscriber + Send + Sync + use<> {
        let log = self.clone();
        tracing_subscriber::fmt().with_ansi(false).with_writer(move || log.clone()).finish()
    }

    fn count(&self, text: &str) -> usize {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap().matches(text).count()
    }
}

/// Ends three spans; how many of them did not reach the collector.
fn lost_of_three(url: &str) -> u64 {
    let exporter = SpanExporter::builder().with_http().with_http_client(http::Client::from_env());
    let exporter = exporter.with_retry_policy(RetryPolicy::disabled()).with_endpoint(url);
    let otlp = Otlp::start(exporter.build().unwrap(), "test");
    tracing::subscriber::with_default(tracing_subscriber::registry().with(otlp.layer()), || {
        for _ in 0..3 {
            tracing::info_span!("one").in_scope(|| tracing::debug_span!("none").in_scope(|| ()));
        }
    });
    otlp.shutdown()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_refuses_is_told_once_until_it_takes_spans() {
    let url = collector(&[503, 503, 200, 200, 401, 200]).await;
    let log = Log::default();
    let _within = tracing::subscriber::set_default(log.subscriber());
    let client = http::Client::from_env();
    for _ in 0..6 {
        let request = Request::post(&url).header("authorization", "secret").body(Bytes::new());
        client.send_bytes(request.unwrap()).await.unwrap();
    }
    assert_eq!(log.count("WARN"), 2);
    assert_eq!(log.count("takes spans again"), 2);
    assert_eq!((log.count("it answers 503"), log.count("it answers 401")), (1, 1));
    assert_eq!(log.count("secret"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_counts_the_spans_that_did_not_arrive() {
    assert_eq!(lost_of_three(&collector(&[200]).await), 0);
    assert_eq!(lost_of_three(&collector(&[500]).await), 3);
    assert_eq!(lost_of_three(&closed().await), 3);
}
