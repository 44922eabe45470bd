//! The primary is killed, and its standby is promoted: a synchronous one under load, and an asynchronous one
//! that lacks the last commits.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio_postgres::Config;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tuskline_fault::server::{Server, Stop};
use tuskline_sdk::{Client, Context, Lambda, NewTask, TaskId, Worker};

use super::installation::{DATABASE, DRAIN_LIMIT, serve_at};
use super::{Installation, ok_lines, row_counts};
use crate::support::cli::{on, url};
use crate::support::{Db, Record, Running, assert_no_overlap, mortal, now_ns, within};

/// Acknowledged tasks before the primary is lost, and after the recovery.
const LOAD: usize = 300;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_go_on_with_the_standby_and_nothing_acknowledged_is_lost() {
    let mut place = Installation::new(&[("max_prepared_transactions", "4")]).await;
    place.db.define("work").await;
    let standby = place.server.standby(&place.site, "standby").await.unwrap();
    // As after an earlier failover: a standby that would wait for another one.
    standby.set("synchronous_standby_names", "gone").await.unwrap();
    let (both, address) = both(&place.server, &standby);

    let serve = serve_at(&address);
    let dir = tempfile::tempdir().unwrap();
    let record = Record::at(&dir.path().join("record"));
    let sdk_worker = Running::of(Worker::builder(&both).config(mortal()).serve(body(&record)));
    let prepare = "begin; select tuskline.schedule('work'); prepare transaction 'order 7'";
    place.db.run(prepare).await;
    let load = Load::start(&both);
    load.until(LOAD).await;
    place.server.kill_postmaster().await;

    let mut book = place.runbook("primary-lost");
    let standby_config = standby.config(DATABASE);
    book.set("TUSKLINE_DATABASE_URL", &address);
    book.set("PRIMARY", place.url());
    book.set("STANDBY", url(&standby_config));
    let said = book.shows("The primary does not answer").await;
    assert!(said.contains("no response"), "{said}");
    book.perform("The standby does").await;
    let db = Db::on(standby_config.clone(), 0).await;
    book.set("LAST_COMMIT", last_commit(&db).await);
    let refused = db.refused("select tuskline.rebuild_queues()").await;
    assert!(refused.starts_with("25006: cannot rebuild the queues of a standby"), "{refused}");
    book.perform("2. Promote the standby").await;
    let said = book.perform("3. See that Tuskline has recovered").await;
    assert!(said.contains("| t"), "{said}");
    let alive = "select count(*) = 1 from tuskline.executors where state = 'alive'";
    place.db = db;
    place.until_drained(alive).await;
    let before = load.count();
    load.until(before + LOAD).await;
    let said = book.perform("It is over when").await;
    assert_eq!(ok_lines(&said), OVER, "{said}");
    assert!(said.contains("alive"), "{said}");
    let said = book.perform("Prepared transactions").await;
    assert!(said.contains("order 7"), "{said}");
    place.db.run("commit prepared 'order 7'").await;
    let acknowledged = load.stop().await;
    let open = "select not exists (select from tuskline.tasks where status <> 'success')";
    place.until_drained(open).await;
    let said = book.perform("Late tasks and interrupted attempts").await;
    let rows = row_counts(&said);
    assert!(rows.len() == 2 && rows[0] == 0, "no task is late: {said}");
    let cut: i64 =
        place.db.one("select count(*) from tuskline.attempts where outcome = 'crashed'").await;
    assert_eq!(rows[1], cut, "each attempt that was cut short: {said}");
    let said = book.perform("The lost commits").await;
    assert_eq!(row_counts(&said), [1], "{said}");
    book.perform("The guarantees hold").await;
    book.close();

    let done: Vec<i64> =
        place.db.all("select id from tuskline.tasks where status = 'success'").await;
    let lost: Vec<_> = acknowledged.iter().filter(|id| !done.contains(&id.0)).collect();
    println!("{} acknowledged, {} done", acknowledged.len(), done.len());
    assert!(lost.is_empty(), "acknowledged and lost: {lost:?}");
    assert!(done.len() > acknowledged.len(), "the task of the prepared transaction, too");
    assert_no_overlap(record.executions(), now_ns());
    sdk_worker.stop().await;
    drop(serve);
    place.db.assert_nothing_left().await;
}

