//! A database is a copy of an earlier state: a restored dump, template, base backup or cold copy,
//! or a subscriber of logical replication. The future that the copy does not know has issued
//! fences, executor numbers and task ids. None is issued again, and no stale result is accepted.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use tokio_postgres::{Client, Config, NoTls};
use tuskline_postgres::{Cluster, Stop, drop_database};

use crate::support::cli::url;
use crate::support::{
    Answer, Db, Process, ScriptedWorker, Task, assert_no_overlap, mortal, now_ns, own_cluster_with,
    shared, within,
};

/// The lease of every scripted worker here: short, because a test waits for one.
const SHORT: Duration = Duration::from_millis(300);

/// The identities that the lost future has issued.
struct Lost {
    worker: ScriptedWorker,
    held: Task,
    executors: Vec<i64>,
    ids: Vec<i64>,
}

/// Whether the copy shall give new tasks ids that the lost future has not issued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ids {
    Fresh,
    MayRepeat,
}

/// Three tasks, one of them for later.
async fn with_tasks(cluster: &Cluster) -> Db {
    let db = Db::in_cluster(cluster).await;
    db.run("set synchronous_commit = on").await;
    db.define("work").await;
    db.schedule_many("work", 2).await;
    db.schedule_in("work", Duration::from_secs(3600)).await;
    db
}

/// Claims, schedules and registers after the copy was made.
async fn live_on(db: &Db) -> Lost {
    let worker = db.worker_with(&["work"], SHORT).await;
    worker.client.batch_execute("set synchronous_commit = on").await.unwrap();
    let held = worker.take().await;
    let mut ids = db.schedule_many("work", 5).await;
    ids.push(db.schedule_in("work", Duration::from_secs(60)).await);
    let second = db.worker_with(&["work"], SHORT).await.executor;
    let executors = vec![worker.executor, second];
    Lost { worker, held, executors, ids }
}

/// Acts as a worker or a server that was refused with TK011.
async fn recover(db: &Db) {
    db.run("select tuskline.rebuild_queues()").await;
}

/// Claims as if one lease had passed. Another test covers the time before.
async fn claim_after_the_wait(db: &Db, worker: &ScriptedWorker) -> Vec<Task> {
    db.run(
        "update tuskline_core.incarnation set claims_from = '-infinity';
         update tuskline_core.incarnation set written_by = xmin",
    )
    .await;
    worker.claim(100).await
}

/// The database at this address is a copy now. Returns what the copy's own worker holds.
async fn check_copy(db: &Db, mut lost: Lost, ids: Ids) -> Lost {
    recover(db).await;
    let newcomer = db.worker_with(&["work"], SHORT).await;
    let tasks = claim_after_the_wait(db, &newcomer).await;
    let held =
        tasks.iter().find(|task| task.id == lost.held.id).expect("it is enqueued in the copy");
    lost.worker.client = db.connect().await;
    assert_eq!(lost.worker.succeed(&lost.held).await, Answer::Refused, "a stale result");
    assert!(held.fence > lost.held.fence, "fence {} again: {:?}", held.fence, lost.held);
    assert!(
        lost.executors.iter().all(|former| *former < newcomer.executor),
        "number {} was issued in the lost future: {:?}",
        newcomer.executor,
        lost.executors
    );
    let mut again = db.schedule_many("work", 5).await;
    again.push(db.schedule_in("work", Duration::from_secs(60)).await);
    let twice: Vec<_> = again.iter().filter(|id| lost.ids.contains(id)).collect();
    assert!(ids == Ids::MayRepeat || twice.is_empty(), "issued twice: {twice:?}");
    assert_eq!(newcomer.succeed(held).await, Answer::Accepted);
    lost.executors.push(newcomer.executor);
    Lost { held: held.clone(), ids: [lost.ids, again].concat(), worker: newcomer, ..lost }
}

/// A session on the database beside.
async fn beside(db: &Db) -> Client {
    let mut config: Config = db.config.clone();
    config.dbname("postgres");
    session(&config).await
}

fn name_of(db: &Db) -> String {
    db.config.get_dbname().unwrap().to_owned()
}

/// Runs one of PostgreSQL's own programs.
fn run(cluster: &Cluster, program: &str, arguments: &[&str]) {
    let path = cluster.binaries().program(program);
    let ran = Command::new(path).args(arguments).output().unwrap();
    assert!(ran.status.success(), "{program}: {}", String::from_utf8_lossy(&ran.stderr));
}

