//! schedule-single: one task per commit. A bare insert of the same payload into a table without an
//! index runs in the same call, half of it before and half after, so that the ratio of both depends
//! neither on the machine nor on a load that grows or goes.

use std::time::{Duration, Instant};

use clap::{Args, value_parser};

use super::latencies::Latencies;
use super::load::{NOOP, PAYLOAD_BYTES, define_noop, payload, payload_bytes};
use super::meter::round;
use super::progress::Progress;
use super::report::Outcome;
use super::site::Site;

const PLAIN_TABLE: &str = "create table bench_plain (lambda text, payload json)";
const PLAIN: &str = "insert into bench_plain values ($1::text, $2::text::json)";
const SCHEDULE: &str = "select tuskline.schedule($1::text, $2::text::json)";

/// Options of `schedule-single`.
#[derive(Debug, Clone, Args)]
pub struct ScheduleSingle {
    /// Connections at once; one measurement for each number.
    #[arg(long, value_delimiter = ',', default_value = "1,8,32")]
    #[arg(value_parser = value_parser!(u64).range(1..=128))]
    connections: Vec<u64>,
    /// For how long each, and the bare insert as long again.
    #[arg(long, default_value_t = 5, value_parser = value_parser!(u64).range(1..=3_600))]
    seconds: u64,
    /// End after so many tasks instead, however long that takes, so that costs can be compared.
    #[arg(long, conflicts_with = "seconds", value_parser = value_parser!(u64).range(1..=10_000_000))]
    tasks: Option<u64>,
    /// Size of each payload.
    #[arg(long, default_value_t = PAYLOAD_BYTES, value_parser = payload_bytes)]
    payload_bytes: usize,
}

impl ScheduleSingle {
    pub(super) async fn run(&self, site: &Site) -> anyhow::Result<Vec<Outcome>> {
        let observer = site.observer().await?;
        define_noop(&observer).await?;
        observer.execute(PLAIN_TABLE).await?;
        let rounds = 3 * self.connections.len() as u64;
        let half = Span::of(Duration::from_secs(self.seconds) / 2, self.tasks.map(|n| n / 2));
        let whole = Span::of(Duration::from_secs(self.seconds), self.tasks);
        let progress = Progress::new("schedule-single", rounds, site.quiet());
        let mut parts = Vec::new();
        for &connections in &self.connections {
            let mut bare = self.repeat(site, PLAIN, connections, half).await?;
            progress.further(1);
            observer.alone().await?;
            let before = observer.read().await?;
            let ours = self.repeat(site, SCHEDULE, connections, whole).await?;
            progress.further(1);
            observer.alone().await?;
            let after = observer.read().await?;
            bare.add(&self.repeat(site, PLAIN, connections, half).await?)?;
            progress.further(1);
            let tasks = ours.latencies.count();
            parts.push(
                Outcome::new("schedule-single", tasks, ours.seconds, before.until(after, tasks))
                    .part(format!("{connections} connections"))
                    .timed(&ours.latencies)
                    .with("connections", connections)
                    .with("payload_bytes", self.payload_bytes)
                    .with("bare_inserts_per_s", round(bare.per_s()))
                    .with("bare_p50_ms", bare.latencies.quantiles().p50_ms)
                    .with("share_of_bare", round(ours.per_s() / bare.per_s())),
            );
        }
        Ok(parts)
    }

    /// The same statement again and again, each in a commit of its own.
    async fn repeat(
        &self,
        site: &Site,
        sql: &'static str,
        connections: u64,
        span: Span,
    ) -> anyhow::Result<Repeated> {
        let mut clients = Vec::new();
        for _ in 0..connections {
            let client = site.connect().await?;
            let statement = client.prepare(sql).await?;
            clients.push((client, statement));
        }
        let began = Instant::now();
        let mut senders = tokio::task::JoinSet::new();
        for ((client, statement), number) in clients.into_iter().zip(0..) {
            let most = span
                .tasks
                .map_or(u64::MAX, |all| all / connections + u64::from(number < all % connections));
            let payload = payload(self.payload_bytes);
            senders.spawn(async move {
                let mut latencies = Latencies::none()?;
                while began.elapsed() < span.time && latencies.count() < most {
                    let asked = Instant::now();
                    client.execute(&statement, &[&NOOP, &payload]).await?;
                    latencies.record(u64::try_from(asked.elapsed().as_micros())?);
                }
                anyhow::Ok(latencies)
            });
        }
        let mut latencies = Latencies::none()?;
        while let Some(ended) = senders.join_next().await {
            latencies.add(&ended??)?;
        }
        Ok(Repeated { latencies, seconds: began.elapsed().as_secs_f64() })
    }
}

/// How long a statement is repeated.
#[derive(Debug, Clone, Copy)]
struct Span {
    time: Duration,
    /// In all; then the time does not matter.
    tasks: Option<u64>,
}

impl Span {
    fn of(time: Duration, tasks: Option<u64>) -> Self {
        Self { time: if tasks.is_some() { Duration::MAX } else { time }, tasks }
    }
}

/// What came of a repeated statement.
struct Repeated {
    latencies: Latencies,
    seconds: f64,
}

impl Repeated {
    fn add(&mut self, more: &Self) -> anyhow::Result<()> {
        self.seconds += more.seconds;
        self.latencies.add(&more.latencies)
    }

    #[allow(clippy::cast_precision_loss)]
    fn per_s(&self) -> f64 {
        self.latencies.count() as f64 / self.seconds
    }
}
