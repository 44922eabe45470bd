//! The janitor: makes partitions of the task store ahead of need, and removes tasks that are past
//! their retention, whole segments at a time.
//!
//! Promises: no insert ever waits for a partition. A stalled task, to which nothing points, is
//! found again. Tasks that must outlive their segment do. The next janitor finishes an interrupted
//! retirement. Any number of janitors may run, and one at a time retires segments.
//! A task that must be archived is deleted only after its archive is safe.
//! Must never: take a lock that makes scheduling or claiming wait behind a session with a long read.

mod archive;
mod retirement;
#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::time::{Duration, Instant};

use tokio::time::sleep;
use tokio_postgres::Error;
use tokio_util::sync::CancellationToken;
use tuskline_sdk::Address;

use crate::config::JanitorOptions;
use crate::recovery::{Recovery, RoleHealth};
use crate::session::{Deadlines, ErrorChain, Session};
use crate::store::{self, retention, statistics};

/// How far the walks over the kept tasks have come. A round reads some of them, and the next round
/// continues there.
#[derive(Debug, Clone, Copy, Default)]
pub struct Marks {
    /// Tasks that are deleted.
    kept: i64,
    /// Tasks that are archived to files first.
    to_file: i64,
}

/// Works until `shutdown`, through every loss of the database.
pub async fn run(
    address: impl Into<Address>,
    options: JanitorOptions,
    health: RoleHealth,
    shutdown: CancellationToken,
) {
    let address = address.into();
    let mut recovery = Recovery::new("janitor", health);
    let mut warned = options.archive.is_some();
    let mut marks = Marks::default();
    loop {
        let work = work(&address, &options, &mut recovery, &mut warned, &mut marks);
        let Some(Err(lost)) = shutdown.run_until_cancelled(work).await else { break };
        shutdown.run_until_cancelled(sleep(recovery.failed(&lost))).await;
    }
    tracing::debug!("janitor stopped");
}

/// Rounds, and beside them a watch: a round may wait a minute for a reader of a segment, and a role
/// that draws ids without tasks does not.
async fn work(
    address: &Address,
    options: &JanitorOptions,
    recovery: &mut Recovery,
    warned: &mut bool,
    marks: &mut Marks,
) -> Result<Infallible, Error> {
    let rounds = rounds(address, options, recovery, warned, marks);
    let (never, _) = tokio::try_join!(rounds, watch(address, options))?;
    Ok(never)
}

async fn rounds(
    address: &Address,
    options: &JanitorOptions,
    recovery: &mut Recovery,
    warned: &mut bool,
    marks: &mut Marks,
) -> Result<Infallible, Error> {
    let mut audit_at = Instant::now();
    loop {
        // A session per round: its memory of many partitions goes with it.
        let session = Session::open(address, "janitor", Deadlines::PATIENT).await?;
        round(&session, options, marks).await?;
        if !*warned {
            *warned = archive::warn_without(session.client()).await?;
        }
        if Instant::now() >= audit_at {
            audit(&session, options).await?;
            audit_at = Instant::now() + options.audit_every;
        }
        drop(session);
        recovery.worked();
        sleep(jittered(options.every)).await;
    }
}

/// Folds statistics, and makes segments whenever few are left. Ids may be drawn faster than tasks
/// are made.
async fn watch(address: &Address, options: &JanitorOptions) -> Result<Infallible, Error> {
    loop {
        sleep(options.segments_check_every).await;
        let session = Session::open(address, "janitor", Deadlines::PATIENT).await?;
        fold(&session, options).await?;
        if retention::segments_ahead(session.client()).await? < options.segments_ahead / 2 {
            let added = retention::add_segments(session.client(), options.segments_ahead).await?;
            tracing::warn!(added, "ids are drawn fast: segments were made between two rounds");
        }
    }
}

/// Everything a janitor does, once.
///
/// # Errors
/// The connection's or the server's. Whatever was done stays done.
pub async fn round(
    session: &Session,
    options: &JanitorOptions,
    marks: &mut Marks,
) -> Result<(), Error> {
    let client = session.client();
    store::check_installation(client, &options.installation).await?;
    let added = retention::add_segments(client, options.segments_ahead).await?;
    let rolled = retention::roll_segments(client, options.segment_span).await?;
    if added + rolled > 0 {
        tracing::info!(added, rolled, "segments of the task store");
    }
    fold(session, options).await?;
    retirement::retire(session, options).await?;
    purge(session, options, marks).await
}

/// Folds all waiting counts of the statistics, if it is time.
///
/// An error of the database does not end the round, because retention must go on without
/// statistics. A refusal (TK) ends it: the database belongs to another installation.
async fn fold(session: &Session, options: &JanitorOptions) -> Result<(), Error> {
    loop {
        match statistics::fold(session.client(), options.fold_every, &options.installation).await {
            Ok(Some(rows)) => tracing::debug!(rows, "fold_statistics"),
            Ok(None) => return Ok(()),
            Err(error) if error.code().is_some_and(|code| !code.code().starts_with("TK")) => {
                tracing::warn!(error = %ErrorChain(&error), "fold_statistics failed");
                return Ok(());
            }
            Err(lost) => return Err(lost),
        }
    }
}

async fn purge(
    session: &Session,
    options: &JanitorOptions,
    marks: &mut Marks,
) -> Result<(), Error> {
    let mut purged = 0;
    for _ in 0..options.purge_rounds {
        let gone =
            retention::purge(session.client(), options.purge_batch, &options.installation).await?;
        purged += gone;
        if gone == 0 {
            break;
        }
    }
    for _ in 0..options.purge_rounds {
        let (mark, gone) = retention::purge_kept(
            session.client(),
            marks.kept,
            options.purge_batch,
            &options.installation,
        )
        .await?;
        purged += gone;
        marks.kept = mark.unwrap_or(0);
        if mark.is_none() {
            break;
        }
    }
    if let Some(directory) = &options.archive {
        purged += archive::purge(session.client(), options, directory, &mut marks.to_file).await?;
    }
    for _ in 0..options.purge_rounds {
        let (kept, batch) = (options.statistics_retention, options.purge_batch);
        let Some(gone) = statistics::purge(session.client(), kept, batch).await? else { break };
        purged += gone;
    }
    if purged > 0 {
        tracing::info!(rows = purged, "purge");
    }
    Ok(())
}

/// Finds stalled tasks, to which nothing points any more. Each of them is the result of a bug. Also
/// deletes unique keys that no task holds; these are no bug.
async fn audit(session: &Session, options: &JanitorOptions) -> Result<(), Error> {
    for no in retention::segments_in_use(session.client()).await? {
        let found = retention::find_stalled(session.client(), no).await?;
        if found > 0 {
            tracing::warn!(segment = no, tasks = found, "find_stalled: put back");
        }
    }
    let keys = retention::purge_keys(session.client(), options.purge_batch).await?;
    if keys > 0 {
        tracing::info!(keys, "unique keys that no task holds any more were deleted");
    }
    Ok(())
}

/// Up to a tenth shorter or longer, so that many janitors do not work at the same time.
fn jittered(every: Duration) -> Duration {
    every.mul_f64(0.9 + fastrand::f64() / 5.0)
}
