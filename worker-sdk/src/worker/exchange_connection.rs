//! An exchange connection: it exchanges results for new tasks, as the controller plans.
//!
//! One of them has the turn to plan, and keeps it through a short exchange: others would race it to nearly
//! empty queues (measured: three took the CPU of producers, 8,400 in place of 11,000 tasks/s over 100
//! lambdas). A long exchange passes the turn on, for more of a backlog and for what shall not wait behind
//! it. So does one that is not answered soon.
//!
//! A result is never dropped. When a call breaks, its outcome is unknown, and the same results are sent
//! again; their fences make that harmless. The claim of a broken call is forgotten. If it was made, the
//! heartbeat finds its lease and gives it back.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::db::backoff::Backoff;
use crate::db::connect::{ConnectionError, Session, in_time};
use crate::db::hsc::{ExchangeSession, Reply, Verdict};
use crate::error::queues_not_rebuilt;
use crate::worker::connections;
use crate::worker::controller::{Brought, Controller, ExchangePlan};
use crate::worker::database::Database;
use crate::worker::executors::Executors;
use crate::worker::opener::{Opener, recover};
use crate::worker::watchdog::Loss;

/// The failure of this part, as it is logged.
const FAILED: &str = "exchange failed; its results will be sent again";

/// A short exchange that takes longer waits for something: a lock, a far server, a lost connection.
const SHORT: Duration = Duration::from_millis(50);

/// The turn to plan an exchange.
pub(crate) type Turn = OwnedMutexGuard<()>;

pub(crate) struct ExchangeConnection {
    pub controller: Arc<Controller>,
    pub db: Arc<Database>,
    pub executors: Arc<Executors>,
    pub draining: CancellationToken,
    /// The connection that has locked it has the turn.
    pub turn: Arc<Mutex<()>>,
}

impl ExchangeConnection {
    /// Exchanges until the controller has drained; on the session and with the turn that it is given, if any.
    pub(crate) async fn run(self, session: Option<Session>, mut turn: Option<Turn>) {
        let opener = &self.db.opener;
        let mut open = match session {
            Some(session) => {
                ExchangeSession::on(session, opener.pooled, opener.functions).await.ok()
            }
            None => None,
        };
        // It outlives a plan: the rest grows while claims are refused again and again.
        let mut backoff = Backoff::default();
        loop {
            let plan = tokio::select! {
                plan = self.next_plan(&mut turn) => plan,
                () = opener.connections.asked_to_close(), if open.is_some() => {
                    (open, turn) = (None, None);
                    self.rest(&mut ExchangePlan::default()).await;
                    continue;
                }
            };
            let Some(mut plan) = plan else { return };
            turn = turn.filter(|_| !plan.is_long());
            let exchange = self.carry_out(&mut open, &mut plan, &mut backoff);
            tokio::pin!(exchange);
            if turn.is_some() && timeout(SHORT, &mut exchange).await.is_err() {
                turn = None;
            }
            if turn.is_none() {
                exchange.await;
                self.controller.exchange_ended();
            }
        }
    }

    async fn next_plan(&self, turn: &mut Option<Turn>) -> Option<Box<ExchangePlan>> {
        if turn.is_none() {
            *turn = Some(Arc::clone(&self.turn).lock_owned().await);
        }
        self.controller.next_exchange().await
    }

    /// Exchanges until the results of the plan are recorded, or another connection sends them.
    async fn carry_out(
        &self,
        open: &mut Option<ExchangeSession>,
        plan: &mut ExchangePlan,
        backoff: &mut Backoff,
    ) {
        loop {
            let beats = self.db.opener.outage_log.beats();
            match self.exchange(open, plan).await {
                Ok(reply) => {
                    self.db.opener.outage_log.works(FAILED);
                    if self.settle(plan, reply).await {
                        backoff.reset();
                        return;
                    }
                }
                Err(error) => {
                    self.db.opener.outage_log.failed(FAILED, &error);
                    if error.late {
                        let max_batch = self.controller.was_late(plan);
                        // Else it may be an outage.
                        if self.db.opener.outage_log.beats() > beats {
                            tracing::warn!(
                                max_batch,
                                "claims are smaller from now on: the last one was not answered in time"
                            );
                        }
                    }
                    self.controller.unclaim(plan);
                    if error.shortage && self.rest(plan).await {
                        return;
                    }
                    if plan.request().is_empty() {
                        self.controller.acknowledged(plan, |_| Verdict::Done);
                        tokio::time::sleep(backoff.rest()).await;
                        return;
                    }
                }
            }
            tokio::time::sleep(backoff.rest()).await;
        }
    }

