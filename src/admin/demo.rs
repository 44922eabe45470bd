//! `demo`: thousands of real tasks, a killed worker, and a count of what came of it.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use tokio_util::sync::CancellationToken;

use super::{Global, Outcome, output};
use crate::demo;

/// Arguments of `demo`.
#[derive(Debug, Args)]
#[command(after_help = "TUSKLINE_DATA_DIR names the directory of its PostgreSQL.")]
pub struct DemoArgs {
    /// Directory whose files become tasks.
    #[arg(long, value_name = "DIRECTORY", default_value = ".")]
    path: PathBuf,
    /// Leave out files beyond so many; default: none.
    #[arg(long, value_name = "FILES")]
    limit: Option<usize>,
    /// Leave out files larger than this; default: none.
    #[arg(long, value_name = "BYTES")]
    max_bytes: Option<u64>,
}

/// Arguments of the hidden command that is one of the demo's workers.
#[derive(Debug, Args)]
pub struct DemoWorkerArgs {
    /// Database.
    #[arg(long)]
    url: String,
    /// File to append what it executes to.
    #[arg(long)]
    record: PathBuf,
}

/// Runs the demo; exit code 1 if anything was lost, overlapped or came out wrong.
pub async fn run(global: &Global, args: DemoArgs, end: CancellationToken) -> Outcome {
    let options = demo::Options {
        path: args.path,
        limit: args.limit.unwrap_or(usize::MAX),
        max_bytes: args.max_bytes.unwrap_or(u64::MAX),
        quiet: global.json,
        worker_args: vec!["demo-worker".to_owned()],
    };
    let report = demo::run(&options, end).await?;
    match global.json {
        true => output::put_json(&serde_json::to_value(&report)?)?,
        false => output::put(&report.table())?,
    }
    Ok(if report.holds() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Works for the demo until SIGTERM.
pub async fn work(args: DemoWorkerArgs) -> Outcome {
    demo::work(&args.url, &args.record).await?;
    Ok(ExitCode::SUCCESS)
}