/// The lines that the doctor finds in order at the end.
const OVER: [&str; 5] = ["server", "schema", "queues", "catalogue", "workers"];

/// Tasks that the standby knows, and tasks that only the primary had.
const KNOWN: i32 = 20;
const LOST: i32 = 15;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_asynchronous_standby_lacks_the_last_tasks_and_gives_out_none_of_their_ids() {
    let mut place = Installation::new(&[]).await;
    place.db.define("work").await;
    let mut standby = place.server.standby(&place.site, "standby").await.unwrap();
    place.server.set("synchronous_standby_names", "").await.unwrap();
    let (both, address) = both(&place.server, &standby);
    // The standby knows a worker of 5 s; claims wait 20 s, because the lost one may have more.
    let _idle = place.db.worker_with(&["work"], Duration::from_secs(5)).await;
    let known = place.db.schedule_many("work", KNOWN).await;
    follow(&place.db, &standby).await;
    standby.stop(Stop::Fast).await.unwrap();

    let dir = tempfile::tempdir().unwrap();
    let record = Record::at(&dir.path().join("record"));
    let sdk_worker = Running::of(Worker::builder(&both).config(mortal()).serve(body(&record)));
    let lost = place.db.schedule_many("work", LOST).await;
    place.db.until_count("success", (KNOWN + LOST) as usize).await;
    place.server.kill_postmaster().await;
    standby.start().await.unwrap();

    let mut book = place.runbook("primary-lost");
    book.set("TUSKLINE_DATABASE_URL", &address);
    book.set("PRIMARY", place.url());
    book.set("STANDBY", url(&standby.config(DATABASE)));
    book.shows("The primary does not answer").await;
    book.perform("The standby does").await;
    place.db = Db::on(standby.config(DATABASE), 0).await;
    book.set("LAST_COMMIT", last_commit(&place.db).await);
    book.perform("2. Promote the standby").await;
    book.perform("3. See that Tuskline has recovered").await;
    let serve = serve_at(&address);
    let again = format!("select count(*) = {KNOWN} from tuskline.tasks where status = 'success'");
    place.until_drained(&again).await;
    let fresh = place.db.schedule_many("work", LOST).await;
    let said = book.perform("It is over when").await;
    assert_eq!(ok_lines(&said), OVER, "{said}");
    book.perform("Prepared transactions").await;
    book.perform("Late tasks and interrupted attempts").await;
    let said = book.perform("The lost commits").await;
    assert!(said.contains(&format!(" {} | ", known.last().unwrap())), "{said}");
    place.db.until_count("success", (KNOWN + LOST) as usize).await;
    book.perform("The guarantees hold").await;
    book.close();

    let mut there = place.db.all::<i64>("select id from tuskline.tasks order by id").await;
    assert!(there.iter().all(|id| !lost.contains(id)), "lost, or given out again: {there:?}");
    there.retain(|id| !fresh.contains(id));
    assert_eq!(there, known, "what the standby knew is there");
    let mut runs = record.tasks();
    runs.retain(|id| known.contains(id));
    assert_eq!(runs.len(), 2 * known.len(), "their ends were lost, so they run again");
    assert_no_overlap(record.executions(), now_ns());
    sdk_worker.stop().await;
    drop(serve);
    place.db.assert_nothing_left().await;
}

