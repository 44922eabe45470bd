//! A shop with an incident: twelve lambdas, of which four need a person. Its clock is pinned and its
//! ids begin at 1, so each run shows the same pages.

use std::fmt::Write as _;
use std::time::Duration;

use tuskline::pages::Access;

use crate::support::pages::{Pages, person};
use crate::support::{Db, ScriptedWorker};

const MINUTE: Duration = Duration::from_secs(60);

/// The role of the people who act: they operate every lambda, and own none.
pub const ON_CALL: &str = "on_call";
/// The token of Ada, who acts as [`ON_CALL`].
pub const TOKEN: &str = "3d1c9f0e5b7a48d2";

/// Lambdas: starts a minute, of these failures, bucket of the delay, bucket of the run time.
const LAMBDAS: [(&str, i64, i64, i64, i64); 12] = [
    ("charge_card", 2_508, 18, 4, 11),
    ("parse_feed", 294, 42, 4, 9),
    ("send_sms", 1_104, 0, 2, 7),
    ("sync_crm", 612, 2, 2, 8),
    ("send_email", 10_956, 6, 2, 6),
    ("index_product", 4_440, 0, 3, 7),
    ("push_notification", 2_172, 0, 2, 5),
    ("apply_event", 762, 0, 4, 4),
    ("resize_image", 384, 6, 6, 10),
    ("export_orders", 1, 0, 8, 13),
    ("build_report", 0, 0, 1, 1),
    ("erase_customer", 0, 0, 1, 1),
];

/// Upper bounds of the buckets, in ms: see `tuskline.histogram_edges()`.
const EDGES: [i64; 15] =
    [5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000, 300_000, 1_800_000];

/// The database of the shop, and what its pages are named by.
pub struct Shop {
    pub db: Db,
    /// A task that failed twice and waits for a permit.
    pub waits: i64,
    /// A task that is dead.
    pub dead: i64,
    /// A task of a chain.
    pub chain: i64,
    /// A gate that a person has set.
    pub gate: i64,
}

/// People: everybody looks, and Ada acts.
pub fn people() -> Access {
    let mut ada = person(TOKEN, ON_CALL);
    ada.name = "Ada Lovelace".to_owned();
    Access { tokens: vec![ada], ..Access::default() }
}

/// Makes the role of the people who act. Roles belong to the cluster of the run.
pub async fn make_people(db: &Db) {
    db.run(&format!(
        "do $$ begin
           create role {ON_CALL}; grant tuskline_operator, tuskline_viewer to {ON_CALL};
         exception when duplicate_object or unique_violation then null;
         end $$"
    ))
    .await;
}

impl Shop {
    /// The shop on a Friday afternoon, in an empty database.
    pub async fn in_trouble(db: Db) -> Self {
        make_people(&db).await;
        db.run("update tuskline_test.pin set at = '2026-11-27 13:25:40Z'").await;
        for (lambda, ..) in LAMBDAS {
            db.define(lambda).await;
        }
        settle(&db).await;
        pass_an_hour(&db).await;
        let worker = worker(&db, "app-2", 4_711, &all(), "1 hour").await;
        break_crm(&db, &worker).await;
        bury(&db, &worker).await;
        let waits = fail_twice(&db, &worker).await;
        let chain = schedule_chain(&db, &worker).await;
        block_a_key(&db, &worker).await;
        crowd(&db, &worker).await;
        start_operations(&db).await;
        calculate_ticks(&db).await;
        db.run(
            "analyze tuskline.dead_letter; analyze tuskline.task;
             update tuskline.installation set name = 'production'",
        )
        .await;
        let dead =
            db.one("select max(task_id) from tuskline.dead_letter where lambda = 'parse_feed'");
        let gate = "select gate_id from tuskline.gates where collection = 'marketing'";
        Self { waits, dead: dead.await, chain, gate: db.one(gate).await, db }
    }

    /// Its pages.
    pub async fn pages(&self) -> Pages {
        Pages::of(&self.db, people(), "").await
    }
}

