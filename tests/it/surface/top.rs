//! `tuskline top` shows the installation on a terminal, and gives the terminal back.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::support::cli::{keys, on};
use crate::support::pty::OnTerminal;
use crate::support::{Db, ScriptedWorker, within};

const LAMBDAS: [&str; 3] = ["send_email", "charge_card", "resize_image"];

/// Reports attempts of a queue: `starts` in the bucket up to 100 ms or 10 s, `failed` of them.
async fn report(db: &Db, worker: &ScriptedWorker, queue: i32, counts: [(i16, i64); 6]) {
    let (counters, amounts): (Vec<i16>, Vec<i64>) = counts.into_iter().unzip();
    let sql = "select tuskline.report_attempts($1, array_fill($2::integer, array[6]), $3, $4)";
    db.client.execute(sql, &[&worker.executor, &queue, &counters, &amounts]).await.unwrap();
}

/// Makes an installation with something for each view: a reporting worker, a gate, an order, a
/// limit, a chain and a retry. It has dead letters with two causes, a lambda without a worker, and
/// a due time.
async fn in_a_bad_state() -> (Db, ScriptedWorker) {
    let db = Db::of_cell_0().await;
    for lambda in LAMBDAS {
        db.define(lambda).await;
    }
    db.define("nightly_report").await;
    db.run("select tuskline.alter_lambda('charge_card', p_retry_base => '1 minute')").await;
    db.pin().await;
    let worker = db.worker_with(&LAMBDAS, Duration::from_secs(20)).await;
    let email = db.queue("send_email", "normal").await;
    report(
        &db,
        &worker,
        email,
        [(1, 540), (2, 6), (100, 54_000), (103, 546), (200, 8_000), (204, 546)],
    )
    .await;
    let charge = db.queue("charge_card", "high").await;
    report(
        &db,
        &worker,
        charge,
        [(1, 60), (2, 40), (100, 900_000), (111, 100), (200, 9_000), (204, 100)],
    )
    .await;
    for (collection, message, tasks) in [("eu", "no such card", 3), ("us", "limit of 5 USD", 1)] {
        let sql = format!(
            "select tuskline.schedule('charge_card', '{{\"card\": 7}}', p_priority => 'high',
                                      p_collection => '{collection}')
               from generate_series(1, {tasks})"
        );
        db.run(&sql).await;
        for task in worker.claim(10).await {
            let said = format!(
                r#""status": "fatal_failure", "error_class": "Declined", "message": "{message}""#
            );
            worker.note(&task, &said).await;
        }
    }
    db.schedule("charge_card").await;
    worker.fail(&worker.take().await).await;
    db.schedule_many("charge_card", 2).await;
    worker.claim(2).await;
    db.run("select tuskline.set_order('resize_image')").await;
    db.run("select tuskline.schedule('resize_image', p_ordering_key => 'k') from generate_series(1, 4)")
        .await;
    while db.enqueue_due().await > 0 {}
    db.run("select tuskline.gate('resize_image', 'pause', p_reason => 'disk is full')").await;
    db.schedule_in("nightly_report", Duration::from_secs(3_600)).await;
    db.schedule("nightly_report").await;
    db.schedule_many("send_email", 12).await;
    db.advance(Duration::from_secs(7)).await;
    worker.heartbeat().await;
    db.run("analyze tuskline.dead_letter; select pg_stat_force_next_flush()").await;
    (db, worker)
}

#[tokio::test]
async fn each_view_shows_a_known_installation_at_80_and_at_160_columns() {
    let (db, _worker) = in_a_bad_state().await;
    let mut shown = String::new();
    for columns in [80, 160] {
        for view in ["lambdas", "queues", "executors", "waits", "dead"] {
            let call =
                on(&db.config, &format!("top --view {view}")).env("COLUMNS", columns.to_string());
            let said = call.run().fine();
            assert!(said.lines().all(|line| line.chars().count() <= columns), "{said}");
            shown.push_str(&format!("$ COLUMNS={columns} tuskline top --view {view}\n{said}\n"));
        }
    }
    let name = db.config.get_dbname().unwrap();
    insta::with_settings!({filters => vec![
        (r"database \S+ as .*? (\d\d:\d\d:\d\d UTC)", "database NAME TIME"), (name, "NAME"),
        (r"dead ~\d+", "dead ~N"),
    ]}, {
        insta::assert_snapshot!("top", shown);
    });
}

