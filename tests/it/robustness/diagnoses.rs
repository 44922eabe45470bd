//! `tuskline doctor` names each fault, and the command that it prints repairs it.

use std::time::Duration;

use serde_json::Value;
use tokio_postgres::Client;
use tuskline_postgres::Cluster;

use super::failures::standby_of;
use crate::support::cli::{blind, on, open_dir, tuskline, url};
use crate::support::{Answer, Db, LEASE, own_cluster_with};

const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(86_400);

/// Rows of timers that are dead, and known to be.
const DEAD_ROWS: &str = "
    insert into tuskline.timer select now(), n from generate_series(1, 30000) n;
    delete from tuskline.timer;
    select pg_stat_force_next_flush()";

/// A line of a call: verdict, what was found, and the command.
fn line(db: &Db, call: &str, examined: &str) -> (String, String, String) {
    let lines = lines(db, call, examined);
    assert_eq!(lines.len(), 1, "{lines:?}");
    lines.into_iter().next().unwrap()
}

fn lines(db: &Db, call: &str, examined: &str) -> Vec<(String, String, String)> {
    let ran = on(&db.config, call).arg("--json").run();
    let found: Vec<Value> = serde_json::from_str(&ran.out)
        .unwrap_or_else(|error| panic!("{error}: {}{}", ran.out, ran.err));
    let text = |line: &Value, name: &str| line[name].as_str().unwrap_or_default().to_owned();
    let these = found.iter().filter(|line| line["examined"] == examined);
    these.map(|f| (text(f, "verdict"), text(f, "said"), text(f, "command"))).collect()
}

fn doctor(db: &Db, examined: &str) -> (String, String, String) {
    line(db, "doctor", examined)
}

/// Checks that a finding names a fault and that command.
fn finding(db: &Db, examined: &str, said: &str, command: &str) {
    let (verdict, found, mends) = doctor(db, examined);
    assert!(verdict != "ok" && found.contains(said), "{verdict}: {found}");
    assert_eq!(mends, command);
}

fn well(db: &Db, examined: &str) {
    let (verdict, found, _) = doctor(db, examined);
    assert_eq!(verdict, "ok", "{found}");
}

/// Starts a server and waits until a question is answered with true.
async fn serve_until(db: &Db, roles: &str, question: &str) {
    let serving = on(&db.config, &format!("serve --roles {roles}")).start();
    db.until(question).await;
    drop(serving);
}

#[tokio::test]
async fn a_table_of_dead_rows_is_named_and_its_vacuum_mends_it() {
    let db = Db::with_lambda("work").await;
    well(&db, "bloat");
    // The clusters of tests have no autovacuum.
    db.run(DEAD_ROWS).await;
    let said = "tuskline.timer has 30000 dead rows";
    finding(&db, "bloat", said, "vacuum tuskline.timer");
    assert!(doctor(&db, "bloat").1.ends_with("never vacuumed: autovacuum is off"));
    // A vacuum leaves what an open snapshot of another test of this cluster still sees.
    let mut left = 30_000;
    for _ in 0..2_000 {
        db.run("vacuum tuskline.timer").await;
        left = db.one::<i64>("select pg_stat_get_dead_tuples('tuskline.timer'::regclass)").await;
        if left == 0 {
            break;
        }
    }
    assert_eq!(left, 0);
    well(&db, "bloat");
}

#[tokio::test]
async fn a_lease_of_an_ended_worker_is_named_and_a_server_mends_it() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    db.schedule("work").await;
    let worker = db.worker("work").await;
    worker.take().await;
    db.run(&format!("select tuskline.end_executor({})", worker.executor)).await;
    db.advance(MINUTE).await;
    well(&db, "leases");
    db.advance(Duration::from_secs(1)).await;
    let said = format!("1 leases of 1 workers that have ended (worker {} first)", worker.executor);
    finding(&db, "leases", &said, "tuskline serve");
    let free = "select not exists (select from tuskline.lease)";
    serve_until(&db, "store-consumer", free).await;
    well(&db, "leases");
}

#[tokio::test]
async fn a_due_task_that_no_server_moves_is_named_and_a_server_mends_it() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    let id = db.schedule_in("work", Duration::from_secs(5)).await;
    db.advance(Duration::from_secs(14)).await;
    well(&db, "due tasks");
    db.advance(Duration::from_secs(1)).await;
    let said =
        "1 have been due for 5s or longer, one of work for 10s, and no store consumer has moved";
    finding(&db, "due tasks", said, "tuskline serve");
    let queued = format!("select status = 'enqueued' from tuskline.task where id = {id}");
    serve_until(&db, "store-consumer", &queued).await;
    well(&db, "due tasks");
}

