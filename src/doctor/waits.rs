//! Due tasks that no store consumer moves, and what waits for a person: ordering keys, schedules with a problem.
//!
//! Promises: it reads the first [`SAMPLE`] timers, and the keys of so many dead letters and waiters.

use anyhow::Result;
use tokio_postgres::Client;

use super::finding::Found;
use super::remedy;
use crate::duration;
use crate::store::overview::{self, Blocked, Waiting};

/// Most rows of each kind. Each look-up of a task reads four pages.
const SAMPLE: i32 = 100;

/// A store consumer moves a due task within milliseconds, and a backlog within seconds.
const LATE_MS: i64 = 10_000;

const PROBLEMS: &str = "
    select count(*) filter (where problem is not null), count(*), min(name) filter (where problem is not null),
           (array_agg(problem order by name) filter (where problem is not null))[1]
      from tuskline.periodics";

/// Tasks that have been due for longer than [`LATE_MS`] and are not in their queue.
pub async fn due(client: &Client) -> Result<Found> {
    let waits = overview::waits(client, SAMPLE).await?;
    let late = waits.iter().filter(|one| one.cause == "server");
    let late: Vec<_> = late.filter(|one| one.oldest_ms >= Some(LATE_MS)).collect();
    let oldest = late.iter().max_by_key(|one| one.oldest_ms);
    Ok(match oldest {
        None => Found::ok("each is moved to its queue"),
        Some(oldest) => Found::warn(unmoved(&late, oldest), remedy::SERVE),
    })
}

fn unmoved(late: &[&Waiting], oldest: &Waiting) -> String {
    let tasks: i64 = late.iter().map(|one| one.count.tasks).sum();
    let more = if late.iter().any(|one| one.count.and_more) { " or more" } else { "" };
    format!(
        "{tasks}{more} have been due for 5s or longer, one of {} for {}, and no store consumer \
         has moved them",
        oldest.lambda,
        duration::show(oldest.oldest_ms.unwrap_or(0)),
    )
}

/// Keys of orders that stand behind a failed task.
pub async fn orders(client: &Client) -> Result<Found> {
    let blocked = overview::blocked(client, SAMPLE).await?;
    Ok(match blocked.iter().max_by_key(|one| one.oldest_ms) {
        None => Found::ok("no key is blocked"),
        Some(oldest) => Found::warn(waits_for_a_person(&blocked, oldest), remedy::BLOCKED),
    })
}

fn waits_for_a_person(blocked: &[Blocked], oldest: &Blocked) -> String {
    let keys: i64 = blocked.iter().map(|one| one.keys.tasks).sum();
    let more = if blocked.iter().any(|one| one.keys.and_more) { " or more" } else { "" };
    format!(
        "{keys}{more} keys are blocked and wait for a person: key {:?} of {} for {}, by task {}",
        oldest.ordering_key,
        oldest.lambda,
        duration::show(oldest.oldest_ms),
        oldest.task
    )
}

/// Counts the schedules that have a problem, and names the first one and its problem.
pub async fn schedules(client: &Client) -> Result<Found> {
    let row = client.query_typed_one(PROBLEMS, &[]).await?;
    let (affected, all): (i64, i64) = (row.get(0), row.get(1));
    let (name, problem): (Option<&str>, Option<&str>) = (row.get(2), row.get(3));
    Ok(match (name, problem) {
        (Some(name), Some(problem)) => Found::warn(
            format!("{affected} of {all} with a problem: {name}: {problem}"),
            remedy::SCHEDULES,
        ),
        _ => Found::ok(format!("{all} defined")),
    })
}
