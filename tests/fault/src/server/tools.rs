//! The programs of this machine that some faults need.
//!
//! A missing one never fails a run silently: it becomes a [`Skipped`], which the injector prints.

use std::fmt;
use std::path::{Path, PathBuf};

use tuskline_postgres::Binaries;

/// Directories beside `PATH` for programs that packages keep from ordinary users.
const MORE_PLACES: [&str; 4] = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"];

/// The file names of libfaketime for programs with more than one thread or process.
const FAKETIME: [&str; 2] = ["libfaketimeMT.so.1", "faketime/libfaketimeMT.so.1"];

/// A fault, or a way to inject it, that this machine does not allow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped {
    /// The fault or the way.
    pub what: &'static str,
    /// Why not, and what would help.
    pub why: String,
}

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SKIPPED: {}: {}", self.what, self.why)
    }
}

/// The programs found.
#[derive(Debug, Clone, Default)]
pub struct Tools {
    /// The library that fakes the wall clock.
    pub faketime: Option<PathBuf>,
    /// The pooler.
    pub pgbouncer: Option<PathBuf>,
    /// Copies a running primary; it belongs to the server's binaries.
    pub pg_basebackup: Option<PathBuf>,
    /// Three programs of util-linux, for volumes.
    pub unshare: Option<PathBuf>,
    /// As above.
    pub nsenter: Option<PathBuf>,
    /// As above.
    pub setpriv: Option<PathBuf>,
}

impl Tools {
    /// Looks for everything; runs nothing.
    pub fn find(binaries: &Binaries) -> Self {
        let beside = binaries.program("pg_basebackup");
        Self {
            faketime: faketime(),
            pgbouncer: program("pgbouncer"),
            pg_basebackup: Some(beside).filter(|path| path.is_file()),
            unshare: program("unshare"),
            nsenter: program("nsenter"),
            setpriv: program("setpriv"),
        }
    }

    /// The faults that a run must omit. A missing pg_basebackup is not among them: the injector
    /// copies a standby itself then.
    pub fn skipped(&self) -> Vec<Skipped> {
        let mut skipped = Vec::new();
        let mut need = |found: &Option<PathBuf>, what, name: &str| {
            if found.is_none() {
                skipped.push(Skipped { what, why: format!("{name} is not installed") });
            }
        };
        need(&self.faketime, "steps of the database's clock", "libfaketime");
        need(&self.pgbouncer, "the pooler", "pgbouncer");
        need(&self.unshare, "full disks", "unshare(1) of util-linux");
        need(&self.nsenter, "full disks", "nsenter(1) of util-linux");
        need(&self.setpriv, "full disks", "setpriv(1) of util-linux");
        skipped
    }
}

/// Where a program is.
fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).chain(MORE_PLACES.map(PathBuf::from));
    places.filter(|dir| dir.is_absolute()).map(|dir| dir.join(name)).find(|path| path.is_file())
}

/// Debian has it below the directory of the machine's triplet; other systems have it below lib or
/// lib64.
fn faketime() -> Option<PathBuf> {
    let libraries = ["/usr/lib", "/usr/lib64", "/usr/local/lib"].map(PathBuf::from);
    let below = |dir: &Path| std::fs::read_dir(dir).into_iter().flatten().flatten();
    let triplets = below(Path::new("/usr/lib")).map(|entry| entry.path());
    let dirs = libraries.into_iter().chain(triplets);
    dirs.flat_map(|dir| FAKETIME.map(|name| dir.join(name))).find(|path| path.is_file())
}
