//! flood: many lambdas at a quiet pace on all priorities, one of which is flooded; what the starts of
//! the others' tasks feel of it.

use std::sync::atomic::Ordering;
use std::time::Instant;

use clap::{Args, value_parser};

use super::crew::{Crew, Order};
use super::drain::{patience, until_drained};
use super::load::{PAYLOAD_BYTES, Pace, Preload, define};
use super::meter::{Meter, Observer, round};
use super::progress::Progress;
use super::report::Outcome;
use super::site::Site;
use super::worker::Part;

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
    /// three times as many seconds of the flood, not at its end.
    #[arg(long, value_name = "PER_SECOND", value_parser = value_parser!(u64).range(1..=1_000_000))]
    quota: Option<u64>,
}

/// Readings at the beginning, at the flood and when it has gone, and seconds between them.
type Course = ([Meter; 3], [f64; 2]);

impl Flood {
    pub(super) async fn run(&self, site: &Site) -> anyhow::Result<Vec<Outcome>> {
        let observer = site.observer().await?;
        let quiet: Vec<String> =
            (0..self.lambdas).map(|number| format!("quiet_{number}")).collect();
        let all: Vec<String> = quiet.iter().cloned().chain([FLOODED.to_owned()]).collect();
        define(&observer, &all).await?;
        let order = Order::of(Part::Stamped, &all);
        let crew = Crew::asleep(site, &observer, order, self.workers).await?;
        let server = match self.quota {
            Some(quota) => {
                let set = format!("select tuskline.set_limit('flooded', p_per_second => {quota})");
                observer.execute(&set).await?;
                Some(Crew::start(site, Order::of(Part::Server, &[]), 1)?)
            }
            None => None,
        };
        let longest_s = self.seconds * 4 + patience(self.tasks).as_secs();
        let pace = Pace {
            priorities: &["critical", "high", "normal", "low"],
            ..Pace::new(self.rate, self.connections, longest_s, &quiet)
        };
        let (sent, (meters, seconds)) =
            tokio::try_join!(pace.clone().send(site), self.course(site, &observer, &pace))?;
        match server {
            Some(server) => {
                observer.until(CALM, "the last of the quiet tasks", patience(self.rate)).await?;
                server.end().await?;
            }
            None => until_drained(&observer, self.tasks).await?,
        }
        let work = crew.end().await?;
        let latencies = [work.latencies(0)?, work.latencies(1)?];
        for (seen, sent) in latencies.iter().zip(&sent) {
            anyhow::ensure!(seen.count() == *sent, "{} of {sent} tasks started", seen.count());
        }
        let [calm, flooded] = &latencies;
        let during = sent[1] + if self.quota.is_some() { 0 } else { self.tasks };
        let p95 = |n: usize| latencies[n].quantiles().p95_ms;
        let ratio = p95(0).zip(p95(1)).map(|(before, during)| round(during / before));
        let before =
            Outcome::new("flood", sent[0], seconds[0], meters[0].until(meters[1], sent[0]));
        let mut flood =
            Outcome::new("flood", during, seconds[1], meters[1].until(meters[2], during));
        if let Some(quota) = self.quota {
            flood = flood.with("quota_per_s", quota);
        }
        Ok(vec![
            before.part("before").timed(calm).with("rate", self.rate).with("lambdas", self.lambdas),
            flood
                .part("during")
                .timed(flooded)
                .with("rate", self.rate)
                .with("lambdas", self.lambdas)
                .with("flood_tasks", self.tasks)
                .with("quiet_tasks", sent[1])
                .with("p95_ratio", ratio),
        ])
    }

    /// The quiet time, the flood, and its end, which ends the pace.
    async fn course(
        &self,
        site: &Site,
        observer: &Observer,
        pace: &Pace,
    ) -> anyhow::Result<Course> {
        let _end = pace.stop.clone().drop_guard();
        let (calm, began) = (observer.read().await?, Instant::now());
        Progress::new("before the flood", self.seconds, site.quiet()).sleep(self.seconds).await;
        let (flood, flooded) = (observer.read().await?, Instant::now());
        pace.phase.store(1, Ordering::Relaxed);
        let preload = Preload { lambda: FLOODED, ..Preload::noop(self.tasks, PAYLOAD_BYTES) };
        preload.insert("flood", site, observer).await?;
        match self.quota {
            Some(_) => {
                Progress::new("the flood", 3 * self.seconds, site.quiet())
                    .sleep(3 * self.seconds)
                    .await
            }
            None => observer.until(EBB, "the end of the flood", patience(self.tasks)).await?,
        }
        let seconds = [flooded - began, flooded.elapsed()].map(|span| span.as_secs_f64());
        Ok(([calm, flood, observer.read().await?], seconds))
    }
}
