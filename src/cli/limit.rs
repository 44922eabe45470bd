//! `limit`: how many tasks of a lambda run at a time or start in a second, in which order, in whose turn.

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use tokio_postgres::Client;
use tokio_postgres::types::{ToSql, Type};

use super::failure::failed;
use super::gate::Scope;
use super::{Global, Outcome, database, output};
use crate::duration;

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
    /// Let tasks have an ordering key: one at a time, in order, for each key.
    Order {
        /// Name of the lambda.
        lambda: String,
        /// What becomes of a key whose task fails for good: block, skip or dead.
        #[arg(long, value_name = "POLICY", default_value = "block")]
        on_failure: String,
    },
    /// Give a tenant more or less than one task in a round of a fair limit.
    Weight {
        /// Number of the limit, see `limit list`.
        rule: i64,
        /// The fairness key.
        key: String,
        /// Tasks in a round.
        #[arg(allow_hyphen_values = true)]
        weight: f64,
    },
    /// Take a limit or an order away.
    Drop {
        /// Its number.
        rule: i64,
    },
    /// List limits and orders, who holds a place and who waits.
    List,
    /// List the ordering keys that a failed task blocks.
    Blocked,
    /// Let a blocked ordering key go on with its next task.
    Unblock {
        /// Name of the lambda.
        lambda: String,
        /// The ordering key.
        key: String,
    },
}

/// What is limited, and to how much.
#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("what").required(true)))]
pub struct SetArgs {
    /// Name of the lambda.
    lambda: String,
    /// Tasks at a time, over all workers.
    #[arg(long, value_name = "N", allow_hyphen_values = true, group = "what")]
    most: Option<i32>,
    /// Tasks a second, over all workers.
    #[arg(long, value_name = "N", allow_hyphen_values = true, group = "what")]
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
    /// Who waits takes turns by fairness key, instead of by priority and age.
    #[arg(long, conflicts_with = "by_key")]
    fair: bool,
}

pub async fn run(global: &Global, command: LimitCommand) -> Outcome {
    let session = database::open(global).await?;
    let client = session.client();
    match command {
        LimitCommand::Set(args) => set(global, client, &args).await,
        LimitCommand::Throttle { per_second, scope } => {
            let sql = "select tuskline.throttle($1, $2, $3, $4, $5, \
                       $6 * interval '1 millisecond', $7, $8)";
            said(global, scope.set(client, sql, (&per_second, Type::FLOAT8)).await?)
        }
        LimitCommand::Order { lambda, on_failure } => {
            let sql = "select tuskline.set_order($1, $2)";
            let rule =
                rule(client, sql, &[(&lambda, Type::TEXT), (&on_failure, Type::TEXT)]).await?;
            output::answer(global, &json!({"rule": rule}), &format!("order {rule} is set"))
        }
        LimitCommand::Weight { rule, key, weight } => {
            let sql = "select tuskline.set_weight($1, $2, $3)";
            let parameters: &[(&(dyn ToSql + Sync), Type)] =
                &[(&rule, Type::INT8), (&key, Type::TEXT), (&weight, Type::FLOAT8)];
            client.query_typed(sql, parameters).await?;
            output::answer(
                global,
                &json!({"rule": rule, "key": key}),
                &format!("{key} has weight {weight}"),
            )
        }
        LimitCommand::Drop { rule } => {
            let sql = "select tuskline.drop_rule($1)";
            let dropped: bool = client.query_typed_one(sql, &[(&rule, Type::INT8)]).await?.get(0);
            if !dropped {
                return Err(failed(format!("there is no limit {rule}: tuskline limit list")));
            }
            output::answer(
                global,
                &json!({"rule": rule, "dropped": true}),
                &format!("limit {rule} is gone"),
            )
        }
        LimitCommand::List => list(global, client).await,
        LimitCommand::Blocked => blocked(global, client).await,
        LimitCommand::Unblock { lambda, key } => {
            let sql = "select tuskline.unblock($1, $2)";
            let parameters: &[(&(dyn ToSql + Sync), Type)] =
                &[(&lambda, Type::TEXT), (&key, Type::TEXT)];
            let unblocked: bool = client.query_typed_one(sql, parameters).await?.get(0);
            if !unblocked {
                return Err(failed(format!(
                    "key {key} of {lambda} is not blocked: tuskline limit blocked"
                )));
            }
            output::answer(
                global,
                &json!({"key": key, "unblocked": true}),
                &format!("{key} goes on"),
            )
        }
    }?;
    Ok(ExitCode::SUCCESS)
}