#[tokio::test]
async fn json_has_the_facts_of_all_views_and_ids_as_strings() {
    let (db, worker) = in_a_bad_state().await;
    let facts = on(&db.config, "--json top").run().json();
    let views = ["lambdas", "queues", "executors", "waits", "gates", "dead_groups"];
    let names: Vec<_> =
        views.iter().map(|view| format!("{view}: {}", keys(&facts[view]))).collect();
    insta::assert_snapshot!("json_keys", format!("{}\n{}", keys(&facts), names.join("\n")));
    let page = include_str!("../../../docs/top.md");
    let all = [keys(&facts), names.join(" ")].join(" ").replace(':', "");
    let missing: Vec<_> =
        all.split_whitespace().filter(|key| !page.contains(&format!("`{key}`"))).collect();
    assert!(missing.is_empty(), "docs/top.md lacks the keys {missing:?}");
    assert_eq!(facts["executors"][0]["executor_id"], worker.executor.to_string());
    assert_eq!(facts["gates"][0]["gate_id"], db.number(1).to_string());
    assert!(
        facts["dead_groups"].as_array().unwrap().iter().all(|one| one["latest_id"].is_string())
    );
    let waits: Vec<_> = facts["waits"].as_array().unwrap().iter().map(wait).collect();
    for expected in [
        "pause resize_image 1",
        "order resize_image 3",
        "due nightly_report 1",
        "retry charge_card 1",
        "worker send_email 12",
        "worker nightly_report 1",
    ] {
        assert!(waits.iter().any(|one| one == expected), "{expected}: {waits:?}");
    }
}

fn wait(row: &Value) -> String {
    format!("{} {} {}", row["cause"], row["lambda"], row["tasks"]).replace('"', "")
}

#[tokio::test]
async fn an_operator_pauses_a_lambda_and_opens_it_again() {
    let db = Db::with_lambda("send_email").await;
    db.schedule_many("send_email", 3).await;
    let mut top = OnTerminal::start(on(&db.config, "top --interval 200ms"));
    top.until_shown("no worker").await;
    top.press("g");
    top.until_shown("3 tasks stay queued").await;
    top.press("\r");
    top.until_shown("A reason is needed.").await;
    top.press("complaints");
    top.until_shown("complaints").await;
    top.press("\u{1b}");
    top.until_gone("complaints").await;
    assert_eq!(db.one::<i64>("select count(*) from tuskline.gates").await, 0);
    top.press("g");
    top.until_shown("3 tasks stay queued").await;
    top.press("too many complaints\r");
    top.until_shown("gated").await;
    let gate = "select concat_ws(' ', lambda, action, reason, parked) from tuskline.gates";
    assert_eq!(db.one::<String>(gate).await, "send_email pause too many complaints 3");
    top.press("u");
    top.until_shown("3 tasks that are queued behind it").await;
    top.press("answered all\r");
    top.until_shown("is open").await;
    top.until_shown("no worker").await;
    assert_eq!(
        db.one::<i64>("select count(*) from tuskline.gates where opened_at is null").await,
        0
    );
    top.press("q");
    assert!(top.end().await.success());
    top.assert_restored().await;
}

#[tokio::test]
async fn an_operator_redrives_a_cause_as_a_canary() {
    let (db, _worker) = in_a_bad_state().await;
    let mut top = OnTerminal::start(on(&db.config, "top --view dead"));
    top.until_shown("no such card").await;
    top.press("\r");
    top.until_shown("can return for").await;
    top.press("r");
    top.until_shown("3 tasks return to their queues (3 fatal_failure).").await;
    top.press("the bank is back\r");
    top.until_shown("redrives").await;
    let operation = "select concat_ws(' ', action, lambda, canary, reason) from tuskline.operation";
    assert_eq!(db.one::<String>(operation).await, "redrive charge_card t the bank is back");
    top.press("\u{1b}");
    top.until_shown("5 Dead letters").await;
    top.press("q");
    assert!(top.end().await.success());
}

#[tokio::test]
async fn the_terminal_is_given_back_at_ctrl_z_and_at_a_signal() {
    let db = Db::with_lambda("send_email").await;
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let mut top = OnTerminal::start(on(&db.config, "top"));
        top.until_shown("send_email").await;
        top.press("\u{1a}");
        top.until_stopped().await;
        top.assert_restored().await;
        top.signal(Signal::CONT);
        top.until_shown("send_email").await;
        assert!(top.has_screen());
        top.signal(signal);
        assert!(top.end().await.success());
        top.assert_restored().await;
    }
}

/// Lets sessions connect to the database, or no longer.
async fn allow_connections(db: &Db, allowed: bool) {
    let name = db.config.get_dbname().unwrap();
    let allow = format!("update pg_database set datallowconn = {allowed} where datname = '{name}'");
    db.run(&allow).await;
}

/// Ends the session of the screen, which cannot connect again until it is allowed.
async fn cut_off(db: &Db, top: &OnTerminal) {
    allow_connections(db, false).await;
    let cut = "select count(pg_terminate_backend(pid)) from pg_stat_activity
                where datname = current_database() and application_name = 'tuskline top'";
    assert_eq!(db.one::<i64>(cut).await, 1);
    top.until_shown("NO CONNECTION").await;
}

