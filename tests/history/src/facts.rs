//! Facts that are recorded in one piece: the settings of a run, schedules, redrives.

use serde::{Deserialize, Serialize};

/// The settings of the run, and the bounds that follow from them.
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
    /// Rate limits that hold throughout the run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rates: Vec<Rate>,
    /// Versions of server, kernel and binaries, for the report.
    pub versions: Vec<String>,
}

/// A rate limit: in any span of w seconds at most `per_second` * w + `burst` tasks of the lambda start.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rate {
    /// The lambda.
    pub lambda: String,
    /// Tasks a second.
    pub per_second: f64,
    /// Tasks at once.
    pub burst: u32,
    /// It holds from here on, on the database's clock, in microseconds since 1970; none: throughout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_us: Option<i64>,
    /// It holds up to here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_us: Option<i64>,
}

/// A schedule of tasks, and its ticks that must have one. Spans are of the database's clock, in
/// microseconds since 1970. A span includes its first moment and excludes its last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Periodic {
    /// Its name.
    pub name: String,
    /// Lambda of its tasks.
    pub lambda: String,
    /// Seconds first, then the five fields of a cron.
    pub cron: String,
    /// Name of the time zone it is read by.
    pub zone: String,
    /// A tick that is later than this is a missed one, which its policy deals with; in milliseconds.
    pub grace_ms: u64,
    /// Each tick in these has one task, whatever happens.
    pub owed: Vec<(i64, i64)>,
    /// Each tick in these may have a task: the call that allowed the tick was under way. No other
    /// tick has one.
    pub open: Vec<(i64, i64)>,
}

/// A redrive, as it is at the end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Redrive {
    /// Its number.
    pub redrive: i64,
    /// Only the dead of this lambda.
    pub lambda: Option<String>,
    /// Only tasks whose last failure has this fingerprint.
    pub fingerprint: Option<String>,
    /// Only these tasks.
    pub ids: Option<Vec<i64>>,
    /// How many to let go at most.
    pub most: Option<i64>,
    /// How many a second.
    pub per_second: Option<f64>,
    /// It lets 1 go, then 10, then the rest, and stops when they die again.
    pub canary: bool,
    /// When it was set, on the database's clock.
    pub set_us: i64,
    /// When it ended; none: it did not.
    pub ended_us: Option<i64>,
    /// `done`, `died_again`, or `stopped` by hand.
    pub outcome: Option<String>,
    /// The number that the redrive reports as released.
    pub released: i64,
    /// The number of these that it reports as dead again.
    pub died_again: i64,
}
