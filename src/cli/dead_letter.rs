//! `dead`: lists, groups and shows dead letters.

mod show;

use anyhow::Result;
use clap::Subcommand;
use tokio_postgres::Client;

use super::global::Global;

/// `dead-letter ...`.
#[derive(Debug, Subcommand)]
pub enum DeadLetterCommand {
    /// List tasks that have failed for good.
    List(show::ListArgs),
    /// Count them by what they died of.
    Groups {
        /// Only of this lambda.
        #[arg(long, value_name = "NAME")]
        lambda: Option<String>,
    },
    /// Show one, with every failed attempt and its payload.
    Show {
        /// Id of the task.
        id: i64,
    },
}

pub async fn run(global: &Global, client: &Client, command: DeadLetterCommand) -> Result<()> {
    match command {
        DeadLetterCommand::List(args) => show::list(global, client, &args).await,
        DeadLetterCommand::Groups { lambda } => show::groups(global, client, lambda).await,
        DeadLetterCommand::Show { id } => show::show(global, client, id).await,
    }
}
