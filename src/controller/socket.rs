//! The socket that executors speak to: HTTP/1.1 with JSON, for processes of the same user.

#[cfg(test)]
mod tests;

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Extension, Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::net::{UnixListener, UnixStream};
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tuskline_sdk::ErrorKind;

use super::hand_out::{Graces, HandOut};
use super::incoming::{LARGEST, Peer, body};
use super::output::Output;
use super::processes::Processes;
use super::registrations::Registrations;
use super::wire::{self, PROTOCOL, Refusal};
use super::wire_log::WireLog;

/// How long a connection that waits for the next message may be idle.
const IDLE: Duration = Duration::from_secs(120);
/// Slots of one executor, all lambdas together.
const MOST_SLOTS: usize = 10_000;

/// The parts that answer messages.
#[derive(Debug)]
pub struct Answering {
    pub hand_out: Arc<HandOut>,
    pub registrations: Arc<Registrations>,
    pub processes: Arc<Processes>,
    pub output: Arc<Output>,
    pub graces: Graces,
    /// For what takes longer than a message.
    pub runtime: Handle,
    /// None: nobody looks at the wire.
    pub wire_log: Option<Arc<WireLog>>,
}

type Shared = State<Arc<Answering>>;

/// A socket for this user alone.
///
/// # Errors
/// There is no place for it.
pub fn bind(path: &Path) -> io::Result<UnixListener> {
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Answers until dropped.
pub async fn serve(listener: UnixListener, answering: Arc<Answering>) {
    let wire_log = answering.wire_log.clone();
    let routes = Router::new()
        .route("/tuskline.v1.Controller/Join", post(join))
        .route("/tuskline.v1.Controller/NextWork", post(next_work))
        .route("/tuskline.v1.Controller/Save", post(save))
        .route("/tuskline.v1.Controller/Leave", post(leave))
        .route("/tuskline.v1.Controller/NextFork", post(next_fork))
        .fallback(async || Refusal::new(404, "unknown_message", "there is no such message"))
        .with_state(answering);
    let routes = match wire_log {
        Some(log) => log.around(routes),
        None => routes,
    };
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => drop(connections.spawn(converse(stream, routes.clone()))),
                // Out of descriptors: some come back.
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn converse(stream: UnixStream, routes: Router) {
    let Ok(peer) = stream.peer_cred() else { return };
    let ours = rustix::process::geteuid().as_raw();
    if peer.uid() != ours {
        tracing::warn!(uid = peer.uid(), "a process of another user is not answered");
        return;
    }
    let pid = peer.pid().and_then(|pid| u32::try_from(pid).ok()).unwrap_or(0);
    let service = TowerToHyperService::new(routes.layer(Extension(Peer(pid))));
    let mut server = Builder::new(TokioExecutor::new()).http1_only();
    server.http1().timer(TokioTimer::new()).header_read_timeout(IDLE);
    let _ = server.serve_connection(TokioIo::new(stream), service).await;
}

async fn join(
    State(answering): Shared,
    Extension(Peer(peer)): Extension<Peer>,
    request: Request,
) -> Result<Response, Refusal> {
    let join: wire::Join = parse(&body(request).await?)?;
    check_protocol(join.protocol)?;
    check_lambdas(&join.lambdas)?;
    let pid = join.pid.unwrap_or(peer);
    let end = answering.processes.admit(pid);
    let end = Arc::new(end.map_err(|why| Refusal::invalid("pid", why))?);
    let names = join.lambdas.iter().map(|served| &*served.name);
    let joined = match answering.registrations.serve(names).await {
        Ok(()) => answering.hand_out.join(pid, Arc::clone(&end), &join.lambdas),
        Err(refusal) => Err(refusal),
    };
    answering.processes.has_come(&join.lambdas);
    let name = joined?;
    let (sdk, app_version) = (join.sdk.as_deref(), join.app_version.as_deref());
    tracing::info!(pid, sdk, app_version, "an executor has joined");
    answering.runtime.spawn(Arc::clone(&answering.processes).watch(pid, end));
    Ok(json(&wire::Joined {
        executor: name.to_string(),
        protocol: PROTOCOL,
        cancel_grace_ms: u64::try_from(answering.graces.cancel.as_millis()).unwrap_or(u64::MAX),
        max_message_bytes: LARGEST,
    }))
}

async fn next_work(State(answering): Shared, request: Request) -> Result<Response, Refusal> {
    let body = body(request).await?;
    let asked: wire::NextWork<'_> = parse(&body)?;
    // Output that a body has written before its result is logged while its task is still known.
    if !asked.results.is_empty()
        && let Some(pid) = answering.hand_out.writer_of(asked.executor)
    {
        answering.output.read_rest(pid);
    }
    let answer = answering.hand_out.next_work(asked).await?;
    Ok(of_json(answer))
}

async fn save(State(answering): Shared, request: Request) -> Result<Response, Refusal> {
    let save: wire::Save = parse(&body(request).await?)?;
    let checkpoint = RawValue::from_string(save.checkpoint)
        .map_err(|error| Refusal::invalid("checkpoint", format!("it is no JSON text: {error}")))?;
    let context = answering.hand_out.context(&save.executor, save.attempt)?;
    let lost = async {
        // A context that is kept counts as its body: not past the time that the body has.
        context.cancelled().await;
        while context.stop_reason() != Some(tuskline_sdk::StopReason::LeaseLost) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let saved = tokio::select! {
        saved = context.save(&checkpoint) => saved,
        () = lost => return Err(Refusal::new(503, "no_database", "the lease is lost")),
    };
    match saved {
        Ok(()) => Ok(of_json(Bytes::from_static(b"{}"))),
        Err(error) => Err(match error.kind() {
            ErrorKind::Fenced => Refusal::new(409, "not_current", error.to_string()),
            ErrorKind::Invalid => {
                let mut refusal = Refusal::invalid("checkpoint", error.to_string());
                refusal.body.code = error.code().map(|code| code.as_str());
                refusal
            }
            _ => Refusal::new(503, "no_database", error.to_string()).with("retry_after_ms", 1000),
        }),
    }
}

async fn leave(State(answering): Shared, request: Request) -> Result<Response, Refusal> {
    let leave: wire::Leave = parse(&body(request).await?)?;
    answering.hand_out.leave(&leave.executor)?;
    Ok(of_json(Bytes::from_static(b"{}")))
}

async fn next_fork(
    State(answering): Shared,
    Extension(Peer(peer)): Extension<Peer>,
    request: Request,
) -> Result<Response, Refusal> {
    let asked: wire::NextFork = parse(&body(request).await?)?;
    check_protocol(asked.protocol)?;
    check_lambdas(&asked.lambdas)?;
    let processes = &answering.processes;
    if !processes.program.is_zygote {
        return Err(Refusal::invalid("protocol", "this controller was started without --zygote"));
    }
    processes.admit(peer).map_err(|why| Refusal::invalid("pid", why))?;
    answering.registrations.serve(asked.lambdas.iter().map(|served| &*served.name)).await?;
    let wait = Duration::from_millis(asked.wait_ms.min(25_000));
    Ok(json(&processes.next_fork(&asked.lambdas, wait).await))
}

fn check_protocol(protocol: u32) -> Result<(), Refusal> {
    match protocol {
        PROTOCOL.. => Ok(()),
        _ => Err(Refusal::new(400, "unsupported_protocol", format!("protocols: {PROTOCOL}"))),
    }
}

fn check_lambdas(lambdas: &[wire::Served]) -> Result<(), Refusal> {
    if lambdas.is_empty() {
        return Err(Refusal::invalid("lambdas", "an executor serves at least one lambda"));
    }
    for (at, served) in lambdas.iter().enumerate() {
        let field = |name: &str| format!("lambdas[{at}].{name}");
        if !(1..=MOST_SLOTS).contains(&served.slots) {
            let text = format!("slots must be 1 to {MOST_SLOTS}, got {}", served.slots);
            return Err(Refusal::invalid(&field("slots"), text));
        }
        if lambdas[..at].iter().any(|other| other.name == served.name) {
            let text = format!("lambda {} stands twice", served.name);
            return Err(Refusal::invalid(&field("name"), text));
        }
    }
    Ok(())
}

fn parse<'a, T: serde::Deserialize<'a>>(body: &'a [u8]) -> Result<T, Refusal> {
    serde_json::from_slice(body)
        .map_err(|error| Refusal::new(400, "invalid_message", format!("the message: {error}")))
}

fn json(value: &impl Serialize) -> Response {
    // Texts and numbers: it cannot fail.
    of_json(serde_json::to_vec(value).unwrap_or_default().into())
}

fn of_json(text: Bytes) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], Body::from(text)).into_response()
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::BAD_REQUEST);
        tracing::debug!(name = self.body.name, message = self.body.message, "a message is refused");
        let mut response = json(&self.body);
        *response.status_mut() = status;
        response
    }
}
