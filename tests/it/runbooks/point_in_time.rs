//! A wrong `delete`; the database returns to the moment before it. Tasks ran and were scheduled since then.

use std::collections::BTreeSet;
use std::path::Path;

use tuskline_fault::server::{Disk, Site, Stop};
use tuskline_sdk::{Context, Lambda};

use super::installation::DATABASE;
use super::{Installation, SHELL, ok_lines};
use crate::support::{Answer, Db, Record, Running, ScriptedWorker, Task, calm};

/// An installation that archives its log.
async fn archived(site: &Site, archive: &Path) -> Installation {
    let sockets = site.root().join("primary/run").display().to_string();
    let command = format!("cp %p {}/%f", archive.display());
    // The server that is restored is started by hand: its files say where it listens.
    let settings = [("unix_socket_directories", sockets.as_str()), ("listen_addresses", "")];
    let mut place = Installation::on(site.clone(), &settings, Disk::Plain).await;
    // The settings are set by `alter system`, whose file the restore must leave as it is.
    for (name, value) in [("archive_mode", "on"), ("archive_command", &command)] {
        place.server.set(name, value).await.unwrap();
    }
    place.server.stop(Stop::Fast).await.unwrap();
    place.server.start().await.unwrap();
    place.db = Db::on(place.server.config(DATABASE), 0).await;
    place.db.define("charge").await;
    let purchase = "create table purchase (no integer); insert into purchase values (1)";
    place.db.run(purchase).await;
    place
}

/// The lost future of the restored database.
struct Lost {
    point: String,
    worker: ScriptedWorker,
    /// A task that is under way.
    held: Task,
    /// The tasks that waited at the point, and the ones among them that have succeeded since.
    waiting: Vec<i64>,
    done: Vec<i64>,
    /// The tasks that were scheduled since.
    unknown: Vec<i64>,
}

/// Ten tasks run, ten wait at the point; then six of these run, one begins, and five are scheduled.
async fn live_on(place: &Installation, record: &Record) -> Lost {
    let (db, serve) = (&place.db, place.serve());
    let sdk_worker = work(db, record);
    db.schedule_many("charge", 10).await;
    db.until_count("success", 10).await;
    sdk_worker.stop().await;
    let waiting = db.schedule_many("charge", 10).await;
    let point: String = db.one("select clock_timestamp()::text").await;
    let worker = db.worker("charge").await;
    let mut tasks = worker.claim(7).await;
    let held = tasks.pop().unwrap();
    assert_eq!(worker.succeed_all(&tasks).await, [0; 0]);
    let unknown = db.schedule_many("charge", 5).await;
    db.run("delete from purchase").await;
    drop(serve);
    Lost { point, worker, held, waiting, done: tasks.iter().map(|task| task.id).collect(), unknown }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_lost_future_is_refused_and_what_ran_in_it_does_not_run_twice() {
    let site = Site::new().unwrap();
    let there = || site.account().command(Path::new(SHELL));
    let disk = site.root().join("backups");
    let archive = disk.join("wal");
    for directory in [&disk, &archive] {
        std::fs::create_dir(directory).unwrap();
        site.account().own(directory).unwrap();
    }
    let mut place = archived(&site, &archive).await;
    let kept = tempfile::tempdir().unwrap();
    let mut book = place.runbook("point-in-time");
    for (name, path) in [
        ("BIN", site.binaries().dir.clone()),
        ("CONFIG", disk.join("restored/postgresql.conf")),
        ("PGDATA", place.server.dir().join("data")),
        ("BACKUP", disk.join("base")),
        ("ARCHIVE", archive),
        ("RESTORED", disk.join("restored")),
        ("KEPT", kept.path().join("lost-future")),
    ] {
        book.set(name, path.display());
    }
    for (name, value) in [("LAMBDA", "charge"), ("LONGEST", "60"), ("PART", "4")] {
        book.set(name, value);
    }
    book.perform_there(&there, "Before it happens").await;

    let record = Record::at(&kept.path().join("record"));
    let mut lost = live_on(&place, &record).await;
    book.set("POINT", &lost.point);

    book.perform("2. Keep what ran after the point").await;
    book.perform_there(&there, "3. Stop the old server").await;
    book.perform_there(&there, "4. Restore beside it").await;
    book.perform("5. Recover before any service connects").await;
    place.db = Db::on(place.server.config(DATABASE), 0).await;
    let db = &place.db;
    assert_eq!(db.one::<i64>("select count(*) from purchase").await, 1, "the mistake is undone");
    book.perform("6. Hold what must not happen twice").await;
    assert_eq!(db.count("cancelled").await, 6);
    let parts: Vec<i64> = db.all("select changed from tuskline.operations order by 1").await;
    assert_eq!(parts, [2, 4], "the ids are given in parts");
    book.perform("7. See that it is sound").await;

    lost.worker.client = db.connect().await;
    assert_eq!(
        lost.worker.succeed(&lost.held).await,
        Answer::Refused,
        "a result of the lost future"
    );
    let (serve, sdk_worker) = (place.serve(), work(db, &record));
    book.set("GATE", place.json("gate list")[0]["gate_id"].to_string().replace('"', ""));
    book.perform("8. Open").await;
    let fresh = db.schedule_many("charge", 5).await;
    let twice: Vec<_> = fresh.iter().filter(|id| lost.unknown.contains(id)).collect();
    assert!(twice.is_empty(), "ids of the lost future: {twice:?}");
    place.until_drained("select count(*) = 19 from tuskline.tasks where status = 'success'").await;
    let said = book.perform("It is over when").await;
    assert_eq!(ok_lines(&said), ["server", "queues", "catalogue", "workers"], "{said}");
    let archives = "select current_setting('archive_mode') = 'on'
                           and last_archived_wal like '00000002%' from pg_stat_archiver";
    place.until_drained(archives).await;
    book.close();

    let ran: BTreeSet<i64> = record.tasks().into_iter().collect();
    assert!(lost.done.iter().all(|id| !ran.contains(id)), "they succeeded in the lost future");
    assert!(lost.waiting.iter().all(|id| ran.contains(id) != lost.done.contains(id)));
    assert_eq!(record.tasks().len(), 19, "each once");
    let list = std::fs::read_to_string(kept.path().join("lost-future/tasks.csv")).unwrap();
    assert!(lost.unknown.iter().all(|id| list.contains(&format!("\n{id},charge,"))), "{list}");
    sdk_worker.stop().await;
    drop(serve);
    db.assert_nothing_left().await;
}

fn work(db: &Db, record: &Record) -> Running {
    let record = record.clone();
    let lambda = Lambda::named("charge", move |(): (), context: Context| {
        drop(record.begin(&context));
        async { Ok::<_, String>(()) }
    });
    Running::start(db, calm(), vec![lambda])
}
