//! `doctor`: examines the database, its settings, its sessions and its space.
//!
//! Promises: one line for each thing examined: ok, warn or fail. A line that is not ok names the
//! page and the command that remedy it. Exit code 1 when one fails; `--monitoring` has the codes of
//! a monitoring plugin.
//! Without `--verify` no statement reads more than a bounded number of tasks, and none waits for a lock for longer
//! than a second: the line that needs the table fails, and the rest is examined.
//! Must never: change anything. (It sends one notification, to itself.)

mod attempt;
mod bloat;
mod budget;
mod connection;
mod damage;
mod disk;
mod finding;
mod horizon;
mod leases;
mod locks;
mod monitoring;
mod remedy;
mod report;
mod roles;
mod schema;
mod segments;
mod settings;
mod verify;
mod waits;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use tuskline_sdk::Address;

use self::attempt::settle;
use self::finding::{Finding, Found};
use super::database;
use super::global::{Global, Outcome};
use crate::duration;
use crate::session::{Deadlines, Session};

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
    } else {
        // A session without our settings, so that the lines show those of the server.
        let session = Session::plain(&address, "doctor").await?;
        findings.extend(examine(&address, &session, args).await?);
    }
    Ok(findings)
}

async fn examine(address: &Address, plain: &Session, args: &DoctorArgs) -> Result<Vec<Finding>> {
    let client = plain.client();
    let mut findings = connection::server(client).await?;
    let session = Session::open(address, "doctor", Deadlines::READ).await?;
    // First, because the next lines read tables and may wait for a lock. This line waits for none.
    findings.extend(locks::examine(session.client()).await?);
    let schema = schema::examine(session.client()).await?;
    let installed = schema.installed;
    findings.extend(schema.findings);
    if findings.iter().any(|finding| finding.examined == connection::PART && finding.fails()) {
        // The remaining lines are about a primary.
        return Ok(findings);
    }
    if installed {
        findings.extend(space(address, &session, args).await?);
    }
    findings.extend([
        Finding::new("pooler", connection::pooler(client, session.client()).await?),
        Finding::new("notifications", connection::notifications(address, &session).await?),
        Finding::new("clock", connection::clock(client).await?),
    ]);
    findings.extend(settings::examine(client).await?);
    Ok(findings)
}

/// Segments, leases, dead rows, the disk, and sessions that keep dead rows.
async fn space(address: &Address, session: &Session, args: &DoctorArgs) -> Result<Vec<Finding>> {
    let client = session.client();
    let holders = horizon::holders(client, args.old_after).await?;
    let ids = segments::use_of_ids(client).await;
    let per_day = ids.as_ref().ok().and_then(|ids| ids.per_day);
    let tables = bloat::tables(client).await;
    let cost = tables.as_deref().map_or(horizon::Cost::default(), bloat::cost);
    let bloat = tables.map(|tables| bloat::judge(&tables, holders.first()));
    let free = args.disk_free.as_deref();
    let mut findings = vec![
        settle("segments", ids.map(|ids| segments::ahead(&ids)))?,
        settle("ids", roles::ids(client).await)?,
        settle("retention", segments::retirement(client).await)?,
        settle("archive", segments::unarchived(client).await)?,
        settle("leases", leases::examine(client).await)?,
        settle("bloat", bloat)?,
        settle("disk", disk::examine(address, client, per_day, free).await)?,
    ];
    findings.extend(horizon::judge(client, &holders, cost).await?);
    findings.push(Finding::new("metrics", horizon::owner(client).await?));
    Ok(findings)
}
