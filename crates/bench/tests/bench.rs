//! What the bench reports: the keys that other programs rely on, counts that are right, and costs that
//! are exact. Nothing here looks at a rate or a latency: those are the machine's.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use program::{Call, Ran, url};
use serde_json::Value;
use tuskline_postgres::{Cluster, Stop};

#[path = "../../../tests/it/support/help.rs"]
mod help;
#[path = "../../../tests/it/support/program.rs"]
mod program;

/// A call with these arguments.
fn call(arguments: &[&str]) -> Call {
    Call::of(Path::new(env!("CARGO_BIN_EXE_tuskline-bench")), arguments)
}

/// Keys of every measurement.
const KEYS: [&str; 18] = [
    "workload",
    "tasks",
    "seconds",
    "tasks_per_s",
    "p50_ms",
    "p95_ms",
    "p99_ms",
    "max_ms",
    "wal_bytes_per_task",
    "wal_records_per_task",
    "wal_fpi_per_task",
    "buffer_hits_per_task",
    "statement_hits_per_task",
    "server_cpu_us_per_task",
    "client_cpu_us_per_task",
    "commits_per_task",
    "statements_per_task",
    "dead_tuples_per_task",
];

/// Runs a workload on a server of its own.
fn bench(line: &str) -> Value {
    let words: Vec<_> = line.split(' ').chain(["--json"]).collect();
    checked(call(&words).run())
}

fn checked(ran: Ran) -> Value {
    let report = ran.json();
    for part in report["parts"].as_array().into_iter().flatten().chain([&report]) {
        for key in KEYS.into_iter().chain(["hot_share", "extra"]) {
            assert!(part.get(key).is_some(), "no {key}: {part}");
        }
    }
    assert!(report["machine"]["cpus"].as_u64().unwrap() >= 1);
    assert_eq!(report["versions"]["tuskline"], env!("CARGO_PKG_VERSION"));
    report
}

fn number(report: &Value, key: &str) -> f64 {
    report[key].as_f64().unwrap_or_else(|| panic!("{key} is no number: {report}"))
}

#[test]
#[ignore = "a server of its own, counted alone: --ignored --test-threads 1"]
fn a_drain_of_the_bench_is_durable_complete_and_exact() {
    let report = bench("drain --tasks 500");
    assert_eq!((&report["workload"], &report["tasks"]), (&"drain".into(), &500.into()));
    for setting in ["fsync", "synchronous_commit", "full_page_writes"] {
        assert_eq!(report["settings"][setting], "on", "{setting}");
    }
    // A claim and its result write some 230 bytes, page images of a fresh checkpoint besides.
    assert!((150.0..5000.0).contains(&number(&report, "wal_bytes_per_task")), "{report}");
    assert_eq!(number(&report, "hot_share"), 1.0);
    // Set-based: some dozen transactions of a worker's whole life, not one a task.
    assert!((0.002..0.3).contains(&number(&report, "commits_per_task")), "{report}");
    assert!(report["p50_ms"].is_null() && report.get("parts").is_none());
}

#[test]
#[ignore = "a server of its own, counted alone: --ignored --test-threads 1"]
fn a_single_schedule_is_one_commit_and_stands_beside_a_bare_insert() {
    let report = bench("singles --connections 1,2 --seconds 1");
    let parts = report["parts"].as_array().unwrap();
    assert_eq!(parts.len(), 2);
    for (part, connections) in parts.iter().zip([1, 2]) {
        assert_eq!(part["extra"]["connections"], connections);
        assert!((1.0..1.5).contains(&number(part, "commits_per_task")), "{part}");
        assert!(number(&part["extra"], "share_of_bare") > 0.0);
        assert!(number(part, "p50_ms") <= number(part, "max_ms"));
    }
    assert_eq!(report["part"], "2 connections");
}

#[test]
#[ignore = "a server of its own, counted alone: --ignored --test-threads 1"]
fn single_inserts_by_lambdas_have_a_row_for_each_number() {
    let report = bench("singles --lambdas 1,3 --connections 2 --seconds 1");
    let rows = report["rows"].as_array().unwrap();
    let lambdas: Vec<_> = rows.iter().map(|row| row["lambdas"].as_u64().unwrap()).collect();
    assert_eq!(lambdas, [1, 3]);
    assert!(rows.iter().all(|row| number(row, "tasks_per_s") > 0.0), "{report}");
}

