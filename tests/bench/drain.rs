//! drain: claim and result of a preloaded queue of no-op tasks, by worker processes.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use tuskline::embedded::{Cluster, Stop};
use tuskline_sdk::{Lambda, Worker, WorkerConfig};

use crate::cost::{Cost, Meter, cpu_us};

pub struct Options {
    tasks: u64,
    workers: u64,
    payload_bytes: usize,
    json: bool,
}

impl Options {
    pub fn parse(args: &[String]) -> anyhow::Result<Self> {
        let mut options = Self { tasks: 200_000, workers: 1, payload_bytes: 150, json: false };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let mut number = || -> anyhow::Result<u64> {
                let text = args.next().with_context(|| format!("{arg} takes a number"))?;
                text.parse().with_context(|| format!("{arg} takes a number, got {text:?}"))
            };
            match arg.as_str() {
                "--tasks" => options.tasks = number()?.max(1),
                "--workers" => options.workers = number()?.clamp(1, 64),
                "--payload-bytes" => options.payload_bytes = usize::try_from(number()?)?,
                "--json" => options.json = true,
                other => anyhow::bail!("unknown option {other:?}"),
            }
        }
        Ok(options)
    }
}

#[derive(serde::Serialize)]
struct Report {
    workload: &'static str,
    tasks: u64,
    workers: u64,
    payload_bytes: usize,
    tasks_per_s: f64,
    #[serde(flatten)]
    cost: Cost,
    client_cpu_us_per_task: f64,
    hot_share: f64,
    server_version: String,
    settings: String,
}

pub async fn run(options: &Options) -> anyhow::Result<()> {
    let settings: Vec<(String, String)> = [
        ("shared_buffers", "2GB"),
        ("max_wal_size", "8GB"),
        ("fsync", "on"),
        ("full_page_writes", "on"),
        ("synchronous_commit", "on"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .to_vec();
    let mut cluster = Cluster::temporary(settings.clone()).await?;
    let outcome = measure(&cluster, options, &settings).await;
    cluster.stop(Stop::Fast).await?;
    let report = outcome?;
    if options.json {
        println!("{}", serde_json::to_string(&report)?);
    } else {
        print(&report);
    }
    Ok(())
}

async fn measure(
    cluster: &Cluster,
    options: &Options,
    settings: &[(String, String)],
) -> anyhow::Result<Report> {
    cluster.create_database("bench", None).await?;
    tuskline::migrate::migrate(&cluster.config("bench")).await?;
    let (client, connection) = cluster.config("bench").connect(tokio_postgres::NoTls).await?;
    tokio::spawn(connection);
    preload(&client, options).await?;
    client.batch_execute("vacuum analyze tuskline.task").await?;
    client.batch_execute("checkpoint").await?;
    let before = Meter::read(&client, cluster.postmaster_pid()).await?;
    let mut workers = Vec::new();
    for _ in 0..options.workers {
        workers.push(start_worker(&cluster.url("bench"))?);
    }
    let done = wait_until_done(&client, options.tasks).await;
    let mut client_cpu_us = 0;
    for worker in &mut workers {
        client_cpu_us += cpu_us(worker.id(), false)?;
        drop(worker.stdin.take()); // the worker drains when its standard input closes
    }
    done?;
    let after = Meter::read(&client, cluster.postmaster_pid()).await?;
    for mut worker in workers {
        worker.wait()?;
    }
    let row = client
        .query_one(
            "select count(*) filter (where status = 'success'), \
             extract(epoch from max(finished_at) - min(started_at))::float8 from tuskline.task",
            &[],
        )
        .await?;
    anyhow::ensure!(
        u64::try_from(row.get::<_, i64>(0))? == options.tasks,
        "not every task succeeded"
    );
    let hot = client
        .query_one(
            "select sum(n_tup_hot_upd)::float8 / nullif(sum(n_tup_upd), 0)::float8 \
             from pg_stat_user_tables where schemaname = 'tuskline' and relname like 'task\\_%'",
            &[],
        )
        .await?;
    let version: String = client.query_one("show server_version", &[]).await?.get(0);
    #[allow(clippy::cast_precision_loss)]
    Ok(Report {
        workload: "drain",
        tasks: options.tasks,
        workers: options.workers,
        payload_bytes: options.payload_bytes,
        tasks_per_s: options.tasks as f64 / row.get::<_, f64>(1),
        cost: before.until(after, options.tasks),
        client_cpu_us_per_task: client_cpu_us as f64 / options.tasks as f64,
        hot_share: hot.get::<_, Option<f64>>(0).unwrap_or(0.0),
        server_version: version,
        settings: settings.iter().map(|(n, v)| format!("{n}={v}")).collect::<Vec<_>>().join(" "),
    })
}

async fn preload(client: &tokio_postgres::Client, options: &Options) -> anyhow::Result<()> {
    client.batch_execute("select tuskline.define_lambda('noop')").await?;
    let pad = "x".repeat(options.payload_bytes.saturating_sub(10));
    let mut left = options.tasks;
    while left > 0 {
        let batch = left.min(10_000);
        client
            .execute(
                "insert into tuskline.task (lambda, payload) \
                 select 'noop', json_build_object('pad', $1::text) from generate_series(1, $2::bigint)",
                &[&pad, &i64::try_from(batch)?],
            )
            .await?;
        left -= batch;
    }
    Ok(())
}

fn start_worker(url: &str) -> anyhow::Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["worker", url]).stdin(Stdio::piped());
    Ok(command.spawn()?)
}

