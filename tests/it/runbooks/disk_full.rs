//! A disk of the server is full: that of the tables, or that of the log.

use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tuskline_fault::server::{Disk, Server, Site, Volume};
use tuskline_sdk::{Client, Context, ErrorKind, Lambda, NewTask, TaskId, Worker};

use super::installation::{DATABASE, DRAIN_LIMIT};
use super::{Installation, Runbook, SHELL};
use crate::support::{Db, Running, calm};

/// Bytes of the disk of the tables: an empty cluster and the installation take half of it.
const DATA_BYTES: u64 = 160 << 20;

/// Bytes of the disk of the log, which has segments of 1 MB.
const WAL_BYTES: u64 = 64 << 20;

/// Tasks that have ended long before, with a payload of a page each.
const ENDED: usize = 2_000;

/// Tasks of one call.
const STEP: usize = 100;

/// Most tasks of the call that fills a disk: as many bytes as `max_wal_size`.
const LARGEST_STEP: usize = 1_000;

/// Which disk is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Full {
    Tables,
    Log,
}

impl Full {
    /// The archive of the lambda.
    fn archive(self) -> &'static str {
        match self {
            Self::Tables => "table",
            Self::Log => "none",
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_purge_makes_room_on_a_full_disk_of_tables_and_no_task_is_lost() {
    drill(Full::Tables).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_of_the_log_loses_no_task_and_the_server_goes_on() {
    drill(Full::Log).await;
}

async fn drill(full: Full) {
    let site = Site::new().unwrap();
    let bytes = if full == Full::Tables { DATA_BYTES } else { WAL_BYTES };
    let volume = match Volume::try_mount(&site, bytes).await.unwrap() {
        Ok(volume) => volume,
        Err(skipped) => {
            // Past the harness, which keeps what a test prints to itself.
            let why = format!("skipped: runbooks::disk_full: {skipped}\n");
            return std::io::stderr().write_all(why.as_bytes()).unwrap();
        }
    };
    let point = volume.mount_point().to_path_buf();
    let disk = if full == Full::Tables { Disk::Data(volume) } else { Disk::Wal(volume) };
    let mut place = Installation::on(site.clone(), &[("autovacuum", "off")], disk).await;
    place.db.define_with("work", &format!("p_archive => '{}'", full.archive())).await;

    let elsewhere = tempfile::tempdir().unwrap();
    let files = elsewhere.path().join("archive");
    let mut book = place.runbook("disk-full");
    for (name, value) in [
        ("DISK", point.display().to_string()),
        ("BALLAST", point.join("ballast").display().to_string()),
        ("BALLAST_SIZE", "24M".to_owned()), // three times max_wal_size
        ("LAMBDA", "work".to_owned()),
        ("AGE", "1d".to_owned()),
        ("ARCHIVE", full.archive().to_owned()),
        ("ELSEWHERE", files.display().to_string()),
    ] {
        book.set(name, value);
    }
    book.perform_there(&|| there(&place.server, &site), "Before it happens").await;
    let (serve, worker) = (place.serve(), work(&place.db));
    let client = Client::connect(place.db.config.clone()).await.unwrap();
    let noise: String = std::iter::repeat_with(fastrand::alphanumeric).take(8_000).collect();
    let task = NewTask::new("work", &noise);
    for _ in 0..ENDED / STEP {
        client.schedule_many(&vec![task.clone(); STEP]).await.unwrap();
    }
    place.until_drained(OPEN).await;
    place.db.run(LONG_AGO).await;

    let volume = place.server.volume().unwrap();
    volume.fill().unwrap();
    let (mut accepted, refused) = until_refused(&client, &task).await;
    let said = book.perform_there(&|| there(&place.server, &site), "Confirm").await;
    // A server that has crashed may have given a little back.
    let percent = |word: &str| word.strip_suffix('%')?.parse::<u32>().ok();
    assert!(said.split_whitespace().filter_map(percent).any(|used| used >= 90), "{said}");
    book.perform_there(&|| there(&place.server, &site), "1. Get some space at once").await;
    until_steady(&mut place.server, full).await;
    place.db = Db::on(place.server.config(DATABASE), 0).await;
    purge(&place, &mut book, full, &files).await;
    // The rest of the disk is still full: what they need is what the purge has freed.
    for _ in 0..5 {
        accepted.extend(client.schedule_many(&vec![task.clone(); STEP]).await.unwrap());
    }
    place.until_drained(OPEN).await;
    finish(&place, book, full.archive()).await;

    let done: Vec<i64> =
        place.db.all("select id from tuskline.tasks where status = 'success'").await;
    println!("{} accepted, {} done", accepted.len(), done.len());
    assert!(accepted.iter().all(|id| done.contains(&id.0)), "accepted and lost");
    // The server may have carried out a call and lost the answer.
    assert!(done.len() <= accepted.len() + refused, "{} done", done.len());
    place.server.volume().unwrap().free().unwrap();
    worker.stop().await;
    drop(serve);
    place.db.assert_nothing_left().await;
}

/// Steps 3 to 6. `files` is the directory for the archive.
async fn purge(place: &Installation, book: &mut Runbook, full: Full, files: &Path) {
    let said = book.perform("3. See what takes the space").await;
    assert!(said.contains("success") && said.contains(&ENDED.to_string()), "{said}");
    assert!(said.contains(&format!("| {}", full.archive())), "{said}");
    match full {
        Full::Tables => {
            book.perform("4. Keep the archive off this disk").await;
            book.set("TUSKLINE_ARCHIVE_DIR", files.display());
        }
        Full::Log => book.skip("4. Keep the archive off this disk"),
    }
    let said = book.perform("5. Delete what has ended").await;
    assert!(said.contains(&format!("changed {ENDED} of")), "{said}");
    let kept = if full == Full::Tables { ENDED } else { 0 };
    assert_eq!(lines_in(files), kept, "each task of an archive is in a file");
    let copies: i64 = place.db.one("select count(*) from tuskline.task_archive").await;
    assert_eq!(copies, 0, "no copy is on the full disk");
    book.perform("6. Let less stay").await;
}

/// The end of the page.
async fn finish(place: &Installation, mut book: Runbook, archive: &str) {
    let said =
        book.perform_there(&|| there(&place.server, &place.site), "The disk has space").await;
    let free = said.lines().nth(1).and_then(|line| line.split_whitespace().nth(3));
    book.set("TUSKLINE_DISK_FREE", format!("{}B", free.unwrap()));
    place.until_drained(COUNTED).await;
    place.db.run(AN_HOUR_AGO).await;
    let said = book.perform("Tasks succeed").await;
    let disk: Vec<_> = said.lines().filter(|line| line.contains("  disk  ")).collect();
    assert!(disk.len() == 1 && disk[0].contains(" free"), "{said}");
    book.perform("Afterwards").await;
    let now: String = place.db.one("select archive from tuskline.lambdas").await;
    assert_eq!(now, archive);
    book.close();
}

/// Waits until the server answers and has recovered from each panic in its log. Starts it if it has ended.
async fn until_steady(server: &mut Server, full: Full) {
    let waiting = async {
        loop {
            if !server.running() {
                assert_eq!(full, Full::Log, "a server without room for tables stays up");
                server.start().await.unwrap();
            }
            let log = std::fs::read(server.log()).unwrap();
            let log = String::from_utf8_lossy(&log);
            // A process that panics lives on for a moment, and the server answers meanwhile.
            let recovered = log.rfind("PANIC:") < log.rfind("ready to accept connections");
            if recovered && server.wait_until_answering(Duration::from_secs(1)).await.is_ok() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(DRAIN_LIMIT, waiting).await.expect("the server is up again");
}

/// A shell on the server's machine, which alone sees the disk.
fn there(server: &Server, site: &Site) -> Command {
    server.volume().unwrap().command(site, Path::new(SHELL)).unwrap()
}

const OPEN: &str = "select not exists (select from tuskline.tasks where status <> 'success')";

/// Makes the tasks older than the retention that the page names.
const LONG_AGO: &str = "update tuskline.task set created_at = created_at - interval '3 days',
    scheduled_at = scheduled_at - interval '3 days', started_at = started_at - interval '3 days',
    finished_at = finished_at - interval '3 days'";

/// Lines of the files in a directory, if there is one.
fn lines_in(directory: &Path) -> usize {
    let files = std::fs::read_dir(directory).into_iter().flatten();
    files.map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap().lines().count()).sum()
}

/// Makes the segments old enough for a rate.
const AN_HOUR_AGO: &str = "update tuskline.segment set opened_at = opened_at - interval '1 hour'";

/// The statistics have heard of the tasks, so the doctor knows their size.
const COUNTED: &str = "select sum(pg_stat_get_live_tuples(oid)) > 0 from pg_class
    where relname ~ '^task_[0-9]+$'";

fn work(db: &Db) -> Running {
    let lambda = Lambda::named("work", async |_: String, _: Context| Ok::<_, String>(()));
    Running::of(Worker::builder(&db.config).config(calm()).serve(lambda))
}

/// Schedules until the database refuses it; the ids that it has accepted, and the tasks of the refused call.
async fn until_refused(client: &Client, task: &NewTask) -> (Vec<TaskId>, usize) {
    let mut accepted = Vec::new();
    // In steps that grow: the server recycles its log while little is written at once.
    let mut step = STEP;
    let error = loop {
        match client.schedule_many(&vec![task.clone(); step]).await {
            Ok(ids) => accepted.extend(ids),
            Err(error) => break error,
        }
        step = (step * 3 / 2).min(LARGEST_STEP);
        assert!(accepted.len() < 20_000, "the disk is full");
    };
    println!("refused after {}: {error}", accepted.len());
    assert!(error.is_retryable() || error.kind() == ErrorKind::Unknown, "{error:?}");
    (accepted, step)
}
