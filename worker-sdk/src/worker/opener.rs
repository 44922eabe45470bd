//! How a registered worker opens its connections, and how it asks for a recovery.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use crate::db::address::Address;
use crate::db::connect::{ConnectionError, Session, connect, settle_session};
use crate::db::hsc;
use crate::error::Error;
use crate::worker::connections::Connections;
use crate::worker::outage_log::OutageLog;
use crate::worker::pulse::Pulse;

/// Opens the connections of a registered worker.
#[derive(Debug, Clone)]
pub(crate) struct Opener {
    pub address: Address,
    /// The role that is set for each call, behind a pooler.
    pub role: Option<Arc<str>>,
    /// Longest wait for an answer, and for a connection.
    pub limit: Duration,
    /// A transaction pooler stands between.
    pub pooled: bool,
    /// Function set of the database at the registration.
    pub functions: i32,
    pub pulse: Arc<Pulse>,
    pub connections: Arc<Connections>,
    pub outage_log: Arc<OutageLog>,
}

impl Opener {
    /// Opens a connection, once the heartbeat has its own. A heartbeat is the first statement on it. So a
    /// copy of an earlier state under the same address is noticed before anything is claimed from it.
    pub(crate) async fn open(&self) -> Result<Session, ConnectionError> {
        let open = async {
            self.connections.until_heartbeat().await;
            let session = open(&self.address, self.role.as_ref(), self.limit, self.pooled).await?;
            self.pulse.prove(&session).await?;
            Ok(session)
        };
        timeout(self.limit, open).await.unwrap_or_else(|_| Err("connecting took too long".into()))
    }
}

/// Makes a database ready that was restarted, promoted or restored. On a session of its own without a
/// deadline for statements: where the queues were lost, every open segment is read.
///
/// # Errors
/// It failed, or takes long. Either is tried again.
pub(crate) async fn recover(
    address: &Address,
    role: Option<&Arc<str>>,
    limit: Duration,
) -> Result<(), Error> {
    tracing::debug!("the server was restarted or promoted, or the database restored: recovering");
    let rebuild = async {
        let mut client = connect(address, limit).await?;
        client.act_as(role);
        hsc::rebuild_queues(&client).await
    };
    match timeout(limit * 4, rebuild).await {
        Ok(Ok(true)) => tracing::warn!("this database is a copy: nothing is claimed for one lease"),
        Ok(Ok(false)) => tracing::debug!("recovered"),
        Ok(Err(error)) => {
            let error = Error::from_read(error);
            return Err(Error::unavailable(format!("the recovery failed: {error:#}")));
        }
        Err(_) => return Err(Error::unavailable("the recovery takes long; it is tried again")),
    }
    Ok(())
}

/// A connection with the session settings of a worker. `role`: set for each call.
pub(crate) async fn open(
    address: &Address,
    role: Option<&Arc<str>>,
    limit: Duration,
    pooled: bool,
) -> Result<Session, tokio_postgres::Error> {
    let mut session = connect(address, limit).await?;
    session.act_as(role);
    if !pooled {
        settle_session(&session, limit).await?;
    }
    Ok(session)
}
