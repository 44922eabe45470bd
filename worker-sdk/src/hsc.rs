//! The doorway to the database for the worker's side: HSC (ClaimTask, Heartbeat, SetResults) and the
//! verbs around it, typed. No decision is made here.

mod exchange;

use std::time::Duration;

use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Transaction};

use crate::json::JsonText;

#[cfg(test)]
pub(crate) use exchange::ClaimedTask;
pub(crate) use exchange::{Lane, Reply, Request};

/// What a heartbeat brings back.
#[derive(Debug)]
pub(crate) struct Beat {
    pub alive: bool,
    /// Not alive, because this database is a copy of an earlier state.
    pub past: bool,
    /// If they were asked for.
    pub leases: Option<Vec<i64>>,
    /// (task, fence) pairs that shall stop.
    pub cancelled: Vec<(i64, i64)>,
    /// Likewise, what a new gate holds unless its body has begun.
    pub gated: Vec<(i64, i64)>,
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

/// A process as it registers.
#[derive(Debug)]
pub(crate) struct Registration<'a> {
    pub lambdas: &'a [String],
    pub lease: Duration,
    /// What it calls the installation.
    pub installation: &'a str,
    /// Connections that it keeps at most.
    pub connections: i32,
    /// The number that it had before, under which nothing runs any more.
    pub former: Option<i64>,
}

pub(crate) async fn register_executor(client: &Client, new: &Registration<'_>) -> Result<i64> {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let pid = i32::try_from(std::process::id()).unwrap_or(0);
    let rows = client
        .query_typed(
            "select tuskline.register_executor($1, $2, $3, $4, make_interval(secs => $5), \
             $6, $7, $8)",
            &[
                (&host, Type::TEXT),
                (&pid, Type::INT4),
                (&new.lambdas, Type::TEXT_ARRAY),
                (&env!("CARGO_PKG_VERSION"), Type::TEXT),
                (&new.lease.as_secs_f64(), Type::FLOAT8),
                (&new.installation, Type::TEXT),
                (&new.connections, Type::INT4),
                (&new.former, Type::INT8),
            ],
        )
        .await?;
    Ok(rows[0].get(0))
}

pub(crate) async fn end_executor(client: &Client, executor: i64) -> Result<()> {
    client.query_typed("select tuskline.end_executor($1)", &[(&executor, Type::INT8)]).await?;
    Ok(())
}

/// True: this database is a copy, and nothing is claimed for one lease.
pub(crate) async fn rebuild_queues(client: &Client) -> Result<bool> {
    let rows = client.query_typed("select copied from tuskline.rebuild_queues()", &[]).await?;
    Ok(rows[0].get(0))
}

pub(crate) async fn heartbeat(
    client: &Client,
    executor: i64,
    draining: bool,
    leases: bool,
    acknowledged: i64,
) -> Result<Beat> {
    let params: [(&(dyn ToSql + Sync), Type); 4] = [
        (&executor, Type::INT8),
        (&draining, Type::BOOL),
        (&leases, Type::BOOL),
        (&acknowledged, Type::INT8),
    ];
    let rows = client
        .query_typed(
            "select alive, leases, cancelled_tasks, cancelled_fences, gated_tasks, gated_fences, \
             past from tuskline.heartbeat($1, $2, $3, $4)",
            &params,
        )
        .await?;
    let list = |column| rows[0].get::<_, Option<Vec<i64>>>(column).unwrap_or_default();
    Ok(Beat {
        alive: rows[0].get(0),
        past: rows[0].get(6),
        leases: rows[0].get(1),
        cancelled: list(2).into_iter().zip(list(3)).collect(),
        gated: list(4).into_iter().zip(list(5)).collect(),
    })
}

pub(crate) async fn start(
    client: &Client,
    executor: i64,
    tasks: &[i64],
    fences: &[i64],
) -> Result<Moved> {
    let rows = client
        .query_typed(
            "select tuskline.start($1, $2, $3)",
            &[(&executor, Type::INT8), (&tasks, Type::INT8_ARRAY), (&fences, Type::INT8_ARRAY)],
        )
        .await?;
    Ok(Moved { tasks: rows[0].get(0), held: Vec::new() })
}

/// What became of tasks that a call was about. Those that it names nowhere are not ours.
#[derive(Debug, Default)]
pub(crate) struct Moved {
    pub tasks: Vec<i64>,
    /// They stay ours for now, because others have their rows locked.
    pub held: Vec<i64>,
}

pub(crate) async fn release(
    client: &Client,
    executor: i64,
    tasks: &[i64],
    fences: &[i64],
    done_leases: &[i64],
) -> Result<Moved> {
    let rows = client
        .query_typed(
            "select released, deferred from tuskline.release($1, $2, $3, $4)",
            &[
                (&executor, Type::INT8),
                (&tasks, Type::INT8_ARRAY),
                (&fences, Type::INT8_ARRAY),
                (&done_leases, Type::INT8_ARRAY),
            ],
        )
        .await?;
    Ok(Moved { tasks: rows[0].get(0), held: rows[0].get(1) })
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

/// The answer for a bell under which queues want to sleep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Watched {
    /// Its lock is ours: whoever inserts notifies us.
    Held,
    /// Another worker holds it, for the same queue, and its notifications reach us too.
    Taken,
    /// The same, and perhaps for a queue that we do not serve.
    Shared,
    /// A producer is in the middle of a transaction: poll.
    Busy,
}

pub(crate) async fn watch(client: &Client, bells: &[i32]) -> Result<Vec<Watched>> {
    let rows =
        client.query_typed("select tuskline.watch($1)", &[(&bells, Type::INT4_ARRAY)]).await?;
    let watched = |said: &&str| match *said {
        "held" => Watched::Held,
        "taken" => Watched::Taken,
        "shared" => Watched::Shared,
        _ => Watched::Busy,
    };
    Ok(rows[0].get::<_, Vec<&str>>(0).iter().map(watched).collect())
}

/// Whether each queue holds anything above its mark.
pub(crate) async fn peek(client: &Client, queues: &[i32], marks: &[i64]) -> Result<Vec<bool>> {
    let params: [(&(dyn ToSql + Sync), Type); 2] =
        [(&queues, Type::INT4_ARRAY), (&marks, Type::INT8_ARRAY)];
    let rows = client.query_typed("select tuskline.peek($1, $2)", &params).await?;
    Ok(rows[0].get(0))
}

pub(crate) async fn unwatch(client: &Client, bells: &[i32]) -> Result<()> {
    client.query_typed("select tuskline.unwatch($1)", &[(&bells, Type::INT4_ARRAY)]).await?;
    Ok(())
}
