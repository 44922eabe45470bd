//! An outage of the database costs a worker its registration, not its process. Its bodies stop at
//! T, and it registers again when the database is back. The process ends only if a body does not
//! stop.

use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tuskline_postgres::{Cluster, Stop};
use tuskline_sdk::{Context, Lambda, Outcome};

use crate::support::{
    Db, Gate, HEARTBEAT, Process, Record, Running, assert_no_overlap, cell, mortal, now_ns,
    own_cluster, quick, shared,
};

/// Longer than T of the workers here, the time of their bodies to stop included.
const OUTAGE: Duration = HEARTBEAT.saturating_mul(6);

async fn out(cluster: &mut Cluster) {
    cluster.stop(Stop::Fast).await.unwrap();
    tokio::time::sleep(OUTAGE).await;
}

/// Waits until a process has a new executor number.
async fn registered_anew(db: &Db, former: i64) -> i64 {
    let others = format!(
        "select executor_id from tuskline.executor where ended_at is null and pid =
           (select pid from tuskline.executor where executor_id = {former}) and executor_id > {former}"
    );
    db.until(&format!("select exists ({others})")).await;
    db.one(&others).await
}

#[tokio::test]
async fn bodies_that_can_be_dropped_stop_at_t_and_the_worker_goes_on_after_the_outage() {
    let mut cluster = own_cluster().await;
    let mut db = Db::in_cluster(&cluster).await;
    db.define("work").await;
    let _consumer = db.store_consumer();
    let mut worker = Process::start(&db, "work", 3);
    // The first body listens to the request to stop; the other two do not.
    for payload in [r#""""#, r#""stubborn""#, r#""stubborn""#] {
        db.schedule_with("work", payload).await;
    }
    worker.record().until_begun(3).await;
    let former = worker.executor(&db).await;
    out(&mut cluster).await;
    assert_eq!(worker.record().ended(), 3, "a body outlived T");
    assert!(worker.is_running(), "{}", worker.said());
    let back_ns = now_ns();
    cluster.start_again().await.unwrap();
    db.reconnect().await;
    registered_anew(&db, former).await;
    let reason: String =
        db.ask("select end_reason from tuskline.executor where executor_id = $1", &[&former]).await;
    assert_eq!(reason, "replaced", "its tasks wait for no lease to pass");
    worker.open();
    db.until_count("success", 3).await;
    let executions = worker.record().executions();
    assert_eq!(executions.len(), 6, "each once before and once after the outage");
    assert!(executions[3..].iter().all(|one| one.began_ns > back_ns));
    assert_no_overlap(executions, now_ns());
    // A later exchange deletes the last lease.
    db.until("select not exists (select from tuskline.lease)").await;
    db.assert_nothing_left().await;
}

/// As docs/outages.md shows it.
#[tokio::test]
async fn an_outage_is_three_lines_of_a_workers_log() {
    let mut cluster = own_cluster().await;
    let mut db = Db::in_cluster(&cluster).await;
    db.define("work").await;
    let _consumer = db.store_consumer();
    let mut worker = Process::start_logging(&db, "work", 4, "info");
    for payload in [r#""""#, r#""stubborn""#] {
        db.schedule_with("work", payload).await;
    }
    worker.record().until_begun(2).await;
    let former = worker.executor(&db).await;
    let before = worker.said().lines().count();
    out(&mut cluster).await;
    assert!(worker.is_running(), "{}", worker.said());
    cluster.start_again().await.unwrap();
    db.reconnect().await;
    registered_anew(&db, former).await;
    worker.open();
    db.until_count("success", 2).await;
    let said = worker.said();
    let lines: Vec<_> = said.lines().skip(before).collect();
    let [stopped, waits, registered] = lines[..] else { panic!("three lines: {lines:#?}") };
    for (line, starts) in [
        (stopped, "WARN worker has stopped its bodies and registers again why=\"no heartbeat was"),
        (waits, "WARN the worker cannot register yet; it tries again error=\"unavailable: "),
        (registered, "INFO worker registered again executor="),
    ] {
        let (_, line) = line.split_once(' ').unwrap();
        assert!(line.trim_start().starts_with(starts), "{line}");
    }
}

