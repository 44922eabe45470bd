//! The schema: whether it is installed, of this version and complete, and whether its parts are
//! well.

use anyhow::Result;
use tokio_postgres::Client;
use tuskline_sdk::SchemaCompatibility;

use super::attempt::settle;
use super::finding::{Finding, Found};
use super::{budget, damage, leases, remedy, roles, waits};
use crate::migrate::SCHEMA_VERSION;
use crate::store::installation::{self, Installation};
use crate::store::{self, Readiness};

/// Name of its first line.
pub const SCHEMA: &str = "schema";

/// Said of a database without a schema.
pub const ABSENT: &str = "absent";

/// The findings, and whether there is a schema to examine further.
pub struct Examined {
    pub findings: Vec<Finding>,
    pub installed: bool,
}

/// Examines the stamp, queues, catalogue, workers, connections and schedules. Without a schema the
/// only finding is that it is absent.
pub async fn examine(client: &Client) -> Result<Examined> {
    let mut findings = match store::readiness(client).await {
        Ok(readiness) if readiness.read_only => {
            return Ok(Examined {
                findings: vec![Finding::new(SCHEMA, stamp(readiness))],
                installed: false,
            });
        }
        Ok(readiness) => {
            vec![Finding::new(SCHEMA, stamp(readiness)), Finding::new("queues", queues(readiness))]
        }
        Err(error) if store::is_absent(&error) => {
            let absent = Finding::new(SCHEMA, Found::fail(ABSENT, remedy::MIGRATE));
            return Ok(Examined { findings: vec![absent], installed: false });
        }
        Err(error) => vec![settle(SCHEMA, Err(error.into()))?],
    };
    let name = installation::of(client).await.map(named);
    findings.insert(1, settle("installation", name.map_err(anyhow::Error::from))?);
    findings.extend([
        settle("owner", roles::owner(client).await)?,
        settle("rights", roles::rights(client).await)?,
        settle("catalogue", damage::examine(client).await)?,
        settle("workers", leases::workers(client).await)?,
        settle("due tasks", waits::due(client).await)?,
        settle("orders", waits::orders(client).await)?,
        settle("connections", budget::examine(client).await)?,
        settle("schedules", waits::schedules(client).await)?,
    ]);
    Ok(Examined { findings, installed: true })
}

fn named(installation: Option<Installation>) -> Found {
    match installation {
        Some(installation) => Found::ok(installation.to_string()),
        None => Found::fail("has no name", remedy::REPAIR),
    }
}

fn stamp(readiness: Readiness) -> Found {
    let set = readiness.schema_version.unwrap_or(0);
    let beside =
        |what: &str| format!("function set {set} is {what} this binary ({SCHEMA_VERSION})");
    match readiness.schema_version {
        Some(set) if SchemaCompatibility::of(set) == SchemaCompatibility::TooNew => {
            Found::fail(beside("of a later major version than"), remedy::UPDATE)
        }
        Some(set) if set == SCHEMA_VERSION => Found::ok(format!("function set {set}")),
        Some(set) if set > SCHEMA_VERSION => Found::warn(beside("newer than"), remedy::UPDATE),
        _ => Found::fail(beside("older than"), remedy::MIGRATE),
    }
}

fn queues(readiness: Readiness) -> Found {
    if readiness.queues_rebuilt {
        Found::ok("complete")
    } else {
        Found::fail("lost in a crash or failover and not rebuilt", remedy::SERVE)
    }
}
