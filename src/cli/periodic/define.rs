//! `periodic define`.

use std::time::Duration;

use anyhow::Result;
use chrono::{DateTime, Utc};
use clap::{Args, ValueEnum};
use serde_json::json;
use tokio_postgres::types::{ToSql, Type};

use super::preview;
use crate::cli::global::Global;
use crate::cli::{arguments, database, output};
use crate::duration;

/// Treatment of ticks that no server saw in time.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Missed {
    Skip,
    Once,
    All,
}

/// Treatment of a tick while the task of an earlier one has not ended.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Overlap {
    Allow,
    Skip,
    Queue,
}

/// A schedule.
#[derive(Debug, Args)]
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
    /// Priority of its tasks.
    #[arg(long, value_parser = arguments::a_priority(), default_value = "normal")]
    priority: String,
    /// Treatment of ticks that no server saw in time.
    #[arg(long, value_enum, default_value = "once")]
    missed: Missed,
    /// With `--missed all`: most ticks that fire, the latest ones.
    #[arg(long, value_name = "N", default_value = "100")]
    missed_max: i32,
    /// How late a tick may be before it counts as missed.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, default_value = "1m")]
    grace: Duration,
    /// Treatment of a tick while the task of an earlier one has not ended.
    #[arg(long, value_enum, default_value = "allow")]
    overlap: Overlap,
    /// No tick before, e.g. 2030-01-31T08:00:00Z.
    #[arg(long, value_name = "RFC3339", value_parser = arguments::instant)]
    starts_at: Option<DateTime<Utc>>,
    /// No tick then or later.
    #[arg(long, value_name = "RFC3339", value_parser = arguments::instant)]
    ends_at: Option<DateTime<Utc>>,
}

pub async fn run(global: &Global, args: DefineArgs) -> Result<()> {
    let cron_schedule = super::read(&args.cron, &args.zone)?;
    let payload = args.payload.map(arguments::payload).transpose()?;
    let (missed, overlap) = (arguments::label(&args.missed), arguments::label(&args.overlap));
    let session = database::open(global).await?;
    let sql = "select tuskline.define_periodic($1, $2, $3, $4, $5, $6, $7, $8, $9, \
               $10 * interval '1 millisecond', $11, $12, $13), tuskline.clock()";
    let parameters: &[(&(dyn ToSql + Sync), Type)] = &[
        (&args.name, Type::TEXT),
        (&args.lambda, Type::TEXT),
        (&args.cron, Type::TEXT),
        (&payload, Type::TEXT),
        (&args.zone, Type::TEXT),
        (&args.collection, Type::TEXT),
        (&args.priority, Type::TEXT),
        (&missed, Type::TEXT),
        (&args.missed_max, Type::INT4),
        (&duration::milliseconds(args.grace), Type::INT8),
        (&overlap, Type::TEXT),
        (&args.starts_at, Type::TIMESTAMPTZ),
        (&args.ends_at, Type::TIMESTAMPTZ),
    ];
    let row = session.client().query_typed_one(sql, parameters).await?;
    let (said, now): (String, DateTime<Utc>) = (row.get(0), row.get(1));
    if global.json {
        return Ok(output::put_json(&json!({"name": args.name, "said": said}))?);
    }
    output::put(&format!("{} is {said}", args.name))?;
    let after = args.starts_at.map_or(now, |starts| now.max(super::before(starts)));
    Ok(preview::put(&cron_schedule, &preview::ticks(&cron_schedule, after, args.ends_at)?)?)
}
