//! `migrate --plan` lists the locks that a migration takes, and the sessions that block it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use tokio_postgres::{Client, Config, NoTls};
use tuskline::migrate::{self, Mode, Step};
use tuskline::store::guard::{self, Guarded};
use tuskline_postgres::Cluster;

use crate::support::cli::on;
use crate::support::{Db, own_cluster, within};

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

/// The same locks, as the plan announces them for the statements of a step.
fn announced(step: &Step, there: &BTreeSet<String>) -> BTreeMap<String, Mode> {
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
    assert_eq!((&*functions.name, &*tables[0].name), ("functions", "V1__task_store"));
    db.run("create schema tuskline_core").await; // migrate makes the history in it
    for step in tables {
        let there = relations(&db.client).await;
        run(&db.client, step).await;
        assert_eq!(held(&db.client, &there).await, announced(step, &there), "{}", step.name);
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
    assert_eq!(planned["tuskline.limits"], Mode::AccessExclusive);
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
        .batch_execute("set application_name = 'report'; begin; table tuskline.limits")
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
        (&"tuskline.limits".into(), &"access_exclusive".into())
    );
    let blocker = &lock["blockers"][0];
    assert_eq!(
        (&blocker["pid"], &blocker["application"], &blocker["state"], &blocker["holds"]),
        (&pid.into(), &"report".into(), &"idle in transaction".into(), &"AccessShareLock".into())
    );
    let printed = on(&db.config, "migrate --plan").run().fine();
    assert!(printed.lines().all(|line| line.chars().count() <= 80), "{printed}");
    assert!(
        printed.contains(&format!("\n  to end it: select pg_terminate_backend({pid})\n")),
        "{printed}"
    );
    assert!(printed.contains("\n  it holds tuskline.limits\n"), "{printed}");
    reader.batch_execute("rollback").await.unwrap();
    assert!(
        on(&db.config, "migrate --plan").run().fine().ends_with("\n\nno session blocks it now\n")
    );
}

/// A session of a role.
async fn as_role(config: &Config, role: &str) -> (Config, Client) {
    let mut config = config.clone();
    config.user(role);
    let (client, connection) = within(config.connect(NoTls)).await.unwrap();
    tokio::spawn(connection);
    (config, client)
}

/// An owner that is no superuser, a role that reads its tables, and a renewal of the functions to plan.
async fn of_an_ordinary_owner(cluster: &Cluster) -> (Config, Client, Client) {
    cluster.create_database("ordinary", None).await.unwrap();
    let database = cluster.config("ordinary");
    let (_, admin) = as_role(&database, database.get_user().unwrap()).await;
    let roles = "create role plan_owner login; create role plan_app login;
                 grant create on database ordinary to plan_owner";
    admin.batch_execute(roles).await.unwrap();
    let (config, owner) = as_role(&database, "plan_owner").await;
    on(&config, "migrate").run().fine();
    let grants = "grant usage on schema tuskline to plan_app;
                  grant select on tuskline.limits to plan_app;
                  update tuskline_core.stamp set digest = 'another'";
    owner.batch_execute(grants).await.unwrap();
    let (_, app) = as_role(&database, "plan_app").await;
    (config, admin, app)
}

#[tokio::test]
async fn a_plan_does_not_advise_to_end_a_session_whose_age_is_hidden() {
    let cluster = own_cluster().await;
    let (owner, admin, app) = of_an_ordinary_owner(&cluster).await;
    app.batch_execute("set application_name = 'report'; begin; table tuskline.limits")
        .await
        .unwrap();
    let pid: i32 = app.query_one("select pg_backend_pid()", &[]).await.unwrap().get(0);
    let printed = on(&owner, "migrate --plan").run().fine();
    assert_eq!(
        printed.split("\n\n").last().unwrap(),
        format!(
            "perhaps blocked by pid {pid}: this role cannot see its age\n  \
             role plan_app, application report\n  \
             it holds tuskline.limits\n  \
             to see its age: plan as a member of pg_read_all_stats\n"
        )
    );
    let plan = on(&owner, "migrate --plan --json").run().json();
    let locks = plan["steps"][0]["locks"].as_array().unwrap().iter();
    let blockers: Vec<_> = locks.flat_map(|lock| lock["blockers"].as_array().unwrap()).collect();
    let [blocker] = &blockers[..] else { panic!("{blockers:?}") };
    assert_eq!((&blocker["state"], &blocker["since"]), (&Value::Null, &Value::Null));

    admin.batch_execute("grant pg_read_all_stats to plan_owner").await.unwrap();
    let old = "select xact_start < clock_timestamp() - interval '1.1 seconds' from pg_stat_activity
                where pid = $1";
    let is_old = || async { admin.query_one(old, &[&pid]).await.unwrap().get::<_, bool>(0) };
    within(async { while !is_old().await {} }).await;
    let printed = on(&owner, "migrate --plan").run().fine();
    assert!(printed.contains(&format!("\n\nblocked by pid {pid} since 20")), "{printed}");
}

#[tokio::test]
async fn a_plan_names_each_prepared_transaction_that_blocks_it() {
    let cluster = own_cluster().await;
    let (owner, admin, app) = of_an_ordinary_owner(&cluster).await;
    for name in ["'one'", "E'o''th\\\\er'"] {
        let prepare = format!("begin; table tuskline.limits; prepare transaction {name}");
        app.batch_execute(&prepare).await.unwrap();
        let printed = on(&owner, "migrate --plan").run().fine();
        let lines: Vec<&str> = printed.split("\n\n").last().unwrap().lines().collect();
        let [head, role, holds, end, commit] = lines[..] else { panic!("{printed}") };
        assert!(head.starts_with("blocked by a prepared transaction since 20"), "{printed}");
        assert_eq!((role, holds), ("  role plan_app", "  it holds tuskline.limits"));
        assert_eq!(end, format!("  to end it: rollback prepared {name}"));
        assert_eq!(commit, format!("  if its manager says so: commit prepared {name}"));
    }
    let plan = migrate::plan(&owner).await.unwrap();
    let blockers: Vec<_> = plan.steps[0].locks.iter().flat_map(|lock| &lock.blockers).collect();
    let names: Vec<_> = blockers.iter().map(|one| one.prepared.as_deref()).collect();
    assert_eq!(names, [Some("one"), Some("o'th\\er")]);
    let users = guard::users(&admin).await.unwrap().unwrap();
    assert!(users.contains("prepared transaction 'one', role plan_app, since 20"), "{users}");
    // The printed command ends the session.
    for name in ["'one'", "E'o''th\\\\er'"] {
        app.batch_execute(&format!("rollback prepared {name}")).await.unwrap();
    }
    assert!(on(&owner, "migrate --plan").run().fine().ends_with("\n\nno session blocks it now\n"));
    let (_, migrating) = as_role(&owner, "plan_owner").await;
    let hold = "begin; lock table tuskline_core.migration_guard in share row exclusive mode;
                prepare transaction 'guard'";
    migrating.batch_execute(hold).await.unwrap();
    let holders = guard::holders(&admin, Guarded::Migration).await.unwrap().unwrap();
    assert!(
        holders.starts_with("prepared transaction 'guard', role plan_owner, since 20"),
        "{holders}"
    );
}