/// The worker's process: serves `noop` until its standard input closes.
pub async fn work(args: &[String]) -> anyhow::Result<()> {
    let url = args.first().context("worker takes a url")?;
    let stop = tokio_util::sync::CancellationToken::new();
    let closed = stop.clone();
    std::thread::spawn(move || {
        let _ = std::io::read_to_string(std::io::stdin());
        closed.cancel();
    });
    let mut config = WorkerConfig::default();
    if let Ok(lanes) = std::env::var("LANES") {
        config.lanes = lanes.parse()?;
    }
    let noop = Lambda::new("noop", async |_: serde::de::IgnoredAny, _| ());
    Worker::new(url)?.config(config).lambda(noop).until(stop).run().await?;
    Ok(())
}

async fn wait_until_done(client: &tokio_postgres::Client, tasks: u64) -> anyhow::Result<()> {
    let deadline = Instant::now() + Duration::from_secs(60 + tasks / 2000);
    loop {
        // The queue and the leases are empty only when every result is recorded; both are small,
        // so that looking costs the drain nothing.
        let row = client
            .query_one(
                "select not exists (select from tuskline.queued) and not exists (select from tuskline.lease)",
                &[],
            )
            .await?;
        if row.get(0) {
            return Ok(());
        }
        anyhow::ensure!(Instant::now() < deadline, "the drain did not end in time");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn print(report: &Report) {
    println!("drain of {} no-op tasks by {} worker process(es)", report.tasks, report.workers);
    println!("  tasks/s                {:>10.0}", report.tasks_per_s);
    println!("  WAL bytes/task         {:>10.1}", report.cost.wal_bytes_per_task);
    println!("  WAL records/task       {:>10.3}", report.cost.wal_records_per_task);
    println!("  full-page images/task  {:>10.3}", report.cost.wal_fpi_per_task);
    println!("  server CPU us/task     {:>10.2}", report.cost.server_cpu_us_per_task);
    println!("  worker CPU us/task     {:>10.2}", report.client_cpu_us_per_task);
    println!("  commits/task           {:>10.4}", report.cost.commits_per_task);
    println!("  HOT share              {:>10.3}", report.hot_share);
    println!("  PostgreSQL {}, {}", report.server_version, report.settings);
}
