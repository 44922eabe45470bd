//! `dead-letter list`, `dead-letter groups` and `dead-letter show`.

use anyhow::Result;
use clap::Args;
use serde_json::Value;
use tokio_postgres::Client;
use tokio_postgres::types::Type;

use crate::cli::failure::failed;
use crate::cli::global::Global;
use crate::cli::output;
use crate::cli::words::cut;
use crate::store::rows::{Parameters, rows, view};

/// Longest error message in a list, in characters; `dead-letter show` has all of it.
const LISTED_CHARS: usize = 61;

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
const LETTERS: &str = "
    select id, lambda, collection, priority, status, attempt, crashes, error_class, message, fingerprint, failures,
           first_failed_at, last_failed_at, finished_at, expires_at, redrive_id,
           (1000 * extract(epoch from tuskline.clock() - finished_at))::bigint as dead_ms_ago
      from tuskline.dead_letters
     where ($1::text is null or lambda = $1) and ($2::text is null or fingerprint = $2)
       and ($3::text is null or collection = $3)
     order by id desc limit $4";

pub async fn list(global: &Global, client: &Client, args: &ListArgs) -> Result<()> {
    let ListArgs { lambda, fingerprint, collection, limit } = args;
    let parameters: &Parameters<'_> = &[
        (lambda, Type::TEXT),
        (fingerprint, Type::TEXT),
        (collection, Type::TEXT),
        (limit, Type::INT8),
    ];
    let letters = rows(client, LETTERS, parameters).await?;
    let columns = "id, lambda, status, attempt, died: dead_ms_ago, fingerprint, error";
    output::put_list(global, letters, columns, "no task has failed for good", add_error)
}

pub async fn groups(global: &Global, client: &Client, lambda: Option<String>) -> Result<()> {
    let spans = [
        ("first_ms_ago", "tuskline.clock() - first_died_at"),
        ("last_ms_ago", "tuskline.clock() - last_died_at"),
    ];
    let wanted = "where lambda = coalesce($1, lambda) order by tasks desc, lambda, fingerprint";
    let groups = view(client, "dead_groups", &spans, wanted, &[(&lambda, Type::TEXT)]).await?;
    let columns = "lambda, fingerprint, tasks, first: first_ms_ago, last: last_ms_ago, error";
    output::put_list(global, groups, columns, "no task has failed for good", add_error)
}

/// The payload stays the text it is: no parser's limits on depth or on numbers apply.
pub async fn show(global: &Global, client: &Client, id: i64) -> Result<()> {
    let sql = "select row_to_json(d)::text, (to_jsonb(d) - 'payload')::text, d.payload::text from (
        select l.*, array(select row_to_json(f) from (
                 select h.attempt, h.error_class, h.message, h.ended_at as failed_at
                   from tuskline.attempts h
                  where h.task_id = l.id and h.fingerprint is not null
                  order by h.ended_at, h.fence) f) as history
          from tuskline.dead_letters l where l.id = $1) d";
    let row = client.query_typed_opt(sql, &[(&id, Type::INT8)]).await?;
    let row = row
        .ok_or_else(|| failed(format!("task {id} is no dead letter: tuskline task status {id}")))?;
    if global.json {
        return Ok(output::put_json_text(row.get(0))?);
    }
    let mut letter: Value = serde_json::from_str(row.get(1))?;
    letter["payload"] = row.get::<_, Option<String>>(2).into();
    let titles = "id, lambda, collection, priority, status, fingerprint, failures, \
        first failed at: first_failed_at, died at: finished_at, \
        expires at: expires_at, after redrive: redrive_id, class: error_class, message, payload";
    output::put_fields(&letter, titles)?;
    output::put("")?;
    let history = letter["history"].as_array().map_or(&[][..], Vec::as_slice);
    let columns = "attempt, failed at: failed_at, class: error_class, message";
    Ok(output::put_rows(history, columns, "no attempt has failed")?)
}

/// The class and the beginning of the message.
fn add_error(row: &mut Value) {
    let whole = format!("{}: {}", output::field(row, "error_class"), output::field(row, "message"));
    row["error"] = cut(&whole, LISTED_CHARS).into();
}
