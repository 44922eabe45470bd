//! A database of the first release becomes one of this build, and its tasks go on.
//!
//! `tests/upgrade/0.1.0.sql.gz` is such a database: its schema, and tasks in every status and under
//! every policy. Until the first release it may be made again. From then on, these tests fail on a
//! change of a `V*.sql` that it was made with.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use tokio_postgres::Client;
use tuskline_postgres::Binaries;
use tuskline_sdk::{Lambda, Outcome};

use crate::support::cli::{on, url};
use crate::support::{Db, Running, ScriptedWorker, calm};

const LAMBDAS: [&str; 6] = ["work", "ordered", "limited", "single", "archived", "chained"];

/// A restored copy claims nothing for the longest lease of its workers.
const LEASE: Duration = Duration::from_secs(3);

/// Runs a script of which `$BIN` is the directory of PostgreSQL's programs, `$URL` the address of the
/// database, and `$DUMP` the file.
fn shell(db: &Db, script: &str) {
    let mut command = Command::new("/bin/sh");
    command.args(["-euc", script]).env("BIN", Binaries::find().unwrap().dir);
    command.env("URL", url(&db.config)).env("DUMP", dump_path());
    let ran = command.output().unwrap();
    assert!(ran.status.success(), "{script}: {}", String::from_utf8_lossy(&ran.stderr));
}

fn dump_path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/upgrade/0.1.0.sql.gz")
}

/// A database without the clock of the tests, migrated by the program.
async fn migrated() -> Db {
    let db = emptied().await;
    on(&db.config, "migrate").run().fine();
    db
}

async fn emptied() -> Db {
    let mut db = Db::of_cell_0().await;
    db.run("drop schema tuskline, tuskline_core, tuskline_test cascade").await;
    db.reconnect().await;
    db
}

/// The settings that both databases have.
async fn define(db: &Db) {
    for lambda in LAMBDAS {
        db.define(lambda).await;
    }
    db.run(
        "select tuskline.alter_lambda('archived', p_archive => 'table');
         select tuskline.set_order('ordered');
         select tuskline.set_limit('limited', 1, p_by_key => true);
         select tuskline.set_unique('single', 'forever');
         select tuskline.set_breaker('work', 5);
         select tuskline.define_periodic('nightly', 'work', '@daily', p_payload => '1')",
    )
    .await;
}

/// Claims one task, which is of that lambda.
async fn take(db: &Db, lambda: &str) -> (ScriptedWorker, crate::support::Task) {
    let worker = db.worker_with(&[lambda], LEASE).await;
    db.enqueue_due().await;
    db.run("select tuskline.run_policies()").await;
    let task = worker.take().await;
    (worker, task)
}

