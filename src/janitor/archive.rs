//! The janitor's part in archives: nothing that wants one is deleted before it is safe.
//!
//! Promises: a row of `task_archive` comes once; a line in a file is on the disk before the task is
//! deleted, and may come twice. Must never: hold more than a batch in memory.

use tokio_postgres::{Client, Error};

use crate::archive::{self, Directory};
use crate::config::JanitorOptions;
use crate::store::archive as store;
use crate::store::retention::SegmentNo;

/// Archives a segment that was set aside. False: it must stay for now.
pub async fn segment(
    client: &Client,
    options: &JanitorOptions,
    no: SegmentNo,
) -> Result<bool, Error> {
    let mut from = Some(0);
    while let Some(after) = from {
        from = store::archive_segment(client, no, after, options.purge_batch).await?;
    }
    if !store::goes_to_file(client, no).await? {
        return Ok(true);
    }
    let Some(directory) = &options.archive else { return Ok(false) };
    store::begin(client).await?;
    let written = match store::segment_lines(client, no).await {
        Ok(lines) => directory.put_segment(no, lines).await,
        Err(error) => Err(error.into()),
    };
    let Some(tasks) = done(client, written).await? else { return Ok(false) };
    store::commit(client).await?;
    tracing::info!(segment = no, tasks, "archived to a file");
    Ok(true)
}

/// Kept tasks past their retention that go to a file, a batch at a time from `mark` on; how many went.
pub async fn purge(
    client: &Client,
    options: &JanitorOptions,
    directory: &Directory,
    mark: &mut i64,
) -> Result<i64, Error> {
    let mut purged = 0;
    for _ in 0..options.purge_rounds {
        store::begin(client).await?;
        let (ids, next) = store::kept_to_file(client, *mark, options.purge_batch).await?;
        if ids.is_empty() {
            store::rollback(client).await?;
        } else {
            let written = match store::archive_lines(client, &ids).await {
                Ok(lines) => directory.add("kept", lines).await,
                Err(error) => Err(error.into()),
            };
            if done(client, written).await?.is_none() {
                break;
            }
            purged += store::delete_written(client, &ids, None).await?;
            store::commit(client).await?;
        }
        *mark = next.unwrap_or(0);
        if next.is_none() {
            break;
        }
    }
    Ok(purged)
}

/// None: the file could not be written. Nothing was deleted; the next round tries again.
async fn done(client: &Client, written: Result<u64, archive::Error>) -> Result<Option<u64>, Error> {
    match written {
        Ok(tasks) => Ok(Some(tasks)),
        Err(archive::Error::Database(error)) => Err(error),
        Err(error) => {
            tracing::warn!("archive: {error}; what was to be archived stays");
            store::rollback(client).await?;
            Ok(None)
        }
    }
}

/// Says that tasks wait for a directory that this server has not.
pub async fn warn_without(client: &Client) -> Result<bool, Error> {
    let (segments, tasks) = store::unarchived(client).await?;
    if segments + tasks > 0 {
        tracing::warn!(
            segments,
            tasks,
            "past their retention, to be archived to files, and kept: run a server with --archive-dir"
        );
    }
    Ok(segments + tasks > 0)
}
