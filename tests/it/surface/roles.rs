//! The groups of roles of `docs/roles.md`: each has the verbs and views of the manifest, no others,
//! and these are enough for what its members do.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::Value;
use tokio_postgres::{Client, Config, NoTls};
use tuskline_postgres::Cluster;
use tuskline_sdk::{Context, Failure, Lambda, NewTask, Worker};

use crate::support::cli::{keys, on};
use crate::support::pty::OnTerminal;
use crate::support::{Db, Running, calm, settings};

/// Verbs of the schema `tuskline` that no group may call.
const OF_THE_OWNER: &str = "
    add_segments adopt archive_lines archive_segment check_installation delete_written due_periodic
    enqueue_due find_stalled fire_periodic fold_statistics forget_lines goes_to_file grant_verbs
    keep_late keep_remaining kept_to_file lines_to_erase note_schedule_error note_silence purge
    purge_history purge_kept purge_keys purge_statistics repair rescue return_kept roll_segments
    run_policies segments_in_use segments_set_aside segments_to_retire set_max_lease verify
    wants_archive";

/// The table of the page: a row for each set of groups and privilege.
const TABLE: &str = "
    select format('| %s | %s | %s%s |', array_to_string(v.groups, ', '), v.privilege,
                  string_agg(format('`%s`', v.name), ', ' order by v.no),
                  ': ' || (select string_agg(format('`%s`', c.name), ', ' order by c.no)
                             from unnest(v.columns) with ordinality as c (name, no)))
      from tuskline_core.verb_groups()
           with ordinality as v (privilege, name, columns, groups, no)
     group by v.groups, v.privilege, v.columns order by min(v.no)";

/// A login that is a member of a group, and its address.
async fn member(db: &Db, group: &str) -> (String, Config) {
    let login = format!("{group}_{}", db.config.get_dbname().unwrap());
    db.run(&format!(
        "create role {login} login in role tuskline_{group}; grant {login} to current_user"
    ))
    .await;
    let mut config = db.config.clone();
    config.user(&login);
    (login, config)
}

#[tokio::test]
async fn the_page_shows_who_may_call_what() {
    let db = Db::new().await;
    let page = include_str!("../../../docs/roles.md");
    let shown = page.split("<!-- groups -->\n").nth(1).unwrap();
    let shown = shown.split("<!-- /groups -->").next().unwrap();
    let rows: Vec<String> = db.all(TABLE).await;
    let table = format!("| group | privilege | on |\n|---|---|---|\n{}\n", rows.join("\n"));
    assert_eq!(shown, table, "paste into docs/roles.md:\n{table}");
}

#[tokio::test]
async fn every_verb_is_in_the_manifest_or_belongs_to_the_owner() {
    let db = Db::new().await;
    let verbs: BTreeSet<String> = db
        .all::<String>(
            "select distinct proname::text from pg_proc where pronamespace = 'tuskline'::regnamespace",
        )
        .await
        .into_iter()
        .collect();
    let manifest: BTreeSet<String> = db
        .all::<String>(
            "select name from tuskline_core.verb_groups()
              where privilege = 'execute' and name not like 'tuskline_core.%'",
        )
        .await
        .into_iter()
        .collect();
    let owner: BTreeSet<String> = OF_THE_OWNER.split_whitespace().map(str::to_owned).collect();
    assert_eq!(manifest.intersection(&owner).collect::<Vec<_>>(), Vec::<&String>::new());
    assert_eq!(manifest.union(&owner).collect::<Vec<_>>(), verbs.iter().collect::<Vec<_>>());
    let unknown: Vec<String> = db
        .all(
            "select v.name from tuskline_core.verb_groups() v
              where not exists (
                select from pg_proc p
                 where p.pronamespace in ('tuskline'::regnamespace, 'tuskline_core'::regnamespace)
                   and v.name in (p.proname, p.pronamespace::regnamespace || '.' || p.proname)
                 union all
                select from pg_class c
                 where c.relnamespace = 'tuskline'::regnamespace and c.relname = v.name)",
        )
        .await;
    assert_eq!(unknown, Vec::<String>::new(), "names of the manifest that are gone");
    let unread: Vec<String> = db
        .all(
            "select c.relname::text from pg_class c
              where c.relnamespace = 'tuskline'::regnamespace and c.relkind = 'v'
                and c.relname not in (select name from tuskline_core.verb_groups())",
        )
        .await;
    assert_eq!(unread, Vec::<String>::new(), "views that the manifest does not name");
}

