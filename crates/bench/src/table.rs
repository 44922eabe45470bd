//! `all`: every figure with a target, beside that target, in one command.
//!
//! Promises: each workload has a database of its own, made for it; what fails costs its own rows only;
//! every round is kept. Must never: put durability aside, but where only the log is looked at.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Context as _;
use clap::{Args, Parser, value_parser};
use tokio_util::sync::CancellationToken;

use super::meter::round;
use super::report::Report;
use super::site::Site;
use super::table_text::{Ran, Reached, Table};
use super::targets::{ROWS, Row, STEPS, Step, Target};
use super::{Options, Workload, measure};

/// Options of `all`.
#[derive(Debug, Clone, Args)]
pub struct All {
    /// Runs of each workload; the table shows medians. A workload of minutes runs once.
    #[arg(long, default_value_t = 3, value_parser = value_parser!(u64).range(1..=9))]
    rounds: u64,
    /// Begin nothing after the first round that would not end within so many minutes.
    #[arg(long, default_value_t = 30.0)]
    minutes: f64,
    /// Small sizes, to see that everything works; the figures mean nothing.
    #[arg(long)]
    quick: bool,
    /// Also write each round as JSON and CSV, and the table, into this directory.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// The line of a step, read as the command line is.
#[derive(Debug, Parser)]
struct Typed {
    #[command(subcommand)]
    workload: Workload,
}

/// Runs everything. `shutdown` ends it early, without a table.
///
/// # Errors
/// No server, nowhere to write, or interrupted. The error of a single workload is in the table.
pub async fn all(
    all: &All,
    options: &Options,
    shutdown: CancellationToken,
) -> anyhow::Result<Table> {
    if let Some(dir) = &all.out {
        std::fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    }
    let mut site = Site::open(options).await?;
    let table = tokio::select! {
        table = all.run(&mut site, options) => table,
        () = shutdown.cancelled() => Err(anyhow::anyhow!("interrupted")),
    };
    let closed = site.close().await;
    let table = table?;
    closed?;
    Ok(table)
}

impl All {
    /// Round after round, so that a load that comes or goes meets every row alike.
    async fn run(&self, site: &mut Site, options: &Options) -> anyhow::Result<Table> {
        let began = Instant::now();
        let mut steps: Vec<_> = STEPS.iter().map(|step| Ran::of(step, self.quick)).collect();
        for round in 1..=self.rounds {
            for (step, ran) in STEPS.iter().zip(&mut steps) {
                let fits = began.elapsed().as_secs_f64() + ran.longest_s < self.minutes * 60.0;
                match round {
                    1 => self.once(site, options, step, ran, round).await?,
                    _ if step.once => {}
                    _ if fits => self.once(site, options, step, ran, round).await?,
                    _ => ran.left_out += 1,
                }
            }
        }
        let table = Table {
            rounds: self.rounds,
            quick: self.quick,
            seconds: round(began.elapsed().as_secs_f64()),
            rows: ROWS.iter().map(|row| row.reached(&steps)).collect(),
            surroundings: steps
                .iter()
                .find_map(|ran| ran.reports.first())
                .map_or_else(String::new, Report::surroundings),
            steps,
        };
        if let Some(dir) = &self.out {
            put(&dir.join("table.txt"), &table.text())?;
            put(&dir.join("table.json"), &serde_json::to_string(&table)?)?;
        }
        Ok(table)
    }

    /// One round of one step. Its failure is kept beside the results of the remaining rounds.
    async fn once(
        &self,
        site: &mut Site,
        options: &Options,
        step: &Step,
        ran: &mut Ran,
        round: u64,
    ) -> anyhow::Result<()> {
        let line = step.line(self.quick);
        if !site.quiet() {
            let rounds = if step.once { 1 } else { self.rounds };
            eprintln!("round {round} of {rounds}: {line}");
        }
        let (workload, began) = (workload(line)?, Instant::now());
        match one(site, options, step, &workload).await {
            Ok(report) => {
                self.write(step, round, &report)?;
                ran.reports.push(report);
            }
            Err(error) => ran.errors.push(format!("{error:#}")),
        }
        ran.longest_s = ran.longest_s.max(began.elapsed().as_secs_f64());
        Ok(())
    }

    /// Keeps a round at once: a later one may fail.
    fn write(&self, step: &Step, round: u64, report: &Report) -> anyhow::Result<()> {
        let Some(dir) = &self.out else { return Ok(()) };
        let json = serde_json::to_string(report)?;
        put(&dir.join(format!("{}-{round}.json", step.name)), &json)?;
        put(&dir.join(format!("{}-{round}.csv", step.name)), &report.csv()?)
    }
}

fn put(file: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}

fn workload(line: &str) -> anyhow::Result<Workload> {
    Ok(Typed::try_parse_from(["bench"].into_iter().chain(line.split(' ')))?.workload)
}

/// One run in a fresh database, or on a server of its own where only the log is looked at.
async fn one(
    site: &mut Site,
    options: &Options,
    step: &Step,
    workload: &Workload,
) -> anyhow::Result<Report> {
    if step.page_images {
        site.renew().await?;
        return measure(site, workload).await;
    }
    let mut own = Site::open(&Options { page_images: false, ..options.clone() }).await?;
    let report = measure(&mut own, workload).await;
    own.close().await?;
    report
}

impl Row {
    fn reached(&self, steps: &[Ran]) -> Reached {
        let reports = steps.iter().filter(|ran| ran.name == self.step).flat_map(|ran| &ran.reports);
        let rounds: Vec<_> = reports.map(self.figure).collect();
        let reached = median(rounds.iter().copied().flatten().collect());
        let target = match self.target {
            Target::AtLeast(least) => format!(">= {}", self.unit.show(least)),
            Target::AtMost(most) => format!("<= {}", self.unit.show(most)),
            Target::Shown => String::new(),
        };
        Reached {
            what: self.what,
            step: self.step,
            target,
            reached,
            shown: reached.map_or_else(|| "-".to_owned(), |figure| self.unit.show(figure)),
            met: reached.and_then(|figure| self.target.is_met(figure)),
            rounds,
        }
    }
}

/// The middle one, or the mean of the two in the middle.
fn median(mut figures: Vec<f64>) -> Option<f64> {
    figures.sort_by(f64::total_cmp);
    let upper = *figures.get(figures.len() / 2)?;
    let lower = *figures.get((figures.len() - 1) / 2)?;
    Some(f64::midpoint(lower, upper))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_a_call_and_every_row_has_its_step() {
        for step in &STEPS {
            for line in [step.line, step.quick] {
                let workload = workload(line).unwrap();
                assert_eq!(workload.crashes_server(), step.name == "rebuild", "{line}");
            }
        }
        for row in &ROWS {
            assert!(STEPS.iter().any(|step| step.name == row.step), "{}", row.what);
        }
    }

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0]), Some(2.5));
        assert_eq!(median(Vec::new()), None);
    }
}
