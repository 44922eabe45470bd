//! Disturbances that any client with the rights could cause, by SQL.
//!
//! Each acts on one database and spares the injector's own sessions. A disturbance with a duration
//! holds its resources that long and returns then; dropping the future ends it at once.

use std::time::Duration;

use anyhow::{Context, Result};
use futures_util::future::join_all;
use tokio_postgres::Client;

use super::Server;
use super::launch::is_full;

/// Sessions that are asked for at once to use up all slots.
const WAVE: usize = 16;

impl Server {
    /// Ends up to `n` sessions of the database's clients, drawn by `choice`; returns how many.
    ///
    /// # Errors
    /// When the server does not answer.
    pub async fn terminate_backends(&self, database: &str, n: u32, choice: u64) -> Result<usize> {
        self.at_backends("pg_terminate_backend", database, n, choice).await
    }

    /// Cancels the statements of up to `n` such sessions, drawn in the same way. A commit that
    /// waits for a synchronous standby is acknowledged then, with a warning.
    ///
    /// # Errors
    /// As [`terminate_backends`](Self::terminate_backends).
    pub async fn cancel_backends(&self, database: &str, n: u32, choice: u64) -> Result<usize> {
        self.at_backends("pg_cancel_backend", database, n, choice).await
    }

    async fn at_backends(
        &self,
        act: &'static str,
        database: &str,
        n: u32,
        choice: u64,
    ) -> Result<usize> {
        // The draw comes first: the planner may not act on a row that the limit leaves out.
        let query = format!(
            "with drawn as materialized (
                 select pid from pg_stat_activity
                 where datname = $1 and backend_type = 'client backend'
                   and application_name <> $2
                 order by md5(pid || $3) limit $4)
             select count(*) filter (where {act}(pid)) from drawn"
        );
        let session = self.patient_session("postgres").await?;
        let parameters = (choice.to_string(), i64::from(n));
        let row = session
            .query_one(&query, &[&database, &super::OURS, &parameters.0, &parameters.1])
            .await?;
        Ok(usize::try_from(row.get::<_, i64>(0))?)
    }

    /// Holds a snapshot, as a long report would: nothing that dies meanwhile can be vacuumed.
    ///
    /// # Errors
    /// When the server does not answer, or ends the session before the time.
    pub async fn hold_snapshot(&self, database: &str, duration: Duration) -> Result<()> {
        let session = self.patient_session(database).await?;
        // An id of its own holds the horizon also where the snapshot alone would not.
        let begin = "begin isolation level repeatable read; select pg_current_xact_id()";
        session.batch_execute(begin).await?;
        hold(session, duration).await
    }

    /// Runs `sql`, which locks rows and returns their ids.
    ///
    /// # Errors
    /// When the server does not answer, and when `sql` fails.
    pub async fn lock_rows(&self, database: &str, sql: &str) -> Result<LockedRows> {
        let session = self.patient_session(database).await?;
        session.batch_execute("begin").await?;
        let rows = session.query(sql, &[]).await.context("the rows cannot be locked")?;
        Ok(LockedRows { ids: rows.iter().map(|row| row.get(0)).collect(), session })
    }

    /// Opens up to `n` sessions and keeps them; returns how many there was room for. They are a
    /// superuser's: when `n` is large enough even our own next session is refused meanwhile.
    ///
    /// # Errors
    /// When no session at all can be had.
    pub async fn use_up_connections(
        &self,
        database: &str,
        n: u32,
        duration: Duration,
    ) -> Result<usize> {
        let mut sessions: Vec<Client> = Vec::new();
        let mut full = false;
        // Sessions open in waves, so that slots that become free meanwhile are taken, too.
        while !full && sessions.len() < n as usize {
            let wave = (n as usize - sessions.len()).min(WAVE);
            for opened in join_all((0..wave).map(|_| self.session(database))).await {
                match opened {
                    Ok(session) => sessions.push(session),
                    Err(error) if sessions.is_empty() && !is_full(&error) => return Err(error),
                    Err(_) => full = true,
                }
            }
        }
        tokio::time::sleep(duration).await;
        Ok(sessions.len())
    }
}

/// A session that sits on the locks of rows; dropped, it lets go.
pub struct LockedRows {
    /// Which rows.
    pub ids: Vec<i64>,
    session: Client,
}

impl LockedRows {
    /// Stays idle in the transaction, then rolls back.
    ///
    /// # Errors
    /// When the session ends before the time.
    pub async fn hold(self, duration: Duration) -> Result<()> {
        hold(self.session, duration).await
    }
}

/// Does nothing for a while, then says whether the session was there to the end.
async fn hold(session: Client, duration: Duration) -> Result<()> {
    tokio::time::sleep(duration).await;
    session.batch_execute("rollback").await.context("the session ended before its time")
}
