//! Earlier copies of a database that take its place: dumps, databases made from it, and copies of
//! the data directory. No session is connected to the database during a replacement.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use tuskline_postgres::drop_database;

use super::{Disk, PAUSE, PORT, SUPERUSER, Server, launch};

/// Longest wait for the sessions of a database to end.
const LEAVE_LIMIT: Duration = Duration::from_secs(20);

/// Name of the point to which [`Server::recover_to`] recovers.
const POINT: &str = "fault";

/// Processes that restore a dump side by side.
const RESTORERS: &str = "2";

impl Server {
    /// Dumps a database into a file, while other sessions work in it.
    ///
    /// # Errors
    /// When `pg_dump` fails, or is absent.
    pub async fn dump(&self, database: &str, file: &Path) -> Result<()> {
        let mut command = self.tool("pg_dump")?;
        command.args(["--format=custom", "--compress=0", "--file"]).arg(file).arg(database);
        launch::run(command).await
    }

    /// Makes a database of a dump.
    ///
    /// # Errors
    /// When `pg_restore` fails, or is absent.
    pub async fn restore(&self, file: &Path, database: &str) -> Result<()> {
        self.in_postgres(&format!("create database {database}")).await?;
        let mut command = self.tool("pg_restore")?;
        command.args(["--exit-on-error", "--jobs", RESTORERS, "--dbname", database]).arg(file);
        launch::run(command).await
    }

    /// Makes database `copy` from another, to which no session may be connected.
    ///
    /// # Errors
    /// When the server refuses.
    pub async fn copy_database(&self, database: &str, copy: &str) -> Result<()> {
        self.in_postgres(&format!("create database {copy} template {database}")).await
    }

    /// Ends every session of a database, and refuses new ones until [`Self::open`].
    ///
    /// # Errors
    /// When the server refuses, or a session does not end.
    pub async fn close(&self, database: &str) -> Result<()> {
        self.in_postgres(&format!("alter database {database} allow_connections false")).await?;
        let session = self.patient_session("postgres").await?;
        let end = "select count(*) filter (where pg_terminate_backend(pid)) from pg_stat_activity \
                   where datname = $1";
        let started = Instant::now();
        while session.query_one(end, &[&database]).await?.get::<_, i64>(0) > 0 {
            if started.elapsed() > LEAVE_LIMIT {
                bail!("a session does not leave {database}");
            }
            tokio::time::sleep(PAUSE).await;
        }
        Ok(())
    }

    /// Accepts sessions of a database again.
    ///
    /// # Errors
    /// When the server refuses.
    pub async fn open(&self, database: &str) -> Result<()> {
        self.in_postgres(&format!("alter database {database} allow_connections true")).await
    }

    /// Database `copy` takes the name of another, which is `past` from then on. Both are closed.
    ///
    /// # Errors
    /// When the server refuses.
    pub async fn swap(&self, database: &str, copy: &str, past: &str) -> Result<()> {
        let renames = [
            format!("alter database {database} rename to {past}"),
            format!("alter database {copy} rename to {database}"),
        ];
        self.in_postgres(&format!("begin; {}; commit", renames.join("; "))).await
    }

    /// Removes a database with all sessions in it.
    ///
    /// # Errors
    /// When the server refuses.
    pub async fn drop_database(&self, database: &str) -> Result<()> {
        let session = self.patient_session("postgres").await?;
        Ok(drop_database(&session, database).await?)
    }

    /// Copies the directories of a stopped server, and says where they are.
    ///
    /// # Errors
    /// When a file cannot be copied.
    pub async fn keep_cold_copy(&self, name: &str) -> Result<PathBuf> {
        anyhow::ensure!(!self.running(), "{} runs", self.name);
        let kept = self.place(name)?;
        copy(&self.data_seen_from_here(), &kept.join("data")).await?;
        if let Some(log) = self.log_elsewhere() {
            copy(&log, &kept.join("wal")).await?;
        }
        Ok(kept)
    }

    /// Puts a cold copy back in place of the directories of a stopped server.
    ///
    /// # Errors
    /// When a file cannot be removed or copied.
    pub async fn put_cold_copy_back(&self, kept: &Path) -> Result<()> {
        anyhow::ensure!(!self.running(), "{} runs", self.name);
        replace(&kept.join("data"), &self.data_seen_from_here()).await?;
        if let Some(log) = self.log_elsewhere() {
            replace(&kept.join("wal"), &log).await?;
        }
        std::fs::remove_dir_all(kept)?;
        Ok(())
    }

