//! `fault` injects faults into real processes and a real PostgreSQL. An independent checker reads
//! the history that they write.
//!
//! It owns everything that it injures: a private server in a temporary directory, the proxy in
//! front of it, clients, workers and store consumers. It must never touch anything else.

mod families;
mod inflict;
mod mutant;
mod mutants;
mod record;
mod report;
mod role;
mod run;
mod stage;
mod stale;
mod timetable;
mod workers;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::report::Report;
use crate::role::Timings;
use crate::run::Options;
use crate::stage::Scale;
use crate::timetable::Extent;

#[derive(Debug, Parser)]
#[command(name = "fault", about = "Injects faults, and checks what they did", max_term_width = 80)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    run: RunArgs,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs every mutant, each of which must be caught.
    Mutants(mutants::Args),
    /// Prints the timetable of a seed and runs nothing.
    Timetable {
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
}

#[derive(Debug, Args)]
struct RunArgs {
    /// Decides the timetable of the faults.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Stretch the course over so many minutes: the same faults, further apart.
    #[arg(long)]
    minutes: Option<u64>,
    /// The timings that users get (HB 5 s, T 16 s, L 20 s) instead of HB 250 ms, T 1 s, L 2 s.
    #[arg(long)]
    soak: bool,
    /// The report as JSON.
    #[arg(long)]
    json: bool,
    /// Only these phases, separated by commas; see `fault timetable`. No part of the course, and played
    /// only so: control, chains, ticks, redrives.
    #[arg(long, value_delimiter = ',')]
    phases: Vec<String>,
    /// How much of each phase's time and doses, in per cent.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=1000))]
    percent: u64,
    /// Tasks scheduled per second.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=20_000))]
    rate: u32,
    /// Leave the history in this directory.
    #[arg(long)]
    keep: Option<PathBuf>,
    /// No progress lines.
    #[arg(long, short)]
    quiet: bool,
}

fn main() -> ExitCode {
    match role::obey() {
        Ok(true) => return ExitCode::SUCCESS,
        Ok(false) => {}
        Err(error) => {
            eprintln!("fault: {error:#}");
            return ExitCode::FAILURE;
        }
    }
    match command(Cli::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("fault: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn command(cli: Cli) -> anyhow::Result<bool> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    match cli.command {
        None => runtime.block_on(run(cli.run)),
        Some(Command::Mutants(args)) => runtime.block_on(mutants::run(&args)),
        Some(Command::Timetable { seed }) => print_timetable(seed),
    }
}

async fn run(args: RunArgs) -> anyhow::Result<bool> {
    let timings = if args.soak { Timings::usual() } else { Timings::QUICK };
    let scale = Scale::usual(args.rate, timings).playing(&args.phases);
    let mut extent = Extent {
        only: args.phases,
        percent: args.percent,
        stretch_percent: 100,
        lease_ms: timings.lease_ms,
    };
    if let Some(minutes) = args.minutes {
        extent = extent.lasting(60 * minutes);
    }
    let options = Options {
        seed: args.seed,
        extent,
        scale,
        mutant: None,
        keep: args.keep,
        quiet: args.quiet,
    };
    let report = run::run(&options).await?;
    show(&report, args.json)?;
    Ok(report.ok)
}

fn show(report: &Report, json: bool) -> anyhow::Result<()> {
    match json {
        true => println!("{}", serde_json::to_string_pretty(report)?),
        false => print!("{report}"),
    }
    Ok(())
}

fn print_timetable(seed: u64) -> anyhow::Result<bool> {
    let course = timetable::course(seed, &Extent::whole());
    println!("{}", serde_json::to_string_pretty(&course)?);
    Ok(true)
}
