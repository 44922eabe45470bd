//! From a made cluster to a server that answers, and our own sessions on it.

use std::fs::{File, OpenOptions};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, NoTls};
use tuskline_postgres::{Child, last_complaint};

use super::{OURS, PAUSE, PORT, START_LIMIT, Server};

/// The message of PostgreSQL while the orphans of a killed postmaster are still running.
pub(super) const ORPHANS_LINGER: &str = "pre-existing shared memory block";

/// Longest wait for one of our own short queries: a frozen server takes a connection and is silent.
pub(super) const QUERY_LIMIT: Duration = Duration::from_secs(10);

/// Longest wait for a free connection slot.
const SLOT_LIMIT: Duration = Duration::from_secs(30);

/// Whether every connection slot is taken.
pub(super) fn is_full(error: &anyhow::Error) -> bool {
    let said = error.downcast_ref::<tokio_postgres::Error>().and_then(tokio_postgres::Error::code);
    said == Some(&SqlState::TOO_MANY_CONNECTIONS)
}

impl Server {
    /// Makes a single attempt; it fails as soon as the postmaster ends.
    pub(super) async fn start_once(&mut self, since: Instant) -> Result<()> {
        ensure!(!self.running(), "{} runs", self.name);
        self.forget_the_dead()?;
        let (log, log_from) = self.open_log()?;
        let postmaster = Child::spawn(self.command(log)?)?;
        self.postmaster = Some(postmaster.share());
        loop {
            // In this order: a server that ends between the two lines is seen the next time.
            let running = postmaster.running();
            if self.ask("postgres", "select 1").await.is_ok() {
                return Ok(());
            }
            if !running {
                bail!("{} ended: {}", self.name, self.why_it_ended(log_from));
            }
            if since.elapsed() > START_LIMIT {
                bail!("{} has not answered for {START_LIMIT:?}", self.name);
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// The last complaint in the log. But orphans write into the same log, and they may write last.
    fn why_it_ended(&self, log_from: u64) -> String {
        let log = std::fs::read(self.log()).unwrap_or_default();
        let since = usize::try_from(log_from).unwrap_or(0).min(log.len());
        match String::from_utf8_lossy(&log[since..]).contains(ORPHANS_LINGER) {
            true => ORPHANS_LINGER.to_owned(),
            false => last_complaint(&self.log(), log_from),
        }
    }

    /// Removes the pid files of a postmaster that is gone: its number may by now be another's, at
    /// which PostgreSQL would refuse. Its orphans are still found, by the key of the shared memory.
    fn forget_the_dead(&self) -> Result<()> {
        let run = self.socket_dir();
        let data = self.data_seen_from_here();
        let socket = format!(".s.PGSQL.{PORT}");
        let stale = [run.join(format!("{socket}.lock")), run.join(socket)];
        for path in stale.into_iter().chain([data.join("postmaster.pid")]) {
            match std::fs::remove_file(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(error).with_context(|| format!("cannot remove {}", path.display()));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The log, open for appending, and its length in bytes.
    fn open_log(&self) -> Result<(File, u64)> {
        let file = OpenOptions::new().create(true).append(true).open(self.log())?;
        let length = file.metadata()?.len();
        Ok((file, length))
    }

    fn command(&self, log: File) -> Result<Command> {
        let program = self.site.binaries().program("postgres");
        // `env` sets the clock for the server alone. The command before it still runs as root, and
        // libfaketime would make its shared files root's.
        let mut command = self.site.command(Path::new("/usr/bin/env"), self.volume())?;
        for (name, value) in self.clock_environment() {
            command.arg(format!("{name}={}", value.display()));
        }
        command.arg(program).arg("-D").arg(&self.data);
        let sockets = format!("unix_socket_directories=\"{}\"", self.socket_dir().display());
        let port = format!("port={PORT}");
        for setting in ["listen_addresses=", &port, &sockets] {
            command.args(["-c", setting]);
        }
        for (name, value) in &self.own_settings {
            command.arg("-c").arg(format!("{name}={value}"));
        }
        command.stdout(log.try_clone()?).stderr(log);
        Ok(command)
    }

    /// A session of our own, which ends when the client is dropped.
    pub(super) async fn session(&self, database: &str) -> Result<Client> {
        let mut config = self.config(database);
        config.application_name(OURS);
        let (client, connection) = config.connect(NoTls).await?;
        tokio::spawn(async move {
            // The client's calls report the same error.
            let _ = connection.await;
        });
        Ok(client)
    }

    /// The same, asked for again while every slot is taken: two faults may meet.
    pub(super) async fn patient_session(&self, database: &str) -> Result<Client> {
        let started = Instant::now();
        loop {
            match self.session(database).await {
                Err(error) if is_full(&error) && started.elapsed() < SLOT_LIMIT => {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                answered => return answered,
            }
        }
    }

    /// The first column of the first row of a short query, as text.
    pub(super) async fn ask(&self, database: &str, query: &str) -> Result<String> {
        let answer = async {
            let session = self.session(database).await?;
            let messages = session.simple_query(query).await?;
            let rows = messages.iter().filter_map(|message| match message {
                tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0),
                _ => None,
            });
            let first = rows.map(str::to_owned).next();
            first.with_context(|| format!("no row: {query}"))
        };
        let limit = tokio::time::timeout(QUERY_LIMIT, answer).await;
        limit.with_context(|| format!("{} was silent for {QUERY_LIMIT:?}", self.name))?
    }

    /// Asks until the answer is the one wanted.
    pub(super) async fn ask_until(&self, query: &str, wanted: &str, limit: Duration) -> Result<()> {
        let started = Instant::now();
        loop {
            let answer = self.ask("postgres", query).await;
            match answer {
                Ok(answer) if answer == wanted => return Ok(()),
                last if started.elapsed() > limit => {
                    bail!("{}: {query} gave {last:?}, not {wanted}, in {limit:?}", self.name)
                }
                _ => tokio::time::sleep(PAUSE).await,
            }
        }
    }
}

/// Runs a program to its end; an error has its output.
pub(super) async fn run(mut command: Command) -> Result<()> {
    // std sends the parent's death signal when the thread that forked ends: so one thread for all.
    let name = Path::new(command.get_program()).display().to_string();
    let output = tokio::task::spawn_blocking(move || command.output()).await?;
    let output = output.with_context(|| format!("cannot run {name}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{name} failed: {}", said.trim());
    Ok(())
}
