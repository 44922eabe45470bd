//! Runs the mutants: each must be caught by an invariant that was named before.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde::Serialize;

use crate::mutant::{MUTANTS, Mutant};
use crate::run::{self, Options};
use crate::stage::Scale;
use crate::timetable::Extent;

/// Most runs for one mutant. Some flaws show only when a moment meets another: a run is a sample, and
/// one of three has to show it. Tuskline itself gets no second run.
const MOST_RUNS: u64 = 3;

/// Longest wait for the last task: with some flaws it never comes.
const PATIENCE: Duration = Duration::from_secs(20);

/// Tasks a second: enough to meet the flaw, few enough to leave time for it.
const RATE: u32 = 250;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Only these mutants, separated by commas.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// The third of them to run: 0, 1 or 2.
    #[arg(long, value_parser = clap::value_parser!(u8).range(0..3))]
    third: Option<u8>,
    /// Decides the timetables of the faults.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Leave the histories below this directory.
    #[arg(long)]
    keep: Option<PathBuf>,
    /// The verdicts as JSON.
    #[arg(long)]
    json: bool,
}

/// The result of a mutant.
#[derive(Debug, Serialize)]
struct Verdict {
    name: &'static str,
    flaw: &'static str,
    caught: bool,
    /// Invariants that were named before, and are violated.
    by: Vec<String>,
    /// All that are violated.
    violated: Vec<String>,
    /// Runs that it took, each with a seed of its own.
    runs: u64,
    seconds: f64,
}

/// Runs the mutants that are asked for; false: one was not caught.
///
/// # Errors
/// A name that no mutant has, or a run that does not come to its end.
pub async fn run(args: &Args) -> anyhow::Result<bool> {
    let mut verdicts = Vec::new();
    for mutant in chosen(args)? {
        let verdict = judge(mutant, args.seed, args.keep.as_deref()).await?;
        if !args.json {
            let word = if verdict.caught { "caught" } else { "NOT CAUGHT" };
            let by = if verdict.caught { &verdict.by } else { &verdict.violated };
            println!("{word:<10}  {:<22}  {}", verdict.name, by.join(" "));
            println!("            {}", verdict.flaw);
        }
        verdicts.push(verdict);
    }
    let caught = verdicts.iter().filter(|verdict| verdict.caught).count();
    if args.json {
        let all =
            serde_json::json!({ "mutants": verdicts, "caught": caught, "of": verdicts.len() });
        println!("{}", serde_json::to_string_pretty(&all)?);
    } else {
        println!("{caught} of {} caught", verdicts.len());
    }
    Ok(caught == verdicts.len())
}

fn chosen(args: &Args) -> anyhow::Result<Vec<&'static Mutant>> {
    for name in &args.only {
        anyhow::ensure!(Mutant::named(name).is_some(), "no mutant is called {name:?}");
    }
    let wanted = |at: usize, mutant: &Mutant| {
        (args.only.is_empty() || args.only.iter().any(|name| name == mutant.name))
            && args.third.is_none_or(|third| at % 3 == usize::from(third))
    };
    Ok(MUTANTS
        .iter()
        .enumerate()
        .filter(|(at, mutant)| wanted(*at, mutant))
        .map(|(_, mutant)| mutant)
        .collect())
}

async fn judge(mutant: &'static Mutant, seed: u64, keep: Option<&Path>) -> anyhow::Result<Verdict> {
    anyhow::ensure!(
        cfg!(mutants) || !mutant.compiled,
        "{} is in no ordinary build: use ./x mutants",
        mutant.name
    );
    let began = std::time::Instant::now();
    let mut runs = 0;
    let (by, violated) = loop {
        let violated = match mutant.caught_by {
            ["40P01"] => interleave()?,
            _ => violations(mutant, seed + runs, keep).await?,
        };
        runs += 1;
        let named = |id: &&String| mutant.caught_by.contains(&id.as_str());
        let by: Vec<_> = violated.iter().filter(named).cloned().collect();
        if !by.is_empty() || runs == MOST_RUNS {
            break (by, violated);
        }
    };
    let (caught, seconds) = (!by.is_empty(), began.elapsed().as_secs_f64());
    Ok(Verdict { name: mutant.name, flaw: mutant.flaw, caught, by, violated, runs, seconds })
}

/// Invariants that a short run with the flaw violates.
async fn violations(
    mutant: &'static Mutant,
    seed: u64,
    keep: Option<&Path>,
) -> anyhow::Result<Vec<String>> {
    let only: Vec<_> = mutant.phases.iter().map(|&name| name.to_owned()).collect();
    let mut scale = Scale::usual(RATE, mutant.timings).playing(&only);
    // Hosts have waited as long before the end of their phase.
    scale.patience = if mutant.workers == 0 { PATIENCE / 2 } else { PATIENCE };
    scale.long_one_in = mutant.long_one_in;
    scale.workers = mutant.workers;
    scale.long_most_ms = 2 * mutant.timings.lease_ms + 2_000;
    scale.pill_one_in = mutant.pill_one_in;
    let options = Options {
        seed,
        extent: Extent {
            only,
            percent: mutant.percent,
            stretch_percent: 100,
            lease_ms: mutant.timings.lease_ms,
        },
        scale,
        mutant: Some(mutant),
        keep: keep.map(|dir| dir.join(mutant.name)),
        quiet: true,
    };
    let report = run::run(&options).await?;
    let violated = report.checked.invariants.iter().filter(|one| one.violations > 0);
    Ok(violated.map(|one| one.id.to_owned()).collect())
}

/// The tester of interleavings, which tries every order of the sessions' steps, sees the deadlock that
/// a run meets once in a while only.
fn interleave() -> anyhow::Result<Vec<String>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let run = Command::new(cargo)
        .args(["test", "-q", "--test", "model", "--", "--exact", "--nocapture"])
        .arg("interleave::red::updates_out_of_order_deadlock")
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .output()?;
    let said = String::from_utf8_lossy(&run.stdout);
    let seen = run.status.success() && said.contains("1 passed");
    Ok(if seen { vec!["40P01".into()] } else { Vec::new() })
}
