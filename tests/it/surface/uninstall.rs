//! The printed SQL removes Tuskline and nothing else, and lists the losses before.

use std::collections::BTreeMap;

use tokio_postgres::{Client, Config, NoTls};

use crate::support::cli::{keys, on};
use crate::support::{Db, shared};

/// A database with a table of a user, and no Tuskline.
async fn of_a_user() -> (Config, Client) {
    let name = format!("{}_user", Db::new().await.config.get_dbname().unwrap());
    shared().create_database(&name, None).await.unwrap();
    let config = shared().config(&name);
    let (client, connection) = config.connect(NoTls).await.unwrap();
    tokio::spawn(connection);
    let made = "create table public.customer (id bigint primary key, name text default 'ada');
                insert into public.customer values (1)";
    client.batch_execute(made).await.unwrap();
    (config, client)
}

/// The rows of shared catalogues that are of this database.
const SHARED: &str = "
    select 'shared', count(*) from pg_shdepend where dbid = (
             select oid from pg_database where datname = current_database())
    union all
    select 'settings', count(*) from pg_db_role_setting where setdatabase = (
             select oid from pg_database where datname = current_database())";

/// A question for the rows of each catalogue of the database itself that the login may read.
const OWN: &str = "
    select string_agg(format('select %L, count(*) from pg_catalog.%I', relname, relname), ' union all ')
      from pg_class
     where relnamespace = 'pg_catalog'::regnamespace and relkind = 'r' and not relisshared
       and relname !~ '^pg_statistic(_ext_data)?$' and has_table_privilege(oid, 'select')";

/// The number of rows of each catalogue.
async fn catalogues(client: &Client) -> BTreeMap<String, i64> {
    let own: String = client.query_one(OWN, &[]).await.unwrap().get(0);
    let rows = client.query(&format!("{own} union all {SHARED}"), &[]).await.unwrap();
    rows.iter().map(|row| (row.get(0), row.get(1))).collect()
}

/// Runs each statement by itself, as psql does, without the commands to psql itself.
async fn run(client: &Client, script: &str) {
    for statement in script.lines().filter(|line| !line.starts_with(['-', '\\'])) {
        client
            .batch_execute(statement)
            .await
            .unwrap_or_else(|error| panic!("{statement}: {error}"));
    }
}

#[tokio::test]
async fn the_printed_sql_leaves_nothing_of_it_and_all_of_the_user() {
    let (database, client) = of_a_user().await;
    let before = catalogues(&client).await;
    on(&database, "migrate").run().fine();
    client
        .batch_execute(
            "select tuskline.define_lambda('work'), tuskline.define_lambda('rest');
             select tuskline.schedule_many(array_fill('work'::text, array[100]));
             select tuskline.schedule('rest', p_delay => '1 hour');
             alter default privileges in schema tuskline grant select on tables to public",
        )
        .await
        .unwrap();
    let name = database.get_dbname().unwrap();
    // Only a superuser may store this setting.
    let setting = format!(
        "do $$ begin
           if (select rolsuper from pg_roles where rolname = current_user) then
             alter database {name} set tuskline.two_phase = on;
           end if;
         end $$"
    );
    client.batch_execute(&setting).await.unwrap();
    assert_ne!(catalogues(&client).await, before);

    let script = on(&database, "uninstall --print").run().fine();
    run(&client, &script).await;
    assert_eq!(catalogues(&client).await, before, "{script}");
    let kept: String =
        client.query_one("select name from public.customer", &[]).await.unwrap().get(0);
    assert_eq!(kept, "ada");
    // A script that stopped half-way is run again.
    run(&client, &script).await;
    let again = on(&database, "uninstall --print").run().fine();
    assert_eq!(
        again,
        format!("-- Removes Tuskline from database {name}.\n-- It has no schema here.\n")
    );

    on(&database, "migrate").run().fine();
    client.batch_execute("select tuskline.define_lambda('work')").await.unwrap();
}

