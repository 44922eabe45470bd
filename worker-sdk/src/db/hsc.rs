//! The verbs that a worker calls, typed: HSC (ClaimTask, Heartbeat, SetResults) and those around it.
//! No decision is made here.

mod exchange;
mod release;
mod result_status;

use std::time::Duration;

use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};

use crate::db::Parameters;
use crate::db::connect::Session;

#[cfg(test)]
pub(crate) use exchange::ClaimedTask;
pub(crate) use exchange::{
    AttemptResult, Claim, Claimed, ExchangeSession, LambdaClaim, QueueClaim, QueueFound, Reply,
    Request,
};
pub(crate) use release::{Released, release, release_lease, report_crashes};
pub(crate) use result_status::{Failed, ResultStatus};

/// Number of a lease. Its tasks carry it as their fence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct LeaseId(pub i64);

/// One attempt of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Attempt {
    pub task: i64,
    /// The lease under which it runs.
    pub fence: i64,
}

/// The answer of the database about one attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The outcome is recorded, or the task is given back.
    Done,
    /// This database says that the attempt is not ours any more.
    Refused,
    /// Another session has the row locked. The task stays ours.
    Locked,
}

/// The answer to a heartbeat.
#[derive(Debug)]
pub(crate) struct Beat {
    pub alive: bool,
    /// Not alive, because this database is a copy of an earlier state.
    pub past: bool,
    /// The leases of this worker, if the heartbeat asked for them.
    pub leases: Option<Vec<LeaseId>>,
    /// Attempts that shall stop.
    pub cancelled: Vec<Attempt>,
    /// Attempts that a new gate holds. They go back unless their bodies have begun.
    pub gated: Vec<Attempt>,
}

/// A queue of a lambda this worker serves.
#[derive(Debug, Clone)]
pub(crate) struct Served {
    pub lambda: String,
    pub priority: crate::task::Priority,
    pub queue_id: i32,
    pub attempt_timeout: Duration,
}

type Result<T> = std::result::Result<T, tokio_postgres::Error>;

pub(crate) async fn version(client: &Session) -> Result<Option<i32>> {
    Ok(client.query_typed_one("select tuskline.version()", &[]).await?.get(0))
}

pub(crate) async fn define_lambda(client: &Session, name: &str) -> Result<()> {
    client.query_typed("select tuskline.define_lambda($1)", &[(&name, Type::TEXT)]).await.map(drop)
}

pub(crate) async fn executor_lambdas(client: &Session, lambdas: &[String]) -> Result<Vec<Served>> {
    let sql =
        "select lambda, priority, queue_id, attempt_timeout_ms from tuskline.executor_lambdas($1)";
    let rows = client.query_typed(sql, &[(&lambdas, Type::TEXT_ARRAY)]).await?;
    Ok(rows
        .iter()
        .map(|row| Served {
            lambda: row.get(0),
            priority: row.get::<_, &str>(1).parse().unwrap_or(crate::task::Priority::Normal),
            queue_id: row.get(2),
            attempt_timeout: Duration::from_millis(row.get::<_, i64>(3).unsigned_abs()),
        })
        .collect())
}

/// Lambdas, each with the attempts after which a task is dead. None of them: the database is older than this
/// function, or the role may not call it.
pub(crate) async fn max_attempts(
    client: &Session,
    lambdas: &[String],
) -> Result<Vec<(String, i32)>> {
    let sql = "select lambda, max_attempts from tuskline.max_attempts($1)";
    let rows = match client.query_typed(sql, &[(&lambdas, Type::TEXT_ARRAY)]).await {
        Err(error) if error.code().is_some_and(|code| NOT_THERE.contains(code)) => Vec::new(),
        answered => answered?,
    };
    Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
}

const NOT_THERE: [SqlState; 2] = [SqlState::UNDEFINED_FUNCTION, SqlState::INSUFFICIENT_PRIVILEGE];

