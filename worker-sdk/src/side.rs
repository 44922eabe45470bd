//! The side connection: the rare calls that must wait neither for an exchange nor hold up a
//! heartbeat: start, release.

use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Mutex;
use tokio::time::timeout;
use tokio_postgres::Client;

use crate::backoff::Backoff;
use crate::connect::{Session, on};
use crate::database::Opener;
use crate::hsc::{self, Moved};
use crate::work::Work;

/// Longest wait for a connection that is opened anew: whoever else has a rare call waits for it, too.
const CONNECTION_WAIT: Duration = Duration::from_secs(5);

/// One connection, opened when first needed and again after it broke.
#[derive(Debug)]
pub(crate) struct Side {
    pub(crate) opener: Opener,
    pub(crate) executor: i64,
    /// Drives the connection, whichever executor calls.
    pub(crate) runtime: Handle,
    pub(crate) client: Mutex<Option<Session>>,
}

/// A rare call. Every one is harmless to repeat.
enum Verb<'a> {
    Start { tasks: &'a [i64], fences: &'a [i64] },
    Release { tasks: &'a [i64], fences: &'a [i64], done_leases: &'a [i64] },
    ReleaseLease(i64),
    End,
}

impl Side {
    /// claimed -> processing; answers with the tasks moved, `None` when the database did not answer.
    pub(crate) async fn start(&self, tasks: &[(i64, i64)]) -> Option<Vec<i64>> {
        let (tasks, fences): (Vec<_>, Vec<_>) = tasks.iter().copied().unzip();
        Some(self.call(Verb::Start { tasks: &tasks, fences: &fences }).await?.tasks)
    }

    /// Gives work back. `None`: the database did not answer, and the work may be ours or not.
    pub(crate) async fn release(&self, work: &[Work], done_leases: &[i64]) -> Option<Moved> {
        let tasks: Vec<_> = work.iter().map(|one| one.task).collect();
        let fences: Vec<_> = work.iter().map(|one| one.fence).collect();
        self.call(Verb::Release { tasks: &tasks, fences: &fences, done_leases }).await
    }

    /// Gives back a lease whose tasks nobody here will start.
    pub(crate) async fn release_lease(&self, lease: i64) {
        self.call(Verb::ReleaseLease(lease)).await;
    }

    /// Ends the executor in order.
    pub(crate) async fn end(&self) {
        self.call(Verb::End).await;
    }

    /// A broken call is tried three times, and one that was committed in doubt counts as broken: a standby
    /// that is promoted knows nothing of it.
    async fn call(&self, verb: Verb<'_>) -> Option<Moved> {
        let mut held = self.client.lock().await;
        let mut backoff = Backoff::default();
        for _ in 0..3 {
            let client = match held.take().filter(|client| !client.is_closed()) {
                Some(client) => Some(client),
                None => self.open().await,
            };
            let Some(client) = client else {
                tokio::time::sleep(backoff.rest()).await;
                continue;
            };
            let doubts = client.doubts();
            match timeout(self.opener.limit, self.perform(&client, &verb)).await {
                Ok(Ok(_)) if client.doubts() > doubts => tracing::warn!("side call in doubt"),
                Ok(Ok(value)) => {
                    *held = Some(client);
                    return Some(value);
                }
                Ok(Err(error)) => tracing::warn!(%error, "side call failed"),
                Err(_) => tracing::warn!("side call took too long"),
            }
        }
        None
    }

    async fn perform(
        &self,
        client: &Client,
        verb: &Verb<'_>,
    ) -> Result<Moved, tokio_postgres::Error> {
        match verb {
            Verb::Start { tasks, fences } => hsc::start(client, self.executor, tasks, fences).await,
            Verb::Release { tasks, fences, done_leases } => {
                hsc::release(client, self.executor, tasks, fences, done_leases).await
            }
            Verb::ReleaseLease(lease) => {
                hsc::release_lease(client, self.executor, *lease).await?;
                Ok(Moved::default())
            }
            Verb::End => {
                hsc::end_executor(client, self.executor).await?;
                Ok(Moved::default())
            }
        }
    }

    async fn open(&self) -> Option<Session> {
        let opener = self.opener.clone();
        let opening = on(&self.runtime, async move { opener.open().await });
        let wait = self.opener.limit.min(CONNECTION_WAIT);
        match timeout(wait, opening).await.ok().flatten()? {
            Ok(session) => Some(session),
            Err(trouble) => {
                tracing::warn!(%trouble, "the side connection cannot be opened");
                if trouble.shortage {
                    self.opener.connections.want();
                }
                None
            }
        }
    }
}
