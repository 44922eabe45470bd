//! How the connections of a worker give way to each other where the server has too few.
//!
//! Promises: the heartbeat's connection comes first. While it is missing, no other is opened. Where the
//! server refuses it, an exchange connection is closed. A worker begins with three connections (heartbeat,
//! control, exchange) or with none: many workers that start together must not each hold a part and wait.

use std::time::Duration;

use tokio::sync::{Notify, watch};

/// An exchange connection that the server had no room for is asked for again after this to twice as long.
const REST: Duration = Duration::from_secs(5);

/// See the module.
#[derive(Debug)]
pub(crate) struct Connections {
    /// The heartbeat's is open, and its last beat was acknowledged.
    heard: watch::Sender<bool>,
    wanted: Notify,
}

impl Default for Connections {
    /// As a worker begins: its heartbeat has a connection.
    fn default() -> Self {
        Self { heard: watch::channel(true).0, wanted: Notify::new() }
    }
}

impl Connections {
    /// The heartbeat has its connection, or has lost it.
    pub(crate) fn hear(&self, acknowledged: bool) {
        self.heard.send_if_modified(|heard| std::mem::replace(heard, acknowledged) != acknowledged);
    }

    /// Waits until the heartbeat has its connection.
    pub(crate) async fn until_heard(&self) {
        // It fails only when the sender is gone, and that is here.
        let _ = self.heard.subscribe().wait_for(|heard| *heard).await;
    }

    /// The server had no connection for something that goes before the exchanges: one of theirs is closed.
    pub(crate) fn want(&self) {
        self.wanted.notify_one();
    }

    /// For an exchange connection: waits until it is wanted.
    pub(crate) async fn wanted(&self) {
        self.wanted.notified().await;
    }
}

/// A rest with jitter before the server is asked again, so that a fleet asks one by one.
pub(crate) fn rest() -> Duration {
    REST.mul_f64(1.0 + fastrand::f64())
}