/// A process as it registers.
#[derive(Debug)]
pub(crate) struct Registration<'a> {
    pub lambdas: &'a [String],
    pub lease: Duration,
    /// Its name for the installation.
    pub installation: &'a str,
    /// Connections that it keeps at most.
    pub connections: i32,
    /// Its former number, under which nothing runs any more.
    pub former: Option<i64>,
}

pub(crate) async fn register_executor(client: &Session, new: &Registration<'_>) -> Result<i64> {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let pid = i32::try_from(std::process::id()).unwrap_or(0);
    let sql = "select tuskline.register_executor($1, $2, $3, $4, make_interval(secs => $5), \
        $6, $7, $8)";
    let parameters: &Parameters<'_> = &[
        (&host, Type::TEXT),
        (&pid, Type::INT4),
        (&new.lambdas, Type::TEXT_ARRAY),
        (&env!("CARGO_PKG_VERSION"), Type::TEXT),
        (&new.lease.as_secs_f64(), Type::FLOAT8),
        (&new.installation, Type::TEXT),
        (&new.connections, Type::INT4),
        (&new.former, Type::INT8),
    ];
    Ok(client.query_typed_one(sql, parameters).await?.get(0))
}

/// The lambdas, among these, on which the role has the right `work`.
pub(crate) async fn lambdas_to_work_on(
    client: &Session,
    lambdas: &[String],
) -> Result<Vec<String>> {
    let sql = "select array(select l from unnest($1::text[]) as l where tuskline.may(l, 'work'))";
    Ok(client.query_typed_one(sql, &[(&lambdas, Type::TEXT_ARRAY)]).await?.get(0))
}

pub(crate) async fn end_executor(client: &Session, executor: i64) -> Result<()> {
    let sql = "select tuskline.end_executor($1)";
    client.query_typed(sql, &[(&executor, Type::INT8)]).await.map(drop)
}

/// True: this database is a copy, and nothing is claimed for one lease.
pub(crate) async fn rebuild_queues(client: &Session) -> Result<bool> {
    let sql = "select copied from tuskline.rebuild_queues()";
    Ok(client.query_typed_one(sql, &[]).await?.get(0))
}

pub(crate) async fn heartbeat(
    client: &Session,
    executor: i64,
    draining: bool,
    leases: bool,
    acknowledged: i64,
    processes: Option<&[i32]>,
) -> Result<Beat> {
    let sql = "select alive, leases, cancelled_tasks, cancelled_fences, gated_tasks, gated_fences, \
        past from tuskline.heartbeat($1, $2, $3, $4)";
    let mut parameters: Vec<(&(dyn ToSql + Sync), Type)> = vec![
        (&executor, Type::INT8),
        (&draining, Type::BOOL),
        (&leases, Type::BOOL),
        (&acknowledged, Type::INT8),
    ];
    let of_a_host = sql.replace("$4", "$4, $5");
    if let Some(processes) = &processes {
        parameters.push((processes, Type::INT4_ARRAY));
    }
    let sql = if processes.is_some() { &of_a_host } else { sql };
    let row = client.query_typed_one(sql, &parameters).await?;
    let list = |column| row.get::<_, Option<Vec<i64>>>(column).unwrap_or_default();
    let attempts = |tasks, fences| -> Vec<Attempt> {
        let pairs = list(tasks).into_iter().zip(list(fences));
        pairs.map(|(task, fence)| Attempt { task, fence }).collect()
    };
    Ok(Beat {
        alive: row.get(0),
        past: row.get(6),
        leases: row.get::<_, Option<_>>(1).map(lease_ids),
        cancelled: attempts(2, 3),
        gated: attempts(4, 5),
    })
}

/// Counts of a worker: three parallel columns, as `report_attempts` takes them.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub queue_ids: Vec<i32>,
    /// See `tuskline_core.attempt_count.counters`.
    pub counters: Vec<i16>,
    pub amounts: Vec<i64>,
}

impl Report {
    pub(crate) fn push(&mut self, queue_id: i32, counter: i16, amount: i64) {
        self.queue_ids.push(queue_id);
        self.counters.push(counter);
        self.amounts.push(amount);
    }
}

