//! `dead redrive` and `dead redrives`.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use chrono::{DateTime, Utc};
use clap::Args;
use serde_json::json;
use tokio::time::sleep;
use tokio_postgres::Client;
use tokio_postgres::types::{ToSql, Type};

use crate::cli::failure::failed;
use crate::cli::{Global, Outcome, output, task};

/// Rest between two looks at a redrive.
const REST: Duration = Duration::from_millis(500);

/// Which dead letters begin anew, how fast, and why.
#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("whose").required(true).multiple(true)))]
pub struct RedriveArgs {
    /// Name of the lambda.
    #[arg(group = "whose")]
    lambda: Option<String>,
    /// Only this task; may be given many times.
    #[arg(long = "id", value_name = "ID", group = "whose")]
    ids: Vec<i64>,
    /// Only those whose last failure has this fingerprint, see `dead groups`.
    #[arg(long, value_name = "TEXT")]
    fingerprint: Option<String>,
    /// Only this collection.
    #[arg(long, value_name = "NAME")]
    collection: Option<String>,
    /// Only those that had died by then, e.g. 2026-12-24T08:00:00Z.
    #[arg(long, value_name = "TIME")]
    before: Option<DateTime<Utc>>,
    /// At most so many.
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    limit: Option<i64>,
    /// At most so many a second.
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    per_second: Option<f64>,
    /// Let 1 go, then 10, then the rest; stop when they die again.
    #[arg(long)]
    canary: bool,
    /// Give the task another payload, as JSON; for a single --id.
    #[arg(long, value_name = "JSON")]
    payload: Option<String>,
    /// Why, for the audit.
    #[arg(long, value_name = "TEXT", required_unless_present = "dry_run")]
    reason: Option<String>,
    /// Only say how many it would be, and show some.
    #[arg(long, conflicts_with = "wait")]
    dry_run: bool,
    /// Wait until it is over; exit code 0 if it let all go, else 1.
    #[arg(long)]
    wait: bool,
}

/// Parameters of a statement.
type Parameters<'a> = Vec<(&'a (dyn ToSql + Sync), Type)>;

impl RedriveArgs {
    /// Which dead letters: the first parameters of `redrive` and of `preview_redrive`.
    fn choice<'a>(&'a self, ids: &'a Option<&'a [i64]>) -> Parameters<'a> {
        vec![
            (&self.lambda, Type::TEXT),
            (&self.fingerprint, Type::TEXT),
            (ids, Type::INT8_ARRAY),
            (&self.collection, Type::TEXT),
            (&self.before, Type::TIMESTAMPTZ),
            (&self.limit, Type::INT8),
        ]
    }

    fn ids(&self) -> Option<&[i64]> {
        Some(self.ids.as_slice()).filter(|ids| !ids.is_empty())
    }
}

pub async fn run(global: &Global, client: &Client, args: &RedriveArgs) -> Outcome {
    if args.dry_run {
        preview(global, client, args).await?;
        return Ok(ExitCode::SUCCESS);
    }
    let sql = "select tuskline.redrive($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";
    let ids = args.ids();
    let mut parameters = args.choice(&ids);
    parameters.extend::<Parameters>(vec![
        (&args.per_second, Type::FLOAT8),
        (&args.canary, Type::BOOL),
        (&args.payload, Type::TEXT),
        (&args.reason, Type::TEXT),
    ]);
    let redrive: i64 = client.query_typed_one(sql, &parameters).await?.get(0);
    if args.wait {
        return wait(global, client, redrive).await;
    }
    output::answer(
        global,
        &json!({"redrive": redrive}),
        &format!(
            "redrive {redrive} is under way: tuskline dead redrives; to stop it: tuskline dead stop {redrive}"
        ),
    )?;
    Ok(ExitCode::SUCCESS)
}

async fn preview(global: &Global, client: &Client, args: &RedriveArgs) -> Result<()> {
    let sql = "select p.tasks, coalesce(p.first_ids, '{}') from tuskline.preview_redrive($1, $2, $3, $4, $5, $6) p";
    let ids = args.ids();
    let row = client.query_typed_one(sql, &args.choice(&ids)).await?;
    let (tasks, first): (i64, Vec<i64>) = (row.get(0), row.get(1));
    let sql = "select row_to_json(d)::text from (
        select id, lambda, collection, fingerprint, error_class, left(message, 200) as message, finished_at
          from tuskline.dead_letters where id = any ($1) order by array_position($1, id)) d";
    let letters = task::rows(client, sql, &[(&first, Type::INT8_ARRAY)]).await?;
    if global.json {
        return Ok(output::put_json(&json!({"tasks": tasks, "first": letters}))?);
    }
    output::put(&format!("{tasks} tasks would begin anew"))?;
    if letters.is_empty() {
        return Ok(());
    }
    let columns = ["id", "lambda", "collection", "fingerprint", "message"];
    let rows = letters.iter().map(|row| columns.map(|name| output::field(row, name)).into());
    Ok(output::put_table(&columns, rows.collect(), "")?)
}

const REDRIVES: &str = "select row_to_json(r)::text from (
    select redrive_id, state, lambda, fingerprint, ids, collection, died_until, most, per_second, canary, step, watched,
           released, died_again, reason, author, set_at, ended_at, note
      from tuskline.redrives where redrive_id = coalesce($1, redrive_id) order by redrive_id) r";

/// Looks until it is over; on a terminal a line says how far it has come.
async fn wait(global: &Global, client: &Client, redrive: i64) -> Outcome {
    let shows = !global.json && std::io::stderr().is_terminal();
    loop {
        let found = task::rows(client, REDRIVES, &[(&redrive, Type::INT8)]).await?;
        let Some(row) = found.first() else {
            return Err(failed(format!("redrive {redrive} is gone")));
        };
        let field = |name: &str| output::clean(&output::field(row, name));
        let progress =
            format!("redrive {redrive}: {}, {} let go", field("state"), field("released"));
        if shows {
            let mut err = std::io::stderr().lock();
            // Whoever does not read on does not mind.
            let _ = write!(err, "\r{progress:<60}").and_then(|()| err.flush());
        }
        if row["ended_at"].is_null() {
            sleep(REST).await;
            continue;
        }
        if shows {
            eprintln!();
        }
        if global.json {
            output::put_json(row)?;
        } else {
            let note = output::filled(row, "note").map(|note| format!(", {note}"));
            output::put(&format!("{progress}{}", note.unwrap_or_default()))?;
        }
        let done = row["state"] == "done";
        return Ok(if done { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
}

pub async fn list(global: &Global, client: &Client) -> Result<()> {
    let redrives = task::rows(client, REDRIVES, &[(&None::<i64>, Type::INT8)]).await?;
    let columns = [
        "redrive_id",
        "state",
        "lambda",
        "fingerprint",
        "released",
        "died_again",
        "author",
        "reason",
        "note",
    ];
    let heading = [
        "redrive",
        "state",
        "lambda",
        "fingerprint",
        "let go",
        "died again",
        "by",
        "reason",
        "note",
    ];
    output::put_list(global, redrives, &heading, "nothing was redriven", |row| {
        columns.map(|name| output::field(row, name)).into()
    })
}
