//! A lambda's archive is complete before its tasks are deleted.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use tuskline::archive::Directory;
use tuskline::config::JanitorOptions;
use tuskline::janitor::{Marks, round};
use tuskline::session::{Deadlines, Session};

use crate::support::cli::on;
use crate::support::{Db, ScriptedWorker};

const DAY: Duration = Duration::from_secs(86_400);

/// A payload that is JSON over two lines, with all that a text format would escape.
const PAYLOAD: &str = "{\"a\":\n \"\\\\ \\n \\u0001 ö \\\" , 'x'\"}";

/// A full segment, a day old. It has a success, a fatal failure after a retry, a waiting task, and
/// a task of a lambda without an archive.
struct Old {
    db: Db,
    worker: ScriptedWorker,
    success: i64,
    fatal: i64,
    waits: i64,
}

async fn old(archive: &str) -> Old {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    db.define("other").await;
    db.run(&format!("select tuskline.alter_lambda('work', p_dead_retention => '7 days', p_archive => '{archive}')")).await;
    db.run("select tuskline.roll_segments()").await;
    let success: i64 =
        db.ask("select tuskline.schedule('work', $1::text::json)", &[&PAYLOAD]).await;
    let [fatal, waits] = db.schedule_many("work", 2).await.try_into().unwrap();
    db.schedule("other").await;
    let worker = db.worker_with(&["work", "other"], Duration::from_secs(20)).await;
    let tasks = worker.claim(4).await;
    worker.succeed_with(&tasks[0], "[1]").await;
    worker.fail(&tasks[1]).await;
    worker.note(&tasks[2], r#""status": "retriable_failure", "after_ms": 864000000"#).await;
    worker.succeed(&tasks[3]).await;
    db.advance(Duration::from_secs(2)).await;
    db.enqueue_due().await;
    worker.fail_for_good(&worker.take().await).await;
    db.advance(DAY).await;
    db.run("select tuskline.roll_segments()").await;
    db.advance(DAY * 7).await;
    Old { db, worker, success, fatal, waits }
}

impl Old {
    /// The file of the first segment.
    fn file(&self, which: &str) -> String {
        format!("task_{}{which}.jsonl", self.db.first_segment())
    }

    async fn round(&self, archive: Option<Directory>) {
        let session = Session::open(&self.db.config, "janitor", Deadlines::PATIENT).await.unwrap();
        let options = JanitorOptions { archive, ..JanitorOptions::default() };
        round(&session, &options, &mut Marks::default()).await.unwrap();
    }

    async fn left(&self) -> Vec<i64> {
        self.db.all("select id from tuskline.tasks order by id").await
    }

    /// The waiting task runs, with or without the archived tasks.
    async fn check_runs(&self) {
        self.db.advance(DAY * 2).await;
        self.db.enqueue_due().await;
        assert_eq!(self.worker.take().await.id, self.waits);
    }

    async fn archived(&self) -> Vec<String> {
        self.db
            .lines(
                "select id, lambda, status, payload, json_array_length(failures) as failures, output,
                        archived_at = tuskline.clock() as now
                   from tuskline.task_archive order by id",
            )
            .await
    }

    fn expected(&self) -> [String; 2] {
        [
            format!("{} | work | success | {PAYLOAD} | - | [1] | true", self.success),
            format!("{} | work | fatal_failure | - | 2 | - | true", self.fatal),
        ]
    }
}

/// Every line of the files whose names begin with the prefix.
fn lines(dir: &Path, prefix: &str) -> Vec<Value> {
    let mut files: Vec<_> =
        std::fs::read_dir(dir).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    let named = |path: &&std::path::PathBuf| {
        path.file_name().unwrap().to_str().unwrap().starts_with(prefix)
    };
    let texts = files.iter().filter(named).map(|path| std::fs::read_to_string(path).unwrap());
    texts
        .flat_map(|text| {
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<Value>>()
        })
        .collect()
}

/// Checks that no other account of the machine can read the payloads.
fn assert_private(dir: &Path) {
    let files = std::fs::read_dir(dir).unwrap().map(|file| file.unwrap());
    let modes: Vec<_> = files.map(|file| file.metadata().unwrap().permissions().mode()).collect();
    assert!(!modes.is_empty() && modes.iter().all(|mode| mode & 0o777 == 0o600), "{modes:?}");
}

fn ids(lines: &[Value]) -> Vec<i64> {
    let mut ids: Vec<_> = lines.iter().map(|line| line["id"].as_i64().unwrap()).collect();
    ids.sort_unstable();
    ids
}

#[tokio::test]
async fn a_segment_is_in_the_table_before_it_is_dropped() {
    let old = old("table").await;
    old.round(None).await;
    assert_eq!(old.archived().await, old.expected());
    assert_eq!(old.left().await, [old.waits]);
    assert_eq!(old.db.one::<i64>("select count(*) from tuskline.task_output").await, 0);
    old.check_runs().await;
}

#[tokio::test]
async fn an_archive_that_was_interrupted_is_finished_and_has_everything_once() {
    let old = old("table").await;
    let no = old.db.first_segment();
    old.db.run(&format!("select tuskline.keep_remaining({no})")).await;
    old.db
        .run(&format!("alter table tuskline_core.task_store detach partition tuskline_core.task_{no} concurrently"))
        .await;
    assert!(old.db.one::<bool>(&format!("select tuskline.wants_archive({no})")).await);
    old.db.run(&format!("alter table tuskline_core.task_{no} rename to gone_{no}")).await;
    assert_eq!(
        old.db.one::<i64>(&format!("select gone from tuskline.purge_history({no})")).await,
        0,
        "the archive wants it"
    );
    let next: Option<i64> =
        old.db.one(&format!("select tuskline.archive_segment({no}, 0, 1)")).await;
    assert_eq!(next, Some(old.success));
    // The process that wrote the first batch is gone, so the archive is written again.
    old.round(None).await;
    assert_eq!(old.archived().await, old.expected());
    assert!(old.db.all::<i64>("select * from tuskline.segments_set_aside()").await.is_empty());
    let failures: Vec<i64> = old.db.all("select task_id from tuskline.task_failure").await;
    assert_eq!(failures, [old.waits], "dropped with its history");
    old.check_runs().await;
}

#[tokio::test]
async fn a_kept_task_is_in_the_table_as_soon_as_it_is_deleted() {
    let old = old("table").await;
    old.db.run("select tuskline.alter_lambda('work', p_dead_retention => '30 days')").await;
    old.round(None).await;
    assert_eq!(old.archived().await, old.expected()[..1]);
    old.db.advance(DAY * 30).await;
    let other = old.db.connect().await;
    other.batch_execute("begin; select tuskline.purge_kept()").await.unwrap();
    assert_eq!(old.archived().await.len(), 1, "nothing is committed");
    other.batch_execute("commit").await.unwrap();
    assert_eq!(old.archived().await[1], old.expected()[1]);
}

#[tokio::test]
async fn a_segment_is_in_a_file_before_it_is_dropped() {
    let old = old("file").await;
    let dir = tempfile::tempdir().unwrap();
    old.round(Some(Directory::open(dir.path()).unwrap())).await;
    let written = lines(dir.path(), &old.file(""));
    assert_eq!(ids(&written), [old.success, old.fatal]);
    let of = |id: i64| written.iter().find(|line| line["id"] == id).unwrap();
    let payload: Value = serde_json::from_str(PAYLOAD).unwrap();
    assert_eq!(
        (&of(old.success)["payload"], &of(old.success)["output"]),
        (&payload, &serde_json::json!([1]))
    );
    let failures = of(old.fatal)["failures"].as_array().unwrap();
    let messages: Vec<_> =
        failures.iter().map(|failure| failure["message"].as_str().unwrap()).collect();
    assert_eq!(messages, ["boom 1", "no"]);
    assert!(failures[0]["started_at"].is_string(), "{failures:?}");
    assert_eq!(old.left().await, [old.waits]);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "nothing unfinished is left");
    old.check_runs().await;
}

