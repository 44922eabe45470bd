//! `bulk`: one act on all tasks that a filter names.

use std::process::ExitCode;

use anyhow::Result;
use chrono::{DateTime, Utc};
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use tokio_postgres::Client;
use tokio_postgres::types::{ToSql, Type};

use super::failure::failed;
use super::{Global, Outcome, database, output};

/// Tasks looked at in one transaction.
const BATCH: i32 = 1_000;

/// `bulk ...`.
#[derive(Debug, Subcommand)]
pub enum BulkCommand {
    /// Cancel tasks that have not ended.
    Cancel(Filter),
    /// Let tasks begin anew that failed for good (or are in the statuses given).
    Retry(Filter),
    /// Give waiting tasks another priority.
    Priority {
        /// The new priority.
        #[arg(value_name = "PRIORITY")]
        value: String,
        #[command(flatten)]
        filter: Filter,
    },
    /// Move waiting tasks to another collection.
    Collection {
        /// The new collection.
        #[arg(value_name = "COLLECTION")]
        value: String,
        #[command(flatten)]
        filter: Filter,
    },
    /// Go on with an operation that was interrupted.
    Resume {
        /// Number of the operation, see `bulk list`.
        bulk: i64,
    },
    /// End an operation where it stands.
    Stop {
        /// Number of the operation.
        bulk: i64,
    },
    /// List the latest operations and how far they have come.
    List,
}

/// Which tasks.
#[derive(Debug, Args)]
pub struct Filter {
    /// Name of the lambda.
    lambda: String,
    /// Only tasks of this collection.
    #[arg(long, value_name = "NAME")]
    collection: Option<String>,
    /// Only tasks of this priority.
    #[arg(long, value_name = "PRIORITY")]
    priority: Option<String>,
    /// Only tasks in these statuses, separated by commas.
    #[arg(long, value_name = "STATUS", value_delimiter = ',')]
    status: Option<Vec<String>>,
    /// Only tasks scheduled from then on, e.g. 2026-12-24T08:00:00Z.
    #[arg(long, value_name = "TIME")]
    from: Option<DateTime<Utc>>,
    /// Only tasks scheduled by then; by default by now.
    #[arg(long, value_name = "TIME")]
    to: Option<DateTime<Utc>>,
    /// Why, for the audit.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Only say how many tasks it would change.
    #[arg(long)]
    dry_run: bool,
}

pub async fn run(global: &Global, command: BulkCommand) -> Outcome {
    let mut session = database::open(global).await?;
    let client = session.client_mut();
    match command {
        BulkCommand::Cancel(filter) => start(global, client, "cancel", None, &filter).await,
        BulkCommand::Retry(filter) => start(global, client, "retry", None, &filter).await,
        BulkCommand::Priority { value, filter } => {
            start(global, client, "priority", Some(&value), &filter).await
        }
        BulkCommand::Collection { value, filter } => {
            start(global, client, "collection", Some(&value), &filter).await
        }
        BulkCommand::Resume { bulk } => advance(global, client, bulk).await,
        BulkCommand::Stop { bulk } => stop(global, client, bulk).await.map(|()| ExitCode::SUCCESS),
        BulkCommand::List => list(global, client).await.map(|()| ExitCode::SUCCESS),
    }
}

const START: &str = "select tuskline.start_bulk($1, $2, $3, $4, $5, $6, $7, $8, $9)";

