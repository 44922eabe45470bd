//! `chain`: schedule, show, cancel and retry tasks that wait for each other.

mod drawing;

use std::path::PathBuf;

use anyhow::Result;
use clap::Subcommand;
use serde_json::{Value, json};
use tokio_postgres::Client;
use tokio_postgres::types::Type;
use tuskline_sdk::verbs::{CANCEL_CHAIN, RETRY_CHAIN};

use super::global::Global;
use super::{arguments, database, output};
use crate::store::rows::view;

/// `chain ...`.
#[derive(Debug, Subcommand)]
pub enum ChainCommand {
    /// Schedule the tasks of a JSON file, all or none; prints the chain's number and their ids.
    Schedule {
        /// A JSON array of tasks, each with lambda and, as needed, name, payload, after; `-`: standard
        /// input.
        file: PathBuf,
    },
    /// Show the chain that a task belongs to, and how far it has come.
    Show {
        /// Id of any task of the chain.
        id: i64,
        /// Print a graph for Graphviz instead.
        #[arg(long)]
        dot: bool,
    },
    /// Cancel what has not ended of the chain that a task belongs to.
    Cancel {
        /// Id of any task of the chain.
        id: i64,
        /// Why, for the audit.
        #[arg(long)]
        reason: Option<String>,
    },
    /// Restart each task of a chain that ended without success. Due times that are later than now stay.
    Retry {
        /// Id of any task of the chain.
        id: i64,
        /// They are due now.
        #[arg(long)]
        now: bool,
    },
}

pub async fn run(global: &Global, command: ChainCommand) -> Result<()> {
    let tasks = match &command {
        // Before there is a session: standard input may take its time.
        ChainCommand::Schedule { file } => arguments::file(file)?,
        _ => String::new(),
    };
    let session = database::open(global).await?;
    let client = session.client();
    match command {
        ChainCommand::Schedule { .. } => schedule(global, client, &tasks).await,
        ChainCommand::Show { id, dot } => show(global, client, id, dot).await,
        ChainCommand::Cancel { id, reason } => cancel(global, client, id, reason).await,
        ChainCommand::Retry { id, now } => retry(global, client, id, now).await,
    }
}

async fn schedule(global: &Global, client: &Client, tasks: &str) -> Result<()> {
    let sql = "select chain_id, ids from tuskline.schedule_chain($1)";
    let row = client.query_typed_one(sql, &[(&tasks, Type::TEXT)]).await?;
    let (chain, ids): (i64, Vec<i64>) = (row.get(0), row.get(1));
    if global.json {
        return Ok(output::put_json(&json!({"chain": chain, "ids": ids}))?);
    }
    output::put(&format!("chain {chain}, {} tasks: tuskline chain show {chain}", ids.len()))?;
    let lines: Vec<String> = ids.iter().map(i64::to_string).collect();
    Ok(output::put(&lines.join("\n"))?)
}

async fn show(global: &Global, client: &Client, id: i64, dot: bool) -> Result<()> {
    let chain = "where chain_id = tuskline.chain_of($1) order by depth, task_id";
    let tasks = view(client, "chain_tasks", &[], chain, &[(&id, Type::INT8)]).await?;
    if global.json {
        return Ok(output::put_json(&Value::Array(tasks))?);
    }
    let drawing = drawing::Drawing::of(&tasks);
    Ok(output::put(&if dot { drawing.dot() } else { drawing.tree() })?)
}

async fn cancel(global: &Global, client: &Client, id: i64, reason: Option<String>) -> Result<()> {
    let arguments = json!({ "task": id, "reason": reason });
    let row = CANCEL_CHAIN.row(client, "chain_id, cancelled, requested", &arguments).await?;
    let (chain, cancelled, requested): (i64, i32, i32) = (row.get(0), row.get(1), row.get(2));
    let answer = json!({"chain": chain, "cancelled": cancelled, "requested": requested});
    let asked = match requested {
        0 => String::new(),
        many => format!(", {many} more with a worker, which is asked to stop"),
    };
    let said = format!("chain {chain}: {cancelled} tasks are cancelled{asked}");
    output::answer(global, &answer, &said)
}

async fn retry(global: &Global, client: &Client, id: i64, now: bool) -> Result<()> {
    let arguments = json!({ "task": id, "due_now": now });
    let row = RETRY_CHAIN.row(client, "chain_id, retried", &arguments).await?;
    let (chain, retried): (i64, i32) = (row.get(0), row.get(1));
    let answer = json!({"chain": chain, "retried": retried});
    output::answer(global, &answer, &format!("chain {chain}: {retried} tasks start again"))
}