fn shell(script: &str) {
    let ran = Command::new("/bin/sh").args(["-ec", script]).output().unwrap();
    assert!(ran.status.success(), "{script}: {}", String::from_utf8_lossy(&ran.stderr));
}

/// Drops the database and puts an empty one, or a copy, in its place.
async fn replace(db: &mut Db, by: &str) {
    let (name, client) = (name_of(db), beside(db).await);
    drop_database(&client, &name).await.unwrap();
    client.batch_execute(&format!("{by} {name}")).await.unwrap();
}

#[tokio::test]
async fn a_dump_that_is_restored_twice_issues_nothing_again() {
    let mut db = with_tasks(shared()).await;
    let dir = tempfile::tempdir().unwrap();
    let dump = dir.path().join("dump").to_str().unwrap().to_owned();
    let url = url(&db.config);
    run(shared(), "pg_dump", &["-Fc", "-f", &dump, &url]);
    let mut lost = live_on(&db).await;
    for ids in [Ids::Fresh, Ids::MayRepeat] {
        replace(&mut db, "create database").await;
        run(shared(), "pg_restore", &["-d", &url, &dump]);
        db.reconnect().await;
        lost = check_copy(&db, lost, ids).await;
    }
}

#[tokio::test]
async fn a_dump_without_its_unlogged_tables_is_complete_after_the_recovery() {
    let mut db = with_tasks(shared()).await;
    let dir = tempfile::tempdir().unwrap();
    let dump = dir.path().join("dump").to_str().unwrap().to_owned();
    let url = url(&db.config);
    run(shared(), "pg_dump", &["-Fc", "--no-unlogged-table-data", "-f", &dump, &url]);
    let lost = live_on(&db).await;
    replace(&mut db, "create database").await;
    run(shared(), "pg_restore", &["-d", &url, &dump]);
    db.reconnect().await;
    assert_eq!(db.queued().await, 0);
    check_copy(&db, lost, Ids::Fresh).await;
}

#[tokio::test]
async fn a_dump_that_is_restored_into_the_same_database_issues_nothing_again() {
    let mut db = with_tasks(shared()).await;
    let dir = tempfile::tempdir().unwrap();
    let dump = dir.path().join("dump").to_str().unwrap().to_owned();
    let url = url(&db.config);
    run(shared(), "pg_dump", &["-Fc", "-f", &dump, &url]);
    let lost = live_on(&db).await;
    db.run("drop schema tuskline, tuskline_core cascade; drop schema tuskline_test cascade").await;
    run(shared(), "pg_restore", &["-d", &url, &dump]);
    db.reconnect().await;
    check_copy(&db, lost, Ids::Fresh).await;
}

/// Copies the database under its name with `_copy`. No session may be connected to it then.
async fn copy_as_template(db: &mut Db) {
    let (name, client) = (name_of(db), beside(db).await);
    let leave = format!(
        "select pg_terminate_backend(pid, 10000) from pg_stat_activity where datname = '{name}'"
    );
    client.batch_execute(&leave).await.unwrap();
    let copy = format!("create database {name}_copy template {name}");
    client.batch_execute(&copy).await.unwrap();
    db.reconnect().await;
}

/// Copies the database as a template, lets it live on, and renames the copy to its name.
async fn swap_by_rename(db: &mut Db) -> Lost {
    let name = name_of(db);
    copy_as_template(db).await;
    let lost = live_on(db).await;
    replace(db, &format!("alter database {name}_copy rename to")).await;
    db.reconnect().await;
    lost
}

#[tokio::test]
async fn a_template_copy_that_is_renamed_into_place_issues_nothing_again() {
    let mut db = with_tasks(shared()).await;
    let lost = swap_by_rename(&mut db).await;
    check_copy(&db, lost, Ids::Fresh).await;
}

#[tokio::test]
async fn a_copy_registers_and_claims_nothing_before_the_recovery() {
    let mut db = with_tasks(shared()).await;
    let known = db.worker_with(&["work"], SHORT).await;
    let lost = swap_by_rename(&mut db).await;
    let ready: bool = db.one("select queues_rebuilt from tuskline.readiness()").await;
    assert!(!ready);
    let register = "select tuskline.register_executor('host', 1, '{work}', '0.1.0', '20 s')";
    let refused = db.refused(register).await;
    assert!(refused.starts_with("TK011"), "{refused}");
    let worker = ScriptedWorker { client: db.connect().await, ..known };
    let refused = worker.claim_by(&worker.client, 1, 0).await.unwrap_err();
    assert_eq!(refused.code().unwrap().code(), "TK011");
    check_copy(&db, lost, Ids::Fresh).await;
}

