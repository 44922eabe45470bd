//! `migrate --plan` tells the locks that a migration takes, and who blocks it.

use std::collections::{BTreeMap, BTreeSet};

use tokio_postgres::Client;
use tuskline::migrate::{self, Mode, Step};

use crate::support::Db;
use crate::support::cli::on;

/// Modes of `pg_locks` that a plan names.
fn mode(name: &str) -> Option<Mode> {
    match name {
        "ShareUpdateExclusiveLock" => Some(Mode::ShareUpdateExclusive),
        "ShareLock" => Some(Mode::Share),
        "ShareRowExclusiveLock" => Some(Mode::ShareRowExclusive),
        "AccessExclusiveLock" => Some(Mode::AccessExclusive),
        _ => None,
    }
}

async fn relations(client: &Client) -> BTreeSet<String> {
    let sql = "select c.relnamespace::regnamespace || '.' || c.relname from pg_class c
                where c.relnamespace in (to_regnamespace('tuskline'), to_regnamespace('tuskline_core'))";
    let rows = client.query(sql, &[]).await.unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

/// The strongest lock of this transaction on each of these relations. Guards are locked by us alone.
async fn held(client: &Client, there: &BTreeSet<String>) -> BTreeMap<String, Mode> {
    let sql = "select c.relnamespace::regnamespace || '.' || c.relname, l.mode
                 from pg_locks l join pg_class c on c.oid = l.relation
                where l.pid = pg_backend_pid() and l.locktype = 'relation'
                  and l.database = (select oid from pg_database where datname = current_database())
                  and right(c.relname, 6) <> '_guard'";
    let mut strongest = BTreeMap::new();
    for row in client.query(sql, &[]).await.unwrap() {
        let (relation, name): (String, String) = (row.get(0), row.get(1));
        if let Some(mode) = mode(&name).filter(|_| there.contains(&relation)) {
            let known = strongest.entry(relation).or_insert(mode);
            *known = mode.max(*known);
        }
    }
    strongest
}

/// The same, as the statements of a step are said to take them.
fn told(step: &Step, there: &BTreeSet<String>) -> BTreeMap<String, Mode> {
    let mut strongest = BTreeMap::new();
    for (mode, relation) in step.statements.iter().flat_map(|statement| migrate::locks(statement)) {
        if there.contains(&relation) {
            let known = strongest.entry(relation).or_insert(mode);
            *known = mode.max(*known);
        }
    }
    strongest
}

/// Runs the statements of a step in a transaction that stays open.
async fn run(client: &Client, step: &Step) {
    client.batch_execute("begin").await.unwrap();
    for statement in &step.statements {
        let ran = client.batch_execute(statement).await;
        ran.unwrap_or_else(|error| panic!("{error:?}: {statement}"));
    }
}

#[tokio::test]
async fn a_table_migration_takes_the_locks_that_its_plan_names() {
    let db = Db::of_cell_0().await;
    db.run("drop schema tuskline, tuskline_core, tuskline_test cascade").await;
    let plan = migrate::plan(&db.config).await.unwrap();
    assert_eq!(plan.found, None);
    assert!(plan.steps.iter().all(|step| step.locks.is_empty()), "nothing is there");
    assert_eq!(relations(&db.client).await, BTreeSet::new(), "it changes nothing");
    let (functions, tables) = plan.steps.split_last().unwrap();
    assert_eq!((functions.name, tables[0].name), ("functions", "V1__task_store"));
    db.run("create schema tuskline_core").await; // migrate makes the history in it
    for step in tables {
        let there = relations(&db.client).await;
        run(&db.client, step).await;
        assert_eq!(held(&db.client, &there).await, told(step, &there), "{}", step.name);
        db.run("commit").await;
    }
}

#[tokio::test]
async fn a_renewal_of_the_functions_takes_the_locks_that_its_plan_names() {
    let db = Db::with_lambda("work").await;
    db.run("update tuskline_core.stamp set digest = 'another'").await;
    let plan = migrate::plan(&db.config).await.unwrap();
    let [step] = &plan.steps[..] else { panic!("{plan:?}") };
    let there = relations(&db.client).await;
    let planned: BTreeMap<_, _> =
        step.locks.iter().map(|lock| (lock.relation.clone(), lock.mode)).collect();
    run(&db.client, step).await;
    let held = held(&db.client, &there).await;
    db.run("rollback").await;
    assert_eq!(held, planned);
    assert_eq!(planned["tuskline.tasks"], Mode::AccessExclusive);
    db.run("begin").await;
    db.run(migrate::WHEN_RECREATED).await;
    let dropped = self::held(&db.client, &there).await;
    db.run("rollback").await;
    assert!(dropped.is_empty() || dropped.iter().all(|(view, mode)| planned[view] == *mode));
}

#[tokio::test]
async fn a_plan_names_the_sessions_that_block_it() {
    let db = Db::with_lambda("work").await;
    assert_eq!(
        on(&db.config, "migrate --plan").run().fine(),
        format!(
            "installed: function set {0}; this binary: function set {0}\nnothing to do\n",
            migrate::SCHEMA_VERSION
        )
    );
    db.run("update tuskline_core.stamp set digest = 'another'").await;
    let reader = db.connect().await;
    reader
        .batch_execute("set application_name = 'report'; begin; table tuskline.tasks")
        .await
        .unwrap();
    let pid: i32 = reader.query_one("select pg_backend_pid()", &[]).await.unwrap().get(0);
    db.until(&format!(
        "select xact_start < clock_timestamp() - interval '1.1 seconds' from pg_stat_activity where pid = {pid}"
    ))
    .await;
    let plan = on(&db.config, "migrate --plan --json").run().json();
    let locks = plan["steps"][0]["locks"].as_array().unwrap();
    let blocked: Vec<_> =
        locks.iter().filter(|lock| lock["blockers"] != serde_json::json!([])).collect();
    let [lock] = &blocked[..] else { panic!("{blocked:?}") };
    assert_eq!(
        (&lock["relation"], &lock["mode"]),
        (&"tuskline.tasks".into(), &"access_exclusive".into())
    );
    let blocker = &lock["blockers"][0];
    assert_eq!(
        (&blocker["pid"], &blocker["application"], &blocker["state"], &blocker["holds"]),
        (&pid.into(), &"report".into(), &"idle in transaction".into(), &"AccessShareLock".into())
    );
    let told = on(&db.config, "migrate --plan").run().fine();
    assert!(told.lines().all(|line| line.chars().count() <= 80), "{told}");
    assert!(
        told.contains(&format!("\n  to end it: select pg_terminate_backend({pid})\n")),
        "{told}"
    );
    assert!(told.contains("\n  it holds tuskline.tasks\n"), "{told}");
    reader.batch_execute("rollback").await.unwrap();
    assert!(
        on(&db.config, "migrate --plan").run().fine().ends_with("\n\nno session blocks it now\n")
    );
}
