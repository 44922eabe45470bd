//! Directories that go with the process, and the warden that sees to it.
//!
//! A test suite keeps its cluster in a static, which is never dropped, and any process can be
//! killed. So a small shell waits on a pipe that only this process holds: when the pipe closes, it
//! waits for the server's end and removes the directory. Where the kernel has no parent's death
//! signal it also stops the server.

use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::Error;
use super::account::Account;

/// Where Linux keeps files in memory.
const MEMORY: &str = "/dev/shm";

/// Removes `$1` when `$2` is `remove`; waits at most 20 s for the server whose number is in the
/// pid file `$3`, after stopping it when `$4` is `stop`.
const WARDEN: &str = r#"
trap '' INT TERM HUP QUIT
cat >/dev/null
pid=$(sed -n 1p "$3" 2>/dev/null)
if [ -n "$pid" ]; then
    [ "$4" = stop ] && kill -INT "$pid" 2>/dev/null
    tenths=0
    while kill -0 "$pid" 2>/dev/null && [ "$tenths" -lt 200 ]; do
        sleep 0.1
        tenths=$((tenths + 1))
    done
fi
[ "$2" = remove ] || exit 0
# Once more when an initdb was just ending in it.
rm -rf -- "$1" || { sleep 1; rm -rf -- "$1"; }
"#;

/// Act of the warden on the directory at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AtTheEnd {
    Keep,
    Remove,
}

/// A shell that outlives this process by a moment.
#[derive(Debug)]
pub(super) struct Warden(Child);

impl Warden {
    /// Posts a warden over `dir`, or none where there is nothing for it to do.
    pub fn post(dir: &Path, pid_file: &Path, at_the_end: AtTheEnd) -> Result<Option<Self>, Error> {
        let kernel_stops = cfg!(any(target_os = "linux", target_os = "android"));
        if kernel_stops && at_the_end == AtTheEnd::Keep {
            return Ok(None);
        }
        let shell = Path::new("/bin/sh");
        let mut command = Command::new(shell);
        command.args(["-c", WARDEN, "tuskline-warden"]).arg(dir);
        command.arg(if at_the_end == AtTheEnd::Remove { "remove" } else { "keep" });
        command.arg(pid_file).arg(if kernel_stops { "wait" } else { "stop" });
        // A held stdout would keep `cargo test | less` open, and Ctrl-C is not meant for it.
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        command.current_dir("/").process_group(0);
        Ok(Some(Self(command.spawn().map_err(Error::io("run", shell))?)))
    }
}

impl Drop for Warden {
    /// Lets the warden do its last duty; the server has stopped by now, so that is a moment.
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// Makes a directory that no other process has, which the account can enter: below `TMPDIR`; without
/// it in memory where that is wanted and there is plenty, else below `/tmp`.
///
/// # Errors
/// [`Error::Io`].
pub fn new_dir(account: &Account, in_memory: bool) -> Result<PathBuf, Error> {
    let mut parent = match in_memory && std::env::var_os("TMPDIR").is_none() && has_memory() {
        true => PathBuf::from(MEMORY),
        false => std::env::temp_dir(),
    };
    if account.can_enter(&parent, "TMPDIR").is_err() {
        parent = PathBuf::from("/tmp");
    }
    let mode = if account.switch { 0o755 } else { 0o700 };
    loop {
        let dir = parent.join(format!("tuskline-{:08x}", fastrand::u32(..)));
        match std::fs::DirBuilder::new().mode(mode).create(&dir) {
            Ok(()) => return Ok(dir),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(Error::io("make", &dir)(error)),
        }
    }
}

/// Whether a cluster of some hundred MiB may lie in memory. The suite `it` takes 170 s there and 310 s
/// on ext4, which looks for a free inode among all that were deleted lately.
fn has_memory() -> bool {
    let free = rustix::fs::statvfs(MEMORY).map_or(0, |shm| shm.f_bavail * shm.f_frsize);
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let available = memory.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = available.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    free >= 2 << 30 && kib.is_some_and(|kib| kib >= 4 << 20)
}
