//! backlog: a drain of an otherwise empty store, beside millions of tasks that are due later, and of a
//! queue that holds millions.

use std::cmp::Ordering;

use clap::{Args, value_parser};

use super::drain::{now_s, patience, span_since};
use super::load::{PAYLOAD_BYTES, Preload, define_noop, payload_bytes, settle};
use super::meter::{Observer, round};
use super::report::Outcome;
use super::site::Site;
use super::worker::Part;
use super::workers::{Order, Workers};

/// Until the future tasks are due: longer than any run.
const AHEAD_S: u64 = 240 * 3_600;

/// Options of `backlog`.
#[derive(Debug, Clone, Args)]
pub struct Backlog {
    /// Tasks that are due days from now; one measurement for each number, in rising order. 0: none.
    #[arg(long, value_delimiter = ',', default_value = "100000,1000000,10000000")]
    #[arg(value_parser = value_parser!(u64).range(..=100_000_000))]
    future: Vec<u64>,
    /// Tasks in the queue, likewise.
    #[arg(long, value_delimiter = ',', default_value = "500000,5000000")]
    #[arg(value_parser = value_parser!(u64).range(..=100_000_000))]
    enqueued: Vec<u64>,
    /// Tasks to drain in each part.
    #[arg(long, default_value_t = 200_000, value_parser = value_parser!(u64).range(1..=50_000_000))]
    tasks: u64,
    /// Drains of each part, of which the median is reported.
    #[arg(long, default_value_t = 1, value_parser = value_parser!(u64).range(1..=100))]
    drains: u64,
    /// Size of each payload.
    #[arg(long, default_value_t = PAYLOAD_BYTES, value_parser = payload_bytes)]
    payload_bytes: usize,
}

impl Backlog {
    pub(super) async fn run(&self, site: &Site) -> anyhow::Result<Vec<Outcome>> {
        let observer = site.observer().await?;
        let lambdas = define_noop(&observer).await?;
        let mut parts = vec![self.median(site, &observer, &lambdas).await?.part("empty")];
        let mut future = 0;
        for &more in self.future.iter().filter(|tasks| **tasks > 0) {
            self.preload(site, &observer, more.saturating_sub(future), Some(AHEAD_S)).await?;
            future = future.max(more);
            let part = self.median(site, &observer, &lambdas).await?;
            parts.push(part.part(format!("{future} due later")).with("future", future));
        }
        let mut enqueued = 0;
        for &more in self.enqueued.iter().filter(|tasks| **tasks > 0) {
            self.preload(site, &observer, more.saturating_sub(enqueued), None).await?;
            enqueued = enqueued.max(more);
            let part = self.median(site, &observer, &lambdas).await?;
            let part = part.part(format!("{enqueued} enqueued"));
            parts.push(part.with("future", future).with("enqueued", enqueued));
        }
        let empty = parts[0].tasks_per_s;
        let share = |part: Outcome| {
            let share = part.tasks_per_s.zip(empty).map(|(rate, empty)| round(rate / empty));
            part.with("share_of_empty", share)
        };
        Ok(parts.into_iter().map(share).collect())
    }

    async fn preload(
        &self,
        site: &Site,
        observer: &Observer,
        tasks: u64,
        ahead_s: Option<u64>,
    ) -> anyhow::Result<()> {
        let what = if ahead_s.is_some() { "due later" } else { "enqueued" };
        let preload = Preload { ahead_s, ..Preload::noop(tasks, self.payload_bytes) };
        preload.insert(what, site, observer).await
    }

    /// Drains as often as asked, what was added for it each time; the one of median rate.
    async fn median(
        &self,
        site: &Site,
        observer: &Observer,
        lambdas: &[String],
    ) -> anyhow::Result<Outcome> {
        let mut each = Vec::new();
        for _ in 0..self.drains {
            self.preload(site, observer, self.tasks, None).await?;
            each.push(self.drain(site, observer, lambdas).await?);
        }
        each.sort_by(|a, b| a.tasks_per_s.partial_cmp(&b.tasks_per_s).unwrap_or(Ordering::Equal));
        let rates: Vec<_> = each.iter().map(|drain| drain.tasks_per_s).collect();
        let middle = each.swap_remove(each.len() / 2);
        Ok(if self.drains > 1 { middle.with("drains_per_s", rates) } else { middle })
    }

    /// Drains `tasks` tasks, and a few that had begun by then.
    async fn drain(
        &self,
        site: &Site,
        observer: &Observer,
        lambdas: &[String],
    ) -> anyhow::Result<Outcome> {
        settle(observer).await?;
        let began = now_s(observer).await?;
        let before = observer.read().await?;
        let order = Order { limit: Some(self.tasks), ..Order::of(Part::Noop, lambdas) };
        let workers = Workers::start(site, order, 1)?;
        let executed = workers.until_enough(patience(self.tasks)).await?.executed;
        observer.alone().await?;
        let after = observer.read().await?;
        let seconds = span_since(observer, began, executed).await?;
        let outcome = Outcome::new("backlog", executed, seconds, before.until(after, executed));
        Ok(outcome.with("payload_bytes", self.payload_bytes))
    }
}
