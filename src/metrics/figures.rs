//! The figures that a scrape shows.

use crate::store::figures::{Gauge, QueueGauge, QueueStatistics, Scale, WaitTimes};

/// The figures of the last reading. A part that could not be read is empty.
#[derive(Debug, Default)]
pub struct Figures {
    pub statistics: Vec<QueueStatistics>,
    pub waits: Vec<WaitTimes>,
    pub queues: Vec<QueueGauge>,
    pub gauges: Vec<Gauge>,
    pub scale: Vec<Scale>,
}
