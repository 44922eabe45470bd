//! held-horizon: single inserts at a fixed rate, executed at once, while one transaction holds the
//! oldest snapshot: no dead row may be removed. What the last seconds cost beside the first.

use std::sync::atomic::Ordering;

use clap::{Args, value_parser};

use super::crew::{Crew, Order};
use super::drain::until_drained;
use super::latency::CALM;
use super::load::{PAYLOAD_BYTES, Pace, define_noop, payload_bytes};
use super::meter::{Meter, Observer, round};
use super::progress::Progress;
use super::report::Outcome;
use super::site::Site;
use super::worker::Part;

/// Longest window at the beginning and at the end, in seconds.
const WINDOW_S: u64 = 30;
/// With a number of its own and a snapshot, it holds back every vacuum of the database.
const HOLD: &str = "begin isolation level repeatable read; select txid_current();";

/// Options of `held-horizon`.
#[derive(Debug, Clone, Args)]
pub struct HeldHorizon {
    /// Inserts a second, over all connections.
    #[arg(long, default_value_t = 1_000, value_parser = value_parser!(u64).range(1..=100_000))]
    rate: u64,
    /// For how long.
    #[arg(long, default_value_t = 240, value_parser = value_parser!(u64).range(3..=86_400))]
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

impl HeldHorizon {
    pub(super) async fn run(&self, site: &Site) -> anyhow::Result<Vec<Outcome>> {
        let observer = site.observer().await?;
        let lambdas = define_noop(&observer).await?;
        let crew = Crew::start(site, Order::of(Part::Stamped, &lambdas), self.workers)?;
        observer.until_workers(self.workers).await?;
        tokio::time::sleep(CALM).await;
        let holder = site.connect().await?;
        holder.batch_execute(HOLD).await?;
        let pace = Pace {
            payload_bytes: self.payload_bytes,
            ..Pace::new(self.rate, self.connections, self.seconds, &lambdas)
        };
        let (sent, [began, early, late, ended]) =
            tokio::try_join!(pace.clone().send(site), self.course(site, &observer, &pace))?;
        holder.batch_execute("rollback").await?;
        until_drained(&observer, sent.iter().sum()).await?;
        let work = crew.end().await?;
        let [first, last] = [(0, began, early), (2, late, ended)].map(|(phase, from, to)| {
            let tasks = sent[usize::from(phase)];
            let latencies = work.latencies(phase)?;
            anyhow::ensure!(latencies.count() == tasks, "not every task started");
            #[allow(clippy::cast_precision_loss)]
            let seconds = self.window_s() as f64;
            let outcome = Outcome::new("held-horizon", tasks, seconds, from.until(to, tasks));
            Ok(outcome.timed(&latencies).with("rate", self.rate).with("seconds_held", self.seconds))
        });
        let (first, last) = (first?.part("first"), last?.part("last"));
        let ratio = |from: Option<f64>, to: Option<f64>| Some(round(to? / from?));
        let p50 = ratio(first.quantiles.p50_ms, last.quantiles.p50_ms);
        let hits = ratio(first.cost.buffer_hits_per_task, last.cost.buffer_hits_per_task);
        let last = last.with("p50_ratio", p50).with("buffer_hits_ratio", hits);
        Ok(vec![first, last])
    }

    fn window_s(&self) -> u64 {
        WINDOW_S.min(self.seconds / 3)
    }

    /// Reads the meters at both ends of both windows, and tells the senders which it is.
    async fn course(
        &self,
        site: &Site,
        observer: &Observer,
        pace: &Pace,
    ) -> anyhow::Result<[Meter; 4]> {
        let progress = Progress::new("held-horizon", self.seconds, site.quiet());
        let began = observer.read().await?;
        progress.sleep(self.window_s()).await;
        let early = observer.read().await?;
        pace.phase.store(1, Ordering::Relaxed);
        progress.sleep(self.seconds - 2 * self.window_s()).await;
        let late = observer.read().await?;
        pace.phase.store(2, Ordering::Relaxed);
        progress.sleep(self.window_s()).await;
        Ok([began, early, late, observer.read().await?])
    }
}