#[tokio::test]
async fn a_server_without_a_directory_leaves_what_wants_a_file() {
    let old = old("file").await;
    let before = old.left().await;
    old.round(None).await;
    assert_eq!(old.left().await, before);
    let doctor = || {
        let ran = on(&old.db.config, "doctor").run();
        ran.out.lines().find(|line| line.contains("archive ")).unwrap().to_owned()
    };
    assert!(
        doctor().starts_with("warn") && doctor().contains("1 segments and 0 kept"),
        "{}",
        doctor()
    );
    let dir = tempfile::tempdir().unwrap();
    old.db.advance(DAY).await;
    old.round(Some(Directory::open(dir.path()).unwrap())).await;
    assert_eq!(old.left().await, [old.waits]);
    assert_eq!(lines(dir.path(), old.file("").trim_end_matches(".jsonl")).len(), 2);
    assert!(doctor().starts_with("ok"), "{}", doctor());
}

#[tokio::test]
async fn a_directory_that_is_gone_loses_nothing_and_holds_up_nothing_that_waits() {
    let old = old("file").await;
    let no = old.db.first_segment();
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("archive");
    std::fs::create_dir(&dir).unwrap();
    let directory = Directory::open(&dir).unwrap();
    std::fs::remove_dir(&dir).unwrap();
    old.round(Some(directory.clone())).await;
    assert_eq!(old.db.all::<i64>("select * from tuskline.segments_set_aside()").await, [no]);
    assert_eq!(
        old.db.one::<i64>(&format!("select count(*) from tuskline_core.gone_{no}")).await,
        3
    );
    old.check_runs().await;
    old.round(None).await;
    let waits = old.db.lines("select segments, tasks from tuskline.unarchived()").await;
    assert_eq!(waits, ["1 | 0"]);
    std::fs::create_dir(&dir).unwrap();
    old.round(Some(directory)).await;
    assert_eq!(lines(&dir, &old.file("")).len(), 2);
    assert!(old.db.all::<i64>("select * from tuskline.segments_set_aside()").await.is_empty());
}

#[tokio::test]
async fn a_server_that_dies_after_the_writing_writes_again_under_another_name() {
    let old = old("file").await;
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join(old.file("")), "{\"id\": 1}\n").unwrap();
    old.round(Some(Directory::open(dir.path()).unwrap())).await;
    assert_eq!(ids(&lines(dir.path(), &old.file(""))), [1]);
    assert_eq!(ids(&lines(dir.path(), &old.file("_2"))), [old.success, old.fatal]);
}

#[tokio::test]
async fn a_kept_task_is_in_a_file_before_it_is_deleted() {
    let old = old("file").await;
    let dir = tempfile::tempdir().unwrap();
    let directory = Directory::open(dir.path()).unwrap();
    old.db.run("select tuskline.alter_lambda('work', p_dead_retention => '30 days')").await;
    old.round(Some(directory.clone())).await;
    assert_eq!(ids(&lines(dir.path(), "task_")), [old.success]);
    old.db.advance(DAY * 30).await;
    old.round(None).await;
    assert_eq!(old.db.status(old.fatal).await, "fatal_failure", "without a directory it stays");
    assert_eq!(old.db.lines("select segments, tasks from tuskline.unarchived()").await, ["0 | 1"]);
    old.round(Some(directory)).await;
    assert_eq!(ids(&lines(dir.path(), "kept_")), [old.fatal]);
    assert_eq!(old.left().await, [old.waits]);
    assert_private(dir.path());
}
