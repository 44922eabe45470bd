//! A look at tasks within a budget of pages and time.
//!
//! Promises: it reads at most [`MOST_PAGES`] pages, begins no step after [`PATIENCE`], and says how
//! far it came. Must never: end in an error because its time is over.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::Value;
use tokio::time::Instant;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Error};

use super::reach::{Extent, extent, first_ids, pages_read};
use super::{Bounds, Filter, Source, Step, Tasks, list};

/// Most pages that a look reads.
pub const MOST_PAGES: i64 = 20_000;
/// The part of them that the steps may plan with. The rest is for what stands around them.
const PLANNED_PAGES: i64 = 15_000;
/// Time for the steps.
const PATIENCE: Duration = Duration::from_millis(400);
/// Rows of each kind in the first step, and the least in one. With words, the least is the first.
const FIRST_ROWS: i64 = 1_000;
const LEAST_ROWS: i64 = 200;
/// Pages that the words of a step may cost: those of the statement and of one large payload.
const PAGES_OF_WORDS: i64 = super::MOST_PAGES + 600;
/// An id may be older than the one before it by so much.
const DISORDER: TimeDelta = TimeDelta::minutes(1);

/// Where a look begins, and how many tasks it is to find.
#[derive(Debug, Clone)]
pub struct Trace {
    /// Before these ids. Empty: at the newest.
    pub from: Vec<i64>,
    /// Most tasks to find.
    pub limit: i64,
}

/// A look.
#[derive(Debug, Clone)]
pub struct Scanned {
    /// The newest first.
    pub tasks: Vec<Value>,
    /// Tasks that were looked at.
    pub looked: i64,
    /// An estimate of how many there are.
    pub all: i64,
    /// Where they come from.
    pub source: Source,
    /// When the last of these was scheduled.
    pub back_to: Option<DateTime<Utc>>,
    /// Where the look goes on. None: there is nothing behind.
    pub next: Option<Vec<i64>>,
    /// It found as many as it was to find.
    pub is_full: bool,
    /// Pages that it read.
    pub pages: i64,
    /// Its time.
    pub took: Duration,
}

/// Looks for tasks from a place on.
///
/// # Errors
/// The connection's or the server's.
pub async fn look(client: &Client, filter: &Filter, trace: Trace) -> Result<Scanned, Error> {
    let source = filter.source();
    // Without sorts, rows come in the order of the index, also where no statistics say how many.
    let settings = "set local jit = off; set local enable_sort = off;
                    set local max_parallel_workers_per_gather = 0;
                    set local statement_timeout = 1000";
    client.batch_execute(settings).await?;
    let extent = extent(client, source).await?;
    let begun = Instant::now();
    let at_first = pages_read(client, &extent).await?;
    let mut walk = Walk {
        client,
        filter,
        extent,
        begun,
        at_first,
        bounds: Bounds::of(client).await?.before(&trace.from),
        rows: first_rows(filter, trace.limit),
        look: Scanned {
            tasks: Vec::new(),
            looked: 0,
            all: 0,
            source,
            back_to: None,
            next: None,
            is_full: false,
            pages: 0,
            took: Duration::ZERO,
        },
    };
    walk.bound().await?;
    while walk.step(trace.limit).await? {}
    walk.look.all = walk.extent.rows.max(walk.look.looked);
    walk.look.took = begun.elapsed();
    Ok(walk.look)
}

fn first_rows(filter: &Filter, limit: i64) -> [i64; 2] {
    let rows = match filter.is_empty() || filter.source() == Source::Causes {
        true => limit + 1,
        false if filter.words.is_empty() => FIRST_ROWS,
        false => LEAST_ROWS,
    };
    [rows; 2]
}

struct Walk<'a> {
    client: &'a Client,
    filter: &'a Filter,
    extent: Extent,
    begun: Instant,
    /// Pages that the transaction had read before.
    at_first: i64,
    bounds: Bounds,
    rows: [i64; 2],
    look: Scanned,
}

