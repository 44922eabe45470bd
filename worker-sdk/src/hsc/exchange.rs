//! exchange: the results of finished tasks, and the next ones, in one call; what a lane lives on.

use std::time::Duration;

use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use super::Result;
use crate::connect::Session;
use crate::json::{JsonOwned, JsonText};
use crate::low_water_mark::Around;

/// What one exchange sends: results of finished tasks, and what to claim.
#[derive(Debug, Default)]
pub(crate) struct Request {
    pub tasks: Vec<i64>,
    pub fences: Vec<i64>,
    /// JSON array of everything that is not a plain success.
    pub notes: Option<String>,
    pub done_leases: Vec<i64>,
    pub queues: Vec<i32>,
    pub marks: Vec<i64>,
    pub groups: Vec<i16>,
    pub budgets: Vec<i32>,
    /// Per queue, the most to take from it; none: what is left of its group's budget.
    pub bounds: Vec<Option<i32>>,
    /// Most bytes of payloads to claim; one task is claimed whatever its size.
    pub max_bytes: i64,
}

impl Request {
    pub(crate) fn has_results(&self) -> bool {
        !self.tasks.is_empty() || self.notes.is_some()
    }

    /// Nothing to record and nothing to claim.
    pub(crate) fn is_empty(&self) -> bool {
        !self.has_results() && self.done_leases.is_empty() && self.queues.is_empty()
    }
}

/// What one exchange brings back.
#[derive(Debug)]
pub(crate) struct Reply {
    pub alive: bool,
    pub refused: Vec<i64>,
    pub lease: Option<i64>,
    /// Per queue asked for, in that order; `None` where its budget was used up before it.
    pub popped: Vec<Option<i32>>,
    pub first_seq: Vec<Option<i64>>,
    pub last_seq: Vec<Option<i64>>,
    /// The queue, by its place in the request from 0, with which the bytes were used up. Those behind it
    /// were not visited.
    pub cut_at: Option<usize>,
    /// None: it did not come to look.
    pub around: Option<Around>,
    pub tasks: Vec<ClaimedTask>,
    /// Tasks whose results were not recorded, because others have their rows locked.
    pub held: Vec<i64>,
    /// It was committed here, but perhaps not on the synchronous standby.
    pub doubtful: bool,
}

/// One claimed task as it came.
#[derive(Debug)]
pub(crate) struct ClaimedTask {
    pub id: i64,
    /// Index into the queues asked for, from 0.
    pub queue: usize,
    pub attempt: i16,
    pub crashes: i16,
    pub waited: Duration,
    pub collection: Option<String>,
    pub payload: Option<JsonOwned>,
}

const EXCHANGE: &str = "select refused, alive, lease_id, popped, first_seq, last_seq, \
    oldest_writer_xid, xid, task_id, queue_index, attempt, crashes, waited_ms, collection, payload, deferred, \
    cut_at from tuskline.exchange($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)";

const EXCHANGE_TYPES: [Type; 11] = [
    Type::INT8,
    Type::INT8_ARRAY,
    Type::INT8_ARRAY,
    Type::JSON,
    Type::INT8_ARRAY,
    Type::INT4_ARRAY,
    Type::INT8_ARRAY,
    Type::INT2_ARRAY,
    Type::INT4_ARRAY,
    Type::INT4_ARRAY,
    Type::INT8,
];

/// A lane's connection with `exchange` prepared on it, unless a transaction pooler stands between.
#[derive(Debug)]
pub(crate) struct Lane {
    pub client: Session,
    prepared: Option<tokio_postgres::Statement>,
}

impl Lane {
    pub(crate) async fn on(client: Session, pooled: bool) -> Result<Self> {
        let prepared = match pooled {
            false => Some(client.prepare_typed(EXCHANGE, &EXCHANGE_TYPES).await?),
            true => None,
        };
        Ok(Self { client, prepared })
    }

    pub(crate) async fn exchange(&self, executor: i64, request: &Request) -> Result<Reply> {
        let notes = request.notes.as_deref().map(JsonText);
        let done = (!request.done_leases.is_empty()).then_some(&request.done_leases);
        let bounded = request.bounds.iter().any(Option::is_some);
        let bounds = bounded.then_some(&request.bounds);
        let values: [&(dyn ToSql + Sync); 11] = [
            &executor,
            &request.tasks,
            &request.fences,
            &notes,
            &done,
            &request.queues,
            &request.marks,
            &request.groups,
            &request.budgets,
            &bounds,
            &request.max_bytes,
        ];
        let doubts = self.client.doubts();
        let rows = match &self.prepared {
            Some(statement) => self.client.query(statement, &values).await?,
            None => {
                let typed: Vec<_> = values.into_iter().zip(EXCHANGE_TYPES).collect();
                self.client.query_typed(EXCHANGE, &typed).await?
            }
        };
        Ok(Reply { doubtful: self.client.doubts() != doubts, ..Reply::read(&rows[0]) })
    }
}

impl Reply {
    /// The longest that a task which the queue at that place brought had been due.
    pub(crate) fn longest_wait(&self, queue: usize) -> Duration {
        let of_it = self.tasks.iter().filter(|task| task.queue == queue);
        of_it.map(|task| task.waited).max().unwrap_or_default()
    }

    fn read(row: &Row) -> Self {
        let around = |oldest_writer_xid| Around { oldest_writer_xid, xid: row.get(7) };
        Self {
            refused: row.get(0),
            alive: row.get(1),
            lease: row.get(2),
            popped: row.get::<_, Option<_>>(3).unwrap_or_default(),
            first_seq: row.get::<_, Option<_>>(4).unwrap_or_default(),
            last_seq: row.get::<_, Option<_>>(5).unwrap_or_default(),
            cut_at: row.get::<_, Option<i32>>(16).and_then(|at| usize::try_from(at - 1).ok()),
            around: row.get::<_, Option<i64>>(6).map(around),
            tasks: read_tasks(row),
            held: row.get::<_, Option<_>>(15).unwrap_or_default(),
            doubtful: false,
        }
    }
}

fn read_tasks(row: &Row) -> Vec<ClaimedTask> {
    let Some(ids) = row.get::<_, Option<Vec<i64>>>(8) else { return Vec::new() };
    let queues: Vec<i16> = row.get(9);
    let attempts: Vec<i16> = row.get(10);
    let crashes: Vec<i16> = row.get(11);
    let waited: Vec<i32> = row.get(12);
    let mut collections: Vec<Option<String>> = row.get(13);
    let mut payloads: Vec<Option<JsonOwned>> = row.get(14);
    ids.into_iter()
        .enumerate()
        .map(|(at, id)| ClaimedTask {
            id,
            queue: usize::try_from(queues[at] - 1).unwrap_or_default(),
            attempt: attempts[at],
            crashes: crashes[at],
            waited: Duration::from_millis(u64::try_from(waited[at]).unwrap_or_default()),
            collection: collections[at].take(),
            payload: payloads[at].take(),
        })
        .collect()
}
