//! schedule-batch: many tasks in one commit, by the SDK's `schedule_many`.

use std::time::Instant;

use clap::{Args, value_parser};
use tuskline_sdk::{BATCH_MAX, Client, NewTask};

use super::latencies::Latencies;
use super::load::{NOOP, PAYLOAD_BYTES, checkpoint, define_noop, payload, payload_bytes};
use super::progress::Progress;
use super::report::Outcome;
use super::site::Site;

/// Options of `schedule-batch`.
#[derive(Debug, Clone, Args)]
pub struct ScheduleBatch {
    /// Tasks to schedule.
    #[arg(long, default_value_t = 200_000, value_parser = value_parser!(u64).range(1..=50_000_000))]
    tasks: u64,
    /// Tasks in one call.
    #[arg(long, default_value_t = 1000, value_parser = value_parser!(u64).range(1..=BATCH_MAX as u64))]
    batch: u64,
    /// Connections that schedule, one call at a time each.
    #[arg(long, default_value_t = 1, value_parser = value_parser!(u64).range(1..=64))]
    connections: u64,
    /// Size of each payload.
    #[arg(long, default_value_t = PAYLOAD_BYTES, value_parser = payload_bytes)]
    payload_bytes: usize,
}

impl ScheduleBatch {
    pub(super) async fn run(&self, site: &Site) -> anyhow::Result<Outcome> {
        let observer = site.observer().await?;
        define_noop(&observer).await?;
        let progress = Progress::new("schedule-batch", self.tasks, site.quiet());
        checkpoint(&observer).await;
        let before = observer.read().await?;
        let mut clients = Vec::new();
        for _ in 0..self.connections {
            clients.push(site.scheduler().await?);
        }
        let began = Instant::now();
        let shares = clients.iter().zip(0..).map(|(client, number)| {
            let share =
                self.tasks / self.connections + u64::from(number < self.tasks % self.connections);
            Batches { batch: self.batch, payload_bytes: self.payload_bytes }
                .schedule(client, share, &progress)
        });
        let each = futures_util::future::try_join_all(shares).await?;
        let seconds = began.elapsed().as_secs_f64();
        drop(clients);
        observer.alone().await?;
        let after = observer.read().await?;
        let mut latencies = Latencies::none()?;
        for more in &each {
            latencies.add(more)?;
        }
        Ok(Outcome::new("schedule-batch", self.tasks, seconds, before.until(after, self.tasks))
            .timed(&latencies)
            .with("batch", self.batch)
            .with("connections", self.connections)
            .with("payload_bytes", self.payload_bytes))
    }
}

/// How tasks are scheduled in batches.
#[derive(Debug, Clone, Copy)]
pub(super) struct Batches {
    pub batch: u64,
    pub payload_bytes: usize,
}

impl Batches {
    /// Schedules so many tasks, one call after the other; how long each call took.
    pub(super) async fn schedule(
        self,
        client: &Client,
        tasks: u64,
        progress: &Progress,
    ) -> anyhow::Result<Latencies> {
        let task = NewTask::from_json(NOOP, payload(self.payload_bytes));
        let batch = vec![task; usize::try_from(self.batch)?];
        let mut latencies = Latencies::none()?;
        let mut left = usize::try_from(tasks)?;
        while left > 0 {
            let next = left.min(batch.len());
            let asked = Instant::now();
            client.schedule_many(&batch[..next]).await?;
            latencies.record(u64::try_from(asked.elapsed().as_micros())?);
            progress.further(next as u64);
            left -= next;
        }
        Ok(latencies)
    }
}
