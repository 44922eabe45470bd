//! Reads the facts of one look at the installation.
//!
//! Promises: six statements, and five more at most every [`STATISTICS`]; each reads a bounded number
//! of rows of each lambda and queue. Must never: scan the tasks.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;
use tokio_postgres::{Client, Error};

use super::{Answers, Facts};
use crate::store::figures::{self, DEPTH_ROWS, Marks, QueueGauge};
use crate::store::overview;

/// Rows of queues that a reading returns, over all queues.
const QUEUE_ROWS: i64 = 40_000;
/// With more queues than these a reading reads some of them, and estimates the depth of the rest.
const ALL_QUEUES: i64 = 1_000;
/// How many it reads then.
const PROBES: i32 = 250;
/// Rows that each part of the waits reads then.
const FEW_WAIT_ROWS: i32 = 100;
/// Time between two readings of the statistics. Workers report every 5 s, so they change no faster.
const STATISTICS: Duration = Duration::from_secs(5);

/// Reads on one connection. Answers to rare questions are kept.
#[derive(Debug, Default)]
pub struct FactsReader {
    answers: Answers,
    statistics_at: Option<Instant>,
}

impl FactsReader {
    /// One reading: six statements, and five more when the statistics are old.
    ///
    /// # Errors
    /// The connection's or the server's.
    pub async fn read(&mut self, client: &Client, since: Duration) -> Result<Facts, Error> {
        let is_due = self.statistics_at.is_none_or(|at| at.elapsed() >= STATISTICS);
        let kept = &mut self.answers;
        let place = overview::place(client).await?;
        // A mark may hide a row whose transaction was long. So the marks are dropped whenever the
        // statistics are read.
        let marks = if is_due { Marks::default() } else { Marks::of(&kept.queues) };
        let (probes, wait_rows) = match place.queues > ALL_QUEUES {
            true => (Some(PROBES), FEW_WAIT_ROWS),
            false => (None, overview::WAIT_ROWS),
        };
        let queues =
            figures::queue_gauges(client, &marks, depth_rows(place.queues), probes).await?;
        kept.queues = with_former(queues, &kept.queues);
        (kept.now, kept.installation) = (Some(place.now), place.installation);
        kept.held = overview::held(client).await?;
        kept.waits = overview::waits(client, wait_rows).await?;
        kept.gates = overview::gates(client).await?;
        kept.executors = overview::executors(client).await?;
        if is_due {
            kept.statistics = figures::statistics(client, Some(since)).await?;
            kept.ended_waits = figures::wait_times(client, Some(since)).await?;
            kept.loads = figures::executor_loads(client, since).await?;
            kept.gauges = figures::gauges(client).await?;
            kept.dead_groups = overview::dead_groups(client, None, overview::DEAD_GROUPS).await?;
            self.statistics_at = Some(Instant::now());
        }
        Ok(Facts::of(kept))
    }

    /// The next reading asks for everything: a command has changed something.
    pub fn forget(&mut self) {
        self.statistics_at = None;
    }
}

/// Most rows to read of each queue, so that many queues together cost no more than 40 long ones.
fn depth_rows(queues: i64) -> i32 {
    let each = QUEUE_ROWS / queues.max(1);
    i32::try_from(each).unwrap_or(DEPTH_ROWS).clamp(10, DEPTH_ROWS)
}

/// A queue that has tasks and was not read now has the head of the former reading.
fn with_former(mut queues: Vec<QueueGauge>, former: &[QueueGauge]) -> Vec<QueueGauge> {
    let heads: BTreeMap<i32, &QueueGauge> = former.iter().map(|one| (one.queue_id, one)).collect();
    for one in queues.iter_mut().filter(|one| one.depth > 0 && one.head_seq.is_none()) {
        if let Some(former) = heads.get(&one.queue_id) {
            (one.head_seq, one.oldest_ms) = (former.head_seq, former.oldest_ms);
        }
    }
    queues
}
