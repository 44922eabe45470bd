//! The doctor: examines the database, its settings, its sessions and its space.
//!
//! The command `doctor` prints its lines, and the overview of the pages shows those that are not ok.
//!
//! Promises: one line for each thing examined: ok, warn or fail. A line that is not ok names the
//! page and the command that remedy it. No statement reads more than a bounded number of tasks, and none
//! waits for a lock for longer than a second: the line that needs the table fails, and the rest is examined.
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
pub mod remedy;
mod roles;
pub mod schema;
mod segments;
mod settings;
mod waits;

use std::time::Duration;

use anyhow::Result;
use tuskline_sdk::Address;

use self::attempt::settle;
use crate::session::{Deadlines, Session};

#[cfg(feature = "cli")]
pub use self::disk::WrongSize;
#[cfg(feature = "cli")]
pub use self::finding::Found;
pub use self::finding::{Finding, Verdict};
pub use self::horizon::LINE as HORIZON;

/// Arguments of an examination.
#[derive(Debug, Clone)]
pub struct Options {
    /// Free space on the disk of the database, e.g. `120GB`, if it cannot be read.
    pub disk_free: Option<String>,
    /// A transaction that keeps dead rows is reported from this age on.
    pub old_after: Duration,
}

/// Examines a database: a line for each thing.
///
/// # Errors
/// The connection's, a missing right, or a size of [`Options::disk_free`] that is none ([`WrongSize`]).
pub async fn examine(address: &Address, options: &Options) -> Result<Vec<Finding>> {
    // A session without our settings, so that the lines show those of the server.
    let plain = Session::plain(address, "doctor").await?;
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
        findings.extend(space(address, &session, options).await?);
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
async fn space(address: &Address, session: &Session, options: &Options) -> Result<Vec<Finding>> {
    let client = session.client();
    let holders = horizon::holders(client, options.old_after).await?;
    let ids = segments::use_of_ids(client).await;
    let per_day = ids.as_ref().ok().and_then(|ids| ids.per_day);
    let tables = bloat::tables(client).await;
    let cost = tables.as_deref().map_or(horizon::Cost::default(), bloat::cost);
    let bloat = tables.map(|tables| bloat::judge(&tables, holders.first()));
    let free = options.disk_free.as_deref();
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
