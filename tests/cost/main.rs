//! The cost gate: the cost of a task in WAL, pages, statements and commits, beside a recorded
//! bound.
//!
//! The costs are counted, not timed. They are the same on a slow machine and on a fast one, except
//! for the shapes of batches, which the bounds allow for. A server of its own counts no other work.
//! It writes no page images, vacuums nothing by itself, and need not survive the machine.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod bounds;
mod delayed;
mod large;
mod pages;
mod queues;
mod rights;
mod workers;

use std::fmt::Write as _;
use std::process::{Command, Stdio};

use bounds::{BOUNDS, Bounds, KEYS};
use serde_json::Value;
use tokio::sync::Mutex;
use tokio_postgres::NoTls;
use tuskline_postgres::{Binaries, Cluster};

/// The log is the whole server's and the cores are few: one measurement at a time.
static ALONE: Mutex<()> = Mutex::const_new(());

async fn server() -> Cluster {
    let mut settings = vec![
        ("autovacuum", "off"),
        ("shared_buffers", "128MB"),
        ("checkpoint_timeout", "1h"),
        ("max_wal_size", "4GB"),
    ];
    match Binaries::find().unwrap().have_library("pg_stat_statements") {
        true => settings.push(("shared_preload_libraries", "pg_stat_statements")),
        false => eprintln!("SKIPPED: statements per task, as this server cannot count them"),
    }
    let owned = settings.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
    Cluster::temporary(owned.collect()).await.unwrap()
}

/// The report of a workload, or of its first part.
fn measure(server: &Cluster, line: &str) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_tuskline-bench"))
        .args(["--json", "--database-url", &server.url("postgres")])
        .args(line.split(' '))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{line}: {said}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    report["parts"].get(0).cloned().unwrap_or(report)
}

/// Lists the costs of a report that lie above their bounds, a line each. It prints all costs.
fn excess(server: &Cluster, bounds: &Bounds, report: &Value) -> Vec<String> {
    let mut table = format!("{}\n", bounds.line);
    let mut found = Vec::new();
    for (key, cost) in KEYS.iter().zip(&bounds.costs) {
        let Some(figure) = report[key].as_f64() else {
            let _ = writeln!(table, "  {key:22} not counted here");
            continue;
        };
        let bound = cost.bound(server.binaries().major);
        let line = format!("{key:22} {figure:10.4}  bound {bound:10.4}");
        let _ = writeln!(table, "  {line}");
        if figure > bound {
            found.push(format!("{}: {line}", bounds.line));
        }
    }
    if let Some(share) = report["hot_share"].as_f64() {
        let _ = writeln!(table, "  {:22} {share:10.4}  bound     0.9990", "hot_share");
        if share < 0.999 {
            found.push(format!("{}: only {share} of the updates touched no index", bounds.line));
        }
    }
    println!("{table}");
    found
}

fn bounds_of(name: &str) -> &'static Bounds {
    BOUNDS.iter().find(|bounds| bounds.line.starts_with(name)).unwrap()
}

#[tokio::test]
async fn no_task_costs_more_than_its_bound() {
    let _alone = ALONE.lock().await;
    let server = server().await;
    let mut found = Vec::new();
    for bounds in &BOUNDS {
        found.extend(excess(&server, bounds, &measure(&server, bounds.line)));
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// The same tasks in twice as many commits.
#[tokio::test]
async fn a_second_commit_for_each_batch_is_seen() {
    let _alone = ALONE.lock().await;
    let server = server().await;
    let report = measure(&server, "schedule-batch --tasks 20000 --batch 500");
    let found = excess(&server, bounds_of("schedule-batch"), &report).join("\n");
    assert!(found.contains("commits_per_task"), "{found}");
    let report = measure(&server, "batch --batches 250 --tasks 40000");
    let found = excess(&server, bounds_of("drain"), &report).join("\n");
    assert!(found.contains("commits_per_task"), "{found}");
}

/// An index on a column that changes, in every database that is made from now on.
const INDEX_STATUS: &str = "
create function public.index_status() returns event_trigger language plpgsql as $$
begin
  if to_regclass('tuskline.task') is not null and to_regclass('tuskline.task_by_status') is null then
    create index task_by_status on tuskline.task (status);
  end if;
end $$;
create event trigger index_status on ddl_command_end when tag in ('COMMENT')
  execute function public.index_status();";

#[tokio::test]
async fn an_index_on_a_column_that_changes_is_seen() {
    let _alone = ALONE.lock().await;
    let server = server().await;
    let (client, connection) = server.config("template1").connect(NoTls).await.unwrap();
    let connection = tokio::spawn(connection);
    client.batch_execute(INDEX_STATUS).await.unwrap();
    drop(client);
    connection.await.unwrap().unwrap();
    let found =
        excess(&server, bounds_of("drain"), &measure(&server, bounds_of("drain").line)).join("\n");
    assert!(found.contains("touched no index"), "{found}");
    assert!(found.contains("wal_bytes_per_task"), "{found}");
}
