//! Prometheus reads the figures of the installation from a server, and those of a process from its worker.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tuskline_sdk::{Context, Lambda, Outcome, Worker};

use crate::support::{Db, Running, free_address, get, own_cluster, quick, served, within};

/// The samples of a scrape, by name and labels.
fn samples(answer: &str) -> BTreeMap<String, f64> {
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.contains("application/openmetrics-text"), "{answer}");
    let body = answer.split("\r\n\r\n").nth(1).unwrap();
    assert!(body.ends_with("# EOF\n"), "{body}");
    let lines = body.lines().filter(|line| !line.starts_with('#'));
    let sample = |line: &str| {
        let (name, value) = line.rsplit_once(' ').unwrap();
        (name.to_owned(), value.parse().unwrap())
    };
    lines.map(sample).collect()
}

/// Without the number of an executor or task: neither is a label.
fn label_names(samples: &BTreeMap<String, f64>) -> Vec<String> {
    let labels = samples.keys().filter_map(|name| name.split_once('{'));
    let names = labels.flat_map(|(_, labels)| labels.trim_end_matches('}').split(','));
    let mut names: Vec<_> =
        names.map(|label| label.split('=').next().unwrap().to_owned()).collect();
    names.sort();
    names.dedup();
    names
}

#[tokio::test]
async fn a_server_shows_the_figures_of_the_installation() {
    let db = with_an_old_lambda().await;
    let worker = db.worker("work").await;
    db.schedule_many("work", 3).await;
    let task = worker.take().await;
    worker.fail(&task).await;
    let (executor, queue) = (worker.executor, db.queue("work", "normal").await);
    let report =
        format!("{executor}, '{{{queue},{queue},{queue}}}', '{{2,100,110}}', '{{1,4000,1}}'");
    db.run(&format!("select tuskline.report_attempts({report})")).await;
    db.run("select tuskline.fold_statistics()").await;
    db.run("select tuskline.gate('work', 'pause', p_reason => 'a test', p_priority => 'low')")
        .await;
    db.run("select pg_stat_force_next_flush()").await;
    let (address, token, serving) = served(&db).await;
    let found = samples(&get(address, "/metrics").await);
    let labels = r#"{lambda="work",priority="normal"}"#;
    let value = |name: &str| found.get(name).copied();
    assert_eq!(value(&format!("tuskline_tasks_retried_total{labels}")), Some(1.0));
    assert_eq!(value(&format!("tuskline_tasks_succeeded_total{labels}")), Some(0.0));
    assert_eq!(value(&format!("tuskline_start_delay_seconds_count{labels}")), Some(1.0));
    assert_eq!(value(&format!("tuskline_start_delay_seconds_sum{labels}")), Some(4.0));
    // The objective of 5 s is the bound of a bucket.
    let bucket = |le: &str| {
        format!(
            r#"tuskline_start_delay_seconds_bucket{{le="{le}",lambda="work",priority="normal"}}"#
        )
    };
    assert_eq!((value(&bucket("2.5")), value(&bucket("5.0"))), (Some(0.0), Some(1.0)));
    assert_eq!(value(&format!("tuskline_queue_depth{labels}")), Some(2.0));
    assert!(value(&format!("tuskline_oldest_due_age_seconds{labels}")).unwrap() >= 0.0);
    assert_eq!(value(r#"tuskline_queue_paused{lambda="work",priority="low"}"#), Some(1.0));
    assert_eq!(value(r#"tuskline_workers{lambda="work"}"#), Some(1.0));
    assert_eq!(value(r#"tuskline_gates{lambda="work"}"#), Some(1.0));
    assert_eq!(value(r#"tuskline_wanted_executors{lambda="work"}"#), Some(1.0));
    assert_eq!(value("tuskline_segments_ahead"), Some(8.0));
    assert_eq!(value("tuskline_database_up"), Some(1.0));
    assert_eq!(label_names(&found), ["lambda", "le", "part", "priority"]);
    token.cancel();
    within(serving).await.unwrap();
}

#[tokio::test]
async fn each_counter_of_a_defined_lambda_begins_at_0() {
    let db = Db::with_lambda("work").await;
    let (address, token, serving) = served(&db).await;
    let found = samples(&get(address, "/metrics").await);
    let result = ["dead", "failed", "crashed", "retried", "succeeded", "lost", "dropped"];
    let mut names: Vec<_> = result.map(|name| format!("tasks_{name}_total")).into();
    names.extend(["start_delay_seconds_count".to_owned(), "run_seconds_count".to_owned()]);
    for name in names {
        for priority in ["critical", "high", "normal", "low"] {
            let series = format!(r#"tuskline_{name}{{lambda="work",priority="{priority}"}}"#);
            assert_eq!(found.get(&series), Some(&0.0), "{series}");
        }
    }
    token.cancel();
    within(serving).await.unwrap();
}

#[tokio::test]
async fn the_first_death_of_a_new_lambda_is_a_step_from_0() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    let worker = db.worker("work").await;
    db.schedule("work").await;
    worker.fail_for_good(&worker.take().await).await;
    let report = format!(
        "{}, '{{{}}}', '{{3}}', '{{1}}'",
        worker.executor,
        db.queue("work", "normal").await
    );
    db.run(&format!("select tuskline.report_attempts({report})")).await;
    db.run("select tuskline.fold_statistics()").await;
    let failed = async |folded: bool| -> i64 {
        let sum = "select sum(fatal_failure)::bigint from tuskline.statistics(null, $1)";
        db.ask(sum, &[&folded]).await
    };
    assert_eq!((failed(true).await, failed(false).await), (0, 1), "a scrape sees the 0 first");
    db.advance(Duration::from_secs(119)).await;
    assert_eq!(failed(true).await, 0);
    db.advance(Duration::from_secs(1)).await;
    assert_eq!(failed(true).await, 1);
}

/// A lambda as it is two minutes after its definition: its counters are shown.
async fn with_an_old_lambda() -> Db {
    let db = Db::with_lambda("work").await;
    db.run("update tuskline.lambda set created_at = created_at - interval '2 minutes'").await;
    db
}

#[tokio::test]
async fn a_hundred_scrapes_and_autoscalers_ask_the_database_once() {
    let db = Db::with_lambda("work").await;
    let (address, token, serving) = served(&db).await;
    get(address, "/metrics").await;
    let statements = "select xact_commit from pg_stat_database where datname = current_database()";
    let sessions = "select count(*) from pg_stat_activity where application_name = 'tuskline metrics' \
         and datname = current_database()";
    assert_eq!(db.one::<i64>(sessions).await, 1);
    db.run("create table before as select 1").await;
    db.run("select pg_stat_force_next_flush()").await;
    let before: i64 = db.one(statements).await;
    for _ in 0..100 {
        get(address, "/metrics").await;
        assert!(get(address, "/scale/work").await.starts_with("HTTP/1.1 200"));
        assert!(get(address, "/scale/work?objective=9s").await.starts_with("HTTP/1.1 200"));
    }
    let after: i64 = db.one(statements).await;
    // The session of the test counts as well. If each scrape had a transaction, there would be 700.
    assert!(after - before < 100, "{} transactions", after - before);
    token.cancel();
    within(serving).await.unwrap();
}

#[tokio::test]
async fn a_scrape_without_a_database_says_so() {
    let db = Db::new().await;
    let mut nowhere = db.config.clone();
    nowhere.dbname("no_such_database");
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let token = tokio_util::sync::CancellationToken::new();
    let until = token.clone();
    let roles = tuskline::recovery::RoleHealth::default();
    let serving = tokio::spawn(tuskline::health::serve(
        listener,
        nowhere.into(),
        roles,
        axum::Router::new(),
        until,
    ));
    let mut found = samples(&get(address, "/metrics").await);
    // A database that is away is no error of a part.
    let errors = found.extract_if(.., |name, _| name.starts_with("tuskline_scrape_errors_total"));
    assert_eq!(errors.map(|(_, count)| count).collect::<Vec<_>>(), [0.0; 6]);
    assert_eq!(found.into_iter().collect::<Vec<_>>(), [("tuskline_database_up".to_owned(), 0.0)]);
    assert!(get(address, "/scale/work").await.starts_with("HTTP/1.1 503"));
    token.cancel();
    within(serving).await.unwrap();
}

#[tokio::test]
async fn the_first_task_of_a_queue_is_as_old_as_its_wait_there() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    let worker = db.worker_with(&["work"], Duration::from_secs(3_600)).await;
    let age = async |after: &str| {
        while db.enqueue_due().await > 0 {}
        db.advance(Duration::from_secs(7)).await;
        let oldest = "select max(oldest_ms) from tuskline.queue_gauges()";
        assert_eq!(db.one::<Option<i64>>(oldest).await, Some(7_000), "{after}");
    };
    let id = db.schedule("work").await;
    age("it was scheduled").await;
    worker.fail(&worker.take().await).await;
    db.advance(Duration::from_secs(1_800)).await;
    age("a retry").await;
    worker.fail_for_good(&worker.take().await).await;
    db.advance(Duration::from_secs(1_800)).await;
    db.run(&format!("select tuskline.retry({id})")).await;
    age("an operator restarted it").await;
}

#[tokio::test]
async fn a_server_says_how_many_executors_a_lambda_wants_and_why() {
    let db = Db::with_lambda("work").await;
    let worker = db.worker("work").await;
    let (executor, queue) = (worker.executor, db.queue("work", "normal").await);
    // 30 attempts of 1 s each, in a minute.
    let report =
        format!("{executor}, '{{{queue},{queue},{queue}}}', '{{102,200,208}}', '{{30,30000,30}}'");
    db.run(&format!("select tuskline.report_attempts({report})")).await;
    db.schedule_many("work", 40).await;
    // Each server asks the database at most once in 5 s, so each change has its own.
    let scale = async |paths: &[&str]| {
        let (address, token, serving) = served(&db).await;
        let mut found = Vec::new();
        for path in paths {
            let answer = get(address, path).await;
            let body = answer.split("\r\n\r\n").nth(1).unwrap();
            found.push(serde_json::from_str::<Value>(body).unwrap_or_else(|_| panic!("{answer}")));
        }
        token.cancel();
        within(serving).await.unwrap();
        found
    };
    // 0.5 run at the same time; 40 of a second each, within 5 s, are 8 more.
    let found = scale(&["/scale/work", "/scale/work?objective=20s"]).await;
    let [found, patient] = &found[..] else { panic!("{found:?}") };
    assert_eq!(
        (&found["wanted"], &found["waiting"], &found["workers"]),
        (&9.into(), &40.into(), &1.into())
    );
    let because = "0.5 running and 40 waiting, 1000.0 ms each, to start within 5.0 s";
    assert_eq!(found["because"], because);
    assert_eq!(patient["wanted"], 3);
    db.run("select tuskline.set_limit('work', 4)").await;
    let limited = &scale(&["/scale/work"]).await[0];
    assert_eq!((&limited["wanted"], &limited["max_concurrency"]), (&4.into(), &4.into()));
    assert!(limited["because"].as_str().unwrap().ends_with("; a limit allows 4"), "{limited}");
    db.run("select tuskline.gate('work', 'pause', p_reason => 'a test')").await;
    let paused = &scale(&["/scale/work"]).await[0];
    assert_eq!((&paused["wanted"], &paused["waiting"]), (&1.into(), &0.into()));
    assert!(paused["because"].as_str().unwrap().ends_with("; a gate pauses 40 more"), "{paused}");
    let (address, token, serving) = served(&db).await;
    assert!(get(address, "/scale/none").await.starts_with("HTTP/1.1 404"));
    for wrong in ["5", "0s", "-5s"] {
        let answer = get(address, &format!("/scale/work?objective={wrong}")).await;
        assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    }
    token.cancel();
    within(serving).await.unwrap();
}

#[tokio::test]
async fn a_task_that_runs_for_long_keeps_its_executor_wanted() {
    let db = Db::with_lambda("work").await;
    let worker = db.worker("work").await;
    db.schedule_many("work", 5).await;
    let scale = "select concat_ws(' of ', wanted, because) from tuskline.scale('work')";
    let because = "0.0 running and 5 waiting, 100.0 ms each, to start within 5.0 s";
    assert_eq!(db.one::<String>(scale).await, format!("1 of {because}"));
    for _ in 0..3 {
        let task = worker.take().await;
        assert!(worker.start(&task).await);
    }
    let because = "3.0 running and 2 waiting, 5000.0 ms each, to start within 5.0 s";
    assert_eq!(db.one::<String>(scale).await, format!("5 of {because}"));
    // None has ended within the five minutes of the average.
    db.pin().await;
    db.advance(Duration::from_secs(600)).await;
    assert!(db.one::<String>(scale).await.starts_with("5 of 3.0 running"));
}

#[tokio::test]
async fn another_objective_gives_what_the_database_would_answer() {
    let db = Db::with_lambda("work").await;
    let worker = db.worker("work").await;
    let (executor, queue) = (worker.executor, db.queue("work", "normal").await);
    let report =
        format!("{executor}, '{{{queue},{queue},{queue}}}', '{{102,200,208}}', '{{31,31100,31}}'");
    db.run(&format!("select tuskline.report_attempts({report})")).await;
    db.schedule_many("work", 40).await;
    db.run("select tuskline.gate('work', 'pause', p_reason => 'a test', p_priority => 'low')")
        .await;
    db.run("select tuskline.schedule('work', p_priority => 'low')").await;
    let asked = "select to_json(s) from tuskline_core.scale_figures('work', $1::text::interval, '{}', '{}') s";
    for limit in [None, Some(6)] {
        if let Some(most) = limit {
            db.run(&format!("select tuskline.set_limit('work', {most})")).await;
        }
        let (address, token, serving) = served(&db).await;
        for (text, objective) in [("1ms", "1 ms"), ("7s", "7 s"), ("2h", "2 h")] {
            let answer = get(address, &format!("/scale/work?objective={text}")).await;
            let body = answer.split("\r\n\r\n").nth(1).unwrap();
            let found: Value = serde_json::from_str(body).unwrap();
            let expected: Value = db.ask(asked, &[&objective]).await;
            for key in ["wanted", "because", "waiting", "paused", "max_concurrency"] {
                assert_eq!(found[key], expected[key], "{key} for {text}: {found}, {expected}");
            }
        }
        token.cancel();
        within(serving).await.unwrap();
    }
}

#[tokio::test]
async fn a_worker_shows_the_figures_of_its_process() {
    let db = Db::with_lambda("work").await;
    let address = free_address();
    let body = |_: Value, _: Context| async { Outcome::Success(None) };
    let sdk_worker = Worker::builder(&db.config).config(quick()).metrics(address);
    let sdk_worker = Running::of(sdk_worker.serve(Lambda::named("work", body)));
    db.schedule_many("work", 20).await;
    db.until("select count(*) = 20 from tuskline.task where status = 'success'").await;
    db.until("select coalesce(sum(success), 0) = 20 from tuskline.statistics()").await;
    let found = samples(&get(address, "/metrics").await);
    let value = |name: &str| found.get(name).copied();
    let success =
        r#"tuskline_worker_attempts_total{lambda="work",priority="normal",outcome="success"}"#;
    assert_eq!(value(success), Some(20.0));
    let none = r#"tuskline_worker_attempts_total{lambda="work",priority="low",outcome="refused"}"#;
    assert_eq!(value(none), Some(0.0), "a counter begins at 0");
    let labels = r#"{lambda="work",priority="normal"}"#;
    assert_eq!(value(&format!("tuskline_worker_run_seconds_count{labels}")), Some(20.0));
    assert_eq!(value(&format!("tuskline_worker_start_delay_seconds_count{labels}")), Some(20.0));
    assert_eq!(value(r#"tuskline_worker_running{lambda="work"}"#), Some(0.0));
    assert!(value(r#"tuskline_worker_slots{lambda="work"}"#).unwrap() > 0.0);
    assert!(value(r#"tuskline_worker_heartbeats_total{answer="acknowledged"}"#).unwrap() >= 1.0);
    assert!(value(r#"tuskline_worker_db_seconds_count{statement="exchange"}"#).unwrap() >= 1.0);
    assert_eq!(value("tuskline_worker_registered"), Some(1.0));
    assert!(get(address, "/readyz").await.starts_with("HTTP/1.1 200"));
    assert!(get(address, "/healthz").await.starts_with("HTTP/1.1 200"));
    assert!(get(address, "/else").await.starts_with("HTTP/1.1 404"));
    sdk_worker.stop().await;
}

#[tokio::test]
async fn a_worker_whose_port_is_taken_does_not_start() {
    let db = Db::with_lambda("work").await;
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let body = |_: Value, _: Context| async { Outcome::Success(None) };
    let sdk_worker = Worker::builder(&db.config).metrics(taken.local_addr().unwrap());
    let sdk_worker = sdk_worker.serve(Lambda::named("work", body)).until(std::future::pending());
    let error = tokio::time::timeout(Duration::from_secs(20), sdk_worker.run()).await.unwrap();
    let said = error.unwrap_err().to_string();
    assert!(said.contains("cannot listen on 127.0.0.1:"), "{said}");
}

/// 40 tasks that wait, and 200 attempts of 31 years each, the longest that a worker may report.
async fn with_a_long_backlog() -> Db {
    let db = Db::with_lambda("work").await;
    let worker = db.worker("work").await;
    let (executor, queue) = (worker.executor, db.queue("work", "normal").await);
    let report = format!(
        "{executor}, array_fill({queue}, array[201]),
         array_fill(200::smallint, array[200]) || 208::smallint,
         array_fill(1000000000000, array[200]) || 200::bigint"
    );
    db.run(&format!("select tuskline.report_attempts({report})")).await;
    db.schedule_many("work", 40).await;
    db
}

#[tokio::test]
async fn a_backlog_without_measure_wants_the_largest_number_or_what_a_limit_allows() {
    let db = with_a_long_backlog().await;
    let wanted = "select wanted from tuskline.scale('work')";
    assert_eq!(db.one::<i32>(wanted).await, i32::MAX);
    let (address, token, serving) = served(&db).await;
    let found = samples(&get(address, "/metrics").await);
    let shown = found.get(r#"tuskline_wanted_executors{lambda="work"}"#).copied();
    assert_eq!(shown, Some(f64::from(i32::MAX)));
    assert_eq!(found.get("tuskline_database_up"), Some(&1.0));
    db.run("select tuskline.set_limit('work', 4)").await;
    assert_eq!(db.one::<i32>(wanted).await, 4);
    token.cancel();
    within(serving).await.unwrap();
}

#[tokio::test]
async fn a_look_at_many_queues_holds_few_locks() {
    let db = Db::with_lambda("work").await;
    for number in 0..30 {
        db.define(&format!("work_{number}")).await;
        db.schedule(&format!("work_{number}")).await;
    }
    let held = async |look: &str| {
        db.run("begin").await;
        db.run(look).await;
        let locks = "select count(*) from pg_locks where pid = pg_backend_pid()";
        let locks: i64 = db.one(locks).await;
        db.run("rollback").await;
        locks
    };
    // The first calls make plans, and lock what they look at.
    held("select from tuskline.queue_gauges(); select from tuskline.scale()").await;
    let few = held("select from tuskline.queue_gauges(p_lambda => 'work_1')").await;
    let many = held("select from tuskline.queue_gauges()").await;
    assert!(many <= few, "{many} locks for 31 lambdas, {few} for one");
    let depths = "select sum(depth)::bigint from tuskline.queue_gauges()";
    assert_eq!(db.one::<i64>(depths).await, 30);
    let scale = held("select from tuskline.scale()").await;
    assert!(scale <= few + 60, "{scale} locks of scale(), {few} of one lambda");
}

#[tokio::test]
async fn a_part_that_fails_leaves_the_rest_of_the_scrape() {
    let db = Db::with_lambda("work").await;
    db.run("alter function tuskline.gauges() rename to no_gauges").await;
    let (address, token, serving) = served(&db).await;
    let found = samples(&get(address, "/metrics").await);
    let failed = |part: &str| found[&format!(r#"tuskline_scrape_errors_total{{part="{part}"}}"#)];
    assert_eq!(
        ["gauges", "queues", "scale", "statistics", "waiting", "waits"].map(failed),
        [1.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    );
    let has = |name: &str| found.keys().any(|one| one.starts_with(name));
    assert!(!has("tuskline_segments_ahead"));
    for name in ["tuskline_queue_depth", "tuskline_queue_paused", "tuskline_wanted_executors"] {
        assert!(has(name), "{name}");
    }
    assert_eq!(found["tuskline_database_up"], 1.0, "it answers");
    token.cancel();
    within(serving).await.unwrap();
}

/// Makes a part of a scrape too slow. The function is still quick for the part `scale`.
async fn slow_down(db: &Db, function: &str, arguments: &str) {
    let definition = format!("select pg_get_functiondef('tuskline.{function}'::regproc)");
    let definition: String = db.one(&definition).await;
    let (head, _) = definition.split_once("AS $function$").unwrap();
    db.run(&format!(
        "alter function tuskline.{function} rename to quick_{function};
         {head} as $$ begin
           if current_query() not like '%scale%' then perform pg_sleep(60); end if;
           return query select * from tuskline.quick_{function}({arguments});
         end $$"
    ))
    .await;
}

#[tokio::test]
async fn a_part_that_is_too_slow_is_alone_in_its_failure() {
    let db = Db::with_lambda("work").await;
    slow_down(&db, "statistics", "p_span, p_folded").await;
    let (address, token, serving) = served(&db).await;
    let errors = |found: &BTreeMap<String, f64>| {
        ["gauges", "queues", "scale", "statistics", "waits", "waiting"]
            .map(|part| found[&format!(r#"tuskline_scrape_errors_total{{part="{part}"}}"#)])
    };
    let first = samples(&get(address, "/metrics").await);
    assert_eq!(errors(&first), [0.0, 0.0, 0.0, 1.0, 0.0, 0.0]);
    assert!(first.contains_key("tuskline_segments_ahead"), "read before it");
    let answer = get(address, "/scale/work").await;
    assert!(answer.starts_with("HTTP/1.1 200"), "unread, so read now: {answer}");
    let second = loop {
        let found = samples(&get(address, "/metrics").await);
        if found != first {
            break found;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    assert_eq!(errors(&second), [0.0, 0.0, 0.0, 2.0, 0.0, 0.0]);
    for name in ["tuskline_segments_ahead", "tuskline_queue_depth", "tuskline_wanted_executors"] {
        assert!(second.keys().any(|one| one.starts_with(name)), "{name}");
    }
    token.cancel();
    within(serving).await.unwrap();
}

#[tokio::test]
async fn a_slow_client_gets_the_answer_of_a_slow_scrape() {
    let db = Db::with_lambda("work").await;
    slow_down(&db, "statistics", "p_span, p_folded").await;
    let (address, token, serving) = served(&db).await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\n").await.unwrap();
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    stream.write_all(b"Host: test\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    within(stream.read_to_string(&mut answer)).await.unwrap();
    assert_eq!(samples(&answer)["tuskline_database_up"], 1.0);
    token.cancel();
    within(serving).await.unwrap();
}

#[tokio::test]
async fn an_autoscaler_hears_of_slow_queues_and_then_gets_its_figures() {
    let db = Db::with_lambda("work").await;
    slow_down(&db, "queue_gauges", "p_queues, p_marks, p_lambda, p_rows, p_probes").await;
    let (address, token, serving) = served(&db).await;
    let answer = get(address, "/scale/work").await;
    assert!(answer.starts_with("HTTP/1.1 503"), "known, but not read: {answer}");
    let answer = get(address, "/scale/work").await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    token.cancel();
    within(serving).await.unwrap();
}

#[tokio::test]
async fn a_table_that_is_locked_costs_a_part_of_the_scrape() {
    let db = Db::with_lambda("work").await;
    db.schedule("work").await;
    let other = db.connect().await;
    other.batch_execute("begin; lock table tuskline.gate").await.unwrap();
    let (address, token, serving) = served(&db).await;
    let found = samples(&get(address, "/metrics").await);
    assert_eq!(found["tuskline_database_up"], 1.0);
    assert_eq!(found[r#"tuskline_scrape_errors_total{part="gauges"}"#], 1.0);
    let depth = r#"tuskline_queue_depth{lambda="work",priority="normal"}"#;
    assert_eq!(found.get(depth), Some(&1.0));
    token.cancel();
    within(serving).await.unwrap();
}

/// The gauges of the installation that are about sessions.
const OF_SESSIONS: &str = "select string_agg(name, ' ' order by name) from tuskline.gauges()
     where name in ('connections', 'horizon_seconds', 'horizon_transactions')";

#[tokio::test]
async fn an_owner_that_may_not_see_sessions_shows_no_figure_of_them() {
    let db = Db::new().await;
    let all = "connections horizon_seconds horizon_transactions";
    assert_eq!(db.one::<Option<String>>(OF_SESSIONS).await.as_deref(), Some(all));
    let owner = db.config.get_dbname().unwrap();
    db.run(&format!(
        "create role {owner}; grant {owner} to current_user;
         grant create on schema tuskline to {owner};
         grant usage on schema tuskline, tuskline_core to {owner};
         grant select on all tables in schema tuskline, tuskline_core to {owner};
         grant select on all sequences in schema tuskline to {owner};
         grant execute on all functions in schema tuskline, tuskline_core to {owner};
         alter function tuskline.gauges() owner to {owner}"
    ))
    .await;
    assert_eq!(db.one::<Option<String>>(OF_SESSIONS).await, None);
    db.run(&format!("grant pg_read_all_stats to {owner}")).await;
    assert_eq!(db.one::<Option<String>>(OF_SESSIONS).await.as_deref(), Some(all));
    db.run(&format!("drop owned by {owner} cascade; drop role {owner}")).await;
}

#[tokio::test]
async fn a_prepared_transaction_holds_the_horizon_and_another_database_does_not() {
    let cluster = own_cluster().await;
    let (db, elsewhere) = (Db::in_cluster(&cluster).await, Db::in_cluster(&cluster).await);
    let age = "select value > 1 from tuskline.gauges() where name = 'horizon_seconds'";
    elsewhere.run("begin isolation level repeatable read; select txid_current()").await;
    let other = elsewhere.config.get_dbname().unwrap();
    db.until(&format!(
        "select xact_start < clock_timestamp() - interval '1.1 s' from pg_stat_activity
          where datname = '{other}' and backend_xid is not null"
    ))
    .await;
    assert!(!db.one::<bool>(age).await, "of another database");
    db.run("begin; select txid_current(); prepare transaction 'one'").await;
    db.until(age).await;
    db.run("rollback prepared 'one'").await;
    assert!(!db.one::<bool>(age).await, "it has ended");
}

/// Makes a task for each cause of waiting: a limit, a blocked key, a gate, a parent, and a due time
/// without a server.
async fn with_tasks_that_wait() -> Db {
    let db = Db::new().await;
    for lambda in ["limited", "ordered", "gated", "child", "late"] {
        db.define(lambda).await;
    }
    db.pin().await;
    db.run(
        "select tuskline.set_limit('limited', 0); select tuskline.set_order('ordered', 'block');
         select tuskline.gate('gated', 'pause', p_reason => 'a test', p_collection => 'eu',
                              p_unseen => true)",
    )
    .await;
    let order = "select tuskline.schedule('ordered', p_ordering_key => 'k')";
    db.run(order).await;
    while db.enqueue_due().await > 0 {}
    let worker = db.worker("ordered").await;
    worker.fail_for_good(&worker.take().await).await;
    db.run(order).await;
    db.run(
        "select tuskline.schedule('limited') from generate_series(1, 3);
         select tuskline.schedule('gated', p_collection => 'eu');
         select tuskline.schedule_then(array[tuskline.schedule('limited')], 'child')",
    )
    .await;
    while db.enqueue_due().await > 0 {}
    db.advance(Duration::from_secs(60)).await;
    db.schedule_in("late", Duration::from_secs(1)).await;
    db.schedule_in("late", Duration::from_secs(3_600)).await;
    db.advance(Duration::from_secs(12)).await;
    db
}

#[tokio::test]
async fn tasks_that_wait_are_seen_by_lambda_and_cause() {
    let db = with_tasks_that_wait().await;
    let (address, token, serving) = served(&db).await;
    let found = samples(&get(address, "/metrics").await);
    let of = |name: &str| -> Vec<String> {
        let own = found.iter().filter(|(series, _)| series.starts_with(name));
        own.map(|(series, value)| format!("{} {value}", &series[name.len()..])).collect()
    };
    assert_eq!(
        of("tuskline_waiting_tasks"),
        [
            r#"{lambda="child",cause="dependency"} 1"#,
            r#"{lambda="gated",cause="gate"} 1"#,
            r#"{lambda="late",cause="server"} 1"#,
            r#"{lambda="limited",cause="limit"} 4"#,
            r#"{lambda="ordered",cause="order"} 1"#,
        ]
    );
    assert_eq!(
        of("tuskline_oldest_waiting_age_seconds"),
        [
            r#"{lambda="child",cause="dependency"} 72"#,
            r#"{lambda="gated",cause="gate"} 72"#,
            r#"{lambda="late",cause="server"} 11"#,
            r#"{lambda="limited",cause="limit"} 72"#,
            r#"{lambda="ordered",cause="order"} 72"#,
        ]
    );
    assert_eq!(of("tuskline_blocked_keys"), [r#"{lambda="ordered"} 1"#]);
    token.cancel();
    within(serving).await.unwrap();
    let unblocked: bool = db.one("select tuskline.unblock('ordered', 'k')").await;
    assert!(unblocked);
    db.advance(Duration::from_secs(1)).await;
    while db.enqueue_due().await > 0 {}
    let left = "select count(*) from tuskline.blocked_gauges()";
    assert_eq!(db.one::<i64>(left).await, 0);
    let left = "select string_agg(cause, ' ') from tuskline.wait_gauges()";
    assert_eq!(db.one::<String>(left).await, "dependency gate due limit");
}

/// Makes waiters, keys, timers and dead letters, each more than a reading may read.
async fn fill(db: &Db, thousands: i32) {
    db.run(&format!(
        "select tuskline.schedule_many(array_fill('limited'::text, array[1000]))
           from generate_series(1, {thousands} * 3);
         select tuskline.schedule('ordered', p_ordering_key => 'k' || n % 700)
           from generate_series(1, {thousands} * 1000) n;
         select tuskline.schedule('late', p_delay => '1 s')
           from generate_series(1, {thousands} * 1000);
         insert into tuskline.dead_letter
         select (select coalesce(max(d.task_id), 0) from tuskline.dead_letter d) + n, 'ordered',
                'dead', 'f', now() from generate_series(1, {thousands} * 1000) n"
    ))
    .await;
    db.run("vacuum analyze").await;
}

#[tokio::test]
async fn a_reading_of_the_waits_reads_a_bounded_number_of_rows_and_estimates_the_rest() {
    let db = with_tasks_that_wait().await;
    let session = db.connect().await;
    let read = async || -> (i64, i64) {
        let counted = "select sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0))::bigint,
                              coalesce(sum(seq_scan) filter (where relname ~ '^task_[0-9]+$'), 0)::bigint
                         from pg_stat_xact_user_tables";
        // Else the counts of the reading before may be among these.
        session.batch_execute("select pg_stat_force_next_flush()").await.unwrap();
        session.batch_execute("begin").await.unwrap();
        let both = "select from tuskline.wait_gauges(); select from tuskline.blocked_gauges()";
        session.batch_execute(both).await.unwrap();
        let row = session.query_one(counted, &[]).await.unwrap();
        session.batch_execute("commit").await.unwrap();
        (row.get(0), row.get(1))
    };
    fill(&db, 2).await;
    let few = read().await;
    fill(&db, 8).await;
    let many = read().await;
    println!("rows and scans of tasks: {few:?}, with five times as many tasks {many:?}");
    assert!(many.0 <= 12_000 && many.1 == 0, "{many:?}");
    db.run("select pg_stat_force_next_flush()").await;
    let seen = "select concat_ws(' ', cause, tasks, and_more, round(estimate, -4))
                  from tuskline.wait_gauges() where cause in ('limit', 'order') order by 1";
    assert_eq!(db.lines(seen).await, ["limit 1000 t 30000", "order 1000 t 10000"]);
    db.run("delete from pg_statistic where starelid = 'tuskline.wait_list'::regclass").await;
    assert_eq!(db.lines(seen).await, ["limit 1000 t 20000", "order 1000 t 20000"], "equal shares");
    let blocked = "select concat_ws(' ', lambda, keys, and_more) from tuskline.blocked_gauges()";
    assert_eq!(db.lines(blocked).await, ["ordered 1 t"], "the key that is blocked for longest");
}
