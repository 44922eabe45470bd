//! The ends of the tasks.

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};
use tokio::time::sleep;
use tokio_postgres::Client;

/// The lambda, and the table in which each attempt leaves a row.
pub const SETUP: &str = "
    select tuskline.define_lambda('step');
    create table effect (client text, n bigint, worker text, attempt integer, schema integer)";

/// Longest time for the last tasks to end.
const DRAIN: Duration = Duration::from_secs(60);

/// Pairs of clients and workers, on two schemas; the old worker works on both.
const CELLS: usize = 8;

#[derive(Deserialize)]
struct Scheduled {
    scheduled: i64,
    failed: i64,
    error: Option<String>,
}

/// Attempts of one client's tasks on one worker under one schema.
#[derive(Debug, Serialize)]
struct Cell {
    schema: &'static str,
    client: String,
    worker: String,
    attempts: i64,
}

/// The counts that decide.
#[derive(Debug, Serialize)]
pub struct Verdict {
    old_set: i32,
    new_set: i32,
    cells: Vec<Cell>,
    scheduled: i64,
    failed: i64,
    lost: i64,
    twice: i64,
    error: Option<String>,
}

impl Verdict {
    pub fn is_good(&self) -> bool {
        self.failed == 0
            && self.lost == 0
            && self.twice == 0
            && self.cells.len() == CELLS
            && self.old_set < self.new_set
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { old_set, new_set, scheduled, failed, lost, twice, .. } = self;
        writeln!(f, "from function set {old_set} to {new_set}")?;
        writeln!(f, "schema  client  worker  attempts")?;
        for Cell { schema, client, worker, attempts } in &self.cells {
            writeln!(f, "{schema:6}  {client:6}  {worker:6}  {attempts:8}")?;
        }
        writeln!(f, "scheduled {scheduled}, failed {failed}, lost {lost}, run twice {twice}")?;
        if let Some(error) = &self.error {
            writeln!(f, "the last error of a client: {error}")?;
        }
        let is = if self.is_good() { "good" } else { "NOT GOOD" };
        writeln!(f, "the upgrade is {is}: {} of {CELLS} combinations worked", self.cells.len())
    }
}

/// Waits until each task has ended, and counts.
pub async fn until_done(
    client: &Client,
    said: &[String],
    old_set: i32,
    new_set: i32,
) -> Result<Verdict> {
    let said: Vec<Scheduled> = said
        .iter()
        .map(|text| serde_json::from_str(text).context("what a client said"))
        .collect::<Result<_>>()?;
    let open = "select count(*) from tuskline.tasks where finished_at is null";
    let began = Instant::now();
    while count(client, open).await? > 0 {
        if began.elapsed() > DRAIN {
            bail!("{} tasks do not end", count(client, open).await?);
        }
        sleep(Duration::from_millis(100)).await;
    }
    let scheduled = said.iter().map(|one| one.scheduled).sum();
    let done = count(
        client,
        "select count(*) from tuskline.tasks t where t.status = 'success' and exists (
           select from effect e where e.client = t.payload ->> 'client' and e.n = (t.payload ->> 'n')::bigint)",
    );
    let twice = "select count(*) from (
        select from effect group by client, n, attempt having count(*) > 1) d";
    Ok(Verdict {
        old_set,
        new_set,
        cells: cells(client, old_set).await?,
        scheduled,
        failed: said.iter().map(|one| one.failed).sum(),
        lost: scheduled - done.await?,
        twice: count(client, twice).await?,
        error: said.into_iter().find_map(|one| one.error),
    })
}

async fn cells(client: &Client, old_set: i32) -> Result<Vec<Cell>> {
    let sql = "select schema > $1, client, worker, count(*) from effect group by 1, 2, 3 \
               order by 1, 2 desc, 3 desc";
    let rows = client.query(sql, &[&old_set]).await?;
    let cell = |row: &tokio_postgres::Row| Cell {
        schema: if row.get(0) { "new" } else { "old" },
        client: row.get(1),
        worker: row.get(2),
        attempts: row.get(3),
    };
    Ok(rows.iter().map(cell).collect())
}

async fn count(client: &Client, sql: &str) -> Result<i64> {
    Ok(client.query_one(sql, &[]).await?.get(0))
}
