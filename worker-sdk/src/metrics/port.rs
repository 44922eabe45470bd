//! The connections of a port for short HTTP requests. Each is for one request.
//!
//! Promises: connections that send nothing do not keep a request from its answer. A connection with
//! a request is never cut for a new one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet, yield_now};
use tokio::time::sleep;

/// Pause after an accept that failed, for example because no file descriptor is left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Whether the request of a connection has arrived.
#[derive(Debug, Clone, Default)]
pub struct HasRequest(Arc<AtomicBool>);

impl HasRequest {
    /// The request has arrived.
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

struct Connection {
    task: AbortHandle,
    has_request: HasRequest,
}

/// Accepts connections until dropped, and answers each in a task of its own. At most `most` are
/// open: a new one replaces the oldest connection without a request.
pub async fn accept<A>(
    listener: &TcpListener,
    most: usize,
    tasks: &mut JoinSet<()>,
    answer: impl Fn(TcpStream, HasRequest) -> A,
) where
    A: Future<Output = ()> + Send + 'static,
{
    let mut open = Vec::<Connection>::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            sleep(ACCEPT_PAUSE).await;
            continue;
        };
        while tasks.try_join_next().is_some() {}
        open.retain(|connection| !connection.task.is_finished());
        if open.len() >= most && !make_room(&mut open).await {
            continue;
        }
        let has_request = HasRequest::default();
        let task = tasks.spawn(answer(stream, has_request.clone()));
        open.push(Connection { task, has_request });
    }
}

/// Cuts the oldest connection without a request. False: each one has a request.
async fn make_room(open: &mut Vec<Connection>) -> bool {
    // After a burst, requests may have arrived that no task has read yet.
    yield_now().await;
    let silent = open.iter().position(|one| !one.has_request.0.load(Ordering::Relaxed));
    silent.map(|at| open.remove(at).task.abort()).is_some()
}