fn all() -> Vec<&'static str> {
    LAMBDAS.iter().map(|(name, ..)| *name).filter(|name| *name != "build_report").collect()
}

async fn as_ada(db: &Db, sql: &str) {
    let ada = format!("set local role {ON_CALL}; set local tuskline.person = 'Ada Lovelace'");
    db.run(&format!("begin; {ada}; {sql}; commit")).await;
}

/// Settings that are older than the incident.
async fn settle(db: &Db) {
    db.run(
        "select tuskline.set_limit('charge_card', 64), tuskline.set_breaker('sync_crm', 5),
                tuskline.set_order('apply_event'), tuskline.set_limit('export_orders', 2),
                tuskline.define_periodic('feeds', 'parse_feed', '*/15 * * * *', '{\"all\": true}'),
                tuskline.define_periodic('orders_of_the_day', 'export_orders', '30 2 * * 1-5',
                                         p_zone => 'Europe/Berlin'),
                tuskline.define_periodic('erase', 'erase_customer', '0 4 * * 0', p_zone => 'Europe/Berlin'),
                tuskline.define_periodic('report', 'build_report', '0 * * * *', p_overlap => 'skip')",
    )
    .await;
    as_ada(db, "select tuskline.pause_periodic('erase', 'wait for the lawyers')").await;
}

/// A worker of a process on a host.
async fn worker(db: &Db, host: &str, pid: i32, lambdas: &[&str], lease: &str) -> ScriptedWorker {
    let client = db.connect().await;
    let sql = "select tuskline.register_executor($1, $2, $3, '0.1.0', $4::text::interval)";
    let executor = client.query_one(sql, &[&host, &pid, &lambdas, &lease]).await.unwrap().get(0);
    let sql = "select queue_id from tuskline.queue where lambda = any ($1) order by queue_id";
    let queues = client.query(sql, &[&lambdas]).await.unwrap();
    ScriptedWorker { client, executor, queues: queues.iter().map(|row| row.get(0)).collect() }
}

/// Counts of an executor in a minute.
async fn report(db: &Db, executor: i64, queues: &[i32], minute: u32) {
    let (mut of, mut counters, mut amounts) = (String::new(), String::new(), String::new());
    let mut add = |queue: i32, counter: i64, amount: i64| {
        let _ = write!(of, "{queue},");
        let _ = write!(counters, "{counter},");
        let _ = write!(amounts, "{amount},");
    };
    for ((lambda, starts, failed, delay, run), queue) in LAMBDAS.into_iter().zip(queues) {
        // CRM has stopped, the feeds have a bad release, and cards have become slow.
        let starts = if lambda == "sync_crm" && minute > 44 { 0 } else { starts };
        let starts = starts - (starts / 9) * i64::from(minute * 7 % 5) / 4;
        let failed = if lambda == "parse_feed" && minute < 50 { 0 } else { failed.min(starts) };
        if starts == 0 {
            continue;
        }
        let late = if lambda == "charge_card" && minute > 36 {
            starts * i64::from(minute - 36) / 160
        } else {
            0
        };
        let longest = EDGES[if late > 0 { 10 } else { delay as usize - 1 }];
        add(*queue, 1, starts - failed);
        add(*queue, 2, failed);
        add(*queue, 100, EDGES[delay as usize - 1] * starts / 2 + late * 7_000);
        add(*queue, 100 + delay, starts - late);
        add(*queue, 111, late);
        add(*queue, 117, longest * 1_000);
        add(*queue, 200, EDGES[run as usize - 1] * starts / 2);
        add(*queue, 200 + run, starts);
        add(*queue, 217, EDGES[run as usize - 1] * 1_000);
    }
    let array = |text: &str| format!("'{{{}}}'", text.trim_end_matches(','));
    db.run(&format!(
        "select tuskline.report_attempts({executor}, {}, {}, {});
         select tuskline.fold_statistics()",
        array(&of),
        array(&counters),
        array(&amounts)
    ))
    .await;
}