#[tokio::test]
async fn a_lost_database_is_told_and_found_again() {
    let db = Db::with_lambda("send_email").await;
    let mut top = OnTerminal::start(on(&db.config, "top --interval 200ms"));
    top.until_shown("send_email").await;
    cut_off(&db, &top).await;
    top.press("g");
    top.until_shown("nothing was changed").await;
    top.press("\u{1b}");
    allow_connections(&db, true).await;
    top.until_gone("NO CONNECTION").await;
    top.press("q");
    assert!(top.end().await.success());
}

#[tokio::test]
async fn a_row_that_is_opened_is_looked_into_on_the_next_connection_too() {
    let db = Db::with_lambda("send_email").await;
    let worker = db.worker("send_email").await;
    let fail = async |message: &str| {
        db.schedule("send_email").await;
        let said = format!(r#""status": "fatal_failure", "message": "{message}""#);
        worker.note(&worker.take().await, &said).await;
    };
    let mut top = OnTerminal::start(on(&db.config, "top --interval 200ms"));
    top.until_shown("send_email").await;
    cut_off(&db, &top).await;
    top.press("\r");
    top.until_shown("No dead letter").await;
    fail("no such address").await;
    allow_connections(&db, true).await;
    top.until_shown("no such address").await;
    cut_off(&db, &top).await;
    fail("mailbox full").await;
    allow_connections(&db, true).await;
    top.until_shown("mailbox full").await;
    top.press("q");
    assert!(top.end().await.success());
}

/// Rows and scans of tables that one look with all statements reads, past the catalogues.
async fn read_by_a_look(db: &Db) -> (i64, i64, i64) {
    let read = "select sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0))::bigint,
                       (sum(seq_scan) filter (where relname ~ '^task_[0-9]+$'))::bigint,
                       (select sum(heap_blks_read + heap_blks_hit + coalesce(idx_blks_read, 0)
                               + coalesce(idx_blks_hit, 0)) from pg_statio_user_tables)::bigint
                  from pg_stat_user_tables";
    let counts = async || {
        db.until(
            "select not exists (select from pg_stat_activity
                                 where datname = current_database() and pid <> pg_backend_pid()
                                   and application_name = 'tuskline command')",
        )
        .await;
        db.run("select pg_stat_force_next_flush()").await;
        db.run("select pg_stat_clear_snapshot()").await;
        let row = db.client.query_one(read, &[]).await.unwrap();
        (row.get::<_, i64>(0), row.get::<_, i64>(1), row.get::<_, i64>(2))
    };
    let before = counts().await;
    on(&db.config, "--json top").run().fine();
    let after = within(counts()).await;
    (after.0 - before.0, after.1 - before.1, after.2 - before.2)
}

/// Tasks in four queues, timers, dead letters and waiters, all more than a look may read.
async fn fill(db: &Db, thousands: i32) {
    for _ in 0..thousands {
        db.schedule_many("send_email", 1_000).await;
        db.run(
            "select tuskline.schedule_many(array_fill('send_email'::text, array[1000]),
                                           p_delays => array_fill(interval '1 day', array[1000]));
             select tuskline.schedule_many(array_fill('charge_card'::text, array[1000]));
             insert into tuskline.dead_letter
             select coalesce(max(d.task_id), 0) + n, 'charge_card', 'dead', 'f' || n % 3, now()
               from generate_series(1, 1000) n left join tuskline.dead_letter d on true group by n",
        )
        .await;
    }
    db.run("vacuum analyze").await;
}

#[tokio::test]
async fn a_look_reads_a_bounded_number_of_rows_and_scans_no_task() {
    let db = Db::with_lambda("send_email").await;
    db.define("charge_card").await;
    db.run("select tuskline.set_limit('charge_card', 0)").await;
    fill(&db, 2).await;
    read_by_a_look(&db).await;
    let few = read_by_a_look(&db).await;
    fill(&db, 10).await;
    let many = read_by_a_look(&db).await;
    println!("rows, scans of tasks and pages: {few:?}, with six times as many tasks {many:?}");
    assert_eq!((few.1, many.1), (0, 0), "a scan of tasks");
    assert!(many.0 <= 10_000 && many.2 <= 6_000, "rows and pages: {many:?}");
}

/// The row of a name in a view of `top --json`.
fn row<'a>(facts: &'a Value, view: &str, matches: &[(&str, &str)]) -> &'a Value {
    let rows = facts[view].as_array().unwrap();
    let fits = |row: &&Value| matches.iter().all(|(key, value)| row[*key] == *value);
    rows.iter().find(fits).unwrap_or_else(|| panic!("{matches:?} in {rows:#?}"))
}

