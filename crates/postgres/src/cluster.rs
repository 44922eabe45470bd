//! The cluster as its user sees it: start or attach, addresses, stop, start again.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::net::TcpListener;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;

use super::account::Account;
use super::address::{Address, SOCKET_PORT, shell_quoted};
use super::binaries::Binaries;
use super::data_dir::{DataDir, PidFile};
use super::init::make_cluster;
use super::launch::{Answer, Patience, START_LIMIT, Site, ask, connect};
use super::server::{Server, Stop};
use super::temporary::{AtTheEnd, Warden, new_dir};
use super::{Durability, Error, Options, SUPERUSER};

/// A running server, ours or one that was found running. Dropping it stops ours and waits for its
/// end: a moment, at worst 80 s.
pub struct Cluster {
    site: Site,
    /// The process, when it is ours and has been started.
    server: Option<Server>,
    /// The postmaster's number; the last one after a stop.
    pid: u32,
    attached: bool,
    /// The role of every address.
    pub(super) user: &'static str,
    password: Option<String>,
    at_the_end: AtTheEnd,
    /// Dropped last: it waits for the server's end.
    _warden: Option<Warden>,
}

impl Cluster {
    /// Starts the cluster of a directory, after making it if there is none, or attaches to the
    /// server that already runs on it. It answers when this returns. A first start takes about a
    /// second, a later one a tenth; recovery after a crash may take up to 300 s. A server that runs
    /// keeps the durability and the settings it was started with, and goes when its owner stops it.
    ///
    /// # Errors
    /// Every variant of [`Error`]; each says in one line what to do.
    pub async fn start(options: Options) -> Result<Self, Error> {
        Self::start_at(prepare(options, None)?, AtTheEnd::Keep).await
    }

    /// Starts a throw-away cluster in a directory of its own, in memory where there is plenty and the
    /// settings leave `fsync` off. The directory goes when this is dropped or when the process ends,
    /// however it ends. After a [`stop`](Self::stop) it stays until then, for
    /// [`start_again`](Self::start_again).
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub async fn temporary(settings: Vec<(String, String)>) -> Result<Self, Error> {
        Self::temporary_on(settings, None).await
    }

    /// The same, which also listens on a port of 127.0.0.1: see [`Options::tcp_port`].
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub async fn temporary_on(
        settings: Vec<(String, String)>,
        tcp_port: Option<u16>,
    ) -> Result<Self, Error> {
        let account = Account::for_new(caller())?;
        let syncs = settings.iter().any(|(name, value)| name == "fsync" && value == "on");
        let dir = new_dir(&account, !syncs)?;
        let options = Options { settings, tcp_port, ..Options::throw_away(dir.clone()) };
        // No other process removes the directory until there is a cluster; it is still empty.
        let site = prepare(options, Some(account)).inspect_err(|_| drop(std::fs::remove_dir(&dir)));
        Self::start_at(site?, AtTheEnd::Remove).await
    }

    async fn start_at(site: Site, at_the_end: AtTheEnd) -> Result<Self, Error> {
        let pid_file = site.data_dir.pid_file_path();
        let _warden = Warden::post(site.data_dir.root(), &pid_file, at_the_end)?;
        let mut cluster = Self {
            site,
            server: None,
            pid: 0,
            attached: false,
            user: SUPERUSER,
            password: None,
            at_the_end,
            _warden,
        };
        cluster.attach_or_launch().await?;
        Ok(cluster)
    }

    /// How tokio-postgres reaches a database through the socket.
    pub fn config(&self, database: &str) -> tokio_postgres::Config {
        self.site.address.config(self.user, database)
    }

    /// The same as the superuser.
    pub(super) fn superuser_config(&self, database: &str) -> tokio_postgres::Config {
        self.site.address.config(SUPERUSER, database)
    }

    /// The same as a URL that libpq and tokio-postgres read.
    pub fn url(&self, database: &str) -> String {
        self.site.address.url(self.user, database)
    }

    /// The URL over TCP, with the password in it; `None` unless [`Options::tcp_port`] was set.
    pub fn tcp_url(&self, database: &str) -> Option<String> {
        Some(self.site.address.tcp_url(self.user, self.password()?, database))
    }