#[tokio::test]
async fn a_blocked_key_is_named_until_a_person_unblocks_it() {
    let db = Db::with_lambda("work").await;
    db.run("select tuskline.set_order('work', 'block')").await;
    db.run("select tuskline.schedule('work', p_ordering_key => 'account 9')").await;
    while db.enqueue_due().await > 0 {}
    well(&db, "orders");
    let worker = db.worker("work").await;
    let task = worker.take().await;
    worker.fail_for_good(&task).await;
    let said = "1 keys are blocked and wait for a person: key \"account 9\" of work for ";
    finding(&db, "orders", said, "tuskline order blocked");
    assert!(doctor(&db, "orders").1.ends_with(&format!(", by task {}", task.id)));
    assert!(on(&db.config, "order blocked").run().fine().contains("account 9"));
    on(&db.config, "order unblock work").arg("account 9").run().fine();
    well(&db, "orders");
}

#[tokio::test]
async fn a_body_past_its_timeout_is_named_and_a_cancel_mends_it() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    db.run("select tuskline.alter_lambda('work', p_attempt_timeout => '5 minutes')").await;
    let ids = db.schedule_many("work", 2).await;
    let worker = db.worker("work").await;
    let [first, second] = worker.claim(2).await.try_into().unwrap();
    db.advance(MINUTE * 6).await;
    well(&db, "leases");
    db.advance(MINUTE).await;
    assert!(worker.heartbeat().await);
    let cancel = format!("tuskline task cancel {}", ids[0]);
    let said = format!(
        "task {} runs 2m past its attempt_timeout of 5m, worker {} on host, pid 4711",
        ids[0], worker.executor
    );
    finding(&db, "leases", &said, &cancel);
    let words: Vec<_> = cancel.split(' ').skip(1).collect();
    tuskline(&words).database(&url(&db.config)).run().fine();
    assert_eq!(worker.stopped(&first).await, Answer::Accepted);
    assert_eq!(worker.succeed(&second).await, Answer::Accepted);
    well(&db, "leases");
}

#[tokio::test]
async fn a_lease_whose_tasks_have_ended_is_named_and_its_release_mends_it() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    db.schedule_many("work", 2).await;
    let worker = db.worker("work").await;
    let tasks = worker.claim(2).await;
    assert_eq!(worker.succeed_all(&tasks).await, [0; 0]);
    db.advance(MINUTE * 10).await;
    well(&db, "leases");
    db.advance(Duration::from_secs(1)).await;
    well(&db, "leases");
    assert!(worker.heartbeat().await, "a silent worker is the subject of another line");
    let release = format!("select tuskline.release_lease({}, {})", worker.executor, tasks[0].fence);
    finding(&db, "leases", "holds only tasks that ended over 10 minutes ago", &release);
    db.run(&release).await;
    well(&db, "leases");
    db.assert_nothing_left().await;
}

#[tokio::test]
async fn the_segments_that_are_ready_last_for_days_at_todays_rate() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    db.run("select tuskline.add_segments()").await;
    db.schedule_many("work", 1_000).await;
    assert!(!doctor(&db, "segments").1.contains("rate"), "it is too early to tell");
    // Half a segment in an hour: nine segments less that half last for 17 h.
    db.run("select setval('tuskline.task_seq', last_value + 8388608) from tuskline.task_seq").await;
    db.advance(MINUTE * 60).await;
    let (verdict, said, _) = doctor(&db, "segments");
    assert_eq!(
        (verdict.as_str(), said.as_str()),
        ("ok", "8 ready ahead, of 16.7 million tasks each, enough for 17.0 hours at today's rate")
    );
    let first = db.first_segment();
    db.run(&format!("select setval('tuskline.task_seq', ({first}::bigint + 6) << 24)")).await;
    finding(&db, "segments", "2 ready ahead", "tuskline serve");
    serve_until(&db, "janitor", "select tuskline.segments_ahead() = 8").await;
    well(&db, "segments");
}

/// A segment that is long past its retention, with a task that is claimed in it.
async fn overdue() -> (Db, crate::support::ScriptedWorker) {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    db.run("select tuskline.alter_lambda('work', p_retention => '7 days')").await;
    db.run("select tuskline.roll_segments()").await;
    db.schedule("work").await;
    let worker = db.worker("work").await;
    (db, worker)
}

#[tokio::test]
async fn a_segment_that_a_queued_task_keeps_is_named_with_the_reason() {
    let (db, _) = overdue().await;
    db.advance(DAY).await;
    db.run("select tuskline.roll_segments()").await;
    db.advance(DAY * 8).await;
    well(&db, "retention");
    db.advance(Duration::from_secs(1)).await;
    let idle = "select * from tuskline.queues where depth > 0 and live_workers = 0";
    finding(&db, "retention", "has tasks that are queued or run", idle);
    let found: Vec<String> = db.lines(&idle.replace('*', "lambda, depth")).await;
    assert_eq!(found, ["work | 1"], "the command names the queue");
    // The janitor has not come again for an hour since it looked.
    db.run("select tuskline.segments_to_retire()").await;
    db.advance(MINUTE * 61).await;
    finding(&db, "retention", "waits for a janitor", "tuskline serve");
}

