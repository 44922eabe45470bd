//! Heartbeats, on a connection of their own outside any pool, so that no handler that holds every
//! connection and no slow statement can make a live worker look dead.

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::Notify;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::connect::{Backoff, Session, connect};
use crate::controller::Controller;
use crate::database::Database;
use crate::hsc::{self, Beat};
use crate::watchdog::{Watchdog, clock_ns};
use crate::work::Work;

pub(crate) struct Heartbeat {
    pub controller: Arc<Controller>,
    pub db: Arc<Database>,
    pub watchdog: Arc<Watchdog>,
    /// Beat now: somebody asked to cancel one of our tasks.
    pub hurry: Arc<Notify>,
    pub draining: CancellationToken,
}

impl Heartbeat {
    /// Beats until dropped.
    pub(crate) async fn run(self) {
        let mut client = None;
        let mut backoff = Backoff::default();
        let mut overdue = None;
        loop {
            match self.beat(&mut client).await {
                Ok(beat) => {
                    backoff.reset();
                    self.heed(beat);
                    let period = self.controller.config.heartbeat_period;
                    tokio::select! {
                        () = tokio::time::sleep(period) => {}
                        () = self.hurry.notified() => {}
                    }
                }
                Err(trouble) => {
                    tracing::warn!(%trouble, "heartbeat not acknowledged");
                    let nap = backoff.next().min(self.controller.config.heartbeat_period / 4);
                    tokio::time::sleep(nap).await;
                }
            }
            // Twice in a row: this process may have stood still, and the body with it.
            let before = std::mem::replace(&mut overdue, self.controller.overdue(Instant::now()));
            if let Some(task) = overdue.filter(|_| before == overdue) {
                let why = format!("task {task} ignored its deadline and grace");
                crate::watchdog::end_process(&why);
            }
        }
    }

    /// One beat. What counts is when it was sent, and only if it is acknowledged.
    async fn beat(&self, held: &mut Option<Session>) -> Result<Beat, String> {
        let limit = self.controller.config.heartbeat_timeout;
        let client = match held.take().filter(|client| !client.is_closed()) {
            Some(client) => client,
            None => match timeout(limit, connect(&self.db.config, limit)).await {
                Ok(Ok(client)) => client,
                Ok(Err(error)) => return Err(error.to_string()),
                Err(_) => return Err("connecting took too long".into()),
            },
        };
        let draining = self.draining.is_cancelled();
        let leases = self.controller.wants_leases(Instant::now());
        let doubts = client.doubts();
        let sent_ns = clock_ns();
        // A test that keeps a history of the worker reads these two, and `lane`'s, from the trace.
        tracing::trace!(beat = sent_ns, "heartbeat sent");
        match timeout(limit, hsc::heartbeat(&client, self.db.executor, draining, leases)).await {
            // A standby that is promoted knows nothing of it, and would not count it.
            Ok(Ok(_)) if client.doubts() > doubts => Err("committed in doubt".into()),
            Ok(Ok(beat)) => {
                #[cfg(not(mutants))]
                let counts_from = sent_ns;
                #[cfg(mutants)]
                let counts_from = if crate::twin::is("t_from_ack") { clock_ns() } else { sent_ns };
                let alive = beat.alive && self.watchdog.acknowledge(counts_from);
                tracing::trace!(beat = sent_ns, alive, "heartbeat answered");
                if !beat.alive {
                    self.watchdog.condemn();
                }
                *held = Some(client);
                Ok(beat)
            }
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("no answer in time".into()),
        }
    }

    fn heed(&self, beat: Beat) {
        for (task, fence) in beat.cancelled {
            self.controller.stop(task, fence);
        }
        let unknown = beat
            .leases
            .map_or_else(Vec::new, |held| self.controller.unknown_leases(&held, Instant::now()));
        let unreported = self.controller.unreported();
        let back = self.unwanted(&beat.gated);
        if unknown.is_empty() && unreported.is_empty() && back.is_empty() {
            return;
        }
        let (db, controller) = (Arc::clone(&self.db), Arc::clone(&self.controller));
        tokio::spawn(async move {
            if !unreported.is_empty() {
                db.side.start(&unreported).await;
            }
            for lease in unknown {
                tracing::warn!(lease, "a claim whose answer never came: given back");
                db.side.release_lease(lease).await;
            }
            db.give_back(&controller, back).await;
        });
    }

    /// Work that will not be done here. A drain gives back by itself, in its own order.
    fn unwanted(&self, gated: &[(i64, i64)]) -> Vec<Work> {
        if self.draining.is_cancelled() {
            return Vec::new();
        }
        let mut back = self.controller.take_abandoned();
        back.extend(self.controller.take_hoarded(Instant::now()));
        back.extend(self.controller.take_gated(gated));
        back
    }
}