    pub(super) fn password(&self) -> Option<&str> {
        self.password.as_deref()
    }

    /// Writes a file into the data directory that the server can read, and no other account: a certificate,
    /// its key, or `pg_hba.conf`. It counts after a reload.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn put(&self, name: &str, text: &str) -> Result<(), Error> {
        let path = self.site.data_dir.pgdata().join(name);
        // The server refuses a key that other users may read, so it never has more rights than these.
        let mut file = OpenOptions::new();
        let opened = file.write(true).create(true).truncate(true).mode(0o600).open(&path);
        let written = opened.and_then(|mut file| file.write_all(text.as_bytes()));
        written.map_err(Error::io("write", &path))?;
        self.site.account.own(&path)
    }

    /// A line for a shell that opens psql on a database.
    pub fn psql_command(&self, database: &str) -> String {
        let psql = self.site.binaries.program("psql");
        let psql = if psql.is_file() { shell_quoted(&psql) } else { "psql".to_owned() };
        format!("{psql} '{}'", self.url(database))
    }

    /// The binaries in use.
    pub fn binaries(&self) -> &Binaries {
        &self.site.binaries
    }

    /// Whether the server was found running: then another process stops it.
    pub fn attached(&self) -> bool {
        self.attached
    }

    /// False when our own server has ended without being told to. An attached one is not watched.
    pub fn is_running(&self) -> bool {
        self.server.as_ref().is_none_or(Server::running)
    }

    /// True when its directory goes with it.
    pub fn is_temporary(&self) -> bool {
        matches!(self.at_the_end, AtTheEnd::Remove)
    }

    /// The number of the postmaster's process; after a stop, of the last one.
    pub fn postmaster_pid(&self) -> u32 {
        self.pid
    }

    /// Stops the server and waits for its end. Does nothing to an attached server or a stopped one.
    ///
    /// # Errors
    /// [`Error::WillNotStop`].
    pub async fn stop(&mut self, how: Stop) -> Result<(), Error> {
        let Some(server) = &self.server else { return Ok(()) };
        let (server, steps) = (server.share(), how.steps());
        let seconds = steps.iter().map(|(_, limit)| limit.as_secs()).sum();
        if !blocking(move || Ok(server.stop(&steps))).await? {
            return Err(Error::WillNotStop { pid: self.pid, seconds });
        }
        self.server = None;
        Ok(())
    }

    /// Starts the server again on the same directory and address, after a stop or after it was
    /// killed. Does nothing when it runs.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub async fn start_again(&mut self) -> Result<(), Error> {
        if self.server.as_ref().is_some_and(Server::running) {
            return Ok(());
        }
        self.attach_or_launch().await
    }

    #[cfg(test)]
    pub(super) fn site_root(&self) -> std::path::PathBuf {
        self.site.data_dir.root().to_path_buf()
    }

    /// Looks for a server under the directory's lock; one that is starting or stopping is waited
    /// for. So of two processes that start at the same time one launches and the other attaches.
    async fn attach_or_launch(&mut self) -> Result<(), Error> {
        let lock = lock(&self.site.data_dir).await?;
        let mut patience = Patience::new();
        while let Some(found) = self.site.data_dir.running_server()? {
            if let Some(address) = &found.address
                && ask(address).await? == Answer::Ready
            {
                return self.attach(found.pid, address.clone(), &found);
            }
            if !patience.pause().await {
                let (seconds, log) = (START_LIMIT.as_secs(), self.site.data_dir.log());
                return Err(Error::Silent { pid: found.pid, seconds, log });
            }
        }
        self.launch(lock).await
    }

    fn attach(&mut self, pid: u32, address: Address, found: &PidFile) -> Result<(), Error> {
        if let Some(port) = self.site.options.tcp_port {
            if address.port != port || found.listens_on.is_empty() {
                let data_dir = self.site.data_dir.root().to_path_buf();
                return Err(Error::RunsWithoutPort { data_dir, port });
            }
            self.password = Some(self.site.data_dir.tcp_password()?);
        }
        (self.pid, self.site.address, self.attached, self.server) = (pid, address, true, None);
        Ok(())
    }

    async fn launch(&mut self, lock: Arc<File>) -> Result<(), Error> {
        let site = &self.site;
        if let Some(port) = site.options.tcp_port {
            // The listener is closed at once; PostgreSQL binds with SO_REUSEADDR, too.
            TcpListener::bind(("127.0.0.1", port)).map_err(|_| Error::PortTaken { port })?;
        }
        if site.data_dir.major()?.is_none() {
            let (data_dir, binaries) = (site.data_dir.clone(), site.binaries.clone());
            let (account, durability) = (site.account.clone(), site.options.durability);
            // The lock goes along: initdb runs on when the caller gives up on this future.
            let _lock = Arc::clone(&lock);
            blocking(move || {
                let _lock = _lock;
                make_cluster(&data_dir, &binaries, &account, durability)
            })
            .await?;
        }
        site.data_dir.clear_socket_dir(&site.address, &site.account)?;
        let started = site.launch(&mut self.server).await;
        self.pid = self.server.as_ref().map_or(0, Server::pid);
        self.attached = false;
        if let Err(error) = started {
            self.stop(Stop::Immediate).await?;
            return Err(error);
        }
        if self.site.options.tcp_port.is_some() {
            self.set_tcp_password().await?;
        }
        Ok(())
    }

    async fn set_tcp_password(&mut self) -> Result<(), Error> {
        let what = "cannot set the password for TCP";
        let password = self.site.data_dir.tcp_password()?;
        let client =
            connect(&self.superuser_config("postgres")).await.map_err(Error::database(what))?;
        let statement = format!("alter role {SUPERUSER} password '{password}'");
        client.batch_execute(&statement).await.map_err(Error::database(what))?;
        self.password = Some(password);
        Ok(())
    }
}

