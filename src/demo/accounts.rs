//! The accounts of a run: the executors' records, the database and the files, held side by side.

use std::collections::HashMap;
use std::path::PathBuf;

use tokio_postgres::Client;

use super::checksum;
use super::progress::Counts;
use super::record;
use super::report::Report;
use super::verdict::{Testimony, judge, percentiles};

/// What the run did.
pub(super) struct Run<'a> {
    pub ids: &'a [i64],
    pub files: &'a [PathBuf],
    pub counts: &'a Counts,
    pub seconds: f64,
    pub left_out: u64,
    pub killed: u64,
}

/// Reads the records of the workers that are gone and settles what came of every task.
pub(super) async fn settle(
    client: &Client,
    gone: &[(PathBuf, u64)],
    run: &Run<'_>,
) -> anyhow::Result<Report> {
    let mut testimonies = Vec::new();
    for (record, gone_ns) in gone {
        let lines = record::read(record).unwrap_or_default();
        testimonies.push(Testimony { lines, gone_ns: *gone_ns });
    }
    let verdict = judge(&testimonies);
    let ended = read_ends(client).await?;
    let (mut lost, mut verified, mut wrong) = (0, 0, 0);
    let mut latencies_ms = Vec::with_capacity(run.ids.len());
    for (id, path) in run.ids.iter().zip(run.files) {
        let Some(end) = ended.get(id) else {
            lost += 1;
            continue;
        };
        let witnessed = match end.succeeded {
            true => verdict.succeeded.contains(id),
            false => verdict.ended.contains(id),
        };
        lost += u64::from(!witnessed);
        if end.succeeded {
            let (sha256, _) = checksum::of_file(path, || true).unwrap_or_default();
            match end.sha256.as_deref() == Some(sha256.as_str()) {
                true => verified += 1,
                false => wrong += 1,
            }
        }
        if let Some(start_us) = verdict.first_start_us.get(id) {
            #[allow(clippy::cast_precision_loss)]
            latencies_ms.push((start_us - end.due_us) as f64 / 1000.0);
        }
    }
    #[allow(clippy::cast_precision_loss)]
    Ok(Report {
        scheduled: run.ids.len() as u64,
        succeeded: run.counts.succeeded,
        dead: run.counts.dead,
        lost,
        overlaps: verdict.overlaps,
        killed_workers: run.killed,
        rescued: run.counts.rescued,
        retried: run.counts.retried,
        checksums_verified: verified,
        checksums_wrong: wrong,
        left_out: run.left_out,
        seconds: run.seconds,
        tasks_per_s: run.ids.len() as f64 / run.seconds,
        start_latency_ms: percentiles(latencies_ms),
    })
}

/// How a task ended, as the database has it.
struct End {
    succeeded: bool,
    sha256: Option<String>,
    due_us: i64,
}

async fn read_ends(client: &Client) -> anyhow::Result<HashMap<i64, End>> {
    let rows = client
        .query(
            "select t.id, t.status = 'success', o.output->>'sha256', t.due_at \
             from tuskline.tasks t left join tuskline.task_output o on o.task_id = t.id \
             where t.status in ('success', 'dead', 'fatal_failure', 'cancelled', 'dropped')",
            &[],
        )
        .await?;
    Ok(rows
        .iter()
        .map(|row| {
            let due: chrono::DateTime<chrono::Utc> = row.get(3);
            let end =
                End { succeeded: row.get(1), sha256: row.get(2), due_us: due.timestamp_micros() };
            (row.get(0), end)
        })
        .collect())
}
