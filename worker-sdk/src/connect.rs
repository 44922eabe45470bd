//! Connections of our own, outside any pool: their notifications are not lost, and a silent death
//! of the network is noticed (keepalive, `tcp_user_timeout`; the callers add deadlines and probes).

use std::future::poll_fn;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_postgres::{AsyncMessage, Client, Config, NoTls};

/// Channel of a notification; the payload is always empty.
pub(crate) type Channels = mpsc::UnboundedReceiver<String>;

/// Opens one connection. The receiver ends when the connection does.
pub(crate) async fn connect(
    config: &Config,
    limit: Duration,
) -> Result<(Client, Channels), tokio_postgres::Error> {
    let mut config = config.clone();
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
    let (client, mut connection) = config.connect(NoTls).await?;
    let (send, receive) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
            if let AsyncMessage::Notification(notification) = message {
                // The receiver may be gone while the connection lives on: then nobody listens.
                let _ = send.send(notification.channel().to_owned());
            }
        }
    });
    Ok((client, receive))
}

/// Session settings of a worker's connections: no statement and no open transaction outlives its use.
pub(crate) async fn settle_session(
    client: &Client,
    limit: Duration,
) -> Result<(), tokio_postgres::Error> {
    let statement_ms = limit.as_millis() * 2 / 3;
    client
        .batch_execute(&format!(
            "set statement_timeout = {statement_ms}; set idle_in_transaction_session_timeout = '10s'"
        ))
        .await
}

/// Waits between two attempts to connect: doubling from 50 ms to 1 s, with jitter, so that a fleet
/// does not come back in step after an outage.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    failures: u32,
}

impl Backoff {
    pub(crate) fn reset(&mut self) {
        self.failures = 0;
    }

    pub(crate) fn next(&mut self) -> Duration {
        let full = Duration::from_millis(50 << self.failures.min(5)).min(Duration::from_secs(1));
        self.failures += 1;
        full.mul_f64(0.5 + 0.5 * fastrand::f64())
    }
}
