//! Health over HTTP: `/healthz` says that the process is up and the database refuses none of its
//! roles, `/readyz` that it can do its work.
//!
//! The same port has metrics, pages and the Frontend by RPC. A port with TLS answers probes and metrics
//! without TLS, too, and nothing else.
//!
//! Promises: an answer within `DEADLINE`, whatever the database and other clients do; 200 or 503
//! and a JSON object with the reason. Must never: tell an address or a password.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Json, Router};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tuskline_sdk::Address;
use tuskline_sdk::SchemaCompatibility;
use tuskline_sdk::metrics::port::{self, HasRequest};

use crate::metrics;
use crate::migrate::SCHEMA_VERSION;
use crate::port_tls::{FIRST_BYTE, PortTls};
use crate::recovery::RoleHealth;
use crate::session::{Deadlines, ErrorChain, Session};
use crate::store::{self, Readiness};

/// Longest wait for the database. After it, the answer is that the process is not ready.
const DEADLINE: Duration = Duration::from_secs(3);

/// Longest time for a request to arrive.
pub(crate) const REQUEST_DEADLINE: Duration = Duration::from_secs(2);

/// Largest body of a request, in bytes.
const LARGEST_BODY: usize = 65_536;

/// Longest life of a connection, which is for one request. `/metrics` takes longest to answer. A
/// second remains for the client to take the answer.
const CONNECTION_DEADLINE: Duration =
    REQUEST_DEADLINE.saturating_add(metrics::DEADLINE).saturating_add(Duration::from_secs(1));

/// Most connections at a time: half of the file descriptors that a process usually has. A new one
/// replaces the oldest connection that has not sent a whole request yet, with its body. A connection
/// with a request is never cut.
const MOST_CONNECTIONS: usize = 512;

/// One session for all requests. The first request opens it.
struct Health {
    address: Address,
    session: Mutex<Option<Session>>,
    roles: RoleHealth,
}

/// Other things of the port, beside probes and metrics.
#[derive(Debug, Clone)]
pub struct Beside {
    /// The pages.
    pub pages: Router,
    /// The Frontend by RPC. It reads bodies itself, after it knows who asks.
    pub rpc: Router,
    /// Certificates, without which only probes and metrics are answered then.
    pub tls: Option<PortTls>,
}

impl From<Router> for Beside {
    fn from(pages: Router) -> Self {
        Self { pages, rpc: Router::new(), tls: None }
    }
}

/// The connection of a request, for an answer that takes longer than others.
#[derive(Debug, Clone)]
pub(crate) struct Conversation {
    /// To be set when the whole request is there.
    pub has_request: HasRequest,
    /// The server is told to end.
    #[cfg_attr(not(feature = "pages"), allow(dead_code, reason = "only the Frontend waits"))]
    pub shutdown: CancellationToken,
    until: Arc<watch::Sender<Instant>>,
}

impl Conversation {
    fn new(has_request: HasRequest, shutdown: CancellationToken) -> Self {
        let until = watch::Sender::new(Instant::now() + CONNECTION_DEADLINE);
        Self { has_request, shutdown, until: Arc::new(until) }
    }

    /// The connection lives for so much longer.
    #[cfg_attr(not(feature = "pages"), allow(dead_code, reason = "only the Frontend waits"))]
    pub fn prolong(&self, by: Duration) {
        self.until.send_modify(|until| *until += by);
    }

    /// Resolves at the end of the life of the connection.
    async fn is_over(&self) {
        let mut until = self.until.subscribe();
        loop {
            let at = *until.borrow_and_update();
            if timeout(at.saturating_duration_since(Instant::now()), until.changed()).await.is_err()
            {
                return;
            }
        }
    }
}

/// Answers until `shutdown`; then ends the requests that it has begun.
pub async fn serve(
    listener: TcpListener,
    address: Address,
    roles: RoleHealth,
    beside: impl Into<Beside>,
    shutdown: CancellationToken,
) {
    let Beside { pages, rpc, tls } = beside.into();
    let probes = routes(address.clone(), roles).merge(metrics::routes(address));
    let port = Port { short: probes.clone().merge(pages), rpc, probes, tls };
    let mut connections = JoinSet::new();
    let answer = |stream, has_request| {
        answer(stream, port.clone(), Conversation::new(has_request, shutdown.clone()))
    };
    let accepting = port::accept(&listener, MOST_CONNECTIONS, &mut connections, answer);
    shutdown.run_until_cancelled(accepting).await;
    drop(listener);
    // Past this deadline each connection has ended. One that was cut is an error here.
    let ended = async { while connections.join_next().await.is_some() {} };
    let _ = timeout(CONNECTION_DEADLINE, ended).await;
}

/// The answers of the port.
#[derive(Clone)]
struct Port {
    /// With requests that are short.
    short: Router,
    rpc: Router,
    probes: Router,
    tls: Option<PortTls>,
}

