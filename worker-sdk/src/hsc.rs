//! The doorway to the database for the worker's side: HSC (ClaimTask, Heartbeat, SetResults) and the
//! verbs around it, typed. No decision is made here.

use std::time::Duration;

use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row, Transaction};

use crate::connect::Session;
use crate::doubt::Doubts;
use crate::json::{JsonOwned, JsonText};
use crate::marks::Around;

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

/// What a heartbeat brings back.
#[derive(Debug)]
pub(crate) struct Beat {
    pub alive: bool,
    /// If they were asked for.
    pub leases: Option<Vec<i64>>,
    /// (task, fence) pairs that shall stop.
    pub cancelled: Vec<(i64, i64)>,
}

/// A queue of a lambda this worker serves.
#[derive(Debug, Clone)]
pub(crate) struct Served {
    pub lambda: String,
    pub priority: crate::Priority,
    pub queue_id: i32,
    pub attempt_timeout: Duration,
}

type Result<T> = std::result::Result<T, tokio_postgres::Error>;

pub(crate) async fn version(client: &Client) -> Result<Option<i32>> {
    Ok(client.query_typed("select tuskline.version()", &[]).await?[0].get(0))
}

pub(crate) async fn define_lambda(client: &Client, name: &str) -> Result<()> {
    client.query_typed("select tuskline.define_lambda($1)", &[(&name, Type::TEXT)]).await?;
    Ok(())
}

pub(crate) async fn executor_lambdas(client: &Client, lambdas: &[String]) -> Result<Vec<Served>> {
    let rows = client
        .query_typed(
            "select lambda, priority, queue_id, attempt_timeout_ms from tuskline.executor_lambdas($1)",
            &[(&lambdas, Type::TEXT_ARRAY)],
        )
        .await?;
    Ok(rows
        .iter()
        .map(|row| Served {
            lambda: row.get(0),
            priority: row.get::<_, &str>(1).parse().unwrap_or(crate::Priority::Normal),
            queue_id: row.get(2),
            attempt_timeout: Duration::from_millis(row.get::<_, i64>(3).unsigned_abs()),
        })
        .collect())
}

pub(crate) async fn register_executor(
    client: &Client,
    host: &str,
    lambdas: &[String],
    lease: Duration,
) -> Result<i64> {
    let pid = i32::try_from(std::process::id()).unwrap_or(0);
    let rows = client
        .query_typed(
            "select tuskline.register_executor($1, $2, $3, $4, make_interval(secs => $5))",
            &[
                (&host, Type::TEXT),
                (&pid, Type::INT4),
                (&lambdas, Type::TEXT_ARRAY),
                (&env!("CARGO_PKG_VERSION"), Type::TEXT),
                (&lease.as_secs_f64(), Type::FLOAT8),
            ],
        )
        .await?;
    Ok(rows[0].get(0))
}

pub(crate) async fn end_executor(client: &Client, executor: i64) -> Result<()> {
    client.query_typed("select tuskline.end_executor($1)", &[(&executor, Type::INT8)]).await?;
    Ok(())
}

pub(crate) async fn rebuild_queues(client: &Client) -> Result<()> {
    client.query_typed("select rebuilt from tuskline.rebuild_queues()", &[]).await?;
    Ok(())
}

pub(crate) async fn heartbeat(
    client: &Client,
    executor: i64,
    draining: bool,
    leases: bool,
) -> Result<Beat> {
    let rows = client
        .query_typed(
            "select alive, leases, cancelled_tasks, cancelled_fences from tuskline.heartbeat($1, $2, $3)",
            &[(&executor, Type::INT8), (&draining, Type::BOOL), (&leases, Type::BOOL)],
        )
        .await?;
    let list = |column| rows[0].get::<_, Option<Vec<i64>>>(column).unwrap_or_default();
    Ok(Beat {
        alive: rows[0].get(0),
        leases: rows[0].get(1),
        cancelled: list(2).into_iter().zip(list(3)).collect(),
    })
}

pub(crate) async fn start(
    client: &Client,
    executor: i64,
    tasks: &[i64],
    fences: &[i64],
) -> Result<Vec<i64>> {
    let rows = client
        .query_typed(
            "select tuskline.start($1, $2, $3)",
            &[(&executor, Type::INT8), (&tasks, Type::INT8_ARRAY), (&fences, Type::INT8_ARRAY)],
        )
        .await?;
    Ok(rows[0].get(0))
}

/// Answers with the tasks that stay ours for now, because others have their rows locked.
pub(crate) async fn release(
    client: &Client,
    executor: i64,
    tasks: &[i64],
    fences: &[i64],
    done_leases: &[i64],
) -> Result<Vec<i64>> {
    let rows = client
        .query_typed(
            "select held from tuskline.release($1, $2, $3, $4)",
            &[
                (&executor, Type::INT8),
                (&tasks, Type::INT8_ARRAY),
                (&fences, Type::INT8_ARRAY),
                (&done_leases, Type::INT8_ARRAY),
            ],
        )
        .await?;
    Ok(rows[0].get(0))
}

