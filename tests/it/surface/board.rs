//! The Grafana board and the alert rules ask for metrics that exist, and a real Prometheus answers them.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tuskline_sdk::{Context, Lambda, Outcome, Worker};

use super::documents::anchors;
use crate::support::{Db, Running, free_address, get, quick, served, within};

const BOARD: &str = include_str!("../../../packaging/grafana/tuskline.json");
const ALERTS: &str = include_str!("../../../packaging/prometheus/alerts.yml");

/// Each query of the board, with its variables filled in.
fn queries() -> Vec<String> {
    let board: Value = serde_json::from_str(BOARD).unwrap();
    let targets = board["panels"].as_array().unwrap().iter().flat_map(|panel| {
        panel["targets"].as_array().unwrap().iter().map(|target| target["expr"].as_str().unwrap())
    });
    let filled =
        targets.map(|text| text.replace("$__rate_interval", "1m").replace("$lambda", ".*"));
    filled.collect()
}

/// Names of metrics in a text.
fn named(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("tuskline_")).map(str::to_owned).collect()
}

/// Names under which Prometheus stores the metrics of a scrape.
fn stored(scrape: &str) -> BTreeSet<String> {
    let types = scrape.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let names = types.flat_map(|line| {
        let (name, kind) = line.split_once(' ').unwrap();
        let suffixes: &[&str] = match kind {
            "counter" => &["_total"],
            "histogram" => &["_bucket", "_sum", "_count"],
            _ => &[""],
        };
        suffixes.iter().map(move |suffix| format!("{name}{suffix}"))
    });
    names.collect()
}

/// A worker of `work` whose tasks with payload `"bad"` fail, with a port for metrics.
fn metered_worker(db: &Db, address: SocketAddr) -> Running {
    let body = |text: String, _: Context| async move {
        match text.as_str() {
            "bad" => Outcome::retriable("on purpose"),
            _ => Outcome::Success(None),
        }
    };
    let sdk_worker = Worker::builder(&db.config).config(quick()).metrics(address);
    Running::of(sdk_worker.serve(Lambda::named("work", body)))
}

#[tokio::test]
async fn the_board_and_the_alerts_name_metrics_that_exist() {
    let db = Db::with_lambda("work").await;
    let (address, token, serving) = served(&db).await;
    let mut known = stored(&get(address, "/metrics").await);
    let own = free_address();
    let sdk_worker = metered_worker(&db, own);
    db.until("select count(*) = 1 from tuskline.executor").await;
    known.extend(stored(&get(own, "/metrics").await));
    sdk_worker.stop().await;
    token.cancel();
    within(serving).await.unwrap();
    for (file, text) in [("board", queries().join(" ")), ("alerts", ALERTS.to_owned())] {
        let unknown: Vec<_> = named(&text).difference(&known).cloned().collect();
        assert!(unknown.is_empty(), "{file}: {unknown:?} is not among {known:?}");
    }
    // A search for a metric finds it on the page.
    let page = include_str!("../../../docs/metrics.md");
    for name in known {
        let short = ["_bucket", "_sum", "_count"].iter().find_map(|one| name.strip_suffix(one));
        let name = short.unwrap_or(&name);
        assert!(page.contains(&format!("`{name}`")), "docs/metrics.md lacks {name}");
    }
}

/// The blocks of a file that each begin with a line `- <key>: NAME`, as name and lines.
fn blocks(text: &'static str, key: &str) -> Vec<(&'static str, Vec<&'static str>)> {
    let mut found: Vec<(&str, Vec<&str>)> = Vec::new();
    let head = format!("- {key}: ");
    for line in text.lines() {
        match (line.trim().strip_prefix(&head), found.last_mut()) {
            (Some(rest), _) => found.push((rest.split(' ').next().unwrap(), Vec::new())),
            (None, Some((_, lines))) => lines.push(line.trim()),
            (None, None) => {}
        }
    }
    found
}

