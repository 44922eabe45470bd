//! From a made cluster to one that answers: the server's command line, and the wait for it.

use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config, NoTls};

use super::account::Account;
use super::address::Address;
use super::binaries::Binaries;
use super::data_dir::DataDir;
use super::server::{Server, die_with_parent, last_complaint};
use super::{Durability, Error, Options, SUPERUSER};

/// How long a start may take, recovery after a crash included, and how long we wait for another
/// process that starts or stops one.
pub(super) const START_LIMIT: Duration = Duration::from_secs(300);

/// How long one attempt to connect may take.
const ATTEMPT_LIMIT: Duration = Duration::from_secs(5);

/// The pauses between attempts grow from the first to the second: a start takes a tenth of a
/// second, a recovery minutes.
const PAUSES: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(200));

/// Message of PostgreSQL while the children of a killed postmaster still run.
const CHILDREN_LINGER: &str = "pre-existing shared memory block";

/// Everything a start needs to know, decided once.
#[derive(Debug)]
pub(super) struct Site {
    pub options: Options,
    pub data_dir: DataDir,
    pub account: Account,
    pub binaries: Binaries,
    pub address: Address,
}

/// Pauses that grow, up to a deadline.
pub(super) struct Patience {
    pause: Duration,
    started: Instant,
}

impl Patience {
    pub fn new() -> Self {
        Self { pause: PAUSES.0, started: Instant::now() }
    }

    /// Pauses; `false` when the deadline has passed.
    pub async fn pause(&mut self) -> bool {
        tokio::time::sleep(self.pause).await;
        self.pause = (self.pause * 2).min(PAUSES.1);
        self.started.elapsed() < START_LIMIT
    }
}

/// Whether a server takes connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    Ready,
    NotYet,
}

/// Asks the server on an address. "Not yet" covers no socket, a server that starts or stops, and
/// one too slow to answer; any other refusal is an error.
pub(super) async fn ask(address: &Address) -> Result<Answer, Error> {
    let attempt = async {
        let client = connect(&address.config(SUPERUSER, "postgres")).await?;
        client.simple_query("select 1").await
    };
    match tokio::time::timeout(ATTEMPT_LIMIT, attempt).await {
        Ok(Ok(_)) => Ok(Answer::Ready),
        Err(_) => Ok(Answer::NotYet),
        Ok(Err(error)) => match error.code() {
            Some(code) if *code != SqlState::CANNOT_CONNECT_NOW => {
                Err(Error::database("the running server refused us")(error))
            }
            _ => Ok(Answer::NotYet),
        },
    }
}

/// Connects, and drives the connection until the client is dropped.
pub(super) async fn connect(config: &Config) -> Result<Client, tokio_postgres::Error> {
    let (client, connection) = config.connect(NoTls).await?;
    tokio::spawn(async move {
        // The client's calls report the same error.
        let _ = connection.await;
    });
    Ok(client)
}

impl Site {
    /// Spawns the server and waits until it answers. `ours` gets it as soon as it exists, so that
    /// a caller that drops this future can still stop it.
    pub async fn launch(&self, ours: &mut Option<Server>) -> Result<(), Error> {
        let mut patience = Patience::new();
        loop {
            let (log, length) = self.data_dir.open_log()?;
            let server = ours.insert(Server::spawn(self.command(log)?)?);
            match self.wait_until_ready(server, length).await {
                Err(Error::Start { line, .. })
                    if line.contains(CHILDREN_LINGER) && patience.pause().await => {}
                result => return result,
            }
        }
    }

    async fn wait_until_ready(&self, server: &Server, log_from: u64) -> Result<(), Error> {
        let log = self.data_dir.log();
        let mut patience = Patience::new();
        loop {
            // In this order: a server that ended between the two lines is seen the next time.
            let running = server.running();
            if ask(&self.address).await? == Answer::Ready {
                return Ok(());
            }
            if !running {
                return Err(Error::Start { line: last_complaint(&log, log_from), log });
            }
            if !patience.pause().await {
                let seconds = START_LIMIT.as_secs();
                return Err(Error::Silent { pid: server.pid(), seconds, log });
            }
        }
    }

    fn command(&self, log: File) -> Result<Command, Error> {
        let mut command = self.account.command(&self.binaries.program("postgres"));
        command.arg("-D").arg(self.data_dir.pgdata());
        for (name, value) in self.settings() {
            command.arg("-c").arg(format!("{name}={value}"));
        }
        let too = log.try_clone().map_err(Error::io("share", &self.data_dir.log()))?;
        command.stdout(log).stderr(too);
        die_with_parent(
            &mut command,
            match self.options.durability {
                Durability::Durable => Signal::INT,
                Durability::ThrowAway => Signal::QUIT,
            },
        );
        Ok(command)
    }

    /// The settings that belong to this run rather than to the cluster; the caller's come last and
    /// win.
    fn settings(&self) -> Vec<(String, String)> {
        let tcp = if self.options.tcp_port.is_some() { "127.0.0.1" } else { "" };
        let sockets = quoted_directory(&self.address.socket_dir);
        let sync = match self.options.durability {
            Durability::Durable => "on",
            Durability::ThrowAway => "off",
        };
        let mut settings = vec![
            ("listen_addresses".to_owned(), tcp.to_owned()),
            ("port".to_owned(), self.address.port.to_string()),
            ("unix_socket_directories".to_owned(), sockets),
            ("logging_collector".to_owned(), "off".to_owned()),
        ];
        for name in ["fsync", "full_page_writes", "synchronous_commit"] {
            settings.push((name.to_owned(), sync.to_owned()));
        }
        settings.extend(self.options.settings.iter().cloned());
        settings
    }
}

/// One entry of a list of directories: the quotes keep a comma or a space in it.
fn quoted_directory(dir: &Path) -> String {
    format!("\"{}\"", dir.display().to_string().replace('"', "\"\""))
}
