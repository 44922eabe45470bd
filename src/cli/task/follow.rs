//! `task status`, `task wait` and `task cancel`.

use std::collections::HashMap;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Args;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::time::sleep;
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;
use tuskline_sdk::verbs::{CANCEL, RETRY};

use crate::cli::failure::failed;
use crate::cli::global::{Global, Outcome};
use crate::cli::output;
use crate::duration;

/// Rests between two looks at a task: short for quick ones, longer for slow ones.
const FIRST_REST: Duration = Duration::from_millis(20);
const LONGEST_REST: Duration = Duration::from_secs(1);

/// Longest error message in the table of attempts, in characters; --json has all of it.
const LISTED_CHARS: usize = 60;

/// Arguments of `task wait`.
#[derive(Debug, Args)]
pub struct WaitArgs {
    /// Id of the task.
    id: i64,
    /// Give up after so long, e.g. 30s; by default never.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, allow_hyphen_values = true)]
    timeout: Option<Duration>,
}

pub async fn status(global: &Global, client: &Client, id: i64) -> Outcome {
    put(global, &look(client, id).await?)?;
    Ok(ExitCode::SUCCESS)
}

pub async fn wait(global: &Global, client: &Client, args: &WaitArgs) -> Outcome {
    let began = Instant::now();
    let mut rest = FIRST_REST;
    loop {
        let task = look(client, args.id).await?;
        if task.fields["next_trigger_at"].is_null() {
            put(global, &task)?;
            let succeeded = task.fields["status"] == "success";
            return Ok(if succeeded { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
        let left = args.timeout.map(|timeout| timeout.saturating_sub(began.elapsed()));
        if left.is_some_and(|left| left.is_zero()) {
            let status = output::field(&task.fields, "status");
            let waited = duration::show(args.timeout.map_or(0, duration::milliseconds));
            return Err(failed(format!("task {} is still {status} after {waited}", args.id)));
        }
        sleep(left.map_or(rest, |left| left.min(rest))).await;
        rest = (rest * 3 / 2).min(LONGEST_REST);
    }
}

pub async fn cancel(global: &Global, client: &Client, id: i64, reason: Option<String>) -> Outcome {
    let arguments = json!({ "task": id, "reason": reason });
    let answer: String = CANCEL.call(client, &arguments).await?;
    let said = match answer.as_str() {
        "cancelled" => Ok("is cancelled"),
        "requested" => Ok("is with a worker, which is asked to stop"),
        "too_late" => Err("is finished already"),
        _ => return Err(unknown(id)),
    };
    tell(global, id, &answer, said)
}

pub async fn retry(global: &Global, client: &Client, id: i64, now: bool) -> Outcome {
    let arguments = json!({ "task": id, "due_now": now });
    let answer: String = RETRY.call(client, &arguments).await?;
    let said = match answer.as_str() {
        "retried" => Ok("starts again"),
        "too_early" => Err("has not ended"),
        "succeeded" => Err("has succeeded"),
        _ => return Err(unknown(id)),
    };
    tell(global, id, &answer, said)
}

/// The database's word about a task, and for people what it means: done, or not.
fn tell(global: &Global, id: i64, answer: &str, said: Result<&str, &str>) -> Outcome {
    let (Ok(text) | Err(text)) = said;
    output::answer(global, &json!({"id": id, "answer": answer}), &format!("task {id} {text}"))?;
    Ok(if said.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// One row, with what became of each attempt. `{facts}` is the function that tells of the task.
const LOOK: &str = "select row_to_json(s)::text from (
    select t.*, array(select row_to_json(o) from (
             select a.attempt, a.outcome, a.started_at, a.ended_at, a.executor_id, a.fence, a.error_class, a.message, a.fingerprint,
                    (1000 * extract(epoch from tuskline.clock() - a.started_at))::bigint as started_ms_ago,
                    (1000 * extract(epoch from coalesce(a.ended_at, tuskline.clock()) - a.started_at))::bigint as took_ms
               from tuskline.attempts a where a.task_id = t.id order by a.fence) o) as attempts
      from tuskline.{facts}($1) t) s";

/// A task as the database tells it, and its fields.
struct Look {
    told: String,
    fields: Value,
}

/// Payload and output stay the text they are: no parser's limits on depth or on numbers apply. A
/// login that may not read them gets the rest.
async fn look(client: &Client, id: i64) -> Result<Look> {
    let told_by = async |facts| {
        let sql = LOOK.replace("{facts}", facts);
        client.query_typed_opt(&sql, &[(&id, Type::INT8)]).await
    };
    let row = match told_by("task_status").await {
        Err(error) if error.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) => {
            told_by("task_facts").await?
        }
        told => told?,
    };
    let told: String = row.ok_or_else(|| unknown(id))?.get(0);
    let raw: HashMap<&str, &RawValue> = serde_json::from_str(&told)?;
    let mut fields = serde_json::Map::new();
    for (name, value) in raw {
        let verbatim = matches!(name, "payload" | "output") && value.get() != "null";
        let value = if verbatim { value.get().into() } else { serde_json::from_str(value.get())? };
        fields.insert(name.to_owned(), value);
    }
    Ok(Look { told, fields: Value::Object(fields) })
}

fn unknown(id: i64) -> anyhow::Error {
    failed(format!("task {id} is unknown: never scheduled, or past its retention"))
}

fn put(global: &Global, look: &Look) -> std::io::Result<()> {
    if global.json {
        return output::put_json_text(&look.told);
    }
    let task = &look.fields;
    let text = |name: &str| output::filled(task, name);
    let attempt =
        format!("{} of {}", output::field(task, "attempt"), output::field(task, "max_attempts"));
    let worker = text("executor_id").map(|number| {
        format!("{number} on {}, pid {}", output::field(task, "host"), output::field(task, "pid"))
    });
    let error = text("error").map(|said| format!("{}: {said}", output::field(task, "error_class")));
    output::put_pairs(vec![
        ("id", text("id")),
        ("lambda", text("lambda")),
        ("collection", text("collection")),
        ("priority", text("priority")),
        ("ordering key", text("ordering_key")),
        ("limit key", text("limit_key")),
        ("fairness key", text("fairness_key")),
        ("unique key", text("unique_key")),
        ("traceparent", text("traceparent")),
        ("status", text("status")),
        ("attempt", Some(attempt)),
        ("crashes", text("crashes").filter(|count| count != "0")),
        ("created at", text("created_at")),
        ("due at", text("due_at")),
        ("started at", text("started_at")),
        ("finished at", text("finished_at")),
        ("next look at", text("next_trigger_at")),
        ("worker", worker),
        ("lease until", text("lease_until")),
        ("cancel asked at", text("cancel_requested_at")),
        ("failed attempts", text("failures").filter(|count| count != "0")),
        ("last error", error),
        ("output", text("output")),
        ("payload", text("payload").or_else(|| unreadable(task))),
    ])?;
    put_attempts(task["attempts"].as_array().map_or(&[][..], Vec::as_slice))
}

/// Stands for the payload that the login may not read.
fn unreadable(task: &Value) -> Option<String> {
    task.get("payload").is_none().then(|| "- (this login has no right to read it)".to_owned())
}

/// The beginning of an error.
fn listed(error: &str) -> String {
    match error.char_indices().nth(LISTED_CHARS) {
        Some((at, _)) => format!("{}…", &error[..at]),
        None => error.to_owned(),
    }
}

/// Nothing for a task that was never tried.
fn put_attempts(attempts: &[Value]) -> std::io::Result<()> {
    if attempts.is_empty() {
        return Ok(());
    }
    let span = |attempt: &Value, name: &str| attempt[name].as_i64().map(duration::show);
    let rows = attempts.iter().map(|attempt| {
        let field = |name: &str| output::field(attempt, name);
        let error = [field("error_class"), field("message")];
        vec![
            field("attempt"),
            field("outcome"),
            span(attempt, "started_ms_ago").map_or_else(String::new, |ago| format!("{ago} ago")),
            span(attempt, "took_ms").unwrap_or_default(),
            field("executor_id"),
            listed(error.join(": ").trim_matches([':', ' '])),
        ]
    });
    output::put("")?;
    let heading = ["attempt", "outcome", "started", "took", "worker", "error"];
    output::put_table(&heading, rows.collect(), "")
}
