//! flood: many lambdas at a quiet pace on all priorities, one of which is flooded; the start latency of
//! the quiet lambdas' tasks.

use std::sync::atomic::Ordering;
use std::time::Instant;

use clap::{Args, value_parser};

use super::drain::{patience, until_drained};
use super::load::{PAYLOAD_BYTES, Pace, Preload, define};
use super::meter::{Meter, Observer, round};
use super::progress::Progress;
use super::report::Outcome;
use super::site::Site;
use super::worker::Part;
use super::workers::{Order, Work, Workers};

/// The lambda that is flooded.
const FLOODED: &str = "flooded";
/// Nothing of the flood is queued any more.
const EBB: &str = "select not exists (select from tuskline.queued where queue_id in \
                   (select queue_id from tuskline.queue where lambda = 'flooded'))";

/// The same of the quiet queues: what stands behind a quota stays there.
const CALM: &str = "select not exists (select from tuskline.queued where queue_id in \
                    (select queue_id from tuskline.queue where lambda <> 'flooded'))";

/// Options of `flood`.
#[derive(Debug, Clone, Args)]
pub struct Flood {
    /// Quiet lambdas, with four queues each.
    #[arg(long, default_value_t = 100, value_parser = value_parser!(u64).range(1..=1_000))]
    lambdas: u64,
    /// Tasks of the flood.
    #[arg(long, default_value_t = 200_000, value_parser = value_parser!(u64).range(1..=50_000_000))]
    tasks: u64,
    /// Inserts a second into the quiet queues.
    #[arg(long, default_value_t = 200, value_parser = value_parser!(u64).range(1..=100_000))]
    rate: u64,
    /// For how long before the flood.
    #[arg(long, default_value_t = 20, value_parser = value_parser!(u64).range(1..=3_600))]
    seconds: u64,
    /// Connections that insert.
    #[arg(long, default_value_t = 8, value_parser = value_parser!(u64).range(1..=64))]
    connections: u64,
    /// Worker processes.
    #[arg(long, default_value_t = 1, value_parser = value_parser!(u64).range(1..=64))]
    workers: u64,
    /// A quota of so many tasks a second for the flooded lambda, with a server that keeps it. Looks at
    /// three times as many seconds of the flood, not at its end, and apart at its arrival.
    #[arg(long, value_name = "PER_SECOND", value_parser = value_parser!(u64).range(1..=1_000_000))]
    quota: Option<u64>,
}

/// Readings at the beginning, when the flood comes, when all of it has come, and at the end, and seconds
/// between them. Without a quota it ends when it has gone, and comes and goes at once.
type Course = (Vec<Meter>, Vec<f64>);

impl Flood {
    pub(super) async fn run(&self, site: &Site) -> anyhow::Result<Vec<Outcome>> {
        let observer = site.observer().await?;
        let quiet: Vec<String> =
            (0..self.lambdas).map(|number| format!("quiet_{number}")).collect();
        let all: Vec<String> = quiet.iter().cloned().chain([FLOODED.to_owned()]).collect();
        define(&observer, &all).await?;
        let order = Order::of(Part::Stamped, &all);
        let workers = Workers::asleep(site, &observer, order, self.workers).await?;
        let server = match self.quota {
            Some(quota) => {
                let set = format!("select tuskline.set_limit('flooded', p_per_second => {quota})");
                observer.execute(&set).await?;
                Some(Workers::start(site, Order::of(Part::Server, &[]), 1)?)
            }
            None => None,
        };
        let longest_s = self.seconds * 4 + patience(self.tasks).as_secs();
        let pace = Pace {
            priorities: &["critical", "high", "normal", "low"],
            ..Pace::new(self.rate, self.connections, longest_s, &quiet)
        };
        let (sent, course) =
            tokio::try_join!(pace.clone().send(site), self.course(site, &observer, &pace))?;
        match server {
            Some(server) => {
                observer.until(CALM, "the last of the quiet tasks", patience(self.rate)).await?;
                server.end().await?;
            }
            None => until_drained(&observer, self.tasks).await?,
        }
        let work = workers.end().await?;
        self.parts(&sent, &work, &course)
    }

    /// Latencies of the quiet lambdas in each phase.
    fn parts(
        &self,
        sent: &[u64],
        work: &Work,
        (meters, seconds): &Course,
    ) -> anyhow::Result<Vec<Outcome>> {
        let mut parts = Vec::new();
        let names = match self.quota {
            Some(_) => &["before", "arriving", "during"][..],
            None => &["before", "during"],
        };
        let mut calm = None;
        for (n, name) in names.iter().enumerate() {
            let latencies = work.latencies(u8::try_from(n)?)?;
            let quiet = sent[n];
            anyhow::ensure!(
                latencies.count() == quiet,
                "{} of {quiet} tasks started",
                latencies.count()
            );
            // Behind a quota the flood's own tasks are neither all executed nor counted.
            let flood = if n > 0 && self.quota.is_none() { self.tasks } else { 0 };
            let cost = meters[n].until(meters[n + 1], quiet + flood);
            let mut part = Outcome::new("flood", quiet + flood, seconds[n], cost)
                .part(*name)
                .timed(&latencies)
                .with("rate", self.rate)
                .with("lambdas", self.lambdas);
            let p95 = latencies.quantiles().p95_ms;
            match n {
                0 => calm = p95,
                _ => {
                    let ratio = calm.zip(p95).map(|(before, now)| round(now / before));
                    part = part
                        .with("flood_tasks", self.tasks)
                        .with("quiet_tasks", quiet)
                        .with("p95_ratio", ratio);
                }
            }
            if let Some(quota) = self.quota {
                part = part.with("quota_per_s", quota);
            }
            parts.push(part);
        }
        Ok(parts)
    }

    /// The quiet time, the flood, and its end, which ends the pace.
    async fn course(
        &self,
        site: &Site,
        observer: &Observer,
        pace: &Pace,
    ) -> anyhow::Result<Course> {
        let _end = pace.stop.clone().drop_guard();
        let mut times = vec![Instant::now()];
        let mut meters = vec![observer.read().await?];
        let reached = async |phase: u8| {
            pace.phase.store(phase, Ordering::Relaxed);
            observer.read().await
        };
        Progress::new("before the flood", self.seconds, site.quiet()).sleep(self.seconds).await;
        times.push(Instant::now());
        meters.push(reached(1).await?);
        let preload = Preload { lambda: FLOODED, ..Preload::noop(self.tasks, PAYLOAD_BYTES) };
        preload.insert("flood", site, observer).await?;
        match self.quota {
            Some(_) => {
                times.push(Instant::now());
                meters.push(reached(2).await?);
                let longer = 3 * self.seconds;
                Progress::new("the flood", longer, site.quiet()).sleep(longer).await;
            }
            None => observer.until(EBB, "the end of the flood", patience(self.tasks)).await?,
        }
        times.push(Instant::now());
        meters.push(observer.read().await?);
        let seconds = times.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64()).collect();
        Ok((meters, seconds))
    }
}
