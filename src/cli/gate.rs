//! `gate`: set, open and list gates.

use std::time::Duration;

use anyhow::Result;
use chrono::{DateTime, Utc};
use clap::{Args, Subcommand};
use serde::Serialize;
use serde_json::json;
use tokio_postgres::Client;
use tuskline_sdk::verbs::{GATE, UNGATE};

use super::failure::failed;
use super::global::Global;
use super::output;
use crate::duration;
use crate::store::rows::view;

/// `gate ...`.
#[derive(Debug, Subcommand)]
pub enum GateCommand {
    /// Let tasks wait until the gate is opened.
    Pause(Scope),
    /// End due tasks as dropped.
    Drop(Scope),
    /// End due tasks as dead, to be looked at and retried later.
    Divert(Scope),
    /// Open a gate: the tasks that it holds go on.
    Open {
        /// Number of the gate, see `gate list`.
        gate: i64,
        /// Why, for the audit.
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
    /// List the gates that are set, and how many tasks each holds.
    List,
}

/// The scope of a gate or a throttle, its end and its reason.
#[derive(Debug, Args, Serialize)]
pub struct Scope {
    /// Name of the lambda.
    lambda: String,
    /// Only this collection.
    #[arg(long, value_name = "NAME")]
    collection: Option<String>,
    /// The collection may be one that no recent task has.
    #[arg(long, requires = "collection")]
    unseen: bool,
    /// Only this priority.
    #[arg(long, value_name = "PRIORITY")]
    priority: Option<String>,
    /// End by itself then, e.g. 2026-12-24T08:00:00Z.
    #[arg(long, value_name = "TIME", conflicts_with = "for_")]
    until: Option<DateTime<Utc>>,
    /// End by itself after so long, e.g. 2h.
    #[arg(long = "for", value_parser = duration::parse, value_name = "DURATION")]
    #[serde(rename = "for", serialize_with = "duration::serialize")]
    for_: Option<Duration>,
    /// Why; `task explain` shows it.
    #[arg(long, value_name = "TEXT")]
    reason: String,
}

pub async fn run(global: &Global, client: &Client, command: GateCommand) -> Result<()> {
    match command {
        GateCommand::Pause(scope) => set(global, client, "pause", &scope).await,
        GateCommand::Drop(scope) => set(global, client, "drop", &scope).await,
        GateCommand::Divert(scope) => set(global, client, "divert", &scope).await,
        GateCommand::Open { gate, reason } => open(global, client, gate, reason).await,
        GateCommand::List => list(global, client).await,
    }
}

async fn set(global: &Global, client: &Client, action: &str, scope: &Scope) -> Result<()> {
    let mut set = json!(scope);
    set["action"] = action.into();
    let gate: i64 = GATE.call(client, &set).await?;
    let said = format!("gate {gate} is set; to open it: tuskline gate open {gate}");
    output::answer(global, &json!({"gate": gate, "action": action}), &said)
}

async fn open(global: &Global, client: &Client, gate: i64, reason: Option<String>) -> Result<()> {
    if !UNGATE.call(client, &json!({ "gate": gate, "reason": reason })).await? {
        return Err(failed(format!("there is no gate {gate}: tuskline gate list")));
    }
    output::answer(global, &json!({"gate": gate, "opened": true}), &format!("gate {gate} is open"))
}

/// Time until a gate or a limit ends.
pub const LEFT: (&str, &str) = ("left_ms", "until - tuskline.clock()");

async fn list(global: &Global, client: &Client) -> Result<()> {
    let gates = view(client, "gates", &[LEFT], "order by gate_id", &[]).await?;
    let columns = "gate: gate_id, action, lambda, collection, priority, parked, opens: left_ms, \
        by: author, reason";
    output::put_list(global, gates, columns, "no gate is set", |gate| {
        if !gate["opened_at"].is_null() {
            gate["action"] = "opened".into();
        }
    })
}
