//! The call: which files, and where the report goes.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use tuskline::cli::{Global, Outcome, Program, end_of_process, put, put_json};

use super::psql::{self, PsqlArgs};
use super::run::{self, Options};
use super::worker;

/// Watch real tasks, one for each file, be scheduled, killed midway, recovered and finished.
#[derive(Debug, Parser)]
#[command(name = "tuskline-demo", version, max_term_width = 100, propagate_version = true)]
#[command(after_help = "TUSKLINE_DATA_DIR names the directory of its PostgreSQL.")]
#[command(args_conflicts_with_subcommands = true)]
#[command(mut_arg("database_url", |url| url.hide(true)), mut_arg("role", |role| role.hide(true)))]
pub struct Demo {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    instead: Option<Instead>,
    #[command(flatten)]
    demo: DemoArgs,
}

/// Commands that run no demo.
#[derive(Debug, Subcommand)]
enum Instead {
    /// Open psql on what the last demo left, starting PostgreSQL for as long as psql runs.
    Psql(PsqlArgs),
    /// Works for the demo until SIGTERM.
    #[command(hide = true)]
    Worker(WorkerArgs),
}

#[derive(Debug, Args)]
struct DemoArgs {
    /// Directory whose files become tasks: those that git tracks, else all.
    #[arg(long, value_name = "DIRECTORY", default_value = ".")]
    path: PathBuf,
    /// Leave out files beyond so many; default: none.
    #[arg(long, value_name = "FILES")]
    limit: Option<usize>,
    /// Leave out files larger than this; default: none.
    #[arg(long, value_name = "BYTES")]
    max_bytes: Option<u64>,
}

#[derive(Debug, Args)]
struct WorkerArgs {
    /// Database.
    #[arg(long)]
    url: String,
    /// File to append what it executes to.
    #[arg(long)]
    record: PathBuf,
}

impl Program for Demo {
    fn global(&self) -> &Global {
        &self.global
    }

    async fn execute(self) -> Outcome {
        match self.instead {
            None => demo(self.demo, self.global.json).await,
            Some(Instead::Psql(args)) => psql::run(&args).await,
            Some(Instead::Worker(args)) => {
                worker::work(&args.url, &args.record).await?;
                Ok(ExitCode::SUCCESS)
            }
        }
    }
}

/// Exit code 1 if anything was lost, overlapped or came out wrong.
async fn demo(args: DemoArgs, json: bool) -> Outcome {
    let options = Options {
        path: args.path,
        limit: args.limit.unwrap_or(usize::MAX),
        max_bytes: args.max_bytes.unwrap_or(u64::MAX),
        quiet: json,
    };
    let report = run::run(&options, end_of_process()?).await?;
    match json {
        true => put_json(&serde_json::to_value(&report)?)?,
        false => put(&report.table())?,
    }
    Ok(if report.holds() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
