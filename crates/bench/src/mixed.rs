//! mixed: a day's traffic in small: of 20 tasks two fail at first, two are due a second later, one is
//! due in an hour; payloads from 150 B to 64 KiB, all sizes of their logarithm alike. With a server.

use std::time::Duration;

use clap::{Args, value_parser};
use tuskline_sdk::{BATCH_MAX, NewTask};

use super::drain::{patience, succeeded, until_nothing_is_due};
use super::load::NOOP;
use super::progress::Progress;
use super::report::Outcome;
use super::site::Site;
use super::worker::Part;
use super::workers::{Order, Workers};

/// Smallest and largest payload, in bytes.
const PAYLOADS: (f64, f64) = (150.0, 65_536.0);
/// Bytes of a payload besides its padding.
const FRAME_BYTES: usize = 30;
/// Delay of the delayed tasks, and of those that are due long after the run.
const DELAY: Duration = Duration::from_secs(1);
const FUTURE: Duration = Duration::from_secs(3600);

const DEFINE: &str = "select tuskline.define_lambda('noop', p_retry_base => '500 ms')";
/// From the first schedule to the last result, and how many succeeded.
const SPAN: &str = "select count(*) filter (where status = 'success'), \
    coalesce(extract(epoch from max(finished_at) - min(created_at)), 0)::float8, \
    coalesce(avg(octet_length(payload::text)), 0)::float8 from tuskline.task";

/// Options of `mixed`.
#[derive(Debug, Clone, Args)]
pub struct Mixed {
    /// Tasks to schedule, some 10 KiB each.
    #[arg(long, default_value_t = 20_000, value_parser = value_parser!(u64).range(20..=10_000_000))]
    tasks: u64,
    /// Tasks in one call.
    #[arg(long, default_value_t = 200, value_parser = value_parser!(u64).range(1..=BATCH_MAX as u64))]
    batch: u64,
    /// Worker processes.
    #[arg(long, default_value_t = 1, value_parser = value_parser!(u64).range(1..=64))]
    workers: u64,
}

/// Fate of the n-th task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Plain,
    FailsFirst,
    Delayed,
    Future,
}

impl Fate {
    fn of(number: u64) -> Self {
        match number % 20 {
            3 | 13 => Self::FailsFirst,
            7 | 17 => Self::Delayed,
            10 => Self::Future,
            _ => Self::Plain,
        }
    }
}

impl Mixed {
    pub(super) async fn run(&self, site: &Site) -> anyhow::Result<Outcome> {
        let observer = site.observer().await?;
        observer.row(DEFINE).await?;
        let lambdas = vec![NOOP.to_owned()];
        let before = observer.read().await?;
        let server = Workers::start(site, Order::of(Part::Server, &[]), 1)?;
        let workers = Workers::start(site, Order::of(Part::Stamped, &lambdas), self.workers)?;
        observer.until_workers(self.workers).await?;
        self.schedule(site).await?;
        until_nothing_is_due(&observer, patience(self.tasks * 10)).await?;
        let executed = workers.end().await?.executed;
        server.end().await?;
        observer.alone().await?;
        let after = observer.read().await?;
        let span = observer.row(SPAN).await?;
        let of = |fate| (0..self.tasks).filter(|number| Fate::of(*number) == fate).count() as u64;
        let run = self.tasks - of(Fate::Future);
        succeeded(span.get(0), run)?;
        Ok(Outcome::new("mixed", run, span.get(1), before.until(after, run))
            .with("executed", executed)
            .with("retried", of(Fate::FailsFirst))
            .with("delayed", of(Fate::Delayed))
            .with("future", of(Fate::Future))
            .with("mean_payload_bytes", span.get::<_, f64>(2).round())
            .with("batch", self.batch)
            .with("workers", self.workers))
    }

    async fn schedule(&self, site: &Site) -> anyhow::Result<()> {
        let scheduler = site.scheduler().await?;
        let progress = Progress::new("mixed", self.tasks, site.quiet());
        let mut random = fastrand::Rng::with_seed(1); // the same mix each time
        let mut batch = Vec::new();
        for number in 0..self.tasks {
            batch.push(task(Fate::of(number), &mut random)?);
            if batch.len() as u64 == self.batch || number + 1 == self.tasks {
                scheduler.schedule_many(&batch).await?;
                progress.further(batch.len() as u64);
                batch.clear();
            }
        }
        Ok(())
    }
}

/// A task of this fate. Its padding does not compress as a row of equal letters would.
fn task(fate: Fate, random: &mut fastrand::Rng) -> anyhow::Result<NewTask> {
    let (least, most) = PAYLOADS;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let bytes = (least * (most / least).powf(random.f64())) as usize;
    let pad: String = (FRAME_BYTES..bytes).map(|_| random.alphanumeric()).collect();
    let fails = fate == Fate::FailsFirst;
    let task = NewTask::from_json(NOOP, format!("{{\"fails_first\":{fails},\"pad\":\"{pad}\"}}"));
    Ok(match fate {
        Fate::Plain | Fate::FailsFirst => task,
        Fate::Delayed => task.after(DELAY),
        Fate::Future => task.after(FUTURE),
    })
}
