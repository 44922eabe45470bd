//! The verbs of retention, for the janitor. The DETACH CONCURRENTLY and the DROP are here too, as
//! no function may run them; a segment's number is the only thing ever formatted into SQL.

use std::time::Duration;

use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error};

use super::rows::{Parameters, column, value};

/// `n` of the partition `tuskline.task_<n>`.
pub type SegmentNo = i64;

/// How far an interrupted retirement had come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// The detach was interrupted and wants FINALIZE.
    Pending,
    /// The table is to be dropped.
    Detached,
    /// Its history is to be purged and its leftovers are to return.
    Dropped,
}

/// Keeps `ahead` segments ready; how many were made.
///
/// # Errors
/// The connection's or the server's.
pub async fn add_segments(client: &Client, ahead: i32) -> Result<i32, Error> {
    value(client, "select tuskline.add_segments($1)", &[(&ahead, Type::INT4)]).await
}

/// Segments that are ready beyond those in use, in the id range that has fewest; negative: not even one in use.
///
/// # Errors
/// The connection's or the server's.
pub async fn segments_ahead(client: &Client) -> Result<i32, Error> {
    value(client, "select coalesce(tuskline.segments_ahead(), -1)", &[]).await
}

/// Moves on to a new segment where the current one has been in use for `span`; how many did.
///
/// # Errors
/// The connection's or the server's.
pub async fn roll_segments(client: &Client, span: Duration) -> Result<i32, Error> {
    let sql = "select tuskline.roll_segments($1 * interval '1 second')";
    value(client, sql, &[(&span.as_secs_f64(), Type::FLOAT8)]).await
}

/// Segments whose retention is over; with `files` also those with tasks that are archived to files.
///
/// # Errors
/// The connection's or the server's.
pub async fn segments_to_retire(
    client: &Client,
    files: bool,
    installation: &str,
) -> Result<Vec<SegmentNo>, Error> {
    let sql = "select tuskline.segments_to_retire($1, $2)";
    column(client, sql, &[(&files, Type::BOOL), (&installation, Type::TEXT)]).await
}

/// Segments whose retirement was interrupted.
///
/// # Errors
/// The connection's or the server's.
pub async fn segments_to_finish(client: &Client) -> Result<Vec<(SegmentNo, Stage)>, Error> {
    let question = "select segment_no, stage from tuskline.segments_to_finish()";
    let rows = client.query_typed(question, &[]).await?;
    let stage = |name: &str| match name {
        "pending" => Stage::Pending,
        "detached" => Stage::Detached,
        _ => Stage::Dropped,
    };
    Ok(rows.iter().map(|row| (row.get(0), stage(row.get(1)))).collect())
}

/// Moves what must outlive a segment to `task_kept`; how many tasks. None: something in it runs or is
/// queued, and nothing was moved.
///
/// # Errors
/// The connection's or the server's.
pub async fn keep_remaining(client: &Client, no: SegmentNo) -> Result<Option<i64>, Error> {
    value(client, "select tuskline.keep_remaining($1)", &[(&no, Type::INT8)]).await
}

/// Moves to `task_kept` what was committed into a segment while it was detached. False: a worker holds
/// some of it.
///
/// # Errors
/// The connection's or the server's.
pub async fn keep_late(client: &Client, no: SegmentNo) -> Result<bool, Error> {
    value(client, "select tuskline.keep_late($1)", &[(&no, Type::INT8)]).await
}

/// Brings a dropped segment's waiting tasks back; how many.
///
/// # Errors
/// The connection's or the server's.
pub async fn return_kept(client: &Client, no: SegmentNo) -> Result<i64, Error> {
    value(client, "select tuskline.return_kept($1)", &[(&no, Type::INT8)]).await
}

/// Deletes a batch of the history of a dropped segment's tasks, of those after an id; where to go on (none: that
/// was the last), and of how many tasks.
///
/// # Errors
/// The connection's or the server's.
pub async fn purge_history(
    client: &Client,
    no: SegmentNo,
    after: i64,
) -> Result<(Option<i64>, i64), Error> {
    let sql = "select mark, gone from tuskline.purge_history($1, $2)";
    let row = client.query_typed_one(sql, &[(&no, Type::INT8), (&after, Type::INT8)]).await?;
    Ok((row.get(0), row.get(1)))
}

/// Deletes up to `limit` ended executors, waits and ticks past retention; how many rows.
///
/// # Errors
/// The connection's or the server's.
pub async fn purge(client: &Client, limit: i32, installation: &str) -> Result<i64, Error> {
    let sql = "select tuskline.purge($1, $2)";
    value(client, sql, &[(&limit, Type::INT4), (&installation, Type::TEXT)]).await
}

