//! `lambda`: define, alter, list and show lambdas.

mod retention;

use std::time::Duration;

use anyhow::Result;
use clap::{Args, Subcommand};
use serde::Serialize;
use serde_json::{Map, Value, json};
use tokio_postgres::Client;
use tokio_postgres::types::Type;
use tuskline_sdk::verbs::{ALTER_LAMBDA, DEFINE_LAMBDA};

use super::failure::{WrongCall, failed};
use super::global::Global;
use super::output;
use crate::duration;
use crate::store::rows::{rows, view};

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

pub async fn run(global: &Global, client: &Client, command: LambdaCommand) -> Result<()> {
    match command {
        LambdaCommand::Define { name, settings } => define(global, client, &name, &settings).await,
        LambdaCommand::Alter { name, settings } => alter(global, client, &name, &settings).await,
        LambdaCommand::List => list(global, client).await,
        LambdaCommand::Show { name } => show(global, client, &name).await,
    }
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
    let said = format!("lambda {name} is altered");
    output::answer(global, &json!({"lambda": name, "altered": true}), &said)
}

async fn list(global: &Global, client: &Client) -> Result<()> {
    let lambdas = view(client, "lambdas", &[], "order by name", &[]).await?;
    let columns = "name, ready: depth, workers: live_workers, attempts: max_attempts, \
        timeout: attempt_timeout_ms, retry, retention: retention_ms, direct";
    let none = "no lambda is defined: tuskline lambda define NAME";
    output::put_list(global, lambdas, columns, none, |lambda| {
        let [base, cap] = ["retry_base_ms", "retry_cap_ms"].map(|name| output::field(lambda, name));
        lambda["retry"] = format!("{base} to {cap}").into();
    })
}

async fn show(global: &Global, client: &Client, name: &str) -> Result<()> {
    let mut found = view(client, "lambdas", &[], "where name = $1", &[(&name, Type::TEXT)]).await?;
    let Some(mut lambda) = found.pop() else {
        return Err(failed(format!("lambda {name} is not defined")));
    };
    let queues = "select priority, depth, live_workers, leaf from tuskline.queues
                   where lambda = $1 order by priority";
    let queues: Vec<Value> = rows(client, queues, &[(&name, Type::TEXT)]).await?;
    if global.json {
        lambda["queues"] = Value::Array(queues);
        return Ok(output::put_json(&lambda)?);
    }
    // Its settings by their names; the columns that count are those of its queues.
    let settings = lambda.as_object().into_iter().flat_map(|fields| fields.keys());
    let settings =
        settings.filter(|name| !["name", "depth", "live_workers"].contains(&name.as_str()));
    let settings: Vec<_> = settings
        .map(|name| format!("{}: {name}", name.trim_end_matches("_ms").replace('_', " ")))
        .collect();
    output::put_fields(&lambda, &format!("name, {}", settings.join(", ")))?;
    output::put("")?;
    let columns = "priority, ready: depth, workers: live_workers, table: leaf";
    Ok(output::put_rows(&queues, columns, "no queues")?)
}
