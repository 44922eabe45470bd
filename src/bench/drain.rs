//! drain: claim and result of a preloaded queue of no-op tasks, by worker processes.

use std::time::Duration;

use clap::{Args, value_parser};

use super::crew::{Crew, Order};
use super::load::{NOOP, PAYLOAD_BYTES, Preload, define_noop, payload_bytes, settle};
use super::meter::Observer;
use super::progress::Progress;
use super::report::Outcome;
use super::site::Site;
use super::worker::Part;

/// The queues and the leases are empty only when every result is recorded; both are small, so that
/// looking costs the drain nothing.
pub(super) const DRAINED: &str = "select not exists (select from tuskline.queued) \
                                  and not exists (select from tuskline.lease)";

/// From the first claim to the last result, and how many succeeded.
const SPAN: &str = "select count(*) filter (where status = 'success'), \
    coalesce(extract(epoch from max(finished_at) - min(started_at)), 0)::float8 from tuskline.task";

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
        let preload = Preload {
            lambda: NOOP,
            tasks: self.tasks,
            payload_bytes: self.payload_bytes,
            hours_ahead: None,
        };
        preload.insert(&observer, &Progress::new("preload", self.tasks, site.quiet())).await?;
        settle(&observer).await?;
        let before = observer.read().await?;
        let crew = Crew::start(site, Order::of(Part::Noop, &lambdas), self.workers)?;
        until_drained(&observer, self.tasks).await?;
        crew.end().await?;
        observer.alone().await?;
        let after = observer.read().await?;
        let span = observer.row(SPAN).await?;
        succeeded(span.get(0), self.tasks)?;
        let outcome =
            Outcome::new("drain", self.tasks, span.get(1), before.until(after, self.tasks));
        Ok(outcome.with("workers", self.workers).with("payload_bytes", self.payload_bytes))
    }
}

/// Waits until nothing is queued or claimed.
pub(super) async fn until_drained(observer: &Observer, tasks: u64) -> anyhow::Result<()> {
    observer.until(DRAINED, "the end of the drain", patience(tasks)).await
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
