//! A synchronous streaming standby, and its promotion.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use super::copy::copy_cluster;
use super::{Clock, Disk, SUPERUSER, Server, Site, launch};

/// Longest wait for a standby to follow, and for a promotion.
const FOLLOW_LIMIT: Duration = Duration::from_secs(60);

/// Most deadlocks of one DROP.
const DEADLOCKS: u32 = 10;

impl Server {
    /// Makes a standby of this running primary, starts it, and makes it synchronous. From here on
    /// the primary acknowledges a commit only when the standby has it on its disk. While there is
    /// no such standby, commits wait; a commit cancelled then is acknowledged with a warning.
    ///
    /// # Errors
    /// When the copy, the start or the wait for `sync` fails.
    pub async fn standby(&self, site: &Site, name: &str) -> Result<Self> {
        let mut standby = Self::lay_out(site, name, Disk::Plain, Clock::Machine)?;
        self.base_backup(&standby.data).await?;
        let signal = standby.data.join("standby.signal");
        std::fs::write(&signal, "")?;
        site.account().own(&signal)?;
        let host = self.socket_dir().display().to_string();
        let primary = format!("host='{host}' user={SUPERUSER} application_name={name}");
        standby.own_settings = vec![("primary_conninfo".to_owned(), primary)];
        standby.start().await?;
        self.set("synchronous_standby_names", name).await?;
        let query = format!(
            "select coalesce(max(sync_state), '') from pg_stat_replication
             where application_name = '{name}' and state = 'streaming'"
        );
        self.ask_until(&query, "sync", FOLLOW_LIMIT).await?;
        // Commits wait from when the checkpointer has read the setting, which may be later.
        self.session("postgres").await?.batch_execute("checkpoint").await?;
        Ok(standby)
    }

    /// Copies the data directory of this running server into an empty one.
    pub(super) async fn base_backup(&self, data: &Path) -> Result<()> {
        match self.site.tools().pg_basebackup {
            Some(_) => self.take_base_backup(data).await,
            None => self.copy_by_hand(data).await,
        }
    }

    async fn take_base_backup(&self, data: &Path) -> Result<()> {
        let program = self.site.binaries().program("pg_basebackup");
        let mut command = self.site.command(&program, None)?;
        command.args(["--checkpoint=fast", "--wal-method=stream", "--no-sync", "-U", SUPERUSER]);
        command.arg("-h").arg(self.socket_dir()).arg("-D").arg(data);
        launch::run(command).await
    }

    async fn copy_by_hand(&self, data: &Path) -> Result<()> {
        // The session that starts a backup has to stop it, too.
        let session = self.session("postgres").await?;
        let (start, stop) = match self.site.binaries().major {
            ..15 => (
                "select pg_start_backup('standby', true, false)",
                "select labelfile from pg_stop_backup(false, false)",
            ),
            _ => (
                "select pg_backup_start('standby', fast => true)",
                "select labelfile from pg_backup_stop(wait_for_archive => false)",
            ),
        };
        session.batch_execute(start).await?;
        let (from, to) = (self.data_seen_from_here(), data.to_path_buf());
        tokio::task::spawn_blocking(move || copy_cluster(&from, &to)).await??;
        let label: String = session.query_one(stop, &[]).await?.get(0);
        let path = data.join("backup_label");
        std::fs::write(&path, label)?;
        Ok(self.site.account().own(&path)?)
    }

    /// Makes a standby a primary that needs no standby itself, so that writes work; returns the
    /// time until it takes them.
    ///
    /// # Errors
    /// When it is no standby, or does not become a primary in time.
    pub async fn promote(&mut self) -> Result<Duration> {
        let started = Instant::now();
        // Before the promotion: no write may wait for a standby that is not there.
        self.set("synchronous_standby_names", "").await?;
        let promoted = self.ask("postgres", "select pg_promote(false)").await?;
        ensure!(promoted == "t", "{} cannot be promoted", self.name);
        self.ask_until("select pg_is_in_recovery()", "f", FOLLOW_LIMIT).await?;
        Ok(started.elapsed())
    }

    /// Checks that this former primary acknowledges no commit, for as long as `during`.
    ///
    /// # Errors
    /// When it acknowledges one, or cannot be asked.
    pub async fn acknowledge_nothing(&self, during: Duration) -> Result<()> {
        let session = self.session("postgres").await?;
        let commit = session.execute("select pg_logical_emit_message(true, 'probe', '')", &[]);
        match tokio::time::timeout(during, commit).await {
            Ok(Ok(_)) => bail!("{} acknowledges commits that its standby does not have", self.name),
            Ok(Err(error)) => Err(error.into()),
            Err(_) => Ok(()),
        }
    }

    /// Drops every unlogged table of a database that a plain DROP drops, as some platforms do at a promotion.
    ///
    /// # Errors
    /// When none is dropped, or the server refuses for another reason than an object that depends on one.
    pub async fn drop_unlogged_tables(&self, database: &str) -> Result<()> {
        let session = self.session(database).await?;
        let unlogged = "select oid::regclass::text from pg_class
             where relkind = 'r' and relpersistence = 'u' order by oid";
        let names = session.query(unlogged, &[]).await?;
        let mut dropped = 0;
        for name in &names {
            let drop = format!("drop table if exists {}", name.get::<_, &str>(0));
            dropped += u32::from(drop_table(&session, &drop).await?);
        }
        ensure!(dropped > 0, "{database} has no unlogged table");
        Ok(())
    }
}

/// Returns false if an object depends on the table. A session that uses the table may cause a
/// deadlock: the drop is tried again.
async fn drop_table(session: &Client, drop: &str) -> Result<bool> {
    for _ in 0..DEADLOCKS {
        match session.batch_execute(drop).await {
            Ok(()) => return Ok(true),
            Err(error) => match error.code() {
                Some(&SqlState::DEPENDENT_OBJECTS_STILL_EXIST) => return Ok(false),
                Some(&SqlState::T_R_DEADLOCK_DETECTED) => {}
                _ => return Err(error.into()),
            },
        }
    }
    bail!("{drop}: {DEADLOCKS} deadlocks")
}