/// The privileges that differ between the manifest and the catalogue.
const DIFFERENCES: &str = "
    (select 'lacks', w.* from tuskline_core.wanted_grants() w where w.grantee <> 'public'
     except select 'lacks', f.* from tuskline_core.found_grants() f)
    union all
    (select 'has', f.* from tuskline_core.found_grants() f
     except select 'has', w.* from tuskline_core.wanted_grants() w)";

#[tokio::test]
async fn each_group_may_do_what_the_manifest_names_and_nothing_else() {
    let db = Db::with_lambda("work").await;
    assert_eq!(db.lines(DIFFERENCES).await, Vec::<String>::new());
    let callable = "
        select w.grantee || ' ' || p.oid::regprocedure
          from (select distinct grantee from tuskline_core.wanted_grants() where grantee <> 'public') w
               join pg_proc p
                 on p.pronamespace in ('tuskline'::regnamespace, 'tuskline_core'::regnamespace)
         where has_function_privilege(w.grantee, p.oid, 'execute')
               <> exists (select from tuskline_core.verb_groups() v
                           where (v.groups && array[replace(w.grantee, 'tuskline_', ''), 'public'])
                             and v.privilege = 'execute'
                             and v.name in (p.proname, p.pronamespace::regnamespace || '.' || p.proname))
         order by 1";
    let wrong: Vec<String> = db.all(callable).await;
    assert_eq!(wrong, Vec::<String>::new(), "calls that differ from the manifest");
    let writable = "
        select w.grantee || ' ' || c.oid::regclass
          from (select distinct grantee from tuskline_core.wanted_grants() where grantee <> 'public') w
               join pg_class c on c.relkind in ('r', 'p', 'v')
                and c.relnamespace in ('tuskline'::regnamespace, 'tuskline_core'::regnamespace)
         where has_table_privilege(w.grantee, c.oid, 'insert, update, delete, truncate, references, trigger')
           and (w.grantee, c.relname) <> ('tuskline_scheduler', 'task')";
    let wrong: Vec<String> = db.all(writable).await;
    assert_eq!(wrong, Vec::<String>::new(), "tables that a group may write");
}

#[tokio::test]
async fn a_second_grant_changes_nothing_and_a_first_one_mends_what_differs() {
    let db = Db::new().await;
    let rows = "select sum(n) from (
        select count(*) as n from pg_proc where xmin = pg_current_xact_id()::xid
        union all select count(*) from pg_class where xmin = pg_current_xact_id()::xid) x";
    db.run("begin; select tuskline.grant_verbs()").await;
    assert_eq!(db.lines(rows).await, ["0"]);
    db.run("rollback").await;
    let spoil = "revoke execute on function tuskline.explain from tuskline_viewer;
                 revoke usage on schema tuskline from tuskline_worker;
                 grant execute on function tuskline.adopt to tuskline_operator;
                 grant select on tuskline.task to tuskline_scheduler;
                 grant select (payload) on tuskline.tasks to tuskline_monitor;
                 grant usage on schema tuskline_core to tuskline_viewer;
                 grant execute on function tuskline.explain to public;
                 revoke execute on function tuskline.clock from public";
    let wrong = "select * from tuskline_core.wrong_rights()";
    db.run(spoil).await;
    assert_eq!(db.lines(wrong).await.len(), 2);
    assert_eq!(db.lines(DIFFERENCES).await.len(), 6);
    let groups: Vec<String> = db.one("select tuskline.grant_verbs()").await;
    assert_eq!(groups.len(), 6, "{groups:?}");
    assert_eq!(db.lines(wrong).await, Vec::<String>::new());
    assert_eq!(db.lines(DIFFERENCES).await, Vec::<String>::new());
    db.run(spoil).await;
    on(&db.config, "migrate").run().fine();
    assert_eq!(
        db.lines(DIFFERENCES).await,
        Vec::<String>::new(),
        "by a migration with nothing to do"
    );
}

