//! A durable server of the drill's own with one installation, made as an operator makes it.

use std::time::Duration;

use serde_json::Value;
use tuskline_fault::server::{Clock, Disk, Server, Site};

use super::Runbook;
use crate::support::Db;
use crate::support::cli::{Running, on, tuskline, url};

/// The name of the database.
pub const DATABASE: &str = "app";

/// Longest wait of a drill for tasks in their thousands on a machine that does other work, too.
pub const DRAIN_LIMIT: Duration = Duration::from_secs(120);

/// An installation on a server that a drill may break.
pub struct Installation {
    /// A session, and the verbs of services.
    pub db: Db,
    /// The server. It goes before its site does.
    pub server: Server,
    /// Where everything lies.
    pub site: Site,
}

impl Installation {
    /// On a server with these settings.
    pub async fn new(settings: &[(&str, &str)]) -> Self {
        Self::on(Site::new().unwrap(), settings, Disk::Plain).await
    }

    /// The same with a part of it on a disk of its own.
    pub async fn on(site: Site, settings: &[(&str, &str)], disk: Disk) -> Self {
        let made = Server::create_on(&site, "primary", settings, disk, Clock::Machine).await;
        let server = made.unwrap();
        let postgres = Db::on(server.config("postgres"), 0).await;
        postgres.run(&format!("create database {DATABASE}")).await;
        let config = server.config(DATABASE);
        on(&config, "migrate").run().fine();
        Self { db: Db::on(config, 0).await, server, site }
    }

    /// Its address.
    pub fn url(&self) -> String {
        url(&self.db.config)
    }

    /// `tuskline serve` on this installation, until the answer is dropped.
    pub fn serve(&self) -> Running {
        serve_at(&self.url())
    }

    /// A page for its operator.
    pub fn runbook(&self, name: &str) -> Runbook {
        Runbook::open(name, &self.site.binaries().dir, &self.url())
    }

    /// The output of a command with `--json`.
    pub fn json(&self, line: &str) -> Value {
        on(&self.db.config, line).arg("--json").run().json()
    }

    /// The findings of a doctor, without a check of its exit code.
    pub fn findings(&self, line: &str) -> Vec<Value> {
        let ran = on(&self.db.config, line).arg("--json").run();
        serde_json::from_str(&ran.out).unwrap_or_else(|_| panic!("{ran:?}"))
    }

    /// Waits for the answer true, longer than [`Db::until`] does.
    pub async fn until_drained(&self, question: &str) {
        let asking = async {
            while !self.db.one::<bool>(question).await {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let within = tokio::time::timeout(DRAIN_LIMIT, asking).await;
        within.unwrap_or_else(|_| panic!("it never became true: {question}"));
    }
}

/// `tuskline serve` on an address.
pub fn serve_at(url: &str) -> Running {
    tuskline(&["serve"]).database(url).start()
}