async fn start(
    global: &Global,
    client: &mut Client,
    action: &str,
    value: Option<&str>,
    filter: &Filter,
) -> Outcome {
    let parameters: &[(&(dyn ToSql + Sync), Type)] = &[
        (&action, Type::TEXT),
        (&filter.lambda, Type::TEXT),
        (&value, Type::TEXT),
        (&filter.collection, Type::TEXT),
        (&filter.priority, Type::TEXT),
        (&filter.status, Type::TEXT_ARRAY),
        (&filter.from, Type::TIMESTAMPTZ),
        (&filter.to, Type::TIMESTAMPTZ),
        (&filter.reason, Type::TEXT),
    ];
    if filter.dry_run {
        // Begun like any other, counted, and never committed.
        let transaction = client.transaction().await?;
        let bulk: i64 = transaction.query_typed_one(START, parameters).await?.get(0);
        let sql = "select row_to_json(p)::text from tuskline.preview_bulk($1) p";
        let rows = transaction.query_typed(sql, &[(&bulk, Type::INT8)]).await?;
        let counts: Result<Vec<Value>, _> =
            rows.iter().map(|row| serde_json::from_str(row.get(0))).collect();
        preview(global, &counts?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let bulk: i64 = client.query_typed_one(START, parameters).await?.get(0);
    advance(global, client, bulk).await
}

fn preview(global: &Global, counts: &[Value]) -> Result<()> {
    if global.json {
        return Ok(output::put_json(&Value::Array(counts.to_vec()))?);
    }
    let rows =
        counts.iter().map(|row| vec![output::field(row, "status"), output::field(row, "tasks")]);
    Ok(output::put_table(&["status", "tasks"], rows.collect(), "it would change no task")?)
}

/// Batch by batch to its end, or to somebody's `bulk stop`. Whoever is interrupted here goes on with `bulk resume`.
async fn advance(global: &Global, client: &Client, bulk: i64) -> Outcome {
    let sql = "select state, looked, changed from tuskline.advance_bulk($1, $2)";
    let progress = indicatif::ProgressBar::new_spinner();
    progress.set_message(format!("bulk {bulk}"));
    let (mut before, mut rest) = (-1, 1);
    let (state, looked, changed) = loop {
        let row = client.query_typed_one(sql, &[(&bulk, Type::INT8), (&BATCH, Type::INT4)]).await?;
        let (state, looked, changed): (String, i64, i64) = (row.get(0), row.get(1), row.get(2));
        progress.set_message(format!("bulk {bulk}: looked at {looked} tasks, changed {changed}"));
        progress.tick();
        if state != "running" {
            break (state, looked, changed);
        }
        // Nothing but what others have locked is left: give them time.
        rest = if (looked, changed) == (before, changed) { (rest * 2).min(256) } else { 1 };
        if rest > 1 {
            tokio::time::sleep(std::time::Duration::from_millis(rest)).await;
        }
        before = looked;
    };
    progress.finish_and_clear();
    if global.json {
        let answer = json!({"bulk": bulk, "state": state, "looked": looked, "changed": changed});
        output::put_json(&answer)?;
    } else {
        output::put(&format!("bulk {bulk} is {state}: changed {changed} of {looked} tasks"))?;
    }
    if state == "done" {
        return Ok(ExitCode::SUCCESS);
    }
    Err(failed(stopped(client, &format!("bulk {bulk}"), "stop_bulk").await))
}

/// Who ended it before it was done, as the audit has it.
pub(super) async fn stopped(client: &Client, what: &str, verb: &str) -> String {
    let sql = "select actor::text from tuskline.audit where verb = $1 and subject = $2";
    let rows = client.query_typed(sql, &[(&verb, Type::TEXT), (&what, Type::TEXT)]).await;
    // Not every role may read the audit.
    let who = rows.ok().and_then(|rows| rows.last().map(|row| row.get(0)));
    let who = who.unwrap_or_else(|| "somebody else".to_owned());
    format!("{what} was stopped by {who} before its end")
}

async fn stop(global: &Global, client: &Client, bulk: i64) -> Result<()> {
    let sql = "select tuskline.stop_bulk($1)";
    let stopped: bool = client.query_typed_one(sql, &[(&bulk, Type::INT8)]).await?.get(0);
    if !stopped {
        return Err(failed(format!("bulk {bulk} is not running: tuskline bulk list")));
    }
    output::answer(
        global,
        &json!({"bulk": bulk, "stopped": true}),
        &format!("bulk {bulk} is stopped"),
    )
}

async fn list(global: &Global, client: &Client) -> Result<()> {
    let sql = "select row_to_json(b)::text from (
        select bulk_id, action, value, lambda, collection, priority, statuses::text[], state, looked, changed,
               author, begun_at, ended_at, reason from tuskline.bulk order by bulk_id desc limit 50) b";
    let bulks = super::task::rows(client, sql, &[]).await?;
    let heading = ["bulk", "action", "to", "lambda", "state", "changed", "by", "reason"];
    output::put_list(global, bulks, &heading, "there was no bulk operation", |bulk| {
        let names =
            ["bulk_id", "action", "value", "lambda", "state", "changed", "author", "reason"];
        names.iter().map(|name| output::field(bulk, name)).collect()
    })
}
