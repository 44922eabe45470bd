//! A publication FOR ALL TABLES asks a key of every table that a row is updated in or deleted from.

use tuskline::config::JanitorOptions;
use tuskline::janitor::{self, Marks};
use tuskline::session::{Deadlines, Session};

use crate::support::{Db, within};

const PUBLISH: &str =
    "set client_min_messages = error; create publication everything for all tables";

#[tokio::test]
async fn every_table_that_is_published_has_a_replica_identity() {
    let db = Db::with_lambda("work").await;
    let none: Vec<String> = db
        .all(
            "select c.relname::text from pg_class c
              where c.relnamespace in ('tuskline'::regnamespace, 'tuskline_core'::regnamespace) and c.relkind = 'r' and c.relpersistence = 'p'
                and exists (select from pg_attribute a where a.attrelid = c.oid and a.attnum > 0)
                and c.relreplident <> 'f'
                and not exists (select from pg_index i where i.indrelid = c.oid and i.indisprimary)",
        )
        .await;
    assert!(none.is_empty(), "{none:?}");
}

#[tokio::test]
async fn the_verbs_of_owners_and_a_migration_go_on_under_a_publication_for_all_tables() {
    let db = Db::with_lambda("work").await;
    db.run(PUBLISH).await;
    for verbs in [
        "select tuskline.drop_limit(tuskline.set_limit('work', 1))",
        "select tuskline.drop_limit(tuskline.set_order('work'))",
        "select tuskline.ungate(tuskline.gate('work', 'pause', p_reason => 'no'))",
        "select tuskline.run_policies(); select tuskline.run_policies()",
        "select tuskline.set_breaker('work', 5); select tuskline.drop_breaker('work')",
        "select tuskline.set_unique('work', 'running')",
        "select tuskline.define_periodic('nightly', 'work', '0 1 * * *'); select tuskline.drop_periodic('nightly')",
        "select tuskline.alter_lambda('work', p_max_attempts => 3)",
        "select tuskline.schedule_chain('[{\"lambda\": \"work\", \"name\": \"a\"},
            {\"lambda\": \"work\", \"name\": \"b\", \"after\": [\"a\"]}]')",
    ] {
        db.run(verbs).await;
    }
    db.enqueue_due().await;
    let worker = db.worker("work").await;
    let first = worker.take().await;
    worker.succeed_with(&first, "[1]").await;
    db.enqueue_due().await;
    let second = worker.take().await;
    worker.fail(&second).await;
    assert_eq!(db.cancel(second.id).await, "cancelled");
    assert_eq!(db.one::<String>(&format!("select tuskline.retry({})", second.id)).await, "retried");
    let session = Session::open(&db.config, "test", Deadlines::PATIENT).await.unwrap();
    within(janitor::round(&session, &JanitorOptions::default(), &mut Marks::default()))
        .await
        .unwrap();
    db.run("update tuskline_core.stamp set digest = 'another'").await;
    within(tuskline::migrate::migrate(&db.config)).await.unwrap();
    db.run("delete from tuskline.audit").await;
}
