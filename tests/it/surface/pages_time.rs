//! The time line of the pages: events of acts and executors, beside the delays.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;
use tuskline::pages::Options;

use crate::support::{Db, get, served_pages};

async fn facts(address: SocketAddr, path: &str) -> Value {
    let answer = get(address, path).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{path}: {answer}");
    serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
}

fn kinds(facts: &Value) -> Vec<&str> {
    facts["events"].as_array().unwrap().iter().map(|one| one["kind"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_time_line_has_gates_limits_definitions_executors_and_delays() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    db.advance(Duration::from_secs(7_200)).await;
    let worker = db.worker("work").await;
    let queue = db.queue("work", "normal").await;
    for starts in [1, 20] {
        // 2.5 to 5 s from due to the start.
        let report = format!(
            "{}, '{{{queue},{queue}}}', '{{100,110}}', '{{4000,{starts}}}'",
            worker.executor
        );
        db.run(&format!("select tuskline.report_attempts({report})")).await;
        db.run("select tuskline.fold_statistics()").await;
        db.advance(Duration::from_secs(120)).await;
    }
    db.run("select tuskline.set_limit('work', 4)").await;
    db.advance(Duration::from_secs(60)).await;
    let gate: i64 = db.one("select tuskline.gate('work', 'pause', p_reason => 'why <b>')").await;
    db.advance(Duration::from_secs(600)).await;
    db.run(&format!("select tuskline.ungate({gate})")).await;
    db.advance(Duration::from_secs(60)).await;
    db.run("select tuskline.gate('work', 'pause', p_reason => 'again')").await;
    db.advance(Duration::from_secs(60)).await;
    let (address, token, serving) = served_pages(&db, Options::default()).await;
    let line = facts(address, "/time?format=json").await;
    assert_eq!(kinds(&line), ["gate", "gate", "gate", "limit", "executor"], "{line}");
    let events = &line["events"];
    assert_eq!((&events[0]["goes_on"], &events[2]["goes_on"]), (&true.into(), &false.into()));
    assert_eq!(events[2]["ended_at"], events[1]["at"], "{line}");
    assert!(events[4]["what"].as_str().unwrap().starts_with("1 executor of SDK"), "{line}");
    let delays = line["delays"].as_array().unwrap();
    let p95 = |one: &Value| one["p95_ms"].as_i64().unwrap();
    assert!(!delays.is_empty(), "{line}");
    assert!(delays.iter().all(|one| (2_500..=5_000).contains(&p95(one))), "{line}");
    let page = get(address, "/time?span=6h").await;
    for said in ["definition", "tuskline-every: 30", "why &lt;b&gt;", "10 min 00 s", ", so far"] {
        assert!(page.contains(said), "{said}: {page}");
    }
    let past = get(address, "/time?until=90m&span=15m").await;
    assert!(past.contains("Nothing changed in this time."), "{past}");
    assert!(!past.contains("tuskline-every") && !past.contains("data-every"), "{past}");
    for wrong in ["span=1s", "span=32d", "span=x", "until=noon"] {
        let answer = get(address, &format!("/time?{wrong}")).await;
        assert!(answer.starts_with("HTTP/1.1 400"), "{wrong}: {answer}");
    }
    token.cancel();
    serving.await.unwrap();
}
