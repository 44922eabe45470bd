//! The control connection: the rare calls that must not wait for an exchange nor delay a heartbeat.

use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Mutex;
use tokio::time::timeout;

use crate::db::backoff::Backoff;
use crate::db::connect::{ConnectionError, Session, on};
use crate::db::hsc::{self, Attempt, LeaseId, Released, Report};
use crate::worker::opener::Opener;
use crate::worker::transition_log;

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
    pub(crate) session: Mutex<Option<Session>>,
}

/// A rare call. Each is harmless to repeat, except a report.
enum Call<'a> {
    Start(&'a [Attempt]),
    Release(&'a [Attempt], &'a [LeaseId]),
    ReleaseLease(LeaseId),
    Report(&'a Report),
    End,
}

impl ControlConnection {
    /// claimed -> processing. Returns the tasks that were moved; `None`: the database did not answer.
    pub(crate) async fn start(&self, attempts: &[Attempt]) -> Option<Vec<i64>> {
        let tasks = self.call(Call::Start(attempts)).await?.tasks;
        for attempt in attempts.iter().filter(|attempt| tasks.contains(&attempt.task)) {
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
        self.call(Call::Release(attempts, ended_leases)).await
    }

    /// Gives back a lease whose tasks no executor will start.
    pub(crate) async fn release_lease(&self, lease: LeaseId) {
        self.call(Call::ReleaseLease(lease)).await;
    }

    /// Reports the counts. Returns false if there was no answer: then the report is lost, or it has
    /// arrived.
    pub(crate) async fn report(&self, report: &Report) -> bool {
        self.call(Call::Report(report)).await.is_some()
    }

    /// Ends the executor in order.
    pub(crate) async fn end(&self) {
        self.call(Call::End).await;
    }

    /// Makes a call, at most three times; a report once. A call whose commit is uncertain counts as
    /// broken: a standby that is promoted may know nothing of it.
    async fn call(&self, call: Call<'_>) -> Option<Released> {
        let mut held = self.session.lock().await;
        let mut backoff = Backoff::default();
        let tries = if matches!(call, Call::Report(_)) { 1 } else { 3 };
        for _ in 0..tries {
            let session = match held.take().filter(|session| !session.is_closed()) {
                Some(session) => Some(session),
                None => self.open().await,
            };
            let Some(session) = session else {
                tokio::time::sleep(backoff.rest()).await;
                continue;
            };
            let uncertain = session.uncertain_commits();
            match timeout(self.opener.limit, self.make(&session, &call)).await {
                Ok(Ok(_)) if session.uncertain_commits() > uncertain => {
                    tracing::warn!("the commit of a control call is uncertain");
                }
                Ok(Ok(value)) => {
                    *held = Some(session);
                    self.opener.outage_log.works(FAILS);
                    self.opener.outage_log.works(CANNOT_OPEN);
                    return Some(value);
                }
                Ok(Err(error)) => {
                    self.opener.outage_log.failed(FAILS, &ConnectionError::from(error))
                }
                Err(_) => self.opener.outage_log.failed(FAILS, &ConnectionError::no_answer()),
            }
        }
        None
    }

    async fn make(
        &self,
        session: &Session,
        call: &Call<'_>,
    ) -> Result<Released, tokio_postgres::Error> {
        let executor = self.executor;
        match call {
            Call::Start(attempts) => {
                let tasks = hsc::start(session, executor, attempts).await?;
                return Ok(Released { tasks, locked: Vec::new() });
            }
            Call::Release(attempts, leases) => {
                return hsc::release(session, executor, attempts, leases).await;
            }
            Call::ReleaseLease(lease) => hsc::release_lease(session, executor, *lease).await?,
            Call::Report(report) => hsc::report_attempts(session, executor, report).await?,
            Call::End => hsc::end_executor(session, executor).await?,
        }
        Ok(Released::default())
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
