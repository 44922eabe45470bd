//! Exact costs: the server's own counters and the kernel's, read at two moments.
//!
//! Promises: what the bench itself asks the database does not count. Must never: guess; what cannot
//! be known is absent. Backends publish their counters once a second and when they end, so a window
//! is exact when the sessions that worked in it have gone ([`Observer::alone`]). WAL and CPU are those
//! of the whole server: on a given one, of all its users.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;
use tokio_postgres::{Client, Row};

use super::proc::family_cpu_us;

/// Longest wait for sessions to leave and for workers to appear.
const PATIENCE: Duration = Duration::from_secs(30);
/// Longest time between two reports of PostgreSQL 14's backends to its collector.
const COLLECTOR_DELAY: Duration = Duration::from_millis(600);

const COUNTERS: &str = "\
select w.wal_bytes::bigint, w.wal_records, w.wal_fpi, d.xact_commit, d.blks_hit + d.blks_read,
       t.updated, t.hot, t.dead
  from pg_stat_wal w, pg_stat_database d,
       (select coalesce(sum(n_tup_upd), 0)::bigint as updated, coalesce(sum(n_tup_hot_upd), 0)::bigint as hot,
               coalesce(sum(n_dead_tup), 0)::bigint as dead
          from pg_stat_user_tables where schemaname in ('tuskline', 'tuskline_core')) t
 where d.datname = current_database()";

const CALLS: &str = "\
select coalesce(sum(s.calls), 0)::bigint, coalesce(sum(s.shared_blks_hit + s.shared_blks_read), 0)::bigint
  from pg_stat_statements s
  join pg_database d on d.oid = s.dbid where d.datname = current_database()";

/// Counters at one moment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Meter {
    wal_bytes: i64,
    wal_records: i64,
    wal_fpi: i64,
    commits: i64,
    blocks: i64,
    updated: i64,
    hot: i64,
    dead: i64,
    statements: Option<i64>,
    statement_blocks: Option<i64>,
    server_cpu_us: Option<u64>,
    client_cpu_us: Option<u64>,
}

/// Costs of one task: the difference of two readings. Absent: not known here, or no tasks.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Cost {
    /// Write-ahead log, with page images.
    pub wal_bytes_per_task: Option<f64>,
    pub wal_records_per_task: Option<f64>,
    /// Full-page images among them.
    pub wal_fpi_per_task: Option<f64>,
    /// Pages looked at, in shared buffers or not.
    pub buffer_hits_per_task: Option<f64>,
    /// Buffer hits of clients' statements; the rest is mostly vacuum's. Needs `pg_stat_statements`.
    pub statement_hits_per_task: Option<f64>,
    /// CPU of the postmaster and all its children, in µs; the kernel counts in ticks of 10 ms.
    pub server_cpu_us_per_task: Option<f64>,
    /// CPU of the workers and of the bench itself, in µs.
    pub client_cpu_us_per_task: Option<f64>,
    /// Transactions committed, read-only ones included.
    pub commits_per_task: Option<f64>,
    /// Statements sent by clients; needs `pg_stat_statements`.
    pub statements_per_task: Option<f64>,
    /// Share of updates that touched no index, 0 to 1.
    pub hot_share: Option<f64>,
    /// Dead rows left behind; below zero when a vacuum took away more.
    pub dead_tuples_per_task: Option<f64>,
}

impl Meter {
    /// Costs of each of `tasks` tasks between this reading and a later one.
    pub(super) fn until(self, later: Self, tasks: u64) -> Cost {
        #[allow(clippy::cast_precision_loss)]
        let share = |part: i64, whole: i64| (whole > 0).then(|| round(part as f64 / whole as f64));
        let tasks = i64::try_from(tasks).unwrap_or(i64::MAX);
        let per_task = |from: i64, to: i64| share(to - from, tasks);
        let known = |from: Option<i64>, to: Option<i64>| per_task(from?, to?);
        let micros = |from: Option<u64>, to: Option<u64>| {
            share(i64::try_from(to?.saturating_sub(from?)).ok()?, tasks)
        };
        Cost {
            wal_bytes_per_task: per_task(self.wal_bytes, later.wal_bytes),
            wal_records_per_task: per_task(self.wal_records, later.wal_records),
            wal_fpi_per_task: per_task(self.wal_fpi, later.wal_fpi),
            buffer_hits_per_task: per_task(self.blocks, later.blocks),
            statement_hits_per_task: known(self.statement_blocks, later.statement_blocks),
            server_cpu_us_per_task: micros(self.server_cpu_us, later.server_cpu_us),
            client_cpu_us_per_task: micros(self.client_cpu_us, later.client_cpu_us),
            commits_per_task: per_task(self.commits, later.commits),
            statements_per_task: known(self.statements, later.statements),
            hot_share: share(later.hot - self.hot, later.updated - self.updated),
            dead_tuples_per_task: per_task(self.dead, later.dead),
        }
    }

    /// Transactions between two readings, of sessions in which every statement is one. Statements are
    /// counted as they end; commits, where `pg_stat_statements` is missing, up to 10 s later by a
    /// session that has little to do, and those of autovacuum with them.
    pub(super) fn transactions_until(self, later: Self) -> i64 {
        let statements = later.statements.zip(self.statements).map(|(to, from)| to - from);
        statements.unwrap_or(later.commits - self.commits)
    }

