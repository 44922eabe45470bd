//! Connections of our own, outside any pool: their notifications and warnings are not lost, and a
//! silent death of the network is noticed (keepalive, `tcp_user_timeout`; the callers add deadlines
//! and probes).

use std::convert::Infallible;
use std::fmt;
use std::future::poll_fn;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_postgres::error::SqlState;
use tokio_postgres::{AsyncMessage, Client, Connection, Notification, Row};

use crate::db::Parameters;
use crate::db::address::Address;
use crate::db::multi_host::connect_in_turn;
use crate::db::role::in_role;
use crate::db::uncertain_commit::UncertainCommits;

/// Notifications, as they come.
pub(crate) type Notifications = mpsc::UnboundedReceiver<Heard>;

#[derive(Debug)]
pub(crate) struct Heard {
    pub channel: String,
    /// The queue, on the channel of a bell; else empty.
    pub payload: String,
}

/// How long a connection may take to say good-bye.
const PARTING: Duration = Duration::from_millis(500);

/// A connection of ours. It ends when this is dropped, also when a call on it was never answered:
/// else the server would keep its session, and with it the locks of sleeping queues.
#[derive(Debug)]
pub(crate) struct Session {
    client: Client,
    uncertain: UncertainCommits,
    /// Set for each call: a pooler stands between.
    role: Option<Arc<str>>,
    _held: oneshot::Sender<Infallible>,
}

impl Deref for Session {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl Session {
    /// Uncertain commits so far. If a call raises the number, its commit is uncertain.
    pub(crate) fn uncertain_commits(&self) -> u64 {
        self.uncertain.count()
    }

    /// Waits until the connection has ended: the server closed it, or it broke.
    pub(crate) async fn ended(&mut self) {
        self._held.closed().await;
    }

    /// Sets this role for each call from now on.
    pub(crate) fn act_as(&mut self, role: Option<&Arc<str>>) {
        self.role = role.cloned();
    }

    /// As the call of tokio-postgres, in the role. Must never: be a statement of more than one transaction.
    pub(crate) async fn query_typed(
        &self,
        sql: &str,
        parameters: &Parameters<'_>,
    ) -> Result<Vec<Row>, tokio_postgres::Error> {
        self.in_role(self.client.query_typed(sql, parameters)).await
    }

    /// The same for one row.
    pub(crate) async fn query_typed_one(
        &self,
        sql: &str,
        parameters: &Parameters<'_>,
    ) -> Result<Row, tokio_postgres::Error> {
        self.in_role(self.client.query_typed_one(sql, parameters)).await
    }

    async fn in_role<T>(
        &self,
        call: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, tokio_postgres::Error> {
        match &self.role {
            Some(role) => in_role(&self.client, role, call).await,
            None => call.await,
        }
    }
}

impl DerefMut for Session {
    fn deref_mut(&mut self) -> &mut Client {
        &mut self.client
    }
}

/// The error of a connection as a text for the log.
#[derive(Debug)]
pub(crate) struct ConnectionError {
    text: String,
    /// The server has no connection left for us.
    pub(crate) shortage: bool,
    /// There was no answer in time, or the server ended the statement for that.
    pub(crate) late: bool,
}

impl ConnectionError {
    /// No answer within the time that a call may take.
    pub(crate) fn no_answer() -> Self {
        Self { late: true, ..Self::from("no answer in time") }
    }
}

impl From<tokio_postgres::Error> for ConnectionError {
    fn from(error: tokio_postgres::Error) -> Self {
        let shortage = [SqlState::TOO_MANY_CONNECTIONS, SqlState::CONFIGURATION_LIMIT_EXCEEDED];
        let shortage = error.code().is_some_and(|code| shortage.contains(code));
        let text = match error.as_db_error() {
            Some(refusal) => format!("{} {}", refusal.code().code(), refusal.message()),
            None => error.to_string(),
        };
        let late = error.code() == Some(&SqlState::QUERY_CANCELED);
        Self { text, shortage, late }
    }
}

impl From<&str> for ConnectionError {
    fn from(text: &str) -> Self {
        Self { text: text.to_owned(), shortage: false, late: false }
    }
}

impl fmt::Display for ConnectionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The answer to a call, within a time.
pub(crate) async fn in_time<T>(
    limit: Duration,
    call: impl Future<Output = Result<T, tokio_postgres::Error>>,
) -> Result<T, ConnectionError> {
    match timeout(limit, call).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err("no answer in time".into()),
    }
}

pub(crate) async fn connect(
    address: &Address,
    limit: Duration,
) -> Result<Session, tokio_postgres::Error> {
    open(address, limit, |_| {}).await
}

/// Opens one connection that will listen. The receiver ends when the connection does.
pub(crate) async fn connect_listening(
    address: &Address,
    limit: Duration,
) -> Result<(Session, Notifications), tokio_postgres::Error> {
    let (send, receive) = mpsc::unbounded_channel();
    let session = open(address, limit, move |notification| {
        // The receiver may be gone while the connection lives on.
        let channel = notification.channel().to_owned();
        let _ = send.send(Heard { channel, payload: notification.payload().to_owned() });
    })
    .await?;
    Ok((session, receive))
}

/// Does `work` on a runtime, which then drives each connection that the work opens. The caller's runtime
/// may have threads that are blocked. Dropped with this future; `None`: the runtime is gone.
pub(crate) async fn on<T: Send + 'static>(
    runtime: &Handle,
    work: impl Future<Output = T> + Send + 'static,
) -> Option<T> {
    let mut working = JoinSet::new();
    working.spawn_on(work, runtime);
    working.join_next().await?.ok()
}