pub(crate) async fn release_lease(client: &Client, executor: i64, lease: i64) -> Result<()> {
    client
        .query_typed(
            "select tuskline.release_lease($1, $2)",
            &[(&executor, Type::INT8), (&lease, Type::INT8)],
        )
        .await?;
    Ok(())
}

pub(crate) async fn assert_current(tx: &Transaction<'_>, task: i64, fence: i64) -> Result<()> {
    let params: [(&(dyn ToSql + Sync), Type); 2] = [(&task, Type::INT8), (&fence, Type::INT8)];
    tx.query_typed("select tuskline.assert_current($1, $2)", &params).await?;
    Ok(())
}

pub(crate) async fn complete(
    tx: &Transaction<'_>,
    task: i64,
    fence: i64,
    output: Option<&str>,
) -> Result<()> {
    let output = output.map(JsonText);
    let params: [(&(dyn ToSql + Sync), Type); 3] =
        [(&task, Type::INT8), (&fence, Type::INT8), (&output, Type::JSON)];
    tx.query_typed("select tuskline.complete($1, $2, $3)", &params).await?;
    Ok(())
}

pub(crate) async fn doze(client: &Client, queues: &[i32]) -> Result<Vec<String>> {
    let rows =
        client.query_typed("select tuskline.doze($1)", &[(&queues, Type::INT4_ARRAY)]).await?;
    Ok(rows[0].get(0))
}

/// Whether each queue holds anything above its mark.
pub(crate) async fn look(client: &Client, queues: &[i32], marks: &[i64]) -> Result<Vec<bool>> {
    let params: [(&(dyn ToSql + Sync), Type); 2] =
        [(&queues, Type::INT4_ARRAY), (&marks, Type::INT8_ARRAY)];
    let rows = client.query_typed("select tuskline.look($1, $2)", &params).await?;
    Ok(rows[0].get(0))
}

pub(crate) async fn rouse(client: &Client, queues: &[i32]) -> Result<()> {
    client.query_typed("select tuskline.rouse($1)", &[(&queues, Type::INT4_ARRAY)]).await?;
    Ok(())
}

const EXCHANGE: &str = "select refused, alive, lease_id, popped, first_seq, last_seq, \
    ended_before, xid, task_id, queue_index, attempt, crashes, waited_ms, collection, payload, held \
    from tuskline.exchange($1, $2, $3, $4, $5, $6, $7, $8, $9)";

const EXCHANGE_TYPES: [Type; 9] = [
    Type::INT8,
    Type::INT8_ARRAY,
    Type::INT8_ARRAY,
    Type::JSON,
    Type::INT8_ARRAY,
    Type::INT4_ARRAY,
    Type::INT8_ARRAY,
    Type::INT2_ARRAY,
    Type::INT4_ARRAY,
];

/// A lane's connection with `exchange` prepared on it, unless a transaction pooler stands between.
#[derive(Debug)]
pub(crate) struct Lane {
    pub client: Session,
    doubts: Doubts,
    prepared: Option<tokio_postgres::Statement>,
}

impl Lane {
    pub(crate) async fn on(client: Session, doubts: Doubts, pooled: bool) -> Result<Self> {
        let prepared = match pooled {
            false => Some(client.prepare_typed(EXCHANGE, &EXCHANGE_TYPES).await?),
            true => None,
        };
        Ok(Self { client, doubts, prepared })
    }

    pub(crate) async fn exchange(&self, executor: i64, request: &Request) -> Result<Reply> {
        let notes = request.notes.as_deref().map(JsonText);
        let done = (!request.done_leases.is_empty()).then_some(&request.done_leases);
        let values: [&(dyn ToSql + Sync); 9] = [
            &executor,
            &request.tasks,
            &request.fences,
            &notes,
            &done,
            &request.queues,
            &request.marks,
            &request.groups,
            &request.budgets,
        ];
        let doubts = self.doubts.count();
        let rows = match &self.prepared {
            Some(statement) => self.client.query(statement, &values).await?,
            None => {
                let typed: Vec<_> = values.into_iter().zip(EXCHANGE_TYPES).collect();
                self.client.query_typed(EXCHANGE, &typed).await?
            }
        };
        Ok(Reply { doubtful: self.doubts.count() != doubts, ..Reply::read(&rows[0]) })
    }
}

impl Reply {
    fn read(row: &Row) -> Self {
        let around = |ended_before| Around { ended_before, xid: row.get(7) };
        Self {
            refused: row.get(0),
            alive: row.get(1),
            lease: row.get(2),
            popped: row.get::<_, Option<_>>(3).unwrap_or_default(),
            first_seq: row.get::<_, Option<_>>(4).unwrap_or_default(),
            last_seq: row.get::<_, Option<_>>(5).unwrap_or_default(),
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