/// An hour in which limits, gates and definitions change.
async fn pass_an_hour(db: &Db) {
    let lambdas: Vec<&str> = LAMBDAS.iter().map(|(name, ..)| *name).collect();
    let old = worker(db, "app-1", 3_204, &lambdas, "1 hour").await;
    let mut queues = Vec::new();
    for lambda in &lambdas {
        queues.push(db.queue(lambda, "normal").await);
    }
    for minute in 0..65 {
        match minute {
            31 => db.run("select tuskline.set_limit('charge_card', 96)").await,
            36 => db.run("select tuskline.set_limit('charge_card', 64)").await,
            49 => {
                db.run("select tuskline.alter_lambda('parse_feed', p_max_attempts => 5)").await;
                worker(db, "app-5", 711, &["parse_feed", "sync_crm"], "1 hour").await;
            }
            52 => {
                as_ada(
                    db,
                    "select tuskline.gate('send_sms', 'pause', 'marketing', p_for => '2 hours', p_unseen => true,
                                          p_reason => 'complaints of customers')",
                )
                .await;
            }
            59 => {
                worker(db, "app-3", 99, &["build_report", "export_orders"], "20 seconds").await;
            }
            _ => {}
        }
        report(db, old.executor, &queues, minute).await;
        db.advance(MINUTE).await;
    }
    db.run(&format!("select tuskline.end_executor({})", old.executor)).await;
    worker(db, "app-4", 4_713, &["send_email", "push_notification"], "1 hour").await;
}

/// Runs the store consumer's verbs until nothing is due.
async fn consume(db: &Db) {
    db.run("select tuskline.run_policies()").await;
    while db.enqueue_due().await > 0 {}
}

async fn end(worker: &ScriptedWorker, count: i32, class: &str, message: &str) {
    for task in worker.claim(count).await {
        worker.start(&task).await;
        let note = format!(
            r#""status": "fatal_failure", "error_class": "{class}", "message": "{message}""#
        );
        worker.note(&task, &note).await;
    }
}

/// The breaker of the CRM trips, and its tasks wait.
async fn break_crm(db: &Db, worker: &ScriptedWorker) {
    db.schedule_many("sync_crm", 5).await;
    end(worker, 5, "Unavailable", "503 Service Unavailable").await;
    db.advance(Duration::from_secs(1)).await;
    consume(db).await;
    db.schedule_many("sync_crm", 2_310).await;
    consume(db).await;
}

/// Tasks fail for good, by three causes.
async fn bury(db: &Db, worker: &ScriptedWorker) {
    db.schedule_many("parse_feed", 283).await;
    end(worker, 283, "ParseError", "no field amount_minor in line 1").await;
    db.schedule_many("charge_card", 41).await;
    consume(db).await;
    end(worker, 41, "CardDeclined", "the issuer refuses the card").await;
    db.schedule_many("resize_image", 2).await;
    end(worker, 2, "NotAnImage", "neither PNG nor JPEG nor WebP").await;
    db.advance(Duration::from_secs(9)).await;
}

/// A failure that is worth another attempt.
const TIMEOUT: &str = r#""status": "retriable_failure", "error_class": "AcquirerTimeout",
    "message": "no answer from the acquirer within 3 s", "after_ms": 3370"#;

/// A task that fails twice. Then others hold all permits.
async fn fail_twice(db: &Db, worker: &ScriptedWorker) -> i64 {
    let payload = r#"{"order": 9007199254740993, "amount": 129.90, "currency": "EUR", "card": {"token": "tok_8Hq2"}, "customer": {"id": "c_48213", "name": "Zoë O’Neill"}}"#;
    let sql =
        "select tuskline.schedule('charge_card', $1, p_priority => 'high', p_collection => 'web',
                                        p_fairness_key => 'c_48213')";
    let id: i64 = db.ask(sql, &[&payload]).await;
    for _ in 0..2 {
        consume(db).await;
        let [task] = worker.claim(1).await.try_into().unwrap();
        worker.start(&task).await;
        db.advance(Duration::from_millis(3_002)).await;
        worker.note(&task, TIMEOUT).await;
        if task.attempt == 1 {
            db.advance(Duration::from_millis(3_400)).await;
        }
    }
    // Others hold the permits when its time comes.
    db.schedule_many("charge_card", 64 + 331).await;
    consume(db).await;
    worker.claim(64).await;
    db.advance(Duration::from_millis(3_400)).await;
    consume(db).await;
    id
}

