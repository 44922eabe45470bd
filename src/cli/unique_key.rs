//! `unique-key`: what a unique key means to a lambda.

use std::time::Duration;

use anyhow::Result;
use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;
use serde_json::json;
use tokio_postgres::Client;
use tuskline_sdk::verbs::{DROP_UNIQUE, SET_UNIQUE};

use super::failure::failed;
use super::global::Global;
use super::output;
use crate::duration;
use crate::store::rows::view;

/// `unique-key ...`.
#[derive(Debug, Subcommand)]
pub enum UniqueKeyCommand {
    /// Let the tasks of a lambda have unique keys.
    Set(SetArgs),
    /// Let them have none any more.
    Drop {
        /// Name of the lambda.
        lambda: String,
    },
    /// List the lambdas that have unique keys.
    List,
}

/// How long a key is held, and what becomes of another task.
#[derive(Debug, Args, Serialize)]
pub struct SetArgs {
    /// Name of the lambda.
    lambda: String,
    /// How long a task holds its key [default: running]
    #[arg(long, value_enum)]
    scope: Option<Scope>,
    /// With --scope period: how long, e.g. 10m.
    #[arg(long = "for", value_parser = duration::parse, value_name = "DURATION")]
    #[serde(serialize_with = "duration::serialize")]
    period: Option<Duration>,
    /// Treatment of another task with a key that is held [default: keep]
    #[arg(long, value_enum)]
    outcome: Option<OutcomeOf>,
}

/// How long a task holds its key.
#[derive(Debug, Clone, Copy, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
enum Scope {
    /// Until a worker claims it.
    Queued,
    /// Until it ends.
    Running,
    /// So long from its scheduling.
    Period,
    /// Beyond its retention.
    Forever,
}

/// Treatment of another task with the key.
#[derive(Debug, Clone, Copy, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
enum OutcomeOf {
    /// The first stays as it is, and its id is returned.
    Keep,
    /// The first gets the new payload, while it waits.
    Replace,
    /// The first gets the new due time, while it waits.
    Postpone,
    /// The call is refused.
    Reject,
}

pub async fn run(global: &Global, client: &Client, command: UniqueKeyCommand) -> Result<()> {
    match command {
        UniqueKeyCommand::Set(args) => set(global, client, &args).await,
        UniqueKeyCommand::Drop { lambda } => drop_keys(global, client, &lambda).await,
        UniqueKeyCommand::List => list(global, client).await,
    }
}

async fn set(global: &Global, client: &Client, args: &SetArgs) -> Result<()> {
    let lambda = &args.lambda;
    SET_UNIQUE.row(client, "true", &json!(args)).await?;
    let said =
        format!("{lambda} has unique keys; to take them away: tuskline unique-key drop {lambda}");
    output::answer(global, &json!({"lambda": lambda, "set": true}), &said)
}

async fn drop_keys(global: &Global, client: &Client, lambda: &str) -> Result<()> {
    if !DROP_UNIQUE.call(client, &json!({ "lambda": lambda })).await? {
        return Err(failed(format!("{lambda} has no unique keys: tuskline unique-key list")));
    }
    let said = format!("{lambda} has no unique keys any more");
    output::answer(global, &json!({"lambda": lambda, "dropped": true}), &said)
}

async fn list(global: &Global, client: &Client) -> Result<()> {
    let rules = view(client, "unique_keys", &[], "order by lambda", &[]).await?;
    let columns = "lambda, held: scope, another: outcome, keys, by: author";
    output::put_list(global, rules, columns, "no lambda has unique keys", |rule| {
        if let Some(period) = output::filled(rule, "period_ms") {
            rule["scope"] = format!("for {period}").into();
        }
    })
}
