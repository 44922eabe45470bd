//! Advances an operation until it ends, also without a server, and with archive files.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::time::sleep;
use tokio_postgres::Client;
use tokio_postgres::types::Type;

use super::progress::Progress;
use crate::archive::Directory;
use crate::cli::global::{Global, Outcome};
use crate::cli::output;
use crate::store::archive;
use crate::store::rows::{Parameters, row, value};

/// Tasks looked at in one transaction.
const BATCH: i32 = 1_000;

/// Longest pause after a batch that changed nothing: tasks are locked, or a canary waits.
const LONGEST_REST: Duration = Duration::from_millis(256);

/// Progress of an operation after a batch.
#[derive(Debug, Serialize, Deserialize)]
pub struct Batch {
    operation: i64,
    state: String,
    looked: i64,
    changed: i64,
    spared: i64,
    note: Option<String>,
    #[serde(skip_serializing)]
    file_ids: Vec<i64>,
}

impl Batch {
    pub fn is_done(&self) -> bool {
        self.state == "done"
    }
}

pub async fn wait(
    global: &Global,
    client: &Client,
    operation: i64,
    directory: Option<&Directory>,
) -> Outcome {
    let last = follow(client, operation, directory).await?;
    put(global, &last)?;
    if directory.is_some() && is_erase(client, operation).await? {
        eprintln!(
            "the files of the archive are unchanged: start the same erase again with --archive-dir"
        );
    }
    Ok(if last.is_done() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn is_erase(client: &Client, operation: i64) -> Result<bool> {
    let sql = "select action = 'erase' from tuskline.operations where operation_id = $1";
    Ok(value(client, sql, &[(&operation, Type::INT8)]).await?)
}

/// Advances an operation until it ends. Returns its end.
pub async fn follow(
    client: &Client,
    operation: i64,
    directory: Option<&Directory>,
) -> Result<Batch> {
    let mut progress = Progress::new(tasks_about(client).await?);
    let (mut before, mut rest) = ((-1, -1), Duration::ZERO);
    loop {
        let batch = match directory {
            None => advance(client, operation, false).await?,
            Some(directory) => advance_with_files(client, operation, directory).await?,
        };
        progress.show(batch.looked, batch.changed);
        if batch.state != "running" {
            return Ok(batch);
        }
        let now = (batch.looked, batch.changed);
        rest = if now == before { (rest * 2).clamp(REST, LONGEST_REST) } else { Duration::ZERO };
        sleep(rest).await;
        before = now;
    }
}

/// Shortest pause after a batch that changed nothing.
const REST: Duration = Duration::from_millis(2);

async fn advance(client: &Client, operation: i64, files: bool) -> Result<Batch> {
    let sql = "select $1 as operation, state, looked, changed, spared, note, file_ids \
               from tuskline.advance_operation($1, $2, $3)";
    let parameters: &Parameters<'_> =
        &[(&operation, Type::INT8), (&BATCH, Type::INT4), (&files, Type::BOOL)];
    Ok(row(client, sql, parameters).await?)
}

/// A file with archived tasks is on the disk before the transaction that deletes them commits.
async fn advance_with_files(
    client: &Client,
    operation: i64,
    directory: &Directory,
) -> Result<Batch> {
    archive::begin(client).await?;
    let mut batch = advance(client, operation, true).await?;
    if !batch.file_ids.is_empty() {
        let lines = archive::archive_lines(client, &batch.file_ids).await?;
        directory.add(&format!("purge_{operation}"), lines).await?;
        batch.changed += archive::delete_written(client, &batch.file_ids, Some(operation)).await?;
    }
    archive::commit(client).await?;
    Ok(batch)
}

/// Estimated number of tasks, from PostgreSQL's statistics.
async fn tasks_about(client: &Client) -> Result<u64> {
    let sql = "select coalesce(sum(greatest(c.reltuples, 0)), 0)::bigint from pg_class c
        where c.relnamespace in ('tuskline'::regnamespace, 'tuskline_core'::regnamespace) and c.relkind = 'r' and c.relname ~ '^task_([0-9]+|kept)$'";
    Ok(value::<i64>(client, sql, &[]).await?.unsigned_abs())
}

pub fn put(global: &Global, last: &Batch) -> Result<()> {
    let Batch { operation, state, looked, changed, spared, note, .. } = last;
    if global.json {
        return Ok(output::put_json(&json!(last))?);
    }
    let note = note.as_ref().map(|note| format!(", {}", output::clean(note))).unwrap_or_default();
    output::put(&format!(
        "operation {operation} is {state}: changed {changed} of {looked} tasks{note}"
    ))?;
    if *spared > 0 {
        output::put(&format!("{spared} stay: they are still needed, or must be archived first"))?;
    }
    Ok(())
}
