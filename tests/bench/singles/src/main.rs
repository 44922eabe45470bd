//! Commits with a single task each, by several connections at once: Tuskline beside a bare insert
//! and beside apalis.
//!
//! All run in turns in one call, on one private PostgreSQL with full durability, each as its own
//! users run it. These are pgbench with prepared statements, the SDK's client, and the storage of
//! apalis with its pool. The payload is the same. The figure is a ratio within a round, so neither
//! the machine nor its neighbours decide it.
//!
//! Promises: each contender commits each task by itself. Must never: weaken durability to look
//! fast.

use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use apalis_core::backend::TaskSink as _;
use apalis_postgres::PostgresStorage;
use clap::{Parser, value_parser};
use serde::{Deserialize, Serialize};
use sqlx::postgres::PgPoolOptions;
use tokio::task::JoinSet;
use tuskline_postgres::{Cluster, Stop};
use tuskline_sdk::{Client, NewTask};

const LAMBDA: &str = "send_email";
const BARE: &str = "insert into bare (lambda, payload) values (:lambda, :payload);\n";
const SCHEDULE: &str = "select tuskline.schedule(:lambda, :payload);\n";

/// Commits with a single task each: Tuskline beside a bare insert and beside apalis, in turns.
#[derive(Debug, Parser)]
struct Options {
    /// Connections at once; one measurement for each number.
    #[arg(long, value_delimiter = ',', default_value = "1,8,32")]
    #[arg(value_parser = value_parser!(u32).range(1..=90))]
    connections: Vec<u32>,
    /// For how long each contender runs in a round.
    #[arg(long, default_value_t = 4, value_parser = value_parser!(u64).range(1..=3_600))]
    seconds: u64,
    /// Rounds; the medians are printed.
    #[arg(long, default_value_t = 3, value_parser = value_parser!(u32).range(1..=99))]
    rounds: u32,
    /// Size of each payload in bytes.
    #[arg(long, default_value_t = 150, value_parser = value_parser!(u32).range(10..=200_000))]
    payload_bytes: u32,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// All that can run. The first is the measure of the remaining ones.
const CONTENDERS: [Contender; 4] =
    [Contender::Bare, Contender::Schedule, Contender::Sdk, Contender::Apalis];

#[derive(Debug, Clone, Copy)]
enum Contender {
    /// An insert into a table without an index, by pgbench.
    Bare,
    /// `tuskline.schedule` by pgbench.
    Schedule,
    /// `Client::schedule` of the SDK.
    Sdk,
    /// `push` of apalis.
    Apalis,
}

impl Contender {
    fn name(self) -> &'static str {
        match self {
            Self::Bare => "bare insert (pgbench)",
            Self::Schedule => "tuskline.schedule (pgbench)",
            Self::Sdk => "Client::schedule (SDK)",
            Self::Apalis => "push (apalis 1.0)",
        }
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Payload {
    pad: String,
}

/// The result of one contender with one number of connections.
#[derive(Debug, Serialize)]
struct Measured {
    connections: u32,
    contender: &'static str,
    /// Commits per second of each round.
    per_s: Vec<f64>,
    /// Median of the ratios to the bare insert of the same round.
    share_of_bare: f64,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    let settings = [("shared_buffers", "1GB"), ("max_wal_size", "8GB"), ("fsync", "on")];
    let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    let mut cluster = Cluster::temporary(settings).await?;
    let measured = measure(&cluster, &options).await;
    cluster.stop(Stop::Fast).await?;
    let measured = measured?;
    match options.json {
        true => println!("{}", serde_json::to_string(&measured)?),
        false => print(&measured),
    }
    Ok(())
}

async fn measure(cluster: &Cluster, options: &Options) -> anyhow::Result<Vec<Measured>> {
    let site = Site::new(cluster, options).await?;
    let mut all = Vec::new();
    for &connections in &options.connections {
        let mut rates = CONTENDERS.map(|_| Vec::new());
        for round in 0..options.rounds {
            for at in 0..CONTENDERS.len() {
                // Each round begins with another contender.
                let at = (at + round as usize) % CONTENDERS.len();
                site.clear().await?;
                eprintln!("{connections:>3} connections, {}", CONTENDERS[at].name());
                rates[at].push(site.rate(CONTENDERS[at], connections).await?);
            }
        }
        let bare = rates[0].clone();
        for (contender, per_s) in CONTENDERS.into_iter().zip(rates) {
            let shares = per_s.iter().zip(&bare).map(|(ours, bare)| ours / bare).collect();
            let (contender, share_of_bare) = (contender.name(), median(shares));
            all.push(Measured { connections, contender, per_s, share_of_bare });
        }
    }
    Ok(all)
}

/// Where all run.
struct Site<'c> {
    cluster: &'c Cluster,
    url: String,
    payload: Payload,
    time: Duration,
    sql: tokio_postgres::Client,
}

impl<'c> Site<'c> {
    async fn new(cluster: &'c Cluster, options: &Options) -> anyhow::Result<Self> {
        let url = cluster.url("postgres");
        tuskline::migrate::migrate(cluster.config("postgres")).await?;
        let (sql, connection) = cluster.config("postgres").connect(tokio_postgres::NoTls).await?;
        tokio::spawn(connection);
        sql.execute("select tuskline.define_lambda($1)", &[&LAMBDA]).await?;
        sql.batch_execute("create table bare (lambda text, payload json)").await?;
        PostgresStorage::setup(&sqlx::PgPool::connect(&url).await?).await?;
        let pad = "x".repeat(options.payload_bytes as usize - r#"{"pad":""}"#.len());
        let time = Duration::from_secs(options.seconds);
        Ok(Self { cluster, url, payload: Payload { pad }, time, sql })
    }

    /// Empties the tables and writes a checkpoint, so that each turn begins in the same state.
    async fn clear(&self) -> anyhow::Result<()> {
        let tables = "truncate bare, apalis.jobs cascade; checkpoint";
        Ok(self.sql.batch_execute(tables).await?)
    }

    /// Commits per second.
    async fn rate(&self, contender: Contender, connections: u32) -> anyhow::Result<f64> {
        match contender {
            Contender::Bare => self.pgbench(BARE, connections).await,
            Contender::Schedule => self.pgbench(SCHEDULE, connections).await,
            Contender::Sdk => {
                let client = Client::builder(&*self.url).connections(connections as usize);
                let client = client.connect().await?;
                self.repeat(connections, |until| {
                    let (client, payload) = (client.clone(), self.payload.clone());
                    async move {
                        let mut tasks = 0;
                        while Instant::now() < until {
                            client.schedule(NewTask::new(LAMBDA, &payload)).await?;
                            tasks += 1;
                        }
                        Ok(tasks)
                    }
                })
                .await
            }
            Contender::Apalis => {
                let pool = PgPoolOptions::new().max_connections(connections);
                let pool = pool.connect(&self.url).await?;
                self.repeat(connections, |until| {
                    let (pool, payload) = (pool.clone(), self.payload.clone());
                    async move {
                        let mut storage = PostgresStorage::new(&pool);
                        let mut tasks = 0;
                        while Instant::now() < until {
                            storage.push(payload.clone()).await?;
                            tasks += 1;
                        }
                        Ok(tasks)
                    }
                })
                .await
            }
        }
    }
}

impl Site<'_> {
    /// The script by pgbench, with prepared statements and parameters.
    async fn pgbench(&self, script: &str, connections: u32) -> anyhow::Result<f64> {
        let file = std::env::temp_dir().join(format!("peers-{}.sql", std::process::id()));
        std::fs::write(&file, script)?;
        let payload = serde_json::to_string(&self.payload)?;
        let ran = tokio::process::Command::new(self.pgbench_path())
            .args(["-n", "-M", "prepared", "-c", &connections.to_string()])
            .args(["-j", &connections.min(2).to_string(), "-T", &self.time.as_secs().to_string()])
            .args(["-D", &format!("lambda={LAMBDA}"), "-D", &format!("payload={payload}"), "-f"])
            .arg(&file)
            .arg(&self.url)
            .stdin(Stdio::null())
            .output()
            .await
            .context("pgbench does not run; it is in the package of the server's contrib")?;
        std::fs::remove_file(&file)?;
        let (said, error) = (String::from_utf8(ran.stdout)?, String::from_utf8(ran.stderr)?);
        ensure!(ran.status.success(), "pgbench: {error}");
        let line = said.lines().find_map(|line| line.strip_prefix("tps = "));
        let rate = line.and_then(|line| line.split(' ').next()).context("pgbench gave no rate")?;
        Ok(rate.parse()?)
    }

    /// The one of the server's own directory, else the one of the path.
    fn pgbench_path(&self) -> std::path::PathBuf {
        let beside = self.cluster.binaries().program("pgbench");
        if beside.is_file() { beside } else { "pgbench".into() }
    }

    /// The calls per second of so many callers, each of which repeats its call until the time is over.
    async fn repeat<F>(&self, callers: u32, call: impl Fn(Instant) -> F) -> anyhow::Result<f64>
    where
        F: Future<Output = anyhow::Result<u64>> + Send + 'static,
    {
        let began = Instant::now();
        let mut running: JoinSet<_> = (0..callers).map(|_| call(began + self.time)).collect();
        let mut tasks = 0;
        while let Some(ended) = running.join_next().await {
            tasks += ended??;
        }
        #[allow(clippy::cast_precision_loss)]
        Ok(tasks as f64 / began.elapsed().as_secs_f64())
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn print(measured: &[Measured]) {
    println!("connections  contender                     commits/s  of bare");
    for Measured { connections, contender, per_s, share_of_bare } in measured {
        let (rate, share) = (median(per_s.clone()), share_of_bare * 100.0);
        println!("{connections:>11}  {contender:<28}  {rate:>9.0}  {share:>5.0} %");
    }
}
