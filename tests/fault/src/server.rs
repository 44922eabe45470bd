//! The PostgreSQL servers that the injector owns, and the faults it can cause in them.
//!
//! The servers are durable. They lie in one private directory ([`Site`]) and are reached through
//! unix sockets only. They can be stopped, killed, frozen, copied into synchronous standbys,
//! promoted, or run out of disk ([`Volume`]). They can also be given a false clock, or put behind a
//! [`Pooler`].
//!
//! Promises: `fsync`, `full_page_writes` and `synchronous_commit` are on unless a setting overrides
//! them, so an acknowledged commit survives every crash in here. Nothing outlives the injector, and
//! nothing stays mounted.
//!
//! Must never: signal a process that does not work in its own directory, or pass over a fault that
//! this machine does not allow. It reports such a fault as a loud [`Skipped`].

mod clock;
mod copy;
mod crash;
mod disturb;
mod launch;
mod pooler;
mod process;
mod replace;
mod site;
mod standby;
#[cfg(test)]
mod tests;
mod tools;
mod volume;

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use tuskline_postgres::{Child, SUPERUSER};

pub use clock::Clock;
pub use pooler::{PoolSize, Pooler};
pub use site::Site;
pub use tools::{Skipped, Tools};
pub use tuskline_postgres::Stop;
pub use volume::Volume;

/// Longest wait for a server to answer after a start: recovery under load takes seconds.
pub const START_LIMIT: Duration = Duration::from_secs(60);

/// Pause between two attempts of anything in here.
pub const PAUSE: Duration = Duration::from_millis(20);

/// The application name of the injector's own sessions, which no fault is aimed at.
pub const OURS: &str = "tuskline-fault";

/// The port in the socket's name.
const PORT: u16 = 5432;

/// The longest path of a unix socket, in bytes, without the closing NUL.
const SOCKET_PATH_LIMIT_BYTES: usize = 107;

/// The settings of every server. They go into its file, so that `alter system` can change them. The
/// WAL on disk lets a standby that is copied by hand catch up.
const SETTINGS: &[(&str, &str)] = &[
    ("fsync", "on"),
    ("synchronous_commit", "on"),
    ("full_page_writes", "on"),
    ("wal_level", "replica"),
    ("max_wal_senders", "10"),
    ("wal_keep_size", "256MB"),
    ("hot_standby", "on"),
    ("wal_receiver_status_interval", "1s"),
    ("shared_buffers", "64MB"),
    // In the data directory, so that a killed server leaves nothing elsewhere.
    ("dynamic_shared_memory_type", "mmap"),
    ("autovacuum_naptime", "10s"),
    ("logging_collector", "off"),
    ("log_line_prefix", "%m [%p] %a "),
];

/// For a disk of the log alone: little segments and few of them, so that a full disk is felt.
const SMALL_LOG: &[(&str, &str)] =
    &[("wal_keep_size", "0"), ("min_wal_size", "2MB"), ("max_wal_size", "8MB")];

/// Which directory of a server is on a disk of its own.
#[derive(Debug, Default)]
pub enum Disk {
    /// None.
    #[default]
    Plain,
    /// The data directory without `pg_wal`: "data disk full". An empty cluster takes 40 MB.
    Data(Volume),
    /// `pg_wal` only, in segments of 1 MB: "WAL disk full". 16 MB are enough.
    Wal(Volume),
    /// The data directory and `pg_wal`, each on one of two volumes made together.
    Both {
        /// For the data directory without `pg_wal`.
        data: Volume,
        /// For `pg_wal`.
        wal: Volume,
    },
}

/// A PostgreSQL instance. Dropping it ends it with all its processes, as in a crash.
#[derive(Debug)]
pub struct Server {
    site: Site,
    name: String,
    version: String,
    dir: PathBuf,
    /// The data directory as the server sees it.
    data: PathBuf,
    /// Settings on the command line, which a standby needs.
    own_settings: Vec<(String, String)>,
    postmaster: Option<Child>,
    clock: Clock,
    disk: Disk,
}

impl Server {
    /// Makes a cluster and starts a server on it. `settings` win over our own; `alter system` (see
    /// [`set`](Self::set)) wins over them.
    ///
    /// # Errors
    /// When `initdb` or the start fails; the error has the line of the log that says why.
    pub async fn create(site: &Site, name: &str, settings: &[(&str, &str)]) -> Result<Self> {
        Self::create_on(site, name, settings, Disk::Plain, Clock::Machine).await
    }