/// The owner of every function and relation is the owner of the schema, who must be no other role.
#[tokio::test]
async fn everything_belongs_to_the_owner_of_the_schema() {
    let db = Db::with_lambda("work").await;
    let foreign = "
        with s as (select oid, nspowner from pg_namespace where nspname in ('tuskline', 'tuskline_core'))
        select p.oid::regprocedure::text from pg_proc p join s on s.oid = p.pronamespace
         where p.proowner <> s.nspowner
        union all
        select c.oid::regclass::text from pg_class c join s on s.oid = c.relnamespace
         where c.relowner <> s.nspowner
        union all
        select t.oid::regtype::text from pg_type t join s on s.oid = t.typnamespace
         where t.typowner <> s.nspowner";
    assert_eq!(db.all::<String>(foreign).await, Vec::<String>::new());
    assert_eq!(db.one::<i64>("select count(distinct nspowner) from pg_namespace where nspname in ('tuskline', 'tuskline_core')").await, 1);
}

#[tokio::test]
async fn a_view_is_read_by_whoever_is_granted_it() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    let worker = db.worker("work").await;
    db.schedule("work").await;
    worker.fail_for_good(&worker.take().await).await;
    let (executor, queue) = (worker.executor, worker.queues[0]);
    for _ in 0..3 {
        db.run(&format!(
            "select tuskline.report_attempts({executor}, '{{{queue}}}', '{{1}}', '{{3}}');
             select tuskline_core.count_waits(
               'limit', 'work', array[tuskline.clock() - interval '7 s'], tuskline.clock())"
        ))
        .await;
        db.advance(Duration::from_secs(120)).await;
        db.run("select tuskline.fold_statistics()").await;
    }
    let reader = format!("reader_{}", db.config.get_dbname().unwrap());
    let views = "tuskline.dead_letters, tuskline.dead_groups, tuskline.queue_statistics,
                 tuskline.wait_statistics, tuskline.executor_statistics, tuskline.queues";
    db.run(&format!(
        "create role {reader}; grant {reader} to current_user;
         grant usage on schema tuskline to {reader}; grant select on {views} to {reader};
         set role {reader}"
    ))
    .await;
    for view in views.split(',').map(str::trim) {
        let rows = db.lines(&format!("select * from {view}")).await;
        assert!(!rows.is_empty(), "{view}");
    }
    assert!(db.refused("select * from tuskline.tasks").await.starts_with("42501"));
    db.run("reset role").await;
}

#[tokio::test]
async fn the_group_of_workers_has_the_functions_that_the_sdk_calls() {
    let db = Db::new().await;
    let sources = [
        include_str!("../../../worker-sdk/src/db/hsc.rs"),
        include_str!("../../../worker-sdk/src/db/hsc/release.rs"),
        include_str!("../../../worker-sdk/src/db/hsc/exchange/statement.rs"),
        include_str!("../../../worker-sdk/src/worker/progress.rs"),
        include_str!("../../../worker-sdk/src/worker/context.rs"),
    ];
    let mut needed: BTreeSet<_> = sources.into_iter().flat_map(called).map(str::to_owned).collect();
    assert!(needed.remove("define_lambda"), "of define_missing: a worker is a member of the team");
    assert!(needed.remove("may"), "every role may ask");
    assert!(needed.insert("parents".to_owned()), "a client's call, which Context passes on");
    // Workers in other languages may call the parts of an exchange by themselves.
    needed.extend(["claim", "set_results"].map(str::to_owned));
    let granted: Vec<String> = db
        .all(
            "select name from tuskline_core.verb_groups()
              where privilege = 'execute' and 'worker' = any (groups)",
        )
        .await;
    assert_eq!(granted.into_iter().collect::<BTreeSet<_>>(), needed);
}