    /// CPU of the server between two readings, in µs.
    pub(super) fn server_cpu_us_until(self, later: Self) -> Option<u64> {
        Some(later.server_cpu_us?.saturating_sub(self.server_cpu_us?))
    }
}

/// Four decimals: more is noise, and fewer would hide a commit among thousands of tasks.
pub(super) fn round(value: f64) -> f64 {
    (value * 10_000.0).round() / 10_000.0
}

/// A session that looks on, and keeps count of its own statements.
pub(super) struct Observer {
    client: Client,
    postmaster: Option<u32>,
    counts_calls: bool,
    asked: AtomicU64,
}

impl Observer {
    /// Looks on over this session. `postmaster`: the server's process, when it runs on this machine.
    pub(super) async fn new(client: Client, postmaster: Option<u32>) -> Self {
        let counts_calls = client.query_typed(CALLS, &[]).await.is_ok();
        Self { client, postmaster, counts_calls, asked: AtomicU64::new(0) }
    }

    /// The rows of a statement.
    pub(super) async fn rows(&self, sql: &str) -> anyhow::Result<Vec<Row>> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        Ok(self.client.query_typed(sql, &[]).await?)
    }

    /// The only row of a statement.
    pub(super) async fn row(&self, sql: &str) -> anyhow::Result<Row> {
        let mut rows = self.rows(sql).await?;
        anyhow::ensure!(rows.len() == 1, "{} rows from {sql}", rows.len());
        Ok(rows.remove(0))
    }

    /// Runs one statement outside any window, such as a vacuum.
    pub(super) async fn execute(&self, sql: &str) -> anyhow::Result<()> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        Ok(self.client.batch_execute(sql).await?)
    }

    /// Looks every 50 ms until a question is answered with true.
    ///
    /// # Errors
    /// It was not within `limit`; `what` says what was waited for.
    pub(super) async fn until(&self, sql: &str, what: &str, limit: Duration) -> anyhow::Result<()> {
        let deadline = Instant::now() + limit;
        while !self.row(sql).await?.get::<_, bool>(0) {
            anyhow::ensure!(Instant::now() < deadline, "{what}: not within {limit:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    /// Waits until so many workers are registered.
    pub(super) async fn until_workers(&self, workers: u64) -> anyhow::Result<()> {
        let sql =
            format!("select count(*) >= {workers} from tuskline.executor where ended_at is null");
        self.until(&sql, "the start of the workers", PATIENCE).await
    }

    /// Waits until no other session is connected: then every counter is complete.
    pub(super) async fn alone(&self) -> anyhow::Result<()> {
        let others = "select not exists (select from pg_stat_activity where datname = current_database() \
                      and backend_type = 'client backend' and pid <> pg_backend_pid())";
        self.until(others, "the end of the other sessions", PATIENCE).await
    }

    /// Reads every counter, less what this session added to them.
    pub(super) async fn read(&self) -> anyhow::Result<Meter> {
        match self.row("select pg_stat_force_next_flush()").await {
            Ok(_) => {}
            Err(_) => tokio::time::sleep(COLLECTOR_DELAY).await, // before PostgreSQL 15
        }
        let own = i64::try_from(self.asked.load(Ordering::Relaxed))?;
        let counted = self.row(COUNTERS).await?;
        let calls = match self.counts_calls {
            true => Some(self.row(CALLS).await?),
            false => None,
        };
        let calls = calls.as_ref();
        let client_cpu_us = family_cpu_us(std::process::id(), self.postmaster);
        Ok(Meter {
            wal_bytes: counted.get(0),
            wal_records: counted.get(1),
            wal_fpi: counted.get(2),
            commits: counted.get::<_, i64>(3) - own,
            blocks: counted.get(4),
            updated: counted.get(5),
            hot: counted.get(6),
            dead: counted.get(7),
            statements: calls.map(|row| row.get::<_, i64>(0) - own - 1),
            statement_blocks: calls.map(|row| row.get(1)),
            server_cpu_us: self.postmaster.and_then(|pid| family_cpu_us(pid, None)),
            client_cpu_us,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: Meter = Meter {
        wal_bytes: 0,
        wal_records: 0,
        wal_fpi: 0,
        commits: 0,
        blocks: 0,
        updated: 0,
        hot: 0,
        dead: 0,
        statements: None,
        statement_blocks: None,
        server_cpu_us: None,
        client_cpu_us: Some(0),
    };

    #[test]
    fn what_is_not_known_is_absent_and_the_rest_is_divided() {
        let later = Meter { wal_bytes: 1000, dead: -5, client_cpu_us: Some(30), ..NOTHING };
        let cost = NOTHING.until(later, 10);
        assert_eq!(cost.wal_bytes_per_task, Some(100.0));
        assert_eq!(cost.dead_tuples_per_task, Some(-0.5));
        assert_eq!(cost.client_cpu_us_per_task, Some(3.0));
        assert_eq!((cost.server_cpu_us_per_task, cost.statements_per_task), (None, None));
        assert_eq!(cost.hot_share, None);
        assert_eq!(NOTHING.until(later, 0).wal_bytes_per_task, None);
    }

    #[test]
    fn transactions_are_the_statements_where_these_are_counted() {
        let later = Meter { commits: 30, statements: Some(7), ..NOTHING };
        assert_eq!(NOTHING.transactions_until(later), 30);
        let counted = Meter { statements: Some(2), ..NOTHING };
        assert_eq!(counted.transactions_until(later), 5);
    }
}