/// Services schedule on while no worker and no server has recovered the new primary.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_asynchronous_standby_issues_no_lost_id_before_the_recovery() {
    let mut place = Installation::new(&[]).await;
    place.db.define("work").await;
    let mut standby = place.server.standby(&place.site, "standby").await.unwrap();
    place.server.set("synchronous_standby_names", "").await.unwrap();
    let known = place.db.schedule_many("work", KNOWN).await;
    follow(&place.db, &standby).await;
    standby.stop(Stop::Fast).await.unwrap();
    // More than the 32 numbers by which the log of a sequence is ahead.
    let mut lost = place.db.schedule_many("work", 100).await;
    for _ in 0..50 {
        lost.push(place.db.schedule_in("work", Duration::from_secs(60)).await);
    }
    place.server.kill_postmaster().await;
    standby.start().await.unwrap();
    place.db = Db::on(standby.config(DATABASE), 0).await;
    place.db.run("select pg_promote()").await;

    // Its id is drawn before the trigger notices: the only call that is refused.
    let insert = "insert into tuskline.task (lambda) select 'work' from generate_series(1, 50)";
    let refused = place.db.refused(insert).await;
    assert!(refused.starts_with("40001: 40001 ids_raised"), "{refused}");
    place.db.run(insert).await;
    place.db.schedule_many("work", 50).await;
    for _ in 0..50 {
        place.db.schedule("work").await;
        place.db.schedule_in("work", Duration::from_secs(60)).await;
    }
    place.db.run("select tuskline.rebuild_queues()").await;
    let printed = on(&place.db.config, "doctor").run().out;
    assert!(ok_lines(&printed).contains(&"catalogue"), "{printed}");
    let fresh = place.db.schedule_many("work", 50).await;
    let there = place.db.all::<i64>("select id from tuskline.tasks order by id").await;
    let again: Vec<_> = there.iter().filter(|id| lost.contains(id)).collect();
    assert!(
        again.is_empty(),
        "{} of {} lost ids were issued again: {again:?}",
        again.len(),
        lost.len()
    );
    assert_eq!(there.len(), known.len() + 200 + fresh.len());
    assert_eq!(place.db.one::<i64>("select count(*) from tuskline.damage()").await, 0);
}

/// Waits until a standby has replayed all that this primary has written.
async fn follow(primary: &Db, standby: &Server) {
    let written: String = primary.one("select pg_current_wal_lsn()::text").await;
    let standby = Db::on(standby.config(DATABASE), 0).await;
    standby.until(&format!("select pg_last_wal_replay_lsn() >= '{written}'")).await;
}

/// The column of the page's first look at the standby.
async fn last_commit(standby: &Db) -> String {
    standby.one("select pg_last_xact_replay_timestamp()::text").await
}

/// The address of both servers, for a client and for a command.
fn both(primary: &Server, standby: &Server) -> (Config, String) {
    let mut config = primary.config(DATABASE);
    config.host_path(standby.socket_dir());
    config.target_session_attrs(tokio_postgres::config::TargetSessionAttrs::ReadWrite);
    let escaped = |server: &Server| server.socket_dir().display().to_string().replace('/', "%2F");
    let (user, hosts) = (primary.config(DATABASE), [escaped(primary), escaped(standby)]);
    let user = user.get_user().unwrap_or_default();
    let hosts = hosts.join(",");
    (config, format!("postgresql://{user}@{hosts}/{DATABASE}?target_session_attrs=read-write"))
}

fn body(record: &Record) -> Lambda {
    let record = record.clone();
    Lambda::named("work", move |(): (), context: Context| {
        let begun = record.begin(&context);
        async move {
            // Some are under way when the primary is lost.
            tokio::time::sleep(Duration::from_millis(5)).await;
            drop(begun);
            Ok::<_, String>(())
        }
    })
}

/// A service that schedules one task after the other, and keeps the ids that were acknowledged.
struct Load {
    stop: CancellationToken,
    ids: Arc<Mutex<Vec<TaskId>>>,
    work: AbortOnDropHandle<()>,
}

impl Load {
    fn start(config: &Config) -> Self {
        let (stop, ids) = (CancellationToken::new(), Arc::new(Mutex::new(Vec::new())));
        let (stopping, kept, config) = (stop.clone(), Arc::clone(&ids), config.clone());
        let work = tokio::spawn(async move {
            let client = Client::connect(config).await.unwrap();
            while !stopping.is_cancelled() {
                match client.schedule(&NewTask::new("work", &())).await {
                    Ok(id) => kept.lock().unwrap().push(id),
                    Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
                }
            }
        });
        Self { stop, ids, work: AbortOnDropHandle::new(work) }
    }

    fn count(&self) -> usize {
        self.ids.lock().unwrap().len()
    }

    async fn until(&self, count: usize) {
        let counting = async {
            while self.count() < count {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let within = tokio::time::timeout(DRAIN_LIMIT, counting).await;
        within.unwrap_or_else(|_| panic!("{} of {count} are acknowledged", self.count()));
    }

    async fn stop(self) -> Vec<TaskId> {
        self.stop.cancel();
        within(self.work).await.unwrap();
        std::mem::take(&mut self.ids.lock().unwrap())
    }
}
