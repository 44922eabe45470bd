//! drain: claim and result of a preloaded queue of no-op tasks, by worker processes.

use std::time::Duration;

use clap::{Args, value_parser};

use super::load::{PAYLOAD_BYTES, Preload, define_noop, payload_bytes, settle};
use super::meter::Observer;
use super::report::Outcome;
use super::site::Site;
use super::worker::Part;
use super::workers::{Order, Workers};

/// Queues, leases, wait lists and due timers are gone only when every result is recorded. The question reads
/// a row of each, so it costs the drain nothing.
pub(super) const DRAINED: &str = "select not exists (select from tuskline.queued) \
                                  and not exists (select from tuskline.lease) \
                                  and not exists (select from tuskline.wait_list) \
                                  and not exists (select from tuskline.timer where due <= now())";

/// Options of `drain`.
#[derive(Debug, Clone, Args)]
pub struct Drain {
    /// Tasks to preload.
    #[arg(long, default_value_t = 200_000, value_parser = value_parser!(u64).range(1..=50_000_000))]
    tasks: u64,
    /// Worker processes.
    #[arg(long, default_value_t = 1, value_parser = value_parser!(u64).range(1..=64))]
    workers: u64,
    /// Size of each payload.
    #[arg(long, default_value_t = PAYLOAD_BYTES, value_parser = payload_bytes)]
    payload_bytes: usize,
}

impl Drain {
    pub(super) async fn run(&self, site: &Site) -> anyhow::Result<Outcome> {
        let observer = site.observer().await?;
        let lambdas = define_noop(&observer).await?;
        Preload::noop(self.tasks, self.payload_bytes).insert("preload", site, &observer).await?;
        let queue =
            Queue { workload: "drain", tasks: self.tasks, workers: self.workers, server: false };
        let outcome = queue.drain(site, &observer, Order::of(Part::Noop, &lambdas)).await?;
        Ok(outcome.with("payload_bytes", self.payload_bytes))
    }
}

/// A queue to be drained to its end.
#[derive(Debug, Clone, Copy)]
pub(super) struct Queue {
    pub workload: &'static str,
    /// Tasks in it.
    pub tasks: u64,
    /// Processes that drain it.
    pub workers: u64,
    /// Whether a server runs, too: it moves tasks out of wait lists.
    pub server: bool,
}

impl Queue {
    /// Drains it, and measures that from the first claim to the last result.
    pub(super) async fn drain(
        self,
        site: &Site,
        observer: &Observer,
        order: Order<'_>,
    ) -> anyhow::Result<Outcome> {
        settle(observer).await?;
        let began = now_s(observer).await?;
        let before = observer.read().await?;
        let server = Workers::start(site, Order::of(Part::Server, &[]), u64::from(self.server))?;
        let workers = Workers::start(site, order, self.workers)?;
        until_drained(observer, self.tasks).await?;
        workers.end().await?;
        server.end().await?;
        observer.alone().await?;
        let after = observer.read().await?;
        let seconds = span_since(observer, began, self.tasks).await?;
        let cost = before.until(after, self.tasks);
        let outcome = Outcome::new(self.workload, self.tasks, seconds, cost);
        Ok(outcome.with("workers", self.workers))
    }
}

/// The database's clock, in seconds since 1970.
pub(super) async fn now_s(observer: &Observer) -> anyhow::Result<f64> {
    let now = "select extract(epoch from clock_timestamp())::float8";
    Ok(observer.row(now).await?.get(0))
}

/// Seconds from the first claim after `began` to the last result of one.
///
/// # Errors
/// Not just so many tasks succeeded: there are no figures of such a run.
pub(super) async fn span_since(observer: &Observer, began: f64, tasks: u64) -> anyhow::Result<f64> {
    let span = format!(
        "select count(*), coalesce(extract(epoch from max(finished_at) - min(started_at)), 0)::float8 \
           from tuskline.task where status = 'success' and started_at >= to_timestamp({began})"
    );
    let span = observer.row(&span).await?;
    succeeded(span.get(0), tasks)?;
    Ok(span.get(1))
}

/// Waits until nothing is queued or claimed.
pub(super) async fn until_drained(observer: &Observer, tasks: u64) -> anyhow::Result<()> {
    observer.until(DRAINED, "the end of the drain", patience(tasks)).await
}

/// The same, and until no timer is due within half an hour: those of the far future stay.
pub(super) async fn until_nothing_is_due(
    observer: &Observer,
    limit: Duration,
) -> anyhow::Result<()> {
    let all = format!(
        "{DRAINED} and not exists \
         (select from tuskline.timer where due < now() + interval '30 minutes')"
    );
    observer.until(&all, "the end of all tasks", limit).await
}

/// Longest time so many tasks may take: a minute, and 2,000 a second.
pub(super) fn patience(tasks: u64) -> Duration {
    Duration::from_secs(60 + tasks / 2000)
}

/// Refuses figures of a run that lost something.
pub(super) fn succeeded(found: i64, expected: u64) -> anyhow::Result<()> {
    anyhow::ensure!(
        u64::try_from(found)? == expected,
        "{found} of {expected} tasks succeeded: no figures of such a run"
    );
    Ok(())
}
