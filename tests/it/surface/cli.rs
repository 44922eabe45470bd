//! The command line: what it prints, on which stream, with which exit code.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use tokio_postgres::Config;

use crate::support::cli::{PASSWORD, TUSKLINE, keys, on, processes_in, tuskline, url};
use crate::support::help::check_help;
use crate::support::{Db, LEASE, shared};

/// Makes an empty database.
async fn empty() -> Config {
    let name = format!("{}_empty", Db::new().await.config.get_dbname().unwrap());
    shared().create_database(&name, None).await.unwrap();
    shared().config(&name)
}

/// Makes calls, one after the other; returns them as they look on a screen.
fn session(database: &Config, lines: &[&str]) -> String {
    let mut screen = String::new();
    for line in lines {
        let ran = on(database, line).run();
        writeln!(screen, "$ tuskline {line}\n{}{}", ran.out, ran.err).unwrap();
        if ran.code != 0 {
            screen.truncate(screen.trim_end().len());
            writeln!(screen, "\n(exit {})\n", ran.code).unwrap();
        }
    }
    screen
}

/// Compares with the snapshot, after names have replaced the values that differ from run to run.
fn check(name: &str, screen: &str) {
    let mut settings = insta::Settings::clone_current();
    for (pattern, name) in [
        (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[.\d]*(Z|\+00(:00)?)", "[time]"),
        (r"(\d+(ms|s|m|h|d) )+ago", "[while] ago"),
        (r"\[while\] ago +", "[while] ago  "),
        (r"DUE +", "DUE          "),
        (r"PostgreSQL \d+\.\d+.*", "PostgreSQL [version]"),
        (r"database \S+ as tuskline at \S+, port 5432", "database [name] at [place]"),
        (r"-?\d+ ms from", "[n] ms from"),
        (r"\d+ of 197 open now", "[n] of 197 open now"),
        (r"\d+ kB in use", "[n] kB in use"),
        (r"\d+ dead rows", "[n] dead rows"),
        (r"tuskline, the owner of the schema, .*", "[no ordinary role]"),
        (r"alter database test_\d+", "alter database [name]"),
        (r"held( for| \(|  *by).*", "held [by a holder or none]"),
        (r"queue_\d+", "queue_[n]"),
        (r"tuskline \d+\.\d+\.\d+", "tuskline [version]"),
    ] {
        settings.add_filter(pattern, name);
    }
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, screen));
}

/// After a change: `INSTA_UPDATE=always cargo test --test it -- every_command_has_a_help`.
#[test]
fn every_command_has_a_help_that_fits_eighty_columns() {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/surface/snapshots/help");
    check_help(Path::new(TUSKLINE), Path::new(dir));
}

/// The help of each command, by its words after `tuskline`.
fn helps() -> Vec<(Vec<String>, String)> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/surface/snapshots/help");
    let files = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let words = |path: &Path| -> Vec<String> {
        path.file_stem().unwrap().to_str().unwrap().split('_').skip(1).map(str::to_owned).collect()
    };
    files.map(|path| (words(&path), std::fs::read_to_string(&path).unwrap())).collect()
}

#[test]
fn the_page_of_commands_lists_each_command_and_variable() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/commands.md");
    let page = std::fs::read_to_string(page).unwrap();
    let helps = helps();
    assert!(helps.len() > 60, "{}", helps.len());
    // The first column of the rows of one command, as `task schedule`, `wait`, `cancel`, `retry`.
    let rows = || page.lines().filter_map(|row| row.strip_prefix("| `")?.split(" |").next());
    for (words, help) in &helps {
        let Some(command) = words.first() else { continue };
        let names = rows().map(|row| row.split([' ', '`', ',']).collect::<Vec<_>>());
        let names: Vec<_> = names.filter(|names| names[0] == command).flatten().collect();
        assert!(words.iter().all(|word| names.contains(&word.as_str())), "{words:?} in {names:?}");
        for variable in help.split("[env: ").skip(1) {
            let variable = variable.split(']').next().unwrap();
            assert!(page.contains(&format!("| `{variable}` |")), "{variable}");
        }
    }
}

#[tokio::test]
async fn migrate_says_what_it_did() {
    let database = empty().await;
    check(
        "migrate",
        &session(
            &database,
            &[
                "migrate",
                "migrate",
                "migrate --json",
                "migrate --installation prod",
                "migrate --installation prod",
                "migrate --installation staging",
                "adopt --as staging --hold --reason copy",
                "adopt --as Staging",
            ],
        ),
    );
    let fresh = on(&empty().await, "migrate --json").run().json();
    assert_eq!(keys(&fresh), "applied cell functions installation schema_version");
}

#[tokio::test]
async fn a_cell_is_chosen_by_the_first_migration() {
    let database = empty().await;
    let lines = [
        "migrate --cell 64",
        "migrate --cell=-1",
        "migrate --cell 5 --installation prod",
        "migrate --cell 5",
        "migrate",
        "migrate --cell 6",
        "lambda define send_email",
        "task schedule send_email",
    ];
    check("cell", &session(&database, &lines));
}

