//! `repair`: makes what the rows say and the catalogue does not have, after a restore of the data alone.
//!
//! Promises: one line for each thing made; a second call makes nothing; `--dry-run` changes nothing.

use anyhow::Result;
use clap::Args;
use serde_json::json;

use super::global::Global;
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

pub async fn run(global: &Global, args: RepairArgs) -> Result<()> {
    let address = database::find_given(global)?;
    let session = Session::open(&address, "repair", Deadlines::PATIENT).await?;
    let repairs = store::repair(session.client(), args.dry_run).await?;
    let rows = repairs.iter().map(|repair| json!(repair)).collect();
    let remedy = if args.dry_run { "would do" } else { "did" };
    let columns = format!("part, name, problem, {remedy}: remedy");
    let none = "nothing to repair: rows and catalogue agree";
    output::put_list(global, rows, &columns, none, |_| ())
}
