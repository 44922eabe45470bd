//! The metrics of a worker process, and the port on which Prometheus reads them.
//!
//! Promises: a scrape costs no call to the database, and no attempt waits for it. A probe is
//! answered whatever other clients do. Labels are lambda and priority, never a task.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::CONTENT_TYPE;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::metrics::port::{self, HasRequest};
use crate::metrics::{self, Family, Value};
use crate::worker::controller::Controller;
use crate::worker::statistics::Statistics;

/// Longest life of a connection, which is for one request.
const CONNECTION_DEADLINE: Duration = Duration::from_secs(5);
/// Most connections at a time. File descriptors are for the bodies first.
const MOST_CONNECTIONS: usize = 64;

/// Sources of the metrics of this process.
#[derive(Clone)]
pub(crate) struct Metrics {
    pub(crate) statistics: Arc<Statistics>,
    /// The controller of the present registration. There is none between two registrations.
    pub(super) controller: Arc<Mutex<Weak<Controller>>>,
    /// Why the last try to register failed, or registered for less.
    pub(super) refusal: Arc<Mutex<Option<String>>>,
}

/// Answers on a port until dropped.
pub(crate) async fn serve(listener: TcpListener, metrics: Metrics) {
    let answer = |stream, has_request| answer(stream, metrics.clone(), has_request);
    port::accept(&listener, MOST_CONNECTIONS, &mut JoinSet::new(), answer).await;
}

async fn answer(stream: TcpStream, metrics: Metrics, has_request: HasRequest) {
    let service = service_fn(move |request: Request<Incoming>| {
        has_request.set();
        let response = metrics.respond(request.method(), request.uri().path());
        std::future::ready(Ok::<_, std::convert::Infallible>(response))
    });
    let mut http = hyper::server::conn::http1::Builder::new();
    let connection = http.keep_alive(false).serve_connection(TokioIo::new(stream), service);
    let _ = tokio::time::timeout(CONNECTION_DEADLINE, connection).await;
}

impl Metrics {
    fn respond(&self, method: &Method, path: &str) -> Response<Full<Bytes>> {
        let plain = "text/plain; charset=utf-8";
        let (status, kind, body) = match path {
            _ if method != Method::GET => {
                (StatusCode::METHOD_NOT_ALLOWED, plain, "only GET\n".to_owned())
            }
            "/metrics" => (StatusCode::OK, metrics::CONTENT_TYPE, metrics::text(self.families())),
            "/healthz" => (StatusCode::OK, plain, "up\n".to_owned()),
            "/readyz" => {
                let (status, said) = self.ready();
                (status, plain, said)
            }
            _ => (StatusCode::NOT_FOUND, plain, "/metrics, /healthz, /readyz\n".to_owned()),
        };
        let mut response = Response::new(Full::new(Bytes::from(body)));
        *response.status_mut() = status;
        if let Ok(kind) = kind.parse() {
            response.headers_mut().insert(CONTENT_TYPE, kind);
        }
        response
    }

    fn controller(&self) -> Option<Arc<Controller>> {
        self.controller.lock().unwrap_or_else(PoisonError::into_inner).upgrade()
    }

    fn ready(&self) -> (StatusCode, String) {
        let (status, said) = match self.controller() {
            Some(_) => (StatusCode::OK, "registered"),
            None => (StatusCode::SERVICE_UNAVAILABLE, "not registered"),
        };
        match &*self.refusal.lock().unwrap_or_else(PoisonError::into_inner) {
            None => (status, format!("{said}\n")),
            Some(refusal) => (status, format!("{said}: {refusal}\n")),
        }
    }

    fn families(&self) -> Vec<Family> {
        let mut families = self.statistics.families();
        let controller = self.controller();
        let mut registered = Family::gauge(
            "tuskline_worker_registered",
            "1 while the worker is registered and its heartbeats are acknowledged",
        );
        let known = f64::from(u8::from(controller.is_some()));
        registered.push(Vec::new(), Value::Gauge(known));
        families.push(registered);
        families.extend(usage(controller.as_deref()));
        families
    }
}

/// Slots of each lambda, and the tasks in them. Without a registration there is no sample.
fn usage(controller: Option<&Controller>) -> [Family; 3] {
    let mut slots = Family::gauge("tuskline_worker_slots", "Executors of the lambda");
    let mut running = Family::gauge("tuskline_worker_running", "Attempts that run now");
    let mut buffered =
        Family::gauge("tuskline_worker_buffered", "Claimed tasks that wait for a free slot");
    for (lambda, usage) in controller.map(Controller::usage).unwrap_or_default() {
        let labels = || vec![("lambda", lambda.to_string())];
        slots.push(labels(), Value::Gauge(usage.slots as f64));
        running.push(labels(), Value::Gauge(usage.running as f64));
        buffered.push(labels(), Value::Gauge(usage.buffered as f64));
    }
    [slots, running, buffered]
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn a_probe_is_answered_whatever_number_of_connections_says_nothing() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let statistics = Arc::new(Statistics::new(Vec::new()));
        let (controller, refusal) = Default::default();
        let serving = tokio::spawn(serve(listener, Metrics { statistics, controller, refusal }));
        let mut silent = Vec::new();
        for _ in 0..MOST_CONNECTIONS + 4 {
            silent.push(TcpStream::connect(address).await.unwrap());
        }
        let asking = async {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: test\r\n\r\n").await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            answer
        };
        let answer = timeout(CONNECTION_DEADLINE / 2, asking).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        serving.abort();
    }
}
