//! `task schedule`.

use std::time::Duration;

use anyhow::Result;
use chrono::{DateTime, Utc};
use clap::Args;
use serde::Serialize;
use serde_json::json;
use tuskline_sdk::verbs::SCHEDULE;

use crate::cli::global::Global;
use crate::cli::{arguments, database, output};
use crate::duration;

/// Arguments of `task schedule`.
#[derive(Debug, Args, Serialize)]
pub struct ScheduleArgs {
    /// Lambda that executes it.
    lambda: String,
    /// JSON for the lambda; `-` reads it from standard input.
    payload: Option<String>,
    /// Order among the tasks of the lambda [default: normal]
    #[arg(long, value_parser = arguments::a_priority())]
    priority: Option<String>,
    /// Label of a subset of the lambda's tasks.
    #[arg(long)]
    collection: Option<String>,
    /// When it is due, e.g. 2030-01-31T08:00:00Z; a time that has passed means now.
    #[arg(long, value_name = "RFC3339", value_parser = arguments::instant, conflicts_with = "after")]
    #[serde(rename = "scheduled_at")]
    at: Option<DateTime<Utc>>,
    /// How long until it is due, e.g. 5m.
    #[arg(long = "in", value_name = "DURATION", value_parser = duration::parse, allow_hyphen_values = true)]
    #[serde(rename = "delay", serialize_with = "duration::serialize")]
    after: Option<Duration>,
    /// Tasks of one key run one at a time, in the order in which they are accepted.
    #[arg(long, value_name = "KEY")]
    ordering_key: Option<String>,
    /// Key that limits by key count by: a customer, a host.
    #[arg(long, value_name = "KEY")]
    limit_key: Option<String>,
    /// Tenant under a fair limit.
    #[arg(long, value_name = "KEY")]
    fairness_key: Option<String>,
    /// Unique key. If a task holds it already, prints the id of that task, see `unique-key`.
    #[arg(long, value_name = "KEY")]
    unique_key: Option<String>,
    /// Trace context of the caller: its attempts link to that span (W3C Trace Context).
    #[arg(long, value_name = "TRACEPARENT", env = "TRACEPARENT", hide_env_values = true)]
    traceparent: Option<String>,
}

pub async fn run(global: &Global, mut args: ScheduleArgs) -> Result<()> {
    args.payload = args.payload.map(arguments::payload).transpose()?;
    let session = database::open(global).await?;
    let id: i64 = SCHEDULE.call(session.client(), &json!(args)).await?;
    output::answer(global, &json!({ "id": id }), &id.to_string())
}