/// Tasks in each status, under each policy, with all that is stored about them.
async fn populate(db: &Db) {
    db.run("select tuskline.schedule('work', '1')").await;
    let (worker, task) = take(db, "work").await;
    worker.succeed_with(&task, "\"output\"").await;
    for (n, status) in ["fatal_failure", "cancelled", "retriable_failure"].iter().enumerate() {
        db.run(&format!("select tuskline.schedule('work', '{n}')")).await;
        let (worker, task) = take(db, "work").await;
        let fields = format!(r#""status": "{status}", "error_class": "e", "message": "m""#);
        worker.note(&task, &fields).await;
    }
    db.run("select tuskline.schedule('work', '4'), tuskline.schedule('work', '5')").await;
    let (worker, started) = take(db, "work").await;
    assert!(worker.start(&started).await);
    db.run(&format!(
        "select tuskline.set_progress({}, {}, 50, 'half', '[1]')",
        started.id, started.fence
    ))
    .await;
    take(db, "work").await; // stays claimed
    db.run("select tuskline.schedule('ordered', p_ordering_key => 'k')").await;
    let (worker, task) = take(db, "ordered").await;
    worker.fail_for_good(&task).await;
    db.run(
        "select tuskline.schedule('ordered', p_ordering_key => 'k');
         select tuskline.schedule('limited', p_limit_key => 'k'), tuskline.schedule('limited', p_limit_key => 'k');
         select tuskline.schedule('single', p_unique_key => 'k');
         select tuskline.schedule_then(array[tuskline.schedule('chained')], 'chained');
         select tuskline.gate('work', 'drop', 'dropped', p_reason => 'r', p_unseen => true);
         select tuskline.gate('work', 'pause', 'paused', p_reason => 'r', p_unseen => true);
         select tuskline.schedule('work', p_collection => 'dropped');
         select tuskline.schedule('work', p_collection => 'paused');
         select tuskline.schedule('work', '6', p_delay => '1 second');
         select tuskline.schedule('archived')",
    )
    .await;
    let (worker, task) = take(db, "archived").await;
    worker.succeed(&task).await;
    db.run("select tuskline.advance_operation(tuskline.start_operation('purge', 'archived', p_ended_to => now()))").await;
    assert_eq!(db.one::<i64>("select count(*) from tuskline.task_archive").await, 1);
}

#[tokio::test]
#[ignore = "makes the dump of the first release again"]
async fn the_dump_of_the_first_release_is_made() {
    let db = migrated().await;
    define(&db).await;
    populate(&db).await;
    // Only a new psql knows the commands \restrict and \unrestrict.
    shell(
        &db,
        r#""$BIN/pg_dump" --no-owner "$URL" | grep -v '^.\(un\)\?restrict ' | gzip -9n >"$DUMP""#,
    );
}

/// The database of the first release, restored.
async fn restored() -> Db {
    let db = emptied().await;
    shell(&db, r#"gzip -dc "$DUMP" | "$BIN/psql" -X -q -v ON_ERROR_STOP=1 -d "$URL""#);
    db
}

/// The contents of both schemas, an object a line. The numbers of queues and segments are left out.
async fn structure(client: &Client) -> Vec<String> {
    let schemas = "n.nspname in ('tuskline', 'tuskline_core')";
    let comment = |catalog: &str, object: &str| {
        format!("coalesce(obj_description({object}, '{catalog}'), '-')")
    };
    let queries = [
        format!(
            "select format('column %s.%s %s %s %s %s %s', n.nspname, c.relname, a.attname,
                           format_type(a.atttypid, a.atttypmod), a.attnotnull,
                           coalesce(pg_get_expr(d.adbin, d.adrelid), '-'),
                           coalesce(col_description(c.oid, a.attnum), '-'))
               from pg_class c join pg_namespace n on n.oid = c.relnamespace
                    join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
                    left join pg_attrdef d on d.adrelid = c.oid and d.adnum = a.attnum
              where {schemas} and c.relkind in ('r', 'p', 'v', 'c')"
        ),
        format!(
            "select format('relation %s.%s %s %s %s %s %s %s', n.nspname, c.relname, c.relkind,
                           c.relpersistence, c.reloptions, exists (
                             select from aclexplode(coalesce(c.relacl, acldefault('r', c.relowner)))
                              where grantee = 0),
                           case c.relkind when 'v' then pg_get_viewdef(c.oid)
                                          when 'i' then pg_get_indexdef(c.oid) end, {})
               from pg_class c join pg_namespace n on n.oid = c.relnamespace
              where {schemas}",
            comment("pg_class", "c.oid")
        ),
        format!(
            "select format('constraint %s.%s %s', n.nspname, c.relname, pg_get_constraintdef(k.oid))
               from pg_constraint k join pg_class c on c.oid = k.conrelid
                    join pg_namespace n on n.oid = c.relnamespace
              where {schemas} and k.contype <> 'n'"
        ),
        format!(
            "select format('trigger %s', pg_get_triggerdef(t.oid)) from pg_trigger t
               join pg_class c on c.oid = t.tgrelid join pg_namespace n on n.oid = c.relnamespace
              where {schemas} and not t.tgisinternal"
        ),
        format!(
            "select format('function %s %s %s', pg_get_functiondef(p.oid), exists (
                             select from aclexplode(coalesce(p.proacl, acldefault('f', p.proowner)))
                              where grantee = 0), {})
               from pg_proc p join pg_namespace n on n.oid = p.pronamespace
              where {schemas} and p.prokind = 'f'",
            comment("pg_proc", "p.oid")
        ),
        format!(
            "select format('type %s.%s %s %s', n.nspname, t.typname,
                           (select array_agg(e.enumlabel order by e.enumsortorder)
                              from pg_enum e where e.enumtypid = t.oid), {})
               from pg_type t join pg_namespace n on n.oid = t.typnamespace
              where {schemas} and t.typtype in ('e', 'd')",
            comment("pg_type", "t.oid")
        ),
    ];
    let mut lines = Vec::new();
    for query in queries {
        let sql = format!(
            "select distinct regexp_replace(line, '(_|queue |queue_id = |segment |ids | to )[0-9]+', '#', 'g')
               from ({query}) q (line)"
        );
        lines.extend(
            client.query(&sql, &[]).await.unwrap().iter().map(|row| row.get::<_, String>(0)),
        );
    }
    lines.sort();
    lines
}

