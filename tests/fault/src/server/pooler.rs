//! PgBouncer in transaction mode in front of a server.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::Signal;
use tokio_postgres::NoTls;
use tuskline_postgres::{Child, SUPERUSER, last_complaint};

use super::{PAUSE, PORT, Server, Site};

/// Longest wait for an answer after a start.
const START_LIMIT: Duration = Duration::from_secs(10);

/// Longest wait for its end.
const STOP_LIMIT: Duration = Duration::from_secs(10);

/// How many connections a pooler has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolSize {
    /// To the server, per database.
    pub to_server: u32,
    /// From clients, in total.
    pub from_clients: u32,
}

impl Default for PoolSize {
    fn default() -> Self {
        Self { to_server: 20, from_clients: 500 }
    }
}

/// A running pooler. Dropping it kills it.
#[derive(Debug)]
pub struct Pooler {
    site: Site,
    dir: PathBuf,
    child: Option<Child>,
}

impl Pooler {
    /// Starts a pooler in front of a server, for all its databases. See
    /// [`Tools::pgbouncer`](super::Tools::pgbouncer) for whether there is one here.
    ///
    /// # Errors
    /// When it is not installed or does not start.
    pub async fn create(site: &Site, server: &Server, size: PoolSize) -> Result<Self> {
        let dir = site.private_dir(format!("pooler-{:08x}", fastrand::u32(..)))?;
        let config = dir.join("pgbouncer.ini");
        std::fs::write(&config, configuration(&dir.display().to_string(), server, size))?;
        site.account().own(&config)?;
        let mut pooler = Self { site: site.clone(), dir, child: None };
        pooler.start().await?;
        Ok(pooler)
    }

    /// Starts it again after a stop or a death; waits until it answers.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub async fn start(&mut self) -> Result<()> {
        let program = self.site.tools().pgbouncer.clone();
        let mut command = self.site.command(&program.context("no pgbouncer here")?, None)?;
        let log = std::fs::File::options().create(true).append(true).open(self.log())?;
        let log_from = log.metadata()?.len();
        command.arg(self.dir.join("pgbouncer.ini")).stdout(log.try_clone()?).stderr(log);
        // Files that a killed pooler left behind would keep the next from starting.
        for stale in [self.socket_file(), self.dir.join("pid")] {
            drop(std::fs::remove_file(stale));
        }
        let child = Child::spawn(command)?;
        self.child = Some(child.share());
        let started = Instant::now();
        while self.config("postgres").connect(NoTls).await.is_err() {
            if !child.running() || started.elapsed() > START_LIMIT {
                bail!("the pooler does not start: {}", last_complaint(&self.log(), log_from));
            }
            tokio::time::sleep(PAUSE).await;
        }
        Ok(())
    }

    /// Ends it at once and in order: clients see their connections close.
    ///
    /// # Errors
    /// When it does not end.
    pub async fn stop(&mut self) -> Result<()> {
        self.end(vec![(Signal::TERM, STOP_LIMIT), (Signal::KILL, STOP_LIMIT)]).await
    }

    /// `kill -9`.
    ///
    /// # Errors
    /// As [`stop`](Self::stop).
    pub async fn kill(&mut self) -> Result<()> {
        self.end(vec![(Signal::KILL, STOP_LIMIT)]).await
    }

    async fn end(&mut self, steps: Vec<(Signal, Duration)>) -> Result<()> {
        let Some(child) = self.child.take() else { return Ok(()) };
        if !tokio::task::spawn_blocking(move || child.stop(&steps)).await? {
            bail!("the pooler does not end");
        }
        Ok(())
    }

    /// How tokio-postgres reaches a database through it.
    pub fn config(&self, database: &str) -> tokio_postgres::Config {
        let mut config = tokio_postgres::Config::new();
        config.host_path(&self.dir).port(PORT).user(SUPERUSER).dbname(database);
        config.connect_timeout(Duration::from_secs(5));
        config
    }

    /// The same as a URL.
    pub fn url(&self, database: &str) -> String {
        let host = self.dir.display().to_string().replace('/', "%2F");
        format!("postgresql://{SUPERUSER}@/{database}?host={host}")
    }

    /// Its unix socket.
    pub fn socket_file(&self) -> PathBuf {
        self.dir.join(format!(".s.PGSQL.{PORT}"))
    }

    /// The pooler's log.
    pub fn log(&self) -> PathBuf {
        self.dir.join("pgbouncer.log")
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        if let Some(child) = self.child.take() {
            child.stop(&[(Signal::KILL, STOP_LIMIT)]);
        }
    }
}

/// It answers on its own socket only, and believes everyone: the directory is the guard.
fn configuration(dir: &str, server: &Server, size: PoolSize) -> String {
    let host = server.socket_dir().display().to_string();
    let PoolSize { to_server, from_clients } = size;
    format!(
        "[databases]
* = host={host} port={PORT} user={SUPERUSER}
[pgbouncer]
listen_port = {PORT}
unix_socket_dir = {dir}
pidfile = {dir}/pid
auth_type = any
pool_mode = transaction
default_pool_size = {to_server}
max_client_conn = {from_clients}
server_lifetime = 3600
ignore_startup_parameters = extra_float_digits,options
"
    )
}
