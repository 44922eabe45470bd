//! `repair`: makes what the rows say and the catalogue does not have, after a restore of the data alone.
//!
//! Promises: one line for each thing made; a second call makes nothing; `--dry-run` changes nothing.

use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};

use super::global::{Global, Outcome};
use super::{database, output};
use crate::session::{Deadlines, Session};
use crate::store;

/// Arguments of `repair`.
#[derive(Debug, Args)]
pub struct RepairArgs {
    /// Say what is missing, and change nothing.
    #[arg(long)]
    dry_run: bool,
}

pub async fn run(global: &Global, args: RepairArgs) -> Outcome {
    let address = database::find_given(global)?;
    let session = Session::open(&address, "repair", Deadlines::PATIENT).await?;
    let repairs = store::repair(session.client(), args.dry_run).await?;
    let rows: Vec<Value> = repairs
        .iter()
        .map(|r| json!({"part": r.part, "name": r.name, "trouble": r.trouble, "remedy": r.remedy}))
        .collect();
    let cells = |row: &Value| {
        ["part", "name", "trouble", "remedy"].iter().map(|name| output::field(row, name)).collect()
    };
    let remedy = if args.dry_run { "would do" } else { "did" };
    output::put_list(
        global,
        rows,
        &["part", "name", "trouble", remedy],
        "nothing to repair: rows and catalogue agree",
        cells,
    )?;
    Ok(ExitCode::SUCCESS)
}
