//! The server that is measured: one of our own in a temporary directory, with full durability, or a
//! given one, on which the bench makes a database for itself and drops it at the end.
//!
//! Must never: touch another database of a given server, or change a setting of it.

use std::time::Duration;

use anyhow::Context as _;
use tokio_postgres::Client;
use tokio_postgres::config::Host;

use super::meter::Observer;
use super::proc::{is_backend_of, parent};
use super::{Given, Options};
use tuskline::migrate;
use tuskline_postgres::{Binaries, Cluster, Stop, drop_database};
use tuskline_sdk::{Address, connect_in_turn, drive};

/// How long a host may take to answer.
const LIMIT: Duration = Duration::from_secs(30);

/// Where it happens, and what a workload needs to know of the call.
pub(super) struct Site {
    cluster: Option<Cluster>,
    /// Reaches the server by the database it was given with.
    server: Address,
    /// The same for worker processes; may hold a password.
    url: String,
    database: String,
    quiet: bool,
}

impl Site {
    /// Starts or finds the server, and makes and migrates the database.
    pub(super) async fn open(options: &Options) -> anyhow::Result<Self> {
        let (cluster, server, url) = match &options.given {
            Some(Given { address, url }) => (None, address.clone(), url.clone()),
            None => {
                let cluster = Cluster::temporary(settings(options.page_images)).await?;
                let (address, url) = (cluster.config("postgres").into(), cluster.url("postgres"));
                (Some(cluster), address, url)
            }
        };
        let database = format!("tuskline_bench_{}", std::process::id());
        let site = Self { cluster, server, url, database, quiet: options.quiet };
        site.create_database().await?;
        if let Err(error) = site.prepare().await {
            site.close().await?;
            return Err(error);
        }
        Ok(site)
    }

    /// Puts an empty database in the place of the one that was used.
    pub(super) async fn renew(&self) -> anyhow::Result<()> {
        self.drop_database().await?;
        self.create_database().await?;
        self.prepare().await
    }

    async fn create_database(&self) -> anyhow::Result<()> {
        let create = format!("create database {}", self.database);
        Ok(connect(&self.server).await?.batch_execute(&create).await?)
    }

    async fn prepare(&self) -> anyhow::Result<()> {
        migrate::migrate(&self.address()).await?;
        // Without it, or without the right to it, statements are not counted.
        let client = self.connect().await?;
        let _ = client.batch_execute("create extension pg_stat_statements").await;
        // It forgets the rarest when those of too many databases are known.
        if self.cluster.is_some() {
            let _ = client.batch_execute("select pg_stat_statements_reset()").await;
        }
        Ok(())
    }

    /// Drops the database, or stops the server that was started for it.
    pub(super) async fn close(mut self) -> anyhow::Result<()> {
        match &mut self.cluster {
            Some(cluster) => Ok(cluster.stop(Stop::Fast).await?),
            None => self.drop_database().await,
        }
    }

    async fn drop_database(&self) -> anyhow::Result<()> {
        Ok(drop_database(&connect(&self.server).await?, &self.database).await?)
    }

    /// Kills the server as a crash would and starts it again.
    ///
    /// # Errors
    /// The server is not ours.
    pub(super) async fn crash(&mut self) -> anyhow::Result<()> {
        let cluster = self.cluster.as_mut().context("only a server of our own may be crashed")?;
        cluster.stop(Stop::Immediate).await?;
        Ok(cluster.start_again().await?)
    }

    /// How to reach the database of the bench.
    pub(super) fn address(&self) -> Address {
        self.server.clone().with(|config| {
            config.dbname(&self.database);
        })
    }

    /// A session on it.
    pub(super) async fn connect(&self) -> anyhow::Result<Client> {
        connect(&self.address()).await
    }

    /// The SDK's client on it.
    pub(super) async fn scheduler(&self) -> anyhow::Result<tuskline_sdk::Client> {
        Ok(tuskline_sdk::Client::connect(self.address()).await?)
    }

    /// A session that reads the meters.
    pub(super) async fn observer(&self) -> anyhow::Result<Observer> {
        let client = self.connect().await?;
        let postmaster = match &self.cluster {
            Some(cluster) => Some(cluster.postmaster_pid()),
            None => self.local_postmaster(&client).await?,
        };
        Ok(Observer::new(client, postmaster).await)
    }

    /// The process of a given server, if it runs where we can see it: behind a socket, or at the
    /// loopback, under a number that belongs to a backend of our own database.
    async fn local_postmaster(&self, client: &Client) -> anyhow::Result<Option<u32>> {
        let near = self.server.config().get_hosts().iter().all(|host| match host {
            Host::Tcp(name) => matches!(name.as_str(), "localhost" | "127.0.0.1" | "::1"),
            #[cfg(unix)]
            Host::Unix(_) => true,
        });
        let backend: i32 = client.query_one("select pg_backend_pid()", &[]).await?.get(0);
        let backend = u32::try_from(backend)?;
        let ours = near && is_backend_of(backend, &self.database);
        Ok(if ours { parent(backend) } else { None })
    }

    /// The address for a worker process, which names the database besides.
    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// Name of the database of the bench.
    pub(super) fn database(&self) -> &str {
        &self.database
    }

    /// No live line.
    pub(super) fn quiet(&self) -> bool {
        self.quiet
    }
}

/// A session that lives as long as its client.
async fn connect(address: &Address) -> anyhow::Result<Client> {
    let (client, connection) = connect_in_turn(address, |_| LIMIT).await?;
    tokio::spawn(drive(connection, |_| {}));
    Ok(client)
}

/// Settings of our own server: everything durable (without page images where only the log is looked
/// at), buffers and log large enough that no checkpoint
/// falls into a short run, statements counted where that is installed.
fn settings(page_images: bool) -> Vec<(String, String)> {
    let mut settings = vec![
        ("shared_buffers", "2GB"),
        ("max_wal_size", "8GB"),
        ("fsync", "on"),
        ("full_page_writes", if page_images { "on" } else { "off" }),
        ("synchronous_commit", "on"),
    ];
    if Binaries::find().is_ok_and(|found| found.have_library("pg_stat_statements")) {
        settings.push(("shared_preload_libraries", "pg_stat_statements"));
    }
    settings.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}
