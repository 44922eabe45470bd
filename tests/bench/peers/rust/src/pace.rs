//! Single inserts at a fixed rate, as Tuskline's own bench sends them. Each connection has a beat
//! of its own. It sends the next insert only after the answer to the last one, and late inserts at
//! once.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, Interval, interval_at};

use crate::tally::{Payload, say};

/// How fast, for how long, over how many connections.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    pub rate: u64,
    pub seconds: u64,
    pub connections: u64,
}

/// The share of a connection.
pub struct Beat {
    interval: Interval,
    left: u64,
}

impl Pace {
    /// The share of the connection with this number.
    #[allow(clippy::cast_precision_loss)]
    pub fn beat(self, number: u64) -> Beat {
        let gap = Duration::from_secs_f64(self.connections as f64 / self.rate as f64);
        let offset = gap.mul_f64(number as f64 / self.connections as f64);
        let (tasks, last) = (self.rate * self.seconds, self.rate * self.seconds % self.connections);
        Beat {
            interval: interval_at(Instant::now() + offset, gap),
            left: tasks / self.connections + u64::from(number < last),
        }
    }

    /// Waits for all connections, and says how many tasks they sent.
    pub async fn end(self, mut senders: JoinSet<anyhow::Result<()>>) -> anyhow::Result<()> {
        while let Some(ended) = senders.join_next().await {
            ended??;
        }
        say("sent", &serde_json::json!({ "tasks": self.rate * self.seconds }));
        Ok(())
    }
}

impl Beat {
    /// Waits for the next beat; the payload to insert then, until there is none.
    pub async fn next(&mut self) -> Option<Payload> {
        self.left = self.left.checked_sub(1)?;
        self.interval.tick().await;
        Some(Payload::stamped())
    }
}