/// Deletes those of the next `limit` kept tasks after an id that are past retention; where to go on (none: that
/// was the last), and how many.
///
/// # Errors
/// The connection's or the server's.
pub async fn purge_kept(
    client: &Client,
    after: i64,
    limit: i32,
    installation: &str,
) -> Result<(Option<i64>, i64), Error> {
    let sql = "select mark, gone from tuskline.purge_kept($1, $2, $3)";
    let parameters: &Parameters<'_> =
        &[(&after, Type::INT8), (&limit, Type::INT4), (&installation, Type::TEXT)];
    let row = client.query_typed_one(sql, parameters).await?;
    Ok((row.get(0), row.get(1)))
}

/// Walks over all unique keys, `limit` a call, and deletes those that no task holds. Returns how many.
///
/// # Errors
/// The connection's or the server's.
pub async fn purge_keys(client: &Client, limit: i32) -> Result<i64, Error> {
    let sql = "select p_lambda, p_key, gone from tuskline.purge_keys($1, $2, $3)";
    let (mut from, mut gone) = (Some((String::new(), String::new())), 0);
    while let Some((lambda, key)) = from {
        let parameters: &Parameters<'_> =
            &[(&lambda, Type::TEXT), (&key, Type::TEXT), (&limit, Type::INT4)];
        let row = client.query_typed_one(sql, parameters).await?;
        gone += row.get::<_, i64>(2);
        from = row.get::<_, Option<String>>(0).zip(row.get(1));
    }
    Ok(gone)
}

/// Segments that may hold tasks which are not terminal.
///
/// # Errors
/// The connection's or the server's.
pub async fn segments_in_use(client: &Client) -> Result<Vec<SegmentNo>, Error> {
    column(client, "select * from tuskline.segments_in_use()", &[]).await
}

/// Puts back the tasks of a segment that nothing points to any more; how many.
///
/// # Errors
/// The connection's or the server's.
pub async fn find_stalled(client: &Client, no: SegmentNo) -> Result<i32, Error> {
    let sql = "select untimed + unqueued + unleased from tuskline.find_stalled($1)";
    value(client, sql, &[(&no, Type::INT8)]).await
}

/// Detaches a segment. Waits for every transaction that may still read it, at most `patience`;
/// given up then, the detach stays pending.
///
/// # Errors
/// The connection's or the server's; 57014 when patience ran out.
pub async fn detach(client: &Client, no: SegmentNo, patience: Duration) -> Result<(), Error> {
    let statement = format!(
        "alter table tuskline_core.task_store detach partition tuskline_core.task_{no} concurrently"
    );
    bounded(client, "statement_timeout", patience, &statement).await
}

/// Ends a pending detach, under the same terms as [`detach`].
///
/// # Errors
/// As [`detach`].
pub async fn finalize(client: &Client, no: SegmentNo, patience: Duration) -> Result<(), Error> {
    let statement = format!(
        "alter table tuskline_core.task_store detach partition tuskline_core.task_{no} finalize"
    );
    bounded(client, "statement_timeout", patience, &statement).await
}

/// Drops a detached segment, waiting at most `patience` for those who still read it.
///
/// # Errors
/// The connection's or the server's; 55P03 when patience ran out.
pub async fn drop_segment(client: &Client, no: SegmentNo, patience: Duration) -> Result<(), Error> {
    let statement = format!("drop table if exists tuskline_core.task_{no}");
    bounded(client, "lock_timeout", patience, &statement).await
}

/// Gives a detached segment another name under the same terms, so that what it leaves behind can return.
///
/// # Errors
/// As [`drop_segment`].
pub async fn set_aside(client: &Client, no: SegmentNo, patience: Duration) -> Result<(), Error> {
    let statement = format!("alter table tuskline_core.task_{no} rename to gone_{no}");
    bounded(client, "lock_timeout", patience, &statement).await
}

/// Drops a segment that was set aside, under the same terms.
///
/// # Errors
/// As [`drop_segment`].
pub async fn drop_set_aside(
    client: &Client,
    no: SegmentNo,
    patience: Duration,
) -> Result<(), Error> {
    let statement = format!("drop table if exists tuskline_core.gone_{no}");
    bounded(client, "lock_timeout", patience, &statement).await
}

/// One statement under a deadline, on its own: DETACH CONCURRENTLY refuses to share a transaction.
async fn bounded(
    client: &Client,
    setting: &str,
    patience: Duration,
    statement: &str,
) -> Result<(), Error> {
    client.batch_execute(&format!("set {setting} = {}", patience.as_millis())).await?;
    let done = client.batch_execute(statement).await;
    client.batch_execute(&format!("set {setting} = 0")).await?;
    done
}
