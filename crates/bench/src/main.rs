//! The bench: what a task costs, and how long it takes, workload by workload.
//!
//! It runs on a PostgreSQL of its own with full durability, or on a given one, in a database that it
//! makes and drops; it uses only public interfaces, the SDK and SQL. Rates depend on the machine and
//! its neighbours; WAL bytes, commits, statements and buffer hits per task are exact.
//!
//! `all` runs what has a target and says whether it is met.
//!
//! Promises: settings, versions and machine stand beside every figure; what cannot be known is null;
//! nothing it started is left running. Must never: weaken durability to look fast.

mod backends;
mod backlog;
mod batch;
mod cli;
mod copy;
mod csv;
mod drain;
mod flood;
mod held_horizon;
mod idle;
mod latencies;
mod latency;
mod life;
mod load;
mod meter;
mod mixed;
mod paper;
mod policies;
mod proc;
mod producer;
mod progress;
mod rebuild;
mod recover;
mod report;
mod scale;
mod schedule_batch;
mod singles;
mod site;
mod table;
mod table_text;
mod targets;
mod worker;
mod workers;

use clap::Subcommand;
use tokio_util::sync::CancellationToken;
use tuskline_sdk::Address;

use report::Report;
use site::Site;

fn main() -> std::process::ExitCode {
    tuskline::cli::run::<cli::Bench>()
}

/// The workload to measure, and its options.
#[derive(Debug, Clone, Subcommand)]
pub enum Workload {
    /// One task per commit: beside a bare insert, or into many lambdas of a worker.
    Singles(singles::Singles),
    /// Many tasks per commit, by the SDK.
    ScheduleBatch(schedule_batch::ScheduleBatch),
    /// Many tasks per COPY, straight into tuskline.task.
    Copy(copy::Copy),
    /// Claim and result of a preloaded queue of no-op tasks.
    Drain(drain::Drain),
    /// The whole life of tasks: scheduled in batches while workers drain them.
    Life(life::Life),
    /// Single inserts at a fixed rate: from the insert call to the start of the body.
    Latency(latency::Latency),
    /// A worker, then a server, with nothing to do.
    Idle(idle::Idle),
    /// The server crashes; how long the queues take to be filled again.
    Rebuild(rebuild::Rebuild),
    /// One of two workers is killed; how long until its tasks run elsewhere.
    Recover(recover::Recover),
    /// One queue of many is flooded; what the quiet ones feel.
    Flood(flood::Flood),
    /// A fixed rate under a snapshot that is never released: the first and the last seconds.
    HeldHorizon(held_horizon::HeldHorizon),
    /// A drain before, and with millions of tasks due later or enqueued.
    Backlog(backlog::Backlog),
    /// Many tasks at a time: 1, 10, 100, 1000 in a call and in an exchange.
    Batch(batch::Batch),
    /// 1, 2 and 4 workers on one queue, then 1 and 2 store consumers on the same timers.
    Scale(scale::ScaleOut),
    /// Retries, delays, far futures and payloads of every size, with a server.
    Mixed(mixed::Mixed),
    /// A drain without a policy, under a limit, a limit by key, an order and a fair limit.
    Policies(policies::Policies),
    /// The paper's load: many lambdas and priorities, delays and failures, with a server.
    Paper(paper::Paper),
}

impl Workload {
    /// Whether it kills the server, which is done to one of our own only.
    pub fn crashes_server(&self) -> bool {
        matches!(self, Self::Rebuild(_))
    }
}

/// A server that exists already.
#[derive(Clone)]
pub struct Given {
    /// How to reach it.
    pub address: Address,
    /// The same as a URL, for other processes.
    pub url: String,
}

/// How to run.
#[derive(Clone)]
pub struct Options {
    /// The server to measure; none: one of our own.
    pub given: Option<Given>,
    /// No live line.
    pub quiet: bool,
    /// Whether a server of our own writes page images, as it must to survive a crash of the
    /// machine; without them the log's bytes per task are the same in every run.
    pub page_images: bool,
}

/// Runs a workload. `shutdown` ends it early.
///
/// # Errors
/// Whatever keeps it from running to its end, or from being measured.
pub async fn run(
    workload: &Workload,
    options: &Options,
    shutdown: CancellationToken,
) -> anyhow::Result<Report> {
    let mut site = Site::open(options).await?;
    let report = tokio::select! {
        report = measure(&mut site, workload) => report,
        () = shutdown.cancelled() => Err(anyhow::anyhow!("interrupted")),
    };
    let closed = site.close().await;
    let report = report?;
    closed?;
    Ok(report)
}

async fn measure(site: &mut Site, workload: &Workload) -> anyhow::Result<Report> {
    let parts = match workload {
        Workload::Singles(options) => options.run(site).await?,
        Workload::ScheduleBatch(options) => vec![options.run(site).await?],
        Workload::Drain(options) => vec![options.run(site).await?],
        Workload::Copy(options) => vec![options.run(site).await?],
        Workload::Life(options) => vec![options.run(site).await?],
        Workload::Latency(options) => vec![options.run(site).await?],
        Workload::Idle(options) => options.run(site).await?,
        Workload::Rebuild(options) => vec![options.run(site).await?],
        Workload::Recover(options) => vec![options.run(site).await?],
        Workload::Flood(options) => options.run(site).await?,
        Workload::HeldHorizon(options) => options.run(site).await?,
        Workload::Backlog(options) => options.run(site).await?,
        Workload::Batch(options) => options.run(site).await?,
        Workload::Scale(options) => options.run(site).await?,
        Workload::Mixed(options) => vec![options.run(site).await?],
        Workload::Policies(options) => options.run(site).await?,
        Workload::Paper(options) => options.run(site).await?,
    };
    Report::of(parts, &site.observer().await?).await
}