#[tokio::test]
async fn what_would_be_lost_is_said_and_nothing_is_executed() {
    let (database, client) = of_a_user().await;
    on(&database, "migrate").run().fine();
    client
        .batch_execute(
            "select tuskline.define_lambda('work');
             select tuskline.schedule_many(array_fill('work'::text, array[3]));
             select tuskline.cancel(min(id)) from tuskline.task;
             create view public.mine as select id from tuskline.tasks;
             create table public.due (task bigint default tuskline.clock()::date - date '2020-01-01',
                                      state tuskline.status)",
        )
        .await
        .unwrap();
    let said = on(&database, "uninstall --print --json").run().json();
    assert_eq!(
        keys(&said),
        "bytes database dependents sessions statements tasks tasks_archived tasks_not_ended workers"
    );
    assert_eq!((&said["tasks"], &said["tasks_not_ended"]), (&3.into(), &2.into()), "{said}");
    assert!(said["bytes"].as_i64().unwrap() > 100_000, "{said}");
    let dependents: Vec<_> =
        said["dependents"].as_array().unwrap().iter().map(|one| one.as_str().unwrap()).collect();
    assert_eq!(
        dependents,
        [
            "default value for public.due.task",
            "rule \"_RETURN\" on public.mine",
            "table column public.due.state",
        ]
    );
    let script = on(&database, "uninstall --print").run().fine();
    assert!(script.contains("\n--   3 tasks, 2 of them not ended; 0 archived tasks\n"), "{script}");
    assert!(script.contains("\n--   table column public.due.state\n"), "{script}");
    let tasks: i64 =
        client.query_one("select count(*) from public.mine", &[]).await.unwrap().get(0);
    assert_eq!(tasks, 3);
}

#[tokio::test]
async fn tasks_that_take_too_long_to_count_are_not_counted() {
    let db = Db::with_lambda("work").await;
    let _worker = db.worker("work").await;
    db.run(
        "alter view tuskline.tasks rename to quick_tasks;
         create view tuskline.tasks as select t.* from pg_sleep(60), tuskline.quick_tasks t",
    )
    .await;
    let script = on(&db.config, "uninstall --print").run().fine();
    let uncounted = "tasks that could not be counted, perhaps not ended: the count takes over 5 s";
    assert!(script.contains(&format!("\n--   {uncounted}\n")), "{script}");
    assert!(script.contains("\n-- Still active: 1 workers, "), "{script}");
    let said = on(&db.config, "uninstall --print --json").run().json();
    assert_eq!((&said["tasks"], &said["workers"]), (&serde_json::Value::Null, &1.into()), "{said}");
}

#[tokio::test]
async fn a_schema_that_is_there_in_parts_is_removed() {
    let (database, client) = of_a_user().await;
    let before = catalogues(&client).await;
    on(&database, "migrate").run().fine();
    client.batch_execute("drop schema tuskline cascade").await.unwrap();
    let script = on(&database, "uninstall --print").run().fine();
    assert!(script.contains("tasks that could not be counted, perhaps not ended: "), "{script}");
    run(&client, &script).await;
    assert_eq!(catalogues(&client).await, before, "{script}");
}

#[tokio::test]
async fn a_script_in_another_database_than_its_own_changes_nothing() {
    let (own, other) = (Db::with_lambda("work").await, Db::with_lambda("work").await);
    let names = [&own, &other].map(|db| db.config.get_dbname().unwrap().to_owned());
    let script = on(&own.config, "uninstall --print").run().fine();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("uninstall.sql");
    std::fs::write(&file, &script).unwrap();
    let before = catalogues(&other.client).await;
    // Also without ON_ERROR_STOP in the call.
    let psql = format!("psql -- -X -f {}", file.display());
    let ran = on(&other.config, &psql).run();
    assert_eq!(ran.code, 3, "{}", ran.err);
    let said = format!(
        "ERROR:  this script removes Tuskline from database {}, and this is database {}: nothing is removed",
        names[0], names[1]
    );
    assert!(ran.err.contains(&said), "{}", ran.err);
    assert_eq!(catalogues(&other.client).await, before);
    // A program that runs the statements meets the check, too.
    let statements = on(&own.config, "uninstall --print --json").run().json();
    let refused = other.refused(statements["statements"][0].as_str().unwrap()).await;
    assert!(refused.contains("and this is database"), "{refused}");

    assert_eq!(on(&own.config, &psql).run().code, 0);
    assert!(own.one::<bool>("select to_regnamespace('tuskline') is null").await);
    assert!(other.one::<bool>("select to_regnamespace('tuskline') is not null").await);
}

#[tokio::test]
async fn the_name_of_a_database_in_a_script_is_quoted() {
    let db = Db::new().await;
    let name = format!("{} of 'Ada'; $$ \\", db.config.get_dbname().unwrap());
    let make = format!("create database \"{name}\"");
    db.run(&make).await;
    let config = shared().config(&name);
    on(&config, "migrate").run().fine();
    let script = on(&config, "uninstall --print").run().fine();
    let (client, connection) = config.connect(NoTls).await.unwrap();
    tokio::spawn(connection);
    run(&client, &script).await;
    let gone = "select to_regnamespace('tuskline') is null";
    assert!(client.query_one(gone, &[]).await.unwrap().get::<_, bool>(0));
}

#[tokio::test]
async fn without_print_it_is_refused() {
    let db = Db::new().await;
    assert_eq!(
        on(&db.config, "uninstall").run().refusal(),
        "2 error: uninstall executes nothing: give --print, read the SQL, and run it with psql"
    );
}
