//! What is written down in one piece: the settings of a run.

use serde::{Deserialize, Serialize};

/// What the run was set to, and the bounds that follow from it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Decides the schedule of faults.
    pub seed: u64,
    /// Heartbeat period HB.
    pub heartbeat_ms: u64,
    /// Self-termination T.
    pub self_termination_ms: u64,
    /// Margin M of the watchdog.
    pub margin_ms: u64,
    /// Lease L.
    pub lease_ms: u64,
    /// Longest time between two looks of a worker or store consumer (safety poll).
    pub poll_ms: u64,
    /// Lambdas of which no more than so many tasks may run at a time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<(String, u32)>,
    /// Versions of server, kernel and binaries, for the report.
    pub versions: Vec<String>,
}
