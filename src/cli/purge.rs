//! `purge`: deletes tasks that have ended before their retention is over.

mod progress;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use tokio_postgres::Client;
use tokio_postgres::types::{ToSql, Type};
use tokio_util::sync::CancellationToken;

use super::failure::{WrongCall, failed};
use super::{Global, Outcome, database, output};
use crate::archive::Directory;
use crate::duration;
use crate::session::{Deadlines, Session};
use crate::store::archive;
use progress::Progress;

const EXAMPLES: &str = "\
Deletes in batches, each in its own transaction: schedules, claims and results wait
for none. Tasks stay that others need: that a chain waits for, that block an ordering
key, whose end is awaited, or that a redrive has in hand. Ctrl-C ends it after the
batch; what is deleted stays deleted. Single rows leave dead rows behind, for vacuum
to clear: a shorter retention, which drops whole segments, is the cheap way.

Examples:
  tuskline purge --lambda send_email --status success --older-than 2d --dry-run
  tuskline purge --status cancelled --status dropped --older-than 1h
  tuskline purge --lambda resize --collection test --limit 100000 --reason trial";

/// Which tasks go.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct PurgeArgs {
    /// Only tasks of this lambda.
    #[arg(long, value_name = "NAME")]
    lambda: Option<String>,
    /// Only tasks that ended so; may be given many times.
    #[arg(long, value_enum, value_delimiter = ',')]
    status: Vec<Ended>,
    /// Only tasks of this collection.
    #[arg(long, value_name = "NAME")]
    collection: Option<String>,
    /// Only tasks that ended at least so long ago; else a minute.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, allow_hyphen_values = true)]
    older_than: Option<Duration>,
    /// At most so many.
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    limit: Option<i64>,
    /// Tasks looked at in one transaction.
    #[arg(long, value_name = "N", default_value = "5000")]
    #[arg(value_parser = clap::value_parser!(i32).range(1..=100_000))]
    batch: i32,
    /// Write tasks here, as JSON lines, of lambdas with --archive file; else these stay.
    #[arg(long, value_name = "DIR", env = "TUSKLINE_ARCHIVE_DIR", hide_env_values = true)]
    archive_dir: Option<PathBuf>,
    /// Why, for the audit.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Only say how many tasks it is about, by lambda and status.
    #[arg(long)]
    dry_run: bool,
}

/// How a task ended.
#[derive(Debug, Clone, Copy, ValueEnum)]
#[value(rename_all = "snake_case")]
enum Ended {
    Success,
    FatalFailure,
    Dead,
    Cancelled,
    Dropped,
}

impl PurgeArgs {
    /// Their labels; none: whatever they ended as.
    fn statuses(&self) -> Option<Vec<String>> {
        let label = |status: &Ended| Some(status.to_possible_value()?.get_name().to_owned());
        Some(self.status.iter().filter_map(label).collect()).filter(|_| !self.status.is_empty())
    }

    fn names_nothing(&self) -> bool {
        self.status.is_empty()
            && self.lambda.is_none()
            && self.collection.is_none()
            && self.older_than.is_none()
    }
}

/// How far it has come.
#[derive(Debug)]
struct Batch {
    running: bool,
    /// By somebody else.
    stopped: bool,
    looked: i64,
    purged: i64,
    spared: i64,
    files: Vec<i64>,
}

