//! idle: what a worker, and then a server, cost while there is nothing to do.

use std::time::Duration;

use clap::{Args, value_parser};

use super::crew::{Crew, Order};
use super::load::define_noop;
use super::meter::{Cost, Observer, round};
use super::progress::Progress;
use super::report::Outcome;
use super::site::Site;
use super::worker::Part;

/// After its start, until a process has nothing left to do.
const CALM: Duration = Duration::from_secs(2);

/// Options of `idle`.
#[derive(Debug, Clone, Args)]
pub struct Idle {
    /// How long to look at each; counters are a second late, so that short looks are rough.
    #[arg(long, default_value_t = 60, value_parser = value_parser!(u64).range(1..=86_400))]
    seconds: u64,
}

impl Idle {
    pub(super) async fn run(&self, site: &Site) -> anyhow::Result<Vec<Outcome>> {
        let observer = site.observer().await?;
        let lambdas = define_noop(&observer).await?;
        let progress = Progress::new("idle", 2 * self.seconds, site.quiet());
        let worker = Crew::start(site, Order::of(Part::Noop, &lambdas), 1)?;
        observer.until_workers(1).await?;
        let worker = self.look_at(worker, "worker", &observer, &progress).await?;
        let server = Crew::start(site, Order::of(Part::Server, &[]), 1)?;
        let server = self.look_at(server, "server", &observer, &progress).await?;
        Ok(vec![worker, server])
    }

    /// Looks at one process for a while, and ends it.
    #[allow(clippy::cast_precision_loss)]
    async fn look_at(
        &self,
        crew: Crew,
        name: &str,
        observer: &Observer,
        progress: &Progress,
    ) -> anyhow::Result<Outcome> {
        tokio::time::sleep(CALM).await;
        let (before, cpu_before) = (observer.read().await?, crew.cpu_us());
        progress.sleep(self.seconds).await;
        let (after, cpu_after) = (observer.read().await?, crew.cpu_us());
        crew.end().await?;
        observer.alone().await?;
        let seconds = self.seconds as f64;
        let percent = |us: Option<u64>| us.map(|us| round(us as f64 / seconds / 10_000.0));
        let own = cpu_before.zip(cpu_after).map(|(from, to)| to.saturating_sub(from));
        let commits = before.commits_until(after) as f64;
        Ok(Outcome::new("idle", 0, seconds, Cost::default())
            .part(name)
            .with("transactions_per_s", round(commits / seconds))
            .with("process_cpu_percent", percent(own))
            .with("postgresql_cpu_percent", percent(before.server_cpu_us_until(after))))
    }
}
