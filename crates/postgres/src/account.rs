//! The account a server runs under.
//!
//! PostgreSQL refuses to run as root. A root process therefore runs it as the owner of the data
//! directory, else as `postgres`, else as `nobody`, by changing the child's user between fork and
//! exec: no su, no sudo, and no account is ever made. Every other account runs it as itself.

use std::fs::Metadata;
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use super::Error;
use super::data_dir::DataDir;

/// A user and group of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// The number of the user.
    pub uid: u32,
    /// The number of the group.
    pub gid: u32,
    /// The name of the user.
    pub name: String,
    /// Whether a child must change to it because we are root.
    pub switch: bool,
}

impl Account {
    /// The account for the cluster in `data_dir`, seen from the user `caller`.
    pub(super) fn choose(data_dir: &DataDir, caller: u32) -> Result<Self, Error> {
        let owned = data_dir.owned();
        if caller != 0 {
            return Self::of_user(owned, caller);
        }
        if let Some((path, owner)) = owned {
            let is_cluster = path != data_dir.root();
            match owner.uid() {
                0 if is_cluster => return Err(Error::OwnedByRoot { path }),
                0 => {}
                uid => return Ok(Self::new(uid, owner.gid(), true)),
            }
        }
        Self::for_new(caller)
    }

    /// The account for a cluster that does not exist yet, seen from the user `caller`.
    ///
    /// # Errors
    /// [`Error::NoAccount`].
    pub fn for_new(caller: u32) -> Result<Self, Error> {
        if caller != 0 {
            return Self::of_user(None, caller);
        }
        let known = ["postgres", "nobody"].into_iter().find_map(Self::named);
        known.ok_or(Error::NoAccount)
    }

    fn of_user(owned: Option<(std::path::PathBuf, Metadata)>, caller: u32) -> Result<Self, Error> {
        let us = Self::new(caller, rustix::process::getgid().as_raw(), false);
        match owned {
            Some((path, owner)) if owner.uid() != caller => {
                let owner = Self::new(owner.uid(), owner.gid(), false).name;
                Err(Error::ForeignOwner { path, owner, us: us.name })
            }
            _ => Ok(us),
        }
    }

    fn new(uid: u32, gid: u32, switch: bool) -> Self {
        let name = id(&["-un", &uid.to_string()]).unwrap_or_else(|| format!("uid {uid}"));
        Self { uid, gid, name, switch }
    }

    fn named(name: &str) -> Option<Self> {
        let number = |flag| id(&[flag, name])?.parse().ok();
        let (uid, gid) = (number("-u")?, number("-g")?);
        Some(Self { uid, gid, name: name.to_owned(), switch: true })
    }

    /// A command that runs as this account, with an environment of its own: a variable such as
    /// `PGDATA` or a German locale of the caller must not reach the server.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env_clear().env("LC_ALL", "C").env("HOME", "/").env("PATH", "/usr/bin:/bin");
        for kept in ["TZ", "LD_LIBRARY_PATH"] {
            command.envs(std::env::var_os(kept).map(|value| (kept, value)));
        }
        // The caller's directory may be closed to the account. The group of its own keeps the
        // terminal's Ctrl-C from the server: its parent stops it, after the work that needs it.
        command.current_dir("/").process_group(0).stdin(std::process::Stdio::null());
        if self.switch {
            // std also empties the supplementary groups, since we are root and set a user.
            command.uid(self.uid).gid(self.gid);
        }
        command
    }

    /// Gives a path to the account.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn own(&self, path: &Path) -> Result<(), Error> {
        if !self.switch {
            return Ok(());
        }
        chown(path, Some(self.uid), Some(self.gid)).map_err(Error::io("change the owner of", path))
    }

    /// Checks that the account can enter `dir` and every directory above it.
    ///
    /// # Errors
    /// [`Error::OutOfReach`] with the first closed directory. `what` names what lies in `dir`.
    pub fn can_enter(&self, dir: &Path, what: &'static str) -> Result<(), Error> {
        if !self.switch {
            return Ok(());
        }
        let dir = dir.canonicalize().map_err(Error::io("find", dir))?;
        let mut above: Vec<&Path> = dir.ancestors().collect();
        above.reverse();
        for closed in above {
            let metadata = closed.metadata().map_err(Error::io("look at", closed))?;
            if !self.may_execute(&metadata) {
                let (account, closed) = (self.name.clone(), closed.to_path_buf());
                return Err(Error::OutOfReach { account, closed, what });
            }
        }
        Ok(())
    }

    fn may_execute(&self, metadata: &Metadata) -> bool {
        let bit = match () {
            () if metadata.uid() == self.uid => 0o100,
            () if metadata.gid() == self.gid => 0o010,
            () => 0o001,
        };
        metadata.mode() & bit != 0
    }
}

/// Asks id(1), which knows every source of accounts the machine has.
fn id(arguments: &[&str]) -> Option<String> {
    let output = Command::new("id").args(arguments).output().ok()?;
    let answer = String::from_utf8(output.stdout).ok()?;
    Some(answer.trim().to_owned()).filter(|line| output.status.success() && !line.is_empty())
}
