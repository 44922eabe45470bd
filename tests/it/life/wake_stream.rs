//! A stream of single inserts sends few notifications, however many lambdas and workers share it.

use std::time::Duration;

use crate::support::{Db, Gate, Running, calm};

/// A safety poll far beyond the test's deadline.
fn never_polls() -> tuskline_sdk::WorkerConfig {
    let mut config = calm();
    config.safety_poll = Duration::from_secs(3_600);
    config
}

/// Each lambda is quiet by itself. On a machine that is too slow for a stream, the rounds go on.
#[tokio::test]
async fn a_stream_into_many_lambdas_sends_few_notifications() {
    let db = Db::new().await;
    db.run(
        "create sequence tuskline.notified;
         create or replace function tuskline_core.is_watched(p_queue integer) returns boolean language sql as
           'select case when pg_try_advisory_xact_lock_shared(1953854315, tuskline.bell_of(p_queue)) then false
                        else nextval(''tuskline.notified'') > 0 end'",
    )
    .await;
    let gate = Gate::open();
    let names: Vec<_> = (0..10).map(|n| format!("work_{n}")).collect();
    for name in &names {
        db.define(name).await;
    }
    let lambdas = names.iter().map(|name| gate.lambda(name)).collect();
    let worker = Running::start(&db, never_polls(), lambdas);
    for name in &names {
        db.until_asleep(name).await;
    }
    let mut counts = Vec::new();
    while counts.last().is_none_or(|last| *last > 500) {
        assert!(counts.len() < 20, "notifications of 2,000 inserts each: {counts:?}");
        let before: i64 = db.one("select last_value from tuskline.notified").await;
        db.run(
            "do $$ begin
               for number in 1..2000 loop
                 perform tuskline.schedule('work_' || number % 10);
                 commit;
               end loop;
             end $$",
        )
        .await;
        let after: i64 = db.one("select last_value from tuskline.notified").await;
        counts.push(after - before);
    }
    db.until_count("success", counts.len() * 2000).await;
    worker.stop().await;
    db.assert_nothing_left().await;
}

#[tokio::test]
async fn an_insert_asks_for_one_lock_however_many_workers_sleep() {
    let db = Db::with_lambda("work").await;
    db.run(
        "create sequence tuskline.asked;
         create or replace function tuskline_core.is_watched(p_queue integer) returns boolean language sql as
           'select nextval(''tuskline.asked'') is null
                or not pg_try_advisory_xact_lock_shared(1953854315, tuskline.bell_of(p_queue))'",
    )
    .await;
    let asked = "select case when is_called then last_value else 0 end from tuskline.asked";
    let gate = Gate::open();
    let mut workers = Vec::new();
    let mut done = 0;
    for count in [1, 6] {
        while workers.len() < count {
            workers.push(Running::start(&db, never_polls(), vec![gate.lambda("work")]));
        }
        db.until(&format!("select count(*) = {count} from tuskline.executor")).await;
        for insert in [
            "select tuskline.schedule('work')",
            "insert into tuskline.task (lambda) values ('work')",
        ] {
            db.until_asleep("work").await;
            let before: i64 = db.one(asked).await;
            db.run(insert).await;
            assert_eq!(db.one::<i64>(asked).await - before, 1, "{count} workers: {insert}");
            done += 1;
            db.until_count("success", done).await;
        }
    }
    for worker in workers {
        worker.stop().await;
    }
}
