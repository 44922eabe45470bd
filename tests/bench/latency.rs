//! latency: single-row inserts at a fixed rate; from just before the insert call to the body's start,
//! so that it includes the insert's own commit.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use tokio_util::sync::CancellationToken;
use tuskline::embedded::{Cluster, Stop};
use tuskline_sdk::{Lambda, Worker};

use crate::cost::{Cost, Meter};

#[derive(clap::Args)]
pub struct Options {
    /// Inserts per second, over all connections.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..))]
    rate: u64,
    /// For how long.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// Connections that insert.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=64))]
    connections: u64,
}

#[derive(serde::Serialize)]
struct Report {
    workload: &'static str,
    rate: u64,
    tasks: u64,
    p50_ms: f64,
    p95_ms: f64,
    p99_ms: f64,
    max_ms: f64,
    #[serde(flatten)]
    cost: Cost,
}

pub async fn run(options: &Options, json: bool) -> anyhow::Result<()> {
    let settings = vec![("fsync".to_owned(), "on".to_owned())];
    let mut cluster = Cluster::temporary(settings).await?;
    let outcome = measure(&cluster, options).await;
    cluster.stop(Stop::Fast).await?;
    let report = outcome?;
    if json {
        println!("{}", serde_json::to_string(&report)?);
        return Ok(());
    }
    println!("latency of {} single inserts at {}/s", report.tasks, report.rate);
    println!(
        "  p50 {:.2} ms  p95 {:.2} ms  p99 {:.2} ms  max {:.2} ms",
        report.p50_ms, report.p95_ms, report.p99_ms, report.max_ms
    );
    println!(
        "  server CPU us/task {:.0}  commits/task {:.2}  WAL bytes/task {:.0}",
        report.cost.server_cpu_us_per_task,
        report.cost.commits_per_task,
        report.cost.wal_bytes_per_task
    );
    Ok(())
}

async fn measure(cluster: &Cluster, options: &Options) -> anyhow::Result<Report> {
    cluster.create_database("bench", None).await?;
    tuskline::migrate::migrate(&cluster.config("bench")).await?;
    let (client, connection) = cluster.config("bench").connect(tokio_postgres::NoTls).await?;
    tokio::spawn(connection);
    client.batch_execute("select tuskline.define_lambda('noop')").await?;
    let epoch = Instant::now();
    let seen = Arc::new(Mutex::new(Histogram::<u64>::new(3)?));
    let recorder = Arc::clone(&seen);
    let noop = Lambda::new("noop", move |sent_us: u64, _| {
        let late_us = u64::try_from(epoch.elapsed().as_micros()).unwrap_or(0) - sent_us;
        recorder.lock().expect("no panics").record(late_us).expect("it grows by itself");
        async {}
    });
    let stop = CancellationToken::new();
    let worker =
        tokio::spawn(Worker::new(&cluster.url("bench"))?.lambda(noop).until(stop.clone()).run());
    tokio::time::sleep(Duration::from_millis(500)).await;
    let before = Meter::read(&client, cluster.postmaster_pid()).await?;
    let tasks = send(cluster, options, epoch).await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let after = Meter::read(&client, cluster.postmaster_pid()).await?;
    stop.cancel();
    worker.await??;
    let seen = seen.lock().expect("no panics");
    anyhow::ensure!(seen.len() == tasks, "{} of {tasks} started", seen.len());
    #[allow(clippy::cast_precision_loss)]
    let ms = |us: u64| us as f64 / 1000.0;
    Ok(Report {
        workload: "latency",
        rate: options.rate,
        tasks,
        p50_ms: ms(seen.value_at_quantile(0.5)),
        p95_ms: ms(seen.value_at_quantile(0.95)),
        p99_ms: ms(seen.value_at_quantile(0.99)),
        max_ms: ms(seen.max()),
        cost: before.until(after, tasks),
    })
}

/// Inserts at the rate over all connections, each on its own beat.
async fn send(cluster: &Cluster, options: &Options, epoch: Instant) -> anyhow::Result<u64> {
    let connections = options.connections as f64;
    let mut senders = tokio::task::JoinSet::new();
    let gap = Duration::from_secs_f64(options.connections as f64 / options.rate as f64);
    let each = options.rate * options.seconds / options.connections;
    for number in 0..options.connections {
        let config = cluster.config("bench");
        senders.spawn(async move {
            let (client, connection) = config.connect(tokio_postgres::NoTls).await?;
            tokio::spawn(connection);
            let insert = client
                .prepare(
                    "insert into tuskline.task (lambda, payload) values ('noop', $1::text::json)",
                )
                .await?;
            let mut beat = tokio::time::interval_at(
                tokio::time::Instant::now() + gap.mul_f64(number as f64 / connections),
                gap,
            );
            for _ in 0..each {
                beat.tick().await;
                let sent_us = epoch.elapsed().as_micros().to_string();
                client.execute(&insert, &[&sent_us]).await?;
            }
            Ok::<_, tokio_postgres::Error>(each)
        });
    }
    let mut tasks = 0;
    while let Some(sent) = senders.join_next().await {
        tasks += sent??;
    }
    Ok(tasks)
}