#[tokio::test]
async fn lambdas_are_defined_altered_listed_and_shown() {
    let db = Db::of_cell_0().await;
    let screen = session(
        &db.config,
        &[
            "lambda list",
            "lambda define send_email --max-attempts 3 --retention 7d --no-direct",
            "lambda define send_email",
            "lambda define send_email --max-attempts 4",
            "lambda alter send_email",
            "lambda alter send_email --direct --attempt-timeout 90s",
            "lambda list",
            "lambda show send_email",
            "lambda show nobody",
            "lambda alter nobody --max-attempts 4",
            "lambda define Nobody",
            "lambda define send_sms --max-attempts 0",
            "lambda define send_sms --direct --no-direct",
        ],
    );
    check("lambda", &screen);
}

#[tokio::test]
async fn tasks_are_scheduled_followed_and_cancelled() {
    let db = Db::of_cell_0_with("work").await;
    let screen = session(
        &db.config,
        &[
            "task list",
            "task schedule work {\"to\":\"ada\"} --priority high --collection mails",
            "task schedule work --at 2020-01-01T00:00:00Z",
            "task status 1",
            "task list",
            "task list --lambda other",
            "task list --priority high --status enqueued --collection mails",
            "task cancel 2 --reason mistake",
            "task cancel 2",
            "task cancel 77",
            "task status 77",
            "task wait 2",
            "task wait 1 --timeout 0s",
            "task wait 77",
        ],
    );
    check("task", &screen);
}

#[tokio::test]
async fn gates_limits_and_orders_are_set_listed_explained_and_taken_away() {
    let db = Db::of_cell_0_with("work").await;
    let mut screen = session(
        &db.config,
        &[
            "gate list",
            "gate pause work --collection news --unseen --for 90d --reason maintenance",
            "gate divert work --collection news --reason again",
            "gate divert work --for 90d --reason fraud",
            "gate drop work --priority high --reason again",
            "gate pause work",
            "gate list",
            "gate open 2",
            "gate open 2",
            "limit list",
            "limit set work --max-concurrency 2",
            "limit set work --per-second 5 --burst 10 --priority high",
            "limit throttle work 2 --for 90d --reason slowly",
            "limit set work --max-concurrency 1 --by-key",
            "limit set work --max-concurrency 1 --collection news --fair",
            "limit weight 5 acme 3",
            "limit weight 1 acme 3",
            "limit set work --per-second -1",
            "limit set work",
            "order set work --on-failure guess",
            "order set work",
            "task schedule work --ordering-key a --limit-key b --fairness-key c",
            "task explain 1",
            "task explain 1 --json",
            "task explain 99",
            "limit list",
            "order blocked",
            "order unblock work a",
            "limit drop 1",
            "limit drop 1",
        ],
    );
    db.run("select tuskline.run_policies()").await;
    screen += &session(&db.config, &["gate list", "limit list"]);
    check("control", &screen);
    assert!(screen.lines().all(|line| line.starts_with(['$', '[']) || line.chars().count() <= 100));
}

#[tokio::test]
async fn dead_letters_are_listed_previewed_redriven_and_purged() {
    let db = Db::of_cell_0_with("work").await;
    // The clock is pinned to seconds with six digits: a column is as wide as its times.
    db.run("update tuskline_test.pin set at = '2026-01-02 03:04:05.678901+00'").await;
    let worker = db.worker("work").await;
    db.run("select tuskline.schedule('work', '{\"n\": 1}', p_collection => 'news')").await;
    db.schedule_many("work", 2).await;
    for task in worker.claim(3).await {
        let note = r#""status": "fatal_failure", "error_class": "fatal", "message": "order 17 is unknown to all the accounts of this bank""#;
        worker.note(&task, note).await;
    }
    let mut screen = session(
        &db.config,
        &[
            "dead-letter list",
            "dead-letter list --collection none",
            "dead-letter groups",
            "dead-letter show 1",
            "dead-letter show 99",
            "operation start redrive",
            "operation start redrive work",
            "operation start redrive work --dry-run",
            "operation start redrive --id 1 --id 2 --dry-run --json",
            "operation list",
            "operation start redrive --id 1 --payload {\"n\":2} --reason typo",
            "operation start redrive work --per-second 0 --reason fixed",
            "operation start redrive work --canary --reason fixed",
            "operation stop 2",
            "operation stop 2",
            "breaker list",
            "breaker set work --failures 5 --window 5m",
            "breaker set work --share 2",
            "breaker set nobody",
            "breaker list",
            "breaker drop work",
            "breaker drop work",
        ],
    );
    db.run("select tuskline.run_policies()").await;
    db.run("select tuskline.run_policies()").await;
    let more = [
        "operation list",
        "dead-letter list",
        "operation start purge work --status dead,fatal_failure --older-than 0s --wait",
        "dead-letter list",
    ];
    screen += &session(&db.config, &more);
    check("dead", &screen);
}

