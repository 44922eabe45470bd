//! Health over HTTP: `/healthz` says that the process is up, `/readyz` that it can do its work.
//!
//! Promises: an answer within three seconds, whatever the database does; 200 or 503 and a JSON
//! object with the reason. Must never: tell an address or a password.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::Mutex;
use tokio::time::timeout;
use tokio_postgres::Config;
use tokio_util::sync::CancellationToken;
use tuskline_sdk::Fit;

use crate::migrate::FUNCTION_SET;
use crate::session::{Deadlines, Session, Told};
use crate::store::{self, Readiness};

/// Longest wait for the database before we are not ready.
const DEADLINE: Duration = Duration::from_secs(3);

/// One session for all who ask, opened when the first does.
struct Health {
    config: Config,
    session: Mutex<Option<Session>>,
}

/// Takes the port.
///
/// # Errors
/// The port is taken or not ours to take.
pub async fn bind(address: SocketAddr) -> std::io::Result<TcpListener> {
    TcpListener::bind(address).await
}

/// Answers until `shutdown`.
///
/// # Errors
/// The listener failed.
pub async fn serve(
    listener: TcpListener,
    config: Config,
    shutdown: CancellationToken,
) -> std::io::Result<()> {
    let health = Arc::new(Health { config, session: Mutex::new(None) });
    let routes = Router::new()
        .route("/healthz", get(async || Json(json!({"status": "up"}))))
        .route("/readyz", get(readyz))
        .with_state(health);
    axum::serve(listener, routes).with_graceful_shutdown(shutdown.cancelled_owned()).await
}

async fn readyz(State(health): State<Arc<Health>>) -> (StatusCode, Json<Value>) {
    let said = timeout(DEADLINE, health.readiness()).await;
    let reason = match said {
        Err(_) => format!("the database did not answer within {} s", DEADLINE.as_secs()),
        Ok(Err(error)) => Told(&error).to_string(),
        Ok(Ok(readiness)) => match not_ready(readiness) {
            Some(reason) => reason,
            None => return (StatusCode::OK, Json(json!({"status": "ready"}))),
        },
    };
    (StatusCode::SERVICE_UNAVAILABLE, Json(json!({"status": "not ready", "reason": reason})))
}

impl Health {
    async fn readiness(&self) -> Result<Readiness, tokio_postgres::Error> {
        let mut kept = self.session.lock().await;
        // Taken out: a call that fails or is given up leaves none behind, and the next opens anew.
        let session = match kept.take().filter(|session| !session.is_closed()) {
            Some(session) => session,
            None => Session::open(&self.config, "health", Deadlines::USUAL).await?,
        };
        let readiness = store::readiness(session.client()).await?;
        *kept = Some(session);
        Ok(readiness)
    }
}

/// Why a database that answers will not do; none if it will. A later function set will: within a
/// major version it understands every call of an earlier one.
pub fn not_ready(readiness: Readiness) -> Option<String> {
    match readiness.function_set {
        None => Some("the functions are not installed: run `tuskline migrate`".to_owned()),
        Some(set) if Fit::of(set) == Fit::TooOld => Some(format!(
            "schema is older than this binary (function set {set}, wanted {FUNCTION_SET}): run `tuskline migrate`"
        )),
        Some(set) if Fit::of(set) == Fit::TooNew => Some(format!(
            "schema is of a later major version than this binary (function set {set}, ours {FUNCTION_SET})"
        )),
        Some(_) if readiness.read_only => Some("this server is a standby or read-only".to_owned()),
        Some(_) if !readiness.queues_rebuilt => Some("the queues are not rebuilt yet".to_owned()),
        Some(_) => None,
    }
}