#[tokio::test]
async fn the_first_schema_becomes_that_of_a_fresh_database() {
    let old = restored().await;
    on(&old.config, "migrate").run().fine();
    let fresh = migrated().await;
    define(&fresh).await;
    let (old, fresh) = (structure(&old.client).await, structure(&fresh.client).await);
    assert!(fresh.len() > 500, "{} objects", fresh.len());
    let only = |these: &[String], those: &[String]| -> Vec<String> {
        these.iter().filter(|line| !those.contains(line)).cloned().collect()
    };
    assert_eq!(
        (only(&old, &fresh), only(&fresh, &old)),
        (vec![], vec![]),
        "only in the migrated database, and only in a fresh one"
    );
}

#[tokio::test]
async fn the_doctor_finds_the_migrated_database_as_a_fresh_one() {
    let old = restored().await;
    on(&old.config, "migrate").run().fine();
    let verdicts = |db: &Db| {
        let lines = on(&db.config, "doctor --verify --json").run().out;
        let lines: serde_json::Value = serde_json::from_str(&lines).unwrap();
        let lines = lines.as_array().unwrap().clone().into_iter();
        let verdict =
            |line: &serde_json::Value| format!("{} {}", line["examined"], line["verdict"]);
        lines
            .map(|line| verdict(&line))
            .filter(|line| !line.contains("\"leases\""))
            .collect::<Vec<_>>()
    };
    let fresh = migrated().await;
    define(&fresh).await;
    assert_eq!(verdicts(&old), verdicts(&fresh));
}

#[tokio::test]
async fn the_tasks_of_the_first_release_go_on() {
    let old = restored().await;
    let ended =
        "select id, status, attempt from tuskline.tasks where finished_at is not null order by id";
    let (before, open) = (
        old.lines(ended).await,
        old.lines("select status, count(*) from tuskline.tasks where finished_at is null group by 1 order by 1").await,
    );
    assert_eq!(
        open,
        ["new | 5", "enqueued | 3", "claimed | 1", "processing | 1", "retriable_failure | 1"]
    );
    on(&old.config, "migrate").run().fine();
    let server = on(&old.config, "serve").start();
    let succeed = |name| Lambda::named(name, async |_: serde_json::Value| Outcome::Success(None));
    let sdk_worker = Running::start(&old, calm(), LAMBDAS.map(succeed).into());
    old.run("select tuskline.ungate(gate_id) from tuskline.gates where action = 'pause'").await;
    old.run("select tuskline.unblock('ordered', 'k')").await;
    old.until("select not exists (select from tuskline.tasks where finished_at is null)").await;
    sdk_worker.stop().await;
    server.signal(Signal::TERM);
    assert_eq!(server.end().code, 0);
    let after = old.lines(ended).await;
    assert!(before.iter().all(|line| after.contains(line)), "{before:?}\n{after:?}");
    let broken = "select invariant from tuskline.invariants() where violations > 0";
    assert_eq!(old.lines(broken).await, [""; 0]);
}

#[tokio::test]
async fn a_server_and_a_monitor_of_the_first_release_go_on_after_columns_were_renamed() {
    let old = restored().await;
    old.run(
        "grant execute on function tuskline.damage() to pg_monitor;
         grant select (name, trouble) on tuskline.periodics to pg_monitor",
    )
    .await;
    let version = "select version from tuskline.periodic";
    let note =
        format!("select tuskline.note_schedule_error('nightly', ({version}), 'no such zone')");
    let due = "select names, troubles from tuskline.due_periodic(100, null, 'default')";
    assert!(old.one::<bool>(&note).await);
    let before = old.lines(due).await;
    assert_eq!(before, ["[\"nightly\"] | [\"no such zone\"]"]);
    on(&old.config, "migrate").run().fine();
    assert_eq!(old.lines(due).await, before);
    assert_eq!(old.lines("select problem from tuskline.periodics").await, ["no such zone"]);
    assert!(!old.one::<bool>(&note).await, "the error is the same");
    let may = "select has_function_privilege('pg_monitor', 'tuskline.damage()', 'execute')
                  and has_column_privilege('pg_monitor', 'tuskline.periodics', 'problem', 'select')";
    assert!(old.one::<bool>(may).await);
}