async fn rule(
    client: &Client,
    sql: &str,
    parameters: &[(&(dyn ToSql + Sync), Type)],
) -> Result<i64> {
    Ok(client.query_typed_one(sql, parameters).await?.get(0))
}

async fn set(global: &Global, client: &Client, args: &SetArgs) -> Result<()> {
    let sql = "select tuskline.set_limit($1, $2, $3, $4, $5, $6, $7, $8)";
    let parameters: &[(&(dyn ToSql + Sync), Type)] = &[
        (&args.lambda, Type::TEXT),
        (&args.most, Type::INT4),
        (&args.per_second, Type::FLOAT8),
        (&args.collection, Type::TEXT),
        (&args.priority, Type::TEXT),
        (&args.by_key, Type::BOOL),
        (&args.burst, Type::INT4),
        (&args.fair, Type::BOOL),
    ];
    said(global, rule(client, sql, parameters).await?)
}

fn said(global: &Global, rule: i64) -> Result<()> {
    let said = format!("limit {rule} is set; to take it away: tuskline limit drop {rule}");
    output::answer(global, &json!({"rule": rule}), &said)
}

async fn list(global: &Global, client: &Client) -> Result<()> {
    let sql = "select row_to_json(r)::text from (
        select rule_id, lambda, collection, priority, kind, by_key, fair, most, per_second, burst, on_failure, held, waiting,
               reason, until, author, set_at, (1000 * extract(epoch from until - tuskline.clock()))::bigint as left_ms
          from tuskline.rules order by rule_id) r";
    let rules = super::task::rows(client, sql, &[]).await?;
    let heading =
        ["limit", "lambda", "collection", "priority", "what", "held", "waiting", "ends", "reason"];
    output::put_list(global, rules, &heading, "no limit is set", |rule| {
        let field = |name: &str| output::field(rule, name);
        let is = |name: &str| rule.get(name).and_then(Value::as_bool).unwrap_or_default();
        let what = match field("kind").as_str() {
            "order" => format!("in order, {}", field("on_failure")),
            "rate" => format!("{} a second", field("per_second")),
            _ => format!("{} at a time", field("most")),
        };
        let how = match (is("by_key"), is("fair")) {
            (true, _) => ", by key",
            (_, true) => ", fair",
            _ => "",
        };
        let left = rule["left_ms"].as_i64().map(duration::show);
        vec![
            field("rule_id"),
            field("lambda"),
            field("collection"),
            field("priority"),
            format!("{what}{how}"),
            field("held"),
            field("waiting"),
            left.map_or_else(String::new, |left| format!("in {left}")),
            field("reason"),
        ]
    })
}

async fn blocked(global: &Global, client: &Client) -> Result<()> {
    let sql = "select row_to_json(b)::text from (
        select lambda, ordering_key, task_id, status, blocked_since, waiting
          from tuskline.blocked_keys order by blocked_since) b";
    let keys = super::task::rows(client, sql, &[]).await?;
    let columns = ["lambda", "ordering_key", "task_id", "status", "blocked_since", "waiting"];
    let heading = ["lambda", "key", "by task", "status", "since", "waiting"];
    output::put_list(global, keys, &heading, "no key is blocked", |key| {
        columns.map(|name| output::field(key, name)).into()
    })
}
