//! backlog: a drain of an otherwise empty store, beside millions of tasks that are due later, and of a
//! queue that holds millions.

use clap::{Args, value_parser};

use super::crew::{Crew, Order};
use super::drain::{patience, succeeded};
use super::load::{NOOP, PAYLOAD_BYTES, Preload, define_noop, payload_bytes, settle};
use super::meter::{Observer, round};
use super::progress::Progress;
use super::report::Outcome;
use super::site::Site;
use super::worker::Part;

/// Hours until the future tasks are due: longer than any run.
const HOURS_AHEAD: u32 = 240;

/// Options of `backlog`.
#[derive(Debug, Clone, Args)]
pub struct Backlog {
    /// Tasks that are due days from now; 0 leaves this part out.
    #[arg(long, default_value_t = 10_000_000, value_parser = value_parser!(u64).range(..=100_000_000))]
    future: u64,
    /// Tasks in the queue; 0 leaves this part out.
    #[arg(long, default_value_t = 5_000_000, value_parser = value_parser!(u64).range(..=100_000_000))]
    enqueued: u64,
    /// Tasks to drain in each part.
    #[arg(long, default_value_t = 200_000, value_parser = value_parser!(u64).range(1..=50_000_000))]
    tasks: u64,
    /// Size of each payload.
    #[arg(long, default_value_t = PAYLOAD_BYTES, value_parser = payload_bytes)]
    payload_bytes: usize,
}

impl Backlog {
    pub(super) async fn run(&self, site: &Site) -> anyhow::Result<Vec<Outcome>> {
        let observer = site.observer().await?;
        let lambdas = define_noop(&observer).await?;
        self.preload(site, &observer, self.tasks, None).await?;
        let mut parts = vec![self.drain(site, &observer, &lambdas).await?.part("empty")];
        if self.future > 0 {
            self.preload(site, &observer, self.future, Some(HOURS_AHEAD)).await?;
            self.preload(site, &observer, self.tasks, None).await?;
            let part = self.drain(site, &observer, &lambdas).await?.part("future");
            parts.push(part.with("future", self.future));
        }
        if self.enqueued > 0 {
            self.preload(site, &observer, self.enqueued.max(self.tasks), None).await?;
            let part = self.drain(site, &observer, &lambdas).await?.part("enqueued");
            parts.push(part.with("future", self.future).with("enqueued", self.enqueued));
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
        hours_ahead: Option<u32>,
    ) -> anyhow::Result<()> {
        let what = if hours_ahead.is_some() { "due later" } else { "enqueued" };
        let progress = Progress::new(what, tasks, site.quiet());
        let payload_bytes = self.payload_bytes;
        Preload { lambda: NOOP, tasks, payload_bytes, hours_ahead }
            .insert(observer, &progress)
            .await
    }

    /// Drains `tasks` tasks, and a few that had begun by then.
    async fn drain(
        &self,
        site: &Site,
        observer: &Observer,
        lambdas: &[String],
    ) -> anyhow::Result<Outcome> {
        settle(observer).await?;
        let now = "select extract(epoch from clock_timestamp())::float8";
        let began: f64 = observer.row(now).await?.get(0);
        let before = observer.read().await?;
        let order = Order { limit: Some(self.tasks), ..Order::of(Part::Noop, lambdas) };
        let crew = Crew::start(site, order, 1)?;
        let executed = crew.until_enough(patience(self.tasks)).await?.executed;
        observer.alone().await?;
        let after = observer.read().await?;
        let span = format!(
            "select count(*), coalesce(extract(epoch from max(finished_at) - min(started_at)), 0)::float8 \
               from tuskline.task where status = 'success' and started_at >= to_timestamp({began})"
        );
        let span = observer.row(&span).await?;
        succeeded(span.get(0), executed)?;
        let outcome = Outcome::new("backlog", executed, span.get(1), before.until(after, executed));
        Ok(outcome.with("payload_bytes", self.payload_bytes))
    }
}
