//! Records of the executors: one line when a body begins, one when it ends, in a file of each
//! worker's own, opened for appending. Written lines survive SIGKILL: they are in the kernel by then.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};
use tuskline_sdk::Context;

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Line {
    pub task: i64,
    pub fence: i64,
    pub what: What,
    /// Nanoseconds of the host's monotonic clock, the same for every process.
    pub at_ns: u64,
    /// Microseconds since 1970 of the host's wall clock, to set beside the database's.
    pub wall_us: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum What {
    Begin,
    /// The body ended and will report a success.
    Success,
    /// The body ended and will report a failure.
    Failure,
}

/// The file of one worker.
#[derive(Debug)]
pub(super) struct Recorder {
    file: File,
}

impl Recorder {
    pub(super) fn open(path: &Path) -> std::io::Result<Self> {
        Ok(Self { file: OpenOptions::new().create(true).append(true).open(path)? })
    }

    /// Appends one line with one write.
    pub(super) fn note(&self, context: &Context, what: What) {
        let line = Line {
            task: context.task().0,
            fence: context.fence().0,
            what,
            at_ns: monotonic_ns(),
            wall_us: chrono::Utc::now().timestamp_micros(),
        };
        let text = serde_json::to_string(&line).unwrap_or_default() + "\n";
        // A full disk shows as a lost task in the verdict, which is what it would be.
        let _ = (&self.file).write_all(text.as_bytes());
    }
}

/// Reads the lines of one worker; a last line cut short by SIGKILL is passed over.
pub(super) fn read(path: &Path) -> std::io::Result<Vec<Line>> {
    let lines = BufReader::new(File::open(path)?).lines();
    lines
        .map_while(Result::ok)
        .filter_map(|line| serde_json::from_str(&line).ok())
        .map(Ok)
        .collect()
}

/// How many bodies of one worker have ended.
pub(super) fn ends(path: &Path) -> u64 {
    let lines = read(path).unwrap_or_default();
    lines.iter().filter(|line| line.what != What::Begin).count() as u64
}

/// The host's monotonic clock.
pub(super) fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}