#[tokio::test]
async fn a_command_that_waits_for_an_operation_tells_how_it_ended() {
    let db = Db::of_cell_0_with("work").await;
    let worker = db.worker("work").await;
    for (again, code, said) in [
        (false, 0, "operation 1 is done: changed 1 of 1 tasks\n"),
        (true, 1, "operation 2 is died_again: changed 1 of 1 tasks, task 2 died again: "),
    ] {
        db.schedule("work").await;
        worker.fail_for_good(&worker.take().await).await;
        let waiting =
            on(&db.config, "operation start redrive work --canary --reason fixed --wait").start();
        let released =
            "select exists (select from tuskline.operation where changed = 1 and ended_at is null)";
        db.until(released).await;
        db.enqueue_due().await;
        let task = worker.take().await;
        match again {
            true => worker.fail_for_good(&task).await,
            false => worker.succeed(&task).await,
        };
        db.run("select tuskline.run_policies()").await;
        let ran = waiting.end();
        assert_eq!((ran.code, ran.err.as_str()), (code, ""));
        assert!(ran.out.starts_with(said), "{}", ran.out);
    }
}

#[tokio::test]
async fn chains_unique_keys_and_many_at_once() {
    let db = Db::of_cell_0_with("work").await;
    db.define("mail").await;
    let chain = r#"[
        {"lambda": "work", "name": "fetch"},
        {"lambda": "work", "name": "first", "after": ["fetch"]},
        {"lambda": "work", "name": "second", "after": ["fetch"]},
        {"lambda": "mail", "name": "tell", "after": ["first", "second"], "on_parent_failure": "hold"},
        {"lambda": "mail", "after": [{"task": "tell", "on": "always"}, {"task": "fetch", "on": "failure"}]}]"#;
    let schedule = on(&db.config, "chain schedule - --json").run_with_input(chain).json();
    assert_eq!(schedule["ids"].as_array().unwrap().len(), 5);
    let worker = db.worker("work").await;
    worker.succeed(&worker.take().await).await;
    worker.fail_for_good(&worker.take().await).await;
    let screen = session(
        &db.config,
        &[
            "chain show 1",
            "chain show 1 --dot",
            "task retry 1",
            "task retry 99",
            "chain show 99",
            "chain retry 1",
            "chain cancel 1 --reason enough",
            "chain cancel 1 --json",
            "chain schedule /nonexistent",
            "unique-key list",
            "unique-key set work --scope period --for 10m --outcome reject",
            "unique-key set work --scope period",
            "unique-key list",
            "task schedule work --unique-key a",
            "task schedule work --unique-key a",
            "unique-key drop mail",
            "unique-key drop work",
            "operation start cancel work --dry-run",
            "operation start cancel work --reason enough --wait",
            "operation start retry work --status cancelled --wait --json",
            "operation start priority work --to high --status success",
            "operation start collection nowork --to news",
            "operation start collection work",
            "operation start drop work",
            "operation wait 1",
            "operation wait 99",
            "operation stop 1",
            "operation list",
        ],
    );
    check("together", &screen);
    assert!(screen.lines().all(|line| line.chars().count() <= 120), "{screen}");
}