/// The functions of the schema that a source calls.
fn called(source: &'static str) -> impl Iterator<Item = &'static str> {
    let calls = source.split("tuskline.").skip(1);
    calls
        .filter_map(|rest| Some(rest.split_once('(')?.0))
        .filter(|name| name.chars().all(|c| c.is_ascii_lowercase() || c == '_'))
}

/// Fails once, then saves a checkpoint, tells its progress, and schedules a task of its own.
async fn work(payload: Value, context: Context) -> Result<(), Failure> {
    if payload == "fails" && context.attempt() == 1 {
        return Err(Failure::retry_after(Duration::from_millis(10), "the first attempt"));
    }
    if payload == "stays" {
        context.cancelled().await;
        return Ok(());
    }
    let before: Option<u64> = context.checkpoint().await?;
    context.save(&before.map_or(1, |number| number + 1)).await?;
    context.progress(50.0, "half").await?;
    if payload == "schedules" {
        context.schedule(&NewTask::new("work", &"made")).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_worker_serves_tasks_as_a_member_of_its_groups() {
    let db = Db::with_lambda("work").await;
    let (role, config) = member(&db, "worker").await;
    db.run(&format!("grant tuskline_scheduler to {role}")).await; // its lambda schedules a task
    let consumer = db.store_consumer();
    let worked = Worker::builder(&config).config(calm()).serve(Lambda::named("work", work));
    let running = Running::of(worked);
    db.until_asleep("work").await;
    db.schedule_with("work", "\"fails\"").await;
    db.schedule_with("work", "\"schedules\"").await;
    let stays = db.schedule_with("work", "\"stays\"").await;
    db.until_count("success", 3).await;
    let sessions = "select count(*) > 0 and bool_and(usename = $1) from pg_stat_activity
                     where datname = current_database() and application_name = 'tuskline-worker'";
    assert!(db.ask::<bool>(sessions, &[&role]).await, "its sessions are of the role");
    db.until_status(stays, "processing").await;
    assert_eq!(db.cancel(stays).await, "requested");
    db.until(&format!("select finished_at is not null from tuskline.tasks where id = {stays}"))
        .await;
    running.stop().await;
    drop(consumer);
    db.run(&format!("set role {role}")).await;
    for table in ["tasks", "task_output", "lease", "executor"] {
        let refused = db.refused(&format!("select * from tuskline.{table}")).await;
        assert!(refused.starts_with("42501"), "{refused}");
    }
    assert!(db.refused("select payload from tuskline.task").await.starts_with("42501"));
    db.run("reset role").await;
    db.assert_invariants().await;
}

#[tokio::test]
async fn a_monitor_examines_all_as_a_member_of_its_group() {
    let db = Db::with_lambda("work").await;
    let (monitor, config) = member(&db, "monitor").await;
    db.define("later").await; // its tables are younger than the grants
    let worker = db.worker("work").await;
    db.schedule_many("work", 3).await;
    worker.take().await;
    let names = |json: Value| -> Vec<String> {
        let lines = json.as_array().unwrap().iter();
        lines.map(|line| format!("{} {}", line["verdict"], line["examined"])).collect()
    };
    for call in ["doctor --json", "doctor --verify --json"] {
        let [by_owner, by_monitor] = [&db.config, &config].map(|config| {
            let ran = on(config, call).run();
            names(serde_json::from_str(&ran.out).unwrap_or_else(|_| panic!("{}", ran.err)))
        });
        assert_eq!(by_owner, by_monitor, "{call}");
    }
    let ran = on(&config, "doctor --monitoring").run();
    assert!(ran.code < 3 && ran.out.starts_with("TUSKLINE "), "{}", ran.out);
    db.run(&format!("set role {monitor}")).await;
    for sql in [
        "select payload from tuskline.task",
        "select payload from tuskline.periodics",
        "select payload from tuskline.periodic",
        "select tuskline.cancel(1)",
    ] {
        assert!(db.refused(sql).await.starts_with("42501"), "{sql}");
    }
    db.run("reset role").await;
}

/// Tasks in each state, with a secret in each payload, output and checkpoint. Returns their ids.
async fn with_secrets(db: &Db) -> Vec<i64> {
    db.define("ordered").await;
    db.run("select tuskline.set_order('ordered', 'block')").await;
    let worker = db.worker_with(&["work", "ordered"], Duration::from_secs(60)).await;
    let mut ids = Vec::new();
    for _ in 0..5 {
        ids.push(db.schedule_with("work", r#"{"card": "s3cret"}"#).await);
    }
    for status in ["success", "fatal_failure", "retriable_failure"] {
        let said = format!(
            r#""status": "{status}", "output": {{"card": "s3cret"}}, "message": "declined""#
        );
        worker.note(&worker.take().await, &said).await;
    }
    let task = worker.take().await;
    let progress = format!(
        "select tuskline.set_progress({}, {}, 50, 'half', '{{\"card\": \"s3cret\"}}')",
        task.id, task.fence
    );
    db.run(&progress).await;
    let order =
        "select tuskline.schedule('ordered', '{\"card\": \"s3cret\"}', p_ordering_key => 'k')";
    ids.push(db.one(order).await);
    while db.enqueue_due().await > 0 {}
    worker.fail_for_good(&worker.claim(2).await[1]).await;
    ids.push(db.one(order).await);
    db.run("select tuskline.gate('work', 'pause', p_reason => 'a test', p_priority => 'low')")
        .await;
    ids
}

/// The commands that only look, for tasks with these ids.
fn looks(ids: &[i64]) -> Vec<String> {
    let mut calls: Vec<String> = [
        "top",
        "top --view queues",
        "top --view executors",
        "top --view waits",
        "top --view dead",
        "stats",
        "stats --by queue",
        "stats --by cause",
        "stats --by executor",
        "task list",
        "task list --status dead",
        "lambda list",
        "lambda show work",
        "gate list",
        "limit list",
        "order blocked",
        "unique-key list",
        "breaker list",
        "dead-letter groups",
        "dead-letter list",
    ]
    .map(str::to_owned)
    .into();
    calls.extend(
        ids.iter().flat_map(|id| [format!("task status {id}"), format!("task explain {id}")]),
    );
    let as_json: Vec<String> = calls.iter().map(|call| format!("--json {call}")).collect();
    calls.extend(as_json);
    calls
}

#[tokio::test]
async fn a_monitor_looks_at_everything_and_sees_no_payload() {
    let db = Db::with_lambda("work").await;
    let ids = with_secrets(&db).await;
    let (monitor, config) = member(&db, "monitor").await;
    db.define("later").await; // its tables are younger than the grants
    for call in looks(&ids) {
        let ran = on(&config, &call).run();
        assert_eq!((ran.code, &*ran.err), (0, ""), "{call}");
        assert!(!ran.out.contains("s3cret"), "{call}: {}", ran.out);
    }
    let status = format!("task status {}", ids[1]);
    let own = "payload          - (this login has no right to read it)";
    let printed = on(&config, &status).run().fine();
    assert!(printed.contains(own) && printed.contains("declined"), "{printed}");
    let by_owner = on(&db.config, &status).run().fine();
    assert!(by_owner.contains("s3cret"), "{by_owner}");
    let mut top = OnTerminal::start(on(&config, "top --view dead"));
    top.until_shown("declined").await;
    top.press("\r");
    top.until_shown("payload     -").await;
    top.press("\u{1b}");
    top.until_gone("payload     -").await;
    top.press("g");
    top.until_shown("No worker claims a task").await;
    top.press("why\r");
    top.until_shown("permission denied").await;
    top.press("q");
    assert!(top.end().await.success());
    db.run(&format!("set role {monitor}")).await;
    for sql in [
        "select payload from tuskline.task",
        "select payload from tuskline.tasks",
        "select payload from tuskline.dead_letters",
        "select * from tuskline.operations",
        "select * from tuskline.task_output",
        "select * from tuskline.task_failure",
        "select * from tuskline.progress",
        "select * from tuskline.task_archive",
        "select * from tuskline.periodics",
        "select tuskline.task_status(1)",
        "select tuskline.cancel(1)",
        "select tuskline.schedule('work')",
        "update tuskline.task set status = 'new'",
    ] {
        assert!(db.refused(sql).await.starts_with("42501"), "{sql}");
    }
    db.run("reset role").await;
}

#[tokio::test]
async fn a_viewer_looks_at_everything_and_changes_nothing() {
    let db = Db::with_lambda("work").await;
    let ids = with_secrets(&db).await;
    let (viewer, config) = member(&db, "viewer").await;
    db.define("later").await; // its tables are younger than the grants
    let more = ["operation list", "periodic list"].map(str::to_owned);
    let dead: i64 = db.one("select id from tuskline.dead_letters limit 1").await;
    let calls = looks(&ids).into_iter().chain(more).chain([format!("dead-letter show {dead}")]);
    for call in calls {
        let ran = on(&config, &call).run();
        assert_eq!((ran.code, &*ran.err), (0, ""), "{call}");
    }
    let printed = on(&config, &format!("dead-letter show {dead}")).run().fine();
    let by_owner = on(&db.config, &format!("dead-letter show {dead}")).run().fine();
    assert_eq!(printed, by_owner);
    db.run(&format!("set role {viewer}")).await;
    let views: Vec<String> = db
        .all(
            "select c.oid::regclass::text from pg_class c
              where c.relnamespace = 'tuskline'::regnamespace and c.relkind = 'v'",
        )
        .await;
    for view in views {
        db.lines(&format!("select * from {view} limit 5")).await;
    }
    for sql in [
        "select * from tuskline.task",
        "select * from tuskline.task_output",
        "select tuskline.cancel(1)",
        "select tuskline.schedule('work')",
        "select tuskline.gate('work', 'pause', p_reason => 'why')",
        "select tuskline.repair()",
        "update tuskline.task set status = 'new'",
    ] {
        assert!(db.refused(sql).await.starts_with("42501"), "{sql}");
    }
    db.run("reset role").await;
}

#[tokio::test]
async fn an_operator_and_a_team_act_as_members_of_their_groups() {
    let db = Db::with_lambda("work").await;
    let id = db.schedule("work").await;
    let (_, operator) = member(&db, "operator").await;
    let (_, team) = member(&db, "team").await;
    for (config, call) in [
        (&operator, format!("task cancel {id}")),
        (&operator, "gate pause work --reason why".to_owned()),
        (&operator, "operation start cancel work --reason why --wait".to_owned()),
        (&team, "lambda define made".to_owned()),
        (&team, "limit set made --max-concurrency 3".to_owned()),
        (&team, "operation start purge made --reason why --wait".to_owned()),
    ] {
        on(config, &call).run().fine();
    }
    let refused = on(&operator, "lambda define other").run();
    assert!(refused.code == 1 && refused.err.contains("permission denied"), "{}", refused.err);
}

async fn connect(config: &Config) -> Client {
    let (client, connection) = config.connect(NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// A cluster without groups, in which the owner of the schema and the DBA are ordinary roles.
#[tokio::test]
async fn the_printed_sql_makes_the_groups_and_a_migration_grants_their_verbs() {
    let cluster = Cluster::temporary(settings()).await.unwrap();
    cluster.create_database("app", None).await.unwrap();
    let by = |role: &str| {
        let mut config = cluster.config("app");
        config.user(role);
        config
    };
    let admin = connect(&cluster.config("app")).await;
    admin
        .batch_execute(
            "create role dba login createrole; create role app_owner login;
             grant create on database app to app_owner; grant pg_monitor to dba with admin option",
        )
        .await
        .unwrap();
    let early = on(&by("dba"), "roles --print").run().refusal();
    assert!(early.contains("there is no schema tuskline"), "{early}");
    on(&by("app_owner"), "migrate").run().fine();
    let listed = on(&by("dba"), "--json roles").run().json();
    assert_eq!(keys(&listed), "exists members purpose role statements");
    assert!(listed.as_array().unwrap().iter().all(|group| group["exists"] == false), "{listed}");
    let printed = on(&by("dba"), "roles --print").run().fine();
    let dba = connect(&by("dba")).await;
    dba.batch_execute(&printed).await.unwrap();
    let again = on(&by("dba"), "roles --print").run().fine();
    assert_eq!(again, "-- No group is missing, and app_owner is a member of each.\n");
    let table = on(&by("dba"), "roles").run().fine();
    assert!(table.contains("tuskline_viewer") && table.contains("app_owner"), "{table}");
    let owner = connect(&by("app_owner")).await;
    let may = "select count(*) from pg_proc p
                where p.pronamespace = 'tuskline'::regnamespace
                  and has_function_privilege('tuskline_viewer', p.oid, 'execute')
                  and p.proname = 'explain'";
    let explains = async || owner.query_one(may, &[]).await.unwrap().get::<_, i64>(0);
    assert_eq!(explains().await, 0);
    on(&by("app_owner"), "migrate").run().fine();
    assert_eq!(explains().await, 1);
    owner
        .batch_execute(
            "select tuskline.define_lambda('work');
             set role tuskline_scheduler; select tuskline.schedule('work');
             set role tuskline_viewer; select * from tuskline.tasks; reset role;
             set role tuskline_monitor; select * from pg_stat_activity",
        )
        .await
        .unwrap();
    // A role of such a name that can log in is no group: a migration leaves it alone.
    dba.batch_execute("alter role tuskline_viewer login").await.unwrap();
    owner
        .batch_execute("reset role; grant execute on function tuskline.adopt to tuskline_viewer")
        .await
        .unwrap();
    on(&by("app_owner"), "migrate").run().fine();
    let adopts = "select has_function_privilege('tuskline_viewer', p.oid, 'execute')
                    from pg_proc p where p.proname = 'adopt'";
    assert!(owner.query_one(adopts, &[]).await.unwrap().get::<_, bool>(0));
    let printed = on(&by("dba"), "roles --print").run().fine();
    assert!(printed.contains("\nalter role tuskline_viewer nologin;\n"), "{printed}");
    dba.batch_execute(&printed).await.unwrap();
    on(&by("app_owner"), "migrate").run().fine();
    assert!(!owner.query_one(adopts, &[]).await.unwrap().get::<_, bool>(0));
}
