//! `dead`: list, group and show dead letters, let them begin anew, or delete them.

mod redrive;
mod show;

use std::process::ExitCode;

use anyhow::Result;
use chrono::{DateTime, Utc};
use clap::{Args, Subcommand};
use serde_json::json;
use tokio_postgres::Client;
use tokio_postgres::types::{ToSql, Type};

use super::failure::{WrongCall, failed};
use super::{Global, Outcome, database, output};

/// `dead ...`.
#[derive(Debug, Subcommand)]
pub enum DeadCommand {
    /// List tasks that have failed for good.
    List(show::ListArgs),
    /// Count them by what they died of.
    Groups {
        /// Only of this lambda.
        #[arg(long, value_name = "NAME")]
        lambda: Option<String>,
    },
    /// Show one, with every failed attempt and its payload.
    Show {
        /// Id of the task.
        id: i64,
    },
    /// Let them begin anew, a batch at a time; prints the redrive's number.
    Redrive(redrive::RedriveArgs),
    /// List redrives, and how far each has come.
    Redrives,
    /// Stop a redrive; what it has let go goes on.
    Stop {
        /// Number of the redrive, see `dead redrives`.
        redrive: i64,
    },
    /// Delete dead letters for good, before their retention is over.
    Purge(PurgeArgs),
}

/// Which dead letters go.
#[derive(Debug, Args)]
pub struct PurgeArgs {
    /// Name of the lambda.
    lambda: String,
    /// Those whose last failure has this fingerprint, see `dead groups`.
    #[arg(long, value_name = "TEXT")]
    fingerprint: Option<String>,
    /// Those that had died by then, e.g. 2026-12-24T08:00:00Z.
    #[arg(long, value_name = "TIME")]
    before: Option<DateTime<Utc>>,
    /// All of the lambda.
    #[arg(long, conflicts_with_all = ["fingerprint", "before"])]
    all: bool,
}

pub async fn run(global: &Global, command: DeadCommand) -> Outcome {
    let session = database::open(global).await?;
    let client = session.client();
    match command {
        DeadCommand::List(args) => show::list(global, client, &args).await,
        DeadCommand::Groups { lambda } => show::groups(global, client, lambda).await,
        DeadCommand::Show { id } => show::show(global, client, id).await,
        DeadCommand::Redrive(args) => return redrive::run(global, client, &args).await,
        DeadCommand::Redrives => redrive::list(global, client).await,
        DeadCommand::Stop { redrive } => stop(global, client, redrive).await,
        DeadCommand::Purge(args) => purge(global, client, &args).await,
    }?;
    Ok(ExitCode::SUCCESS)
}

async fn stop(global: &Global, client: &Client, redrive: i64) -> Result<()> {
    let sql = "select tuskline.stop_redrive($1)";
    let stopped: bool = client.query_typed_one(sql, &[(&redrive, Type::INT8)]).await?.get(0);
    if !stopped {
        return Err(failed(format!(
            "there is no redrive {redrive} under way: tuskline dead redrives"
        )));
    }
    output::answer(
        global,
        &json!({"redrive": redrive, "stopped": true}),
        &format!("redrive {redrive} is stopped"),
    )
}

async fn purge(global: &Global, client: &Client, args: &PurgeArgs) -> Result<()> {
    if !args.all && args.fingerprint.is_none() && args.before.is_none() {
        return Err(
            WrongCall("which ones? give --fingerprint, --before or --all".to_owned()).into()
        );
    }
    let sql = "select tuskline.purge_dead($1, $2, $3)";
    let parameters: &[(&(dyn ToSql + Sync), Type)] = &[
        (&args.lambda, Type::TEXT),
        (&args.fingerprint, Type::TEXT),
        (&args.before, Type::TIMESTAMPTZ),
    ];
    let mut purged = 0;
    loop {
        match client.query_typed_one(sql, parameters).await?.get::<_, i64>(0) {
            0 => break,
            more => purged += more,
        }
    }
    output::answer(
        global,
        &json!({"lambda": args.lambda, "purged": purged}),
        &format!("{purged} dead letters of {} are gone", args.lambda),
    )
}
