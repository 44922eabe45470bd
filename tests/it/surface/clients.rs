//! Clients of other languages schedule tasks and read their ids back, as members of the group that
//! `docs/clients.md` names. `tests/clients/run` fetches each client, and says so when it cannot.

use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::Value;
use tokio_postgres::config::Host;

use crate::support::Db;
use crate::support::cli::PASSWORD;

/// The exit code of `run` when a client is not available.
const SKIPPED: i32 = 77;

/// The ids that a client prints; none: the client is not available here.
async fn ids_of(db: &Db, client: &str) -> Option<Value> {
    let database = db.config.get_dbname().unwrap();
    let role = format!("app_{database}");
    db.run(&format!("create role {role} login password '{PASSWORD}' in role tuskline_scheduler"))
        .await;
    let Host::Unix(socket) = &db.config.get_hosts()[0] else { panic!("a socket") };
    let mut run = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients/run"));
    run.arg(client).env("PGHOST", socket).env("PGUSER", role).env("PGDATABASE", database);
    run.env("PGPASSWORD", PASSWORD).env_remove("PGPORT").stdin(Stdio::null());
    let said = tokio::task::spawn_blocking(move || run.output().unwrap()).await.unwrap();
    let complaint = String::from_utf8_lossy(&said.stderr).into_owned();
    if said.status.code() == Some(SKIPPED) {
        // The complaint goes to standard error directly: the test harness captures what the macros
        // print.
        std::io::stderr().write_all(complaint.as_bytes()).unwrap();
        return None;
    }
    assert!(said.status.success(), "{client}: {complaint}");
    Some(serde_json::from_slice(&said.stdout).unwrap())
}

async fn a_client_reads_its_ids_back(client: &str) {
    let db = Db::with_lambda("work").await;
    let Some(ids) = ids_of(&db, client).await else { return };
    for (call, status) in [("insert", "enqueued"), ("later", "new"), ("call", "enqueued")] {
        // JavaScript's drivers give a bigint as text.
        let id: i64 = ids[call].to_string().trim_matches('"').parse().unwrap();
        let sql = format!(
            "select status, payload ->> 'client' from tuskline.tasks where id = {id} and lambda = 'work'"
        );
        assert_eq!(db.lines(&sql).await, [format!("{status} | {client}")], "{client}: {call}");
    }
    let lost = "select count(*) from tuskline.task t
                 where not exists (select from tuskline.queued q where q.task_id = t.id)
                   and not exists (select from tuskline.timer m where m.task_id = t.id)";
    assert_eq!(db.one::<i64>(lost).await, 0, "{client}: each is in its queue or has a timer");
}

macro_rules! clients {
    ($($test:ident: $client:literal;)*) => {
        $(#[tokio::test]
        async fn $test() {
            a_client_reads_its_ids_back($client).await;
        })*
    };
}

clients! {
    psycopg_inserts_and_reads_the_id_back: "psycopg";
    asyncpg_inserts_and_reads_the_id_back: "asyncpg";
    sqlalchemy_core_inserts_and_reads_the_id_back: "sqlalchemy_core";
    the_sqlalchemy_orm_names_every_column_and_reads_the_id_back: "sqlalchemy_orm";
    django_inserts_and_reads_the_id_back: "django";
    node_pg_inserts_and_reads_the_id_back: "node_pg";
    knex_inserts_and_reads_the_id_back: "knex";
    drizzle_names_every_column_and_reads_the_id_back: "drizzle";
}
