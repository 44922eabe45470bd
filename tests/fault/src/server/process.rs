//! Finds processes by their working directories. Every process of a server has its data directory
//! as its working directory, and so have the orphans of a killed postmaster.
//!
//! It never signals by name: a process that works elsewhere is not ours.

use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// Longest wait for killed processes to leave the table, in rounds of [`ROUND`].
const ROUNDS: u32 = 500;

/// A pause between two looks.
const ROUND: Duration = Duration::from_millis(10);

/// The processes that work in `dir` or below it.
pub(super) fn working_in(dir: &Path) -> Vec<Pid> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.filter_map(Pid::from_raw).filter(|pid| works_in(*pid, dir)).collect()
}

/// Whether a process works in `dir` or below it. An ended process works nowhere.
pub(super) fn works_in(pid: Pid, dir: &Path) -> bool {
    let cwd = std::fs::read_link(format!("/proc/{}/cwd", pid.as_raw_pid()));
    cwd.is_ok_and(|cwd| cwd.starts_with(dir))
}

/// Signals a process if it works in `dir`; says whether it did.
pub(super) fn signal(pid: Pid, dir: &Path, signal: Signal) -> bool {
    works_in(pid, dir) && kill_process(pid, signal).is_ok()
}

/// Kills everything that works in `dir`, and looks again until nothing is left. Blocks; a moment,
/// at worst 5 s.
pub(super) fn kill_all(dir: &Path) -> bool {
    for _ in 0..ROUNDS {
        let found = working_in(dir);
        if found.is_empty() {
            return true;
        }
        for pid in found {
            signal(pid, dir, Signal::KILL);
        }
        std::thread::sleep(ROUND);
    }
    false
}

/// Stops a parent, then its children, and looks again for those born in between.
pub(super) fn stop_all(parent: Pid, dir: &Path) {
    signal(parent, dir, Signal::STOP);
    for _ in 0..ROUNDS {
        let moving: Vec<Pid> =
            working_in(dir).into_iter().filter(|pid| !is_stopped(*pid)).collect();
        if moving.is_empty() {
            return;
        }
        for pid in moving {
            signal(pid, dir, Signal::STOP);
        }
        std::thread::sleep(ROUND);
    }
}

/// Lets everything that works in `dir` go on.
pub(super) fn continue_all(dir: &Path) {
    for pid in working_in(dir) {
        signal(pid, dir, Signal::CONT);
    }
}

/// Whether the process is stopped by a signal: the letter after the name in parentheses.
fn is_stopped(pid: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid()));
    let state = |stat: String| stat.rsplit_once(") ").map(|(_, rest)| rest.starts_with('T'));
    stat.ok().and_then(state).unwrap_or(true)
}