    /// Takes a base backup of the running server, and says where it is.
    ///
    /// # Errors
    /// When it cannot be taken.
    pub async fn keep_base_backup(&self, name: &str) -> Result<PathBuf> {
        let kept = self.place(name)?;
        let data = kept.join("data");
        self.site.private_dir(&data)?;
        self.base_backup(&data).await?;
        Ok(kept)
    }

    /// Marks the point that `recover_to` recovers to.
    ///
    /// # Errors
    /// When the server does not answer.
    pub async fn mark_point(&self) -> Result<()> {
        self.ask("postgres", &format!("select pg_create_restore_point('{POINT}')")).await?;
        Ok(())
    }

    /// Puts a base backup in place of the data directory of a stopped server, and keeps its WAL. A
    /// [`start`](Self::start) recovers to the point, and accepts no session before.
    ///
    /// # Errors
    /// When a file cannot be removed or copied.
    pub async fn put_base_backup_back(&mut self, kept: &Path) -> Result<()> {
        anyhow::ensure!(!self.running(), "{} runs", self.name);
        let (data, backup) = (self.data_seen_from_here(), kept.join("data"));
        let log = self.log_elsewhere();
        let archive = kept.join("archive");
        copy(log.as_deref().unwrap_or(&data.join("pg_wal")), &archive).await?;
        if let Some(log) = log {
            // The link to it is part of the data directory, and not of the backup.
            replace(&backup.join("pg_wal"), &log).await?;
            std::fs::remove_dir_all(backup.join("pg_wal"))?;
            std::os::unix::fs::symlink(
                std::fs::read_link(data.join("pg_wal"))?,
                backup.join("pg_wal"),
            )?;
        }
        replace(&backup, &data).await?;
        let signal = data.join("recovery.signal");
        std::fs::write(&signal, "")?;
        self.site.account().own(&signal)?;
        let setting = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        self.own_settings.extend([
            setting("restore_command", &format!("cp \"{}/%f\" \"%p\"", archive.display())),
            setting("recovery_target_name", POINT),
            setting("recovery_target_action", "promote"),
            setting("hot_standby", "off"),
        ]);
        Ok(())
    }

    /// Forgets, once the server has recovered, how it was to.
    ///
    /// # Errors
    /// When the archive cannot be removed.
    pub fn forget_recovery(&mut self, kept: &Path) -> Result<()> {
        let of_it =
            ["restore_command", "recovery_target_name", "recovery_target_action", "hot_standby"];
        self.own_settings.retain(|(name, _)| !of_it.contains(&name.as_str()));
        Ok(std::fs::remove_dir_all(kept)?)
    }

    /// A new directory of the server's.
    fn place(&self, name: &str) -> Result<PathBuf> {
        self.site.private_dir(self.dir.join(name))
    }

    /// The log, where it is not in the data directory, by a path that we can follow.
    fn log_elsewhere(&self) -> Option<PathBuf> {
        match &self.disk {
            Disk::Plain => None,
            Disk::Data(_) => Some(self.dir.join("wal")),
            Disk::Wal(volume) | Disk::Both { wal: volume, .. } => {
                Some(volume.seen_from_here().join("wal"))
            }
        }
    }

    /// A program of the server's, connected to it.
    fn tool(&self, name: &str) -> Result<Command> {
        let mut command = self.site.command(&self.site.binaries().program(name), None)?;
        command.args(["--username", SUPERUSER, "--port", &PORT.to_string(), "--host"]);
        command.arg(self.socket_dir());
        Ok(command)
    }

    async fn in_postgres(&self, sql: &str) -> Result<()> {
        let session = self.patient_session("postgres").await?;
        for statement in sql.split("; ") {
            session.batch_execute(statement).await.with_context(|| statement.to_owned())?;
        }
        Ok(())
    }
}

/// Copies what is in `from` to `to`, which is made, with owners and modes.
async fn copy(from: &Path, to: &Path) -> Result<()> {
    let mut command = Command::new("cp");
    command.arg("-a").arg(from.join(".")).arg(to);
    launch::run(command).await
}

/// The same to a directory that is there, and of which nothing is left.
async fn replace(from: &Path, to: &Path) -> Result<()> {
    for entry in std::fs::read_dir(to)? {
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            true => std::fs::remove_dir_all(entry.path())?,
            false => std::fs::remove_file(entry.path())?,
        }
    }
    copy(from, to).await
}
