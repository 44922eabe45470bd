//! A private PostgreSQL: a server of our own, for people who have none at hand and for tests.
//!
//! It finds PostgreSQL binaries, makes a cluster in a directory, runs `postgres` on it
//! as a child, and hands out the addresses under which it answers.
//!
//! Promises: a cluster is made completely or not at all; the server is ready when
//! [`Cluster::start`] returns; it dies with its parent, even one killed with `SIGKILL` (Linux by
//! `PR_SET_PDEATHSIG`, elsewhere by a warden on a pipe); a second start on the same directory
//! attaches to the running server; durability is on unless a throw-away cluster was asked for.
//!
//! Must never: migrate a data directory of another major, stop a server it did not
//! start, listen on a network interface other than loopback, or create accounts of the system.

mod account;
mod address;
mod binaries;
mod cluster;
mod data_dir;
mod databases;
mod error;
mod init;
mod launch;
mod server;
mod temporary;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

pub use account::Account;
pub use binaries::{Binaries, OLDEST_MAJOR};
pub use cluster::Cluster;
pub use databases::drop_database;
pub use error::Error;
pub use server::{Server as Child, Stop, die_with_parent, last_complaint};
pub use temporary::new_dir;

/// The superuser of a private cluster, and the user of every address it hands out unless the cluster is
/// [`owned`](Cluster::owned).
pub const SUPERUSER: &str = "tuskline";

/// The ordinary role of a cluster that is [`owned`](Cluster::owned): the owner of Tuskline's schema.
pub const OWNER: &str = "tuskline_owner";

/// Promise of a cluster about committed data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// Survives a crash of the machine: `fsync` and `full_page_writes` are on.
    Durable,
    /// Survives a crash of the server, not of the machine: `fsync`, `full_page_writes` and
    /// `synchronous_commit` are off. For tests.
    ThrowAway,
}

/// How to run a cluster.
#[derive(Debug, Clone)]
pub struct Options {
    /// Tuskline's directory; made when missing. The cluster is its subdirectory `data`, beside
    /// `server.log`, `lock`, `run` (the socket) and `tcp_password`. A directory that is itself a
    /// PostgreSQL data directory (it holds `PG_VERSION`) is used as the cluster.
    pub data_dir: PathBuf,
    /// Failures that committed data survives.
    pub durability: Durability,
    /// Also listen on this port of 127.0.0.1, with a generated password; `None` is no TCP at all.
    pub tcp_port: Option<u16>,
    /// Server settings for this run, name and value; they win over our own.
    pub settings: Vec<(String, String)>,
}

impl Options {
    /// A durable cluster in `data_dir`, reached through its socket only.
    pub fn durable(data_dir: impl Into<PathBuf>) -> Self {
        let data_dir = data_dir.into();
        Self { data_dir, durability: Durability::Durable, tcp_port: None, settings: Vec::new() }
    }

    /// A cluster in `data_dir` that trades the machine's crash for speed.
    pub fn throw_away(data_dir: impl Into<PathBuf>) -> Self {
        Self { durability: Durability::ThrowAway, ..Self::durable(data_dir) }
    }
}

/// The variable that names the data directory.
const DATA_DIR: &str = "TUSKLINE_DATA_DIR";

/// Where the cluster lives unless the caller chooses: the directory in `TUSKLINE_DATA_DIR`, else
/// `$XDG_DATA_HOME/tuskline` or `~/.local/share/tuskline`; for root `/var/lib/tuskline`, because the
/// account that runs the server cannot read below `/root`. Falls back to `/tmp/tuskline-<uid>`.
pub fn default_data_dir() -> PathBuf {
    if let Some(chosen) = std::env::var_os(DATA_DIR).filter(|value| !value.is_empty()) {
        return PathBuf::from(chosen);
    }
    let uid = rustix::process::getuid();
    if uid.is_root() {
        let root_default = Path::new("/var/lib");
        if root_default.is_dir() && !read_only(root_default) {
            return root_default.join("tuskline");
        }
    } else if let Some(data_home) = user_dir("XDG_DATA_HOME", ".local/share") {
        return data_home.join("tuskline");
    }
    PathBuf::from(format!("/tmp/tuskline-{}", uid.as_raw()))
}

/// An XDG base directory: the variable when it holds an absolute path, else the place below HOME.
fn user_dir(variable: &str, below_home: &str) -> Option<PathBuf> {
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    absolute(variable).or_else(|| absolute("HOME").map(|home| home.join(below_home)))
}

fn read_only(dir: &Path) -> bool {
    rustix::fs::access(dir, rustix::fs::Access::WRITE_OK).is_err()
}
