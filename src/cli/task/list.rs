//! `task list`.

use std::process::ExitCode;

use clap::Args;
use serde_json::Value;
use tokio_postgres::Client;
use tokio_postgres::types::Type;

use crate::cli::{Global, Outcome, output};
use crate::duration;

/// Arguments of `task list`.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// Only tasks of this lambda.
    #[arg(long)]
    lambda: Option<String>,
    /// Only tasks in this status.
    #[arg(long, value_parser = super::a_status())]
    status: Option<String>,
    /// Only tasks of this priority.
    #[arg(long, value_parser = super::a_priority())]
    priority: Option<String>,
    /// Only tasks of this collection.
    #[arg(long)]
    collection: Option<String>,
    /// At most so many.
    #[arg(long, default_value = "50", value_parser = clap::value_parser!(i64).range(1..=10_000))]
    limit: i64,
}

/// In the order of ids, newest first, which the primary keys of the segments give. A filter that
/// few tasks pass reads many; the session's deadline bounds that.
const TASKS: &str = "select row_to_json(t)::text from (
    select id, lambda, collection, priority, status, attempt, crashes, due_at, created_at,
           started_at, finished_at, next_trigger_at,
           (1000 * extract(epoch from tuskline.clock() - due_at))::bigint as due_ms_ago
      from tuskline.tasks
     where ($1::text is null or lambda = $1)
       and ($2::text is null or status = $2::text::tuskline.status)
       and ($3::text is null or priority = $3::text::tuskline.priority)
       and ($4::text is null or collection = $4)
     order by id desc limit $5) t";

pub async fn run(global: &Global, client: &Client, args: &ListArgs) -> Outcome {
    let tasks = super::rows(
        client,
        TASKS,
        &[
            (&args.lambda, Type::TEXT),
            (&args.status, Type::TEXT),
            (&args.priority, Type::TEXT),
            (&args.collection, Type::TEXT),
            (&args.limit, Type::INT8),
        ],
    )
    .await?;
    if global.json {
        output::put_json(&Value::Array(tasks))?;
    } else {
        put(&tasks)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn put(tasks: &[Value]) -> std::io::Result<()> {
    let heading = ["id", "lambda", "priority", "status", "attempt", "due", "collection"];
    let rows = tasks.iter().map(|task| {
        let text = |name: &str| output::field(task, name);
        let due = task.get("due_ms_ago").and_then(Value::as_i64).map_or(String::new(), relative);
        vec![
            text("id"),
            text("lambda"),
            text("priority"),
            text("status"),
            text("attempt"),
            due,
            text("collection"),
        ]
    });
    output::put_table(&heading, rows.collect(), "no tasks")
}

fn relative(milliseconds_ago: i64) -> String {
    match milliseconds_ago {
        0.. => format!("{} ago", duration::show(milliseconds_ago)),
        _ => format!("in {}", duration::show(milliseconds_ago)),
    }
}
