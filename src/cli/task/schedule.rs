//! `task schedule`.

use std::process::ExitCode;
use std::time::Duration;

use chrono::{DateTime, Utc};
use clap::Args;
use serde_json::json;
use tokio_postgres::types::Type;

use crate::cli::global::{Global, Outcome};
use crate::cli::{arguments, database, output};
use crate::duration;

/// Arguments of `task schedule`.
#[derive(Debug, Args)]
pub struct ScheduleArgs {
    /// Lambda that executes it.
    lambda: String,
    /// JSON for the lambda; `-` reads it from standard input.
    payload: Option<String>,
    /// Order among the tasks of the lambda.
    #[arg(long, value_parser = arguments::a_priority(), default_value = "normal")]
    priority: String,
    /// Label of a subset of the lambda's tasks.
    #[arg(long)]
    collection: Option<String>,
    /// When it is due, e.g. 2030-01-31T08:00:00Z; a time that has passed means now.
    #[arg(long, value_name = "RFC3339", value_parser = arguments::instant, conflicts_with = "after")]
    at: Option<DateTime<Utc>>,
    /// How long until it is due, e.g. 5m.
    #[arg(long = "in", value_name = "DURATION", value_parser = duration::parse, allow_hyphen_values = true)]
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

pub async fn run(global: &Global, args: ScheduleArgs) -> Outcome {
    let payload = args.payload.map(arguments::payload).transpose()?;
    let session = database::open(global).await?;
    let delay_ms = args.after.map(duration::milliseconds);
    let row = session
        .client()
        .query_typed_one(
            "select tuskline.schedule($1, $2, $3, $4, $5, $6 * interval '1 millisecond', $7, $8, $9, $10, $11)",
            &[
                (&args.lambda, Type::TEXT),
                (&payload, Type::TEXT),
                (&args.priority, Type::TEXT),
                (&args.collection, Type::TEXT),
                (&args.at, Type::TIMESTAMPTZ),
                (&delay_ms, Type::INT8),
                (&args.ordering_key, Type::TEXT),
                (&args.limit_key, Type::TEXT),
                (&args.fairness_key, Type::TEXT),
                (&args.unique_key, Type::TEXT),
                (&args.traceparent, Type::TEXT),
            ],
        )
        .await?;
    let id: i64 = row.get(0);
    output::answer(global, &json!({ "id": id }), &id.to_string())?;
    Ok(ExitCode::SUCCESS)
}