#[test]
#[ignore = "a server of its own, counted alone: --ignored --test-threads 1"]
fn a_batch_of_the_bench_is_one_commit() {
    let report = bench("schedule-batch --tasks 2500 --batch 1000");
    assert_eq!(report["tasks"], 2500);
    // Three calls, and what a client asks once.
    assert!(number(&report, "commits_per_task") * 2500.0 < 12.0, "{report}");
}

#[test]
#[ignore = "a server of its own, counted alone: --ignored --test-threads 1"]
fn every_task_of_a_timed_run_starts() {
    let report = bench("latency --rate 50 --seconds 1 --connections 3");
    assert_eq!(report["tasks"], 50);
    assert!(number(&report, "p50_ms") > 0.0 && number(&report, "wal_bytes_per_task") > 0.0);
}

#[test]
#[ignore = "a server of its own, counted alone: --ignored --test-threads 1"]
fn a_copy_of_the_bench_is_one_commit() {
    let report = bench("copy --tasks 1500 --batch 1000");
    assert_eq!(report["tasks"], 1500);
    assert!(number(&report, "commits_per_task") * 1500.0 < 8.0, "{report}");
}

#[test]
#[ignore = "a server of its own, counted alone: --ignored --test-threads 1"]
fn a_life_costs_more_than_its_drain() {
    let report = bench("life --tasks 1000 --batch 100");
    // A task's row alone is written with its payload of 150 bytes.
    assert!(number(&report, "wal_bytes_per_task") > 400.0, "{report}");
    assert_eq!(number(&report, "hot_share"), 1.0);
}

#[test]
#[ignore = "a server of its own, counted alone: --ignored --test-threads 1"]
fn idleness_has_no_cost_per_task() {
    let report = bench("idle --seconds 1");
    assert!(report["wal_bytes_per_task"].is_null() && report["tasks_per_s"].is_null());
    let names: Vec<_> =
        report["parts"].as_array().unwrap().iter().map(|part| &part["part"]).collect();
    assert_eq!(names, ["worker", "server", "nobody"]);
    assert!(report["parts"][0]["extra"]["transactions_per_s"].is_number());
}

#[test]
#[ignore = "a server of its own, counted alone: --ignored --test-threads 1"]
fn a_rebuild_of_the_bench_finds_every_task() {
    let report = bench("rebuild --tasks 2000");
    assert_eq!(report["tasks"], 2000);
    assert!(number(&report, "seconds") > 0.0);
}

#[test]
#[ignore = "a server of its own, counted alone: --ignored --test-threads 1"]
fn the_tasks_of_a_killed_worker_are_run_again_within_the_bench() {
    let extra = &bench("recover --tasks 2000 --heartbeat-ms 500")["extra"];
    assert!(extra["tasks_held"].as_u64().unwrap() > 0, "{extra}");
    // Not before its lease is over: five heartbeats after the last one, which it had just sent or not.
    assert!(number(extra, "first_again_s") > 1.5, "{extra}");
}

#[test]
#[ignore = "a server of its own, counted alone: --ignored --test-threads 1"]
fn the_quiet_are_timed_before_and_during_a_flood() {
    let report = bench("flood --lambdas 3 --tasks 3000 --rate 100 --seconds 1");
    let (before, during) = (&report["parts"][0], &report["parts"][1]);
    assert_eq!((&before["part"], &during["part"]), (&"before".into(), &"during".into()));
    let quiet = during["extra"]["quiet_tasks"].as_u64().unwrap();
    assert_eq!(during["tasks"].as_u64().unwrap(), 3000 + quiet);
}

#[test]
#[ignore = "a server of its own, counted alone: --ignored --test-threads 1"]
fn a_held_horizon_has_a_first_and_a_last_window() {
    let report = bench("held-horizon --rate 60 --seconds 3 --connections 2");
    for (part, name) in report["parts"].as_array().unwrap().iter().zip(["first", "last"]) {
        assert_eq!(part["part"], name);
        assert!(part["tasks"].as_u64().unwrap() > 0 && number(part, "p50_ms") > 0.0, "{part}");
    }
    assert!(report["extra"]["buffer_hits_ratio"].is_number());
    let course = report["course"].as_array().unwrap();
    assert_eq!(course.len(), 3);
    assert!(number(&course[2], "at_s") >= 3.0 && number(&course[2], "p50_ms") > 0.0, "{report}");
}