#[tokio::test]
async fn a_body_that_never_yields_ends_the_process_at_t() {
    let mut cluster = own_cluster().await;
    let db = Db::in_cluster(&cluster).await;
    db.define("work").await;
    let mut worker = Process::start(&db, "work", 2);
    db.schedule_with("work", r#""stuck""#).await;
    worker.record().until_begun(1).await;
    out(&mut cluster).await;
    assert_eq!(worker.ended().await.signal(), Some(9), "{}", worker.said());
    cluster.start_again().await.unwrap();
}

/// The body itself is dropped. The blocking thread that it waited for runs on.
#[tokio::test]
async fn what_a_dropped_body_left_on_a_blocking_thread_ends_the_process_at_t() {
    let mut cluster = own_cluster().await;
    let db = Db::in_cluster(&cluster).await;
    db.define("work").await;
    let mut worker = Process::start(&db, "work", 2);
    db.schedule_with("work", r#""beside""#).await;
    worker.record().until_begun(1).await;
    out(&mut cluster).await;
    assert_eq!(worker.ended().await.signal(), Some(9), "{}", worker.said());
    cluster.start_again().await.unwrap();
}

#[tokio::test]
async fn a_blocking_body_that_obeys_in_time_costs_no_process() {
    let mut cluster = own_cluster().await;
    let mut db = Db::in_cluster(&cluster).await;
    db.define("work").await;
    let _consumer = db.store_consumer();
    let dir = tempfile::tempdir().unwrap();
    let record = Record::at(&dir.path().join("record"));
    let theirs = record.clone();
    let lambda = Lambda::blocking_named("work", move |_: Value, context: Context| {
        let _begun = theirs.begin(&context);
        while !context.is_cancelled() {
            std::thread::sleep(Duration::from_millis(2));
        }
        Outcome::Success(None)
    });
    let worker = Running::start(&db, mortal(), vec![lambda.slots(2)]);
    db.schedule_many("work", 2).await;
    record.until_begun(2).await;
    let former: i64 = db.one("select max(executor_id) from tuskline.executor").await;
    out(&mut cluster).await;
    assert_eq!(record.ended(), 2);
    cluster.start_again().await.unwrap();
    db.reconnect().await;
    registered_anew(&db, former).await;
    let again = record.until_begun(4).await;
    assert_no_overlap(again, now_ns());
    assert_eq!(worker.lost(), Vec::<String>::new());
}

#[tokio::test]
async fn a_worker_that_waits_for_the_database_ends_at_once_when_it_is_told_to() {
    let mut cluster = own_cluster().await;
    let db = Db::in_cluster(&cluster).await;
    db.define("work").await;
    let mut worker = Process::start(&db, "work", 1);
    worker.executor(&db).await;
    // A registered worker is not at work yet: the loss of the server during its start would end it.
    db.until("select beats > 0 from tuskline.executor").await;
    out(&mut cluster).await;
    assert!(worker.is_running(), "{}", worker.said());
    let stop_ns = now_ns();
    worker.signal(Signal::TERM);
    assert_eq!(worker.ended().await.code(), Some(0), "{}", worker.said());
    assert!(now_ns() - stop_ns < 2_000_000_000, "it waited for the database");
    cluster.start_again().await.unwrap();
}

#[tokio::test]
async fn a_registration_that_is_answered_after_t_is_not_taken() {
    let db = Db::with_lambda("work").await;
    let mut holder = db.connect().await;
    let hold = holder.transaction().await.unwrap();
    hold.batch_execute("lock table tuskline.executor in share mode").await.unwrap();
    let gate = Gate::open();
    let running = Running::start(&db, mortal(), vec![gate.lambda("work")]);
    db.until(
        "select exists (select from pg_locks where not granted
                         and relation = 'tuskline.executor'::regclass)",
    )
    .await;
    tokio::time::sleep(mortal().self_termination).await;
    hold.commit().await.unwrap();
    let id = db.schedule_with("work", r#""go""#).await;
    db.until_status(id, "success").await;
    let first: Option<String> =
        db.one("select end_reason from tuskline.executor order by executor_id limit 1").await;
    assert_eq!(first, None, "it began to work, and stopped at once");
    running.stop().await;
}

/// The former primary of a failover may still run, and end a worker that it has not heard of for a lease. Here a view
/// hides the executor from the sessions that claim so far.
#[tokio::test]
async fn a_worker_goes_on_where_only_its_old_connections_count_it_as_dead() {
    let db = Db::with_lambda("work").await;
    let lambda = Lambda::named("work", async |_: Value, _: Context| Outcome::Success(None));
    let worker = Running::start(&db, mortal(), vec![lambda]);
    let first = db.schedule("work").await;
    db.until_status(first, "success").await;
    db.run(
        "create table public.former_sessions as
           select pid from pg_stat_activity where datname = current_database() and query ~ 'exchange';
         alter table tuskline_core.live_executor rename to live_executor_here;
         create view tuskline_core.live_executor as
           select * from tuskline_core.live_executor_here
            where pg_backend_pid() not in (select pid from public.former_sessions);
         grant select on public.former_sessions to public",
    )
    .await;
    let sessions: i64 = db.one("select count(*) from public.former_sessions").await;
    assert!(sessions > 0);
    let second = db.schedule("work").await;
    db.until_status(second, "success").await;
    let live = "select count(*) from pg_stat_activity join public.former_sessions using (pid)";
    assert!(db.one::<i64>(live).await < sessions, "it has closed the one that it asked");
    assert_eq!(db.one::<i64>("select count(*) from tuskline.executor").await, 1);
    // A new connection is believed.
    db.run(
        "drop view tuskline_core.live_executor;
            create view tuskline_core.live_executor as
              select * from tuskline_core.live_executor_here where executor_id <> (
                select min(executor_id) from tuskline.executor)",
    )
    .await;
    let third = db.schedule("work").await;
    db.until_status(third, "success").await;
    assert_eq!(db.one::<i64>("select count(*) from tuskline.executor").await, 2);
    worker.stop().await;
}

#[tokio::test]
async fn a_frozen_worker_without_a_body_registers_again_when_it_wakes() {
    let db = Db::with_lambda("work").await;
    let _consumer = db.store_consumer();
    let mut frozen = Process::start(&db, "work", 1);
    let former = frozen.executor(&db).await;
    frozen.freeze().await;
    db.until("select exists (select from tuskline.executor where end_reason = 'expired')").await;
    frozen.signal(Signal::CONT);
    registered_anew(&db, former).await;
    let id = db.schedule_with("work", r#""go""#).await;
    db.until_status(id, "success").await;
    assert!(frozen.is_running(), "{}", frozen.said());
}

/// The worker's idle threads may wait for a processor for longer than bodies have.
#[tokio::test]
async fn an_idle_worker_that_the_database_counts_as_dead_keeps_its_process() {
    let db = Db::with_lambda("work").await;
    let mut worker = Process::start(&db, "work", 64);
    let id = db.schedule_with("work", r#""go""#).await;
    db.until_status(id, "success").await;
    let mut number = worker.executor(&db).await;
    for round in 0..10 {
        db.run(&format!("select tuskline.end_executor({number})")).await;
        number = registered_anew(&db, number).await;
        assert!(worker.is_running(), "round {round}: {}", worker.said());
    }
    let id = db.schedule_with("work", r#""go""#).await;
    db.until_status(id, "success").await;
}

/// Ends every session of a database, and refuses new ones.
async fn shut(admin: &tokio_postgres::Client, name: &str) {
    admin.batch_execute(&format!("alter database {name} allow_connections false")).await.unwrap();
    let cut =
        "select count(pg_terminate_backend(pid, 5000)) from pg_stat_activity where datname = $1";
    admin.query_one(cut, &[&name]).await.unwrap();
}

/// Records the executors that claim.
const CLAIMS: &str = "create table public.claimed (executor_id bigint);
    create function public.note() returns trigger language plpgsql as $$
    begin insert into public.claimed values (new.executor_id); return null; end $$;
    create trigger z_note after insert on tuskline.lease for each row execute function public.note()";

#[tokio::test]
async fn a_database_replaced_by_an_earlier_copy_is_noticed_before_anything_is_claimed_from_it() {
    let mut db = Db::with_lambda("work").await;
    let name = db.config.get_dbname().unwrap().to_owned();
    let (_consumer, gate) = (db.store_consumer(), Gate::new());
    // The copy allows no claims for a lease of this worker.
    let worker = Running::start(&db, mortal(), vec![gate.lambda("work").slots(2)]);
    let ids = db.schedule_many("work", 4).await;
    drop(gate.next_many(2).await);
    let former: i64 = db.one("select max(executor_id) from tuskline.executor").await;
    let admin = Db {
        config: shared().config("postgres"),
        client: db.connect().await,
        place: None,
        cell: cell(),
    };
    let (admin, copy) = (admin.connect().await, format!("{name}_copy"));
    shut(&admin, &name).await;
    admin.batch_execute(&format!("create database {copy} template {name}")).await.unwrap();
    admin.batch_execute(&format!("alter database {name} allow_connections true")).await.unwrap();
    db.reconnect().await;
    let beats: i64 = db.one("select max(beats) from tuskline.executor").await;
    db.until(&format!("select max(beats) > {beats} + 3 from tuskline.executor")).await;
    let mut copied = Db {
        config: shared().config(&copy),
        client: db.connect().await,
        place: None,
        cell: cell(),
    };
    copied.reconnect().await;
    copied.run(CLAIMS).await;
    drop(copied);
    shut(&admin, &name).await;
    shut(&admin, &copy).await;
    for change in [
        format!("alter database {name} rename to {name}_old"),
        format!("alter database {copy} rename to {name}"),
        format!("alter database {name} allow_connections true"),
    ] {
        admin.batch_execute(&change).await.unwrap();
    }
    db.reconnect().await;
    registered_anew(&db, former).await;
    drop(gate.next_many(2).await);
    gate.open_for_good();
    db.until_count("success", ids.len()).await;
    let strangers: i64 =
        db.ask("select count(*) from public.claimed where executor_id = $1", &[&former]).await;
    assert_eq!(strangers, 0, "claims under a number of the past");
    assert_no_overlap(gate.record().executions(), now_ns());
    assert_eq!(worker.lost(), Vec::<String>::new());
    worker.stop().await;
    db.until("select not exists (select from tuskline.lease)").await;
    db.assert_nothing_left().await;
}

/// The bytes that clients sent, by connection.
type Heard = Arc<Mutex<Vec<Vec<u8>>>>;

/// Relays connections from the port to the socket, and records the clients' bytes.
async fn relay(listener: TcpListener, socket: PathBuf, heard: Heard) {
    while let Ok((client, _)) = listener.accept().await {
        let server = UnixStream::connect(&socket).await.unwrap();
        let number = heard.lock().unwrap().len();
        heard.lock().unwrap().push(Vec::new());
        tokio::spawn(pass_on(client, server, number, Arc::clone(&heard)));
    }
}

async fn pass_on(client: TcpStream, server: UnixStream, number: usize, heard: Heard) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let saying = async {
        let mut said = [0; 4096];
        while let Ok(length @ 1..) = from_client.read(&mut said).await {
            heard.lock().unwrap()[number].extend(&said[..length]);
            to_server.write_all(&said[..length]).await.unwrap();
        }
    };
    tokio::select! {
        () = saying => {}
        _ = tokio::io::copy(&mut from_server, &mut to_client) => {}
    }
}

fn place(said: &[u8], what: &str) -> Option<usize> {
    said.windows(what.len()).position(|window| window == what.as_bytes())
}

#[tokio::test]
async fn a_connection_that_was_opened_again_begins_with_a_heartbeat() {
    let db = Db::with_lambda("work").await;
    let (listener, config, socket) = db.port().await;
    let heard = Heard::default();
    let relay = tokio::spawn(relay(listener, socket, Arc::clone(&heard)));
    let through = Db { config, client: db.connect().await, place: None, cell: cell() };
    let gate = Gate::open();
    let worker = Running::start(&through, quick(), vec![gate.lambda("work")]);
    let id = db.schedule("work").await;
    db.until_status(id, "success").await;
    let before = heard.lock().unwrap().len();
    db.cut_workers().await;
    let id = db.schedule("work").await;
    db.until_status(id, "success").await;
    worker.stop().await;
    relay.abort();
    let heard = heard.lock().unwrap();
    let exchanges: Vec<_> =
        heard[before..].iter().filter(|said| place(said, ".exchange(").is_some()).collect();
    assert!(!exchanges.is_empty(), "no exchange connection came back");
    for said in exchanges {
        let beat = place(said, ".heartbeat(").expect("a heartbeat");
        assert!(
            place(said, ".exchange(").is_some_and(|exchange| beat < exchange),
            "claimed unproved"
        );
    }
}
