//! scale: more processes on the same queues. Worker processes that drain one queue, then store
//! consumers that move due timers: no loss of throughput in all, no convoy, no deadlock.

use std::time::Instant;

use clap::{Args, value_parser};

use super::drain::{Queue, patience};
use super::load::{PAYLOAD_BYTES, Preload, define_noop, settle};
use super::meter::{Observer, round};
use super::report::Outcome;
use super::site::Site;
use super::worker::Part;
use super::workers::{Order, Workers};

const DEADLOCKS: &str = "select deadlocks from pg_stat_database where datname = current_database()";
const ALL_DUE: &str =
    "select not exists (select from tuskline.timer where due > clock_timestamp())";
const NONE_DUE: &str = "select not exists (select from tuskline.timer)";
const WAITING: &str = "select count(*) from tuskline.queued";

/// Seconds ahead of the first timer, besides one for every 20,000: no store consumer moves them before that.
const AHEAD_S: u64 = 3;

/// Options of `scale`.
#[derive(Debug, Clone, Args)]
pub struct ScaleOut {
    /// Tasks to drain, and timers to move, in each measurement.
    #[arg(long, default_value_t = 200_000, value_parser = value_parser!(u64).range(1..=10_000_000))]
    tasks: u64,
    /// Worker processes at once; one measurement for each number.
    #[arg(long, value_delimiter = ',', default_value = "1,2,4")]
    #[arg(value_parser = value_parser!(u64).range(1..=64))]
    workers: Vec<u64>,
    /// Store consumers at once, likewise; 0 leaves these out.
    #[arg(long, value_delimiter = ',', default_value = "1,2")]
    #[arg(value_parser = value_parser!(u64).range(..=16))]
    consumers: Vec<u64>,
}

impl ScaleOut {
    pub(super) async fn run(&self, site: &Site) -> anyhow::Result<Vec<Outcome>> {
        let observer = site.observer().await?;
        let lambdas = define_noop(&observer).await?;
        let mut drains = Vec::new();
        for &workers in &self.workers {
            self.preload(site, &observer, None).await?;
            let known = deadlocks(&observer).await?;
            let queue = Queue { workload: "scale", tasks: self.tasks, workers, server: false };
            let drain = queue.drain(site, &observer, Order::of(Part::Noop, &lambdas)).await?;
            let drain = drain.part(format!("workers: {workers}"));
            drains.push(drain.with("deadlocks", deadlocks(&observer).await? - known));
        }
        let mut moves = Vec::new();
        for &consumers in self.consumers.iter().filter(|consumers| **consumers > 0) {
            let known = deadlocks(&observer).await?;
            let moved = self.consume(site, &observer, consumers).await?;
            moves.push(moved.with("deadlocks", deadlocks(&observer).await? - known));
        }
        Ok(beside_first(drains).chain(beside_first(moves)).collect())
    }

    async fn preload(
        &self,
        site: &Site,
        observer: &Observer,
        ahead_s: Option<u64>,
    ) -> anyhow::Result<()> {
        let preload = Preload { ahead_s, ..Preload::noop(self.tasks, PAYLOAD_BYTES) };
        preload.insert("preload", site, observer).await
    }

    /// Lets so many store consumers move timers that have all come due before they start.
    async fn consume(
        &self,
        site: &Site,
        observer: &Observer,
        consumers: u64,
    ) -> anyhow::Result<Outcome> {
        let queued: i64 = observer.row(WAITING).await?.get(0);
        self.preload(site, observer, Some(AHEAD_S + self.tasks / 20_000)).await?;
        settle(observer).await?;
        observer.until(ALL_DUE, "the due times", patience(self.tasks)).await?;
        let before = observer.read().await?;
        let began = Instant::now();
        let servers = Workers::start(site, Order::of(Part::Server, &[]), consumers)?;
        observer.until(NONE_DUE, "the end of the timers", patience(self.tasks)).await?;
        let seconds = began.elapsed().as_secs_f64();
        servers.end().await?;
        observer.alone().await?;
        let after = observer.read().await?;
        let now_queued: i64 = observer.row(WAITING).await?.get(0);
        let moved = u64::try_from(now_queued - queued)?;
        anyhow::ensure!(moved == self.tasks, "{moved} of {} timers were moved", self.tasks);
        let cost = before.until(after, moved);
        let outcome = Outcome::new("scale", moved, seconds, cost);
        Ok(outcome.part(format!("store consumers: {consumers}")).with("consumers", consumers))
    }
}

/// With the ratio of each rate to that of the first.
fn beside_first(parts: Vec<Outcome>) -> impl Iterator<Item = Outcome> {
    let first = parts.first().and_then(|part| part.tasks_per_s);
    parts.into_iter().map(move |part| {
        let ratio = part.tasks_per_s.zip(first).map(|(rate, first)| round(rate / first));
        part.with("ratio_to_first", ratio)
    })
}

/// Deadlocks of this database so far, as its sessions publish them when they end.
async fn deadlocks(observer: &Observer) -> anyhow::Result<i64> {
    Ok(observer.row(DEADLOCKS).await?.get(0))
}