/// Answers one request, or ends the connection if none arrives in time. An error of the connection
/// is ignored.
async fn answer(stream: TcpStream, port: Port, conversation: Conversation) {
    let with = &conversation;
    let all = async {
        let Some(tls) = port.tls else {
            return converse(stream, port.short, port.rpc, with).await;
        };
        let mut first = [0];
        match timeout(REQUEST_DEADLINE, stream.peek(&mut first)).await {
            Ok(Ok(1)) if first == [FIRST_BYTE] => {
                if let Ok(Ok(stream)) = timeout(REQUEST_DEADLINE, tls.accept(stream)).await {
                    converse(stream, port.short, port.rpc, with).await;
                }
            }
            Ok(Ok(1)) => converse(stream, port.probes, Router::new(), with).await,
            _ => {}
        }
    };
    tokio::select! {
        () = all => {}
        () = with.is_over() => {}
    }
}

async fn converse(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    short: Router,
    rpc: Router,
    with: &Conversation,
) {
    let has_request = with.has_request.clone();
    let short = short.layer(from_fn(move |request: Request, next: Next| {
        whole(request, next, has_request.clone())
    }));
    let routes = rpc.layer(Extension(with.clone())).merge(short);
    let mut server = Builder::new(TokioExecutor::new()).http1_only();
    let timer = TokioTimer::new();
    server.http1().keep_alive(false).timer(timer).header_read_timeout(REQUEST_DEADLINE);
    let service = TowerToHyperService::new(routes);
    let _ = server.serve_connection(TokioIo::new(stream), service).await;
}

/// Answers a request when its body is there. Until then its connection may be cut for a new one.
async fn whole(request: Request, next: Next, has_request: HasRequest) -> Response {
    let (head, body) = request.into_parts();
    match timeout(REQUEST_DEADLINE, to_bytes(body, LARGEST_BODY)).await {
        Ok(Ok(body)) => {
            has_request.set();
            next.run(Request::from_parts(head, Body::from(body))).await
        }
        Ok(Err(_)) => StatusCode::PAYLOAD_TOO_LARGE.into_response(),
        Err(_) => StatusCode::REQUEST_TIMEOUT.into_response(),
    }
}

fn routes(address: Address, roles: RoleHealth) -> Router {
    let health = Arc::new(Health { address, session: Mutex::new(None), roles });
    Router::new().route("/healthz", get(healthz)).route("/readyz", get(readyz)).with_state(health)
}

/// A role that the database refuses stays refused until a person removes the cause, so it is a
/// failure. A database that cannot be reached comes back by itself, and a restart of this process
/// would not help.
async fn healthz(State(health): State<Arc<Health>>) -> (StatusCode, Json<Value>) {
    let roles = health.roles.failing();
    match roles.is_empty() {
        true => (StatusCode::OK, Json(json!({"status": "up"}))),
        false => {
            let failing = json!({"status": "failing", "roles": roles});
            (StatusCode::SERVICE_UNAVAILABLE, Json(failing))
        }
    }
}

async fn readyz(State(health): State<Arc<Health>>) -> (StatusCode, Json<Value>) {
    match health.reason().await {
        None => (StatusCode::OK, Json(json!({"status": "ready"}))),
        Some(reason) => {
            let said = json!({"status": "not ready", "reason": reason});
            (StatusCode::SERVICE_UNAVAILABLE, Json(said))
        }
    }
}

impl Health {
    /// Why the process cannot do its work; none if it can.
    async fn reason(&self) -> Option<String> {
        match timeout(DEADLINE, self.readiness()).await {
            Err(_) => Some(format!("the database did not answer within {} s", DEADLINE.as_secs())),
            Ok(Err(error)) => Some(ErrorChain(&error).to_string()),
            Ok(Ok(readiness)) => not_ready(readiness).or_else(|| self.refused()),
        }
    }

    /// The roles that the database refuses, as `/healthz` tells them: with a wrong installation name
    /// the database answers, and no role works.
    fn refused(&self) -> Option<String> {
        let failing = self.roles.failing();
        let reports = failing.iter().map(|(role, error)| format!("{role}: {error}"));
        (!failing.is_empty()).then(|| reports.collect::<Vec<_>>().join("; "))
    }

    async fn readiness(&self) -> Result<Readiness, tokio_postgres::Error> {
        let mut kept = self.session.lock().await;
        // Taken out of the field: a call that fails or is dropped leaves no session there. Then the
        // next call opens a new one.
        let session = match kept.take().filter(|session| !session.is_closed()) {
            Some(session) => session,
            None => Session::open(&self.address, "health", Deadlines::USUAL).await?,
        };
        let readiness = store::readiness(session.client()).await?;
        *kept = Some(session);
        Ok(readiness)
    }
}

/// Why a database that answers cannot be used. None: it can. A later function set can be used:
/// within a major version it understands every call of an earlier one.
pub fn not_ready(readiness: Readiness) -> Option<String> {
    match readiness.schema_version {
        None => Some("the functions are not installed: run `tuskline migrate`".to_owned()),
        Some(set) if SchemaCompatibility::of(set) == SchemaCompatibility::TooOld => Some(format!(
            "schema is older than this binary (function set {set}, wanted {SCHEMA_VERSION}): run `tuskline migrate`"
        )),
        Some(set) if SchemaCompatibility::of(set) == SchemaCompatibility::TooNew => Some(format!(
            "schema is of a later major version than this binary (function set {set}, ours {SCHEMA_VERSION})"
        )),
        Some(_) if readiness.read_only => Some("this server is a standby or read-only".to_owned()),
        Some(_) if !readiness.queues_rebuilt => Some("the queues are not rebuilt yet".to_owned()),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests;