pub async fn run(global: &Global, args: PurgeArgs, end: CancellationToken) -> Outcome {
    if args.names_nothing() {
        let what = "which ones? give --lambda, --status, --collection or --older-than";
        return Err(WrongCall(what.to_owned()).into());
    }
    let directory = args.archive_dir.as_ref().map(Directory::open).transpose()?;
    // A count may take its time.
    let session = Session::open(&database::find(global)?, "purge", Deadlines::PATIENT).await?;
    let client = session.client();
    if args.dry_run {
        // Begun like any other, counted, and never committed.
        archive::begin(client).await?;
        let purge = start(client, &args).await?;
        preview(global, client, purge).await?;
        return Ok(ExitCode::SUCCESS);
    }
    let purge = start(client, &args).await?;
    let (last, stopped) = advance(client, purge, args.batch, directory.as_ref(), &end).await?;
    put(global, purge, &last, stopped)?;
    if last.stopped {
        let what = format!("purge {purge}");
        return Err(failed(super::bulk::stopped(client, &what, "stop_purge").await));
    }
    Ok(if stopped { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

async fn start(client: &Client, args: &PurgeArgs) -> Result<i64> {
    let sql = "select tuskline.start_purge($1, $2, $3, $4 * interval '1 millisecond', $5, $6)";
    let statuses = args.statuses();
    let older_than = args.older_than.map(duration::milliseconds);
    let parameters: &[(&(dyn ToSql + Sync), Type)] = &[
        (&args.lambda, Type::TEXT),
        (&statuses, Type::TEXT_ARRAY),
        (&args.collection, Type::TEXT),
        (&older_than, Type::INT8),
        (&args.limit, Type::INT8),
        (&args.reason, Type::TEXT),
    ];
    Ok(client.query_typed_one(sql, parameters).await?.get(0))
}

async fn preview(global: &Global, client: &Client, purge: i64) -> Result<()> {
    let sql = "select row_to_json(p)::text from tuskline.preview_purge($1) p";
    let counts = super::task::rows(client, sql, &[(&purge, Type::INT8)]).await?;
    if global.json {
        return Ok(output::put_json(&Value::Array(counts))?);
    }
    let rows = counts
        .iter()
        .map(|row| ["lambda", "status", "tasks"].map(|name| output::field(row, name)).into());
    let heading = ["lambda", "status", "tasks"];
    Ok(output::put_table(&heading, rows.collect(), "it would delete no task")?)
}

/// Batch by batch, to its end or to ours; whether it was before its own.
async fn advance(
    client: &Client,
    purge: i64,
    batch: i32,
    directory: Option<&Directory>,
    end: &CancellationToken,
) -> Result<(Batch, bool)> {
    let mut progress = Progress::new(tasks_about(client).await?);
    loop {
        let done = match directory {
            None => advance_purge(client, purge, batch, false).await?,
            Some(directory) => advance_with_files(client, purge, batch, directory).await?,
        };
        progress.show(done.looked, done.purged);
        if !done.running {
            let stopped = done.stopped;
            return Ok((done, stopped));
        }
        if end.is_cancelled() {
            client
                .query_typed_one("select tuskline.stop_purge($1)", &[(&purge, Type::INT8)])
                .await?;
            return Ok((done, true));
        }
    }
}

/// What goes to a file is on the disk before the transaction that deletes it commits.
async fn advance_with_files(
    client: &Client,
    purge: i64,
    batch: i32,
    directory: &Directory,
) -> Result<Batch> {
    archive::begin(client).await?;
    let mut done = advance_purge(client, purge, batch, true).await?;
    if !done.files.is_empty() {
        let lines = archive::archive_lines(client, &done.files).await?;
        directory.add(&format!("purge_{purge}"), lines).await?;
        done.purged += archive::delete_written(client, &done.files, Some(purge)).await?;
    }
    archive::commit(client).await?;
    Ok(done)
}

async fn advance_purge(client: &Client, purge: i64, batch: i32, files: bool) -> Result<Batch> {
    let sql =
        "select state, looked, purged, spared, file_ids from tuskline.advance_purge($1, $2, $3)";
    let parameters: &[(&(dyn ToSql + Sync), Type)] =
        &[(&purge, Type::INT8), (&batch, Type::INT4), (&files, Type::BOOL)];
    let row = client.query_typed_one(sql, parameters).await?;
    Ok(Batch {
        running: row.get::<_, &str>(0) == "running",
        stopped: row.get::<_, &str>(0) == "stopped",
        looked: row.get(1),
        purged: row.get(2),
        spared: row.get(3),
        files: row.get(4),
    })
}

/// About how many tasks there are, as the statistics say.
async fn tasks_about(client: &Client) -> Result<u64> {
    let sql = "select coalesce(sum(greatest(c.reltuples, 0)), 0)::bigint from pg_class c
        where c.relnamespace = 'tuskline'::regnamespace and c.relkind = 'r' and c.relname ~ '^task_([0-9]+|kept)$'";
    Ok(client.query_typed_one(sql, &[]).await?.get::<_, i64>(0).unsigned_abs())
}

fn put(global: &Global, purge: i64, last: &Batch, stopped: bool) -> Result<()> {
    let Batch { looked, purged, spared, .. } = last;
    if global.json {
        return Ok(output::put_json(&json!({
            "purge": purge, "state": if stopped { "stopped" } else { "done" },
            "looked": looked, "purged": purged, "spared": spared
        }))?);
    }
    let state = if stopped { "stopped before its end" } else { "done" };
    output::put(&format!("purge {purge} is {state}: {purged} of {looked} tasks are gone"))?;
    if *spared > 0 {
        output::put(&format!(
            "{spared} stay: others need them or had them locked, or they want an archive"
        ))?;
    }
    Ok(())
}
