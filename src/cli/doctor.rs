//! `doctor`: prints what the doctor finds.
//!
//! Promises: exit code 1 when a line fails; `--monitoring` has the codes of a monitoring plugin.

mod monitoring;
mod report;
mod verify;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Args;

use super::database;
use super::failure::WrongCall;
use super::global::{Global, Outcome};
use crate::doctor::{self, Finding, Found, Options, WrongSize};
use crate::duration;

/// Arguments of `doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Check the stored tasks against the guarantees. It reads every task.
    #[arg(long)]
    verify: bool,
    /// Exit as a monitoring plugin: 0 ok, 1 warning, 2 critical, 3 unknown. The first line is a
    /// summary.
    #[arg(long)]
    monitoring: bool,
    /// Free space on the disk of the database, e.g. 120GB, if the doctor cannot read it.
    #[arg(long, value_name = "SIZE", env = "TUSKLINE_DISK_FREE", hide_env_values = true)]
    disk_free: Option<String>,
    /// Report a transaction that keeps dead rows from this age on.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration::parse)]
    old_after: Duration,
}

pub async fn run(global: &Global, args: DoctorArgs) -> Outcome {
    let found = findings(global, &args).await;
    if args.monitoring {
        return monitoring::put(global, found);
    }
    let findings = found?;
    report::put(global, &findings)?;
    let failed = findings.iter().any(Finding::fails);
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

async fn findings(global: &Global, args: &DoctorArgs) -> Result<Vec<Finding>> {
    let address = database::find(global)?;
    let mut findings = vec![Finding::new("connection", Found::ok(database::shown(&address)))];
    if args.verify {
        findings.extend(verify::examine(&address).await?);
        return Ok(findings);
    }
    let options = Options { disk_free: args.disk_free.clone(), old_after: args.old_after };
    let examined = doctor::examine(&address, &options).await;
    findings.extend(examined.map_err(|error| match error.downcast::<WrongSize>() {
        Ok(size) => WrongCall(format!("--disk-free must be {size}")).into(),
        Err(error) => error,
    })?);
    Ok(findings)
}
