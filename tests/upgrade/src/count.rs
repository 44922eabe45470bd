//! The ends of the tasks.

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};
use tokio::time::sleep;
use tokio_postgres::Client;

use super::rights::Rights;

/// The lambda, and the table in which each attempt leaves a row.
pub const SETUP: &str = "
    select tuskline.define_lambda('step');
    create table effect (client text, n bigint, worker text, attempt integer, schema integer)";

/// Longest time for the last tasks to end.
const DRAIN: Duration = Duration::from_secs(60);

/// Pairs of clients and workers, on two schemas; the old worker works on both.
const CELLS: usize = 8;

/// Least number of tasks that succeed in a cell, for each second of a phase. A worker that is alone for half of a
/// phase ends some sixty times as many.
const LEAST_PER_SECOND: u64 = 5;

/// Attempts that fail as `upgrade-load` plans it: the first one of each fiftieth task (`a`, of task `t`).
const PLANNED: &str =
    "a.attempt = 1 and a.outcome = 'retriable_failure' and a.message like '%the first attempt%'
    and (t.payload ->> 'n')::bigint % 50 = 0";

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
    /// Attempts with a result that the schema accepted as the success of the task.
    successes: i64,
}

/// The counts that decide.
#[derive(Debug, Serialize)]
pub struct Verdict {
    old_set: i32,
    new_set: i32,
    cells: Vec<Cell>,
    /// Each cell must have so many successes.
    least: i64,
    scheduled: i64,
    failed: i64,
    lost: i64,
    twice: i64,
    /// Attempts that failed as the load planned it.
    planned_failures: i64,
    /// Attempts that failed or crashed and should not have.
    unplanned_failures: i64,
    /// Attempts after the first one, but for those that follow a planned failure.
    repeated: i64,
    /// The rights that were granted while both builds worked.
    pub rights: Option<Rights>,
    error: Option<String>,
}

impl Verdict {
    pub fn is_good(&self) -> bool {
        let none = [self.failed, self.lost, self.twice, self.unplanned_failures, self.repeated];
        none.iter().all(|count| *count == 0)
            && self.cells.len() == CELLS
            && self.cells.iter().all(|cell| cell.successes >= self.least)
            && self.old_set < self.new_set
            && self.rights.as_ref().is_some_and(|rights| rights.are_kept(self.least))
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { old_set, new_set, least, scheduled, failed, lost, twice, .. } = self;
        writeln!(f, "from function set {old_set} to {new_set}")?;
        writeln!(f, "schema  client  worker  attempts  successes (at least {least})")?;
        for Cell { schema, client, worker, attempts, successes } in &self.cells {
            writeln!(f, "{schema:6}  {client:6}  {worker:6}  {attempts:8}  {successes:9}")?;
        }
        writeln!(f, "scheduled {scheduled}, failed {failed}, lost {lost}, run twice {twice}")?;
        let Self { planned_failures, unplanned_failures, repeated, .. } = self;
        writeln!(
            f,
            "failed attempts: {planned_failures} planned, {unplanned_failures} not; \
             repeated without a plan: {repeated}"
        )?;
        if let Some(rights) = &self.rights {
            write!(f, "{rights}")?;
        }
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
    (old_set, new_set): (i32, i32),
    seconds: u64,
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
    let failures = |which: &str| {
        format!(
            "select count(*) from tuskline.attempts a join tuskline.tasks t on t.id = a.task_id
              where a.outcome <> 'success' and {which} ({PLANNED})"
        )
    };
    // A planned failure has one attempt after it.
    let repeated =
        "select count(*) from effect where attempt > case when n % 50 = 0 then 2 else 1 end";
    let twice = "select count(*) from (
        select from effect group by client, n, attempt having count(*) > 1) d";
    Ok(Verdict {
        old_set,
        new_set,
        cells: cells(client, old_set).await?,
        least: i64::try_from(LEAST_PER_SECOND * seconds)?,
        scheduled,
        failed: said.iter().map(|one| one.failed).sum(),
        lost: scheduled - done.await?,
        twice: count(client, twice).await?,
        planned_failures: count(client, &failures("")).await?,
        unplanned_failures: count(client, &failures("not")).await?,
        repeated: count(client, repeated).await?,
        rights: None,
        error: said.into_iter().find_map(|one| one.error),
    })
}

async fn cells(client: &Client, old_set: i32) -> Result<Vec<Cell>> {
    let sql = "
        select e.schema > $1, e.client, e.worker, count(*), count(t.succeeded)
          from effect e
               left join (select t.payload ->> 'client' as client, (t.payload ->> 'n')::bigint as n, t.attempt, true as succeeded
                            from tuskline.tasks t where t.status = 'success') t using (client, n, attempt)
         group by 1, 2, 3 order by 1, 2 desc, 3 desc";
    let rows = client.query(sql, &[&old_set]).await?;
    let cell = |row: &tokio_postgres::Row| Cell {
        schema: if row.get(0) { "new" } else { "old" },
        client: row.get(1),
        worker: row.get(2),
        attempts: row.get(3),
        successes: row.get(4),
    };
    Ok(rows.iter().map(cell).collect())
}

pub async fn count(client: &Client, sql: &str) -> Result<i64> {
    Ok(client.query_one(sql, &[]).await?.get(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Verdict {
        let cell = |schema, client: &str, worker: &str| Cell {
            schema,
            client: client.to_owned(),
            worker: worker.to_owned(),
            attempts: 60,
            successes: 50,
        };
        let pairs = [("old", "old"), ("old", "new"), ("new", "old"), ("new", "new")];
        let cells = ["old", "new"].into_iter().flat_map(|schema| {
            pairs.into_iter().map(move |(client, worker)| cell(schema, client, worker))
        });
        Verdict {
            old_set: 1,
            new_set: 2,
            cells: cells.collect(),
            least: 50,
            scheduled: 400,
            failed: 0,
            lost: 0,
            twice: 0,
            planned_failures: 8,
            unplanned_failures: 0,
            repeated: 0,
            rights: Some(Rights { successes: 50, stranger_ended: true, deadlocks: 0 }),
            error: None,
        }
    }

    #[test]
    fn each_count_decides() {
        assert!(good().is_good());
        let bad: [fn(&mut Verdict); 12] = [
            |one| one.failed = 1,
            |one| one.lost = 1,
            |one| one.twice = 1,
            |one| one.unplanned_failures = 1,
            |one| one.repeated = 1,
            |one| one.cells[3].successes = 49,
            |one| one.cells.truncate(7),
            |one| one.new_set = 1,
            |one| one.rights = None,
            |one| one.rights.as_mut().unwrap().successes = 49,
            |one| one.rights.as_mut().unwrap().stranger_ended = false,
            |one| one.rights.as_mut().unwrap().deadlocks = 1,
        ];
        for (number, spoil) in bad.iter().enumerate() {
            let mut verdict = good();
            spoil(&mut verdict);
            assert!(!verdict.is_good(), "{number}: {verdict}");
        }
    }
}
