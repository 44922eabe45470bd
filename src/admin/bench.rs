//! `bench`: what a task costs and how long it takes, with the machine and the settings beside it.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use tokio_util::sync::CancellationToken;

use super::failure::{WrongCall, failed};
use super::{Global, Outcome, database, output};
use crate::bench::{self, All, Given, WorkerOptions, Workload};

/// Arguments of `bench`.
#[derive(Debug, Args)]
#[command(after_help = "On a given server it makes a database of its own and drops it at the end.")]
pub struct BenchArgs {
    #[command(subcommand)]
    what: What,
    /// Draw it, too, as SVG.
    #[arg(long, global = true, value_name = "FILE")]
    plot: Option<PathBuf>,
}

/// One workload, or all.
#[derive(Debug, Subcommand)]
enum What {
    #[command(flatten)]
    One(Workload),
    /// Every figure that has a target, beside it: half an hour.
    All(All),
}

/// Measures one workload, or all. DATABASE_URL is not looked at: a server is put under load only by
/// name.
pub async fn run(global: &Global, args: BenchArgs, end: CancellationToken) -> Outcome {
    let url = global.database_url.clone().filter(|url| !url.trim().is_empty());
    let given = match url {
        Some(url) => Some(Given { config: database::parse(&url)?, url }),
        None => None,
    };
    let worker_args = vec!["bench-worker".to_owned()];
    let options = bench::Options { given, quiet: global.json, worker_args, page_images: true };
    match args.what {
        What::One(workload) => one(global, &workload, args.plot.as_deref(), &options, end).await,
        What::All(_) if args.plot.is_some() => {
            Err(WrongCall("all has a plot of each workload: give --out DIR".to_owned()).into())
        }
        What::All(all) => table(global, &all, &options, end).await,
    }
}

async fn one(
    global: &Global,
    workload: &Workload,
    plot: Option<&Path>,
    options: &bench::Options,
    end: CancellationToken,
) -> Outcome {
    refuse_crash(options, workload.crashes_server())?;
    plot.map_or(Ok(()), |file| check_plot(workload, file))?;
    let report = bench::run(workload, options, end).await?;
    if let (Some(file), Some(svg)) = (plot, report.svg(workload)) {
        std::fs::write(file, svg)
            .map_err(|error| failed(format!("cannot write {}: {error}", file.display())))?;
    }
    match global.json {
        true => output::put_json(&serde_json::to_value(&report)?)?,
        false => output::put(&report.text())?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn table(
    global: &Global,
    all: &All,
    options: &bench::Options,
    end: CancellationToken,
) -> Outcome {
    refuse_crash(options, true)?;
    let table = bench::all(all, options, end).await?;
    match global.json {
        true => output::put_json(&serde_json::to_value(&table)?)?,
        false => output::put(&table.text())?,
    }
    Ok(if table.is_complete() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Only a server of our own is crashed.
fn refuse_crash(options: &bench::Options, crashes: bool) -> Result<(), WrongCall> {
    if options.given.is_some() && crashes {
        let what = "this workload crashes the server: run it without --database-url";
        return Err(WrongCall(what.to_owned()));
    }
    Ok(())
}

/// Before minutes are spent on a picture that cannot be.
fn check_plot(workload: &Workload, file: &Path) -> Result<(), WrongCall> {
    if !workload.has_plot() {
        let what = "this workload has nothing to plot: run it without --plot";
        return Err(WrongCall(what.to_owned()));
    }
    let dir = file.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !dir.is_dir() {
        return Err(WrongCall(format!("--plot: there is no directory {}", dir.display())));
    }
    Ok(())
}

/// Works for the bench until its standard input closes.
pub async fn work(global: &Global, options: WorkerOptions) -> Outcome {
    bench::work(database::find_given(global)?, options).await?;
    Ok(ExitCode::SUCCESS)
}