#[test]
#[ignore = "a server of its own, counted alone: --ignored --test-threads 1"]
fn a_backlog_is_drained_beside_what_is_due_later_and_in_a_full_queue() {
    let report = bench("backlog --future 500,1000 --enqueued 2000 --tasks 500 --drains 2");
    let parts = report["parts"].as_array().unwrap();
    assert_eq!(
        parts.iter().map(|part| &part["part"]).collect::<Vec<_>>(),
        ["empty", "500 due later", "1000 due later", "2000 enqueued"]
    );
    assert_eq!((&parts[0]["tasks"], &parts[2]["tasks"]), (&500.into(), &500.into()));
    assert!(parts[3]["tasks"].as_u64().unwrap() >= 500);
    assert!(number(&parts[3]["extra"], "share_of_empty") > 0.0);
    assert_eq!(parts[1]["extra"]["drains_per_s"].as_array().unwrap().len(), 2);
}

#[test]
#[ignore = "a server of its own, counted alone: --ignored --test-threads 1"]
fn each_batch_is_scheduled_and_drained() {
    let report = bench("batch --batches 5,50 --tasks 500 --calls 20");
    let parts = report["parts"].as_array().unwrap();
    let tasks: Vec<_> = parts.iter().map(|part| part["tasks"].as_u64().unwrap()).collect();
    assert_eq!(tasks, [100, 500, 100, 500]);
    assert_eq!(parts[0]["extra"]["drain_batch"], 5);
    // Twenty calls, and what a client asks once.
    assert!(number(&parts[2], "commits_per_task") * 100.0 < 30.0, "{report}");
}

#[test]
#[ignore = "a server of its own, counted alone: --ignored --test-threads 1"]
fn more_processes_do_all_the_work_without_a_deadlock() {
    let report = bench("scale --tasks 1000 --workers 1,2 --consumers 1,2");
    let parts = report["parts"].as_array().unwrap();
    assert_eq!(parts.len(), 4);
    for part in parts {
        assert_eq!((&part["tasks"], &part["extra"]["deadlocks"]), (&1000.into(), &0.into()));
        assert!(number(&part["extra"], "ratio_to_first") > 0.0, "{part}");
    }
}

#[test]
fn a_file_that_cannot_be_written_is_refused_before_the_run() {
    let refused = |words: &[&str]| call(words).run().refusal();
    assert_eq!(
        refused(&["latency", "--csv", "/nonexistent/latency.csv"]),
        "2 error: --csv: there is no directory /nonexistent"
    );
    assert_eq!(
        refused(&["all", "--csv", "all.csv"]),
        "2 error: all has a CSV file of each round: give --out DIR"
    );
    let given = ["all", "--database-url", "postgresql://me@/x?host=/nowhere"];
    assert!(refused(&given).starts_with("2 error: this workload crashes the server"));
}

#[test]
#[ignore = "a server of its own, counted alone: --ignored --test-threads 1"]
fn a_timed_run_is_written_as_csv() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("latency.csv");
    let report = bench(&format!("latency --rate 50 --seconds 1 --csv {}", file.display()));
    let csv = std::fs::read_to_string(file).unwrap();
    assert!(csv.starts_with("part,figure,at,value\n"), "{csv}");
    assert!(csv.contains(&format!("\nlatency,p50_ms,,{}\n", number(&report, "p50_ms"))), "{csv}");
    assert!(csv.contains("\nlatency,took_ms,0.95,"), "{csv}");
}

#[test]
#[ignore = "a server of its own, counted alone, for minutes: --ignored --test-threads 1"]
fn the_table_has_every_row_and_every_round() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let words = ["all", "--quick", "--rounds", "2", "--json", "--out"];
    let measuring = call(&words).arg(out.to_str().unwrap());
    let silent = measuring.with(|command| {
        command.stdout(Stdio::null());
    });
    let mut child = silent.spawn_as_is(Stdio::null());
    let deadline = Instant::now() + Duration::from_secs(600);
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > deadline {
            child.kill().unwrap();
            panic!("it did not end");
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(child.wait().unwrap().success());
    let table = std::fs::read_to_string(out.join("table.json")).unwrap();
    let table: Value = serde_json::from_str(&table).unwrap();
    for row in table["rows"].as_array().unwrap() {
        let rounds = row["rounds"].as_array().unwrap();
        let once = ["held-horizon", "backlog"].contains(&row["step"].as_str().unwrap());
        assert_eq!(rounds.len(), if once { 1 } else { 2 }, "{row}");
        assert!(row["reached"].is_number() && rounds.iter().all(Value::is_number), "{row}");
        assert!(row["met"].is_boolean() || row["target"] == "", "{row}");
    }
    for file in ["table.txt", "drain-1-1.json", "drain-1-2.json", "flood-2.csv", "backlog-1.csv"] {
        assert!(out.join(file).is_file(), "{file}");
    }
}

