//! How a segment ends: what must outlive it moves to `task_kept`, it is detached and dropped, its
//! history is purged, and what still waits comes back into a fresh segment of the same range. One that
//! is to be archived is set aside instead, and dropped with its history when it is.
//!
//! Promises: each step is done again harmlessly, and each leaves a trace by which the next janitor
//! goes on; an id resolves throughout. Must never: wait for a reader longer than its patience.

use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Error};

use super::archive;
use crate::config::JanitorOptions;
use crate::session::Session;
use crate::store::archive as store;
use crate::store::guard::{self, Guard, Guarded};
use crate::store::retention::{self, SegmentNo, Stage};

/// Finishes interrupted retirements, then retires ripe segments, unless another janitor does so now.
pub async fn retire(session: &Session, options: &JanitorOptions) -> Result<(), Error> {
    let client = session.client();
    let Some(guard) = Guard::take(session.address(), Guarded::Retention).await? else {
        let holder = guard::holders(client, Guarded::Retention).await?;
        tracing::debug!(holder, "another janitor retires segments");
        return Ok(());
    };
    retire_all(client, options, &guard).await?;
    if !guard.is_held() {
        return Ok(());
    }
    archive_all(client, options).await
}

async fn retire_all(client: &Client, options: &JanitorOptions, guard: &Guard) -> Result<(), Error> {
    for (no, stage) in retention::segments_to_finish(client).await? {
        tracing::info!(segment = no, ?stage, "finishing an interrupted retirement");
        finish(client, options, no, stage).await?;
    }
    // Only one detach may be pending at a time.
    if retention::segments_to_finish(client).await?.iter().any(|(_, at)| *at == Stage::Pending) {
        return Ok(());
    }
    for no in
        retention::segments_to_retire(client, options.archive.is_some(), &options.installation)
            .await?
    {
        if !guard.is_held() {
            tracing::warn!("the connection that guards retirement was lost, trying again later");
            return Ok(());
        }
        let Some(kept) = retention::keep_remaining(client, no).await? else {
            tracing::info!(segment = no, "something in it came due, trying again later");
            continue;
        };
        tracing::info!(segment = no, kept, "keep_remaining");
        let detached = retention::detach(client, no, options.detach_patience).await;
        if detached.is_err() {
            // Unless it has begun, which segments_to_finish tells, what was kept is back at once.
            let begun = retention::segments_to_finish(client).await?;
            if begun.iter().all(|(other, _)| *other != no) {
                retention::return_kept(client, no).await?;
            }
            return done_in_time(detached, no, "detach").map(drop);
        }
        finish(client, options, no, Stage::Detached).await?;
    }
    Ok(())
}

/// Goes on from `stage` to the end, or to where patience runs out: the next round goes on there.
async fn finish(
    client: &Client,
    options: &JanitorOptions,
    no: SegmentNo,
    stage: Stage,
) -> Result<(), Error> {
    if stage == Stage::Pending {
        let finalized = retention::finalize(client, no, options.detach_patience).await;
        if !done_in_time(finalized, no, "finalize")? {
            return Ok(());
        }
    }
    if stage != Stage::Dropped {
        if !retention::keep_late(client, no).await? {
            tracing::info!(segment = no, "a worker holds something of it, trying again later");
            return Ok(());
        }
        let gone = if store::wants_archive(client, no).await? {
            retention::set_aside(client, no, options.drop_patience).await
        } else {
            retention::drop_segment(client, no, options.drop_patience).await
        };
        if !done_in_time(gone, no, "drop")? {
            return Ok(());
        }
    }
    let purged = purge_history(client, no).await?;
    let returned = retention::return_kept(client, no).await?;
    tracing::info!(segment = no, purged, returned, "segment retired");
    Ok(())
}

async fn purge_history(client: &Client, no: SegmentNo) -> Result<i64, Error> {
    let (mut from, mut purged) = (Some(0), 0);
    while let Some(after) = from {
        let (mark, gone) = retention::purge_history(client, no, after).await?;
        (from, purged) = (mark, purged + gone);
    }
    Ok(purged)
}

/// Archives and drops what was set aside.
async fn archive_all(client: &Client, options: &JanitorOptions) -> Result<(), Error> {
    for no in store::segments_set_aside(client).await? {
        if !archive::segment(client, options, no).await? {
            continue;
        }
        let dropped = retention::drop_set_aside(client, no, options.drop_patience).await;
        if done_in_time(dropped, no, "drop")? {
            let purged = purge_history(client, no).await?;
            tracing::info!(segment = no, purged, "archived segment dropped");
        }
    }
    Ok(())
}

/// False: a transaction held a lock for longer than the step waits, which is no error.
fn done_in_time(step: Result<(), Error>, no: SegmentNo, what: &str) -> Result<bool, Error> {
    let Err(error) = step else { return Ok(true) };
    if matches!(error.code(), Some(&SqlState::QUERY_CANCELED | &SqlState::LOCK_NOT_AVAILABLE)) {
        tracing::info!(segment = no, "{what} waits for a long transaction, trying again later");
        return Ok(false);
    }
    Err(error)
}
