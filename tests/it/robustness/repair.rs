//! After a restore of the data alone, rows name tables, functions and numbers that the catalogue
//! lacks. `doctor` reports them, `repair` makes them, and every task is executed.

use std::process::Command;

use tuskline_postgres::Binaries;

use crate::support::cli::on;
use crate::support::{Db, Gate, LEASE, Running, calm, refusal};

/// A call of a PostgreSQL client program on a database.
fn program(name: &str, db: &Db) -> Command {
    let socket = Db::socket(&db.config);
    let port = db.config.get_ports()[0].to_string();
    let mut command = Command::new(Binaries::find().unwrap().dir.join(name));
    command.arg("-h").arg(socket.parent().unwrap()).args(["-p", &port]);
    command.args(["-U", db.config.get_user().unwrap(), "-d", db.config.get_dbname().unwrap()]);
    command
}

/// The rows of a database, without the commands that make its tables.
fn dump(db: &Db) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    let dumped = program("pg_dump", db)
        .args(["--data-only", "-Fc", "-T", "tuskline_test.pin", "-f"])
        .arg(file.path())
        .output();
    let dumped = dumped.unwrap();
    assert!(dumped.status.success(), "{}", String::from_utf8_lossy(&dumped.stderr));
    file
}

/// Loads each table that can be loaded. (psql would take the rows of one that is missing for commands.)
fn load(dump: &tempfile::NamedTempFile, db: &Db) -> String {
    let ran = program("pg_restore", db).arg(dump.path()).output();
    String::from_utf8_lossy(&ran.unwrap().stderr).into_owned()
}

/// Makes tasks in every state: queued, due later, limited, held by a worker, retried.
async fn fill(db: &Db) {
    db.define("work").await;
    db.define("other").await;
    db.run("select tuskline.set_limit('other', 2)").await;
    db.schedule_many("work", 20).await;
    db.schedule_many("other", 5).await;
    let worker = db.worker("work").await;
    let tasks = worker.claim(4).await;
    worker.succeed(&tasks[0]).await;
    worker.fail(&tasks[1]).await;
    db.run(&format!("select tuskline.end_executor({})", worker.executor)).await;
    db.run("select tuskline.schedule('work', p_delay => '2 seconds')").await;
}

async fn damage(db: &Db) -> Vec<String> {
    db.all("select concat_ws(' ', part, name, problem) from tuskline.damage()").await
}

/// The doctor's line, and its exit code by that line alone.
fn catalogue(db: &Db) -> String {
    let found = on(&db.config, "doctor").run().out;
    found.lines().find(|line| line.contains("catalogue")).unwrap_or(&found).to_owned()
}

/// Repairs by the command line; the lines it printed without the heading.
fn repair(db: &Db) -> Vec<String> {
    let said = on(&db.config, "repair").run().fine();
    said.lines().skip(1).map(str::to_owned).collect()
}

async fn check_drained(db: &Db, tasks: usize) {
    assert!(catalogue(db).starts_with("ok"), "{}", catalogue(db));
    assert_eq!(repair(db), Vec::<String>::new(), "a second repair makes nothing");
    db.schedule("work").await;
    let gate = Gate::open();
    let _consumer = db.store_consumer();
    let sdk_worker = Running::start(db, calm(), vec![gate.lambda("work"), gate.lambda("other")]);
    db.until_count("success", tasks + 1).await;
    sdk_worker.stop().await;
    db.assert_nothing_left().await;
}

#[tokio::test]
async fn rows_without_their_tables_are_repaired_and_every_task_runs() {
    let (source, target) = (Db::new().await, Db::new().await);
    fill(&source).await;
    load(&dump(&source), &target);
    let refused =
        refusal(&target.client.execute("select tuskline.schedule('work')", &[]).await.unwrap_err());
    assert!(refused.contains("no partition of relation"), "{refused}");
    let said = catalogue(&target);
    assert!(said.starts_with("FAIL") && said.contains("queue_1: no table"), "{said}");
    assert!(said.ends_with(": tuskline repair"), "{said}");
    let listed = on(&target.config, "repair --dry-run").run().fine();
    assert!(catalogue(&target).starts_with("FAIL"), "a dry run changes nothing");
    let made = repair(&target);
    assert_eq!(listed.lines().count(), made.len() + 1, "{listed}\n{made:?}");
    assert!(made.iter().any(|line| line.contains("queue_8")), "{made:?}");
    // The source may have issued fences since the dump.
    let clock_us = "1000000 * extract(epoch from now() - interval '1 hour')";
    let raised = format!("select last_value > {clock_us} from tuskline.fence_seq");
    assert!(target.one::<bool>(&raised).await);
    check_drained(&target, 26).await;
}

