//! Waiting for the end of tasks. One connection of a client listens for all its calls that wait. A
//! notification may be lost, so each call also looks at its task from time to time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_postgres::types::Type;

use crate::client::Client;
use crate::client::status::TaskStatus;
use crate::db::address::Address;
use crate::db::backoff::Backoff;
use crate::db::connect::{ConnectionError, Heard, Notifications, Session, connect_listening};
use crate::error::{Error, ErrorKind};
use crate::task::{Privilege, TaskId};

/// Longest time between two looks at a task, when notifications can be heard.
const LONGEST_REST: Duration = Duration::from_secs(1);
/// The first rest; doubled each time. Many tasks end before a notification could be asked for.
const FIRST_REST: Duration = Duration::from_millis(5);
/// Longest wait for any answer on the listening connection.
const ANSWER_LIMIT: Duration = Duration::from_secs(3);

impl Client {
    /// [`Client::wait`].
    pub(super) async fn until_ended(
        &self,
        task: TaskId,
        limit: Duration,
    ) -> Result<Option<TaskStatus>, Error> {
        // None: a limit beyond any clock.
        let until = Instant::now().checked_add(limit);
        let mut rest = FIRST_REST;
        let mut waiting = None;
        let mut asked = false;
        loop {
            let Some(status) = self.status(task).await? else { return Ok(None) };
            let over = until.is_some_and(|until| Instant::now() >= until);
            if status.status.is_terminal() && !status.shows_contents() {
                self.check_shown(task, &[Privilege::Inspect]).await?;
            }
            if status.status.is_terminal() || over {
                return Ok(Some(status));
            }
            let ended = async {
                match &mut waiting {
                    Some(Waiting { ended, .. }) => drop(ended.changed().await),
                    None => std::future::pending().await,
                }
            };
            let _ = timeout_at(earlier(until, rest), ended).await;
            rest = (rest * 2).min(LONGEST_REST);
            // Short tasks are over by now. For a long one it pays to ask for a notification.
            if waiting.is_none() && rest > FIRST_REST * 2 {
                waiting = self.sender.end_listener.listen(task);
            }
            if waiting.is_some() && !asked {
                asked = self.await_end(task, earlier(until, self.sender.deadline)).await;
            }
        }
    }

    /// Asks for a notification. False: none will come, and the call goes on looking.
    async fn await_end(&self, task: TaskId, until: Instant) -> bool {
        let Ok(Ok(connection)) = timeout_at(until, self.sender.pool.get()).await else {
            return false;
        };
        let sql = "select tuskline.await_end($1)";
        let call = async {
            let asked = self.sender.ask(&connection, sql, &[(&task.0, Type::INT8)]).await;
            asked.map(drop).map_err(Error::from_write)
        };
        let answer = timeout_at(until, call).await;
        let asked = self.sender.answered(connection, answer.ok(), ErrorKind::Unknown);
        asked
            .inspect_err(|error| {
                tracing::debug!("no notification of an end; polling instead: {error:#}")
            })
            .is_ok()
    }
}

/// After `rest`, and not after `until`.
fn earlier(until: Option<Instant>, rest: Duration) -> Instant {
    let rested = Instant::now() + rest;
    until.map_or(rested, |until| until.min(rested))
}

/// Hears of the ends of tasks. Its connection is opened by the first call that waits.
#[derive(Debug, Default)]
pub(crate) struct EndListener {
    /// None: the pool was given to us, and we cannot hear its notifications.
    address: Option<Address>,
    /// Drives its connection; none: the runtime of the first call that waits.
    runtime: Option<Handle>,
    asks: OnceLock<mpsc::UnboundedSender<Ask>>,
    waits: Arc<Mutex<Waits>>,
}

/// By task: tells the calls that wait for its end, and counts them.
type Waits = HashMap<i64, (watch::Sender<()>, usize)>;

#[derive(Debug)]
enum Ask {
    Listen(i64),
    Forget(i64),
}