#[tokio::test]
async fn what_is_kept_for_how_long_is_set_shown_and_purged() {
    let db = Db::of_cell_0_with("work").await;
    db.pin().await;
    let worker = db.worker("work").await;
    db.schedule_many("work", 5).await;
    let tasks = worker.claim(5).await;
    worker.succeed_all(&tasks[..3]).await;
    worker.fail(&tasks[3]).await;
    worker.stopped(&tasks[4]).await;
    db.advance(std::time::Duration::from_secs(90)).await;
    let retry = tasks[3].id;
    db.enqueue_due().await;
    worker.note(&worker.take().await, r#""status": "fatal_failure", "error_class": "fatal", "message": "the account of this order is closed, and has been for years""#).await;
    let screen = session(
        &db.config,
        &[
            "lambda alter work --cancelled-retention 1h --fatal-retention 90d --archive table",
            "lambda show work",
            "lambda alter work --cancelled-retention same",
            "lambda alter work --cancelled-retention soon",
            "lambda alter work --archive tape",
            "lambda define mail --dropped-retention same --archive table",
            &format!("task status {retry}"),
            "operation start purge",
            "operation start purge --status new",
            "operation start purge nobody",
            "operation start purge work --archive-dir /nonexistent",
            "operation start purge work --dry-run",
            "operation start purge work --dry-run --json",
            "operation start purge --status success --status cancelled --older-than 2m --dry-run",
            "operation start purge --status success,cancelled --limit 2 --reason enough --wait",
            "operation start purge work --older-than 1m --wait --json",
            "operation start purge work --older-than 0s --wait",
            "task list",
        ],
    );
    check("keeping", &screen);
    let audited: i64 =
        db.one("select count(*) from tuskline.audit where verb = 'start_operation'").await;
    assert_eq!(audited, 3, "once a run, and none for a preview");
}

#[tokio::test]
async fn schedules_are_defined_shown_paused_and_dropped() {
    let db = Db::of_cell_0_with("work").await;
    let define = "periodic define new_year work @yearly {\"n\":1} --zone";
    let defined = format!("{define} Europe/Berlin --overlap skip");
    let mut settings = insta::Settings::clone_current();
    settings.add_filter(r"\w{3} \d{4}-01-01 00:00:00 CET", "[local]");
    let _filters = settings.bind_to_scope();
    let screen = session(
        &db.config,
        &[
            "periodic list",
            &defined,
            &defined,
            &format!("{define} Europe/Berln"),
            "periodic list",
            "periodic show new_year",
            "periodic pause new_year --reason noise",
            "periodic pause nobody",
            "periodic list",
            "periodic resume new_year",
            "periodic show nobody",
            "periodic preview nobody",
            "periodic preview",
            "periodic drop new_year",
            "periodic list",
        ],
    );
    check("periodic", &screen);
}

#[test]
fn ticks_are_foreseen_without_a_database() {
    let preview = |more: &[&str]| {
        let words = [
            "periodic",
            "preview",
            "--cron",
            "30 2 * * *",
            "--zone",
            "Europe/Berlin",
            "--after",
            "2026-10-24T12:00:00Z",
        ];
        tuskline(&[&words, more].concat()).run()
    };
    let shown = preview(&[]).fine();
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines.len(), 11);
    assert_eq!(lines[1], "Sun 2026-10-25 02:30:00 CEST  2026-10-25T00:30:00Z");
    assert_eq!(lines[2], "Mon 2026-10-26 02:30:00 CET   2026-10-26T01:30:00Z");
    let json = preview(&["--json"]).json();
    assert_eq!(
        (&json[0]["utc"], &json[0]["local"]),
        (&"2026-10-25T00:30:00Z".into(), &"2026-10-25T02:30:00+02:00".into())
    );
    let refused = tuskline(&["periodic", "preview", "--cron", "61 * * * *"]).run();
    assert!(
        refused.code == 2 && refused.err.contains("cron '61 * * * *' is not understood"),
        "{}",
        refused.err
    );
    let never = tuskline(&["periodic", "preview", "--cron", "0 0 30 2 *"]).run().fine();
    assert_eq!(never, "it has no tick ahead\n");
}

#[tokio::test]
async fn a_task_of_the_future_has_a_long_id_that_stays_whole() {
    let db = Db::of_cell_0_with("work").await;
    let id = on(&db.config, "task schedule work --in 1h").run().fine();
    let list = on(&db.config, "task list").run().fine();
    assert!(list.contains(&format!("\n{}  work", id.trim())), "{list}");
    assert!(list.contains("in 59m ") || list.contains("in 1h"), "{list}");
    assert_eq!(db.status(id.trim().parse().unwrap()).await, "new");
}

/// The ids of a page of `task list --json`, and what it says about the next page.
fn page(db: &Db, call: &str) -> (Vec<i64>, String) {
    let ran = on(&db.config, &format!("--json task list {call}")).run();
    assert_eq!(ran.code, 0, "{}", ran.err);
    let tasks: Value = serde_json::from_str(&ran.out).unwrap();
    let id = |task: &Value| task["id"].as_str().unwrap().parse().unwrap();
    (tasks.as_array().unwrap().iter().map(id).collect(), ran.err.trim_end().to_owned())
}

#[tokio::test]
async fn tasks_are_listed_by_their_time_of_creation_page_by_page() {
    let db = Db::with_lambda("work").await;
    db.define("rare").await;
    db.pin().await;
    let mut newest = Vec::new();
    for round in 0..7 {
        db.advance(Duration::from_secs(1)).await;
        newest.insert(0, db.schedule("work").await);
        if round % 3 == 1 {
            db.advance(Duration::from_secs(1)).await;
            newest.insert(0, db.schedule_in("work", Duration::from_secs(3_600)).await);
        }
    }
    db.run("select tuskline.schedule_many(array_fill('rare'::text, array[3]))").await;
    let rare: Vec<i64> = db
        .one("select array_agg(id order by id desc) from tuskline.tasks where lambda = 'rare'")
        .await;
    let all = [rare.clone(), newest].concat();
    assert_eq!(page(&db, "--limit 50"), (all.clone(), String::new()));
    let (mut found, mut before) = (Vec::new(), String::new());
    loop {
        let (ids, said) = page(&db, &format!("--limit 2{before}"));
        found.extend(ids);
        // A task that is scheduled meanwhile is on no later page.
        db.schedule("work").await;
        db.schedule_in("work", Duration::from_secs(60)).await;
        let Some(next) = said.strip_prefix("more: ") else { break };
        before = format!(" {next}");
    }
    assert_eq!(found, all);
    assert_eq!(page(&db, "--lambda rare --limit 2").0, rare[..2]);
    let (ids, said) = page(&db, "--lambda rare");
    assert_eq!((ids, said.as_str()), (rare, ""));
}

