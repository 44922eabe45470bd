//! Rights that are granted while workers of both builds run.

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use serde::Serialize;
use tokio::time::sleep;
use tokio_postgres::Client;

use super::builds::Build;
use super::count::count;

/// The roles of clients and workers. Each executes all verbs of the old schema. The groups give the two of the load
/// those of the new one. The stranger has no right.
pub const ROLES: &str = "
    create role step_team;
    create role tuskline_scheduler;
    create role tuskline_worker;
    create role step_client login in role tuskline_scheduler;
    create role step_worker login in role tuskline_worker;
    create role stranger login in role tuskline_worker;
    grant tuskline_scheduler, tuskline_worker to current_user;
    grant usage on schema tuskline to step_client, step_worker, stranger;
    grant execute on all functions in schema tuskline to step_client, step_worker, stranger;
    grant insert on effect to step_worker, stranger";

const OWN: &str = "select tuskline.grant_lambda('step', 'step_team', 'own')";

/// Longest time for an old worker to register, and then for its role to lose it.
const PATIENCE: Duration = Duration::from_secs(60);

/// The facts about rights that the run has seen.
#[derive(Debug, Serialize)]
pub struct Rights {
    /// Successes of the old worker in the closed lambda. It registered before the migration.
    pub successes: i64,
    /// The registration of an old worker without a right ended at a heartbeat.
    pub stranger_ended: bool,
    /// Deadlocks of the whole run, the migration among it.
    pub deadlocks: i64,
}

impl Rights {
    pub fn are_kept(&self, least: i64) -> bool {
        self.successes >= least && self.stranger_ended && self.deadlocks == 0
    }
}

impl fmt::Display for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { successes, stranger_ended, deadlocks } = self;
        writeln!(
            f,
            "in the closed lambda: {successes} successes of the old worker; the registration of another \
             one without a right ended: {stranger_ended}; deadlocks {deadlocks}"
        )
    }
}

/// Closes the lambda to all roles but those of the load. Returns the number of the last task before.
pub async fn close(client: &Client) -> Result<i64> {
    client
        .batch_execute(
            "select tuskline.grant_lambda('step', 'step_client', 'schedule');
             select tuskline.grant_lambda('step', 'step_worker', 'work')",
        )
        .await?;
    client.batch_execute(OWN).await?;
    count(client, "select max(n) from effect").await
}

/// Counts, and lets an old worker register before its lambda is closed again.
pub async fn examine(old: &Build, client: &Client, closed_at: i64) -> Result<Rights> {
    let successes = format!(
        "select count(*) from effect e join tuskline.tasks t
             on t.payload ->> 'client' = e.client and (t.payload ->> 'n')::bigint = e.n
          where e.worker = 'old' and e.n > {closed_at} and t.status = 'success'"
    );
    let successes = count(client, &successes).await?;
    client.batch_execute("select tuskline.revoke_lambda('step', 'step_team', 'own')").await?;
    let _stranger = old.work_as("stranger")?;
    if !becomes(client, 1).await? {
        bail!("the worker of the stranger does not register");
    }
    client.batch_execute(OWN).await?;
    let stranger_ended = becomes(client, 0).await?;
    let deadlocks = "select deadlocks from pg_stat_database where datname = current_database()";
    Ok(Rights { successes, stranger_ended, deadlocks: count(client, deadlocks).await? })
}

/// Waits until the stranger has so many live registrations.
async fn becomes(client: &Client, wanted: i64) -> Result<bool> {
    let live =
        "select count(*) from tuskline.executor where role = 'stranger' and ended_at is null";
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        if count(client, live).await? == wanted {
            return Ok(true);
        }
        sleep(Duration::from_millis(100)).await;
    }
    Ok(false)
}
