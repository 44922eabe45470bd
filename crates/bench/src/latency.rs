//! latency: single-row inserts at a fixed rate; from just before the insert call to the body's start,
//! so that it includes the insert's own commit.

use clap::{Args, value_parser};

use super::drain::until_drained;
use super::load::{Singles, define_noop};
use super::progress::Progress;
use super::report::Outcome;
use super::site::Site;
use super::worker::Part;
use super::workers::{Order, Workers};

/// Options of `latency`.
#[derive(Debug, Clone, Args)]
pub struct Latency {
    /// Inserts a second, over all connections.
    #[arg(long, default_value_t = 200, value_parser = value_parser!(u64).range(1..=100_000))]
    rate: u64,
    /// For how long.
    #[arg(long, default_value_t = 10, value_parser = value_parser!(u64).range(1..=86_400))]
    seconds: u64,
    #[command(flatten)]
    singles: Singles,
}

impl Latency {
    pub(super) async fn run(&self, site: &Site) -> anyhow::Result<Outcome> {
        let observer = site.observer().await?;
        let lambdas = define_noop(&observer).await?;
        let order = Order::of(Part::Stamped, &lambdas);
        let workers = Workers::asleep(site, &observer, order, self.singles.workers).await?;
        let before = observer.read().await?;
        let pace = self.singles.pace(self.rate, self.seconds, &lambdas);
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
        let latencies = workers.end().await?.latencies(0)?;
        observer.alone().await?;
        let after = observer.read().await?;
        anyhow::ensure!(latencies.count() == tasks, "{} of {tasks} started", latencies.count());
        Ok(Outcome::new("latency", tasks, seconds, before.until(after, tasks))
            .timed(&latencies)
            .with("rate", self.rate)
            .with("connections", self.singles.connections)
            .with("workers", self.singles.workers)
            .with("payload_bytes", self.singles.payload_bytes))
    }
}
