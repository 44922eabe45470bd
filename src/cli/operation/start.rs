//! `operation start`.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use chrono::{DateTime, Utc};
use clap::Args;
use serde_json::{Value, json};
use tokio_postgres::Client;
use tokio_postgres::types::{ToSql, Type};

use super::{ArchiveArgs, wait};
use crate::cli::{Global, Outcome, output, task};
use crate::duration;

const EXAMPLES: &str = "\
Store consumers carry an operation out, in batches, each in its own
transaction: schedules, claims and results wait for none. It ends by itself;
--wait follows it and may be interrupted. A purge leaves tasks alone that a
chain, an ordering key, a session or a redrive needs. A shorter retention,
which drops whole segments, costs less than a purge.

Examples:
  tuskline operation start cancel send_email --collection spring_sale
  tuskline operation start priority resize --to low --dry-run
  tuskline operation start purge --status dropped --older-than 1h --wait
  tuskline operation start redrive charge --canary --reason fixed";

const ACTIONS: [&str; 6] = ["cancel", "retry", "priority", "collection", "purge", "redrive"];

/// The action of an operation, its tasks, its pace and its reason.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct StartArgs {
    /// The action on the tasks.
    #[arg(value_parser = ACTIONS)]
    action: String,
    /// Only tasks of this lambda.
    lambda: Option<String>,
    /// The new priority or collection of waiting tasks.
    #[arg(long, value_name = "VALUE")]
    to: Option<String>,
    /// Only this task; may be given many times.
    #[arg(long = "id", value_name = "ID")]
    ids: Vec<i64>,
    /// Only tasks of this collection.
    #[arg(long, value_name = "NAME")]
    collection: Option<String>,
    /// Only tasks of this priority.
    #[arg(long, value_name = "PRIORITY")]
    priority: Option<String>,
    /// Only tasks in these statuses, separated by commas.
    #[arg(long, value_name = "STATUS", value_delimiter = ',')]
    status: Option<Vec<String>>,
    /// Only dead letters whose last failure has this fingerprint, see `dead groups`.
    #[arg(long, value_name = "TEXT")]
    fingerprint: Option<String>,
    /// Only tasks scheduled from then on, e.g. 2026-12-24T08:00:00Z.
    #[arg(long, value_name = "TIME")]
    created_from: Option<DateTime<Utc>>,
    /// Only tasks scheduled by then; by default by now.
    #[arg(long, value_name = "TIME")]
    created_to: Option<DateTime<Utc>>,
    /// Only tasks that had ended by then; by default by now, to purge a minute ago.
    #[arg(long, value_name = "TIME")]
    ended_to: Option<DateTime<Utc>>,
    /// Only tasks that ended at least so long ago.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    #[arg(allow_hyphen_values = true, conflicts_with = "ended_to")]
    older_than: Option<Duration>,
    /// At most so many tasks.
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    limit: Option<i64>,
    /// At most so many tasks a second.
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
    /// Only say how many tasks it is about, by lambda and status.
    #[arg(long, conflicts_with = "wait")]
    dry_run: bool,
    /// Help it on until it ends, as `operation wait`.
    #[arg(long)]
    wait: bool,
}

/// Parameters of a statement.
type Parameters<'a> = Vec<(&'a (dyn ToSql + Sync), Type)>;

/// First arguments of `start_operation` and `preview_operation`.
const CHOICE: &str = "$1, $2, $3, $4, $5, $6, $7, $8, $9, $10, \
                      coalesce($11, tuskline.clock() - $12 * interval '1 millisecond'), $13";

impl StartArgs {
    /// Parameters of [`CHOICE`].
    fn choice<'a>(
        &'a self,
        ids: &'a Option<&'a [i64]>,
        older_than: &'a Option<i64>,
    ) -> Parameters<'a> {
        vec![
            (&self.action, Type::TEXT),
            (&self.lambda, Type::TEXT),
            (&self.to, Type::TEXT),
            (&self.collection, Type::TEXT),
            (&self.priority, Type::TEXT),
            (&self.status, Type::TEXT_ARRAY),
            (&self.fingerprint, Type::TEXT),
            (ids, Type::INT8_ARRAY),
            (&self.created_from, Type::TIMESTAMPTZ),
            (&self.created_to, Type::TIMESTAMPTZ),
            (&self.ended_to, Type::TIMESTAMPTZ),
            (older_than, Type::INT8),
            (&self.limit, Type::INT8),
        ]
    }
}

pub async fn run(global: &Global, client: &Client, args: &StartArgs) -> Outcome {
    let ids = Some(args.ids.as_slice()).filter(|ids| !ids.is_empty());
    let older_than = args.older_than.map(duration::milliseconds);
    let mut parameters = args.choice(&ids, &older_than);
    if args.dry_run {
        preview(global, client, &parameters).await?;
        return Ok(ExitCode::SUCCESS);
    }
    let directory = if args.action == "purge" { args.archive.open()? } else { None };
    let files = directory.is_some();
    parameters.extend::<Parameters>(vec![
        (&args.per_second, Type::FLOAT8),
        (&args.canary, Type::BOOL),
        (&args.payload, Type::TEXT),
        (&args.reason, Type::TEXT),
        (&files, Type::BOOL),
    ]);
    let sql = format!("select tuskline.start_operation({CHOICE}, $14, $15, $16, $17, $18)");
    let operation: i64 = client.query_typed_one(&sql, &parameters).await?.get(0);
    if args.wait || files {
        return wait::wait(global, client, operation, directory.as_ref()).await;
    }
    let text = format!(
        "operation {operation} is under way: tuskline operation wait {operation}, or stop {operation}"
    );
    output::answer(global, &json!({"operation": operation}), &text)?;
    Ok(ExitCode::SUCCESS)
}

async fn preview(global: &Global, client: &Client, choice: &Parameters<'_>) -> Result<()> {
    let sql = format!("select row_to_json(p)::text from tuskline.preview_operation({CHOICE}) p");
    let counts = task::rows(client, &sql, choice).await?;
    if global.json {
        return Ok(output::put_json(&Value::Array(counts))?);
    }
    let columns = ["lambda", "status", "tasks", "first_ids"];
    let rows = counts.iter().map(|row| columns.map(|name| output::field(row, name)).into());
    let heading = ["lambda", "status", "tasks", "first ids"];
    Ok(output::put_table(&heading, rows.collect(), "it would change no task")?)
}