impl Walk<'_> {
    /// Finds the ids at which the times of the filter are.
    async fn bound(&mut self) -> Result<(), Error> {
        if let Some(after) = self.filter.after {
            self.bounds = self.bounds.not_below(&first_ids(self.client, after - DISORDER).await?);
        }
        if let Some(before) = self.filter.before.filter(|_| self.bounds.ids().is_empty()) {
            self.bounds = self.bounds.before(&first_ids(self.client, before + DISORDER).await?);
        }
        self.look.next = Some(self.bounds.ids());
        self.note_pages().await
    }

    async fn note_pages(&mut self) -> Result<(), Error> {
        let counted = pages_read(self.client, &self.extent).await? - self.at_first;
        // A server that counts nothing: some ten tasks have a page.
        self.look.pages = counted.max(self.look.looked / 10);
        Ok(())
    }

    /// One step. Returns whether there is to be another.
    async fn step(&mut self, limit: i64) -> Result<bool, Error> {
        let left = PATIENCE.saturating_sub(self.begun.elapsed()).as_millis();
        let found = i64::try_from(self.look.tasks.len()).unwrap_or(i64::MAX);
        let step = Step { limit: limit - found, rows: self.rows };
        let Some(tasks) = self.within(left.max(50), step).await? else { return Ok(false) };
        self.look.looked += tasks.looked[0] + tasks.looked[1];
        self.look.back_to = tasks.back_to.or(self.look.back_to);
        self.look.tasks.extend(tasks.tasks);
        self.look.is_full = tasks.is_full;
        let goes_on = tasks.is_full || tasks.is_cut;
        self.bounds = tasks.next;
        self.look.next = goes_on.then(|| self.bounds.ids());
        self.note_pages().await?;
        Ok(!tasks.is_full && goes_on && self.plan(tasks.looked))
    }

    /// The tasks of a step; None: its time was over.
    async fn within(&mut self, ms: u128, step: Step) -> Result<Option<Tasks>, Error> {
        let begin = format!("savepoint look; set local statement_timeout = {ms}");
        self.client.batch_execute(&begin).await?;
        match list(self.client, self.filter, self.bounds, step).await {
            Ok(tasks) => {
                let end = "set local statement_timeout = 1000; release savepoint look";
                self.client.batch_execute(end).await?;
                Ok(Some(tasks))
            }
            Err(error) if error.code() == Some(&SqlState::QUERY_CANCELED) => {
                self.client.batch_execute("rollback to savepoint look").await?;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Plans the rows of the next step: by the pages that they cost at most, and by the speed so far.
    /// False: the budget is used.
    fn plan(&mut self, looked: [i64; 2]) -> bool {
        let reserve = if self.filter.words.is_empty() { 0 } else { PAGES_OF_WORDS };
        let pages = PLANNED_PAGES - self.look.pages - reserve;
        let by_pages = pages as f64 / dearest_row(self.look.source) / 2.0;
        let took = self.begun.elapsed();
        let per_second = self.look.looked as f64 / took.as_secs_f64().max(1e-3);
        let by_time = PATIENCE.saturating_sub(took).as_secs_f64() * per_second / 2.0;
        let most = by_pages.min(by_time) as i64;
        for (rows, looked) in self.rows.iter_mut().zip(looked) {
            let wanted = if looked < *rows { 2 * looked } else { 4 * *rows };
            *rows = wanted.clamp(LEAST_ROWS, most.max(LEAST_ROWS));
        }
        most >= LEAST_ROWS
    }
}

/// Pages that a row costs at most. A row changes in its page, so a task is one page and a part of the
/// index. A dead letter is a probe of its task, too, and a page of each cause that is probed.
fn dearest_row(source: Source) -> f64 {
    match source {
        Source::Segments => 1.2,
        Source::DeadLetters => 8.0,
        Source::Causes => 24.0,
    }
}
