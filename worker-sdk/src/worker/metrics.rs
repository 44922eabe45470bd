//! The metrics of a worker process, and the port on which Prometheus reads them.
//!
//! Promises: a scrape costs no call to the database, and no attempt waits for it. Labels are lambda and
//! priority, never a task.

use std::net::SocketAddr;
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

use crate::metrics::{self, Family, Value};
use crate::worker::controller::Controller;
use crate::worker::statistics::Statistics;

/// Longest life of a connection, which is for one request.
const CONNECTION_DEADLINE: Duration = Duration::from_secs(5);
/// Most connections at a time; another one waits.
const MOST_CONNECTIONS: usize = 16;

/// Sources of the metrics of this process.
#[derive(Clone)]
pub(crate) struct Metrics {
    pub(crate) statistics: Arc<Statistics>,
    /// The controller of the present registration. There is none between two registrations.
    pub(super) controller: Arc<Mutex<Weak<Controller>>>,
}

/// Answers on a port until dropped.
pub(crate) async fn serve(listener: TcpListener, metrics: Metrics) {
    let mut connections = JoinSet::new();
    loop {
        if connections.len() >= MOST_CONNECTIONS {
            connections.join_next().await;
        }
        match listener.accept().await {
            Ok((stream, _)) => drop(connections.spawn(answer(stream, metrics.clone()))),
            // For example because no file descriptor is left.
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
        while connections.try_join_next().is_some() {}
    }
}

/// Takes the port.
pub(crate) async fn bind(address: SocketAddr) -> std::io::Result<TcpListener> {
    TcpListener::bind(address).await
}

async fn answer(stream: TcpStream, metrics: Metrics) {
    let service = service_fn(move |request: Request<Incoming>| {
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
            "/readyz" => match self.controller() {
                Some(_) => (StatusCode::OK, plain, "registered\n".to_owned()),
                None => (StatusCode::SERVICE_UNAVAILABLE, plain, "not registered\n".to_owned()),
            },
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
