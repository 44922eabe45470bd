//! Processes as `/proc` shows them, and their ends as a pidfd tells them.

use std::collections::HashSet;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tuskline_sdk::Host;

use super::environment::PROCESS;

/// The end of a process. Readable once no instruction of it runs any more.
#[derive(Debug)]
pub struct ProcessEnd(AsyncFd<OwnedFd>);

impl ProcessEnd {
    /// Of a process below this guardian.
    ///
    /// # Errors
    /// There is no such process any more, or the system has no pidfd.
    pub fn of(pid: u32) -> io::Result<Self> {
        let pid = pid_of(pid).ok_or(io::ErrorKind::NotFound)?;
        let fd = rustix::process::pidfd_open(pid, PidfdFlags::NONBLOCK)?;
        // SAFETY: the descriptor must stay open and the same until it is deregistered. It is an `OwnedFd` that only
        // the `AsyncFd` has, which deregisters it before it drops it; nothing replaces it in between.
        #[allow(unsafe_code)]
        let fd = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE)? };
        Ok(Self(fd))
    }

    /// Waits for it.
    pub async fn wait(&self) {
        // An error cannot come: nothing else reads it. It would count as the end of the process, so it must not.
        while self.0.readable().await.is_err() {
            tokio::task::yield_now().await;
        }
    }

    /// Ends the process; no other one can be meant.
    pub fn kill(&self) {
        let _ = rustix::process::pidfd_send_signal(self.0.get_ref(), Signal::KILL);
    }
}

/// A process.
#[derive(Debug, Clone, Copy)]
pub struct Process {
    pub pid: u32,
    pub parent: u32,
    pub session: u32,
    /// It was there by then: time since the machine's start, in steps of the kernel's ticks.
    pub started_by: Duration,
}

impl Process {
    /// Whether something that was asked for then, at the earliest, may have made it.
    fn may_come_of(&self, asked: Option<Duration>) -> bool {
        asked.is_some_and(|asked| asked < self.started_by)
    }
}

/// Time since the machine's start, its sleep included.
pub fn since_boot() -> Duration {
    Duration::from_nanos(Host::clock_ns())
}

/// All processes.
pub fn all() -> Vec<Process> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter_map(stat).collect()
}

/// One process; none: it has ended, and perhaps its status has not been taken yet.
pub fn stat(pid: u32) -> Option<Process> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything.
    let mut fields = text.rsplit_once(')')?.1.split_ascii_whitespace();
    if matches!(fields.next()?, "Z" | "X") {
        return None;
    }
    let parent = fields.next()?.parse().ok()?;
    let session = fields.nth(1)?.parse().ok()?;
    // The tick of its start may have begun before what it is compared with.
    let ticks = fields.nth(15)?.parse::<u64>().ok()?.saturating_add(1);
    let started_by = Duration::from_millis(ticks * 1000 / rustix::param::clock_ticks_per_second());
    Some(Process { pid, parent, session, started_by })
}

/// Children of a process.
pub fn children_of(parent: Pid) -> Vec<Pid> {
    let parent = parent.as_raw_nonzero().get().unsigned_abs();
    let children = all().into_iter().filter(|process| process.parent == parent);
    children.filter_map(|process| pid_of(process.pid)).collect()
}

/// The processes from this one up to the child of `ancestor`. None: it does not descend from there.
pub fn lineage(pid: u32, ancestor: u32) -> Option<Vec<u32>> {
    let mut lineage = Vec::new();
    let mut next = pid;
    while next != ancestor {
        lineage.push(next);
        next = stat(next)?.parent;
        if next <= 1 && ancestor != next {
            return None;
        }
    }
    Some(lineage)
}

/// Ends what an executor has left behind, and returns whether there was anything. `guardian` has adopted
/// them. `known` are the processes that the controller has started, other executors, and itself.
///
/// A process belongs to the executor if it is in its session or has its mark in its environment. One that belongs to
/// no known executor ends with the first one that ends. If it is younger than the first request for a process that is
/// open, it may be one that is not known yet, which has its own mark: it is looked at again. `all` processes were
/// read before what is known.
pub fn end_leftovers(
    all: &[Process],
    of: u32,
    guardian: u32,
    known: &HashSet<u32>,
    asked: Option<Duration>,
) -> bool {
    let mut theirs: HashSet<u32> = HashSet::new();
    let mut undecided = false;
    for process in all.iter().filter(|one| one.parent == guardian && !known.contains(&one.pid)) {
        let by_session = known.contains(&process.session) || process.session == of;
        let owner = by_session.then_some(process.session).or_else(|| mark(process.pid));
        if owner == Some(of) {
            theirs.insert(process.pid);
        } else if owner.is_none_or(|owner| !known.contains(&owner)) {
            match process.may_come_of(asked) {
                true => undecided = true,
                false => drop(theirs.insert(process.pid)),
            }
        }
    }
    // Their children, and what of its own family the executor itself has not taken along.
    loop {
        let found =
            all.iter().filter(|one| theirs.contains(&one.parent) && !known.contains(&one.pid));
        let more: Vec<u32> = found.map(|one| one.pid).filter(|pid| !theirs.contains(pid)).collect();
        if more.is_empty() {
            break;
        }
        theirs.extend(more);
    }
    for pid in theirs.iter().filter_map(|pid| pid_of(*pid)) {
        let _ = rustix::process::kill_process(pid, Signal::KILL);
    }
    undecided || !theirs.is_empty()
}

/// The executor that a process says it descends from.
fn mark(pid: u32) -> Option<u32> {
    let environment = std::fs::read(format!("/proc/{pid}/environ")).ok()?;
    let mut marks = environment.split(|byte| *byte == 0).filter_map(|one| {
        std::str::from_utf8(one).ok()?.strip_prefix(PROCESS)?.strip_prefix('=')?.parse().ok()
    });
    marks.next()
}

/// Bytes that a process holds in memory now.
pub fn resident_bytes(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let pages: u64 = text.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(pages * u64::try_from(rustix::param::page_size()).unwrap_or(4096))
}

/// How often the kernel has ended a process because memory was short, since it began.
pub fn oom_kills() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/vmstat").ok()?;
    text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.parse().ok())
}

/// This program, also if its file was replaced meanwhile.
///
/// # Errors
/// The system does not say where it is.
pub fn own_program() -> io::Result<PathBuf> {
    match cfg!(target_os = "linux") {
        true => Ok(PathBuf::from("/proc/self/exe")),
        false => std::env::current_exe(),
    }
}

fn pid_of(pid: u32) -> Option<Pid> {
    i32::try_from(pid).ok().and_then(Pid::from_raw)
}

#[cfg(test)]
mod tests;