fn count(tasks: i64, and_more: bool) -> Value {
    serde_json::json!({"tasks": tasks, "and_more": and_more})
}

#[tokio::test]
async fn a_lambda_with_many_tasks_does_not_hide_those_of_another() {
    let db = Db::with_lambda("alpha").await;
    db.define("beta").await;
    db.define("gamma").await;
    let workers = (db.worker("alpha").await, db.worker("beta").await);
    db.schedule_many("alpha", 1_200).await;
    db.schedule_many("beta", 7).await;
    let mut claimed = 0;
    while claimed < 1_200 {
        claimed += workers.0.claim(500).await.len();
    }
    assert_eq!(workers.1.claim(10).await.len(), 7);
    db.run(
        "select tuskline.schedule_many(array_fill('alpha'::text, array[1200]),
                                       p_delays => array_fill(interval '1 h', array[1200]));
         select tuskline.schedule_many(array_fill('beta'::text, array[5000]),
                                       p_delays => array_fill(interval '2 h', array[5000]))",
    )
    .await;
    let facts = on(&db.config, "--json top").run().fine();
    let facts: Value = serde_json::from_str(&facts).unwrap();
    let lambda = |name: &str| row(&facts, "lambdas", &[("lambda", name)]);
    // Two workers share 1,000 rows, and the first 1,000 timers are of alpha.
    assert_eq!(lambda("alpha")["held"], count(500, true));
    assert_eq!(lambda("beta")["held"], count(7, false));
    assert_eq!(lambda("gamma")["held"], count(0, false));
    assert_eq!(lambda("alpha")["waiting"], count(1_000, true));
    for name in ["beta", "gamma"] {
        assert_eq!(lambda(name)["waiting"], count(0, true), "{name}");
        assert_eq!(lambda(name)["health"], "ok", "{name}");
        let due = row(&facts, "waits", &[("lambda", name), ("cause", "due")]);
        assert_eq!((&due["tasks"], &due["and_more"]), (&0.into(), &true.into()));
    }
    let executor = workers.1.executor.to_string();
    assert_eq!(row(&facts, "executors", &[("executor_id", &executor)])["held"], count(7, false));
}

#[tokio::test]
async fn a_worker_that_met_its_bound_may_hold_tasks_of_each_of_its_lambdas() {
    let db = Db::with_lambda("alpha").await;
    db.define("beta").await;
    let worker = db.worker_with(&["alpha", "beta"], Duration::from_secs(20)).await;
    db.schedule_many("alpha", 1_100).await;
    let mut claimed = 0;
    while claimed < 1_100 {
        claimed += worker.claim(500).await.len();
    }
    db.schedule_many("beta", 7).await;
    assert_eq!(worker.claim(10).await.len(), 7);
    let facts: Value = serde_json::from_str(&on(&db.config, "--json top").run().fine()).unwrap();
    let held = |name: &str| row(&facts, "lambdas", &[("lambda", name)])["held"].clone();
    assert_eq!((held("alpha"), held("beta")), (count(1_000, true), count(0, true)));
    let shown = on(&db.config, "top").env("COLUMNS", "100").run().fine();
    let beta = shown.lines().find(|line| line.starts_with("beta")).unwrap();
    assert!(beta.contains('?') && !beta.contains("idle"), "{beta}");
}

#[tokio::test]
async fn a_list_breaks_no_word_on_80_columns() {
    let (db, _worker) = in_a_bad_state().await;
    db.run(
        "select tuskline.throttle('charge_card', 5, p_reason => 'the bank asked for fewer requests')",
    )
    .await;
    let fingerprint = "select fingerprint from tuskline.dead_letters order by id desc limit 1";
    let fingerprint: String = db.one(fingerprint).await;
    for (call, whole) in [
        ("dead-letter list --limit 2", [&*fingerprint, "fatal_failure", "charge_card", "Declined"]),
        ("dead-letter groups", [&*fingerprint, "charge_card", "Declined", "USD"]),
        ("limit list", ["charge_card", "requests", "second", "fewer"]),
    ] {
        let mut program = OnTerminal::start(on(&db.config, call));
        for word in whole {
            program.until_shown(word).await;
        }
        assert!(program.end().await.success());
        println!("{call}:\n{}", program.screen());
        assert!(!program.screen().contains("COLLECTION"), "no value, no column");
    }
    // Names that are too long for columns stand below each other.
    let long = "a".repeat(63);
    db.define(&long).await;
    db.run(&format!("select tuskline.set_order('{long}')")).await;
    let mut program = OnTerminal::start(on(&db.config, "limit list"));
    program.until_shown(&long).await;
    assert!(program.end().await.success());
    println!("{}", program.screen());
}
