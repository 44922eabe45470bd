//! singles: one task per commit.
//!
//! By connections: without a worker, beside a bare insert of the same payload into a table without an
//! index. It runs in the same call, half of it before and half after, so that the ratio of both depends
//! neither on the machine nor on a load that grows or goes.
//!
//! By lambdas: into so many lambdas by turns, with one worker that serves them all. The numbers of lambdas
//! take turns, for the same reason.

use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::builder::ArgPredicate;
use clap::{Args, value_parser};

use super::latencies::Latencies;
use super::load::{NOOP, PAYLOAD_BYTES, define, define_noop, payload, payload_bytes};
use super::meter::{Cost, Observer, round};
use super::progress::Progress;
use super::report::Outcome;
use super::site::Site;
use super::worker::Part;
use super::workers::{Order, Workers};

const PLAIN_TABLE: &str = "create table bench_plain (lambda text, payload json)";
const PLAIN: &str = "insert into bench_plain values ($1::text, $2::text::json)";
const SCHEDULE: &str = "select tuskline.schedule($1::text, $2::text::json)";

/// Turns of each number of lambdas.
const TURNS: u32 = 3;

/// Options of `singles`.
#[derive(Debug, Clone, Args)]
pub struct Singles {
    /// Lambdas that get the tasks by turns, with a worker attached; one measurement for each number.
    #[arg(long, value_delimiter = ',', conflicts_with = "tasks")]
    #[arg(value_parser = value_parser!(u64).range(1..=10_000))]
    lambdas: Vec<u64>,
    /// Connections at once; one measurement for each number [default with --lambdas: 16].
    #[arg(long, value_delimiter = ',', default_value = "1,8,32")]
    #[arg(default_value_if("lambdas", ArgPredicate::IsPresent, "16"))]
    #[arg(value_parser = value_parser!(u64).range(1..=128))]
    connections: Vec<u64>,
    /// For how long each, and a bare insert as long again [default with --lambdas: 18, so that the
    /// first calls of a session, which plan, do not count for much].
    #[arg(long, default_value_t = 5, value_parser = value_parser!(u64).range(1..=3_600))]
    #[arg(default_value_if("lambdas", ArgPredicate::IsPresent, "18"))]
    seconds: u64,
    /// End after so many tasks instead, however long that takes, so that costs can be compared.
    #[arg(long, conflicts_with = "seconds", value_parser = value_parser!(u64).range(1..=10_000_000))]
    tasks: Option<u64>,
    /// Size of each payload.
    #[arg(long, default_value_t = PAYLOAD_BYTES, value_parser = payload_bytes)]
    payload_bytes: usize,
}

impl Singles {
    pub(super) async fn run(&self, site: &Site) -> anyhow::Result<Vec<Outcome>> {
        let observer = site.observer().await?;
        match self.lambdas.is_empty() {
            true => self.by_connections(site, &observer).await,
            false => self.by_lambdas(site, &observer).await,
        }
    }

    /// With a worker attached.
    async fn by_lambdas(&self, site: &Site, observer: &Observer) -> anyhow::Result<Vec<Outcome>> {
        let most = self.lambdas.iter().max().copied().unwrap_or_default();
        let names: Vec<_> = (1..=most).map(|number| format!("{NOOP}_{number}")).collect();
        define(observer, &names).await?;
        let cases: Vec<_> =
            self.lambdas.iter().flat_map(|n| self.connections.iter().map(|c| (*n, *c))).collect();
        let span = Span::of(Duration::from_secs(self.seconds) / TURNS, None);
        let progress = Progress::new("singles", cases.len() as u64, site.quiet());
        let mut sums: Vec<Option<Repeated>> = cases.iter().map(|_| None).collect();
        for turn in 1..=TURNS {
            for ((lambdas, connections), sum) in cases.iter().zip(&mut sums) {
                let names = &names[..usize::try_from(*lambdas)?];
                let worker =
                    Workers::asleep(site, observer, Order::of(Part::Noop, names), 1).await?;
                let ours = self.repeat(site, SCHEDULE, names, *connections, span).await?;
                worker.end().await?;
                observer.alone().await?;
                match sum {
                    Some(sum) => sum.add(&ours)?,
                    None => *sum = Some(ours),
                }
                progress.further(u64::from(turn == TURNS));
            }
        }
        let outcome = |((lambdas, connections), sum): (&(u64, u64), Option<Repeated>)| {
            let Repeated { latencies, seconds } = sum?;
            let part = format!("{lambdas} lambdas, {connections} connections");
            let outcome = Outcome::new("singles", latencies.count(), seconds, Cost::default());
            Some(
                outcome
                    .part(part)
                    .timed(&latencies)
                    .with("lambdas", *lambdas)
                    .with("connections", *connections)
                    .with("payload_bytes", self.payload_bytes),
            )
        };
        Ok(cases.iter().zip(sums).filter_map(outcome).collect())
    }

    /// Without a worker, beside a bare insert.
    async fn by_connections(
        &self,
        site: &Site,
        observer: &Observer,
    ) -> anyhow::Result<Vec<Outcome>> {
        let names = define_noop(observer).await?;
        observer.execute(PLAIN_TABLE).await?;
        let rounds = 3 * self.connections.len() as u64;
        let half = Span::of(Duration::from_secs(self.seconds) / 2, self.tasks.map(|n| n / 2));
        let whole = Span::of(Duration::from_secs(self.seconds), self.tasks);
        let progress = Progress::new("singles", rounds, site.quiet());
        let mut parts = Vec::new();
        for &connections in &self.connections {
            let mut bare = self.repeat(site, PLAIN, &names, connections, half).await?;
            progress.further(1);
            observer.alone().await?;
            let before = observer.read().await?;
            let ours = self.repeat(site, SCHEDULE, &names, connections, whole).await?;
            progress.further(1);
            observer.alone().await?;
            let after = observer.read().await?;
            bare.add(&self.repeat(site, PLAIN, &names, connections, half).await?)?;
            progress.further(1);
            let tasks = ours.latencies.count();
            parts.push(
                Outcome::new("singles", tasks, ours.seconds, before.until(after, tasks))
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
        lambdas: &[String],
        connections: u64,
        span: Span,
    ) -> anyhow::Result<Repeated> {
        let mut clients = Vec::new();
        for _ in 0..connections {
            let client = site.connect().await?;
            let statement = client.prepare(sql).await?;
            clients.push((client, statement));
        }
        let lambdas: Arc<[String]> = lambdas.into();
        let began = Instant::now();
        let mut senders = tokio::task::JoinSet::new();
        for ((client, statement), number) in clients.into_iter().zip(0..) {
            let most = span
                .tasks
                .map_or(u64::MAX, |all| all / connections + u64::from(number < all % connections));
            let payload = payload(self.payload_bytes);
            let lambdas = Arc::clone(&lambdas);
            senders.spawn(async move {
                let mut latencies = Latencies::none()?;
                let mut turns = lambdas.iter().cycle().skip(usize::try_from(number)?);
                while began.elapsed() < span.time && latencies.count() < most {
                    let Some(lambda) = turns.next() else { break };
                    let asked = Instant::now();
                    client.execute(&statement, &[lambda, &payload]).await?;
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

/// Result of a repeated statement.
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
