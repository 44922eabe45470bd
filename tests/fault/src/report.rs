//! The report of a run at its end.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::inflict::Skipped;

/// The whole report; `--json` prints it as it is.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Nothing was violated, everything ended, nothing was skipped that was not announced.
    pub ok: bool,
    /// Hash of the timetable: equal for equal seeds and lengths.
    pub timetable: String,
    pub seconds: f64,
    pub machine: String,
    /// Faults that the timetable holds, by kind.
    pub planned: BTreeMap<String, u64>,
    /// Faults that could not be done here.
    pub skipped: Vec<Skipped>,
    /// Faults that were tried in vain.
    pub failed: Vec<Skipped>,
    /// Every task had ended and every process ended in order.
    pub quiet: bool,
    /// The findings of the checker.
    #[serde(flatten)]
    pub checked: tuskline_history::Report,
}

impl Report {
    /// The reasons why the run is green or red, in one line.
    pub fn verdict(&self) -> String {
        let violated = self.checked.invariants.iter().filter(|one| one.violations > 0);
        let mut red: Vec<_> = violated.map(|one| format!("{} violated", one.id)).collect();
        red.extend(self.failed.iter().map(|one| format!("{} failed: {}", one.what, one.why)));
        if !self.quiet {
            red.push("tasks or processes did not come to their end".into());
        }
        match (self.ok, red.is_empty()) {
            (true, _) => "ok: nothing was violated".into(),
            (false, true) => "RED".into(),
            (false, false) => format!("RED: {}", red.join("; ")),
        }
    }
}

/// Processors and kernel, in one line.
pub fn machine() -> String {
    let uname = rustix::system::uname();
    let cpus = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let model = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = model.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("");
    let model = model.trim_start_matches([' ', '\t', ':']);
    let (system, release) = (uname.sysname().to_string_lossy(), uname.release().to_string_lossy());
    format!("{cpus} cores, {model}, {system} {release}")
}

/// The version under test, and the commit where there is a checkout.
pub fn version() -> String {
    let git = std::process::Command::new("git").args(["describe", "--always", "--dirty"]).output();
    let commit = git.ok().filter(|git| git.status.success()).map(|git| git.stdout);
    let commit = String::from_utf8(commit.unwrap_or_default()).unwrap_or_default();
    format!("tuskline {} {}", env!("CARGO_PKG_VERSION"), commit.trim()).trim_end().to_owned()
}

/// For people, at 80 columns.
impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (seed, timetable, seconds) = (self.checked.seed, &self.timetable, self.seconds);
        writeln!(f, "seed {seed}, timetable {timetable}, {seconds:.0} s")?;
        writeln!(f, "{}; {}", self.machine, self.checked.versions.join(", "))?;
        writeln!(f, "\n{}", self.checked)?;
        writeln!(f, "\n{:<24} {:>8} {:>8}", "faults", "planned", "done")?;
        for (kind, planned) in &self.planned {
            let done = self.checked.faults.get(kind).copied().unwrap_or(0);
            writeln!(f, "{kind:<24} {planned:>8} {done:>8}")?;
        }
        for skipped in &self.skipped {
            writeln!(f, "SKIPPED {}: {}", skipped.what, skipped.why)?;
        }
        for failed in &self.failed {
            writeln!(f, "FAILED {}: {}", failed.what, failed.why)?;
        }
        writeln!(f, "\n{}", self.verdict())
    }
}
