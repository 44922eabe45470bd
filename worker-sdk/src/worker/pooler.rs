//! Whether a transaction pooler stands between the worker and the server.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use tokio_postgres::error::SqlState;

use crate::db::address::Address;
use crate::db::connect::{Heard, Session, connect_listening};

/// Longest wait for any answer on the connection.
const ANSWER_LIMIT: Duration = Duration::from_secs(3);
/// Longest wait for the echo of a notification that the server has acknowledged. Behind a pooler, a worker
/// starts later by this.
pub(crate) const ECHO_GRACE: Duration = Duration::from_millis(250);

/// The first session of a worker, and what it tells of the way to the server.
pub(crate) struct FirstSession {
    /// For the other sessions.
    pub address: Address,
    /// The role that each call must set, because sessions do not keep it.
    pub role: Option<Arc<str>>,
    /// Sessions keep nothing.
    pub pooled: bool,
    pub session: Session,
}

impl FirstSession {
    /// Opens it, as a role if there is one. A session that has not got the role from its startup parameter is one
    /// of a pooler, also if the echo has come: a pooler at rest may lend the same session twice.
    pub(crate) async fn open(
        address: &Address,
        role: Option<&Arc<str>>,
    ) -> Result<Self, tokio_postgres::Error> {
        if let Some(role) = role {
            let address = address.clone().acting_as(role);
            match is_pooled(&address).await {
                Err(error) if error.code() == Some(&SqlState::PROTOCOL_VIOLATION) => {}
                opened => {
                    let (pooled, session) = opened?;
                    let asked = "select current_setting('role') <> 'none'";
                    if session.query_typed_one(asked, &[]).await?.get(0) {
                        return Ok(Self { address, role: None, pooled, session });
                    }
                }
            }
        }
        let (pooled, mut session) = is_pooled(address).await?;
        session.act_as(role);
        let (address, role) = (address.clone(), role.cloned());
        Ok(Self { address, pooled: pooled || role.is_some(), role, session })
    }
}

/// True: a transaction pooler stands between, because a session that listens does not hear itself. A server
/// sends a session its own notification before it ends the statement, so there is next to nothing to wait
/// for. Returns the connection as well: the question costs no second one.
async fn is_pooled(address: &Address) -> Result<(bool, Session), tokio_postgres::Error> {
    let (session, mut heard) = connect_listening(address, ANSWER_LIMIT).await?;
    let echo = format!("tuskline_echo_{}_{}", std::process::id(), fastrand::u32(..));
    session.batch_execute(&format!("listen {echo}")).await?;
    session.batch_execute(&format!("notify {echo}")).await?;
    let heard = timeout(ECHO_GRACE, heard.recv()).await;
    let pooled = !matches!(heard, Ok(Some(Heard { channel, .. })) if channel == echo);
    session.batch_execute(&format!("unlisten {echo}")).await?;
    Ok((pooled, session))
}
