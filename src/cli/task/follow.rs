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
use crate::cli::words::cut;
use crate::duration;

/// Rests between two looks at a task: short for quick ones, longer for slow ones.
const FIRST_REST: Duration = Duration::from_millis(20);
const LONGEST_REST: Duration = Duration::from_secs(1);

/// Longest error message in the table of attempts, in characters; --json has all of it.
const LISTED_CHARS: usize = 61;

/// Arguments of `task wait`.
#[derive(Debug, Args)]
pub struct WaitArgs {
    /// Id of the task.
    id: i64,
    /// Give up after so long, e.g. 30s; by default never.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, allow_hyphen_values = true)]
    timeout: Option<Duration>,
}

pub async fn status(global: &Global, client: &Client, id: i64) -> Result<()> {
    Ok(put(global, &read(client, id).await?)?)
}

pub async fn wait(global: &Global, client: &Client, args: &WaitArgs) -> Outcome {
    let began = Instant::now();
    let mut rest = FIRST_REST;
    loop {
        let task = read(client, args.id).await?;
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

/// One row, with the result of each attempt. `{facts}` is the function that reads the task.
const STATUS: &str = "select row_to_json(s)::text from (
    select t.*, array(select row_to_json(o) from (
             select a.attempt, a.outcome, a.started_at, a.ended_at, a.executor_id, a.fence, a.error_class, a.message, a.fingerprint,
                    (1000 * extract(epoch from tuskline.clock() - a.started_at))::bigint as started_ms_ago,
                    (1000 * extract(epoch from coalesce(a.ended_at, tuskline.clock()) - a.started_at))::bigint as took_ms
               from tuskline.attempts a where a.task_id = t.id order by a.fence) o) as attempts
      from tuskline.{facts}($1) t) s";

/// A task as the JSON of the database, and its fields.
struct Status {
    json: String,
    fields: Value,
}

/// Payload and output stay the text they are: no parser's limits on depth or on numbers apply. A
/// login that may not read them gets the rest.
async fn read(client: &Client, id: i64) -> Result<Status> {
    let ask = async |facts| {
        let sql = STATUS.replace("{facts}", facts);
        client.query_typed_opt(&sql, &[(&id, Type::INT8)]).await
    };
    let row = match ask("task_status").await {
        Err(error) if error.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) => {
            ask("task_facts").await?
        }
        answer => answer?,
    };
    let json: String = row.ok_or_else(|| unknown(id))?.get(0);
    let raw: HashMap<&str, &RawValue> = serde_json::from_str(&json)?;
    let mut fields = serde_json::Map::new();
    for (name, value) in raw {
        let verbatim = matches!(name, "payload" | "output") && value.get() != "null";
        let value = if verbatim { value.get().into() } else { serde_json::from_str(value.get())? };
        fields.insert(name.to_owned(), value);
    }
    Ok(Status { json, fields: Value::Object(fields) })
}

fn unknown(id: i64) -> anyhow::Error {
    failed(format!("task {id} is unknown: never scheduled, or past its retention"))
}

fn put(global: &Global, status: &Status) -> std::io::Result<()> {
    if global.json {
        return output::put_json_text(&status.json);
    }
    let mut task = status.fields.clone();
    let of = |name: &str| output::filled(&task, name);
    let worker = of("executor_id").map(|number| {
        format!("{number} on {}, pid {}", output::field(&task, "host"), output::field(&task, "pid"))
    });
    let error = of("error").map(|said| format!("{}: {said}", output::field(&task, "error_class")));
    // Stands for the payload that the login may not read.
    let unreadable = || "- (this login has no right to read it)".to_owned();
    let payload = of("payload").or_else(|| task.get("payload").is_none().then(unreadable));
    let attempt = ["attempt", "max_attempts"].map(|name| output::field(&task, name)).join(" of ");
    task["attempt"] = attempt.into();
    task["worker"] = worker.into();
    task["error"] = error.into();
    task["payload"] = payload.into();
    for count in ["crashes", "failures"] {
        if task[count] == 0 {
            task[count] = Value::Null;
        }
    }
    let fields = "id, lambda, collection, priority, ordering key: ordering_key, limit key: limit_key, \
        fairness key: fairness_key, unique key: unique_key, traceparent, status, attempt, crashes, \
        created at: created_at, due at: due_at, started at: started_at, finished at: finished_at, \
        next look at: next_trigger_at, worker, lease until: lease_until, \
        cancel asked at: cancel_requested_at, failed attempts: failures, last error: error, output, \
        payload";
    output::put_fields(&task, fields)?;
    put_attempts(task["attempts"].as_array().cloned().unwrap_or_default())
}

/// Nothing for a task that was never tried.
fn put_attempts(mut attempts: Vec<Value>) -> std::io::Result<()> {
    if attempts.is_empty() {
        return Ok(());
    }
    for attempt in &mut attempts {
        let error = ["error_class", "message"].map(|name| output::field(attempt, name)).join(": ");
        let error = error.trim_matches([':', ' ']);
        attempt["error"] = cut(error, LISTED_CHARS).into();
    }
    let columns = "attempt, outcome, started: started_ms_ago, took: took_ms, \
        worker: executor_id, error";
    output::put("")?;
    output::put_rows(&attempts, columns, "")
}