#[tokio::test]
async fn a_list_of_tasks_reads_no_more_than_it_shows() {
    let db = Db::with_lambda("work").await;
    for _ in 0..5 {
        db.schedule_many("work", 1_000).await;
        db.run("select tuskline.schedule_many(array_fill('work'::text, array[1000]),
                                              p_delays => array_fill('1 h'::interval, array[1000]))")
            .await;
    }
    let read = "select sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0))::bigint
                  from pg_stat_user_tables where relname ~ '^task_[0-9k]'";
    let quiet = "select not exists (select from pg_stat_activity
                   where datname = current_database() and application_name = 'tuskline command')";
    let mut counts = Vec::new();
    for _ in 0..2 {
        db.until(quiet).await;
        db.run("select pg_stat_force_next_flush()").await;
        db.run("select pg_stat_clear_snapshot()").await;
        counts.push(db.one::<i64>(read).await);
        assert_eq!(page(&db, "--limit 20").0.len(), 20);
    }
    assert!(counts[1] - counts[0] <= 100, "{counts:?}");
}

#[tokio::test]
async fn waiting_ends_with_the_task() {
    let db = Db::of_cell_0_with("work").await;
    let worker = db.worker("work").await;
    for (succeeds, code) in [(true, 0), (false, 1)] {
        let id = db.schedule("work").await;
        let waiting = on(&db.config, &format!("task wait {id}")).start();
        let task = worker.take().await;
        match succeeds {
            true => worker.succeed(&task).await,
            false => worker.fail_for_good(&task).await,
        };
        let ran = waiting.end();
        assert_eq!((ran.code, ran.err.as_str()), (code, ""));
        let status = if succeeds { "success" } else { "fatal_failure" };
        assert!(ran.out.contains(status), "{}", ran.out);
    }
}

#[tokio::test]
async fn a_task_that_a_worker_holds_is_asked_to_stop() {
    let db = Db::of_cell_0_with("work").await;
    let id = db.schedule("work").await;
    let _claimed = db.worker("work").await.take().await;
    let cancel = format!("task cancel {id}");
    let said = on(&db.config, &cancel).run().fine();
    assert_eq!(said, format!("task {id} is with a worker, which is asked to stop\n"));
    let json = on(&db.config, &format!("{cancel} --json")).run().json();
    assert_eq!(
        (json["id"].as_str(), json["answer"].as_str()),
        (Some(id.to_string().as_str()), Some("requested"))
    );
    let status = on(&db.config, &format!("task status {id}")).run().fine();
    for shown in ["claimed", "on host, pid 4711", "lease until", "cancel asked at"] {
        assert!(status.contains(shown), "{shown}: {status}");
    }
}

#[tokio::test]
async fn json_keeps_its_keys() {
    let db = Db::of_cell_0().await;
    let mut screen = String::new();
    for line in [
        "migrate",
        "lambda define work",
        "lambda alter work --max-attempts 1",
        "lambda list",
        "lambda show work",
        "task schedule work {\"to\":\"ada\"}",
        "task status 1",
        "task list",
        "task cancel 1",
        "operation start purge work --older-than 0s --wait",
        "operation list",
        "periodic define nightly work @daily",
        "periodic list",
        "periodic show nightly",
        "periodic preview nightly",
        "periodic pause nightly",
        "doctor",
    ] {
        let ran = on(&db.config, line).arg("--json").run();
        // The clusters of tests do without fsync, which the doctor takes for a failure.
        assert!(ran.code == 0 || line == "doctor", "{line}: {}", ran.err);
        assert_eq!(ran.out.lines().count(), 1, "{}", ran.out);
        let value: Value = serde_json::from_str(&ran.out).unwrap();
        writeln!(screen, "{line}: {}", keys(&value)).unwrap();
    }
    check("json_keys", &screen);
    assert_eq!(on(&db.config, "task list --json --lambda none").run().fine(), "[]\n");
}

#[tokio::test]
async fn json_errors_are_json() {
    let db = Db::of_cell_0().await;
    for (line, code) in [
        ("task status 1 --json", 1),
        ("lambda show work --json", 1),
        ("task schedule work --json", 2),
        ("task schedule work {bad --json", 2),
        ("task schedule work --in 5 --json", 2),
        ("task sched --json", 2),
    ] {
        let ran = on(&db.config, line).run();
        assert_eq!((ran.code, ran.out.as_str()), (code, ""), "{line}: {}", ran.err);
        let error: Value = serde_json::from_str(&ran.err).unwrap();
        assert_eq!(keys(&error), "error hint", "{line}");
        assert!(error["error"].is_string(), "{line}: {error}");
    }
}

#[tokio::test]
async fn the_doctor_examines_everything() {
    let db = Db::of_cell_0().await;
    let screen = session(&db.config, &["doctor"]);
    check("doctor", &screen);
    let database = empty().await;
    let ran = on(&database, "doctor").run();
    assert_eq!((ran.code, ran.err.as_str()), (1, ""));
    let line = ran.out.lines().find(|line| line.contains("schema")).unwrap();
    assert!(line.starts_with("FAIL") && line.ends_with(": tuskline migrate"), "{line}");
}

