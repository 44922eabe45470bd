//! The private directory in which everything the injector starts lives, and its guard.
//!
//! Nothing of a run outlives the injector, however it ends. Each child gets the kernel's signal of
//! a parent's death. A warden, a small shell on a pipe that only the injector holds, ends the rest.
//! It kills each process with its working directory in here (a frozen server notices no death), and
//! removes the directory. It never touches a process whose working directory is elsewhere. A
//! developer's shell in this directory ends with the rest.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child as Shell, Command, Stdio};
use std::sync::Arc;

use anyhow::{Context, Result};
use rustix::process::Signal;
use tuskline_postgres::{Account, Binaries, die_with_parent, new_dir};

use super::process;
use super::tools::{Skipped, Tools};
use super::volume::Volume;

/// Waits for the injector's end, ends the processes in `$1` until none is left, and removes the
/// directory. It also removes the shared memory of postmasters that could not clean up. SIGQUIT
/// comes first, because a postmaster removes its own then. SIGCONT follows, because a frozen
/// process would not notice. The rounds are also for processes that start while the list is read.
const WARDEN: &str = r#"
trap '' INT TERM HUP QUIT
cat >/dev/null
rounds=0
while [ "$rounds" -lt 100 ]; do
    found=
    for cwd in /proc/[0-9]*/cwd; do
        case $(readlink "$cwd" 2>/dev/null) in
        "$1" | "$1"/*)
            pid=${cwd#/proc/} pid=${pid%/cwd} found=yes
            signal=QUIT
            [ "$rounds" -ge 30 ] && signal=KILL
            kill -s "$signal" "$pid" 2>/dev/null
            kill -s CONT "$pid" 2>/dev/null
            ;;
        esac
    done
    [ -n "$found" ] || break
    rounds=$((rounds + 1))
    sleep 0.1
done
for pid_file in "$1"/*/data/postmaster.pid; do
    segment=$(sed -n '7s/.* //p' "$pid_file" 2>/dev/null)
    [ -n "$segment" ] && ipcrm -m "$segment" 2>/dev/null
done
rm -rf -- "$1" || { sleep 1; rm -rf -- "$1"; }
"#;

/// A place for servers, volumes and poolers. Clones are the same place; it goes with the last one
/// and with the last server in it.
#[derive(Debug, Clone)]
pub struct Site(Arc<Ground>);

#[derive(Debug)]
struct Ground {
    root: PathBuf,
    account: Account,
    binaries: Binaries,
    tools: Tools,
    warden: Shell,
}

impl Site {
    /// A new place, with the binaries that Tuskline itself would take.
    ///
    /// # Errors
    /// When there are no binaries, no unprivileged account or no directory for it.
    pub fn new() -> Result<Self> {
        Self::with(Binaries::find()?)
    }

    /// A new place with these binaries.
    ///
    /// # Errors
    /// As [`Site::new`].
    pub fn with(binaries: Binaries) -> Result<Self> {
        let account = Account::for_new(rustix::process::getuid().as_raw())?;
        account.can_enter(&binaries.dir, "binaries")?;
        // Resolved, because the kernel shows working directories so.
        let root = new_dir(&account, false)?.canonicalize()?;
        let warden = post_warden(&root).inspect_err(|_| drop(std::fs::remove_dir(&root)))?;
        let tools = Tools::find(&binaries);
        Ok(Self(Arc::new(Ground { root, account, binaries, tools, warden })))
    }

    /// The same place for binaries that lack pg_basebackup.
    #[cfg(test)]
    pub(super) fn without_base_backup(mut self) -> Self {
        Arc::get_mut(&mut self.0).expect("nothing is in it yet").tools.pg_basebackup = None;
        self
    }

    /// The directory.
    pub fn root(&self) -> &Path {
        &self.0.root
    }

    /// The account that everything runs under.
    pub fn account(&self) -> &Account {
        &self.0.account
    }

    /// PostgreSQL's binaries.
    pub fn binaries(&self) -> &Binaries {
        &self.0.binaries
    }

    /// The programs found.
    pub fn tools(&self) -> &Tools {
        &self.0.tools
    }

    /// The faults that this machine does not allow for want of a program. Rights are found out by
    /// trying: see [`Volume::mount`].
    pub fn skipped(&self) -> Vec<Skipped> {
        self.0.tools.skipped()
    }

    /// Makes a directory in here that only the account can enter.
    pub(super) fn private_dir(&self, name: impl AsRef<Path>) -> Result<PathBuf> {
        use std::os::unix::fs::DirBuilderExt as _;

        let dir = self.root().join(name);
        let made = std::fs::DirBuilder::new().mode(0o700).create(&dir);
        made.with_context(|| format!("cannot make {}", dir.display()))?;
        self.account().own(&dir)?;
        Ok(dir)
    }

    /// A command under the account that dies with us; it sees `volume` when there is one.
    pub(super) fn command(&self, program: &Path, volume: Option<&Volume>) -> Result<Command> {
        let mut command = match volume {
            Some(volume) => volume.command(self, program)?,
            None => self.account().command(program),
        };
        // The warden knows our processes by it. postgres moves on into its data directory.
        command.current_dir(self.root());
        // Not SIGKILL: a postmaster would leave its shared memory behind.
        die_with_parent(&mut command, Signal::QUIT);
        Ok(command)
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        process::kill_all(&self.root);
        drop(self.warden.stdin.take());
        let _ = self.warden.wait();
    }
}

fn post_warden(root: &Path) -> Result<Shell> {
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", WARDEN, "fault-warden"]).arg(root).current_dir("/").process_group(0);
    // A held stdout would keep a pipe open behind us.
    shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    shell.spawn().context("cannot run /bin/sh")
}
