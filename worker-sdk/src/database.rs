//! Where the database is, and who we are to it: what every part of a running worker shares.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use tokio_postgres::Config;

use crate::connect::{Session, Trouble, connect, settle_session};
use crate::connections::Connections;
use crate::controller::Controller;
use crate::hsc;
use crate::pulse::Pulse;
use crate::side::Side;
use crate::work::Work;

/// What every part of the worker needs to reach the database.
#[derive(Debug)]
pub(crate) struct Database {
    pub opener: Opener,
    pub executor: i64,
    pub side: Side,
}

/// What it takes to open a connection of a registered worker.
#[derive(Debug, Clone)]
pub(crate) struct Opener {
    pub config: Config,
    /// Longest wait for an answer, and for a connection.
    pub limit: Duration,
    /// A transaction pooler stands between.
    pub pooled: bool,
    pub pulse: Arc<Pulse>,
    pub connections: Arc<Connections>,
}

impl Opener {
    /// After the heartbeat has its own; a heartbeat is the first that is sent on it, so that a copy of an
    /// earlier state under the same address is noticed before anything is claimed from it.
    pub(crate) async fn open(&self) -> Result<Session, Trouble> {
        let open = async {
            self.connections.until_heard().await;
            let session = open(&self.config, self.limit, self.pooled).await?;
            self.pulse.prove(&session).await?;
            Ok(session)
        };
        timeout(self.limit, open).await.unwrap_or_else(|_| Err("connecting took too long".into()))
    }
}

/// Makes a database ready that was restarted, promoted or restored. On a session of its own without a
/// deadline for statements: where the queues were lost, every open segment is read.
pub(crate) async fn recover(config: &Config, limit: Duration) {
    tracing::info!("the server was restarted or promoted, or the database restored: recovering");
    let rebuild = async {
        let client = connect(config, limit).await?;
        hsc::rebuild_queues(&client).await
    };
    match timeout(limit * 4, rebuild).await {
        Ok(Ok(true)) => tracing::warn!("this database is a copy: nothing is claimed for one lease"),
        Ok(Ok(false)) => tracing::info!("recovered"),
        Ok(Err(error)) => tracing::warn!(%error, "the recovery failed"),
        Err(_) => tracing::warn!("the recovery takes long; it is tried again"),
    }
}

/// A connection with the session settings of a worker.
pub(crate) async fn open(
    config: &Config,
    limit: Duration,
    pooled: bool,
) -> Result<Session, tokio_postgres::Error> {
    let session = connect(config, limit).await?;
    if !pooled {
        settle_session(&session, limit).await?;
    }
    Ok(session)
}

impl Database {
    /// Gives work back; what the database did not answer for, or what others have locked, stays
    /// abandoned, to be tried again.
    pub(crate) async fn give_back(&self, controller: &Controller, back: Vec<Work>) {
        if back.is_empty() {
            return;
        }
        let mut leases = controller.last_leases(&back);
        let Some(moved) = self.side.release(&back, &leases).await else {
            return controller.keep_abandoned(back);
        };
        let (kept, given): (Vec<_>, Vec<_>) =
            back.into_iter().partition(|work| moved.held.contains(&work.task));
        leases.retain(|lease| kept.iter().all(|work| work.lease != *lease));
        let strange = given.iter().filter(|work| !moved.tasks.contains(&work.task));
        controller.refused(strange.map(|work| work.lease));
        controller.given_back(&given, &leases);
        controller.keep_abandoned(kept);
    }
}
