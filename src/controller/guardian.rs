//! The guardian: the parent of the controller, the zygote and the executors. It has one thread and no connection.
//!
//! It promises:
//! - No executor runs past the time until which the controller's worker holds its leases (T and a third of M
//!   after the last acknowledged heartbeat was sent), whatever the controller does: frozen, paging, killed.
//! - When the controller ends, everything below the guardian is ended: executors, and what their lambdas have
//!   started, also if that has left their session (it is a subreaper).
//! - When the guardian ends, its direct children are killed by the kernel (`PR_SET_PDEATHSIG`). That signal is
//!   sent when the *thread* that forked ends, so the guardian never has another.
//!
//! It must never wait for anything but time and its children. So it writes no log: a full pipe would hold it up.

use std::fs::DirBuilder;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::net::{RecvFlags, recv};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus};
use tokio::signal::unix::{SignalKind, signal};
use tuskline_sdk::Host;

use super::environment::{DIRECTORY, GUARDIAN, START};
use super::link::{Ended, FromController, FromGuardian};
use super::process;

/// Between two looks at the clock. Tokio's timers stand still while the machine sleeps, this clock does not.
const LOOK: Duration = Duration::from_millis(50);
/// How long processes that were killed may take to end, before the guardian ends without them.
const END: Duration = Duration::from_secs(10);

/// Runs the controller as a child, and the executors that it asks for, until the controller has ended.
///
/// # Errors
/// The process cannot become a subreaper, or the controller cannot be started.
pub fn run() -> io::Result<u8> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async { Guardian::start()?.watch().await })
}

struct Guardian {
    controller: Pid,
    link: tokio::net::UnixStream,
    /// Messages that the controller has not read yet.
    unsent: Vec<u8>,
    /// Executors may run until then.
    until_ns: Option<u64>,
    /// They have run past it, and are being ended.
    overdue: bool,
    /// The controller was warned to end.
    warned: bool,
    /// Its own, so that it is removed however the controller ends.
    _directory: Directory,
}

/// The directory of the sockets, for this user alone.
struct Directory(PathBuf);

