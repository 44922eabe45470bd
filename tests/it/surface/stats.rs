//! `tuskline stats` shows what happened in the last minutes, in a table that fits 80 columns.

use tuskline::store::figures::Histogram;

use crate::support::cli::on;
use crate::support::{Db, ScriptedWorker};

/// A worker of two lambdas that has reported, and a lambda whose tasks waited.
async fn busy() -> (Db, ScriptedWorker) {
    let db = Db::of_cell_0().await;
    for lambda in ["send_email", "resize_image"] {
        db.define(lambda).await;
    }
    db.pin().await;
    let worker =
        db.worker_with(&["send_email", "resize_image"], std::time::Duration::from_secs(20)).await;
    let (email, image) =
        (db.queue("send_email", "normal").await, db.queue("resize_image", "low").await);
    let report = format!(
        "{0}, '{{{1},{1},{1},{1},{1},{1},{2},{2},{2},{2},{2}}}', \
         '{{1,2,100,102,200,203,1,100,110,200,207}}', '{{54,6,600,60,1200,60,6,30000,6,4800,6}}'",
        worker.executor, email, image
    );
    db.run(&format!("select tuskline.report_attempts({report})")).await;
    db.run("select tuskline.set_order('resize_image')").await;
    for _ in 0..2 {
        db.run(
            "select tuskline.schedule('resize_image', p_ordering_key => 'k', p_priority => 'low')",
        )
        .await;
    }
    while db.enqueue_due().await > 0 {}
    let held = worker.claim(10).await;
    db.advance(std::time::Duration::from_secs(7)).await;
    worker.succeed_all(&held).await;
    while db.enqueue_due().await > 0 {}
    (db, worker)
}

#[tokio::test]
async fn stats_show_lambdas_queues_causes_and_workers() {
    let (db, _worker) = busy().await;
    let mut shown = String::new();
    for arguments in ["", " --by queue", " send_email", " --by cause", " --by executor"] {
        let call = on(&db.config, &format!("stats{arguments}"));
        let said = call.run().fine();
        assert!(said.lines().all(|line| line.chars().count() <= 80), "{said}");
        shown.push_str(&format!("$ tuskline stats{arguments}\n{said}\n"));
    }
    insta::assert_snapshot!("stats", shown);
    let json = on(&db.config, "--json stats --by cause resize_image").run().json();
    let causes: Vec<_> =
        json.as_array().unwrap().iter().map(|row| row["cause"].as_str().unwrap()).collect();
    assert_eq!(causes, ["worker", "order"]);
}

#[tokio::test]
async fn stats_count_as_dead_what_top_calls_dead() {
    let db = Db::with_lambda("work").await;
    db.run("select tuskline.alter_lambda('work', p_max_attempts => 1)").await;
    db.schedule_many("work", 3).await;
    let worker = db.worker("work").await;
    let tasks = worker.claim(3).await;
    worker.fail(&tasks[0]).await;
    worker.fail_for_good(&tasks[1]).await;
    worker.succeed(&tasks[2]).await;
    // The worker counts its attempts: a success, a retriable and a fatal failure.
    let (executor, queue) = (worker.executor, db.queue("work", "normal").await);
    let report = format!("{executor}, '{{{queue},{queue},{queue}}}', '{{1,2,3}}', '{{1,1,1}}'");
    db.run(&format!("select tuskline.report_attempts({report})")).await;
    let letters: i64 = db.one("select count(*) from tuskline.dead_letters").await;
    let row = &on(&db.config, "--json stats work").run().json()[0];
    assert_eq!((letters, &row["dead"]), (2, &2.into()));
}

#[tokio::test]
async fn the_share_that_failed_is_never_above_all() {
    let db = Db::with_lambda("work").await;
    db.run(
        "insert into tuskline_core.event_count (at, lambda, priority, event, events, total_ms)
         values (tuskline.clock(), 'work', 'normal', 'crashed', 3, 0)",
    )
    .await;
    let worker = db.worker("work").await;
    let (executor, queue) = (worker.executor, db.queue("work", "normal").await);
    let report = format!("{executor}, '{{{queue},{queue}}}', '{{1,203}}', '{{1,1}}'");
    db.run(&format!("select tuskline.report_attempts({report})")).await;
    let said = on(&db.config, "stats work").run().fine();
    assert!(said.contains("75.0 %"), "{said}");
}

#[tokio::test]
async fn a_quantile_is_the_same_in_rust_and_in_sql() {
    let db = Db::new().await;
    for counts in ["{5,0,3,0,9,0,0,0,0,2,0,0,0,0,0,1}", "{0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,4}", "{1}"]
    {
        for share in [0.0, 0.25, 0.5, 0.95, 1.0] {
            let sql = format!("select tuskline.quantile('{counts}'::bigint[], {share})");
            let expected: Option<f64> = db.one(&sql).await;
            let counts: Vec<i64> = db.one(&format!("select '{counts}'::bigint[]")).await;
            let found = Histogram { counts, ..Histogram::default() }.quantile(share);
            assert_eq!(found.map(|ms| (ms * 1e6).round()), expected.map(|ms| (ms * 1e6).round()));
        }
    }
}