    /// Rests without a connection. False: no second exchange connection is left, or the worker drains.
    async fn rest(&self, plan: &mut ExchangePlan) -> bool {
        if self.draining.is_cancelled() || !self.controller.rest_connection(plan) {
            return false;
        }
        tokio::select! {
            () = tokio::time::sleep(connections::pause()) => {}
            () = self.draining.cancelled() => {}
        }
        self.controller.connection_returns();
        true
    }

    /// False: the commit is uncertain, so the results are sent again. Their fences make that harmless,
    /// and a standby that was promoted without them needs them. Claimed tasks stay, as after any
    /// failover, until their fences are refused.
    async fn settle(&self, plan: &mut ExchangePlan, reply: Reply) -> bool {
        let Reply { alive, verdicts, claimed, uncertain } = reply;
        if !alive {
            self.db.opener.pulse.watchdog.condemn(Loss::Ended);
        }
        for task in &verdicts.refused {
            tracing::debug!(task, "result refused: the attempt is no longer ours");
        }
        if let Some((lease, tasks)) = claimed.as_ref().and_then(|c| Some((c.lease?, &c.tasks))) {
            let tasks = || tasks.iter().map(|task| task.id).collect::<Vec<_>>();
            // A test that keeps a history of the worker reads this from the trace.
            tracing::trace!(lease = lease.0, tasks = ?tasks(), "claimed");
        }
        let settled = !(uncertain && plan.has_results());
        if settled {
            self.controller.acknowledged(plan, |one| verdicts.on(one.attempt.task));
        }
        match self.controller.claimed(plan, claimed) {
            Brought::Tasks(wanted) => self.executors.start(&wanted),
            Brought::TooLate(lease) => self.db.control.release_lease(lease).await,
        }
        settled
    }

    async fn exchange(
        &self,
        open: &mut Option<ExchangeSession>,
        plan: &ExchangePlan,
    ) -> Result<Reply, ConnectionError> {
        let opener = &self.db.opener;
        let request = plan.request();
        loop {
            let reused = open.take().filter(|session| !session.is_closed());
            let is_new = reused.is_none();
            let session = match reused {
                Some(session) => session,
                None => open_session(opener).await?,
            };
            let began = Instant::now();
            match timeout(opener.limit, session.exchange(self.db.executor, &request)).await {
                // A former primary may say so that still runs, and a new connection begins with a heartbeat.
                Ok(Ok(reply)) if !reply.alive && !is_new => {}
                Ok(Ok(reply)) => {
                    self.controller.statistics.exchanged(began.elapsed());
                    *open = Some(session);
                    return Ok(reply);
                }
                Ok(Err(error)) => {
                    if queues_not_rebuilt(&error)
                        && let Err(error) =
                            recover(&opener.address, opener.role.as_ref(), opener.limit).await
                    {
                        return Err(ConnectionError::from(error.to_string().as_str()));
                    }
                    // The session is dropped, and its errors with it.
                    return Err(error.into());
                }
                // The session is dropped: the next call must not read a late answer.
                Err(_) => return Err(ConnectionError::no_answer()),
            }
        }
    }
}

async fn open_session(opener: &Opener) -> Result<ExchangeSession, ConnectionError> {
    let session = opener.open().await?;
    let prepare = ExchangeSession::on(session, opener.pooled, opener.functions);
    in_time(opener.limit, prepare).await
}
