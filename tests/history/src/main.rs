//! `check-history DIR [--json] [--task ID] [--phase NAME]...`: reads a history and says what it
//! proves. Exit code 0: nothing is violated; 1: something is; 2: wrong call or unreadable history.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::Parser;
use tuskline_history::{check_phases, tell};

/// Reads the history of a Tuskline under faults and says what it proves.
#[derive(Parser)]
struct Args {
    /// Directory of the history's files.
    dir: PathBuf,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    /// Only print what was written down about this task.
    #[arg(long, value_name = "ID", conflicts_with = "json")]
    task: Option<i64>,
    /// Judge lateness in this phase only; may be repeated.
    #[arg(long, value_name = "NAME")]
    phase: Vec<String>,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("check-history: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Whether nothing is violated.
fn run(args: &Args) -> Result<bool> {
    if let Some(task) = args.task {
        let tales = tell(&args.dir, &[task])?;
        let named = tales.iter().any(|tale| !tale.lines.is_empty());
        ensure!(named, "nothing was written down about task {task}");
        for line in tales.iter().flat_map(|tale| &tale.lines) {
            say(line)?;
        }
        return Ok(true);
    }
    let report = check_phases(&args.dir, &args.phase)?;
    if args.json {
        say(&serde_json::to_string(&report)?)?;
    } else {
        say(report.to_string().trim_end())?;
    }
    Ok(report.ok)
}

/// A reader that has seen enough (`| head`) is no error.
fn say(text: &str) -> io::Result<()> {
    match writeln!(io::stdout(), "{text}") {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        done => done,
    }
}