#[test]
#[ignore = "a server of its own, counted alone: --ignored --test-threads 1"]
fn a_mix_fails_delays_and_postpones_what_it_should() {
    let report = bench("mixed --tasks 200");
    let extra = &report["extra"];
    assert_eq!((&extra["retried"], &extra["delayed"]), (&20.into(), &20.into()));
    assert_eq!((&extra["future"], &report["tasks"]), (&10.into(), &190.into()));
    assert!(extra["executed"].as_u64().unwrap() >= 210, "{extra}");
}

#[test]
#[ignore = "a server of its own, counted alone: --ignored --test-threads 1"]
fn the_papers_load_is_measured_for_each_number_of_lambdas() {
    let line = "paper --lambdas 2,3 --batch 5 --rate 200 --connections 2 --failing 0.5";
    let report = bench(&format!("{line} --warm-up 1 --seconds 2 --rounds 1"));
    let parts = report["parts"].as_array().unwrap();
    let names: Vec<_> = parts.iter().map(|part| &part["part"]).collect();
    assert_eq!(names, ["2 lambdas, batches of 5", "3 lambdas, batches of 5"]);
    assert_eq!(report["rows"][1]["lambdas"], 3);
    for part in parts {
        let extra = &part["extra"];
        assert!(number(part, "tasks") > 0.0 && number(extra, "accepted_per_s") > 0.0, "{part}");
        for priority in ["high", "normal", "low"] {
            assert!(number(extra, &format!("{priority}_p95_ms")) > 0.0, "{part}");
        }
        assert_eq!(extra["scheduling_processes"], 2);
        assert!(number(extra, "exchange_processes") >= 1.0, "{part}");
        assert!(number(extra, "exchange_private_mib") > 0.0, "{part}");
        let kinds = ["scheduling", "exchange", "control", "server", "autovacuum", "background"];
        let sum: f64 =
            kinds.iter().map(|kind| number(extra, &format!("{kind}_cpu_us_per_task"))).sum();
        // Each is rounded to four decimals.
        assert!(sum > number(part, "server_cpu_us_per_task") - 0.001, "{part}");
        assert_eq!(extra["rounds_tasks_per_s"].as_array().unwrap().len(), 1);
    }
}

#[test]
#[ignore = "a server of its own, counted alone: --ignored --test-threads 1"]
fn tasks_of_the_papers_load_are_single_calls_with_batches_of_one() {
    let line = "paper --lambdas 1 --batch 1 --rate 100 --priorities 1 --delayed 0 --failing 0";
    let report = bench(&format!("{line} --warm-up 1 --seconds 1 --rounds 2"));
    assert_eq!(report["part"], "1 lambdas, batches of 1");
    assert!(report["extra"].get("high_p95_ms").is_none(), "{report}");
    assert_eq!(report["extra"]["rounds_tasks_per_s"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn on_a_given_server_the_bench_leaves_nothing_behind() {
    let mut cluster = Cluster::temporary(vec![]).await.unwrap();
    let config = cluster.config("postgres");
    let report = checked(call(&["drain", "--tasks", "50", "--json"]).database(&url(&config)).run());
    assert_eq!(report["tasks"], 50);
    // It runs on this machine, so its processes are found.
    assert!(!report["server_cpu_us_per_task"].is_null());
    let (client, connection) = config.connect(tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    let left = "select count(*) from pg_database where datname like 'tuskline\\_bench%'";
    assert_eq!(client.query_one(left, &[]).await.unwrap().get::<_, i64>(0), 0);
    cluster.stop(Stop::Immediate).await.unwrap();
}

#[test]
#[ignore = "a server of its own, counted alone: --ignored --test-threads 1"]
fn options_of_the_bench_have_bounds() {
    for line in [
        "drain --tasks 0",
        "drain --payload-bytes 9",
        "schedule-batch --batch 10001",
        "recover --tasks 1",
        "paper --failing 1.1",
        "paper --priorities 5",
    ] {
        let ran = call(&line.split(' ').collect::<Vec<_>>()).run();
        assert_eq!(ran.code, 2, "{line}: {}", ran.err);
    }
    let ran = call(&["rebuild", "--database-url", "postgresql://me@/x?host=/nowhere"]).run();
    assert!(ran.refusal().starts_with("2 error: this workload crashes the server"));
}

/// After a change:
/// `INSTA_UPDATE=always cargo test -p tuskline-bench --test bench -- every_command_has_a_help`.
#[test]
fn every_command_has_a_help_that_fits_eighty_columns() {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/help");
    help::check_help(Path::new(env!("CARGO_BIN_EXE_tuskline-bench")), Path::new(dir));
}
