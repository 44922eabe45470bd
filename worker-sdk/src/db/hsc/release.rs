//! release and its kin: attempts that go back without a result.

use tokio_postgres::types::Type;

use super::{Attempt, LeaseId, Result, Verdict, columns, numbers};
use crate::db::Parameters;
use crate::db::connect::Session;

/// Work that was given back. An attempt in neither list is not ours any more.
#[derive(Debug, Default)]
pub(crate) struct Released {
    pub tasks: Vec<i64>,
    /// Another session has their rows locked: they stay ours for now.
    pub locked: Vec<i64>,
}

impl Released {
    pub(crate) fn verdict(&self, task: i64) -> Verdict {
        match () {
            () if self.locked.contains(&task) => Verdict::Locked,
            () if self.tasks.contains(&task) => Verdict::Done,
            () => Verdict::Refused,
        }
    }
}

/// Gives attempts back, and drops leases that are over.
pub(crate) async fn release(
    client: &Session,
    executor: i64,
    attempts: &[Attempt],
    ended_leases: &[LeaseId],
) -> Result<Released> {
    let (tasks, fences) = columns(attempts.iter().copied());
    let sql = "select released, deferred from tuskline.release($1, $2, $3, $4)";
    let parameters: &Parameters<'_> = &[
        (&executor, Type::INT8),
        (&tasks, Type::INT8_ARRAY),
        (&fences, Type::INT8_ARRAY),
        (&numbers(ended_leases), Type::INT8_ARRAY),
    ];
    let row = client.query_typed_one(sql, parameters).await?;
    Ok(Released { tasks: row.get(0), locked: row.get(1) })
}

/// Reports attempts whose processes have ended, each with the cause and what is known of it, and drops leases
/// that are over.
pub(crate) async fn report_crashes(
    client: &Session,
    executor: i64,
    crashes: &[(Attempt, &str, &str)],
    ended_leases: &[LeaseId],
) -> Result<Released> {
    let (tasks, fences) = columns(crashes.iter().map(|(attempt, ..)| *attempt));
    let (classes, messages): (Vec<_>, Vec<_>) =
        crashes.iter().map(|(_, class, message)| (*class, *message)).unzip();
    let sql = "select returned, deferred from tuskline.report_crashes($1, $2, $3, $4, $5, $6)";
    let parameters: &Parameters<'_> = &[
        (&executor, Type::INT8),
        (&tasks, Type::INT8_ARRAY),
        (&fences, Type::INT8_ARRAY),
        (&classes, Type::TEXT_ARRAY),
        (&messages, Type::TEXT_ARRAY),
        (&numbers(ended_leases), Type::INT8_ARRAY),
    ];
    let row = client.query_typed_one(sql, parameters).await?;
    Ok(Released { tasks: row.get(0), locked: row.get(1) })
}

pub(crate) async fn release_lease(client: &Session, executor: i64, lease: LeaseId) -> Result<()> {
    let sql = "select tuskline.release_lease($1, $2)";
    client.query_typed(sql, &[(&executor, Type::INT8), (&lease.0, Type::INT8)]).await.map(drop)
}
