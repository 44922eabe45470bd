//! Exact costs: WAL from the server's own counters, CPU from /proc.

use anyhow::Context as _;
use tokio_postgres::Client;

/// Counters of the whole server at one moment.
#[derive(Debug, Clone, Copy)]
pub struct Meter {
    wal_bytes: i64,
    wal_records: i64,
    wal_fpi: i64,
    commits: i64,
    server_cpu_us: u64,
}

/// Difference of two readings.
#[derive(Debug, Clone, Copy, serde::Serialize)]
pub struct Cost {
    pub wal_bytes_per_task: f64,
    pub wal_records_per_task: f64,
    pub wal_fpi_per_task: f64,
    pub commits_per_task: f64,
    pub server_cpu_us_per_task: f64,
}

impl Meter {
    pub async fn read(client: &Client, postmaster: u32) -> anyhow::Result<Self> {
        client.batch_execute("select pg_stat_force_next_flush()").await.ok(); // PostgreSQL 15 and later
        let row = client
            .query_one(
                "select wal_bytes::bigint, wal_records, wal_fpi, \
                 (select xact_commit from pg_stat_database where datname = current_database()) \
                 from pg_stat_wal",
                &[],
            )
            .await?;
        Ok(Self {
            wal_bytes: row.get(0),
            wal_records: row.get(1),
            wal_fpi: row.get(2),
            commits: row.get(3),
            server_cpu_us: family_cpu_us(postmaster)?,
        })
    }

    #[allow(clippy::cast_precision_loss)]
    pub fn until(self, later: Self, tasks: u64) -> Cost {
        let per_task = |from: i64, to: i64| (to - from) as f64 / tasks as f64;
        Cost {
            wal_bytes_per_task: per_task(self.wal_bytes, later.wal_bytes),
            wal_records_per_task: per_task(self.wal_records, later.wal_records),
            wal_fpi_per_task: per_task(self.wal_fpi, later.wal_fpi),
            commits_per_task: per_task(self.commits, later.commits),
            server_cpu_us_per_task: (later.server_cpu_us - self.server_cpu_us) as f64
                / tasks as f64,
        }
    }
}

/// CPU of the postmaster, its living children and those it has reaped.
fn family_cpu_us(postmaster: u32) -> anyhow::Result<u64> {
    let mut total = cpu_us(postmaster, true)?;
    for entry in std::fs::read_dir("/proc")?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        if parent(pid) == Some(postmaster) {
            total += cpu_us(pid, false).unwrap_or(0);
        }
    }
    Ok(total)
}

fn parent(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// CPU of one process in µs; with its reaped children if asked.
pub fn cpu_us(pid: u32, reaped: bool) -> anyhow::Result<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let fields: Vec<u64> = stat
        .rsplit_once(')')
        .context("a stat line")?
        .1
        .split_whitespace()
        .map(|field| field.parse().unwrap_or(0))
        .collect();
    let ticks = fields[11] + fields[12] + if reaped { fields[13] + fields[14] } else { 0 };
    Ok(ticks * 10_000) // 100 ticks a second on Linux
}
