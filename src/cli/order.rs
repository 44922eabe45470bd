//! `order`: tasks of one ordering key run one at a time, in the order of their commits.

use anyhow::Result;
use clap::Subcommand;
use serde_json::json;
use tokio_postgres::Client;
use tuskline_sdk::verbs::{SET_ORDER, UNBLOCK};

use super::failure::failed;
use super::global::Global;
use super::output;
use crate::store::rows::view;

/// `order ...`.
#[derive(Debug, Subcommand)]
pub enum OrderCommand {
    /// Let tasks have an ordering key: one at a time, in order, for each key.
    Set {
        /// Name of the lambda.
        lambda: String,
        /// Policy for a key whose task fails for good: block, skip or dead [default: block]
        #[arg(long, value_name = "POLICY")]
        on_failure: Option<String>,
    },
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

pub async fn run(global: &Global, client: &Client, command: OrderCommand) -> Result<()> {
    match command {
        OrderCommand::Set { lambda, on_failure } => {
            set(global, client, &lambda, on_failure.as_deref()).await
        }
        OrderCommand::Blocked => blocked(global, client).await,
        OrderCommand::Unblock { lambda, key } => unblock(global, client, &lambda, &key).await,
    }
}

async fn set(
    global: &Global,
    client: &Client,
    lambda: &str,
    on_failure: Option<&str>,
) -> Result<()> {
    let order = json!({ "lambda": lambda, "on_failure": on_failure });
    let limit: i64 = SET_ORDER.call(client, &order).await?;
    let said = format!("order {limit} is set; to drop it: tuskline limit drop {limit}");
    output::answer(global, &json!({"limit_id": limit}), &said)
}

async fn blocked(global: &Global, client: &Client) -> Result<()> {
    let keys = view(client, "blocked_keys", &[], "order by blocked_since", &[]).await?;
    let columns = "lambda, key: ordering_key, by task: task_id, status, since: blocked_since, \
        waiting";
    output::put_list(global, keys, columns, "no key is blocked", |_| ())
}

async fn unblock(global: &Global, client: &Client, lambda: &str, key: &str) -> Result<()> {
    if !UNBLOCK.call(client, &json!({ "lambda": lambda, "ordering_key": key })).await? {
        return Err(failed(format!(
            "key {key} of {lambda} is not blocked: tuskline order blocked"
        )));
    }
    output::answer(global, &json!({"key": key, "unblocked": true}), &format!("{key} goes on"))
}
