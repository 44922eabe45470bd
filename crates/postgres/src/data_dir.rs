//! Tuskline's directory on disk: the cluster, its log, its lock and its socket.
//!
//! The directory belongs to the account of this process; `data` and `run` in it belong to the account that runs
//! the server. A cluster is made in `data.tmp` and renamed, so a killed `initdb` leaves nothing
//! that looks like one. Nothing in here is ever upgraded, and nothing but `data.tmp` is removed.

use std::fs::{File, Metadata, OpenOptions, Permissions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::process::{Pid, test_kill_process};

use super::Error;
use super::account::Account;
use super::address::Address;

/// The longest path a unix socket may have, in bytes, without the closing NUL.
pub(super) const SOCKET_PATH_LIMIT_BYTES: usize = if cfg!(target_os = "linux") { 107 } else { 103 };

/// A log longer than this is set aside at the next start, in bytes.
const LOG_LIMIT_BYTES: u64 = 10 * 1024 * 1024;

/// A directory that holds, or will hold, one cluster.
#[derive(Debug, Clone)]
pub(super) struct DataDir {
    root: PathBuf,
}

/// Contents of a server's `postmaster.pid`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PidFile {
    pub pid: u32,
    /// Where it answers; `None` while it starts.
    pub address: Option<Address>,
    /// The address TCP listens on; empty when it does not.
    pub listens_on: String,
}

impl DataDir {
    pub fn at(root: &Path) -> Self {
        Self { root: std::path::absolute(root).unwrap_or_else(|_| root.to_path_buf()) }
    }

    /// Makes the directory when it is missing, and resolves its path. The account can enter it.
    ///
    /// # Errors
    /// [`Error::OutOfReach`], before anything is made.
    pub fn create(self, account: &Account) -> Result<Self, Error> {
        let missing: Vec<&Path> = self.root.ancestors().take_while(|dir| !dir.exists()).collect();
        let nearest = missing.last().map_or(Some(self.root.as_path()), |dir| dir.parent());
        account.can_enter(nearest.unwrap_or(Path::new("/")), "a data directory")?;
        for dir in missing.into_iter().rev() {
            // Another process may make it at the same time.
            std::fs::create_dir_all(dir).map_err(Error::io("make", dir))?;
            if account.switch {
                // Whatever root's umask says.
                std::fs::set_permissions(dir, Permissions::from_mode(0o755))
                    .map_err(Error::io("open to others", dir))?;
            }
        }
        let root = self.root.canonicalize().map_err(Error::io("find", &self.root))?;
        Ok(Self { root })
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The cluster: `data`, or the directory itself when it was made by hand as one.
    pub fn pgdata(&self) -> PathBuf {
        if self.root.join("PG_VERSION").exists() {
            self.root.clone()
        } else {
            self.root.join("data")
        }
    }

    pub fn log(&self) -> PathBuf {
        self.root.join("server.log")
    }

    pub fn pid_file_path(&self) -> PathBuf {
        self.pgdata().join("postmaster.pid")
    }

    /// The cluster when there is one, else the directory when there is one; with its owner.
    pub fn owned(&self) -> Option<(PathBuf, Metadata)> {
        let existing = |path: PathBuf| path.metadata().ok().map(|metadata| (path, metadata));
        existing(self.pgdata()).or_else(|| existing(self.root.clone()))
    }

    /// The major that made the cluster; `None` when there is no cluster yet.
    ///
    /// # Errors
    /// [`Error::NotACluster`] when something else is in its place.
    pub fn major(&self) -> Result<Option<u32>, Error> {
        let pgdata = self.pgdata();
        let version = pgdata.join("PG_VERSION");
        match std::fs::read_to_string(&version) {
            Ok(text) => match text.trim().split('.').next().map(str::parse) {
                Some(Ok(major)) => Ok(Some(major)),
                _ => Err(Error::NotACluster { path: pgdata }),
            },
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let mut entries = std::fs::read_dir(&pgdata).into_iter().flatten();
                let empty = entries.next().is_none() && (!pgdata.exists() || pgdata.is_dir());
                if empty { Ok(None) } else { Err(Error::NotACluster { path: pgdata }) }
            }
            Err(error) => Err(Error::io("read", &version)(error)),
        }
    }

