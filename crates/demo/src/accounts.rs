//! The accounts of a run: the executors' records, the database and the files, held side by side.

use std::collections::HashMap;
use std::path::PathBuf;

use tokio_postgres::Client;

use super::checksum;
use super::progress::Counts;
use super::record;
use super::report::Report;
use super::schedule::LATER;
use super::verdict::{Start, Testimony, Verdict, judge, pace};

/// Result of the run.
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
    Ok(reckon(run, &judge(&testimonies), &read_ends(client).await?))
}

/// Sets what the executors wrote beside what the database says and what the files hold now.
fn reckon(run: &Run<'_>, verdict: &Verdict, ends: &HashMap<i64, End>) -> Report {
    let (mut lost, mut verified, mut wrong) = (0, 0, 0);
    let mut starts = Vec::with_capacity(run.ids.len());
    for (id, path) in run.ids.iter().zip(run.files) {
        let Some(end) = ends.get(id) else {
            lost += 1;
            continue;
        };
        lost += u64::from(!witnessed(verdict, *id, end));
        if end.succeeded {
            let (sha256, _) = checksum::of_file(path, || true).unwrap_or_default();
            match end.sha256.as_deref() == Some(sha256.as_str()) {
                true => verified += 1,
                false => wrong += 1,
            }
        }
        if let Some(start_us) = verdict.first_start_us.get(id) {
            starts.push(Start { at_us: *start_us, ..end.start });
        }
    }
    let pace = pace(&starts);
    Report {
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
        tasks_per_s: pace.tasks_per_s,
        start_latency_ms: pace.start_latency_ms,
        queue_wait_ms: pace.queue_wait_ms,
    }
}

/// Whether some executor wrote down the end that the database claims.
fn witnessed(verdict: &Verdict, id: i64, end: &End) -> bool {
    match end.succeeded {
        true => verdict.succeeded.contains(&id),
        false => verdict.ended.contains(&id),
    }
}

/// How a task ended, as the database has it.
struct End {
    succeeded: bool,
    sha256: Option<String>,
    start: Start,
}

async fn read_ends(client: &Client) -> anyhow::Result<HashMap<i64, End>> {
    let rows = client
        .query(
            "select t.id, t.status = 'success', o.output->>'sha256', t.due_at, \
                    coalesce(t.collection = $1, false), \
                    exists (select from tuskline.task_failure f \
                             where f.task_id = t.id and f.error_class = 'crash') \
             from tuskline.tasks t left join tuskline.task_output o on o.task_id = t.id \
             where t.finished_at is not null",
            &[&LATER],
        )
        .await?;
    let end = |row: &tokio_postgres::Row| {
        let due: chrono::DateTime<chrono::Utc> = row.get(3);
        let (is_later, is_rescued) = (row.get(4), row.get(5));
        let start = Start { at_us: 0, due_us: due.timestamp_micros(), is_later, is_rescued };
        (row.get(0), End { succeeded: row.get(1), sha256: row.get(2), start })
    };
    Ok(rows.iter().map(end).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Line, What};

    const TASK: i64 = 7;

    fn line(fence: i64, what: What, at_ns: u64) -> Line {
        Line { task: TASK, fence, what, at_ns, wall_us: 0 }
    }

    fn honest() -> Vec<Line> {
        vec![line(1, What::Begin, 10), line(1, What::Success, 20)]
    }

    /// The report on a run of one task: its file holds `content`, its executor wrote `lines`, and
    /// the database has `end` of it.
    fn report(lines: Vec<Line>, content: &str, end: Option<End>) -> Report {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, content).unwrap();
        let (ids, files, counts) = ([TASK], [file], Counts::default());
        let run =
            Run { ids: &ids, files: &files, counts: &counts, seconds: 1.0, left_out: 0, killed: 1 };
        let ends = end.map(|end| (TASK, end)).into_iter().collect();
        reckon(&run, &judge(&[Testimony { lines, gone_ns: 100 }]), &ends)
    }

    /// SHA-256 of nothing at all.
    const OF_NOTHING: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    fn success() -> Option<End> {
        Some(End { succeeded: true, sha256: Some(OF_NOTHING.to_owned()), start: Start::default() })
    }

    fn death() -> Option<End> {
        Some(End { succeeded: false, sha256: None, start: Start::default() })
    }

    #[test]
    fn an_honest_run_holds() {
        let report = report(honest(), "", success());
        assert!(report.holds(), "{report:?}");
        assert_eq!((report.scheduled, report.lost, report.checksums_verified), (1, 0, 1));
    }

    #[test]
    fn a_task_that_the_database_has_not_ended_is_lost() {
        assert_eq!(report(honest(), "", None).lost, 1);
    }

    #[test]
    fn a_success_that_no_executor_wrote_down_is_lost() {
        assert_eq!(report(Vec::new(), "", success()).lost, 1);
        assert_eq!(report(vec![line(1, What::Begin, 10)], "", success()).lost, 1);
        let failed = vec![line(1, What::Begin, 10), line(1, What::Failure, 20)];
        assert_eq!(report(failed, "", success()).lost, 1);
    }

    #[test]
    fn a_dead_task_is_lost_only_when_no_attempt_ran() {
        let failed = vec![line(1, What::Begin, 10), line(1, What::Failure, 20)];
        let report_of_dead = report(failed, "", death());
        assert_eq!((report_of_dead.lost, report_of_dead.holds()), (0, true));
        assert_eq!(report(Vec::new(), "", death()).lost, 1);
    }

    #[test]
    fn a_checksum_that_differs_from_the_file_is_wrong() {
        let report = report(honest(), "changed", success());
        assert_eq!((report.checksums_wrong, report.lost, report.holds()), (1, 0, false));
    }
}
