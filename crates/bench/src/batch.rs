//! batch: what it is worth to do many tasks at a time, scheduling them and draining them.

use clap::{Args, value_parser};
use tuskline_sdk::BATCH_MAX;

use super::drain::Queue;
use super::load::{PAYLOAD_BYTES, Preload, checkpoint, define_noop, payload_bytes};
use super::meter::Observer;
use super::progress::Progress;
use super::report::Outcome;
use super::schedule_batch::Batches;
use super::site::Site;
use super::worker::Part;
use super::workers::Order;

/// Options of `batch`.
#[derive(Debug, Clone, Args)]
pub struct Batch {
    /// Tasks in one call, and at most in one exchange of a worker; one measurement of each.
    #[arg(long, value_delimiter = ',', default_value = "1,10,100,1000")]
    #[arg(value_parser = value_parser!(u64).range(1..=BATCH_MAX as u64))]
    batches: Vec<u64>,
    /// Most tasks in each measurement.
    #[arg(long, default_value_t = 200_000, value_parser = value_parser!(u64).range(1..=50_000_000))]
    tasks: u64,
    /// Calls or exchanges that are enough.
    #[arg(long, default_value_t = 2_000, value_parser = value_parser!(u64).range(1..=10_000_000))]
    calls: u64,
    /// Size of each payload.
    #[arg(long, default_value_t = PAYLOAD_BYTES, value_parser = payload_bytes)]
    payload_bytes: usize,
}

impl Batch {
    pub(super) async fn run(&self, site: &Site) -> anyhow::Result<Vec<Outcome>> {
        let observer = site.observer().await?;
        let lambdas = define_noop(&observer).await?;
        let mut parts = Vec::new();
        for &batch in &self.batches {
            let part = self.drain(site, &observer, &lambdas, batch).await?;
            parts.push(part.part(format!("drain, batch {batch}")).with("drain_batch", batch));
        }
        // Last, because nothing drains these tasks.
        for &batch in &self.batches {
            let part = self.schedule(site, &observer, batch).await?;
            parts.push(part.part(format!("schedule, batch {batch}")).with("schedule_batch", batch));
        }
        Ok(parts)
    }

    fn tasks(&self, batch: u64) -> u64 {
        self.tasks.min(self.calls.saturating_mul(batch))
    }

    async fn schedule(
        &self,
        site: &Site,
        observer: &Observer,
        batch: u64,
    ) -> anyhow::Result<Outcome> {
        let tasks = self.tasks(batch);
        let progress = Progress::new("schedule", tasks, site.quiet());
        checkpoint(observer).await;
        let before = observer.read().await?;
        let scheduler = site.scheduler().await?;
        let began = std::time::Instant::now();
        let batches = Batches { batch, payload_bytes: self.payload_bytes };
        let latencies = batches.schedule(&scheduler, tasks, &progress).await?;
        let seconds = began.elapsed().as_secs_f64();
        drop(scheduler);
        observer.alone().await?;
        let after = observer.read().await?;
        Ok(Outcome::new("batch", tasks, seconds, before.until(after, tasks)).timed(&latencies))
    }

    async fn drain(
        &self,
        site: &Site,
        observer: &Observer,
        lambdas: &[String],
        batch: u64,
    ) -> anyhow::Result<Outcome> {
        let tasks = self.tasks(batch);
        Preload::noop(tasks, self.payload_bytes).insert("preload", site, observer).await?;
        let order = Order { max_batch: Some(batch), ..Order::of(Part::Noop, lambdas) };
        Queue { workload: "batch", tasks, workers: 1, server: false }
            .drain(site, observer, order)
            .await
    }
}
