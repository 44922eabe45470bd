//! Heartbeats, on a connection of their own outside any pool, so that no handler that holds every
//! connection and no slow statement can make a live worker look dead. It is the first connection of a worker.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::db::backoff::Backoff;
use crate::db::connect::{ConnectionError, Session, connect};
use crate::db::hsc::Beat;
use crate::worker::controller::Controller;
use crate::worker::database::Database;
use crate::worker::watchdog::end_process;

/// How long an attempt that goes back waits for others.
const COMPANY: Duration = Duration::from_millis(20);

pub(crate) struct Heartbeat {
    pub controller: Arc<Controller>,
    pub db: Arc<Database>,
    /// Beat now: a cancellation of one of our tasks was requested.
    pub beat_now: Arc<Notify>,
    pub draining: CancellationToken,
}

impl Heartbeat {
    /// Beats until dropped, and with it the calls that it has begun.
    pub(crate) async fn run(self, session: Session) {
        let mut session = Some(session);
        let mut backoff = Backoff::default();
        let mut overdue = None;
        let mut calls = JoinSet::new();
        loop {
            match self.beat(&mut session).await {
                Ok(beat) => {
                    backoff.reset();
                    self.controller.statistics.beat(true);
                    self.db.opener.connections.heartbeat_answered(true);
                    self.db.opener.outage_log.acknowledged();
                    self.act_on(beat, &mut calls);
                    let period = self.controller.config.heartbeat_period;
                    tokio::select! {
                        () = tokio::time::sleep(period) => {}
                        () = self.beat_now.notified() => {}
                        () = self.unwanted() => {}
                        () = ended(&mut session) => {
                            self.db.opener.connections.heartbeat_answered(false);
                            tokio::time::sleep(backoff.rest()).await;
                        }
                    }
                }
                Err(error) => {
                    self.controller.statistics.beat(false);
                    self.db.opener.connections.heartbeat_answered(false);
                    if error.shortage {
                        self.db.opener.connections.ask_to_close();
                    }
                    self.db.opener.outage_log.missed(&error);
                    let pause = backoff.rest().min(self.controller.config.heartbeat_period / 4);
                    tokio::time::sleep(pause).await;
                }
            }
            while calls.try_join_next().is_some() {}
            self.controller.tell_left_out();
            // Twice in a row: this process may have stood still, and the body with it.
            let before = std::mem::replace(&mut overdue, self.controller.overdue(Instant::now()));
            if let Some(task) = overdue.filter(|_| before == overdue) {
                let why = format!("task {task} ignored its deadline and grace");
                end_process(&why);
            }
        }
    }

    /// An attempt goes back: with the next beat, and soon. Others that go back meanwhile come along.
    async fn unwanted(&self) {
        self.controller.abandoned.notified().await;
        tokio::time::sleep(COMPANY).await;
    }

    async fn beat(&self, held: &mut Option<Session>) -> Result<Beat, ConnectionError> {
        let limit = self.controller.config.heartbeat_timeout;
        let mut session = match held.take().filter(|session| !session.is_closed()) {
            Some(session) => session,
            None => match timeout(limit, connect(&self.db.opener.address, limit)).await {
                Ok(opened) => opened?,
                Err(_) => return Err("connecting took too long".into()),
            },
        };
        session.act_as(self.db.opener.role.as_ref());
        let leases = self.controller.wants_leases(Instant::now());
        let beat =
            self.db.opener.pulse.beat(&session, self.draining.is_cancelled(), leases).await?;
        *held = Some(session);
        Ok(beat)
    }

    fn act_on(&self, beat: Beat, calls: &mut JoinSet<()>) {
        for attempt in beat.cancelled {
            self.controller.stop(attempt);
        }
        let now = Instant::now();
        let lost = beat.leases.map(|held| self.controller.lost_claims(&held, now));
        let lost = lost.unwrap_or_default();
        let unreported = self.controller.unreported();
        // A drain gives work back by itself, in its own order.
        let back = match self.draining.is_cancelled() {
            true => Vec::new(),
            false => self.controller.take_unwanted(&beat.gated, now),
        };
        let report = self.controller.report();
        if lost.is_empty() && unreported.is_empty() && back.is_empty() && report.is_none() {
            return;
        }
        let (db, controller) = (Arc::clone(&self.db), Arc::clone(&self.controller));
        calls.spawn(async move {
            if !unreported.is_empty() {
                db.control.start(&unreported).await;
            }
            for lease in lost {
                let lease_id = lease.0;
                tracing::warn!(
                    lease = lease_id,
                    "a claim whose answer was lost: its lease is released"
                );
                db.control.release_lease(lease).await;
            }
            db.give_back(&controller, back).await;
            if let Some(report) = report {
                db.control.report(&report).await;
            }
        });
    }
}

/// Waits until the heartbeat's connection has ended. A lost one is noticed here, not with the next beat:
/// until then the other connections would be opened first.
async fn ended(held: &mut Option<Session>) {
    match held {
        Some(session) => session.ended().await,
        None => std::future::pending().await,
    }
}
