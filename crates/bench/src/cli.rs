//! The call: which workload, on which server, and where its report goes.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tuskline::cli::{self, Global, Outcome, Program, WrongCall, end_of_process, failed};

use super::table::{self, All};
use super::worker::{self, WorkerOptions};
use super::{Given, Options, Workload};

/// Measure what a task costs, on a throw-away PostgreSQL unless --database-url names another.
#[derive(Debug, Parser)]
#[command(name = "tuskline-bench", version, max_term_width = 100, propagate_version = true)]
#[command(after_help = "On a given server it makes a database of its own and drops it at the end.")]
#[command(mut_arg("database_url", |url| url.help("Server to measure, postgresql://user@host/db")))]
#[command(mut_arg("role", |role| role.hide(true)))]
pub struct Bench {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    what: What,
    /// Write each figure into this CSV file, too.
    #[arg(long, global = true, value_name = "FILE")]
    csv: Option<PathBuf>,
}

/// One workload, or all.
#[derive(Debug, Subcommand)]
enum What {
    #[command(flatten)]
    One(Workload),
    /// Every figure that has a target, beside it: half an hour.
    All(All),
    /// Works for the bench until its standard input closes.
    #[command(hide = true)]
    Worker(WorkerOptions),
}

impl Program for Bench {
    fn global(&self) -> &Global {
        &self.global
    }

    async fn execute(self) -> Outcome {
        let Self { global, what, csv } = self;
        match what {
            What::One(workload) => one(&global, &workload, csv.as_deref()).await,
            What::All(all) if csv.is_none() => every(&global, &all).await,
            What::All(_) => {
                Err(WrongCall("all has a CSV file of each round: give --out DIR".to_owned()).into())
            }
            What::Worker(options) => {
                worker::work(cli::find_given(&global)?, options).await?;
                Ok(ExitCode::SUCCESS)
            }
        }
    }
}

async fn one(global: &Global, workload: &Workload, csv: Option<&Path>) -> Outcome {
    let options = options(global)?;
    refuse_crash(&options, workload.crashes_server())?;
    csv.map_or(Ok(()), check_directory)?;
    let report = super::run(workload, &options, end_of_process()?).await?;
    if let Some(file) = csv {
        std::fs::write(file, report.csv()?)
            .map_err(|error| failed(format!("cannot write {}: {error}", file.display())))?;
    }
    match global.json {
        true => cli::put_json(&serde_json::to_value(&report)?)?,
        false => cli::put(&report.text())?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn every(global: &Global, all: &All) -> Outcome {
    let options = options(global)?;
    refuse_crash(&options, true)?;
    let table = table::all(all, &options, end_of_process()?).await?;
    match global.json {
        true => cli::put_json(&serde_json::to_value(&table)?)?,
        false => cli::put(&table.text())?,
    }
    Ok(if table.is_complete() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// DATABASE_URL is not looked at: a server is put under load only by name.
fn options(global: &Global) -> anyhow::Result<Options> {
    let url = global.database_url.clone().filter(|url| !url.trim().is_empty());
    let given = match url {
        Some(url) => Some(Given { address: cli::parse(&url)?, url }),
        None => None,
    };
    Ok(Options { given, quiet: global.json, page_images: true })
}

/// Only a server of our own is crashed.
fn refuse_crash(options: &Options, crashes: bool) -> Result<(), WrongCall> {
    if options.given.is_some() && crashes {
        let what = "this workload crashes the server: run it without --database-url";
        return Err(WrongCall(what.to_owned()));
    }
    Ok(())
}

/// Before minutes are spent on a file that cannot be written.
fn check_directory(file: &Path) -> Result<(), WrongCall> {
    let dir = file.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !dir.is_dir() {
        return Err(WrongCall(format!("--csv: there is no directory {}", dir.display())));
    }
    Ok(())
}