    /// Takes the lock under which servers are started and attached to, or says that another has it.
    /// It is let go with the file.
    pub fn try_lock(&self) -> Result<Option<File>, Error> {
        let path = self.root.join("lock");
        let file = self.open(&path)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(file)),
            Err(rustix::io::Errno::WOULDBLOCK | rustix::io::Errno::INTR) => Ok(None),
            Err(error) => Err(Error::io("lock", &path)(error)),
        }
    }

    /// The log, open for appending, and its length in bytes.
    pub fn open_log(&self) -> Result<(File, u64), Error> {
        let path = self.log();
        if path.metadata().is_ok_and(|metadata| metadata.len() > LOG_LIMIT_BYTES) {
            let old = self.root.join("server.log.1");
            std::fs::rename(&path, &old).map_err(Error::io("rename", &path))?;
        }
        let file = self.open(&path)?;
        let length = file.metadata().map_err(Error::io("look at", &path))?.len();
        Ok((file, length))
    }

    /// Opens a file of ours. Root does not follow a link: another account may own the directory.
    fn open(&self, path: &Path) -> Result<File, Error> {
        let no_follow = OFlags::NOFOLLOW.bits().cast_signed();
        let mut options = OpenOptions::new();
        options.create(true).append(true).mode(0o600).custom_flags(no_follow);
        options.open(path).map_err(Error::io("open", path))
    }

    /// The password of TCP connections, made at the first call: 32 hexadecimal digits.
    pub fn tcp_password(&self) -> Result<String, Error> {
        let path = self.root.join("tcp_password");
        match std::fs::read_to_string(&path) {
            Ok(password) if !password.trim().is_empty() => return Ok(password.trim().to_owned()),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(Error::io("read", &path)(error)),
        }
        let password = random_password()?;
        let mut file = self.open(&path)?;
        file.write_all(password.as_bytes()).map_err(Error::io("write", &path))?;
        Ok(password)
    }

    /// The server that runs on the cluster. The pid file of one that is gone is removed: PostgreSQL
    /// would refuse to start when its number is by now another process of the same account. Call it
    /// under the lock.
    pub fn running_server(&self) -> Result<Option<PidFile>, Error> {
        let path = self.pid_file_path();
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::io("read", &path)(error)),
        };
        if let Some(file) = parse_pid_file(&text).filter(|file| self.is_alive(file.pid)) {
            return Ok(Some(file));
        }
        remove_file(&path)?;
        Ok(None)
    }

    /// Makes the socket's directory, without what a killed server left in it: the socket's lock
    /// file has the pid file's problem.
    pub fn clear_socket_dir(&self, address: &Address, account: &Account) -> Result<(), Error> {
        private_dir(&address.socket_dir, account)?;
        for suffix in ["", ".lock"] {
            let name = format!(".s.PGSQL.{}{suffix}", address.port);
            remove_file(&address.socket_dir.join(name))?;
        }
        Ok(())
    }

    /// Whether the process is a server on this cluster; a number may be used again.
    fn is_alive(&self, pid: u32) -> bool {
        let number = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let Some(number) = number else { return false };
        if test_kill_process(number) == Err(rustix::io::Errno::SRCH) {
            return false;
        }
        if !cfg!(target_os = "linux") {
            return true;
        }
        // A postmaster's working directory is its data directory; a zombie has none.
        match std::fs::read_link(format!("/proc/{pid}/cwd")) {
            Ok(cwd) => self.pgdata().canonicalize().is_ok_and(|pgdata| pgdata == cwd),
            Err(error) => error.kind() == ErrorKind::PermissionDenied,
        }
    }

    /// The directory of the socket: `run`, or one under `/tmp` named by a hash when the socket's
    /// path would be too long, or holds a comma, at which libpq ends a host. [`private_dir`] makes
    /// it.
    pub fn socket_dir(&self, port: u16) -> PathBuf {
        let near = self.root.join("run");
        let comma = near.as_os_str().as_encoded_bytes().contains(&b',');
        if !comma && socket_path_bytes(&near, port) <= SOCKET_PATH_LIMIT_BYTES {
            return near;
        }
        let mut hasher = DefaultHasher::new();
        self.root.hash(&mut hasher);
        PathBuf::from(format!("/tmp/tuskline-run-{:016x}", hasher.finish()))
    }
}

fn remove_file(path: &Path) -> Result<(), Error> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(Error::io("remove", path)(error)),
        _ => Ok(()),
    }
}

/// Makes a directory with mode 0700 for the account, or checks that the one there is such.
pub(super) fn private_dir(dir: &Path, account: &Account) -> Result<(), Error> {
    match std::fs::DirBuilder::new().mode(0o700).create(dir) {
        Ok(()) => return account.own(dir),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        Err(error) => return Err(Error::io("make", dir)(error)),
    }
    let found = dir.symlink_metadata().map_err(Error::io("look at", dir))?;
    if found.is_dir() && found.uid() == account.uid && found.mode() & 0o077 == 0 {
        return Ok(());
    }
    Err(Error::NotPrivate { path: dir.to_path_buf(), account: account.name.clone() })
}

fn socket_path_bytes(dir: &Path, port: u16) -> usize {
    dir.join(format!(".s.PGSQL.{port}")).as_os_str().len()
}

fn random_password() -> Result<String, Error> {
    use std::fmt::Write as _;
    use std::io::Read as _;

    let source = Path::new("/dev/urandom");
    let mut bytes = [0_u8; 16];
    File::open(source)
        .and_then(|mut file| file.read_exact(&mut bytes))
        .map_err(Error::io("read", source))?;
    Ok(bytes.iter().fold(String::new(), |mut password, byte| {
        let _ = write!(password, "{byte:02x}");
        password
    }))
}

/// Lines: number, data directory, start time, port, socket directory, listen address. A server that
/// is starting has not written all of them.
pub(super) fn parse_pid_file(text: &str) -> Option<PidFile> {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let address = || {
        let (port, socket_dir) = (lines.get(3)?.parse().ok()?, PathBuf::from(lines.get(4)?));
        Some(Address { socket_dir, port })
    };
    let listens_on = lines.get(5).copied().unwrap_or_default().to_owned();
    Some(PidFile { pid: lines.first()?.parse().ok()?, address: address(), listens_on })
}
