//! `bench`: what a task costs and how long it takes, with the machine and the settings beside it.

use std::process::ExitCode;

use clap::Args;
use tokio_util::sync::CancellationToken;

use super::failure::WrongCall;
use super::{Global, Outcome, database, output};
use crate::bench::{self, Given, WorkerOptions, Workload};

/// Arguments of `bench`.
#[derive(Debug, Args)]
#[command(after_help = "On a given server it makes a database of its own and drops it at the end.")]
pub struct BenchArgs {
    #[command(subcommand)]
    workload: Workload,
}

/// Measures one workload. DATABASE_URL is not looked at: a server is put under load only by name.
pub async fn run(global: &Global, args: BenchArgs, end: CancellationToken) -> Outcome {
    let url = global.database_url.clone().filter(|url| !url.trim().is_empty());
    let given = match url {
        Some(url) => Some(Given { config: database::parse(&url)?, url }),
        None => None,
    };
    if given.is_some() && args.workload.crashes_server() {
        let what = "this workload crashes the server: run it without --database-url";
        return Err(WrongCall(what.to_owned()).into());
    }
    let worker_args = vec!["bench-worker".to_owned()];
    let options = bench::Options { given, quiet: global.json, worker_args, page_images: true };
    let report = bench::run(&args.workload, &options, end).await?;
    match global.json {
        true => output::put_json(&serde_json::to_value(&report)?)?,
        false => output::put(&report.text())?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Works for the bench until its standard input closes.
pub async fn work(global: &Global, options: WorkerOptions) -> Outcome {
    bench::work(database::find_given(global)?, options).await?;
    Ok(ExitCode::SUCCESS)
}