#[tokio::test]
async fn a_copy_claims_nothing_for_one_lease_and_says_why() {
    let mut db = with_tasks(shared()).await;
    db.pin().await;
    for lease in [7, 40, 9] {
        db.worker_with(&["work"], Duration::from_secs(lease)).await;
    }
    let lost = swap_by_rename(&mut db).await;
    recover(&db).await;
    let ended: Vec<String> = db.all("select end_reason from tuskline.executor").await;
    assert_eq!(ended, ["copied"; 3]);
    let worker = db.worker_with(&["work"], SHORT).await;
    let task = lost.held.id;
    for _ in 0..2 {
        assert_eq!(worker.claim(10).await, []);
        let explained =
            db.lines(&format!("select reason, detail from tuskline.explain({task})")).await;
        assert!(explained[0].starts_with("copied | this database is a copy"), "{explained:?}");
        let look: Vec<bool> = db
            .ask("select tuskline.peek($1, array_fill(0::bigint, array[cardinality($1::integer[])]))", &[&worker.queues])
            .await;
        assert!(!look.contains(&true));
        db.advance(Duration::from_millis(19_900)).await;
    }
    db.advance(Duration::from_millis(200)).await;
    assert_eq!(
        worker.claim(10).await.len(),
        2,
        "the longest lease of those alive in the copy is over"
    );
}

