//! `dead-letter list`, `dead-letter groups` and `dead-letter show`.

use anyhow::Result;
use clap::Args;
use serde_json::Value;
use tokio_postgres::Client;
use tokio_postgres::types::Type;

use crate::cli::failure::failed;
use crate::cli::global::Global;
use crate::cli::output;
use crate::cli::rows::rows;
use crate::duration;

/// Longest error message in a list, in characters; `dead-letter show` has all of it.
const LISTED_CHARS: usize = 60;

/// Arguments of `dead-letter list`.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// Only of this lambda.
    #[arg(long, value_name = "NAME")]
    lambda: Option<String>,
    /// Only those whose last failure has this fingerprint, see `dead-letter groups`.
    #[arg(long, value_name = "TEXT")]
    fingerprint: Option<String>,
    /// Only of this collection.
    #[arg(long, value_name = "NAME")]
    collection: Option<String>,
    /// At most so many.
    #[arg(long, default_value = "50", value_parser = clap::value_parser!(i64).range(1..=10_000))]
    limit: i64,
}

/// Without payloads, which may be large.
const LETTERS: &str = "select row_to_json(d)::text from (
    select id, lambda, collection, priority, status, attempt, crashes, error_class, message, fingerprint, failures,
           first_failed_at, last_failed_at, finished_at, expires_at, redrive_id,
           (1000 * extract(epoch from tuskline.clock() - finished_at))::bigint as dead_ms_ago
      from tuskline.dead_letters
     where ($1::text is null or lambda = $1) and ($2::text is null or fingerprint = $2)
       and ($3::text is null or collection = $3)
     order by id desc limit $4) d";

pub async fn list(global: &Global, client: &Client, args: &ListArgs) -> Result<()> {
    let letters = rows(
        client,
        LETTERS,
        &[
            (&args.lambda, Type::TEXT),
            (&args.fingerprint, Type::TEXT),
            (&args.collection, Type::TEXT),
            (&args.limit, Type::INT8),
        ],
    )
    .await?;
    let heading = ["id", "lambda", "status", "attempt", "died", "fingerprint", "error"];
    output::put_list(global, letters, &heading, "no task has failed for good", |letter| {
        let field = |name: &str| output::field(letter, name);
        vec![
            field("id"),
            field("lambda"),
            field("status"),
            field("attempt"),
            ago(letter, "dead_ms_ago"),
            field("fingerprint"),
            said(letter),
        ]
    })
}

pub async fn groups(global: &Global, client: &Client, lambda: Option<String>) -> Result<()> {
    let sql = "select row_to_json(g)::text from (
        select lambda, fingerprint, tasks, error_class, message, first_died_at, last_died_at, oldest_id, latest_id,
               (1000 * extract(epoch from tuskline.clock() - first_died_at))::bigint as first_ms_ago,
               (1000 * extract(epoch from tuskline.clock() - last_died_at))::bigint as last_ms_ago
          from tuskline.dead_groups where lambda = coalesce($1, lambda)
         order by tasks desc, lambda, fingerprint) g";
    let groups = rows(client, sql, &[(&lambda, Type::TEXT)]).await?;
    let heading = ["lambda", "fingerprint", "tasks", "first", "last", "error"];
    output::put_list(global, groups, &heading, "no task has failed for good", |group| {
        let field = |name: &str| output::field(group, name);
        vec![
            field("lambda"),
            field("fingerprint"),
            field("tasks"),
            ago(group, "first_ms_ago"),
            ago(group, "last_ms_ago"),
            said(group),
        ]
    })
}

/// The payload stays the text it is: no parser's limits on depth or on numbers apply.
pub async fn show(global: &Global, client: &Client, id: i64) -> Result<()> {
    let sql = "select row_to_json(d)::text, (to_jsonb(d) - 'payload')::text, d.payload::text from (
        select l.*, array(select row_to_json(f) from (
                 select h.attempt, h.error_class, h.message, h.failed_at from tuskline.task_failure h
                  where h.task_id = l.id order by h.failed_at, h.fence) f) as history
          from tuskline.dead_letters l where l.id = $1) d";
    let row = client.query_typed_opt(sql, &[(&id, Type::INT8)]).await?;
    let row = row
        .ok_or_else(|| failed(format!("task {id} is no dead letter: tuskline task status {id}")))?;
    if global.json {
        return Ok(output::put_json_text(row.get(0))?);
    }
    let letter: Value = serde_json::from_str(row.get(1))?;
    let text = |name: &str| output::filled(&letter, name);
    output::put_pairs(vec![
        ("id", text("id")),
        ("lambda", text("lambda")),
        ("collection", text("collection")),
        ("priority", text("priority")),
        ("status", text("status")),
        ("fingerprint", text("fingerprint")),
        ("failures", text("failures")),
        ("first failed at", text("first_failed_at")),
        ("died at", text("finished_at")),
        ("expires at", text("expires_at")),
        ("after redrive", text("redrive_id")),
        ("payload", row.get(2)),
    ])?;
    let history = letter["history"].as_array().map_or(&[][..], Vec::as_slice);
    let rows = history.iter().map(|failure| {
        ["attempt", "failed_at", "error_class", "message"]
            .map(|name| output::field(failure, name))
            .into()
    });
    output::put("")?;
    let heading = ["attempt", "failed at", "class", "message"];
    Ok(output::put_table(&heading, rows.collect(), "no attempt has failed")?)
}

fn ago(row: &Value, name: &str) -> String {
    let milliseconds = row.get(name).and_then(Value::as_i64);
    milliseconds.map_or_else(String::new, |ms| format!("{} ago", duration::show(ms)))
}

/// The class and the beginning of the message.
fn said(row: &Value) -> String {
    let whole = format!("{}: {}", output::field(row, "error_class"), output::field(row, "message"));
    match whole.char_indices().nth(LISTED_CHARS) {
        Some((at, _)) => format!("{}…", &whole[..at]),
        None => whole,
    }
}