    /// The same with a disk or a clock of its own.
    ///
    /// # Errors
    /// As [`create`](Self::create), and when a false clock is asked for without libfaketime.
    pub async fn create_on(
        site: &Site,
        name: &str,
        settings: &[(&str, &str)],
        disk: Disk,
        clock: Clock,
    ) -> Result<Self> {
        let mut server = Self::lay_out(site, name, disk, clock)?;
        server.run_initdb().await?;
        let few: &[_] = if matches!(server.disk, Disk::Wal(_)) { SMALL_LOG } else { &[] };
        server.write_settings([SETTINGS, few, settings].concat())?;
        server.start().await?;
        Ok(server)
    }

    /// The directories of a server that does not exist yet.
    fn lay_out(site: &Site, name: &str, disk: Disk, clock: Clock) -> Result<Self> {
        ensure!(
            !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_'),
            "a server's name has letters, digits and underscores only, not {name:?}"
        );
        let dir = site.private_dir(name)?;
        site.private_dir(dir.join("run"))?;
        let data = match &disk {
            Disk::Data(volume) | Disk::Both { data: volume, .. } => {
                volume.mount_point().join("data")
            }
            Disk::Plain | Disk::Wal(_) => site.private_dir(dir.join("data"))?,
        };
        let server = Self {
            site: site.clone(),
            name: name.to_owned(),
            version: String::new(),
            dir,
            data,
            own_settings: Vec::new(),
            postmaster: None,
            clock,
            disk,
        };
        server.check_socket_path()?;
        server.prepare_clock()?;
        Ok(server)
    }

    fn check_socket_path(&self) -> Result<()> {
        let bytes = self.socket_file().as_os_str().len();
        ensure!(bytes <= SOCKET_PATH_LIMIT_BYTES, "TMPDIR is too long for a unix socket");
        Ok(())
    }

    async fn run_initdb(&self) -> Result<()> {
        let program = self.site.binaries().program("initdb");
        let mut command = self.site.command(&program, self.volume())?;
        command.args(["--no-sync", "--no-locale", "-E", "UTF8", "-U", SUPERUSER]);
        command.args(["--auth-local=trust", "--auth-host=reject", "-D"]).arg(&self.data);
        match &self.disk {
            Disk::Plain => {}
            Disk::Data(_) => drop(command.arg("--waldir").arg(self.dir.join("wal"))),
            Disk::Both { wal, .. } => {
                command.arg("--waldir").arg(wal.mount_point().join("wal"));
            }
            Disk::Wal(volume) => {
                command.arg("--waldir").arg(volume.mount_point().join("wal"));
                command.arg("--wal-segsize=1");
            }
        }
        launch::run(command).await
    }

    fn write_settings(&self, settings: Vec<(&str, &str)>) -> Result<()> {
        let path = self.data_seen_from_here().join("postgresql.conf");
        let mut file = OpenOptions::new().append(true).open(path)?;
        for (name, value) in settings {
            writeln!(file, "{name} = '{}'", value.replace('\'', "''"))?;
        }
        Ok(())
    }

    /// The directory of the server: log, socket, clock.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The unix socket.
    pub fn socket_file(&self) -> PathBuf {
        self.socket_dir().join(format!(".s.PGSQL.{PORT}"))
    }

    /// The directory of the socket, as libpq wants it.
    pub fn socket_dir(&self) -> PathBuf {
        self.dir.join("run")
    }

    /// The server's log so far.
    pub fn log(&self) -> PathBuf {
        self.dir.join("server.log")
    }

    /// How tokio-postgres reaches a database.
    pub fn config(&self, database: &str) -> tokio_postgres::Config {
        let mut config = tokio_postgres::Config::new();
        config.host_path(self.socket_dir()).port(PORT).user(SUPERUSER).dbname(database);
        config.connect_timeout(Duration::from_secs(5));
        config
    }

