//! `limit`: how many tasks of a lambda run at a time or start in a second.

use anyhow::Result;
use clap::{Args, Subcommand};
use serde::Serialize;
use serde_json::json;
use tokio_postgres::Client;
use tuskline_sdk::verbs::{self, DROP_LIMIT, SET_LIMIT, SET_WEIGHT, THROTTLE};

use super::failure::failed;
use super::gate::{LEFT, Scope};
use super::global::Global;
use super::output;
use crate::store::rows::view;

/// `limit ...`.
#[derive(Debug, Subcommand)]
pub enum LimitCommand {
    /// Set a limit, or change it.
    Set(SetArgs),
    /// Let only so many tasks start in a second, for some time and a reason.
    Throttle {
        #[command(flatten)]
        scope: Scope,
        /// Tasks a second, over all workers; 0.5 is one in two seconds.
        #[arg(value_name = "N", allow_hyphen_values = true)]
        per_second: f64,
    },
    /// Give a tenant more or less than one task in a round of a fair limit.
    Weight {
        /// Number of the limit, see `limit list`.
        limit: i64,
        /// The fairness key.
        key: String,
        /// Tasks in a round.
        #[arg(allow_hyphen_values = true)]
        weight: f64,
    },
    /// Drop a limit or an order.
    Drop {
        /// Its number.
        limit: i64,
    },
    /// List limits and orders, with the permits that are held and the tasks that wait.
    List,
}

/// The tasks to limit, and the limit.
#[derive(Debug, Args, Serialize)]
#[command(
    group(clap::ArgGroup::new("what").required(true)),
    override_usage = "tuskline limit set <LAMBDA> --max-concurrency <N>|--per-second <N>"
)]
pub struct SetArgs {
    /// Name of the lambda.
    lambda: String,
    /// Tasks at a time, over all workers.
    #[arg(long, value_name = "N", allow_hyphen_values = true, group = "what")]
    max_concurrency: Option<i32>,
    /// Tasks a second, over all workers.
    #[arg(long, value_name = "N", allow_hyphen_values = true, group = "what")]
    #[serde(serialize_with = "verbs::float")]
    per_second: Option<f64>,
    /// Tasks that may start at once after a rest; a second's worth unless given.
    #[arg(long, value_name = "N", requires = "per_second")]
    burst: Option<i32>,
    /// Only this collection.
    #[arg(long, value_name = "NAME")]
    collection: Option<String>,
    /// Only this priority.
    #[arg(long, value_name = "PRIORITY")]
    priority: Option<String>,
    /// For each limit key by itself.
    #[arg(long)]
    by_key: bool,
    /// Waiting tasks take turns by fairness key, instead of by priority and age.
    #[arg(long, conflicts_with = "by_key")]
    fair: bool,
}

pub async fn run(global: &Global, client: &Client, command: LimitCommand) -> Result<()> {
    match command {
        LimitCommand::Set(args) => set(global, client, &args).await,
        LimitCommand::Throttle { per_second, scope } => {
            let mut throttle = json!(scope);
            throttle["per_second"] = per_second.to_string().into();
            said(global, THROTTLE.call(client, &throttle).await?)
        }
        LimitCommand::Weight { limit, key, weight } => {
            let text = weight.to_string();
            let set = json!({ "limit_id": limit, "fairness_key": key, "weight": text });
            SET_WEIGHT.row(client, "true", &set).await?;
            let said = format!("{key} has weight {weight}");
            output::answer(global, &json!({"limit_id": limit, "key": key}), &said)
        }
        LimitCommand::Drop { limit } => {
            if !DROP_LIMIT.call(client, &json!({ "limit_id": limit })).await? {
                return Err(failed(format!("there is no limit {limit}: tuskline limit list")));
            }
            let said = format!("limit {limit} is gone");
            output::answer(global, &json!({"limit_id": limit, "dropped": true}), &said)
        }
        LimitCommand::List => list(global, client).await,
    }
}

async fn set(global: &Global, client: &Client, args: &SetArgs) -> Result<()> {
    said(global, SET_LIMIT.call(client, &json!(args)).await?)
}

fn said(global: &Global, limit: i64) -> Result<()> {
    let said = format!("limit {limit} is set; to take it away: tuskline limit drop {limit}");
    output::answer(global, &json!({"limit_id": limit}), &said)
}

async fn list(global: &Global, client: &Client) -> Result<()> {
    let limits = view(client, "limits", &[LEFT], "order by limit_id", &[]).await?;
    let columns = "limit: limit_id, lambda, collection, priority, what, held, waiting, \
        ends: left_ms, reason";
    output::put_list(global, limits, columns, "no limit is set", |limit| {
        let field = |name: &str| output::field(limit, name);
        let what = match field("kind").as_str() {
            "order" => format!("in order, {}", field("on_failure")),
            "rate" => format!("{} a second", field("per_second")),
            _ => format!("{} at a time", field("max_concurrency")),
        };
        let how = match (limit["by_key"] == true, limit["fair"] == true) {
            (true, _) => ", by key",
            (_, true) => ", fair",
            _ => "",
        };
        limit["what"] = format!("{what}{how}").into();
    })
}
