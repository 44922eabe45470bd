//! The result of `all`, as data and as text.

use std::fmt::Write as _;

use comfy_table::CellAlignment;
use serde::Serialize;

use super::report::{Report, plain_table, trimmed};
use super::targets::{STEPS, Step, Unit};

/// Results of all workloads.
#[derive(Debug, Serialize)]
pub struct Table {
    /// Runs of each workload.
    pub rounds: u64,
    /// Whether sizes were small.
    pub quick: bool,
    /// How long it all took.
    pub seconds: f64,
    pub rows: Vec<Reached>,
    /// Every run of every workload.
    pub steps: Vec<Ran>,
    /// Machine, versions and settings in words.
    pub surroundings: String,
}

/// A row and what was reached.
#[derive(Debug, Serialize)]
pub struct Reached {
    pub what: &'static str,
    /// Name of the step it comes from.
    pub step: &'static str,
    /// The target, with its sign and unit; empty where there is none.
    pub target: String,
    /// Median of the rounds, in the unit of the target but that shares are not in hundredths.
    pub reached: Option<f64>,
    /// The same as it is shown.
    pub shown: String,
    /// Whether the median meets the target; absent without either.
    pub met: Option<bool>,
    pub rounds: Vec<Option<f64>>,
}

/// A workload that was run.
#[derive(Debug, Serialize)]
pub struct Ran {
    /// Its name in the table.
    pub name: &'static str,
    /// As it would be typed.
    pub command: String,
    pub reports: Vec<Report>,
    /// Why rounds are missing.
    pub errors: Vec<String>,
    /// Rounds for which there was no time.
    pub left_out: u64,
    /// Its longest round, in seconds, with the making of the database.
    pub longest_s: f64,
}

impl Ran {
    /// Not yet.
    pub(super) fn of(step: &Step, quick: bool) -> Self {
        let command = format!("tuskline-bench {}", step.line(quick));
        let (reports, errors) = (Vec::new(), Vec::new());
        Self { name: step.name, command, reports, errors, left_out: 0, longest_s: 0.0 }
    }
}

impl Table {
    /// Whether every workload came to its end, met its target or not.
    pub fn is_complete(&self) -> bool {
        self.steps.iter().all(|ran| ran.errors.is_empty())
    }

    /// For people, within 80 columns.
    pub fn text(&self) -> String {
        let mut table = plain_table();
        table.set_header(["what", "target", "reached", "met"]);
        for row in &self.rows {
            let met = row.met.map_or("", |met| if met { "yes" } else { "NO" });
            let once = STEPS.iter().any(|step| step.name == row.step && step.once);
            let what = format!("{}{}", row.what, if once { " *" } else { "" });
            table.add_row([&what, &row.target, &row.shown, met]);
        }
        for column in table.column_iter_mut().skip(1).take(2) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        let mut text = trimmed(table);
        let judged: Vec<_> = self.rows.iter().filter_map(|row| row.met).collect();
        let met = judged.iter().filter(|met| **met).count();
        let (rounds, seconds) = (self.rounds, self.seconds);
        let _ = write!(
            text,
            "\n{met} of {} targets met; medians of {rounds} rounds, in {seconds:.0} s in all\n\
             * one run, as it takes minutes; a drain beside a backlog is a median in itself\n",
            judged.len()
        );
        let left_out: u64 = self.steps.iter().map(|ran| ran.left_out).sum();
        if left_out > 0 {
            let _ = writeln!(text, "{left_out} rounds were left out for want of time");
        }
        let sorts = self.steps.iter().flat_map(|ran| &ran.reports).map(|at| at.machine.sort_ms);
        let [fastest, slowest] = sorts.fold([f64::MAX, 0.0], |[fastest, slowest], sort| {
            [fastest.min(sort), slowest.max(sort)]
        });
        if slowest > 0.0 {
            let _ =
                writeln!(text, "a fixed sort after each run took {fastest:.1} to {slowest:.1} ms");
        }
        if self.quick {
            text += "Small sizes: these figures say only that everything works.\n";
        }
        for ran in &self.steps {
            for error in &ran.errors {
                let _ = writeln!(text, "FAILED: {}: {error}", ran.command);
            }
        }
        text + &self.surroundings
    }
}

impl Unit {
    pub(super) fn show(self, value: f64) -> String {
        match self {
            Self::PerSecond if value >= 100.0 => format!("{}/s", grouped(value)),
            Self::PerSecond => format!("{value:.2}/s"),
            Self::Microseconds => format!("{value:.1} us"),
            Self::Milliseconds => format!("{value:.2} ms"),
            Self::Seconds => format!("{value:.2} s"),
            Self::Bytes => format!("{value:.0} B"),
            Self::Percent => format!("{:.0} %", value * 100.0),
            Self::PercentOfCore => format!("{value:.2} %"),
            Self::Count => format!("{value:.0}"),
        }
    }
}

/// 138004 as 138,004.
fn grouped(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (number, digit) in digits.chars().enumerate() {
        if number > 0 && (digits.len() - number) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::targets::ROWS;
    use super::*;

    #[test]
    fn no_row_is_wider_than_a_terminal() {
        let rows = ROWS.iter().map(|row| Reached {
            what: row.what,
            step: row.step,
            target: ">= 130,000/s".to_owned(),
            reached: Some(1.0),
            shown: "1,138,004/s".to_owned(),
            met: Some(false),
            rounds: Vec::new(),
        });
        let copy = STEPS.iter().find(|step| step.name == "copy").unwrap();
        let mut ran = Ran::of(copy, false);
        ran.errors.push("no space".to_owned());
        ran.left_out = 2;
        let table = Table {
            rounds: 3,
            quick: true,
            seconds: 1500.0,
            rows: rows.collect(),
            steps: vec![ran],
            surroundings: "PostgreSQL 15.18\n".to_owned(),
        };
        let text = table.text();
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        let rows = ROWS.len();
        let last = format!("\n0 of {rows} targets met; medians of 3 rounds, in 1500 s in all\n");
        assert!(text.contains(&last));
        assert!(text.contains("FAILED: tuskline-bench copy --tasks 300000: no space\n"), "{text}");
        assert!(text.contains("\n2 rounds were left out for want of time\n"), "{text}");
        assert!(!table.is_complete());
    }

    #[test]
    fn figures_are_shown_in_their_unit() {
        assert_eq!(Unit::PerSecond.show(138_004.2), "138,004/s");
        assert_eq!(Unit::PerSecond.show(1.96), "1.96/s");
        assert_eq!(Unit::Percent.show(0.754), "75 %");
        assert_eq!((grouped(999.0), grouped(1_000_000.0)), ("999".into(), "1,000,000".into()));
    }
}