/// A call waits for a task for as long as this lives.
#[derive(Debug)]
struct Waiting {
    ended: watch::Receiver<()>,
    task: i64,
    waits: Arc<Mutex<Waits>>,
    asks: mpsc::UnboundedSender<Ask>,
}

impl EndListener {
    pub(crate) fn on(address: Address, runtime: Option<Handle>) -> Self {
        Self { address: Some(address), runtime, ..Self::default() }
    }

    fn listen(&self, TaskId(task): TaskId) -> Option<Waiting> {
        let address = self.address.as_ref()?;
        let asks = self.asks.get_or_init(|| {
            let (asks, asked) = mpsc::unbounded_channel();
            let runtime = self.runtime.clone().unwrap_or_else(Handle::current);
            runtime.spawn(hear(address.clone(), asked, Arc::clone(&self.waits)));
            asks
        });
        let mut waits = self.waits.lock().unwrap_or_else(PoisonError::into_inner);
        let (tell, waiting) = waits.entry(task).or_insert_with(|| (watch::Sender::new(()), 0));
        *waiting += 1;
        let ended = tell.subscribe();
        let _ = asks.send(Ask::Listen(task));
        Some(Waiting { ended, task, waits: Arc::clone(&self.waits), asks: asks.clone() })
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut waits = self.waits.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((_, waiting)) = waits.get_mut(&self.task) else { return };
        *waiting -= 1;
        if *waiting == 0 {
            waits.remove(&self.task);
            let _ = self.asks.send(Ask::Forget(self.task));
        }
    }
}

/// Listens until no client is left that could wait.
async fn hear(address: Address, mut asked: mpsc::UnboundedReceiver<Ask>, waits: Arc<Mutex<Waits>>) {
    let mut backoff = Backoff::default();
    loop {
        match timeout(ANSWER_LIMIT, connect_listening(&address, ANSWER_LIMIT)).await {
            Ok(Ok((session, channels))) => {
                backoff.reset();
                if serve(&session, channels, &mut asked, &waits).await {
                    return;
                }
            }
            Ok(Err(error)) => {
                tracing::debug!(error = %ConnectionError::from(error), "no notifications of ends; polling instead")
            }
            Err(_) => tracing::debug!("no notifications of ends: no answer; polling instead"),
        }
        sleep(backoff.rest()).await;
        if asked.is_closed() && asked.is_empty() {
            return;
        }
    }
}

/// True: no client is left. False: the connection is lost.
async fn serve(
    session: &Session,
    mut channels: Notifications,
    asked: &mut mpsc::UnboundedReceiver<Ask>,
    waits: &Mutex<Waits>,
) -> bool {
    let before: Vec<i64> = {
        let waits = waits.lock().unwrap_or_else(PoisonError::into_inner);
        // A task may have ended before we listened: each call looks once more.
        waits.values().for_each(|(tell, _)| tell.send_replace(()));
        waits.keys().copied().collect()
    };
    let listen: String =
        before.iter().map(|task| format!("listen tuskline_ended_{task};")).collect();
    if !answered(session, &listen).await {
        return false;
    }
    loop {
        tokio::select! {
            heard = channels.recv() => {
                let Some(Heard { channel, .. }) = heard else { return false };
                let task = channel.strip_prefix("tuskline_ended_").and_then(|id| id.parse().ok());
                let waits = waits.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some((tell, _)) = task.and_then(|task: i64| waits.get(&task)) {
                    tell.send_replace(());
                }
            }
            ask = asked.recv() => {
                let sql = match ask {
                    Some(Ask::Listen(task)) => format!("listen tuskline_ended_{task}"),
                    Some(Ask::Forget(task)) => format!("unlisten tuskline_ended_{task}"),
                    None => return true,
                };
                if !answered(session, &sql).await {
                    return false;
                }
            }
        }
    }
}

async fn answered(session: &Session, sql: &str) -> bool {
    matches!(timeout(ANSWER_LIMIT, session.batch_execute(sql)).await, Ok(Ok(())))
}