pub(crate) async fn report_attempts(
    client: &Session,
    executor: i64,
    report: &Report,
) -> Result<()> {
    let parameters: &Parameters<'_> = &[
        (&executor, Type::INT8),
        (&report.queue_ids, Type::INT4_ARRAY),
        (&report.counters, Type::INT2_ARRAY),
        (&report.amounts, Type::INT8_ARRAY),
    ];
    let sql = "select tuskline.report_attempts($1, $2, $3, $4)";
    client.query_typed(sql, parameters).await.map(drop)
}

fn lease_ids(numbers: Vec<i64>) -> Vec<LeaseId> {
    numbers.into_iter().map(LeaseId).collect()
}

fn numbers(leases: &[LeaseId]) -> Vec<i64> {
    leases.iter().map(|lease| lease.0).collect()
}

/// Two parallel arrays, as the verbs take attempts.
fn columns(attempts: impl Iterator<Item = Attempt>) -> (Vec<i64>, Vec<i64>) {
    attempts.map(|one| (one.task, one.fence)).unzip()
}

/// claimed -> processing. Returns the tasks that were moved.
pub(crate) async fn start(
    client: &Session,
    executor: i64,
    attempts: &[(Attempt, Option<i32>)],
) -> Result<Vec<i64>> {
    let (tasks, fences) = columns(attempts.iter().map(|(attempt, _)| *attempt));
    let processes: Vec<Option<i32>> = attempts.iter().map(|(_, process)| *process).collect();
    let mut parameters: Vec<(&(dyn ToSql + Sync), Type)> =
        vec![(&executor, Type::INT8), (&tasks, Type::INT8_ARRAY), (&fences, Type::INT8_ARRAY)];
    let mut sql = "select tuskline.start($1, $2, $3)";
    if processes.iter().any(Option::is_some) {
        parameters.push((&processes, Type::INT4_ARRAY));
        sql = "select tuskline.start($1, $2, $3, $4)";
    }
    let parameters = &*parameters;
    Ok(client.query_typed_one(sql, parameters).await?.get(0))
}

/// How many bells the queues share: a bound of what a worker LISTENs to and locks.
const BELLS: i32 = 256;

/// The bell of a queue, as `tuskline_core.bell_of` computes it.
pub(crate) const fn bell_of(queue_id: i32) -> i32 {
    1 + (queue_id - 1) % BELLS
}

/// The answer for a bell under which queues want to sleep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Watched {
    /// Its lock is ours: each insert notifies us.
    Held,
    /// Another worker holds the lock for the same queue. Its notifications reach us, too.
    Taken,
    /// The same, but perhaps for a queue that we do not serve.
    Shared,
    /// A producer has a transaction open: poll.
    Busy,
}

pub(crate) async fn watch(client: &Session, bells: &[i32]) -> Result<Vec<Watched>> {
    let row =
        client.query_typed_one("select tuskline.watch($1)", &[(&bells, Type::INT4_ARRAY)]).await?;
    let watched = |answer: &&str| match *answer {
        "held" => Watched::Held,
        "taken" => Watched::Taken,
        "shared" => Watched::Shared,
        _ => Watched::Busy,
    };
    Ok(row.get::<_, Vec<&str>>(0).iter().map(watched).collect())
}

/// Whether each queue holds anything above its mark.
pub(crate) async fn peek(client: &Session, queues: &[i32], marks: &[i64]) -> Result<Vec<bool>> {
    let parameters: &Parameters<'_> = &[(&queues, Type::INT4_ARRAY), (&marks, Type::INT8_ARRAY)];
    Ok(client.query_typed_one("select tuskline.peek($1, $2)", parameters).await?.get(0))
}

pub(crate) async fn unwatch(client: &Session, bells: &[i32]) -> Result<()> {
    client.query_typed("select tuskline.unwatch($1)", &[(&bells, Type::INT4_ARRAY)]).await.map(drop)
}
