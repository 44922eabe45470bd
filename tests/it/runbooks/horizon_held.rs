//! A session that forgot its transaction keeps the dead rows of twelve thousand tasks.

use tuskline_sdk::{Context, Lambda};

use super::{Installation, ok_lines};
use crate::support::{Running, calm};

/// Tasks that run while the horizon is held. Each leaves two dead rows in the store, and one in its queue.
const TASKS: i32 = 12_000;

/// Dead rows of all tables, and bytes of the queues, as the statistics have them.
const DEAD: &str = "select sum(pg_stat_get_dead_tuples(oid))::bigint from pg_class
    where relnamespace in ('tuskline'::regnamespace, 'tuskline_core'::regnamespace) and relkind = 'r'";
const QUEUES: &str = "select sum(pg_relation_size(oid))::bigint from pg_class
    where relnamespace = 'tuskline_core'::regnamespace and relname ~ '^queue_[0-9]+$'";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_holder_is_named_and_ended_and_the_tables_shrink() {
    let place = Installation::new(&[("autovacuum", "off")]).await;
    let db = &place.db;
    db.define("work").await;
    db.run("create role report login").await;
    let forgotten = db.connect().await;
    let begin = "set application_name = 'nightly'; set statement_timeout = 0; set role report;
                 begin isolation level repeatable read; select now()";
    forgotten.batch_execute(begin).await.unwrap();
    let pid: i32 = forgotten.query_one("select pg_backend_pid()", &[]).await.unwrap().get(0);
    let done = Lambda::named("work", async |(): (), _: Context| Ok::<_, String>(()));
    let worker = Running::start(db, calm(), vec![done]);
    db.schedule_many("work", TASKS / 2).await;
    db.schedule_many("work", TASKS / 2).await;
    place.until_drained(&all_succeeded()).await;
    // The doctor warns from 20,000 dead rows of one table on, and the statistics come a little later.
    let most = DEAD.replace("sum(", "max(");
    db.until(&format!("select ({most}) > 20000 from pg_stat_force_next_flush()")).await;
    let (dead, bytes): (i64, i64) = (db.one(DEAD).await, db.one(QUEUES).await);

    let mut book = place.runbook("horizon-held");
    book.set("OLD_AFTER", "0s");
    book.set("PID", pid);
    book.set("ROLE", "report");
    let said = book.perform("Confirm").await;
    let lines: Vec<_> = said.lines().collect();
    let [bloat, horizon] = lines[..] else { panic!("two lines: {said}") };
    assert!(
        bloat.starts_with("warn  bloat ") && bloat.contains("the horizon is held by"),
        "{said}"
    );
    assert!(horizon.starts_with("warn  xmin horizon "), "{said}");
    for part in ["  held for ", &format!(" by pid {pid}, user "), " application nightly,"] {
        assert!(horizon.contains(part), "{part} is in {said}");
    }
    let said = book.perform("1. Look at the holder").await;
    assert!(said.contains(&pid.to_string()), "{said}");
    // The page does as the doctor tells.
    let findings = place.findings("doctor --old-after 0s");
    let finding = findings.iter().find(|line| line["examined"] == "xmin horizon").unwrap();
    assert_eq!(finding["command"], format!("select pg_terminate_backend({pid})"));
    book.perform("2. End it").await;
    assert!(forgotten.is_closed() || forgotten.simple_query("select 1").await.is_err());
    book.perform("3. Vacuum what has grown").await;
    let (dead_now, bytes_now): (i64, i64) = (db.one(DEAD).await, db.one(QUEUES).await);
    println!("{dead} dead rows, {bytes} bytes; then {dead_now}, {bytes_now}");
    assert!(dead_now < dead / 10, "{dead} dead rows, then {dead_now}");
    assert!(bytes_now < bytes / 10, "{bytes} bytes of queues, then {bytes_now}");
    book.set("OLD_AFTER", "5m");
    let said = book.perform("It is over when").await;
    assert_eq!(ok_lines(&said), ["bloat", "xmin horizon"], "{said}");
    book.perform("Afterwards").await;
    book.close();

    db.schedule_many("work", 100).await;
    place.until_drained(&all_succeeded()).await;
    assert_eq!(db.count("success").await, i64::from(TASKS) + 100);
    worker.stop().await;
    db.assert_nothing_left().await;
}

fn all_succeeded() -> String {
    "select not exists (select from tuskline.tasks where status <> 'success')".to_owned()
}
