//! life: the whole life of no-op tasks, scheduled in batches while worker processes drain them.

use clap::{Args, value_parser};
use tuskline_sdk::BATCH_MAX;

use super::drain::{succeeded, until_drained};
use super::load::{PAYLOAD_BYTES, checkpoint, define_noop, payload_bytes};
use super::progress::Progress;
use super::report::Outcome;
use super::schedule_batch::Batches;
use super::site::Site;
use super::worker::Part;
use super::workers::{Order, Workers};

/// From the first schedule to the last result, and how many succeeded.
const SPAN: &str = "select count(*) filter (where status = 'success'), \
    coalesce(extract(epoch from max(finished_at) - min(created_at)), 0)::float8 from tuskline.task";

/// Options of `life`.
#[derive(Debug, Clone, Args)]
pub struct Life {
    /// Tasks to schedule.
    #[arg(long, default_value_t = 200_000, value_parser = value_parser!(u64).range(1..=50_000_000))]
    tasks: u64,
    /// Tasks in one call.
    #[arg(long, default_value_t = 1000, value_parser = value_parser!(u64).range(1..=BATCH_MAX as u64))]
    batch: u64,
    /// Worker processes.
    #[arg(long, default_value_t = 1, value_parser = value_parser!(u64).range(1..=64))]
    workers: u64,
    /// Size of each payload.
    #[arg(long, default_value_t = PAYLOAD_BYTES, value_parser = payload_bytes)]
    payload_bytes: usize,
}

impl Life {
    pub(super) async fn run(&self, site: &Site) -> anyhow::Result<Outcome> {
        let observer = site.observer().await?;
        let lambdas = define_noop(&observer).await?;
        let progress = Progress::new("life", self.tasks, site.quiet());
        checkpoint(&observer).await;
        let before = observer.read().await?;
        let workers = Workers::start(site, Order::of(Part::Noop, &lambdas), self.workers)?;
        observer.until_workers(self.workers).await?;
        let scheduler = site.scheduler().await?;
        let batches = Batches { batch: self.batch, payload_bytes: self.payload_bytes };
        batches.schedule(&scheduler, self.tasks, &progress).await?;
        drop(scheduler);
        until_drained(&observer, self.tasks).await?;
        workers.end().await?;
        observer.alone().await?;
        let after = observer.read().await?;
        let span = observer.row(SPAN).await?;
        succeeded(span.get(0), self.tasks)?;
        Ok(Outcome::new("life", self.tasks, span.get(1), before.until(after, self.tasks))
            .with("batch", self.batch)
            .with("workers", self.workers)
            .with("payload_bytes", self.payload_bytes))
    }
}