#[tokio::test]
async fn rows_whose_queues_have_other_numbers_here_are_repaired() {
    let (source, target) = (Db::new().await, Db::new().await);
    fill(&source).await;
    // Its queues have the numbers 1 to 4, as those of `work` have in the source.
    target.define("resize").await;
    load(&dump(&source), &target);
    let said = catalogue(&target);
    assert!(said.contains("work: no queue of priority critical, high, normal, low"), "{said}");
    assert!(said.contains("names tasks of lambda work, is of resize"), "{said}");
    repair(&target);
    let guarded = "select bool_and(has_policies) from tuskline.queue where lambda = 'other'";
    assert!(target.one::<bool>(guarded).await, "its limit holds");
    target.schedule("resize").await;
    let worker = target.worker("resize").await;
    let resized = worker.claim(100).await;
    assert_eq!(resized.len(), 1, "no task of another lambda: {resized:?}");
    worker.succeed(&resized[0]).await;
    target.run(&format!("select tuskline.end_executor({})", worker.executor)).await;
    check_drained(&target, 27).await;
}

#[tokio::test]
async fn rows_of_segments_that_do_not_exist_here_are_loaded_after_a_repair() {
    let (source, target) = (Db::new().await, Db::new().await);
    let first = source.first_segment();
    let begin = |nth: i64| {
        let id = source.id(nth << 24);
        format!("select setval('tuskline.task_seq', {id}), tuskline.add_segments()")
    };
    source.run(&begin(10)).await;
    fill(&source).await;
    source.run(&begin(11)).await;
    source.schedule("work").await;
    let dump = dump(&source);
    let said = load(&dump, &target);
    assert!(said.contains(&format!("task_{}", first + 11)), "{said}");
    let damage = damage(&target).await;
    let next = format!("segments next ids begin at segment {}, which is missing", first + 11);
    assert!(damage.contains(&next), "{damage:?}");
    repair(&target);
    load(&dump, &target);
    repair(&target);
    check_drained(&target, 27).await;
}

/// Damage to a database of one lambda, and the line that reports it. Segments are counted from the
/// first one, `<s5>`, ids and queues from 1, `<t2>` and `3`.
const HARM: &[(&str, &str)] = &[
    ("drop function tuskline_core.pop_0", "queue queue_3 no statements in pop_0"),
    ("drop function tuskline_core.pop", "queue queue_3 no statements in pop_0"),
    (
        "alter table tuskline.queued detach partition tuskline_core.queue_3",
        "queue queue_3 table not attached",
    ),
    (
        "alter table tuskline_core.queue_3 drop constraint queue_3_pkey",
        "queue queue_3 no primary key",
    ),
    ("drop table tuskline_core.queue_3", "queue queue_3 no table"),
    ("drop table tuskline_core.event_count", "table event_count missing"),
    ("drop table tuskline_core.recent_failure", "table recent_failure missing"),
    (
        "drop table tuskline_core.queue_3; delete from tuskline.queue where queue_id = 3",
        "lambda work no queue of priority normal",
    ),
    ("drop function tuskline_core.take_<s0>", "segment task_<s0> no function take_<s0>"),
    (
        "drop function tuskline_core.take_<s0>; drop function tuskline_core.end_<s0>",
        "segment task_<s0> no function take_<s0>, end_<s0>",
    ),
    ("drop table tuskline_core.task_<s5>", "segment task_<s5> no table"),
    (
        "alter table tuskline_core.task_store detach partition tuskline_core.task_<s5>",
        "segment task_<s5> table not attached",
    ),
    (
        "alter table tuskline_core.task_<s5> drop constraint task_<s5>_pkey",
        "segment task_<s5> no primary key",
    ),
    (
        "delete from tuskline.segment where segment_no = <s5>",
        "segment task_<s5> no row in tuskline.segment",
    ),
    (
        "select setval('tuskline.executor_seq', 1, false)",
        "sequence executor_seq stands at 0, rows have 1",
    ),
    (
        "select setval('tuskline.fence_seq', 1, false)",
        "sequence fence_seq stands at 0, rows have 1",
    ),
    (
        "select setval('tuskline.task_seq', <t1>)",
        "sequence task_seq stands at <t1>, rows have <t2>",
    ),
    (
        "select setval('tuskline.queue_queue_id_seq', 1)",
        "sequence queue_queue_id_seq stands at 1, rows have 4",
    ),
    (
        "select setval('tuskline.task_seq', <s30>::bigint << 24)",
        "segments next ids begin at segment <s30>, which is missing",
    ),
    (
        "drop cast (varchar as tuskline.priority)",
        "cast character varying as tuskline.priority missing",
    ),
    ("alter table tuskline.task disable trigger route", "trigger route disabled"),
    ("drop trigger route on tuskline.task", "trigger route missing"),
    (
        "grant execute on function tuskline.cancel to public",
        "rights PUBLIC may execute 1 functions",
    ),
    (
        "revoke execute on function tuskline.clock() from public",
        "rights PUBLIC may not execute tuskline.clock()",
    ),
    ("delete from tuskline.installation", "installation no row"),
    ("drop sequence tuskline_core.ids_raised", "ids ids_raised no sequence"),
    ("delete from tuskline.queued", "queue rows all queue_3 is empty, and task <t2> is enqueued"),
    ("delete from tuskline_core.queues_complete", "queues all lost in a crash or failover"),
];

