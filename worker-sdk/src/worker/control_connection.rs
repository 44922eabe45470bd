//! The control connection: the rare calls that must not wait for an exchange nor delay a heartbeat.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Mutex;
use tokio::time::timeout;

use crate::db::backoff::Backoff;
use crate::db::connect::{Session, in_time, on};
use crate::db::hsc::{self, Attempt, LeaseId, Released, Report};
use crate::worker::opener::Opener;
use crate::worker::transition_log;
use crate::worker::work::{Crash, Work};

/// Longest wait for a connection that is opened again: each rare call waits for it.
const CONNECTION_WAIT: Duration = Duration::from_secs(5);

/// The failures of this part, as they are logged.
const FAILS: &str = "control call failed";
const CANNOT_OPEN: &str = "the control connection cannot be opened";

/// One connection, opened when first needed and again after it broke.
#[derive(Debug)]
pub(crate) struct ControlConnection {
    pub(crate) opener: Opener,
    pub(crate) executor: i64,
    /// Drives the connection, whichever executor calls.
    pub(crate) runtime: Handle,
    pub(crate) session: Mutex<Option<Arc<Session>>>,
}

/// Tries of a call that is harmless to repeat.
const TRIES: usize = 3;

impl ControlConnection {
    /// claimed -> processing. Returns the tasks that were moved; `None`: the database did not answer.
    pub(crate) async fn start(&self, attempts: &[(Attempt, Option<i32>)]) -> Option<Vec<i64>> {
        let start = |session: Arc<Session>| async move {
            hsc::start(&session, self.executor, attempts).await
        };
        let tasks = self.call(TRIES, start).await?;
        for (attempt, _) in attempts.iter().filter(|(attempt, _)| tasks.contains(&attempt.task)) {
            transition_log::processing(attempt.task, attempt.fence);
        }
        Some(tasks)
    }

    /// Gives work back. `None`: the database did not answer, and the work may be ours or not.
    pub(crate) async fn release(
        &self,
        attempts: &[Attempt],
        ended_leases: &[LeaseId],
    ) -> Option<Released> {
        let release = |session: Arc<Session>| async move {
            hsc::release(&session, self.executor, attempts, ended_leases).await
        };
        self.call(TRIES, release).await
    }

    /// Reports attempts whose processes have ended. `None`: the database did not answer.
    pub(crate) async fn report_crashes(
        &self,
        crashed: &[Work],
        ended_leases: &[LeaseId],
    ) -> Option<Released> {
        let crashes = crashed.iter().filter_map(|work| {
            let Crash { class, reason } = work.crash.as_deref()?;
            Some((work.id(), &**class, &**reason))
        });
        let crashes: Vec<_> = crashes.collect();
        let report = |session: Arc<Session>| {
            let crashes = &crashes;
            async move { hsc::report_crashes(&session, self.executor, crashes, ended_leases).await }
        };
        self.call(TRIES, report).await
    }

    /// Gives back a lease whose tasks no executor will start.
    pub(crate) async fn release_lease(&self, lease: LeaseId) {
        let release = |session: Arc<Session>| async move {
            hsc::release_lease(&session, self.executor, lease).await
        };
        self.call(TRIES, release).await;
    }

    /// Reports the counts. Returns false if there was no answer: then the report is lost, or it has
    /// arrived.
    pub(crate) async fn report(&self, report: &Report) -> bool {
        let send = |session: Arc<Session>| async move {
            hsc::report_attempts(&session, self.executor, report).await
        };
        self.call(1, send).await.is_some()
    }

    /// Ends the executor in order.
    pub(crate) async fn end(&self) {
        let end =
            |session: Arc<Session>| async move { hsc::end_executor(&session, self.executor).await };
        self.call(TRIES, end).await;
    }

    /// Makes a call, at most so many times. A call whose commit is uncertain counts as broken: a standby that
    /// is promoted may know nothing of it.
    async fn call<T, F>(&self, tries: usize, call: impl Fn(Arc<Session>) -> F) -> Option<T>
    where
        F: Future<Output = Result<T, tokio_postgres::Error>>,
    {
        let mut held = self.session.lock().await;
        let mut backoff = Backoff::default();
        for _ in 0..tries {
            let session = match held.take().filter(|session| !session.is_closed()) {
                Some(session) => Some(session),
                None => self.open().await.map(Arc::new),
            };
            let Some(session) = session else {
                tokio::time::sleep(backoff.rest()).await;
                continue;
            };
            let uncertain = session.uncertain_commits();
            match in_time(self.opener.limit, call(Arc::clone(&session))).await {
                Ok(_) if session.uncertain_commits() > uncertain => {
                    tracing::warn!("the commit of a control call is uncertain");
                }
                Ok(value) => {
                    *held = Some(session);
                    self.opener.outage_log.works(FAILS);
                    self.opener.outage_log.works(CANNOT_OPEN);
                    return Some(value);
                }
                Err(error) => self.opener.outage_log.failed(FAILS, &error),
            }
        }
        None
    }

    async fn open(&self) -> Option<Session> {
        let opener = self.opener.clone();
        let opening = on(&self.runtime, async move { opener.open().await });
        let wait = self.opener.limit.min(CONNECTION_WAIT);
        match timeout(wait, opening).await.ok().flatten()? {
            Ok(session) => Some(session),
            Err(error) => {
                self.opener.outage_log.failed(CANNOT_OPEN, &error);
                if error.shortage {
                    self.opener.connections.ask_to_close();
                }
                None
            }
        }
    }
}