#[tokio::test]
async fn a_segment_that_an_open_transaction_keeps_is_named_and_its_end_mends_it() {
    let (db, worker) = overdue().await;
    assert_eq!(worker.succeed(&worker.take().await).await, Answer::Accepted);
    let writer = db.connect().await;
    let write = "begin; insert into tuskline.task (lambda) values ('work')";
    writer.batch_execute(write).await.unwrap();
    let pid: i32 = writer.query_one("select pg_backend_pid()", &[]).await.unwrap().get(0);
    db.advance(DAY).await;
    db.run("select tuskline.roll_segments()").await;
    db.advance(DAY * 8 + MINUTE).await;
    db.run("select tuskline.segments_to_retire()").await;
    let end = format!("select pg_terminate_backend({pid})");
    finding(&db, "retention", &format!("waits for the end of pid {pid}"), &end);
    db.run(&end).await;
    let gone = format!(
        "select not exists (select from tuskline.segment where segment_no = {})",
        db.first_segment()
    );
    db.advance(MINUTE).await;
    serve_until(&db, "janitor", &gone).await;
    well(&db, "retention");
}

#[tokio::test]
async fn the_disk_is_full_in_days_and_unknown_free_space_is_said_to_be() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    db.run("select tuskline.add_segments()").await;
    db.schedule_many("work", 1_000).await;
    db.run("select pg_stat_force_next_flush()").await;
    db.advance(MINUTE * 60).await;
    let call = |free: &str| line(&db, &format!("doctor --disk-free {free}"), "disk");
    let (verdict, said, command) = call("100kB");
    assert!(
        verdict == "fail" && said.contains("1000 tasks") && said.contains(" full in "),
        "{said}"
    );
    assert_eq!(command, "select tuskline.alter_lambda('work', p_retention => '1 day')");
    let (verdict, said, _) = call("100TB");
    assert!(verdict == "ok" && said.contains("more until retention frees as much"), "{said}");
    let wrong = on(&db.config, "doctor --disk-free much").run().refusal();
    assert_eq!(wrong, "2 error: --disk-free must be a size such as 120GB or 500MB, got much");
    let by_variable = on(&db.config, "doctor").env("TUSKLINE_DISK_FREE", "100kB").run();
    assert!(by_variable.out.contains("FAIL  disk "), "{}", by_variable.out);
    // By the socket the doctor reads the file system itself.
    let (_, said, _) = doctor(&db, "disk");
    assert!(said.contains(" free"), "{said}");
    // A login that may not read the settings of the server.
    let ran = tuskline(&["doctor"]).database(&blind(&db).await).run();
    let disk = ran.out.lines().find(|line| line.contains(" disk ")).unwrap_or(&ran.err);
    assert!(disk.contains("unknown; give the free space with --disk-free"), "{disk}");
}

/// Uses up so many transaction numbers.
async fn use_up_transactions(db: &Db, thousands: i32) {
    // A subtransaction that writes has a number of its own.
    db.run("create temp table written (n integer)").await;
    for _ in 0..thousands / 20 {
        db.run(
            "do $$ begin
               for n in 1..20000 loop
                 begin insert into written values (n); exception when division_by_zero then null; end;
               end loop;
             end $$; truncate written",
        )
        .await;
    }
}