/// The value of a key in a block.
fn value(lines: &[&'static str], key: &str) -> Option<&'static str> {
    let head = format!("{key}: ");
    Some(lines.iter().find_map(|line| line.strip_prefix(&head))?.trim_matches('"'))
}

#[test]
fn each_alert_names_a_page_of_the_book() {
    let alerts = blocks(ALERTS, "alert");
    assert!(alerts.len() > 14, "{alerts:?}");
    for (alert, lines) in alerts {
        let page = value(&lines, "page").unwrap_or_else(|| panic!("{alert} names no page"));
        let (path, anchor) = page.split_once('#').unwrap_or((page, ""));
        let text = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
        let text = std::fs::read_to_string(text).unwrap_or_else(|_| panic!("{alert}: no {page}"));
        let known = anchor.is_empty() || anchors(&text).iter().any(|known| known == anchor);
        assert!(known, "{alert}: no {page}");
    }
}

/// A text is what a template makes: the parts between its variables stand in it, in this order.
fn is_made_by(text: &str, template: &str) -> bool {
    let mut parts = template.split("{{").map(|part| part.rsplit("}}").next().unwrap());
    let Some(mut rest) = text.strip_prefix(parts.next().unwrap()) else { return false };
    let all = parts.all(|part| match (part.is_empty(), rest.find(part)) {
        (true, _) => true,
        (false, Some(at)) => {
            rest = &rest[at + part.len()..];
            true
        }
        (false, None) => false,
    });
    all && (rest.is_empty() || template.ends_with("}}"))
}

#[test]
fn the_tests_of_the_alerts_expect_the_annotations_that_the_alerts_have() {
    let alerts = blocks(ALERTS, "alert");
    let mut count = 0;
    for (name, lines) in
        blocks(include_str!("../../../packaging/prometheus/alerts_test.yml"), "alertname")
    {
        let (_, alert) = alerts.iter().find(|(alert, _)| *alert == name).unwrap();
        for key in ["summary", "description", "page"] {
            let Some(expected) = value(&lines, key) else { continue };
            let template = value(alert, key).unwrap();
            assert!(is_made_by(expected, template), "{name}, {key}: {expected}, not {template}");
            count += 1;
        }
    }
    assert!(count >= 18, "{count} annotations");
}

/// A program of Prometheus that the machine may lack.
fn program(name: &str) -> Option<Command> {
    let mut probe = Command::new(name);
    match probe.arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status() {
        Ok(_) => Some(Command::new(name)),
        Err(_) => {
            eprintln!("SKIPPED: this machine has no {name}");
            None
        }
    }
}

#[test]
fn the_alerts_fire_when_they_should() {
    let Some(mut promtool) = program("promtool") else { return };
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/prometheus");
    let ran = promtool.args(["test", "rules", "alerts_test.yml"]).current_dir(folder).output();
    let ran = ran.unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
}

/// Ends with the test.
struct Prometheus(Child);

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(dir: &Path, own: SocketAddr, targets: [SocketAddr; 2]) -> Option<Prometheus> {
    let mut command = program("prometheus")?;
    let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/prometheus/alerts.yml");
    let config = format!(
        "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\n\
         rule_files: ['{}']\n\
         scrape_configs: [{{job_name: tuskline, static_configs: [{{targets: ['{}', '{}']}}]}}]\n",
        rules.display(),
        targets[0],
        targets[1]
    );
    std::fs::write(dir.join("prometheus.yml"), config).unwrap();
    command
        .arg(format!("--config.file={}", dir.join("prometheus.yml").display()))
        .arg(format!("--storage.tsdb.path={}", dir.join("data").display()))
        .arg(format!("--web.listen-address={own}"))
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    Some(Prometheus(command.spawn().unwrap()))
}

/// The series that a query of Prometheus has; none: it is not up.
async fn series(prometheus: SocketAddr, query: &str) -> Option<usize> {
    tokio::net::TcpStream::connect(prometheus).await.ok()?;
    let mut encoded = String::new();
    for byte in query.bytes() {
        let _ = write!(encoded, "%{byte:02X}");
    }
    let answer = get(prometheus, &format!("/api/v1/query?query={encoded}")).await;
    let body = &answer[answer.find('{')?..=answer.rfind('}')?];
    let body: Value = serde_json::from_str(body).unwrap_or_else(|_| panic!("{answer}"));
    assert_eq!(body["status"], "success", "{query}: {body}");
    Some(body["data"]["result"].as_array()?.len())
}

#[tokio::test]
#[ignore = "needs Prometheus, and half a minute of scrapes"]
async fn a_real_prometheus_answers_each_query_of_the_board() {
    let db = Db::with_lambda("work").await;
    db.run("select tuskline.alter_lambda('work', p_max_attempts => 2, p_retry_base => '1 ms')")
        .await;
    db.run("select tuskline.set_breaker('work', p_failures => 1000000)").await;
    db.run("update tuskline.lambda set created_at = created_at - interval '2 minutes'").await;
    db.define("ordered").await;
    db.run("select tuskline.set_order('ordered')").await;
    let order = "select tuskline.schedule('ordered', p_ordering_key => 'k')";
    db.run(order).await;
    while db.enqueue_due().await > 0 {}
    let worker = db.worker("ordered").await;
    worker.fail_for_good(&worker.take().await).await;
    db.run(order).await; // waits for a person
    let (server, token, serving) = served(&db).await;
    let (own, prometheus) = (free_address(), free_address());
    let dir = tempfile::tempdir().unwrap();
    let Some(running) = start(dir.path(), prometheus, [server, own]) else { return };
    let sdk_worker = metered_worker(&db, own);
    let _consumer = db.store_consumer();
    let began = Instant::now();
    let dead = r#"tuskline_tasks_dead_total{lambda="work"} > 0"#; // the failures are there, too
    let mut silent: Vec<String> = queries();
    silent.push(dead.to_owned());
    while !silent.is_empty() {
        assert!(began.elapsed() < Duration::from_secs(120), "no series for {silent:#?}");
        for payload in ["good", "good", "bad", "soon"] {
            let delay = if payload == "soon" { "1 ms" } else { "0" };
            let sql = "select tuskline.schedule('work', to_json($1::text), p_delay => $2::text::interval)";
            db.ask::<i64>(sql, &[&payload, &delay]).await;
        }
        db.run("select tuskline.fold_statistics('0 s')").await; // counters show what is folded
        let mut left = Vec::new();
        for query in silent {
            if series(prometheus, &query).await.is_none_or(|found| found == 0) {
                left.push(query);
            }
        }
        silent = left;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    sdk_worker.stop().await;
    drop(running);
    token.cancel();
    within(serving).await.unwrap();
}
