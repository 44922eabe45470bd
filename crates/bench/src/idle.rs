//! idle: the costs of a worker, and then of a server, while there is nothing to do. The costs of the
//! database itself, mostly autovacuum, are measured first and subtracted.
//! An idle worker or server has no transaction of more than one statement.

use std::time::Duration;

use clap::{Args, value_parser};

use super::load::define_noop;
use super::meter::{Cost, Observer, round};
use super::progress::Progress;
use super::report::Outcome;
use super::site::Site;
use super::worker::Part;
use super::workers::{Order, Workers};

/// After its start, until a process has nothing left to do.
const CALM: Duration = Duration::from_secs(2);

/// Options of `idle`.
#[derive(Debug, Clone, Args)]
pub struct Idle {
    /// How long to look at each; short looks are rough where statements are not counted.
    #[arg(long, default_value_t = 60, value_parser = value_parser!(u64).range(1..=86_400))]
    seconds: u64,
}

#[allow(clippy::cast_precision_loss)]
impl Idle {
    pub(super) async fn run(&self, site: &Site) -> anyhow::Result<Vec<Outcome>> {
        let observer = site.observer().await?;
        let lambdas = define_noop(&observer).await?;
        let progress = Progress::new("idle", 3 * self.seconds, site.quiet());
        let empty = Workers::start(site, Order::of(Part::Noop, &lambdas), 0)?;
        let empty = self.look_at(empty, &observer, &progress).await?;
        let worker = Workers::start(site, Order::of(Part::Noop, &lambdas), 1)?;
        observer.until_workers(1).await?;
        let worker = self.look_at(worker, &observer, &progress).await?;
        let server = Workers::start(site, Order::of(Part::Server, &[]), 1)?;
        let server = self.look_at(server, &observer, &progress).await?;
        Ok(vec![
            self.outcome("worker", worker, empty),
            self.outcome("server", server, empty),
            self.outcome("nobody", empty, Seen::default()),
        ])
    }

    /// The costs above those of the database alone.
    fn outcome(&self, name: &str, seen: Seen, base: Seen) -> Outcome {
        let seconds = self.seconds as f64;
        let percent = |us: Option<f64>| us.map(|us| round(us / seconds / 10_000.0));
        let above =
            |own: Option<f64>, base: Option<f64>| Some((own? - base.unwrap_or(0.0)).max(0.0));
        Outcome::new("idle", 0, seconds, Cost::default())
            .part(name)
            .with(
                "transactions_per_s",
                round((seen.transactions - base.transactions).max(0.0) / seconds),
            )
            .with("process_cpu_percent", percent(seen.own_us))
            .with("postgresql_cpu_percent", percent(above(seen.server_us, base.server_us)))
    }

    /// Measures some workers for a while, and ends them.
    async fn look_at(
        &self,
        workers: Workers,
        observer: &Observer,
        progress: &Progress,
    ) -> anyhow::Result<Seen> {
        tokio::time::sleep(CALM).await;
        let (before, cpu_before) = (observer.read().await?, workers.cpu_us());
        progress.sleep(self.seconds).await;
        let (after, cpu_after) = (observer.read().await?, workers.cpu_us());
        workers.end().await?;
        observer.alone().await?;
        let own = cpu_before.zip(cpu_after).map(|(from, to)| to.saturating_sub(from));
        Ok(Seen {
            transactions: before.transactions_until(after) as f64,
            own_us: own.map(|us| us as f64),
            server_us: before.server_cpu_us_until(after).map(|us| us as f64),
        })
    }
}

/// Counts of one phase.
#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    transactions: f64,
    /// CPU time of its own processes.
    own_us: Option<f64>,
    /// CPU time of the server.
    server_us: Option<f64>,
}