/// A session on a database of a cluster that holds a snapshot.
async fn hold_snapshot(cluster: &Cluster, database: &str) -> Client {
    let (client, connection) =
        cluster.config(database).connect(tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    let hold = "begin isolation level repeatable read; select count(*) from tuskline.task";
    client.batch_execute(hold).await.unwrap();
    client
}

/// The lines about the horizon.
fn holders(db: &Db) -> Vec<(String, String, String)> {
    lines(db, "doctor --old-after 1ms", "xmin horizon")
}

/// Checks that each holder is named with its cost; returns the commands.
fn check_holders(db: &Db, expected: &[&str]) -> Vec<String> {
    let found = holders(db);
    for (verdict, said, _) in &found {
        assert!(verdict == "warn" && said.starts_with("held "), "{said}");
        assert!(said.contains("30") && said.contains(" dead rows, about "), "{said}");
    }
    let commands: Vec<_> = found.iter().map(|(_, _, command)| command.clone()).collect();
    for command in expected {
        assert!(commands.iter().any(|one| one == command), "{command}: {found:#?}");
    }
    assert_eq!(commands.len(), expected.len(), "{found:#?}");
    commands
}

const LOGICAL: [(&str, &str); 4] = [
    ("wal_level", "logical"),
    ("max_wal_senders", "10"),
    ("max_replication_slots", "5"),
    ("wal_receiver_status_interval", "1s"),
];

#[tokio::test]
async fn each_holder_of_the_horizon_is_named_with_the_command_that_ends_it() {
    let primary = own_cluster_with(&LOGICAL).await;
    let db = Db::in_cluster(&primary).await;
    let database = db.config.get_dbname().unwrap();
    db.define("work").await;
    assert!(matches!(&holders(&db)[..], [(verdict, _, _)] if verdict == "ok"));

    // A slot waits for the end of each transaction that writes.
    db.run("select pg_create_logical_replication_slot('left', 'pgoutput')").await;
    let session = hold_snapshot(&primary, database).await;
    let pid: i32 = session.query_one("select pg_backend_pid()", &[]).await.unwrap().get(0);
    db.run(
        "begin; set local tuskline.two_phase = on; select tuskline.schedule('work');
         prepare transaction 'it''s one'",
    )
    .await;
    let dir = open_dir();
    let tells = [&LOGICAL[..], &[("hot_standby_feedback", "on")]].concat();
    let standby = standby_of(&primary, dir.path(), &tells).await;
    let reader = hold_snapshot(&standby, database).await;
    db.until("select exists (select from pg_stat_replication where backend_xmin is not null)")
        .await;
    use_up_transactions(&db, 1_020).await;
    let behind = "select value > 1e6 from tuskline.gauges() where name = 'horizon_transactions'";
    assert!(db.one::<bool>(behind).await, "the metrics see them as well");
    db.run(DEAD_ROWS).await;

    let terminate = format!("select pg_terminate_backend({pid})");
    let rollback = "rollback prepared 'it''s one'";
    let drop_slot = "select pg_drop_replication_slot('left')";
    let feedback = "alter system set hot_standby_feedback = off; select pg_reload_conf()";
    let commands = check_holders(&db, &[&terminate, rollback, drop_slot, feedback]);
    let (verdict, said, command) = line(&db, "doctor --old-after 1ms", "bloat");
    assert!(verdict == "warn" && said.contains("the horizon is held by "), "{said}");
    assert!(commands.contains(&command), "{command}");

    for command in [&terminate, rollback, drop_slot] {
        db.run(command).await;
    }
    check_holders(&db, &[feedback]);
    // The command line of this standby has the setting, so its file does not count: the reader ends.
    drop(reader);
    let released = "select not exists (select from pg_stat_replication
                                        where age(backend_xmin) > 1000000)";
    db.until(released).await;
    assert_eq!(holders(&db)[0].0, "ok", "{:?}", holders(&db));
    db.run("vacuum tuskline.timer").await;
    assert_eq!(line(&db, "doctor --old-after 1ms", "bloat").0, "ok");
}

#[tokio::test]
async fn doctor_verify_names_the_tasks_and_the_printed_command_mends_them() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    let ids = db.schedule_many("work", 7).await;
    let well = on(&db.config, "doctor --verify").run();
    assert_eq!((well.code, well.out.matches("ok  ").count()), (0, 17), "{}", well.out);
    db.run("delete from tuskline.queued").await;
    db.advance(MINUTE * 21).await;
    let found = on(&db.config, "doctor --verify").arg("--json").run();
    let found: Vec<Value> = serde_json::from_str(&found.out).unwrap();
    let queues = found.iter().find(|line| line["examined"] == "queues").unwrap();
    let named: Vec<_> = ids[..5].iter().map(i64::to_string).collect();
    let said = format!(
        "7 violate: each enqueued task has its row in a queue of its lambda; {}, ...",
        named.join(", ")
    );
    assert_eq!((queues["verdict"].as_str(), queues["said"].as_str()), (Some("fail"), Some(&*said)));
    db.run(queues["command"].as_str().unwrap()).await;
    assert_eq!(on(&db.config, "doctor --verify").run().code, 0);

    let worker = db.worker("work").await;
    assert_eq!(worker.claim(1).await.len(), 1);
    db.run("select setval('tuskline.fence_seq', 1, false)").await;
    let found = on(&db.config, "doctor --verify").run();
    let line = found.out.lines().find(|line| line.contains(" fences ")).unwrap();
    assert!(found.code == 1 && line.starts_with("FAIL"), "{line}");
    let (_, command) = line.rsplit_once("#verify: ").unwrap();
    db.run(command).await;
    db.advance(LEASE / 2).await;
    assert_eq!(on(&db.config, "doctor --verify").run().code, 0);
}
