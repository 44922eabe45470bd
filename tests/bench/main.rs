//! The bench: what a task costs, measured on the embedded PostgreSQL with fsync on.
//!
//! `./x bench drain` preloads a queue and lets worker processes drain it; `./x bench latency` inserts
//! single rows at a fixed rate. Rates depend on the machine and its neighbours; WAL bytes, commits and
//! CPU per task are exact.

mod cost;
mod drain;
mod latency;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "bench")]
struct Cli {
    #[command(subcommand)]
    workload: Workload,
    /// Print JSON.
    #[arg(long, global = true)]
    json: bool,
    /// What cargo bench adds.
    #[arg(long, hide = true, global = true)]
    bench: bool,
}

#[derive(Subcommand)]
enum Workload {
    /// Claim and result of a preloaded queue of no-op tasks.
    Drain(drain::Options),
    /// Single inserts at a fixed rate: from the insert call to the body's start.
    Latency(latency::Options),
    /// One of the worker processes.
    #[command(hide = true)]
    Worker { url: String },
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let run = runtime.block_on(async {
        match &cli.workload {
            Workload::Drain(options) => drain::run(options, cli.json).await,
            Workload::Latency(options) => latency::run(options, cli.json).await,
            Workload::Worker { url } => drain::work(url).await,
        }
    });
    match run {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