#[tokio::test]
async fn the_doctor_finds_lost_queues_and_missing_segments() {
    let db = Db::of_cell_0().await;
    db.run("delete from tuskline_core.queues_complete").await;
    let ran = on(&db.config, "doctor").run();
    let line = ran.out.lines().find(|line| line.contains("queues")).unwrap();
    assert!(line.starts_with("FAIL") && line.contains("tuskline serve"), "{line}");
}

#[tokio::test]
async fn the_doctor_finds_dead_workers_that_no_store_consumer_ends() {
    let db = Db::of_cell_0_with("work").await;
    db.pin().await;
    let silent = db.worker("work").await;
    let line = || {
        let ran = on(&db.config, "doctor").run();
        ran.out.lines().find(|line| line.contains("workers ")).unwrap().to_owned()
    };
    assert!(line().starts_with("ok") && line().ends_with("1 alive"));
    db.advance(LEASE * 3).await;
    db.worker("work").await;
    assert!(line().starts_with("warn") && line().contains("1 of 2 silent"), "{}", line());
    db.run(&format!("select tuskline.end_executor({})", silent.executor)).await;
    assert!(line().ends_with("1 alive"), "{}", line());
}

#[tokio::test]
async fn the_doctor_finds_more_workers_than_the_server_has_connections_for() {
    let db = Db::of_cell_0_with("work").await;
    let line = || {
        let ran = on(&db.config, "doctor").run();
        ran.out.lines().find(|line| line.contains("connections  ")).unwrap().to_owned()
    };
    let register =
        "select tuskline.register_executor('h', 1, '{work}', '0', '20 s', 'default', 97)";
    db.run(register).await;
    assert!(line().starts_with("ok") && line().ends_with("workers may take 97"));
    db.run(&format!("{register}; {register}")).await;
    assert!(line().starts_with("warn") && line().contains("workers may take 291"), "{}", line());
}

#[tokio::test]
async fn the_doctor_finds_schedules_that_no_server_fires() {
    let db = Db::of_cell_0_with("work").await;
    let line = || {
        let ran = on(&db.config, "doctor").run();
        ran.out.lines().find(|line| line.contains("schedules ")).unwrap().to_owned()
    };
    db.run("select tuskline.define_periodic('nightly', 'work', '30 2 * * *')").await;
    db.run("select tuskline.define_periodic('weekly', 'work', '@weekly')").await;
    db.run("select tuskline.pause_periodic('weekly')").await;
    let said = line();
    assert!(
        said.starts_with("warn") && said.contains("1 of 2 with a problem: nightly: no server"),
        "{said}"
    );
    db.run("select tuskline.pause_periodic('nightly')").await;
    assert!(line().starts_with("ok") && line().ends_with("2 defined"), "{}", line());
}

#[tokio::test]
async fn what_came_from_outside_does_not_reach_the_terminal_raw() {
    let db = Db::of_cell_0_with("work").await;
    // `Ran` looks for control characters in everything that is printed.
    let evil = "\u{1b}[31mred\u{7}\r\u{9b}2J\u{202e}gnp\u{0}".trim_end_matches('\0');
    let payload = serde_json::to_string(evil).unwrap();
    let raw = format!("\"{}\"", "\u{9b}2J\u{202e}gnp");
    let schedule = on(&db.config, "task schedule work");
    let id = schedule.arg(&payload).run().fine().trim().to_owned();
    let raw_id = on(&db.config, "task schedule work").arg(&raw).run().fine().trim().to_owned();
    let worker = db.worker("work").await;
    for task in worker.claim(2).await {
        let fields = format!(
            r#""status": "retriable_failure", "error_class": "error", "message": {payload}"#
        );
        worker.note(&task, &fields).await;
    }
    for id in [&id, &raw_id] {
        let status = on(&db.config, &format!("task status {id}")).run().fine();
        assert!(status.contains("last error") && status.contains("[31mred"), "{status}");
        on(&db.config, &format!("task status {id} --json")).run().json();
    }
    on(&db.config, "task list").run().fine();
    on(&db.config, "task list --json").run().json();
    for call in [
        on(&db.config, "lambda show").arg(evil),
        on(&db.config, "lambda define").arg(evil),
        on(&db.config, "task schedule").arg(evil),
        on(&db.config, "task schedule work").arg(evil),
        on(&db.config, "task schedule work 1 --in").arg(evil),
        on(&db.config, "task schedule work 1 --at").arg(evil),
        on(&db.config, "task cancel").arg(evil),
        on(&db.config, "task list --status").arg(evil),
        tuskline(&[]).arg(evil),
    ] {
        call.run().refusal();
    }
}

