//! The schema: installed, of this version, its queues complete, its partitions ready, and what is in it well.

use anyhow::Result;
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;
use tuskline_sdk::SchemaCompatibility;

use super::super::installation::{self, Installation};
use super::{Finding, archive, budget, damage, periodic, workers};
use crate::migrate::SCHEMA_VERSION;
use crate::store::{self, Readiness};

/// Fewer segments ahead than this, and no janitor is at work.
const SEGMENTS_AHEAD: i32 = 4;

/// Stamp, queues, catalogue, segments, archive, workers, their connections and schedules; without a schema only that.
pub async fn examine(client: &Client) -> Result<Vec<Finding>> {
    let readiness = match store::readiness(client).await {
        Ok(readiness) => readiness,
        Err(error) if is_absent(&error) => {
            return Ok(vec![Finding::fail("schema", "absent: run `tuskline migrate`")]);
        }
        Err(error) => return Err(error.into()),
    };
    if readiness.read_only {
        return Ok(vec![stamp(readiness)]);
    }
    let (segments, workers) = (segments(client).await?, workers::examine(client).await?);
    let (archive, schedules) = (archive::examine(client).await?, periodic::examine(client).await?);
    let named = named(installation::of(client).await?);
    let (stamp, queues) = (stamp(readiness), queues(readiness));
    let (budget, catalogue) = (budget::examine(client).await?, damage::examine(client).await?);
    Ok(vec![stamp, named, queues, catalogue, segments, archive, workers, budget, schedules])
}

fn named(installation: Option<Installation>) -> Finding {
    match installation {
        Some(installation) => Finding::ok("installation", installation.to_string()),
        None => Finding::fail("installation", "has no name: run `tuskline repair`"),
    }
}

fn is_absent(error: &tokio_postgres::Error) -> bool {
    matches!(error.code(), Some(&SqlState::INVALID_SCHEMA_NAME | &SqlState::UNDEFINED_FUNCTION))
}

fn stamp(readiness: Readiness) -> Finding {
    match readiness.schema_version {
        Some(set) if SchemaCompatibility::of(set) == SchemaCompatibility::TooNew => Finding::fail(
            "schema",
            format!(
                "function set {set} is of a later major version than this binary ({SCHEMA_VERSION}): bring the binary up to date"
            ),
        ),
        Some(set) if set == SCHEMA_VERSION => Finding::ok("schema", format!("function set {set}")),
        Some(set) if set > SCHEMA_VERSION => Finding::warn(
            "schema",
            format!(
                "function set {set} is newer than this binary ({SCHEMA_VERSION}): bring the binary up to date"
            ),
        ),
        found => Finding::fail(
            "schema",
            format!(
                "function set {} is older than this binary ({SCHEMA_VERSION}): run `tuskline migrate`",
                found.unwrap_or(0)
            ),
        ),
    }
}

fn queues(readiness: Readiness) -> Finding {
    if readiness.queues_rebuilt {
        Finding::ok("queues", "complete")
    } else {
        Finding::fail("queues", "lost in a crash or failover and not rebuilt: run `tuskline serve`")
    }
}

async fn segments(client: &Client) -> Result<Finding> {
    let row = client.query_typed_one("select tuskline.segments_ahead()", &[]).await?;
    let ahead: i32 = row.get(0);
    let room = format!("{ahead} ready ahead, of 16.7 million tasks each");
    Ok(match ahead {
        ..1 => {
            Finding::fail("segments", format!("{room}: run the janitor (`tuskline serve`) at once"))
        }
        1..SEGMENTS_AHEAD => Finding::warn("segments", format!("{room}: is the janitor running?")),
        _ => Finding::ok("segments", room),
    })
}
