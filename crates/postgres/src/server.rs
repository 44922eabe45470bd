//! One running `postgres` process, from spawn to its end.
//!
//! It promises that the process ends when this process ends, however that comes about, and that a
//! signal never reaches another process: the child is reaped under the lock that signals take.

use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::process::{Child, Command};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use super::Error;

/// How much of a log's end is read for the line that explains a failure, in bytes.
const LOG_TAIL_BYTES: u64 = 64 * 1024;

/// How a server is told to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// SIGTERM: wait for every client to leave, 60 s at most; then it is an error.
    Smart,
    /// SIGINT: end the clients, write a checkpoint; after 60 s as [`Stop::Immediate`].
    Fast,
    /// SIGQUIT: end at once, as in a crash; the next start recovers. After 10 s SIGKILL.
    Immediate,
}

impl Stop {
    /// The signals to send, and how long to wait after each.
    pub fn steps(self) -> Vec<(Signal, Duration)> {
        let immediate =
            [(Signal::QUIT, Duration::from_secs(10)), (Signal::KILL, Duration::from_secs(10))];
        let patient = Duration::from_secs(60);
        match self {
            Self::Smart => vec![(Signal::TERM, patient)],
            Self::Fast => [(Signal::INT, patient)].into_iter().chain(immediate).collect(),
            Self::Immediate => immediate.to_vec(),
        }
    }
}

/// A `postgres` process of ours, or another that has to end with us.
#[derive(Debug)]
pub struct Server {
    pid: Pid,
    end: Arc<End>,
}

/// Whether the process has been reaped; after that its number may be another's.
#[derive(Debug, Default)]
struct End {
    reaped: Mutex<bool>,
    changed: Condvar,
}

impl End {
    fn reaped(&self) -> MutexGuard<'_, bool> {
        self.reaped.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Server {
    /// Spawns the command from a thread that lives as long as the child: Linux sends the parent's
    /// death signal when the *thread* that forked ends.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn spawn(mut command: Command) -> Result<Self, Error> {
        let program = Path::new(command.get_program()).to_path_buf();
        let end = Arc::new(End::default());
        let (report, spawned) = sync_channel(1);
        let theirs = Arc::clone(&end);
        std::thread::Builder::new()
            .name("tuskline-postgres".to_owned())
            .spawn(move || match command.spawn() {
                Ok(child) => {
                    let _ = report.send(Ok(pid_of(&child)));
                    wait_and_reap(child, &theirs);
                }
                Err(error) => {
                    let _ = report.send(Err(error));
                }
            })
            .map_err(Error::io("start a thread for", &program))?;
        // The wait for fork and exec is a few milliseconds.
        let pid = spawned
            .recv()
            .map_err(std::io::Error::other)
            .and_then(|result| result)
            .map_err(Error::io("run", &program))?;
        Ok(Self { pid, end })
    }

    /// The number of the process; another process may have it once this one has ended.
    pub fn pid(&self) -> u32 {
        self.pid.as_raw_pid().unsigned_abs()
    }

    /// Whether it has not ended yet.
    pub fn running(&self) -> bool {
        !*self.end.reaped()
    }

    /// Sends a signal, unless the process has ended.
    pub fn signal(&self, signal: Signal) {
        let reaped = self.end.reaped();
        if !*reaped {
            // It can only fail when the process is a zombie by now, which is what we want.
            let _ = kill_process(self.pid, signal);
        }
    }

    /// Blocks until the process has ended or the limit has passed; says whether it has ended.
    pub fn wait(&self, limit: Duration) -> bool {
        let waited = self.end.changed.wait_timeout_while(self.end.reaped(), limit, |r| !*r);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Sends each signal in turn until the process ends; says whether it did. Blocks.
    pub fn stop(&self, steps: &[(Signal, Duration)]) -> bool {
        steps.iter().any(|(signal, limit)| {
            self.signal(*signal);
            self.wait(*limit)
        })
    }

    /// The same process for another thread.
    #[must_use]
    pub fn share(&self) -> Self {
        Self { pid: self.pid, end: Arc::clone(&self.end) }
    }
}

fn pid_of(child: &Child) -> Pid {
    Pid::from_child(child)
}

fn wait_and_reap(mut child: Child, end: &End) {
    let pid = WaitId::Pid(pid_of(&child));
    // NOWAIT leaves a zombie that keeps the number ours until the lock is held.
    while let Err(rustix::io::Errno::INTR) =
        waitid(pid.clone(), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)
    {}
    let mut reaped = end.reaped();
    let _ = child.wait();
    *reaped = true;
    end.changed.notify_all();
}

/// Makes the command's process get `signal` when its parent dies.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub fn die_with_parent(command: &mut Command, signal: Signal) {
    use std::os::unix::process::CommandExt as _;

    let parent = rustix::process::getpid();
    let arm = move || {
        // After the change of user, which std does first: that change would clear the signal.
        rustix::process::set_parent_process_death_signal(Some(signal))?;
        // The parent may have died between fork and the line above.
        if rustix::process::getppid() == Some(parent) {
            Ok(())
        } else {
            Err(rustix::io::Errno::CHILD.into())
        }
    };
    // SAFETY: between fork and exec only async-signal-safe calls are allowed. The closure makes two
    // system calls, prctl and getppid, builds its error from a number, and neither allocates nor
    // takes a lock; all it captured are two integers.
    #[allow(unsafe_code)]
    unsafe {
        command.pre_exec(arm);
    }
}

/// Elsewhere the warden of [`temporary`](super::temporary) stops the server.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub fn die_with_parent(_command: &mut Command, _signal: Signal) {}

/// The line of a log that says why the server ended: the last FATAL or PANIC after `from` bytes,
/// else the last line.
pub fn last_complaint(log: &Path, from: u64) -> String {
    let read_tail = || -> std::io::Result<String> {
        let mut file = std::fs::File::open(log)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(from.max(length.saturating_sub(LOG_TAIL_BYTES))))?;
        let mut bytes = Vec::new();
        file.take(LOG_TAIL_BYTES).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    complaint_in(&read_tail().unwrap_or_default())
}

/// The most telling line of a program's output.
pub(super) fn complaint_in(output: &str) -> String {
    let marks = ["FATAL:", "PANIC:", "error:"];
    let telling = |line: &&str| marks.iter().any(|mark| line.contains(mark));
    // Our own attempts to connect leave "the database system is starting up" behind.
    let ours = |line: &&str| line.contains("the database system is ");
    let lines =
        || output.lines().rev().map(str::trim).filter(|line| !line.is_empty() && !ours(line));
    match lines().find(telling).or_else(|| lines().next()) {
        Some(line) => line.to_owned(),
        None => "it said nothing".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_telling_line_of_a_log_is_found() {
        let log =
            "LOG: a\nFATAL:  no space\nFATAL:  the database system is starting up\nLOG:  end\n";
        assert_eq!(complaint_in(log), "FATAL:  no space");
        assert_eq!(complaint_in("a\nb\n\n"), "b");
        assert_eq!(complaint_in(""), "it said nothing");
    }
}
