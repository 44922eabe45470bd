//! How the connections of a worker give way to each other where the server has too few.
//!
//! Promises: the heartbeat's comes first. While it is missing no other is opened; where the server refuses
//! it, a lane closes its own. A worker begins with three (heartbeat, side, one lane) or with none, so that
//! many that start together do not each hold a part and wait for the rest.

use std::time::Duration;

use tokio::sync::{Notify, watch};

/// A lane that the server had no connection for asks again after this to twice as long.
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
    /// What the heartbeat has come to.
    pub(crate) fn hear(&self, acknowledged: bool) {
        self.heard.send_if_modified(|heard| std::mem::replace(heard, acknowledged) != acknowledged);
    }

    /// Waits until the heartbeat has its connection.
    pub(crate) async fn until_heard(&self) {
        // It fails only when the sender is gone, and that is here.
        let _ = self.heard.subscribe().wait_for(|heard| *heard).await;
    }

    /// The server had none for something that goes before the lanes: one of these closes its own.
    pub(crate) fn want(&self) {
        self.wanted.notify_one();
    }

    /// For a lane: waits until its connection is wanted.
    pub(crate) async fn wanted(&self) {
        self.wanted.notified().await;
    }
}

/// How long to do without a connection that the server did not have, by chance: a fleet asks one by one.
pub(crate) fn rest() -> Duration {
    REST.mul_f64(1.0 + fastrand::f64())
}
