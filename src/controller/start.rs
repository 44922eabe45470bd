//! The first steps of a process below the guardian, before it becomes the command: it dies with the guardian,
//! has a session of its own, writes to the controller's log, and is the first that the kernel ends where memory
//! is short.

use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use rustix::process::Signal;

use super::environment::{GUARDIAN, OUTPUT, PROCESS};

/// Before PostgreSQL and the controller, after nothing else.
const OOM_SCORE: &str = "700";

/// Becomes the command. Returns only if that fails.
pub fn become_executor(command: &[OsString]) -> ExitCode {
    let error = match arm() {
        Ok(()) => exec(command),
        Err(error) => error,
    };
    eprintln!(
        "tuskline: cannot start {}: {error}",
        command.first().map_or_else(String::new, |name| name.display().to_string())
    );
    ExitCode::from(2)
}

/// Ties this process to its guardian, and gives it a session of its own: Ctrl-C on the terminal is the
/// guardian's to hear.
///
/// # Errors
/// The guardian has ended.
pub fn arm() -> io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        let parent = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get().to_string());
        // It may have ended before the line above.
        if std::env::var(GUARDIAN).ok() != parent {
            return Err(io::Error::other("its guardian has ended"));
        }
    }
    // A leader of a session has one already.
    let _ = rustix::process::setsid();
    Ok(())
}

fn exec(command: &[OsString]) -> io::Error {
    // An ordinary user may raise it.
    let _ = std::fs::write("/proc/self/oom_score_adj", OOM_SCORE);
    if let Some(log) = std::env::var_os(OUTPUT) {
        match UnixStream::connect(log) {
            Ok(log) => {
                let _ = rustix::stdio::dup2_stdout(log.as_fd());
                let _ = rustix::stdio::dup2_stderr(log.as_fd());
            }
            Err(error) => return error,
        }
    }
    let Some((program, arguments)) = command.split_first() else {
        return io::Error::other("no command");
    };
    Command::new(program).args(arguments).env(PROCESS, std::process::id().to_string()).exec()
}
