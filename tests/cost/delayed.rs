//! The cost of a call that schedules tasks for later: bytes of log, pages, and statements inside it.

use serde_json::Value;
use tokio_postgres::{Client, NoTls};
use tuskline_postgres::Cluster;

/// A call and its bounds: bytes of log, pages and statements, the call itself among these.
struct Call {
    sql: &'static str,
    wal_bytes: i64,
    pages: i64,
    statements: i64,
}

/// Measured on 15 and 18: 3,021 bytes, 82 pages, 7 statements; 492, 10, 6. By the trigger the pages
/// were 93 and 25, the statements 28 and 16.
const CALLS: [Call; 2] = [
    Call {
        sql: "select tuskline.schedule_many(array_fill('work'::text, array[10]),
                array_fill(to_json(repeat('x', 100)), array[10]),
                p_delays => array[null, null, null, null, interval '1 hour', null, null, null, null, null])",
        wal_bytes: 3_330,
        pages: 90,
        statements: 7,
    },
    Call {
        sql: "select tuskline.schedule('work', to_json(repeat('x', 100)), p_delay => '1 hour')",
        wal_bytes: 545,
        pages: 11,
        statements: 6,
    },
];

/// Calls before one is counted: the first ones of a session plan.
const WARM: usize = 40;

async fn connected(server: &Cluster) -> Client {
    let (client, connection) = server.config("postgres").connect(NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// Bytes of log and pages of the cheapest of some calls. A dearer one extends a table.
async fn log_and_pages(client: &Client, sql: &str) -> (i64, i64) {
    let explain = format!("explain (analyze, buffers, wal, timing off, format json) {sql}");
    let mut least = (i64::MAX, i64::MAX);
    for _ in 0..20 {
        let plan: Value = client.query_one(&explain, &[]).await.unwrap().get(0);
        let count = |name: &str| plan[0]["Plan"][name].as_i64().unwrap();
        let pages = count("Shared Hit Blocks") + count("Shared Read Blocks");
        least = (least.0.min(count("WAL Bytes")), least.1.min(pages));
    }
    least
}

/// Statements that one call executes, itself among them.
async fn statements(client: &Client, sql: &str) -> i64 {
    client
        .batch_execute("set pg_stat_statements.track = 'all'; select pg_stat_statements_reset()")
        .await
        .unwrap();
    client.batch_execute(sql).await.unwrap();
    client.batch_execute("set pg_stat_statements.track = 'none'").await.unwrap();
    let count = "select sum(calls)::bigint from pg_stat_statements
                  where query not like 'select pg_stat_statements_reset%' and query not like 'set %'";
    client.query_one(count, &[]).await.unwrap().get(0)
}

#[tokio::test]
async fn a_delayed_task_costs_no_more_than_its_bound() {
    let _alone = super::ALONE.lock().await;
    let server = super::server().await;
    let address = tuskline_sdk::Address::from(server.config("postgres"));
    tuskline::migrate::migrate(&address).await.unwrap();
    let client = connected(&server).await;
    client.batch_execute("select tuskline.define_lambda('work')").await.unwrap();
    let counts = server.binaries().have_library("pg_stat_statements");
    if counts {
        client.batch_execute("create extension pg_stat_statements").await.unwrap();
    }
    let mut found = Vec::new();
    for call in &CALLS {
        for _ in 0..WARM {
            client.batch_execute(call.sql).await.unwrap();
        }
        let (wal_bytes, pages) = log_and_pages(&client, call.sql).await;
        let statements = if counts { statements(&client, call.sql).await } else { 0 };
        let line =
            format!("{wal_bytes} bytes, {pages} pages, {statements} statements: {}", call.sql);
        println!("{line}");
        if wal_bytes > call.wal_bytes || pages > call.pages || statements > call.statements {
            found.push(line);
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}