async fn open(
    address: &Address,
    limit: Duration,
    notified: impl Fn(Notification) + Send + 'static,
) -> Result<Session, tokio_postgres::Error> {
    let address = address.clone().with(|config| {
        config
            .connect_timeout(limit)
            .keepalives(true)
            .keepalives_idle(Duration::from_secs(5))
            .keepalives_interval(Duration::from_secs(2))
            .keepalives_retries(3)
            .tcp_user_timeout(Duration::from_secs(10));
        if config.get_application_name().is_none() {
            config.application_name("tuskline-worker");
        }
    });
    let (client, connection) = connect_in_turn(&address, |hosts| limit / hosts).await?;
    let uncertain = UncertainCommits::default();
    let heard = uncertain.clone();
    let mut driver = tokio::spawn(drive(connection, move |message| match message {
        AsyncMessage::Notification(notification) => notified(notification),
        AsyncMessage::Notice(notice) => heard.hear(&notice),
        _ => {}
    }));
    let (held, dropped) = oneshot::channel();
    tokio::spawn(async move {
        tokio::select! {
            _ = &mut driver => return,
            _ = dropped => {}
        }
        if timeout(PARTING, &mut driver).await.is_err() {
            driver.abort();
        }
    });
    Ok(Session { client, uncertain, role: None, _held: held })
}

/// Drives a connection to its end, and hears what the server says between the answers.
pub async fn drive<S, T>(mut connection: Connection<S, T>, hear: impl Fn(AsyncMessage))
where
    S: AsyncRead + AsyncWrite + Unpin,
    T: AsyncRead + AsyncWrite + Unpin,
{
    while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
        hear(message);
    }
}

/// Session settings of a worker's connections: no statement and no open transaction outlives its use.
pub(crate) async fn settle_session(
    client: &Client,
    limit: Duration,
) -> Result<(), tokio_postgres::Error> {
    // The server's own bound is 24 days.
    let statement_ms = (limit.as_millis() * 2 / 3).min(i32::MAX.unsigned_abs().into());
    client
        .batch_execute(&format!(
            "set statement_timeout = {statement_ms}; set idle_in_transaction_session_timeout = '10s'"
        ))
        .await
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// AuthenticationOk and ReadyForQuery.
    const WELCOME: &[u8] = b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I";

    #[tokio::test]
    async fn a_connection_ends_with_its_session_though_a_call_was_never_answered() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("a port").port();
        let server = tokio::spawn(async move {
            let (mut socket, _) = listener.accept().await.expect("a client");
            let mut startup = [0; 1024];
            let read = socket.read(&mut startup).await.expect("a startup message");
            assert!(read > 0);
            socket.write_all(WELCOME).await.expect("it reads");
            let mut bytes = Vec::new();
            // To its end: it never answers.
            socket.read_to_end(&mut bytes).await.map(|_| bytes)
        });
        let address = format!("postgresql://app@127.0.0.1:{port}/shop?sslmode=disable");
        let address: Address = address.parse().expect("an address");
        let session = connect(&address, Duration::from_secs(10)).await.expect("welcome");
        let asked = timeout(Duration::from_millis(50), session.simple_query("select 1")).await;
        assert!(asked.is_err());
        drop(session);
        let bytes =
            timeout(Duration::from_secs(20), server).await.expect("it ends").expect("no panic");
        assert!(String::from_utf8_lossy(&bytes.expect("an orderly end")).contains("select 1"));
    }
}
