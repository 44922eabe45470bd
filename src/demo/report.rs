//! What the demo says in the end.

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
    pub tasks_per_s: f64,
    /// First start minus due time.
    pub start_latency_ms: Percentiles,
}

/// Of the start latency, in milliseconds.
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

    /// The summary table.
    pub fn table(&self) -> String {
        let mut table = comfy_table::Table::new();
        table.load_style(comfy_table::presets::UTF8_BORDERS_ONLY);
        let rows: [(&str, String, &str); 11] = [
            ("scheduled", self.scheduled.to_string(), "one task per file"),
            ("succeeded", self.succeeded.to_string(), "checksum in task_output"),
            ("dead", self.dead.to_string(), "unreadable, attempts exhausted"),
            ("lost", self.lost.to_string(), "from the executors' own records"),
            ("overlaps", self.overlaps.to_string(), "from the executors' own records"),
            ("killed workers", self.killed_workers.to_string(), "SIGKILL at about a third"),
            ("rescued", self.rescued.to_string(), "given back by expired leases"),
            ("retried", self.retried.to_string(), "retriable failures"),
            (
                "checksums",
                format!("{} right, {} wrong", self.checksums_verified, self.checksums_wrong),
                "against an independent pass",
            ),
            ("tasks/s", format!("{:.0}", self.tasks_per_s), "whole run, files read and hashed"),
            (
                "start latency",
                format!(
                    "p50 {:.1} ms, p99 {:.1} ms",
                    self.start_latency_ms.p50, self.start_latency_ms.p99
                ),
                "first start after due time",
            ),
        ];
        for (name, value, note) in rows {
            table.add_row([name, &value, note]);
        }
        table.to_string()
    }
}
