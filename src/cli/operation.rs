//! `operation`: one action on all tasks that a filter names, and how far each has come.

mod erase;
mod progress;
mod start;
mod wait;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand};
use serde_json::json;
use tokio_postgres::Client;
use tuskline_sdk::verbs::STOP_OPERATION;

use super::failure::failed;
use super::global::{Global, Outcome};
use super::{database, output};
use crate::archive::Directory;
use crate::session::{Deadlines, Session};
use crate::store::rows::view;

/// `operation ...`.
#[derive(Debug, Subcommand)]
pub enum OperationCommand {
    /// Begin to cancel, retry, purge, redrive, erase or move tasks; prints its number.
    Start(Box<start::StartArgs>),
    /// Advance an operation until it ends; exit code 0 if it is done, else 1.
    Wait {
        /// Number of the operation, see `operation list`.
        operation: i64,
        #[command(flatten)]
        archive: ArchiveArgs,
    },
    /// End an operation where it stands; what it has changed stays.
    Stop {
        /// Number of the operation.
        operation: i64,
    },
    /// List the latest operations and how far they have come.
    List,
}

/// Directory of the files that a purge writes and an erase rewrites.
#[derive(Debug, Args)]
pub struct ArchiveArgs {
    /// Directory of the archive. A purge writes tasks of lambdas with --archive file here; without
    /// it they stay. `operation start erase` deletes lines here.
    #[arg(long, value_name = "DIR", env = "TUSKLINE_ARCHIVE_DIR", hide_env_values = true)]
    archive_dir: Option<PathBuf>,
}

impl ArchiveArgs {
    fn open(&self) -> Result<Option<Directory>> {
        Ok(self.archive_dir.as_ref().map(Directory::open).transpose()?)
    }
}

pub async fn run(global: &Global, command: OperationCommand) -> Outcome {
    // A preview may take its time.
    let address = database::find(global)?;
    let session = Session::open(&address, "operation", Deadlines::PATIENT).await?;
    let client = session.client();
    match command {
        OperationCommand::Start(args) => return start::run(global, client, &args).await,
        OperationCommand::Wait { operation, archive } => {
            return wait::wait(global, client, operation, archive.open()?.as_ref()).await;
        }
        OperationCommand::Stop { operation } => stop(global, client, operation).await,
        OperationCommand::List => list(global, client).await,
    }?;
    Ok(ExitCode::SUCCESS)
}

async fn stop(global: &Global, client: &Client, operation: i64) -> Result<()> {
    if !STOP_OPERATION.call(client, &json!({ "operation": operation })).await? {
        return Err(failed(format!(
            "operation {operation} is not running: tuskline operation list"
        )));
    }
    let said = format!("operation {operation} is stopped");
    output::answer(global, &json!({"operation": operation, "stopped": true}), &said)
}

async fn list(global: &Global, client: &Client) -> Result<()> {
    let latest = "order by operation_id desc limit 50";
    let operations = view(client, "operations", &[], latest, &[]).await?;
    let columns = "no: operation_id, action, to: value, lambda, state, changed, \
        died again: died_again, by: author, reason, note";
    output::put_list(global, operations, columns, "there was no operation", |_| ())
}
