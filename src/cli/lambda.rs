//! `lambda`: define, alter, list and show lambdas.

mod retention;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::{Args, Subcommand};
use serde::Serialize;
use serde_json::{Map, Value, json};
use tokio_postgres::Client;
use tokio_postgres::types::Type;
use tuskline_sdk::verbs::{ALTER_LAMBDA, DEFINE_LAMBDA};

use super::failure::{WrongCall, failed};
use super::global::{Global, Outcome};
use super::rows::rows;
use super::{database, output};
use crate::duration;

/// `lambda ...`.
#[derive(Debug, Subcommand)]
pub enum LambdaCommand {
    /// Make a lambda known and create its queues; an existing one is left as it is.
    Define {
        /// Name: [a-z][a-z0-9_]{0,62}.
        name: String,
        #[command(flatten)]
        settings: Settings,
    },
    /// Change the given settings of a lambda and leave the rest.
    Alter {
        /// Name of the lambda.
        name: String,
        #[command(flatten)]
        settings: Settings,
    },
    /// List every lambda with its ready tasks and live workers.
    List,
    /// Show one lambda, its settings and its queues.
    Show {
        /// Name of the lambda.
        name: String,
    },
}

/// Settings of a lambda; what is left out keeps its default, or its value.
#[derive(Debug, Args, Serialize)]
pub struct Settings {
    /// Hard deadline of one attempt, e.g. 5m.
    #[arg(long, value_parser = duration::parse, allow_hyphen_values = true, value_name = "DURATION")]
    #[serde(serialize_with = "duration::serialize")]
    attempt_timeout: Option<Duration>,
    /// Attempts that may fail before a task is dead.
    #[arg(long, value_name = "N")]
    max_attempts: Option<i32>,
    /// Worker deaths in a row before a task is dead.
    #[arg(long, value_name = "N")]
    max_crashes: Option<i32>,
    /// Delay before the second attempt; doubles each time.
    #[arg(long, value_parser = duration::parse, allow_hyphen_values = true, value_name = "DURATION")]
    #[serde(serialize_with = "duration::serialize")]
    retry_base: Option<Duration>,
    /// Longest delay between two attempts.
    #[arg(long, value_parser = duration::parse, allow_hyphen_values = true, value_name = "DURATION")]
    #[serde(serialize_with = "duration::serialize")]
    retry_cap: Option<Duration>,
    /// How long a finished task stays: success, cancelled, dropped.
    #[arg(long, value_parser = duration::parse, allow_hyphen_values = true, value_name = "DURATION")]
    #[serde(serialize_with = "duration::serialize")]
    retention: Option<Duration>,
    /// How long a failed task stays: dead, fatal_failure.
    #[arg(long, value_parser = duration::parse, allow_hyphen_values = true, value_name = "DURATION")]
    #[serde(serialize_with = "duration::serialize")]
    dead_retention: Option<Duration>,
    #[command(flatten)]
    #[serde(flatten)]
    keeping: retention::Keeping,
    /// A due task goes into its queue in the transaction that schedules it (the default).
    #[arg(long, conflicts_with = "no_direct")]
    #[serde(skip)]
    direct: bool,
    /// The store consumer moves every task into its queue.
    #[arg(long)]
    #[serde(skip)]
    no_direct: bool,
    /// Largest payload accepted, in bytes of JSON text.
    #[arg(long, value_name = "BYTES")]
    max_payload_bytes: Option<i32>,
    /// Refuse tasks while so many wait; 0: never.
    #[arg(long, value_name = "TASKS", allow_hyphen_values = true)]
    max_backlog: Option<i32>,
}

impl Settings {
    /// The arguments of a verb: those that were given. `alters`: the verb changes a lambda.
    fn of(&self, alters: bool) -> Map<String, Value> {
        let mut given = json!(self);
        if self.direct || self.no_direct {
            given["direct"] = self.direct.into();
        }
        if alters {
            given["as_others"] = self.keeping.as_others();
        }
        let given = given.as_object().into_iter().flatten();
        let given = given.filter(|(_, value)| !value.is_null());
        given.map(|(name, value)| (name.clone(), value.clone())).collect()
    }
}

pub async fn run(global: &Global, command: LambdaCommand) -> Outcome {
    let session = database::open(global).await?;
    let client = session.client();
    match command {
        LambdaCommand::Define { name, settings } => define(global, client, &name, &settings).await,
        LambdaCommand::Alter { name, settings } => alter(global, client, &name, &settings).await,
        LambdaCommand::List => list(global, client).await,
        LambdaCommand::Show { name } => show(global, client, &name).await,
    }?;
    Ok(ExitCode::SUCCESS)
}

async fn define(global: &Global, client: &Client, name: &str, settings: &Settings) -> Result<()> {
    let mut arguments = settings.of(false);
    arguments.insert("name".to_owned(), name.into());
    let new: bool = DEFINE_LAMBDA.call(client, &arguments.into()).await?;
    if global.json {
        return Ok(output::put_json(&json!({"lambda": name, "defined": new}))?);
    }
    let said = if new { "is defined" } else { "was defined before and is left as it is" };
    output::put(&format!("lambda {name} {said}"))?;
    if !new && !settings.of(true).is_empty() {
        output::put(&format!("to change its settings: tuskline lambda alter {name} ..."))?;
    }
    Ok(())
}

