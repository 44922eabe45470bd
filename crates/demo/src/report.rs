//! Text that the demo prints at its end.

use serde::Serialize;

/// The summary; its JSON keys are stable.
#[derive(Debug, Clone, Serialize)]
#[allow(missing_docs, reason = "named as they are printed")]
pub struct Report {
    pub scheduled: u64,
    pub succeeded: u64,
    pub dead: u64,
    /// Accepted tasks that no executor ever finished, or that have not ended.
    pub lost: u64,
    /// Pairs of executions of one task that ran at the same time.
    pub overlaps: u64,
    pub killed_workers: u64,
    /// Tasks given back because their worker died.
    pub rescued: u64,
    /// Attempts that ended in a retriable failure.
    pub retried: u64,
    /// Checksums that agree with the independent pass.
    pub checksums_verified: u64,
    pub checksums_wrong: u64,
    /// Files that were too large, or over the limit, and never became tasks.
    pub left_out: u64,
    pub seconds: f64,
    /// Starts per second until the tasks that were due at once had all started.
    pub tasks_per_s: f64,
    /// First start minus due time, of the tasks that were due after that. None: there were none.
    pub start_latency_ms: Option<Percentiles>,
    /// The same, of the tasks that waited in the queue.
    pub queue_wait_ms: Option<Percentiles>,
}

/// Percentiles of the start latency, in milliseconds.
#[derive(Debug, Clone, Copy, Serialize)]
#[allow(missing_docs, reason = "named as they are printed")]
pub struct Percentiles {
    pub p50: f64,
    pub p99: f64,
}

impl Report {
    /// True when nothing was lost, nothing overlapped and every checksum is right.
    pub fn holds(&self) -> bool {
        self.lost == 0 && self.overlaps == 0 && self.checksums_wrong == 0
    }

    pub fn table(&self) -> String {
        let mut table = comfy_table::Table::new();
        table.load_style(comfy_table::presets::UTF8_BORDERS_ONLY);
        let rows: [(&str, String, &str); 12] = [
            ("scheduled", self.scheduled.to_string(), "one task per file"),
            ("succeeded", self.succeeded.to_string(), "checksum in task_output"),
            ("dead", self.dead.to_string(), "out of attempts, unreadable"),
            ("lost", self.lost.to_string(), "by the executors' records"),
            ("overlaps", self.overlaps.to_string(), "by the executors' records"),
            ("killed workers", self.killed_workers.to_string(), "SIGKILL at about a third"),
            ("rescued", self.rescued.to_string(), "taken back from dead workers"),
            ("retried", self.retried.to_string(), "retriable failures"),
            (
                "checksums",
                format!("{} right, {} wrong", self.checksums_verified, self.checksums_wrong),
                "against an independent pass",
            ),
            ("tasks/s", format!("{:.0}", self.tasks_per_s), "hashed while any waited"),
            ("queue wait", percentiles_text(self.queue_wait_ms), "until all had started"),
            (
                "start latency",
                percentiles_text(self.start_latency_ms),
                "due when the queue was empty",
            ),
        ];
        for (name, value, note) in rows {
            table.add_row([name, &value, note]);
        }
        format!("{table}\n{BESIDE_README}")
    }
}

const BESIDE_README: &str = "\
README has other figures: there the build is optimised, bodies are empty, and
tasks are inserted one by one, due at once. ./x bench repeats them here.";

fn percentiles_text(waits_ms: Option<Percentiles>) -> String {
    waits_ms.map_or("none".to_owned(), |Percentiles { p50, p99 }| {
        format!("p50 {}, p99 {}", milliseconds(p50), milliseconds(p99))
    })
}

/// Three digits are as many as one run can vouch for.
fn milliseconds(value: f64) -> String {
    if value < 100.0 { format!("{value:.1} ms") } else { format!("{value:.0} ms") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_a_large_run_fits_eighty_columns() {
        let many = 20_000;
        let report = Report {
            scheduled: many,
            succeeded: many,
            dead: many,
            lost: many,
            overlaps: many,
            killed_workers: 1,
            rescued: many,
            retried: many,
            checksums_verified: many,
            checksums_wrong: many,
            left_out: many,
            seconds: 60.0,
            tasks_per_s: 12_345.6,
            start_latency_ms: Some(Percentiles { p50: 12_345.6, p99: 99_999.9 }),
            queue_wait_ms: Some(Percentiles { p50: 12_345.6, p99: 99_999.9 }),
        };
        for line in report.table().lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
    }

    #[test]
    fn a_report_holds_unless_something_was_lost_overlapped_or_came_out_wrong() {
        let good = Report {
            scheduled: 1,
            succeeded: 0,
            dead: 1,
            lost: 0,
            overlaps: 0,
            killed_workers: 1,
            rescued: 0,
            retried: 2,
            checksums_verified: 0,
            checksums_wrong: 0,
            left_out: 0,
            seconds: 1.0,
            tasks_per_s: 1.0,
            start_latency_ms: None,
            queue_wait_ms: Some(Percentiles { p50: 1.0, p99: 1.0 }),
        };
        assert!(good.holds(), "a dead task has been accounted for");
        assert!(!Report { lost: 1, ..good.clone() }.holds());
        assert!(!Report { overlaps: 1, ..good.clone() }.holds());
        assert!(!Report { checksums_wrong: 1, ..good }.holds());
    }
}
