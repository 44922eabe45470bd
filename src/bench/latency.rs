//! latency: single-row inserts at a fixed rate; from just before the insert call to the body's start,
//! so that it includes the insert's own commit.

use std::time::Duration;

use clap::{Args, value_parser};

use super::crew::{Crew, Order};
use super::drain::until_drained;
use super::load::{PAYLOAD_BYTES, Pace, define_noop, payload_bytes};
use super::progress::Progress;
use super::report::Outcome;
use super::site::Site;
use super::worker::Part;

/// After a worker has registered, until it listens and sleeps.
pub(super) const CALM: Duration = Duration::from_millis(500);

/// Options of `latency`.
#[derive(Debug, Clone, Args)]
pub struct Latency {
    /// Inserts a second, over all connections.
    #[arg(long, default_value_t = 200, value_parser = value_parser!(u64).range(1..=100_000))]
    rate: u64,
    /// For how long.
    #[arg(long, default_value_t = 10, value_parser = value_parser!(u64).range(1..=86_400))]
    seconds: u64,
    /// Connections that insert.
    #[arg(long, default_value_t = 8, value_parser = value_parser!(u64).range(1..=64))]
    connections: u64,
    /// Worker processes.
    #[arg(long, default_value_t = 1, value_parser = value_parser!(u64).range(1..=64))]
    workers: u64,
    /// Size of each payload, besides a stamp of some 40 bytes.
    #[arg(long, default_value_t = PAYLOAD_BYTES, value_parser = payload_bytes)]
    payload_bytes: usize,
}

impl Latency {
    pub(super) async fn run(&self, site: &Site) -> anyhow::Result<Outcome> {
        let observer = site.observer().await?;
        let lambdas = define_noop(&observer).await?;
        let crew = Crew::start(site, Order::of(Part::Stamped, &lambdas), self.workers)?;
        observer.until_workers(self.workers).await?;
        tokio::time::sleep(CALM).await;
        let before = observer.read().await?;
        let pace = Pace {
            payload_bytes: self.payload_bytes,
            ..Pace::new(self.rate, self.connections, self.seconds, &lambdas)
        };
        let progress = Progress::new("latency", self.seconds, site.quiet());
        let began = std::time::Instant::now();
        let tasks = tokio::select! {
            sent = pace.send(site) => sent?.iter().sum(),
            () = async { progress.sleep(self.seconds).await; std::future::pending().await } => {
                0
            }
        };
        let seconds = began.elapsed().as_secs_f64();
        until_drained(&observer, tasks).await?;
        let latencies = crew.end().await?.latencies(0)?;
        observer.alone().await?;
        let after = observer.read().await?;
        anyhow::ensure!(latencies.count() == tasks, "{} of {tasks} started", latencies.count());
        Ok(Outcome::new("latency", tasks, seconds, before.until(after, tasks))
            .timed(&latencies)
            .with("rate", self.rate)
            .with("connections", self.connections)
            .with("workers", self.workers)
            .with("payload_bytes", self.payload_bytes))
    }
}
