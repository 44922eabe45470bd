//! Result of a workload, beside the machine, the versions and the settings it was measured with.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use comfy_table::{ContentArrangement, Table, presets};
use serde::Serialize;
use serde_json::{Map, Value};

use super::latencies::{Latencies, Quantiles};
use super::meter::{Cost, Observer, round};
use super::proc::Machine;

/// Settings that move figures. Settings that a server does not know are left out.
const SETTINGS: &str = "\
select json_object_agg(name, current_setting(name) order by name)::text from pg_settings
 where name in ('fsync', 'synchronous_commit', 'full_page_writes', 'wal_compression', 'wal_level',
   'shared_buffers', 'max_wal_size', 'checkpoint_timeout', 'commit_delay', 'autovacuum', 'jit',
   'data_checksums', 'max_connections', 'shared_preload_libraries', 'synchronous_standby_names')";

#[derive(Debug, Clone, Default, Serialize)]
pub struct Outcome {
    /// Name of the workload.
    pub workload: &'static str,
    /// Which part of it, where there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub part: Option<String>,
    /// Tasks that were measured.
    pub tasks: u64,
    pub seconds: f64,
    /// Tasks per second; absent where a rate says nothing.
    pub tasks_per_s: Option<f64>,
    /// How long something took per task or call; absent where nothing was timed.
    #[serde(flatten)]
    pub quantiles: Quantiles,
    /// Costs of a task.
    #[serde(flatten)]
    pub cost: Cost,
    /// Figures of this workload only, and the options it ran with.
    pub extra: Map<String, Value>,
    /// Times: ms, and the share that took no longer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub distribution: Vec<(f64, f64)>,
    /// How it went over time, where the workload looks at that.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub course: Vec<Moment>,
}

/// One window of a course.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Moment {
    /// Its end, in seconds since the beginning.
    pub at_s: f64,
    /// Half of its tasks took no longer, in ms.
    pub p50_ms: Option<f64>,
    /// 99 of 100 took no longer, in ms.
    pub p99_ms: Option<f64>,
    /// Pages looked at; backends publish them a second late.
    pub buffer_hits_per_task: Option<f64>,
    /// Buffer hits of clients' statements.
    pub statement_hits_per_task: Option<f64>,
    /// CPU of the server, in µs.
    pub server_cpu_us_per_task: Option<f64>,
}

impl Outcome {
    /// A measurement of `tasks` tasks in so many seconds.
    pub(super) fn new(workload: &'static str, tasks: u64, seconds: f64, cost: Cost) -> Self {
        #[allow(clippy::cast_precision_loss)]
        let tasks_per_s = (tasks > 0 && seconds > 0.0).then(|| round(tasks as f64 / seconds));
        let seconds = round(seconds);
        Self { workload, tasks, seconds, tasks_per_s, cost, ..Self::default() }
    }

    /// With the name of its part.
    pub(super) fn part(mut self, name: impl Into<String>) -> Self {
        self.part = Some(name.into());
        self
    }

    /// With what was timed.
    pub(super) fn timed(mut self, latencies: &Latencies) -> Self {
        self.quantiles = latencies.quantiles();
        self.distribution = latencies.distribution();
        self
    }

    /// A number that only this workload knows.
    pub(super) fn extra(&self, name: &str) -> Option<f64> {
        self.extra.get(name)?.as_f64()
    }

    /// With something that only this workload knows.
    pub(super) fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.extra.insert(name.to_owned(), value.into());
        self
    }

    fn put_into(&self, text: &mut String) {
        let part = self.part.as_ref().map(|part| format!(", {part}")).unwrap_or_default();
        let rate = self.tasks_per_s.map(|rate| format!(", {rate:.0} tasks/s")).unwrap_or_default();
        let _ = writeln!(
            text,
            "{}{part}: {} tasks in {:.2} s{rate}",
            self.workload, self.tasks, self.seconds
        );
        let Quantiles { p50_ms, p95_ms, p99_ms, max_ms } = self.quantiles;
        if let (Some(p50), Some(p95), Some(p99), Some(max)) = (p50_ms, p95_ms, p99_ms, max_ms) {
            let _ = writeln!(
                text,
                "  p50 {p50:.2} ms   p95 {p95:.2} ms   p99 {p99:.2} ms   max {max:.2} ms"
            );
        }
        let mut table = plain_table();
        table.set_width(78);
        for pair in self.cost.lines().chunks(2) {
            table.add_row(pair.iter().flat_map(|(name, value)| [*name, value]));
        }
        for line in trimmed(table).lines() {
            let _ = writeln!(text, "  {line}");
        }
        for (name, value) in &self.extra {
            let _ = writeln!(text, "  {}: {value}", name.replace('_', " "));
        }
    }
}

