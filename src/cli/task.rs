//! `task`: schedule, follow and cancel tasks.

mod follow;
mod list;
mod schedule;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;
use serde_json::Value;
use tokio_postgres::Client;
use tokio_postgres::types::Type;

use super::global::{Global, Outcome};
use super::{database, output};
use crate::store::rows::rows;

/// `task ...`.
#[derive(Debug, Subcommand)]
pub enum TaskCommand {
    /// Schedule one task, now or later; prints its id.
    Schedule(schedule::ScheduleArgs),
    /// Show everything known of one task.
    Status {
        /// Id of the task.
        id: i64,
    },
    /// Say why a task does not run, and what would change that.
    Explain {
        /// Id of the task.
        id: i64,
    },
    /// List the latest tasks.
    List(list::ListArgs),
    /// Cancel a task; one that a worker holds is asked to stop.
    Cancel {
        /// Id of the task.
        id: i64,
        /// Why, for the audit.
        #[arg(long)]
        reason: Option<String>,
    },
    /// Restart a task that ended without success. It keeps a due time that is later than now.
    Retry {
        /// Id of the task.
        id: i64,
        /// It is due now.
        #[arg(long)]
        now: bool,
    },
    /// Wait until a task is finished; exit code 0 if it succeeded, else 1.
    Wait(follow::WaitArgs),
}

pub async fn run(global: &Global, command: TaskCommand) -> Outcome {
    let open = database::open(global);
    match command {
        // Opens later: standard input may take its time.
        TaskCommand::Schedule(args) => schedule::run(global, args).await,
        TaskCommand::Status { id } => follow::status(global, open.await?.client(), id).await,
        TaskCommand::Explain { id } => explain(global, open.await?.client(), id).await,
        TaskCommand::List(args) => list::run(global, open.await?.client(), &args).await,
        TaskCommand::Cancel { id, reason } => {
            return follow::cancel(global, open.await?.client(), id, reason).await;
        }
        TaskCommand::Retry { id, now } => {
            return follow::retry(global, open.await?.client(), id, now).await;
        }
        TaskCommand::Wait(args) => {
            return follow::wait(global, open.await?.client(), &args).await;
        }
    }?;
    Ok(ExitCode::SUCCESS)
}

async fn explain(global: &Global, client: &Client, id: i64) -> Result<()> {
    let sql = "select * from tuskline.explain($1)";
    let reasons: Vec<Value> = rows(client, sql, &[(&id, Type::INT8)]).await?;
    if global.json {
        return Ok(output::put_json(&Value::Array(reasons))?);
    }
    for reason in &reasons {
        let field = |name| Some(output::field(reason, name)).filter(|text| !text.is_empty());
        let name = output::field(reason, "reason");
        let pairs = [("", "detail"), ("cause", "cause"), ("remedy", "remedy")];
        let pairs = pairs.map(|(shown, column)| {
            (if shown.is_empty() { name.as_str() } else { shown }, field(column))
        });
        output::put_pairs(pairs.into())?;
    }
    Ok(())
}