#[tokio::test]
async fn a_reader_that_leaves_ends_us_quietly() {
    let db = Db::of_cell_0_with("work").await;
    db.schedule_many("work", 2_000).await;
    for line in
        ["task list --limit 2000", "task list --limit 2000 --json", "completions bash", "--help"]
    {
        let call = on(&db.config, line).with(|command| {
            let (reader, writer) = std::io::pipe().unwrap();
            drop(reader);
            command.stdout(writer);
        });
        let mut child = call.spawn_as_is(Stdio::piped());
        let mut said = String::new();
        std::io::Read::read_to_string(&mut child.stderr.take().unwrap(), &mut said).unwrap();
        let status = child.wait().unwrap();
        assert_eq!((status.code(), said.as_str()), (Some(0), ""), "{line}: {status}");
    }
}

#[tokio::test]
async fn a_duration_without_a_unit_is_refused() {
    let db = Db::of_cell_0_with("work").await;
    let screen = session(
        &db.config,
        &[
            "task schedule work --in 5",
            "task schedule work --in -5s",
            "task schedule work --in 1h30m",
            "task schedule work --in soon",
            "task wait 1 --timeout 5",
            "lambda define other --attempt-timeout 5",
            "lambda define other --retry-base 5",
            "lambda define other --retention 5",
            "lambda alter work --retry-cap 5",
            "lambda alter work --dead-retention 5",
        ],
    );
    check("durations", &screen);
    assert_eq!(db.one::<i64>("select count(*) from tuskline.tasks").await, 0);
}

#[tokio::test]
async fn a_wrong_call_exits_with_two_and_says_what_is_wrong() {
    let db = Db::of_cell_0_with("work").await;
    let screen = session(
        &db.config,
        &[
            "migrat",
            "task schedule",
            "task schedule other",
            "task schedule work {bad",
            "task schedule work \"\\u0000\"",
            "task schedule work 1 2",
            "task schedule work 1 --priority urgent",
            "task schedule work 1 --at tomorrow",
            "task schedule work 1 --in 5s --at 2030-01-01T00:00:00Z",
            "task schedule work 1 --in 4000d",
            "task schedule work 1 --collection Bad!",
            "task status x",
            "task list --limit 0",
            "task list --limt 5",
            "lambda define",
            "serve --roles cook",
            "serve --listen nowhere",
            "serve --archive-dir",
            "dev --port 70000",
            "completions cobol",
        ],
    );
    check("wrong_calls", &screen);
    for refused in screen.split("\n\n").filter(|part| part.starts_with('$')) {
        assert!(refused.ends_with("(exit 2)"), "{refused}");
    }
}

#[tokio::test]
async fn a_payload_comes_from_standard_input_too() {
    let db = Db::of_cell_0_with("work").await;
    let schedule = || on(&db.config, "task schedule work -");
    let id: i64 = schedule().run_with_input("{\"n\": 1}\n").fine().trim().parse().unwrap();
    let payload: String =
        db.ask("select payload::text from tuskline.task where id = $1", &[&id]).await;
    assert_eq!(payload, "{\"n\": 1}\n");
    let bad = schedule().run_with_input("{\"n\": ").refusal();
    assert!(bad.starts_with("2 error: the payload is not JSON"), "{bad}");
    for bytes in [262_145, 1_048_576, 3_000_000] {
        let long = schedule().run_with_input(&format!("\"{}\"", "x".repeat(bytes - 2))).refusal();
        assert!(long.starts_with("2 error: TK004 payload_too_large"), "{long}");
    }
}

#[tokio::test]
async fn the_option_wins_over_the_variables() {
    let (db, other) = (Db::of_cell_0_with("ours").await, Db::of_cell_0_with("theirs").await);
    let (ours, theirs) = (url(&db.config), url(&other.config));
    let list = || tuskline(&["lambda", "list"]);
    let by_option = list().arg("--database-url").arg(&ours).database(&theirs);
    let by_variable = list().database(&ours).env("DATABASE_URL", &theirs);
    let by_usual_variable = list().env("DATABASE_URL", &ours);
    let by_usual_when_ours_is_empty = list().database("").env("DATABASE_URL", &ours);
    for call in [by_option, by_variable, by_usual_variable, by_usual_when_ours_is_empty] {
        let list = call.run().fine();
        assert!(list.contains("ours"), "{list}");
    }
    let none = list().run().refusal();
    assert!(none.starts_with("1 error: no database: give --database-url"), "{none}");
}

#[test]
fn an_address_that_is_not_understood_is_not_repeated() {
    let wrong = format!("postgresql://me:{PASSWORD}@[oops");
    let refusal = tuskline(&["task", "list"]).database(&wrong).run().refusal();
    assert!(refusal.starts_with("2 error: the address is not understood, give "), "{refusal}");
}