    /// The same as a URL that libpq and tokio-postgres read. The directory's name needs no escape
    /// but that of its slashes.
    pub fn url(&self, database: &str) -> String {
        let host = self.socket_dir().display().to_string().replace('/', "%2F");
        format!("postgresql://{SUPERUSER}@/{database}?host={host}")
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The value of `server_version`, such as `15.14`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The volume that some of it is on.
    pub fn volume(&self) -> Option<&Volume> {
        match &self.disk {
            Disk::Plain => None,
            Disk::Data(volume) | Disk::Wal(volume) | Disk::Both { data: volume, .. } => {
                Some(volume)
            }
        }
    }

    /// The volume that the tables are on.
    pub fn data_volume(&self) -> Option<&Volume> {
        match &self.disk {
            Disk::Data(volume) | Disk::Both { data: volume, .. } => Some(volume),
            Disk::Plain | Disk::Wal(_) => None,
        }
    }

    /// The volume that `pg_wal` is on.
    pub fn wal_volume(&self) -> Option<&Volume> {
        match &self.disk {
            Disk::Wal(volume) | Disk::Both { wal: volume, .. } => Some(volume),
            Disk::Plain | Disk::Data(_) => None,
        }
    }

    /// The clock that it sees.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// Starts it again after a stop or a death, and returns the time until it answers. While the
    /// orphans of a killed postmaster are still there PostgreSQL refuses; then this tries again.
    ///
    /// # Errors
    /// When it does not answer within [`START_LIMIT`], or ends: with the line of the log.
    pub async fn start(&mut self) -> Result<Duration> {
        let started = Instant::now();
        while let Err(error) = self.start_once(started).await {
            let orphans = error.to_string().contains(launch::ORPHANS_LINGER);
            if !orphans || started.elapsed() > START_LIMIT {
                return Err(error);
            }
            tokio::time::sleep(PAUSE).await;
        }
        let took = started.elapsed();
        let version = self.ask("postgres", "show server_version").await?;
        // Packagers add their own number after a space.
        self.version = version.split(' ').next().unwrap_or_default().to_owned();
        Ok(took)
    }

    /// Stops it and waits for its end; a frozen one is thawed first.
    ///
    /// # Errors
    /// When a smart stop waits in vain for clients.
    pub async fn stop(&mut self, how: Stop) -> Result<()> {
        let Some(postmaster) = &self.postmaster else { return Ok(()) };
        self.thaw();
        let (postmaster, steps) = (postmaster.share(), how.steps());
        if !tokio::task::spawn_blocking(move || postmaster.stop(&steps)).await? {
            bail!("{} does not stop", self.name);
        }
        self.postmaster = None;
        Ok(())
    }

    /// Whether the postmaster is there, answering or not.
    pub fn running(&self) -> bool {
        self.postmaster.as_ref().is_some_and(Child::running)
    }

    /// The postmaster's number; the last one after a death.
    pub fn postmaster_pid(&self) -> Option<u32> {
        self.postmaster.as_ref().map(Child::pid)
    }

    /// Waits until it answers a query, and says how long that took.
    ///
    /// # Errors
    /// When it does not within the limit.
    pub async fn wait_until_answering(&self, limit: Duration) -> Result<Duration> {
        let started = Instant::now();
        loop {
            let left = limit.saturating_sub(started.elapsed());
            let asked = tokio::time::timeout(left, self.ask("postgres", "select 1")).await;
            match asked {
                Ok(Ok(_)) => return Ok(started.elapsed()),
                Ok(Err(_)) if !left.is_zero() => tokio::time::sleep(PAUSE.min(left)).await,
                _ => bail!("{} did not answer within {limit:?}", self.name),
            }
        }
    }

    /// Changes a setting for good and makes the server read it. Sessions see it a moment later.
    ///
    /// # Errors
    /// When the server refuses it.
    pub async fn set(&self, name: &str, value: &str) -> Result<()> {
        ensure!(
            name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_' || b == b'.'),
            "{name:?} is no setting"
        );
        let session = self.session("postgres").await?;
        let value = value.replace('\'', "''");
        session.batch_execute(&format!("alter system set {name} = '{value}'")).await?;
        session.execute("select pg_reload_conf()", &[]).await?;
        Ok(())
    }

    /// The data directory by a path that we can follow.
    fn data_seen_from_here(&self) -> PathBuf {
        match &self.disk {
            Disk::Data(volume) | Disk::Both { data: volume, .. } => {
                volume.seen_from_here().join("data")
            }
            Disk::Plain | Disk::Wal(_) => self.data.clone(),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.abandon();
    }
}