async fn schedule_chain(db: &Db, worker: &ScriptedWorker) -> i64 {
    let chain = r#"[{"lambda": "index_product", "name": "reserve"},
        {"lambda": "resize_image", "name": "label", "after": ["reserve"]},
        {"lambda": "charge_card", "name": "pay", "after": ["reserve"], "priority": "high"},
        {"lambda": "export_orders", "name": "pack", "after": ["pay", "label"]},
        {"lambda": "send_email", "name": "tell", "after": ["pack"]},
        {"lambda": "push_notification", "name": "sorry", "after": [{"task": "pay", "on": "failure"}]}]"#;
    let ids: Vec<i64> =
        db.ask("select ids from tuskline.schedule_chain($1::text)", &[&chain]).await;
    consume(db).await;
    for task in worker.claim(1).await {
        worker.start(&task).await;
        db.advance(Duration::from_millis(640)).await;
        worker.succeed_with(&task, r#"{"shelf": "B-14"}"#).await;
    }
    consume(db).await;
    for task in worker.claim(1).await {
        worker.start(&task).await;
        worker.succeed(&task).await;
    }
    ids[3]
}

/// A key whose first task has failed, and others behind it.
async fn block_a_key(db: &Db, worker: &ScriptedWorker) {
    let sql = "select tuskline.schedule('apply_event', p_ordering_key => 'customer c_48213')
                 from generate_series(1, 5)";
    db.run(sql).await;
    consume(db).await;
    end(worker, 1, "Conflict", "version 7 is older than version 9").await;
    consume(db).await;
}

/// Tasks that wait for their time, a gate or an executor, and some that run.
async fn crowd(db: &Db, worker: &ScriptedWorker) {
    db.run(
        "select tuskline.schedule('send_email', p_delay => '1 hour') from generate_series(1, 204);
         select tuskline.schedule('push_notification', p_delay => '20 minutes', p_collection => 'spring')
           from generate_series(1, 318);
         select tuskline.schedule('send_sms', p_collection => 'marketing') from generate_series(1, 1942)",
    )
    .await;
    for (lambda, count) in [("send_email", 88), ("index_product", 42), ("send_sms", 11)] {
        db.schedule_many(lambda, count).await;
    }
    consume(db).await;
    worker.claim(141).await;
    let unclaimed = worker.claim(1).await;
    assert!(unclaimed.is_empty(), "{unclaimed:?}");
    db.schedule("build_report").await;
    db.advance(Duration::from_secs(6)).await;
    db.schedule_many("index_product", 14).await;
    db.schedule_many("send_email", 6).await;
    consume(db).await;
}

async fn start_operations(db: &Db) {
    as_ada(
        db,
        "select tuskline.start_operation('redrive', 'resize_image', p_reason => 'the library reads AVIF now')",
    )
    .await;
    consume(db).await;
    as_ada(
        db,
        "select tuskline.start_operation('cancel', 'push_notification', p_collection => 'spring',
                                         p_per_second => 4, p_reason => 'the prices are wrong')",
    )
    .await;
    db.advance(Duration::from_secs(2)).await;
    consume(db).await;
}

/// The next tick of each schedule, as a server calculates it.
async fn calculate_ticks(db: &Db) {
    for (name, tick) in [
        ("feeds", "2026-11-27 14:45Z"),
        ("orders_of_the_day", "2026-11-30 01:30Z"),
        ("report", "2026-11-27 15:00Z"),
    ] {
        let fire = format!(
            "select tuskline.fire_periodic('{name}', s.version, tuskline.clock(), '{{}}', '{tick}')
               from tuskline.periodic s where s.name = '{name}'"
        );
        db.run(&fire).await;
    }
}
