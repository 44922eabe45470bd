//! Facts that `tuskline top` reads repeatedly: gates, waits, workers, dead letters by cause.
//!
//! Promises: each statement reads a bounded number of rows, however many tasks there are; a count
//! that reached its bound says so. Must never: scan the tasks.
//!
//! Planner: a task is looked up in a lateral subquery with a limit, so that no plan joins by a scan.

mod dead_groups;
mod details;
mod held;
mod waits;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error};

pub use dead_groups::{DEAD_GROUPS, DeadGroup, dead_groups};
pub use details::{HeldTask, Letter, held_by, letter};
pub use held::{Held, held};
pub use waits::{Blocked, Waiting, blocked, limits, waits};

use super::rows::rows;

/// Most rows that one count reads.
pub const MOST: i64 = 1_000;

/// The same for [`waits`] and [`blocked`].
pub const WAIT_ROWS: i32 = 1_000;

/// A count that reads a bounded number of rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// Rows that were counted.
    pub tasks: i64,
    /// The count reached its bound, so there may be more. If it counted no task, the number is
    /// unknown.
    pub and_more: bool,
}

impl Count {
    /// There is no task. False as well if the number is unknown.
    pub fn is_none(self) -> bool {
        self.tasks == 0 && !self.and_more
    }

    /// The count reached its bound before it found a task.
    pub fn is_unknown(self) -> bool {
        self.tasks == 0 && self.and_more
    }
}

impl std::ops::AddAssign for Count {
    fn add_assign(&mut self, other: Self) {
        self.tasks += other.tasks;
        self.and_more |= other.and_more;
    }
}

/// A gate that is set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gate {
    /// Its number.
    pub gate_id: i64,
    /// Its lambda.
    pub lambda: String,
    /// Only this collection.
    pub collection: Option<String>,
    /// Only this priority.
    pub priority: Option<String>,
    /// pause, drop or divert.
    pub action: String,
    /// Why.
    pub reason: String,
    /// The login that set it.
    pub author: String,
    /// Time since it was set, in ms.
    pub age_ms: i64,
    /// Time until it opens by itself, in ms.
    pub opens_in_ms: Option<i64>,
    /// Tasks that it has parked. A pause of a whole lambda or priority parks none.
    pub parked: Count,
}

/// A worker process that lives, or ended in the last ten minutes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Executor {
    /// Its number.
    pub executor_id: i64,
    /// Its host.
    pub host: String,
    /// Number of its process on that host.
    pub pid: i32,
    /// alive, draining, silent, or how it ended.
    pub state: String,
    /// Lambdas that it serves.
    pub lambdas: Vec<String>,
    /// The version of its SDK.
    pub sdk_version: String,
    /// Age of its last heartbeat, in ms.
    pub beat_ms: i64,
    /// Age of its registration, in ms.
    pub age_ms: i64,
}

/// Time and installation of a reading.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The database's time.
    pub now: DateTime<Utc>,
    /// The name of the installation.
    pub installation: String,
    /// How many queues it has.
    pub queues: i64,
}

/// Reads the time, and the name and size of the installation.
///
/// # Errors
/// The connection's or the server's.
pub async fn place(client: &Client) -> Result<Place, Error> {
    let sql = "select tuskline.clock(), (select name from tuskline.installation),
                      (select count(*) from tuskline.queue)";
    let row = client.query_typed_one(sql, &[]).await?;
    Ok(Place { now: row.get(0), installation: row.get(1), queues: row.get(2) })
}

/// The gates that are set, at most 200.
///
/// # Errors
/// The connection's or the server's.
pub async fn gates(client: &Client) -> Result<Vec<Gate>, Error> {
    let sql = "
        select g.gate_id, g.lambda, g.collection, g.priority, g.action, g.reason, g.author,
               (1000 * extract(epoch from c.at - g.set_at))::bigint as age_ms,
               (1000 * extract(epoch from g.until - c.at))::bigint as opens_in_ms,
               (select json_build_object('tasks', least(count(*), $1), 'and_more', count(*) > $1)
                  from (select from tuskline.parked p
                         where p.gate_id = g.gate_id limit $1 + 1) f) as parked
          from (select tuskline.clock() as at offset 0) c
               cross join tuskline.gates g
         where g.opened_at is null order by g.gate_id limit 200";
    rows(client, sql, &[(&MOST, Type::INT8)]).await
}

/// The workers among the newest 5,000 that live or ended in the last ten minutes, at most 1,000.
///
/// # Errors
/// The connection's or the server's.
pub async fn executors(client: &Client) -> Result<Vec<Executor>, Error> {
    let sql = "
        select e.executor_id, e.host, e.pid,
               case when e.end_reason is not null then e.end_reason
                    when e.expires_at <= c.at then 'silent'
                    when e.draining then 'draining' else 'alive' end as state,
               e.lambdas, e.sdk_version,
               (1000 * extract(epoch from c.at - e.beat_at))::bigint as beat_ms,
               (1000 * extract(epoch from c.at - e.started_at))::bigint as age_ms
          from (select tuskline.clock() as at offset 0) c
               cross join (select * from tuskline.executor order by executor_id desc limit 5000) e
         where e.ended_at is null or e.ended_at > c.at - interval '10 minutes'
         order by e.executor_id limit $1";
    rows(client, sql, &[(&MOST, Type::INT8)]).await
}
