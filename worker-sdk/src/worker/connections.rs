//! How the connections of a worker give way to each other where the server has too few.
//!
//! Promises: the heartbeat's connection comes first. While it is missing, no other is opened. Where the
//! server refuses it, an exchange connection is closed. A worker begins with three connections (heartbeat,
//! control, exchange) or with none: many workers that start together must not each hold a part and wait.

use std::time::Duration;

use tokio::sync::{Notify, watch};

/// An exchange connection that the server refused is asked for again after 1 to 2 times this pause.
const PAUSE: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) struct Connections {
    /// The heartbeat's is open, and its last beat was acknowledged.
    has_heartbeat: watch::Sender<bool>,
    close: Notify,
}

impl Default for Connections {
    /// As a worker begins: its heartbeat has a connection.
    fn default() -> Self {
        Self { has_heartbeat: watch::channel(true).0, close: Notify::new() }
    }
}

impl Connections {
    /// The heartbeat has its connection, or has lost it.
    pub(crate) fn heartbeat_answered(&self, acknowledged: bool) {
        self.has_heartbeat.send_if_modified(|has_heartbeat| {
            std::mem::replace(has_heartbeat, acknowledged) != acknowledged
        });
    }

    /// Waits until the heartbeat has its connection.
    pub(crate) async fn until_heartbeat(&self) {
        // It fails only when the sender is gone, and that is here.
        let _ = self.has_heartbeat.subscribe().wait_for(|has_heartbeat| *has_heartbeat).await;
    }

    /// The server had no connection for a part that comes before the exchanges. Asks an exchange connection to close.
    pub(crate) fn ask_to_close(&self) {
        self.close.notify_one();
    }

    /// For an exchange connection: waits until it is asked to close.
    pub(crate) async fn asked_to_close(&self) {
        self.close.notified().await;
    }
}

/// A pause with jitter before the server is asked again, so that a fleet asks one by one.
pub(crate) fn pause() -> Duration {
    PAUSE.mul_f64(1.0 + fastrand::f64())
}
