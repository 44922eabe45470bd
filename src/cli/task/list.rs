//! `task list`.

use anyhow::Result;
use clap::Args;
use serde_json::Value;
use tokio_postgres::Client;

use crate::cli::global::Global;
use crate::cli::{arguments, output};
use crate::store::tasks::{self, Bounds, Filter, Step, Tasks};

/// Arguments of `task list`.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// Only tasks of this lambda.
    #[arg(long)]
    lambda: Option<String>,
    /// Only tasks in this status.
    #[arg(long, value_parser = arguments::a_status())]
    status: Option<String>,
    /// Only tasks of this priority.
    #[arg(long, value_parser = arguments::a_priority())]
    priority: Option<String>,
    /// Only tasks of this collection.
    #[arg(long)]
    collection: Option<String>,
    /// At most so many.
    #[arg(long, default_value = "50", value_parser = clap::value_parser!(i64).range(1..=10_000))]
    limit: i64,
    /// Only tasks before these: the lowest id of tasks that were due at once, and of delayed ones.
    #[arg(long, value_name = "ID,ID", value_delimiter = ',')]
    before: Vec<i64>,
}

/// Most tasks of each kind that a call with a filter reads.
const MOST: i64 = 100_000;

pub async fn run(global: &Global, client: &Client, args: &ListArgs) -> Result<()> {
    let one = |value: &Option<String>| value.clone().map(|value| vec![value]);
    let filter = Filter {
        lambdas: one(&args.lambda),
        statuses: one(&args.status),
        priorities: one(&args.priority),
        collections: one(&args.collection),
        ..Filter::default()
    };
    let most = if filter.is_empty() { args.limit + 1 } else { MOST };
    let step = Step { limit: args.limit, rows: [most; 2] };
    // Rows come in the order of the index, also where no statistics say how many there are.
    client.batch_execute("begin read only; set local enable_sort = off").await?;
    let bounds = Bounds::of(client).await?.before(&args.before);
    let Tasks { tasks, is_full, is_cut, next, .. } =
        tasks::list(client, &filter, bounds, step).await?;
    client.batch_execute("commit").await?;
    if global.json {
        output::put_json(&Value::Array(tasks))?;
    } else {
        let columns = "id, lambda, priority, status, attempt, due: due_ms_ago, collection";
        output::put_rows(&tasks, columns, "no tasks")?;
    }
    if is_full || is_cut {
        let why =
            if is_full { "more" } else { "so far the newest 100,000 of each kind were read; more" };
        let ids: Vec<_> = next.ids().iter().map(i64::to_string).collect();
        eprintln!("{why}: --before {}", ids.join(","));
    }
    Ok(())
}
