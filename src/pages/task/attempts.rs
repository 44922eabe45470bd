//! The attempts of a task, and where the time of each went.

use maud::{Markup, html};
use serde_json::Value;
use tokio_postgres::{Client, Error};

use crate::pages::parts::Frame;
use crate::pages::table::{Column, Kind, plain};
use crate::pages::words::count;
use crate::store::rows::{Parameters, rows};

/// Attempts on the page, the newest first.
const MOST: usize = 100;

const ATTEMPTS: &str = "
    select w.attempt, w.fence, a.executor_id, coalesce(a.outcome, 'to come') as outcome,
           w.due_at, w.started_at, w.ended_at, a.error_class, a.message,
           (1000 * extract(epoch from w.dependency))::bigint as dependency_ms,
           (1000 * extract(epoch from w.retry))::bigint as retry_ms,
           (1000 * extract(epoch from w.gate))::bigint as gate_ms,
           (1000 * extract(epoch from w.rest))::bigint as rest_ms,
           (1000 * extract(epoch from w.run))::bigint as run_ms
      from tuskline.attempt_waits($1) w
           left join tuskline.attempts a on a.task_id = $1 and a.fence = w.fence
     order by w.fence desc nulls first limit 101";

/// Reads them, the newest first; true: there are more. `task` is the id.
///
/// # Errors
/// The connection's or the server's.
pub async fn read(client: &Client, task: &Parameters<'_>) -> Result<(Vec<Value>, bool), Error> {
    let mut attempts: Vec<Value> = rows(client, ATTEMPTS, task).await?;
    let and_more = attempts.len() > MOST;
    attempts.truncate(MOST);
    Ok((attempts, and_more))
}

/// The attempts as a table.
pub fn list(frame: &Frame, attempts: &[Value], and_more: bool) -> Markup {
    const COLUMNS: [Column; 10] = [
        Column::new("Attempt", "attempt", Kind::Count),
        Column::new("Outcome", "outcome", Kind::State).above("error_class"),
        Column::wide("Error", "message", Kind::Text),
        Column::wide("Executor", "executor_id", Kind::Link("executors")),
        Column::wide("Started", "started_at", Kind::Age),
        Column::wide("Parents", "dependency_ms", Kind::Span),
        Column::wide("Retry", "retry_ms", Kind::Span),
        Column::wide("Gate", "gate_ms", Kind::Span),
        Column::new("Limit, worker", "rest_ms", Kind::Span),
        Column::new("Run", "run_ms", Kind::Span),
    ];
    html! {
        section aria-labelledby="attempts" {
            header {
                h2 #attempts { "Attempts" }
                p {
                    (count(attempts.len() as i64))
                    @if and_more { " of more, the newest first" }
                    "; where their time went, from due to the end"
                }
            }
            @if attempts.is_empty() { p .muted { "None has begun." } }
            @else { (plain(frame, &COLUMNS, attempts)) }
        }
    }
}