impl Directory {
    fn new() -> io::Result<Self> {
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        let parent = runtime.filter(|at| at.is_dir()).unwrap_or_else(std::env::temp_dir);
        let path = parent.join(format!("tuskline-{}", std::process::id()));
        match DirBuilder::new().mode(0o700).create(&path) {
            Ok(()) => Ok(Self(path)),
            Err(error) => {
                let place = path.display();
                let text = format!(
                    "cannot make {place} for the sockets: {error}; set XDG_RUNTIME_DIR or TMPDIR"
                );
                Err(io::Error::new(error.kind(), text))
            }
        }
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Guardian {
    fn start() -> io::Result<Self> {
        #[cfg(target_os = "linux")]
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
        let directory = Directory::new()?;
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let mut arguments = std::env::args_os();
        let mut command = Command::new(process::own_program()?);
        if let Some(name) = arguments.next() {
            command.arg0(name);
        }
        command.args(arguments).stdin(Stdio::from(OwnedFd::from(theirs)));
        command.env(GUARDIAN, std::process::id().to_string()).env(DIRECTORY, &directory.0);
        let controller = pid_of(&command.spawn()?);
        let link = tokio::net::UnixStream::from_std(ours)?;
        Ok(Self {
            controller,
            link,
            unsent: Vec::new(),
            until_ns: None,
            overdue: false,
            warned: false,
            _directory: directory,
        })
    }

    async fn watch(mut self) -> io::Result<u8> {
        let mut ended = signal(SignalKind::child())?;
        let (mut term, mut int) =
            (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        let mut hangup = signal(SignalKind::hangup())?;
        let mut read = Vec::new();
        loop {
            if let Some(code) = self.reap() {
                self.end_all().await;
                return Ok(code);
            }
            self.end_overdue(&mut read);
            self.flush();
            tokio::select! {
                _ = ended.recv() => {}
                _ = term.recv() => self.tell_to_end(),
                _ = int.recv() => self.tell_to_end(),
                _ = hangup.recv() => self.tell_to_end(),
                () = tokio::time::sleep(self.pause()) => {}
                readable = self.link.readable() => {
                    readable?;
                    self.read(&mut read);
                }
            }
        }
    }

    fn pause(&self) -> Duration {
        let left = self.until_ns.map(|until| until.saturating_sub(Host::clock_ns()));
        left.map_or(LOOK, |left| LOOK.min(Duration::from_nanos(left)))
    }

    /// Kills executors whose time is over. Their controller stands still, or it would have ended them.
    fn end_overdue(&mut self, read: &mut Vec<u8>) {
        #[cfg(mutants)]
        if super::fault_injection::is("no_guardian") {
            return;
        }
        if self.is_over() {
            // Where this process stood still itself, its controller has said more meanwhile.
            self.read_all(read);
        }
        if self.is_over() {
            self.until_ns = None;
            self.overdue = true;
        }
        // Again and again: what they leave behind become children.
        if self.overdue {
            kill_children(Some(self.controller));
        }
    }

    fn is_over(&self) -> bool {
        self.until_ns.is_some_and(|until| Host::clock_ns() >= until)
    }

    /// The first time the controller drains; the second time everything is ended.
    fn tell_to_end(&mut self) {
        let signal = if self.warned { Signal::KILL } else { Signal::TERM };
        self.warned = true;
        let _ = rustix::process::kill_process(self.controller, signal);
    }

    fn read(&mut self, read: &mut Vec<u8>) {
        let mut buffer = [0; 16 * 1024];
        match self.link.try_read(&mut buffer) {
            // The controller is about to end; its status says more.
            Ok(0) => {}
            Ok(n) => read.extend_from_slice(&buffer[..n]),
            Err(_) => return,
        }
        self.obey(read);
    }

    /// Asks the kernel: the runtime may not have heard yet that there is something to read.
    fn read_all(&mut self, read: &mut Vec<u8>) {
        let mut buffer = [0; 16 * 1024];
        while let Ok((1.., n)) = recv(&self.link, &mut buffer, RecvFlags::DONTWAIT) {
            read.extend_from_slice(&buffer[..n]);
        }
        self.obey(read);
    }

    /// Does what the lines say.
    fn obey(&mut self, read: &mut Vec<u8>) {
        while let Some(end) = read.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = read.drain(..=end).collect();
            match serde_json::from_slice(&line) {
                Ok(FromController::Until(until)) => {
                    self.until_ns = until;
                    self.overdue = false;
                }
                Ok(FromController::Spawn { number, command, environment }) => {
                    #[cfg(not(mutants))]
                    let spawned = spawn(&command, &environment);
                    #[cfg(mutants)]
                    let spawned = mutant::spawn(command, environment);
                    self.say(&match spawned {
                        Ok(child) => FromGuardian::Spawned { number, pid: child.id() },
                        Err(error) => FromGuardian::NotSpawned { number, error: error.to_string() },
                    });
                }
                // It is of this same program.
                Err(_) => {}
            }
        }
    }

    /// Takes the status of each child that has ended. Returns that of the controller.
    fn reap(&mut self) -> Option<u8> {
        while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
            if pid == self.controller {
                return Some(code_of(status));
            }
            let pid = pid.as_raw_nonzero().get().unsigned_abs();
            let how = Ended { signal: status.terminating_signal(), code: status.exit_status() };
            self.say(&FromGuardian::Ended { pid, how });
        }
        None
    }

    fn say(&mut self, message: &FromGuardian) {
        // Serialising numbers and texts cannot fail.
        self.unsent.extend(serde_json::to_vec(message).unwrap_or_default());
        self.unsent.push(b'\n');
        self.flush();
    }

    fn flush(&mut self) {
        while !self.unsent.is_empty() {
            match self.link.try_write(&self.unsent) {
                Ok(n) => drop(self.unsent.drain(..n)),
                Err(_) => return,
            }
        }
    }

    /// Ends all that is left: the children, and those that they leave behind, which become children.
    async fn end_all(&mut self) {
        let began = std::time::Instant::now();
        loop {
            kill_children(None);
            loop {
                match rustix::process::wait(WaitOptions::NOHANG) {
                    Ok(Some(_)) => {}
                    Ok(None) => break,
                    // No child is left.
                    Err(_) => return,
                }
            }
            if began.elapsed() > END {
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

fn kill_children(but: Option<Pid>) {
    for child in process::children_of(rustix::process::getpid()) {
        if Some(child) != but {
            let _ = rustix::process::kill_process(child, Signal::KILL);
        }
    }
}

/// Starts a command of the controller, by way of `start`.
fn spawn(command: &[String], environment: &[(String, String)]) -> io::Result<Child> {
    Command::new(process::own_program()?)
        .arg(START)
        .arg("--")
        .args(command)
        .env(GUARDIAN, std::process::id().to_string())
        .envs(environment.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .spawn()
}

fn pid_of(child: &Child) -> Pid {
    Pid::from_child(child)
}

fn code_of(status: WaitStatus) -> u8 {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => u8::try_from(code).unwrap_or(1),
        (None, Some(signal)) => u8::try_from(128 + signal).unwrap_or(1),
        (None, None) => 1,
    }
}

/// A flaw, in no ordinary build: executors are started by a thread that ends, which the kernel takes for the end of
/// their parent.
#[cfg(mutants)]
mod mutant {
    use std::io;
    use std::process::Child;
    use std::time::Duration;

    pub(super) fn spawn(
        command: Vec<String>,
        environment: Vec<(String, String)>,
    ) -> io::Result<Child> {
        if !super::super::fault_injection::is("pdeathsig_of_a_thread") {
            return super::spawn(&command, &environment);
        }
        let (tell, spawned) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let _ = tell.send(super::spawn(&command, &environment));
            // So long that the child has asked for the signal by then.
            std::thread::sleep(Duration::from_millis(700));
        });
        spawned.recv().map_err(io::Error::other)?
    }
}
