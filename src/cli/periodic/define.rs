//! `periodic define`.

use std::time::Duration;

use anyhow::Result;
use chrono::{DateTime, Utc};
use clap::{Args, ValueEnum};
use serde::Serialize;
use serde_json::json;
use tuskline_sdk::verbs::DEFINE_PERIODIC;

use super::preview;
use crate::cli::global::Global;
use crate::cli::{arguments, database, output};
use crate::duration;

/// Treatment of ticks that no server saw in time.
#[derive(Debug, Clone, Copy, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
enum Missed {
    Skip,
    Once,
    All,
}

/// Treatment of a tick while the task of an earlier one has not ended.
#[derive(Debug, Clone, Copy, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
enum Overlap {
    Allow,
    Skip,
    Queue,
}

/// A schedule.
#[derive(Debug, Args, Serialize)]
pub struct DefineArgs {
    /// Name of the schedule: [a-z][a-z0-9_]{0,62}.
    name: String,
    /// Lambda of its tasks.
    lambda: String,
    /// When: minute, hour, day of month, month, day of week; seconds before these, as you like.
    cron: String,
    /// JSON for the lambda; `-` reads it from standard input.
    payload: Option<String>,
    /// Time zone whose clocks it goes by, e.g. Europe/Berlin.
    #[arg(long, default_value = "UTC")]
    zone: String,
    /// Collection of its tasks.
    #[arg(long, value_name = "NAME")]
    collection: Option<String>,
    /// Priority of its tasks [default: normal]
    #[arg(long, value_parser = arguments::a_priority())]
    priority: Option<String>,
    /// Treatment of ticks that no server saw in time [default: once]
    #[arg(long, value_enum)]
    missed: Option<Missed>,
    /// With `--missed all`: most ticks that fire, the latest ones [default: 100]
    #[arg(long, value_name = "N")]
    #[serde(rename = "missed_most")]
    missed_max: Option<i32>,
    /// How late a tick may be before it counts as missed [default: 1m]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    #[serde(serialize_with = "duration::serialize")]
    grace: Option<Duration>,
    /// Treatment of a tick while the task of an earlier one has not ended [default: allow]
    #[arg(long, value_enum)]
    overlap: Option<Overlap>,
    /// No tick before, e.g. 2030-01-31T08:00:00Z.
    #[arg(long, value_name = "RFC3339", value_parser = arguments::instant)]
    starts_at: Option<DateTime<Utc>>,
    /// No tick then or later.
    #[arg(long, value_name = "RFC3339", value_parser = arguments::instant)]
    ends_at: Option<DateTime<Utc>>,
}

pub async fn run(global: &Global, mut args: DefineArgs) -> Result<()> {
    let cron_schedule = super::read(&args.cron, &args.zone)?;
    args.payload = args.payload.map(arguments::payload).transpose()?;
    let session = database::open(global).await?;
    let row = DEFINE_PERIODIC.row(session.client(), "v, tuskline.clock()", &json!(args)).await?;
    let (said, now): (String, DateTime<Utc>) = (row.get(0), row.get(1));
    if global.json {
        return Ok(output::put_json(&json!({"name": args.name, "said": said}))?);
    }
    output::put(&format!("{} is {said}", args.name))?;
    let after = args.starts_at.map_or(now, |starts| now.max(super::before(starts)));
    Ok(preview::put(&cron_schedule, &preview::ticks(&cron_schedule, after, args.ends_at)?)?)
}
