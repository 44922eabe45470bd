//! `operation start`.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use chrono::{DateTime, Utc};
use clap::Args;
use serde::Serialize;
use serde_json::{Value, json};
use tokio_postgres::Client;
use tuskline_sdk::verbs::{ALL_ROWS, PREVIEW_OPERATION, START_OPERATION};

use super::{ArchiveArgs, erase, wait};
use crate::cli::global::{Global, Outcome};
use crate::cli::output;
use crate::duration;

const EXAMPLES: &str = "\
Store consumers carry an operation out in batches, each in its own
transaction. Schedules, claims and results do not wait for it. It ends by
itself; --wait follows it and may be interrupted. A purge skips tasks that a
chain, an ordering key, a session or a redrive needs. A shorter retention
drops whole segments, and costs less than a purge. An erase deletes every
matching task of any status, also from the archive.

Examples:
  tuskline operation start cancel send_email --collection spring_sale
  tuskline operation start priority resize --to low --dry-run
  tuskline operation start purge --status dropped --older-than 1h --wait
  tuskline operation start redrive charge --canary --reason fixed
  tuskline operation start erase --key c_17 --reason 'request 4711' --dry-run
  tuskline operation start erase --field customer.id=17 --reason 'request 4711'";

const ACTIONS: [&str; 7] =
    ["cancel", "retry", "priority", "collection", "purge", "redrive", "erase"];

/// The action of an operation, its tasks, its pace and its reason.
#[derive(Debug, Args, Serialize)]
#[command(after_help = EXAMPLES)]
pub struct StartArgs {
    /// The action on the tasks.
    #[arg(value_parser = ACTIONS)]
    action: String,
    /// Only tasks of this lambda.
    lambda: Option<String>,
    /// The new priority or collection of waiting tasks; for a retry `now`, if due times shall not stay.
    #[arg(long, value_name = "VALUE")]
    #[serde(rename = "value")]
    to: Option<String>,
    /// Only these tasks, separated by commas; may be given many times.
    #[arg(long = "id", value_name = "ID", value_delimiter = ',')]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ids: Vec<i64>,
    /// Only tasks with this ordering, limit, fairness or unique key.
    #[arg(long, value_name = "TEXT")]
    key: Option<String>,
    /// Only tasks whose payload has this value at this path, e.g. customer.id=17.
    #[arg(long, value_name = "PATH=VALUE", value_parser = field)]
    #[serde(flatten)]
    field: Option<Field>,
    /// Only tasks of this collection.
    #[arg(long, value_name = "NAME")]
    collection: Option<String>,
    /// Only tasks of this priority.
    #[arg(long, value_name = "PRIORITY")]
    priority: Option<String>,
    /// Only tasks in these statuses, separated by commas.
    #[arg(long, value_name = "STATUS", value_delimiter = ',')]
    #[serde(rename = "statuses")]
    status: Option<Vec<String>>,
    /// Only dead letters whose last failure has this fingerprint, see `dead-letter groups`.
    #[arg(long, value_name = "TEXT")]
    fingerprint: Option<String>,
    /// Only tasks scheduled from then on, e.g. 2026-12-24T08:00:00Z.
    #[arg(long, value_name = "TIME")]
    created_from: Option<DateTime<Utc>>,
    /// Only tasks scheduled by then; by default by now.
    #[arg(long, value_name = "TIME")]
    created_to: Option<DateTime<Utc>>,
    /// Only tasks that had ended by then. Default: now, for a purge a minute ago.
    #[arg(long, value_name = "TIME")]
    ended_to: Option<DateTime<Utc>>,
    /// Only tasks that ended at least so long ago.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    #[arg(allow_hyphen_values = true, conflicts_with = "ended_to")]
    #[serde(serialize_with = "duration::serialize")]
    older_than: Option<Duration>,
    /// At most this many tasks.
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    limit: Option<i64>,
    /// At most this many tasks a second.
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    #[serde(skip)]
    per_second: Option<f64>,
    /// Let a redrive release 1 task, then 10, then the rest; stop when they die again.
    #[arg(long)]
    #[serde(skip)]
    canary: bool,
    /// Give the task of a redrive another payload, as JSON; for a single --id.
    #[arg(long, value_name = "JSON")]
    #[serde(skip)]
    payload: Option<String>,
    #[command(flatten)]
    #[serde(skip)]
    archive: ArchiveArgs,
    /// Why, for the audit.
    #[arg(long, value_name = "TEXT")]
    #[serde(skip)]
    reason: Option<String>,
    /// Only count the tasks that it would change, by lambda and status.
    #[arg(long, conflicts_with = "wait")]
    #[serde(skip)]
    dry_run: bool,
    /// Advance it until it ends, as `operation wait` does.
    #[arg(long)]
    #[serde(skip)]
    wait: bool,
}

/// A field of the payload: the names that lead to it, and its value as text.
#[derive(Debug, Clone, Serialize)]
pub struct Field {
    #[serde(rename = "field")]
    path: Vec<String>,
    equals: String,
}

fn field(text: &str) -> Result<Field, String> {
    let (path, equals) = text.split_once('=').ok_or("must be PATH=VALUE, as customer.id=17")?;
    Ok(Field { path: path.split('.').map(str::to_owned).collect(), equals: equals.into() })
}

pub async fn run(global: &Global, client: &Client, args: &StartArgs) -> Outcome {
    let mut choice = json!(args);
    let erases = args.action == "erase";
    let directory = match args.action.as_str() {
        "purge" | "erase" => args.archive.open()?,
        _ => None,
    };
    let lines = directory.as_ref().filter(|_| erases);
    let lines = lines.map(|directory| erase::Lines { client, directory, choice: choice.clone() });
    if args.dry_run {
        preview(global, client, &choice, lines.as_ref()).await?;
        return Ok(ExitCode::SUCCESS);
    }
    let files = directory.is_some() && !erases;
    choice["per_second"] = args.per_second.map(|tasks| tasks.to_string()).into();
    choice["canary"] = args.canary.into();
    choice["payload"] = args.payload.as_deref().into();
    choice["reason"] = args.reason.as_deref().into();
    choice["files"] = files.into();
    let operation: i64 = START_OPERATION.call(client, &choice).await?;
    if let Some(lines) = lines {
        return erase::wait(global, operation, &lines).await;
    }
    if args.wait || files {
        return wait::wait(global, client, operation, directory.as_ref()).await;
    }
    let text = format!(
        "operation {operation} is under way: tuskline operation wait {operation}, or stop {operation}"
    );
    output::answer(global, &json!({"operation": operation}), &text)?;
    Ok(ExitCode::SUCCESS)
}

async fn preview(
    global: &Global,
    client: &Client,
    choice: &Value,
    lines: Option<&erase::Lines<'_>>,
) -> Result<()> {
    let rows = PREVIEW_OPERATION.row(client, ALL_ROWS, choice).await?;
    let mut counts: Vec<Value> = serde_json::from_str(rows.get(0))?;
    if let Some(lines) = lines {
        counts.extend(lines.count().await?.iter().map(|file| json!(file)));
    }
    let columns = "lambda, status, stored in: place, tasks, first ids: first_ids";
    output::put_list(global, counts, columns, "it would change no task", |row| {
        row["place"] = place(row).into();
    })
}

/// Where the tasks of a row of the preview are stored.
fn place(row: &Value) -> String {
    match row["archived"].as_bool() {
        Some(true) => "task_archive".into(),
        Some(false) => "task".into(),
        None => output::field(row, "file"),
    }
}