/// A text of [`HARM`] with the numbers of a database.
fn with_numbers(db: &Db, text: &str) -> String {
    let mut text = text.to_owned();
    for nth in [0, 1, 2, 5, 30] {
        text = text.replace(&format!("<s{nth}>"), &(db.first_segment() + nth).to_string());
        text = text.replace(&format!("<t{nth}>"), &db.id(nth).to_string());
    }
    text
}

/// A recovery of an earlier version sets sequences that no call has used since.
#[tokio::test]
async fn a_repair_lowers_no_number() {
    let db = Db::with_lambda("work").await;
    let last = [db.schedule("work").await, db.schedule_in("work", LEASE).await];
    for (id, sequence) in [(last[0], "task_seq"), (last[1], "future_seq")] {
        let next = ((id >> 24) + 1) << 24;
        db.run(&format!("select setval('tuskline.{sequence}', {next}, false)")).await;
        assert_eq!(damage(&db).await, Vec::<String>::new());
        assert_eq!(repair(&db), Vec::<String>::new());
        // As if it had been found before a call used the sequence.
        db.run(&format!("select tuskline_core.repair_step('sequence', '{sequence}', {id})")).await;
        let stands = format!("select last_value from tuskline.{sequence}");
        assert!(db.one::<i64>(&stands).await >= next, "{sequence}");
    }
}

#[tokio::test]
async fn each_thing_that_is_missing_is_found_and_made() {
    for (harm, expected) in HARM {
        let db = Db::with_lambda("work").await;
        let (harm, expected) = (&with_numbers(&db, harm), &with_numbers(&db, expected));
        let worker = db.worker("work").await;
        db.schedule_many("work", 2).await;
        worker.claim(1).await;
        assert_eq!(damage(&db).await, Vec::<String>::new());
        db.run(harm).await;
        let found = damage(&db).await;
        assert!(found.iter().any(|line| line.starts_with(expected.as_str())), "{harm}: {found:?}");
        let made: Vec<String> = db.all("select part from tuskline.repair()").await;
        assert!(!made.is_empty() && made.len() <= found.len() + 1, "{harm}: {found:?}, {made:?}");
        assert_eq!(damage(&db).await, Vec::<String>::new(), "{harm}");
        let audited: i64 =
            db.one("select count(*) from tuskline.audit where verb = 'repair'").await;
        assert_eq!(audited, 1, "{harm}");
        db.run("insert into tuskline.task (lambda) values ('work')").await;
        let worker = db.worker("work").await;
        assert_eq!(worker.claim(10).await.len(), 2, "{harm}");
    }
}

#[tokio::test]
async fn a_segment_that_a_janitor_retires_is_no_damage() {
    let db = Db::with_lambda("work").await;
    let no = db.first_segment();
    let third = db.id(3 << 24);
    db.run(&format!("select setval('tuskline.task_seq', {third}), tuskline.add_segments()")).await;
    let janitor = db.connect().await;
    let guard = "begin; lock table tuskline_core.retention_guard in share row exclusive mode";
    janitor.batch_execute(guard).await.unwrap();
    let detach =
        format!("alter table tuskline_core.task_store detach partition tuskline_core.task_{no}");
    db.run(&detach).await;
    assert_eq!(damage(&db).await, Vec::<String>::new());
    db.run(&format!("drop table tuskline_core.task_{no}")).await;
    assert_eq!(damage(&db).await, Vec::<String>::new());
    janitor.batch_execute("rollback").await.unwrap();
    let left = damage(&db).await;
    assert_eq!(left, [format!("segment task_{no} no table")], "a janitor died half-way");
}

#[tokio::test]
async fn a_repair_waits_for_the_guards_and_names_the_holder() {
    let db = Db::with_lambda("work").await;
    db.run("drop function tuskline_core.pop_0").await;
    let holder = db.connect().await;
    let guard = "begin; lock table tuskline_core.queue_guard in share row exclusive mode";
    holder.batch_execute(guard).await.unwrap();
    let pid: i32 = holder.query_one("select pg_backend_pid()", &[]).await.unwrap().get(0);
    let refused = db.refused("select tuskline.repair()").await;
    assert!(
        refused.contains("guard_held") && refused.contains(&format!("pid {pid} ")),
        "{refused}"
    );
    holder.batch_execute("rollback").await.unwrap();
    db.run("select tuskline.repair()").await;
    assert_eq!(damage(&db).await, Vec::<String>::new());
}