/// Without the password.
impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (dir, attached) = (self.site.data_dir.root(), self.attached);
        write!(f, "Cluster({}, pid {}, attached: {attached})", dir.display(), self.pid)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            let how = match self.site.options.durability {
                Durability::Durable => Stop::Fast,
                Durability::ThrowAway => Stop::Immediate,
            };
            if !server.stop(&how.steps()) {
                tracing::warn!(pid = self.pid, "the private PostgreSQL did not stop");
            }
        }
        let dir = &self.site.data_dir;
        // A socket directory under /tmp is empty now, unless another process has started a server since.
        if !self.attached
            && !self.site.address.socket_dir.starts_with(dir.root())
            && let Ok(Some(_lock)) = dir.try_lock()
        {
            let _ = std::fs::remove_dir(&self.site.address.socket_dir);
        }
        if self.at_the_end == AtTheEnd::Remove
            && let Err(error) = std::fs::remove_dir_all(dir.root())
        {
            tracing::warn!(%error, dir = %dir.root().display(), "a temporary cluster stays");
        }
    }
}

/// Decides what can be decided before the lock is taken.
fn prepare(options: Options, account: Option<Account>) -> Result<Site, Error> {
    let data_dir = DataDir::at(&options.data_dir);
    let account = match account {
        Some(account) => account,
        None => Account::choose(&data_dir, caller())?,
    };
    let binaries = Binaries::find_for(&options.data_dir)?;
    account.can_enter(&binaries.dir, "binaries")?;
    let data_dir = data_dir.create(&account)?;
    let port = options.tcp_port.unwrap_or(SOCKET_PORT);
    let address = Address { socket_dir: data_dir.socket_dir(port), port };
    Ok(Site { options, data_dir, account, binaries, address })
}

fn caller() -> u32 {
    rustix::process::getuid().as_raw()
}

async fn lock(data_dir: &DataDir) -> Result<Arc<File>, Error> {
    let mut patience = Patience::new();
    loop {
        if let Some(lock) = data_dir.try_lock()? {
            return Ok(Arc::new(lock));
        }
        if !patience.pause().await {
            let (data_dir, seconds) = (data_dir.root().to_path_buf(), START_LIMIT.as_secs());
            return Err(Error::Busy { data_dir, seconds });
        }
    }
}

/// Runs a closure that blocks on a thread made for that.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(ended) => Err(Error::io("wait for", Path::new("a thread"))(ended)),
    }
}
