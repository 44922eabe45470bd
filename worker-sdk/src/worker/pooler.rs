//! Whether a transaction pooler stands between the worker and the server.

use std::time::Duration;

use tokio::time::timeout;

use crate::db::address::Address;
use crate::db::connect::{Heard, Session, connect_listening};

/// Longest wait for any answer on the connection.
const ANSWER_LIMIT: Duration = Duration::from_secs(3);
/// Longest wait for the echo of a notification that the server has acknowledged. Behind a pooler, a worker
/// starts later by this.
pub(crate) const ECHO_GRACE: Duration = Duration::from_millis(250);

/// True: a transaction pooler stands between, because a session that listens does not hear itself. A server
/// sends a session its own notification before it ends the statement, so there is next to nothing to wait
/// for. Returns the connection as well: the question costs no second one.
pub(crate) async fn is_pooled(address: &Address) -> Result<(bool, Session), tokio_postgres::Error> {
    let (session, mut heard) = connect_listening(address, ANSWER_LIMIT).await?;
    let echo = format!("tuskline_echo_{}_{}", std::process::id(), fastrand::u32(..));
    session.batch_execute(&format!("listen {echo}")).await?;
    session.batch_execute(&format!("notify {echo}")).await?;
    let heard = timeout(ECHO_GRACE, heard.recv()).await;
    let pooled = !matches!(heard, Ok(Some(Heard { channel, .. })) if channel == echo);
    session.batch_execute(&format!("unlisten {echo}")).await?;
    Ok((pooled, session))
}