async fn alter(global: &Global, client: &Client, name: &str, settings: &Settings) -> Result<()> {
    let mut arguments = settings.of(true);
    if arguments.is_empty() {
        return Err(WrongCall("nothing to alter: give at least one setting".to_owned()).into());
    }
    arguments.insert("name".to_owned(), name.into());
    ALTER_LAMBDA.row(client, "true", &arguments.into()).await?;
    if global.json {
        return Ok(output::put_json(&json!({"lambda": name, "altered": true}))?);
    }
    Ok(output::put(&format!("lambda {name} is altered"))?)
}

/// Durations as milliseconds: JSON has no interval.
const LAMBDAS: &str = "select row_to_json(l)::text from (
    select name, owner::text, max_attempts, max_crashes,
           (1000 * extract(epoch from attempt_timeout))::bigint as attempt_timeout_ms,
           (1000 * extract(epoch from retry_base))::bigint as retry_base_ms,
           (1000 * extract(epoch from retry_cap))::bigint as retry_cap_ms,
           (1000 * extract(epoch from retention))::bigint as retention_ms,
           (1000 * extract(epoch from dead_retention))::bigint as dead_retention_ms,
           (1000 * extract(epoch from cancelled_retention))::bigint as cancelled_retention_ms,
           (1000 * extract(epoch from dropped_retention))::bigint as dropped_retention_ms,
           (1000 * extract(epoch from fatal_retention))::bigint as fatal_retention_ms, archive,
           direct, max_payload_bytes, max_backlog, depth::bigint, live_workers, created_at, altered_at
      from tuskline.lambdas where name = coalesce($1, name) order by name) l";

async fn lambdas(client: &Client, name: Option<&str>) -> Result<Vec<Value>> {
    rows(client, LAMBDAS, &[(&name, Type::TEXT)]).await
}

async fn list(global: &Global, client: &Client) -> Result<()> {
    let lambdas = lambdas(client, None).await?;
    if global.json {
        return Ok(output::put_json(&Value::Array(lambdas))?);
    }
    let heading =
        ["name", "ready", "workers", "attempts", "timeout", "retry", "retention", "direct"];
    let rows = lambdas.iter().map(|l| {
        vec![
            output::field(l, "name"),
            output::field(l, "depth"),
            output::field(l, "live_workers"),
            output::field(l, "max_attempts"),
            span(l, "attempt_timeout_ms"),
            format!("{} to {}", span(l, "retry_base_ms"), span(l, "retry_cap_ms")),
            span(l, "retention_ms"),
            output::field(l, "direct"),
        ]
    });
    let none = "no lambda is defined: tuskline lambda define NAME";
    Ok(output::put_table(&heading, rows.collect(), none)?)
}

async fn show(global: &Global, client: &Client, name: &str) -> Result<()> {
    let mut found = lambdas(client, Some(name)).await?;
    let Some(mut lambda) = found.pop() else {
        return Err(failed(format!("lambda {name} is not defined")));
    };
    let queues = "select row_to_json(q)::text from (
        select priority, depth, live_workers, leaf from tuskline.queues
         where lambda = $1 order by priority) q";
    let queues = rows(client, queues, &[(&name, Type::TEXT)]).await?;
    if global.json {
        lambda["queues"] = Value::Array(queues);
        return Ok(output::put_json(&lambda)?);
    }
    output::put_pairs(settings_of(&lambda))?;
    output::put("")?;
    let rows = queues.iter().map(|queue| {
        ["priority", "depth", "live_workers", "leaf"].map(|name| output::field(queue, name)).into()
    });
    let heading = ["priority", "ready", "workers", "table"];
    Ok(output::put_table(&heading, rows.collect(), "no queues")?)
}

fn settings_of(lambda: &Value) -> Vec<(&'static str, Option<String>)> {
    let text = |name: &str| Some(output::field(lambda, name));
    let time = |name: &str| Some(span(lambda, name));
    // The same as the general retention, unless it has its own.
    let own = |name: &str| time(name).filter(|shown| !shown.is_empty());
    vec![
        ("name", text("name")),
        ("owner", text("owner")),
        ("attempt timeout", time("attempt_timeout_ms")),
        ("max attempts", text("max_attempts")),
        ("max crashes", text("max_crashes")),
        ("retry base", time("retry_base_ms")),
        ("retry cap", time("retry_cap_ms")),
        ("retention", time("retention_ms")),
        ("dead retention", time("dead_retention_ms")),
        ("  of cancelled", own("cancelled_retention_ms")),
        ("  of dropped", own("dropped_retention_ms")),
        ("  of fatal", own("fatal_retention_ms")),
        ("archive", text("archive")),
        ("direct", text("direct")),
        ("max payload", Some(format!("{} bytes", output::field(lambda, "max_payload_bytes")))),
        ("max backlog", text("max_backlog")),
        ("defined at", text("created_at")),
        ("altered at", text("altered_at")),
    ]
}

fn span(row: &Value, name: &str) -> String {
    row.get(name).and_then(Value::as_i64).map_or_else(String::new, duration::show)
}
