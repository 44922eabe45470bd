//! The roles of `docs/dba.md`: a worker, a monitor and a read-only operator have the grants of the page, and these are enough.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::Value;
use tokio_postgres::Config;
use tuskline_sdk::{Context, Failure, Lambda, NewTask, Worker};

use crate::support::cli::on;
use crate::support::pty::OnTerminal;
use crate::support::{Db, Running, calm};

const PAGE: &str = include_str!("../../../docs/dba.md");

/// The statements of the page that grant to a role.
fn grants(role: &str) -> &'static str {
    let to = format!(
        "grant usage on schema tuskline{} to {role};",
        match role {
            "monitor" => ", tuskline_core",
            _ => "",
        }
    );
    let mut blocks = PAGE.split("```sql\n").filter_map(|rest| rest.split("```").next());
    blocks.find(|block| block.starts_with(&to)).unwrap()
}

/// A login with the grants of a role of the page, and its address.
async fn login(db: &Db, role: &str) -> (String, Config) {
    let login = format!("{role}_{}", db.config.get_dbname().unwrap());
    let granted = grants(role).replace(&format!(" to {role}"), &format!(" to {login}"));
    db.run(&format!("create role {login} login; grant {login} to current_user; {granted}")).await;
    let mut config = db.config.clone();
    config.user(&login);
    (login, config)
}

/// The names of functions that stand between quotes in a text.
fn quoted(text: &'static str) -> BTreeSet<&'static str> {
    let is_name = |word: &&str| word.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    text.split('\'').skip(1).step_by(2).filter(is_name).collect()
}

/// The functions of the schema that a source calls.
fn called(source: &'static str) -> impl Iterator<Item = &'static str> {
    let calls = source.split("tuskline.").skip(1);
    calls
        .filter_map(|rest| Some(rest.split_once('(')?.0))
        .filter(|name| name.chars().all(|c| c.is_ascii_lowercase() || c == '_'))
}

#[test]
fn the_grants_of_a_worker_are_the_functions_that_the_sdk_calls() {
    let sources = [
        include_str!("../../../worker-sdk/src/db/hsc.rs"),
        include_str!("../../../worker-sdk/src/db/hsc/exchange/statement.rs"),
        include_str!("../../../worker-sdk/src/worker/progress.rs"),
        include_str!("../../../worker-sdk/src/worker/context.rs"),
    ];
    let mut needed: BTreeSet<_> = sources.into_iter().flat_map(called).collect();
    assert!(needed.remove("define_lambda"), "of define_missing");
    assert!(needed.insert("parents"), "a client's call, which Context passes on");
    let mut granted = quoted(grants("worker"));
    assert!(granted.remove("tuskline"), "the schema");
    assert_eq!(granted, needed);
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
async fn a_worker_serves_tasks_with_the_grants_of_the_page() {
    let db = Db::with_lambda("work").await;
    let (role, config) = login(&db, "worker").await;
    db.run(&format!(
        "do $$ begin
           execute (select string_agg(format('grant execute on function %s to {role}', oid::regprocedure), '; ')
                      from pg_proc where proname = 'schedule'
                       and pronamespace in ('tuskline'::regnamespace, 'tuskline_core'::regnamespace));
         end $$"
    ))
    .await;
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
    for table in ["task", "tasks", "lease", "executor"] {
        let refused = db.refused(&format!("select * from tuskline.{table}")).await;
        assert!(refused.starts_with("42501"), "{refused}");
    }
    db.run("reset role").await;
    db.assert_invariants().await;
}

#[tokio::test]
async fn a_monitor_examines_all_with_the_grants_of_the_page() {
    let db = Db::with_lambda("work").await;
    let (monitor, config) = login(&db, "monitor").await;
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

#[tokio::test]
async fn a_read_only_operator_looks_at_everything_and_sees_no_payload() {
    let db = Db::with_lambda("work").await;
    let ids = with_secrets(&db).await;
    let (operator, config) = login(&db, "operator").await;
    db.define("later").await; // its tables are younger than the grants
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
    ]
    .map(str::to_owned)
    .into();
    calls.extend(
        ids.iter().flat_map(|id| [format!("task status {id}"), format!("task explain {id}")]),
    );
    for call in calls {
        for call in [call.clone(), format!("--json {call}")] {
            let ran = on(&config, &call).run();
            assert_eq!((ran.code, &*ran.err), (0, ""), "{call}");
            assert!(!ran.out.contains("s3cret"), "{call}: {}", ran.out);
        }
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
    db.run(&format!("set role {operator}")).await;
    for sql in [
        "select payload from tuskline.task",
        "select payload from tuskline.tasks",
        "select payload from tuskline.dead_letters",
        "select * from tuskline.task_output",
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
