//! Advances an operation until it ends, also without a server, and with archive files.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};
use tokio::time::sleep;
use tokio_postgres::Client;
use tokio_postgres::types::{ToSql, Type};

use super::progress::Progress;
use crate::archive::Directory;
use crate::cli::global::{Global, Outcome};
use crate::cli::output;
use crate::store::archive;

/// Tasks looked at in one transaction.
const BATCH: i32 = 1_000;

/// Longest pause after a batch that changed nothing: tasks are locked, or a canary waits.
const LONGEST_REST: Duration = Duration::from_millis(256);

/// Progress of an operation after a batch.
#[derive(Debug)]
pub struct Batch {
    state: String,
    looked: i64,
    changed: i64,
    spared: i64,
    note: Option<String>,
    files: Vec<i64>,
}

impl Batch {
    pub fn is_done(&self) -> bool {
        self.state == "done"
    }

    pub fn json(&self, operation: i64) -> Value {
        let Self { state, looked, changed, spared, note, .. } = self;
        json!({
            "operation": operation, "state": state, "looked": looked, "changed": changed,
            "spared": spared, "note": note
        })
    }
}

pub async fn wait(
    global: &Global,
    client: &Client,
    operation: i64,
    directory: Option<&Directory>,
) -> Outcome {
    let last = follow(client, operation, directory).await?;
    put(global, operation, &last)?;
    if directory.is_some() && is_erase(client, operation).await? {
        eprintln!(
            "the files of the archive are unchanged: start the same erase again with --archive-dir"
        );
    }
    Ok(if last.is_done() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn is_erase(client: &Client, operation: i64) -> Result<bool> {
    let sql = "select action = 'erase' from tuskline.operations where operation_id = $1";
    Ok(client.query_typed_one(sql, &[(&operation, Type::INT8)]).await?.get(0))
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
    let sql = "select state, looked, changed, spared, note, file_ids \
               from tuskline.advance_operation($1, $2, $3)";
    let parameters: &[(&(dyn ToSql + Sync), Type)] =
        &[(&operation, Type::INT8), (&BATCH, Type::INT4), (&files, Type::BOOL)];
    let row = client.query_typed_one(sql, parameters).await?;
    Ok(Batch {
        state: row.get(0),
        looked: row.get(1),
        changed: row.get(2),
        spared: row.get(3),
        note: row.get(4),
        files: row.get(5),
    })
}

/// A file with archived tasks is on the disk before the transaction that deletes them commits.
async fn advance_with_files(
    client: &Client,
    operation: i64,
    directory: &Directory,
) -> Result<Batch> {
    archive::begin(client).await?;
    let mut batch = advance(client, operation, true).await?;
    if !batch.files.is_empty() {
        let lines = archive::archive_lines(client, &batch.files).await?;
        directory.add(&format!("purge_{operation}"), lines).await?;
        batch.changed += archive::delete_written(client, &batch.files, Some(operation)).await?;
    }
    archive::commit(client).await?;
    Ok(batch)
}

/// Estimated number of tasks, from PostgreSQL's statistics.
async fn tasks_about(client: &Client) -> Result<u64> {
    let sql = "select coalesce(sum(greatest(c.reltuples, 0)), 0)::bigint from pg_class c
        where c.relnamespace in ('tuskline'::regnamespace, 'tuskline_core'::regnamespace) and c.relkind = 'r' and c.relname ~ '^task_([0-9]+|kept)$'";
    Ok(client.query_typed_one(sql, &[]).await?.get::<_, i64>(0).unsigned_abs())
}

pub fn put(global: &Global, operation: i64, last: &Batch) -> Result<()> {
    let Batch { state, looked, changed, spared, note, .. } = last;
    if global.json {
        return Ok(output::put_json(&last.json(operation))?);
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