#[test]
fn an_address_in_the_wrong_place_is_not_repeated() {
    let address = format!("postgresql://me:{PASSWORD}@db.example/shop");
    let pairs = format!("host=db.example user=me password={PASSWORD}");
    for address in [&address, &address.replace("postgresql", "POSTGRES"), &pairs] {
        let option = format!("--listen={address}");
        let calls: [&[&str]; 10] = [
            &["doctor", address],
            &["serve", "--listen", address],
            &["serve", &option],
            &["doctor", "--old-after", address],
            &["doctor", "--json", address],
            &["serve", "--roles", address],
            &["health", "--listen", address],
            &["--database-ur", address, "doctor"],
            &[address, "doctor"],
            &["task", "schedule", "--in", address, "mail"],
        ];
        for call in calls {
            let ran = tuskline(call).run();
            assert_eq!(ran.code, 2, "{call:?}: {}", ran.err);
            let hint = "by --database-url";
            assert!(ran.err.contains(hint) || !ran.err.contains("hidden address"), "{}", ran.err);
        }
        let monitored = tuskline(&["doctor", "--monitoring", address]).run();
        assert_eq!(monitored.code, 3, "{}", monitored.out);
        assert!(monitored.out.contains("--database-url"), "{}", monitored.out);
        let by_variable = tuskline(&["serve"]).env("TUSKLINE_LISTEN", address).run();
        assert_eq!(by_variable.code, 2, "{}", by_variable.err);
    }
}

#[tokio::test]
async fn an_address_in_the_place_of_a_name_is_not_repeated() {
    let db = Db::new().await;
    let address = format!("postgresql://me:{PASSWORD}@db.example/{}", "x".repeat(300));
    for words in [
        ["lambda", "define", &address],
        ["task", "schedule", &address],
        ["task", "status", &address],
        ["periodic", "pause", &address],
    ] {
        let ran = tuskline(&words).database(&url(&db.config)).run();
        assert_ne!(ran.code, 0, "{words:?}");
    }
}

#[test]
fn completions_are_scripts() {
    for (shell, word) in [("bash", "complete -F"), ("zsh", "#compdef"), ("fish", "complete -c")] {
        let script = tuskline(&["completions", shell]).run().fine();
        assert!(script.contains(word) && script.contains("schedule"), "{shell}");
        assert!(script.contains("no-direct"), "{shell}");
    }
}

#[test]
fn the_version_is_that_of_the_package() {
    let version = tuskline(&["--version"]).run().fine();
    assert_eq!(version, concat!("tuskline ", env!("CARGO_PKG_VERSION"), "\n"));
}

#[tokio::test]
async fn psql_opens_the_same_database() {
    let db = Db::of_cell_0_with("work").await;
    let name = db.config.get_dbname().unwrap();
    let ask = "select current_database(), (select count(*) from tuskline.lambda)";
    let call = tuskline(&["psql", "--", "-X", "-A", "-t", "-c", ask]).database(&url(&db.config));
    let bin = shared().binaries().dir.display().to_string();
    assert_eq!(call.env("PATH", bin).run().fine(), format!("{name}|1\n"));
}

#[tokio::test]
async fn serve_stops_when_it_is_told_to() {
    let db = Db::of_cell_0_with("work").await;
    for signal in [Signal::TERM, Signal::INT] {
        let mut serving = on(&db.config, "serve").start();
        serving.until_said("serving");
        serving.signal(signal);
        let ran = serving.end();
        assert_eq!((ran.code, ran.out.as_str()), (0, ""), "{}", ran.err);
    }
}

#[test]
fn a_dev_server_is_found_by_the_other_commands_and_leaves_nothing_running() {
    let dir = crate::support::cli::open_dir();
    let data = dir.path().join("data dir");
    let at = |words: &[&str]| tuskline(words).env("TUSKLINE_DATA_DIR", &data);
    let mut dev = at(&["dev", "--json"]).start();
    let said: Value = serde_json::from_str(&dev.line()).unwrap();
    assert_eq!(keys(&said), "attached pages psql tcp url");
    assert_eq!(said["attached"], false);
    assert_eq!(at(&["lambda", "define", "work"]).run().fine(), "lambda work is defined\n");
    // A server's roles run: a timer that is due gets into its queue.
    let id = at(&["task", "schedule", "work", "--in", "1ms"]).run().fine();
    assert_eq!(at(&["task", "cancel", id.trim()]).run().code, 0);
    let doctor = at(&["doctor"]).run().fine();
    assert!(!doctor.contains("FAIL") && !doctor.contains("warn "), "{doctor}");
    let psql = |sql: &str| at(&["psql", "--", "-XAtc", sql]).run().fine();
    assert_eq!(psql("create role shop; select current_user"), "CREATE ROLE\ntuskline_owner\n");
    assert_eq!(psql("select tuskline.grant_lambda('work', 'shop', 'own')"), "t\n");
    let refused = at(&["migrate"]).run().refusal();
    assert!(refused.contains("no database"), "migrate wants an address: {refused}");
    assert!(!processes_in(&data).is_empty());
    dev.signal(Signal::INT);
    assert_eq!(dev.end().code, 0);
    assert_eq!(processes_in(&data), [""; 0]);
    let gone = at(&["task", "list"]).run().refusal();
    assert!(gone.contains("no database"), "{gone}");
}
