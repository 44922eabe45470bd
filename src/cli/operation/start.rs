//! `operation start`.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use chrono::{DateTime, Utc};
use clap::Args;
use serde_json::{Value, json};
use tokio_postgres::Client;
use tokio_postgres::types::Type;

use super::erase::Parameters;
use super::{ArchiveArgs, erase, wait};
use crate::cli::global::{Global, Outcome};
use crate::cli::output;
use crate::cli::rows::rows;
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
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct StartArgs {
    /// The action on the tasks.
    #[arg(value_parser = ACTIONS)]
    action: String,
    /// Only tasks of this lambda.
    lambda: Option<String>,
    /// The new priority or collection of waiting tasks; for a retry `now`, if due times shall not stay.
    #[arg(long, value_name = "VALUE")]
    to: Option<String>,
    /// Only these tasks, separated by commas; may be given many times.
    #[arg(long = "id", value_name = "ID", value_delimiter = ',')]
    ids: Vec<i64>,
    /// Only tasks with this ordering, limit, fairness or unique key.
    #[arg(long, value_name = "TEXT")]
    key: Option<String>,
    /// Only tasks whose payload has this value at this path, e.g. customer.id=17.
    #[arg(long, value_name = "PATH=VALUE", value_parser = field)]
    field: Option<Field>,
    /// Only tasks of this collection.
    #[arg(long, value_name = "NAME")]
    collection: Option<String>,
    /// Only tasks of this priority.
    #[arg(long, value_name = "PRIORITY")]
    priority: Option<String>,
    /// Only tasks in these statuses, separated by commas.
    #[arg(long, value_name = "STATUS", value_delimiter = ',')]
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
    older_than: Option<Duration>,
    /// At most this many tasks.
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    limit: Option<i64>,
    /// At most this many tasks a second.
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    per_second: Option<f64>,
    /// Let a redrive release 1 task, then 10, then the rest; stop when they die again.
    #[arg(long)]
    canary: bool,
    /// Give the task of a redrive another payload, as JSON; for a single --id.
    #[arg(long, value_name = "JSON")]
    payload: Option<String>,
    #[command(flatten)]
    archive: ArchiveArgs,
    /// Why, for the audit.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Only count the tasks that it would change, by lambda and status.
    #[arg(long, conflicts_with = "wait")]
    dry_run: bool,
    /// Advance it until it ends, as `operation wait` does.
    #[arg(long)]
    wait: bool,
}

/// A field of the payload: the names that lead to it, and its value as text.
#[derive(Debug, Clone)]
pub struct Field {
    path: Vec<String>,
    equals: String,
}

fn field(text: &str) -> Result<Field, String> {
    let (path, equals) = text.split_once('=').ok_or("must be PATH=VALUE, as customer.id=17")?;
    Ok(Field { path: path.split('.').map(str::to_owned).collect(), equals: equals.into() })
}

/// First arguments of `start_operation` and `preview_operation`.
const CHOICE: &str = "$1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, \
                      coalesce($14, tuskline.clock() - $15 * interval '1 millisecond'), $16";

/// Values of [`CHOICE`] that the arguments hold in another form than they are sent.
#[derive(Debug)]
pub struct Chosen<'a> {
    ids: Option<&'a [i64]>,
    path: Option<&'a [String]>,
    equals: Option<&'a str>,
    older_than: Option<i64>,
}

impl StartArgs {
    fn chosen(&self) -> Chosen<'_> {
        Chosen {
            ids: Some(self.ids.as_slice()).filter(|ids| !ids.is_empty()),
            path: self.field.as_ref().map(|field| field.path.as_slice()),
            equals: self.field.as_ref().map(|field| field.equals.as_str()),
            older_than: self.older_than.map(duration::milliseconds),
        }
    }

    /// Parameters of [`CHOICE`].
    fn choice<'a>(&'a self, chosen: &'a Chosen<'a>) -> Parameters<'a> {
        vec![
            (&self.action, Type::TEXT),
            (&self.lambda, Type::TEXT),
            (&self.to, Type::TEXT),
            (&self.collection, Type::TEXT),
            (&self.priority, Type::TEXT),
            (&self.status, Type::TEXT_ARRAY),
            (&self.fingerprint, Type::TEXT),
            (&chosen.ids, Type::INT8_ARRAY),
            (&self.key, Type::TEXT),
            (&chosen.path, Type::TEXT_ARRAY),
            (&chosen.equals, Type::TEXT),
            (&self.created_from, Type::TIMESTAMPTZ),
            (&self.created_to, Type::TIMESTAMPTZ),
            (&self.ended_to, Type::TIMESTAMPTZ),
            (&chosen.older_than, Type::INT8),
            (&self.limit, Type::INT8),
        ]
    }

    /// Parameters of `lines_to_erase` after the first one. An erase has no further filter.
    pub fn of_lines<'a>(&'a self, chosen: &'a Chosen<'a>) -> Parameters<'a> {
        let (action, value, statuses, fingerprint) = (0, 2, 5, 6);
        let (ended_to, age, limit) = (13, 14, 15);
        let without = [action, value, statuses, fingerprint, ended_to, age, limit];
        let choice = self.choice(chosen).into_iter().enumerate();
        choice.filter(|(at, _)| !without.contains(at)).map(|(_, parameter)| parameter).collect()
    }
}

pub async fn run(global: &Global, client: &Client, args: &StartArgs) -> Outcome {
    let chosen = args.chosen();
    let mut parameters = args.choice(&chosen);
    let erases = args.action == "erase";
    let directory = match args.action.as_str() {
        "purge" | "erase" => args.archive.open()?,
        _ => None,
    };
    let lines = directory.as_ref().filter(|_| erases).map(|directory| erase::Lines {
        client,
        directory,
        filters: args.of_lines(&chosen),
    });
    if args.dry_run {
        preview(global, client, &parameters, lines.as_ref()).await?;
        return Ok(ExitCode::SUCCESS);
    }
    let files = directory.is_some() && !erases;
    parameters.extend::<Parameters>(vec![
        (&args.per_second, Type::FLOAT8),
        (&args.canary, Type::BOOL),
        (&args.payload, Type::TEXT),
        (&args.reason, Type::TEXT),
        (&files, Type::BOOL),
    ]);
    let sql = format!("select tuskline.start_operation({CHOICE}, $17, $18, $19, $20, $21)");
    let operation: i64 = client.query_typed_one(&sql, &parameters).await?.get(0);
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
    choice: &Parameters<'_>,
    lines: Option<&erase::Lines<'_>>,
) -> Result<()> {
    let sql = format!("select row_to_json(p)::text from tuskline.preview_operation({CHOICE}) p");
    let mut counts = rows(client, &sql, choice).await?;
    if let Some(lines) = lines {
        counts.extend(lines.count().await?.iter().map(erase::ErasedFile::json));
    }
    if global.json {
        return Ok(output::put_json(&Value::Array(counts))?);
    }
    let columns = ["lambda", "status", "tasks", "first_ids"];
    let rows = counts.iter().map(|row| {
        let mut cells: Vec<_> = columns.map(|name| output::field(row, name)).into();
        cells.insert(2, place(row));
        cells
    });
    let heading = ["lambda", "status", "stored in", "tasks", "first ids"];
    Ok(output::put_table(&heading, rows.collect(), "it would change no task")?)
}

/// Where the tasks of a row of the preview are stored.
fn place(row: &Value) -> String {
    match row["archived"].as_bool() {
        Some(true) => "task_archive".into(),
        Some(false) => "task".into(),
        None => output::field(row, "file"),
    }
}
