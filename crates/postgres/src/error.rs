//! Errors of a private cluster. Each is one line that says what to do.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Why there is no private cluster. Every message is one line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No server binaries anywhere.
    #[error(
        "no PostgreSQL server found; install PostgreSQL 15 to 18 (`./x setup` does), \
         or set TUSKLINE_PG_BIN to the directory of its binaries"
    )]
    NoBinaries,
    /// `TUSKLINE_PG_BIN` names a directory that cannot run a server.
    #[error(
        "TUSKLINE_PG_BIN={}: {reason}; set it to a directory with postgres and initdb, \
         or unset it",
        dir.display()
    )]
    BadBinaries {
        /// The directory.
        dir: PathBuf,
        /// Why it is refused.
        reason: String,
    },
    /// A server older than [`OLDEST_MAJOR`](super::OLDEST_MAJOR).
    #[error("PostgreSQL {major} in {} is too old; install PostgreSQL 15 to 18", dir.display())]
    TooOld {
        /// The directory of its binaries.
        dir: PathBuf,
        /// Its major version.
        major: u32,
    },
    /// The data directory was made by a major for which there are no binaries.
    #[error(
        "{} was made by PostgreSQL {data_major}, but the binaries found are {found}; install \
         PostgreSQL {data_major}, upgrade the data with pg_upgrade, \
         or choose another data directory",
        data_dir.display()
    )]
    OtherMajor {
        /// The data directory.
        data_dir: PathBuf,
        /// The major that made it.
        data_major: u32,
        /// The majors there are, as a list.
        found: String,
    },
    /// There is something in the place of the cluster that is not one.
    #[error("{} is not a PostgreSQL data directory; empty it or choose another", path.display())]
    NotACluster {
        /// The place.
        path: PathBuf,
    },
    /// The data directory belongs to another account.
    #[error(
        "{} belongs to {owner}, not to {us}; run as {owner} or choose another data \
         directory",
        path.display()
    )]
    ForeignOwner {
        /// The directory.
        path: PathBuf,
        /// The account that owns it.
        owner: String,
        /// The account we run as.
        us: String,
    },
    /// We are root, the cluster belongs to root, and PostgreSQL refuses to run as root.
    #[error(
        "{} belongs to root and PostgreSQL refuses to run as root; \
         chown it to another account or choose another data directory",
        path.display()
    )]
    OwnedByRoot {
        /// The directory.
        path: PathBuf,
    },
    /// We are root and there is no account to run the server under.
    #[error(
        "PostgreSQL refuses to run as root and there is no account `postgres` or `nobody`; \
         run as another user"
    )]
    NoAccount,
    /// The account that runs the server cannot reach a path.
    #[error(
        "account {account}, which runs PostgreSQL, cannot enter {}; choose {what} outside it, \
         or allow it with chmod o+x",
        closed.display()
    )]
    OutOfReach {
        /// The account.
        account: String,
        /// The directory it cannot enter.
        closed: PathBuf,
        /// The thing below: the data directory or the binaries.
        what: &'static str,
    },
    /// A directory that must be private to the server's account is not.
    #[error("{} is not a directory that only {account} can enter; remove it", path.display())]
    NotPrivate {
        /// The directory.
        path: PathBuf,
        /// The account that should own it.
        account: String,
    },
    /// Something else listens on the port.
    #[error("port {port} of 127.0.0.1 is taken; choose another or leave TCP out")]
    PortTaken {
        /// The port.
        port: u16,
    },
    /// A server runs on the directory, but not with the TCP port that was asked for.
    #[error(
        "a server already runs on {} without TCP port {port}; stop it first, or leave \
         the port out",
        data_dir.display()
    )]
    RunsWithoutPort {
        /// The data directory.
        data_dir: PathBuf,
        /// The port that was asked for.
        port: u16,
    },
    /// Another process holds the directory's lock for too long.
    #[error(
        "another process has been starting or stopping a server on {} for {seconds} s; \
         try again when it is done",
        data_dir.display()
    )]
    Busy {
        /// The data directory.
        data_dir: PathBuf,
        /// How long we waited, in seconds.
        seconds: u64,
    },
    /// `initdb` failed.
    #[error("initdb failed: {line}")]
    Init {
        /// The last line that says why.
        line: String,
    },
    /// The server ended before it answered.
    #[error("PostgreSQL did not start: {line} (log: {})", log.display())]
    Start {
        /// The last FATAL line of its log.
        line: String,
        /// The log.
        log: PathBuf,
    },
    /// The server runs but does not answer.
    #[error(
        "PostgreSQL (process {pid}) does not answer on its socket after {seconds} s \
         (log: {})",
        log.display()
    )]
    Silent {
        /// The postmaster.
        pid: u32,
        /// How long we waited, in seconds.
        seconds: u64,
        /// The log.
        log: PathBuf,
    },
    /// The server did not stop, not even when it was killed.
    #[error("PostgreSQL (process {pid}) did not stop within {seconds} s; stop it by hand")]
    WillNotStop {
        /// The postmaster.
        pid: u32,
        /// How long we waited, in seconds.
        seconds: u64,
    },
    /// A database name PostgreSQL would shorten or refuse.
    #[error(
        "database name {name:?}: 1 to 63 bytes without NUL, got {bytes} bytes",
        bytes = name.len()
    )]
    DatabaseName {
        /// The name.
        name: String,
    },
    /// The server refused a statement or the connection.
    #[error("{what}: {reason}")]
    Database {
        /// The step that failed.
        what: String,
        /// The server's message.
        reason: String,
        /// The client's error.
        #[source]
        source: tokio_postgres::Error,
    },
    /// The operating system refused.
    #[error("cannot {what} {}: {source}", path.display())]
    Io {
        /// The verb.
        what: &'static str,
        /// The file, directory or program.
        path: PathBuf,
        /// The reason.
        #[source]
        source: std::io::Error,
    },
}

impl Error {
    /// Wraps an operating system error with the verb and the path that met it; for `map_err`.
    pub(super) fn io<E: Into<std::io::Error>>(
        what: &'static str,
        path: &Path,
    ) -> impl FnOnce(E) -> Self {
        let path = path.to_path_buf();
        move |source| Self::Io { what, path, source: source.into() }
    }

    /// Wraps a client error with the server's own words: the client prints only "db error".
    pub(super) fn database(what: impl Into<String>) -> impl FnOnce(tokio_postgres::Error) -> Self {
        let what = what.into();
        move |source| {
            let reason = source.as_db_error().map_or_else(|| chain(&source), |e| e.to_string());
            Self::Database { what, reason: reason.replace('\n', " "), source }
        }
    }
}

/// An error and its causes in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut line = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let _ = write!(line, ": {error}");
        cause = error.source();
    }
    line
}