#[tokio::test]
async fn a_worker_that_the_copy_does_not_know_stops_before_another_begins() {
    let mut db = Db::in_cluster(shared()).await;
    db.define("work").await;
    let task = db.schedule_with("work", r#""""#).await;
    let name = name_of(&db);
    // So that one lease is the one of the workers below.
    db.worker_with(&["work"], mortal().lease).await;
    copy_as_template(&mut db).await;
    let former = Process::start(&db, "work", 1);
    former.record().until_begun(1).await;
    former.freeze().await;
    replace(&mut db, &format!("alter database {name}_copy rename to")).await;
    db.reconnect().await;
    let _consumer = db.store_consumer();
    let newcomer = Process::start(&db, "work", 1);
    newcomer.executor(&db).await;
    // It has asked for work, and would have begun.
    db.until("select exists (select from tuskline.executor where beats > 0)").await;
    former.signal(Signal::CONT);
    // By whichever of the two: the former registers anew.
    let both = || [former.record().executions(), newcomer.record().executions()].concat();
    within(async {
        while both().len() < 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    let executions = both();
    assert!(executions.iter().all(|one| one.task == task));
    assert_no_overlap(executions, now_ns());
}

/// A cluster whose data directory can be copied, and that directory.
async fn cluster_to_copy() -> (Cluster, Db, PathBuf) {
    let settings = [("wal_level", "replica"), ("max_wal_senders", "4"), ("fsync", "off")];
    let cluster = own_cluster_with(&settings).await;
    let db = with_tasks(&cluster).await;
    let data: String = db.one("select current_setting('data_directory')").await;
    (cluster, db, data.into())
}

/// Puts a copy of the data directory in its place.
async fn put_back(cluster: &mut Cluster, db: &mut Db, data: &std::path::Path) {
    let data = data.display();
    cluster.stop(Stop::Fast).await.unwrap();
    shell(&format!("rm -rf {data}/*; cp -a {data}.copy/. {data}/; rm -f {data}/postmaster.pid"));
    cluster.start_again().await.unwrap();
    db.reconnect().await;
}

#[tokio::test]
async fn a_cold_copy_that_is_put_back_accepts_no_stale_result() {
    let (mut cluster, mut db, data) = cluster_to_copy().await;
    cluster.stop(Stop::Fast).await.unwrap();
    shell(&format!("cp -a {0} {0}.copy", data.display()));
    cluster.start_again().await.unwrap();
    db.reconnect().await;
    recover(&db).await;
    let mut lost = live_on(&db).await;
    for _ in 0..2 {
        put_back(&mut cluster, &mut db, &data).await;
        lost = check_copy(&db, lost, Ids::MayRepeat).await;
    }
    shell(&format!("rm -rf {}.copy", data.display()));
    // These are the statements of docs/restore.md to run before services connect.
    db.run("truncate tuskline_core.queues_complete; select tuskline.rebuild_queues()").await;
    let next = db.schedule("work").await;
    assert!(next >> 24 > lost.ids.iter().filter(|id| *id >> 50 == 0).max().unwrap() >> 24);
}

#[tokio::test]
async fn a_base_backup_that_is_restored_issues_nothing_again() {
    let (mut cluster, mut db, data) = cluster_to_copy().await;
    let copy = format!("{}.copy", data.display());
    run(
        &cluster,
        "pg_basebackup",
        &["-X", "fetch", "-c", "fast", "-D", &copy, "-d", &url(&db.config)],
    );
    shell(&format!("chown -R --reference={} {copy}", data.display()));
    let lost = live_on(&db).await;
    put_back(&mut cluster, &mut db, &data).await;
    check_copy(&db, lost, Ids::Fresh).await;
    shell(&format!("rm -rf {copy}"));
}

#[tokio::test]
async fn a_subscriber_that_takes_over_issues_nothing_again() {
    // Each table is copied by a worker with a slot of its own. A worker without a slot tries again
    // after 5 s by default.
    let settings = [
        ("wal_level", "logical"),
        ("max_wal_senders", "20"),
        ("max_replication_slots", "20"),
        ("max_worker_processes", "20"),
        ("max_logical_replication_workers", "12"),
        ("max_sync_workers_per_subscription", "8"),
        ("wal_retrieve_retry_interval", "100ms"),
    ];
    let cluster = own_cluster_with(&settings).await;
    let mut db = with_tasks(&cluster).await;
    // Further on than the sequence of the copy, which begins anew.
    db.run(&format!("select setval('tuskline.task_seq', {})", db.id(3 << 24))).await;
    let (name, origin) = (name_of(&db), url(&db.config));
    let dir = tempfile::tempdir().unwrap();
    let schema = dir.path().join("schema").to_str().unwrap().to_owned();
    run(&cluster, "pg_dump", &["-Fc", "--schema-only", "-f", &schema, &origin]);
    db.run("create publication everything for all tables").await;
    db.run("select pg_create_logical_replication_slot('move', 'pgoutput')").await;
    beside(&db).await.batch_execute(&format!("create database {name}_copy")).await.unwrap();
    let mut config = db.config.clone();
    config.dbname(format!("{name}_copy"));
    run(&cluster, "pg_restore", &["-d", &url(&config), &schema]);
    let copy = session(&config).await;
    let subscribe = format!(
        "create subscription move connection '{origin}' publication everything with (create_slot = false)"
    );
    copy.batch_execute(&subscribe).await.unwrap();
    let lost = live_on(&db).await;
    // Every table is in step, and the last commit has been confirmed.
    until(&copy, "select count(*) > 0 and bool_and(srsubstate = 'r') from pg_subscription_rel")
        .await;
    let end: String = db.one("select pg_current_wal_flush_lsn()::text").await;
    db.until(&format!("select confirmed_flush_lsn >= '{end}' from pg_replication_slots")).await;
    let leave = "alter subscription move disable; alter subscription move set (slot_name = none); \
                 drop subscription move; \
                 select setval('tuskline.queue_queue_id_seq', (select max(queue_id) from tuskline.queue))";
    for step in leave.split("; ") {
        copy.batch_execute(step).await.unwrap();
    }
    drop(copy);
    db.until("select not active from pg_replication_slots").await;
    db.run("select pg_drop_replication_slot('move')").await;
    replace(&mut db, &format!("alter database {name}_copy rename to")).await;
    db.reconnect().await;
    recover(&db).await;
    let newcomer = db.worker_with(&["work"], SHORT).await;
    assert!(lost.executors.iter().all(|former| *former < newcomer.executor));
    let again = db.schedule_many("work", 2).await;
    let last = *lost.ids[..5].iter().max().unwrap();
    assert!(again[0] >> 24 > last >> 24, "{again:?} after {last}");
    let tasks = claim_after_the_wait(&db, &newcomer).await;
    let (mut found, mut waiting): (Vec<_>, Vec<_>) =
        (tasks.iter().map(|task| task.id).collect(), lost.ids);
    waiting.retain(|id| id >> 50 == 0);
    waiting.extend(again);
    found.retain(|id| waiting.contains(id));
    assert_eq!(found, waiting, "every task that is enqueued is in its queue");
    assert!(tasks.iter().all(|task| task.fence > lost.held.fence));
}

async fn session(config: &Config) -> Client {
    let (client, connection) = within(config.connect(NoTls)).await.unwrap();
    tokio::spawn(connection);
    client
}

async fn until(client: &Client, question: &str) {
    within(async {
        while !client.query_one(question, &[]).await.unwrap().get::<_, bool>(0) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}
