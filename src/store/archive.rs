//! Tasks that are to be deleted, as JSON lines, for the process that archives them to a file. Only numbers
//! are formatted into SQL, because COPY takes no parameters.
//!
//! COPY is prepared, so each belongs into a transaction of the caller's, which a pooler keeps together.

use tokio_postgres::types::Type;
use tokio_postgres::{Client, CopyOutStream, Error};

use super::retention::SegmentNo;
use super::rows::{column, value};

/// One value a line, as it is: neither character is ever in a line of JSON, so nothing is quoted.
const AS_IT_IS: &str = "(format csv, delimiter e'\\x02', quote e'\\x01')";

/// Whether a detached segment has tasks that are to be archived.
///
/// # Errors
/// The connection's or the server's.
pub async fn wants_archive(client: &Client, no: SegmentNo) -> Result<bool, Error> {
    value(client, "select tuskline.wants_archive($1)", &[(&no, Type::INT8)]).await
}

/// Segments that were set aside.
///
/// # Errors
/// The connection's or the server's.
pub async fn segments_set_aside(client: &Client) -> Result<Vec<SegmentNo>, Error> {
    column(client, "select tuskline.segments_set_aside()", &[]).await
}

/// Copies a batch of one that was set aside to `task_archive`; where to go on, none: that was all.
///
/// # Errors
/// The connection's or the server's.
pub async fn archive_segment(
    client: &Client,
    no: SegmentNo,
    after: i64,
    limit: i32,
) -> Result<Option<i64>, Error> {
    let sql = "select tuskline.archive_segment($1, $2, $3)";
    value(client, sql, &[(&no, Type::INT8), (&after, Type::INT8), (&limit, Type::INT4)]).await
}

/// Whether a segment that was set aside has tasks that are archived to files.
///
/// # Errors
/// The connection's or the server's.
pub async fn goes_to_file(client: &Client, no: SegmentNo) -> Result<bool, Error> {
    value(client, "select tuskline.goes_to_file($1)", &[(&no, Type::INT8)]).await
}

/// Tasks that are archived to files, of a segment that was set aside. A plain query: a function would
/// gather all rows before it sends the first.
///
/// # Errors
/// The connection's or the server's.
pub async fn segment_lines(client: &Client, no: SegmentNo) -> Result<CopyOutStream, Error> {
    let sql = format!(
        "copy (select translate(row_to_json(a)::text, e'\\n\\r', '  ') from (
           select t.*, tuskline_core.failures_of(t.id) as failures,
                  (select o.output from tuskline.task_output o where o.task_id = t.id) as output,
                  tuskline.clock() as archived_at
             from tuskline_core.gone_{no} t join tuskline.lambda l on l.name = t.lambda
            where l.archive = 'file') a) to stdout {AS_IT_IS}"
    );
    client.copy_out(&sql).await
}

/// Tasks by their ids.
///
/// # Errors
/// The connection's or the server's.
pub async fn archive_lines(client: &Client, ids: &[i64]) -> Result<CopyOutStream, Error> {
    let ids: Vec<String> = ids.iter().map(i64::to_string).collect();
    let ids = ids.join(",");
    let sql = format!("copy (select tuskline.archive_lines('{{{ids}}}')) to stdout {AS_IT_IS}");
    client.copy_out(&sql).await
}

/// Locks those of the next `limit` kept tasks after an id that are past their retention and go to a file; and
/// where to go on (none: that was the last).
///
/// # Errors
/// The connection's or the server's.
pub async fn kept_to_file(
    client: &Client,
    after: i64,
    limit: i32,
) -> Result<(Vec<i64>, Option<i64>), Error> {
    let sql = "select ids, mark from tuskline.kept_to_file($1, $2)";
    let row = client.query_typed_one(sql, &[(&after, Type::INT8), (&limit, Type::INT4)]).await?;
    Ok((row.get(0), row.get(1)))
}

/// Deletes tasks whose lines are safe; how many. `purge`: the run that they are of, if any.
///
/// # Errors
/// The connection's or the server's.
pub async fn delete_written(
    client: &Client,
    ids: &[i64],
    purge: Option<i64>,
) -> Result<i64, Error> {
    let sql = "select tuskline.delete_written($1, $2)";
    value(client, sql, &[(&ids, Type::INT8_ARRAY), (&purge, Type::INT8)]).await
}

/// Segments and kept tasks that wait for a server with a directory.
///
/// # Errors
/// The connection's or the server's.
pub async fn unarchived(client: &Client) -> Result<(i64, i64), Error> {
    let sql = "select segments, tasks from tuskline.unarchived()";
    let row = client.query_typed_one(sql, &[]).await?;
    Ok((row.get(0), row.get(1)))
}

/// Begins a transaction on a session that is used for nothing else until its end.
///
/// # Errors
/// The connection's.
pub async fn begin(client: &Client) -> Result<(), Error> {
    client.batch_execute("begin").await
}

/// Commits it.
///
/// # Errors
/// The connection's or the server's: then the outcome is unknown, and lines may come twice.
pub async fn commit(client: &Client) -> Result<(), Error> {
    client.batch_execute("commit").await
}

/// Takes it back.
///
/// # Errors
/// The connection's.
pub async fn rollback(client: &Client) -> Result<(), Error> {
    client.batch_execute("rollback").await
}
