//! One task per file.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;
use tuskline_sdk::{Client, NewTask, Priority};

use super::worker::LAMBDA;

/// One file in so many is scheduled for a few seconds later.
const LATER_ONE_IN: usize = 10;
pub(super) const LATER: &str = "later";
/// Tasks per schedule_many.
const BATCH: usize = 500;

/// One task per file; every tenth is due two to four seconds later, and some go first.
pub(super) async fn all(client: &Client, files: &[PathBuf]) -> anyhow::Result<Vec<i64>> {
    let mut ids = Vec::with_capacity(files.len());
    for (batch, paths) in files.chunks(BATCH).enumerate() {
        let tasks: Vec<NewTask> = paths
            .iter()
            .enumerate()
            .map(|(at, path)| new_task(batch * BATCH + at, path))
            .collect::<anyhow::Result<_>>()?;
        ids.extend(client.schedule_many(&tasks).await?.iter().map(|id| id.0));
    }
    Ok(ids)
}

fn new_task(number: usize, path: &Path) -> anyhow::Result<NewTask> {
    let mut task = NewTask::new(LAMBDA, &json!({ "path": path }));
    if number.is_multiple_of(LATER_ONE_IN) {
        let later_ms = 2000 + (number as u64 * 37) % 2000;
        task = task.after(Duration::from_millis(later_ms)).collection(LATER);
    } else if number.is_multiple_of(7) {
        task = task.priority(Priority::High);
    }
    Ok(task)
}
