//! `task`: schedule, follow and cancel tasks.

mod follow;
mod list;
mod schedule;

use anyhow::Result;
use clap::Subcommand;
use serde_json::Value;
use tokio_postgres::Client;
use tokio_postgres::types::{ToSql, Type};

use super::{Global, Outcome, database};

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
    /// Wait until a task is finished; exit code 0 if it succeeded, else 1.
    Wait(follow::WaitArgs),
}

/// A label of a task's place in the order of its lambda.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub enum Priority {
    Critical,
    High,
    Normal,
    Low,
}

impl Priority {
    fn label(self) -> &'static str {
        match self {
            Self::Critical => "critical",
            Self::High => "high",
            Self::Normal => "normal",
            Self::Low => "low",
        }
    }
}

pub async fn run(global: &Global, command: TaskCommand) -> Outcome {
    let open = database::open(global);
    match command {
        // Opens later: standard input may take its time.
        TaskCommand::Schedule(args) => schedule::run(global, args).await,
        TaskCommand::Status { id } => follow::status(global, open.await?.client(), id).await,
        TaskCommand::List(args) => list::run(global, open.await?.client(), &args).await,
        TaskCommand::Cancel { id, reason } => {
            follow::cancel(global, open.await?.client(), id, reason).await
        }
        TaskCommand::Wait(args) => follow::wait(global, open.await?.client(), &args).await,
    }
}

/// Rows of a query whose only column is JSON text.
pub async fn rows(
    client: &Client,
    query: &str,
    parameters: &[(&(dyn ToSql + Sync), Type)],
) -> Result<Vec<Value>> {
    let rows = client.query_typed(query, parameters).await?;
    rows.iter().map(|row| Ok(serde_json::from_str(row.get(0))?)).collect()
}