impl Cost {
    /// The known figures, in words.
    fn lines(&self) -> Vec<(&'static str, String)> {
        [
            ("WAL bytes/task", self.wal_bytes_per_task),
            ("WAL records/task", self.wal_records_per_task),
            ("page images/task", self.wal_fpi_per_task),
            ("buffer hits/task", self.buffer_hits_per_task),
            ("of statements", self.statement_hits_per_task),
            ("server CPU us/task", self.server_cpu_us_per_task),
            ("client CPU us/task", self.client_cpu_us_per_task),
            ("commits/task", self.commits_per_task),
            ("statements/task", self.statements_per_task),
            ("HOT share", self.hot_share),
            ("dead tuples/task", self.dead_tuples_per_task),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name, format!("{:.3}", value?))))
        .collect()
    }
}

/// Versions of what was measured.
#[derive(Debug, Clone, Serialize)]
pub struct Versions {
    /// Version of the server.
    pub postgresql: String,
    pub tuskline: &'static str,
}

/// How many tasks a second, with so many lambdas.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    pub lambdas: u64,
    pub tasks_per_s: f64,
}

impl Row {
    fn of(outcome: &Outcome) -> Option<Self> {
        let lambdas = outcome
            .extra
            .get("lambdas")
            .filter(|_| ["singles", "paper"].contains(&outcome.workload))?;
        let lambdas = lambdas.as_u64()?;
        Some(Self { lambdas, tasks_per_s: outcome.tasks_per_s? })
    }
}

/// A whole run. The figures at the top are those of the last part.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The last, or only, measurement.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// Every measurement in its order, where there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<Outcome>,
    /// Their rates by the number of lambdas, where that is what differs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rows: Vec<Row>,
    pub machine: Machine,
    /// Versions of the programs.
    pub versions: Versions,
    /// Settings of the server.
    pub settings: BTreeMap<String, String>,
}

impl Report {
    /// The report of these measurements, with what the server says of itself.
    pub(super) async fn of(parts: Vec<Outcome>, observer: &Observer) -> anyhow::Result<Self> {
        let outcome = parts.last().cloned().unwrap_or_default();
        let version = "select current_setting('server_version')::text";
        let postgresql = observer.row(version).await?.get(0);
        let settings: String = observer.row(SETTINGS).await?.get(0);
        let rows = parts.iter().filter_map(Row::of).collect();
        Ok(Self {
            outcome,
            rows,
            parts: if parts.len() > 1 { parts } else { Vec::new() },
            machine: Machine::here(),
            versions: Versions { postgresql, tuskline: env!("CARGO_PKG_VERSION") },
            settings: serde_json::from_str(&settings)?,
        })
    }

    /// Every measurement in its order.
    pub(super) fn all(&self) -> &[Outcome] {
        match self.parts.is_empty() {
            true => std::slice::from_ref(&self.outcome),
            false => &self.parts,
        }
    }

    /// For people, within 80 columns.
    pub fn text(&self) -> String {
        let mut text = String::new();
        self.all().iter().for_each(|part| part.put_into(&mut text));
        text + &self.surroundings()
    }

    /// Where and on what it was measured, in lines of at most 80 characters.
    pub(super) fn surroundings(&self) -> String {
        let Machine { cpus, model, memory_mib, kernel, sort_ms: _ } = &self.machine;
        let mut words = vec![format!("PostgreSQL {}", self.versions.postgresql)];
        words.push(format!("tuskline {}", self.versions.tuskline));
        words.push(format!("{cpus} cpus {}", model.as_deref().unwrap_or_default()));
        words.extend(memory_mib.map(|mib| format!("{mib} MiB")));
        words.extend(kernel.as_ref().map(|kernel| format!("kernel {kernel}")));
        words.extend(self.settings.iter().map(|(name, value)| format!("{name}={value}")));
        let mut table = plain_table();
        table.add_row([words.join(", ")]);
        trimmed(table)
    }
}

/// A table without lines, which breaks words at 80 columns.
pub(super) fn plain_table() -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_width(80);
    table.set_content_arrangement(ContentArrangement::Dynamic);
    table
}

/// Its text without spaces at the ends of lines.
pub(super) fn trimmed(mut table: Table) -> String {
    table.column_iter_mut().for_each(|column| {
        column.set_padding((0, 2));
    });
    table.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_line_is_wider_than_a_terminal() {
        let cost = Cost { wal_bytes_per_task: Some(487.123_456), ..Cost::default() };
        let outcome = Outcome::new("drain", 200_000, 1.4, cost).with("workers", 1);
        let settings = (0..40).map(|n| (format!("setting_{n}"), "on".to_owned())).collect();
        let versions = Versions { postgresql: "15.18 (Debian)".to_owned(), tuskline: "0.1.0" };
        let machine =
            Machine { cpus: 2, model: None, memory_mib: Some(1), kernel: None, sort_ms: 9.0 };
        let report =
            Report { outcome, parts: Vec::new(), rows: Vec::new(), machine, versions, settings };
        let text = report.text();
        assert!(text.starts_with("drain: 200000 tasks in 1.40 s, 142857 tasks/s\n"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(text.contains("487.123") && text.contains("workers: 1"), "{text}");
    }
}
