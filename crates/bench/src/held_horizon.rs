//! held-horizon: single inserts at a fixed rate, executed at once, while one transaction holds the
//! oldest snapshot: no dead row may be removed. Compares the costs of the last seconds with those of the first.

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::Instant;

use clap::{Args, value_parser};

use super::drain::until_drained;
use super::latencies::Latencies;
use super::load::{Pace, Singles, define_noop};
use super::meter::{Meter, Observer, round};
use super::progress::Progress;
use super::report::{Moment, Outcome};
use super::site::Site;
use super::worker::Part;
use super::workers::{Order, Work, Workers};

/// Longest stretch at the beginning and at the end that are compared, in seconds.
const WINDOW_S: u64 = 30;
/// Windows of the course, or up to twice as many: a phase is one byte.
const WINDOWS: u64 = 48;
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
    #[command(flatten)]
    singles: Singles,
    /// Hold nothing: what the growth of the store alone costs.
    #[arg(long)]
    free: bool,
}

impl HeldHorizon {
    pub(super) async fn run(&self, site: &Site) -> anyhow::Result<Vec<Outcome>> {
        let observer = site.observer().await?;
        let lambdas = define_noop(&observer).await?;
        let order = Order::of(Part::Stamped, &lambdas);
        let workers = Workers::asleep(site, &observer, order, self.singles.workers).await?;
        let holder = site.connect().await?;
        if !self.free {
            holder.batch_execute(HOLD).await?;
        }
        let pace = self.singles.pace(self.rate, self.seconds, &lambdas);
        let (sent, readings) =
            tokio::try_join!(pace.clone().send(site), self.course(site, &observer, &pace))?;
        drop(holder); // and what it holds
        until_drained(&observer, sent.iter().sum()).await?;
        let held = Held { work: workers.end().await?, sent, readings };
        let windows = held.readings.len() - 1;
        let edge = usize::try_from(WINDOW_S.min(self.seconds / 3) / self.step_s())?.max(1);
        let measured = |windows: Range<usize>| {
            let outcome = held.window(windows)?;
            Ok::<_, anyhow::Error>(
                outcome
                    .with("rate", self.rate)
                    .with("seconds", self.seconds)
                    .with("held", u64::from(!self.free)),
            )
        };
        let first = measured(0..edge)?.part("first");
        let mut last = measured(windows - edge..windows)?.part("last");
        let ratio = |from: Option<f64>, to: Option<f64>| Some(round(to? / from?));
        let p50 = ratio(first.quantiles.p50_ms, last.quantiles.p50_ms);
        let hits = ratio(first.cost.buffer_hits_per_task, last.cost.buffer_hits_per_task);
        let own = ratio(first.cost.statement_hits_per_task, last.cost.statement_hits_per_task);
        last.course = held.course()?;
        let last = last
            .with("p50_ratio", p50)
            .with("buffer_hits_ratio", hits)
            .with("statement_hits_ratio", own);
        Ok(vec![first, last])
    }

    /// Length of a window: 5 s in four minutes.
    fn step_s(&self) -> u64 {
        (self.seconds / WINDOWS).max(1)
    }

    /// Reads the meters at both ends of every window, tells the senders which it is, and ends them.
    async fn course(
        &self,
        site: &Site,
        observer: &Observer,
        pace: &Pace,
    ) -> anyhow::Result<Vec<Reading>> {
        // Tasks that a slow machine would send later belong to no window.
        let _end = pace.stop.clone().drop_guard();
        let progress = Progress::new("held-horizon", self.seconds, site.quiet());
        let began = Instant::now();
        let mut readings = vec![Reading { at_s: 0.0, meter: observer.read().await? }];
        let windows = self.seconds / self.step_s();
        for window in 1..=windows {
            let rest = if window == windows { self.seconds % self.step_s() } else { 0 };
            progress.sleep(self.step_s() + rest).await;
            let meter = observer.read().await?;
            readings.push(Reading { at_s: round(began.elapsed().as_secs_f64()), meter });
            if window < windows {
                pace.phase.store(u8::try_from(window)?, Ordering::Relaxed);
            }
        }
        Ok(readings)
    }
}

/// The meters at a moment.
struct Reading {
    at_s: f64,
    meter: Meter,
}

/// Result of the run: phase n of senders and workers lies between readings n and n + 1.
struct Held {
    work: Work,
    sent: Vec<u64>,
    readings: Vec<Reading>,
}

impl Held {
    /// Several windows as one.
    fn window(&self, windows: Range<usize>) -> anyhow::Result<Outcome> {
        let (from, to) = (&self.readings[windows.start], &self.readings[windows.end]);
        let tasks = self.sent[windows.clone()].iter().sum();
        let mut latencies = Latencies::none()?;
        for window in windows {
            latencies.add(&self.work.latencies(u8::try_from(window)?)?)?;
        }
        anyhow::ensure!(latencies.count() == tasks, "not every task started");
        let cost = from.meter.until(to.meter, tasks);
        Ok(Outcome::new("held-horizon", tasks, to.at_s - from.at_s, cost).timed(&latencies))
    }

    fn course(&self) -> anyhow::Result<Vec<Moment>> {
        let moments = (0..self.readings.len() - 1).map(|window| {
            let Outcome { quantiles, cost, .. } = self.window(window..window + 1)?;
            Ok(Moment {
                at_s: self.readings[window + 1].at_s,
                p50_ms: quantiles.p50_ms,
                p99_ms: quantiles.p99_ms,
                buffer_hits_per_task: cost.buffer_hits_per_task,
                statement_hits_per_task: cost.statement_hits_per_task,
                server_cpu_us_per_task: cost.server_cpu_us_per_task,
            })
        });
        moments.collect()
    }
}
