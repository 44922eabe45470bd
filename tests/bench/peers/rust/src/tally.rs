//! The tally of a worker, and its output: one JSON object a line.

use std::io::Write as _;
use std::sync::Mutex;

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// Bytes of the payload of a preloaded task, as Tuskline's own bench has them.
const PAD: usize = 140;

/// The payload of every task.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Payload {
    /// Monotonic clock just before the insert call, in ns; absent: the time is not measured.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub at_ns: u64,
    pub pad: String,
}

impl Payload {
    /// A payload without a time.
    pub fn plain() -> Self {
        Self { at_ns: 0, pad: "x".repeat(PAD) }
    }

    /// A payload with the time at which it was made: now.
    pub fn stamped() -> Self {
        Self { at_ns: monotonic_ns(), ..Self::plain() }
    }
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde passes it so
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The host's monotonic clock in ns, the same for every process on it.
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

/// Starts of one worker process.
pub struct Tally {
    expected: u64,
    seen: Mutex<Seen>,
}

#[derive(Default, Serialize)]
struct Seen {
    executed: u64,
    first_ns: u64,
    /// The insert time of every timed task, in ns, and the delay of its start, in µs.
    late: Vec<(u64, u64)>,
}

impl Tally {
    /// For a worker that says so when so many tasks have started.
    pub fn new(expected: u64) -> Self {
        Self { expected, seen: Mutex::default() }
    }

    /// A task starts.
    pub fn start(&self, payload: &Payload) {
        let now_ns = monotonic_ns();
        let Ok(mut seen) = self.seen.lock() else { return };
        seen.executed += 1;
        if seen.executed == 1 {
            seen.first_ns = now_ns;
        }
        if payload.at_ns > 0 {
            seen.late.push((payload.at_ns, now_ns.saturating_sub(payload.at_ns) / 1000));
        }
        if seen.executed == self.expected {
            say("all_started", &serde_json::json!({}));
        }
    }

    /// Says what there was.
    pub fn end(&self) {
        if let Ok(seen) = self.seen.lock() {
            say("end", &*seen);
        }
    }
}

/// Says that something happened.
pub fn say(event: &str, what: &impl Serialize) {
    let line = serde_json::json!({ "event": event, "what": what });
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// Says that the worker runs, and waits until standard input closes.
pub async fn until_told_to_end() -> anyhow::Result<()> {
    say("ready", &serde_json::json!({}));
    tokio::task::spawn_blocking(|| std::io::copy(&mut std::io::stdin(), &mut std::io::sink()))
        .await??;
    Ok(())
}
