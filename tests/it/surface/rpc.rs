//! The Frontend by RPC: each message does what its verb does, a repeated one does it once, and a wrong one is
//! refused by name. The attacks stand in `rpc_attacks`.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::OwnedReadHalf;
use tokio::net::{UnixStream, unix};

use rustix::process::Signal;
use tuskline::pages;
use tuskline::store::frontend::{self, NewTask};

use crate::support::cli::on;
use crate::support::company::Company;
use crate::support::page::blocks;
use crate::support::pages::people;
use crate::support::rpc::{Rpc, options, request, said};
use crate::support::{Db, ask, free_address, get, within};

/// The id of a scheduled task.
fn task(answer: &crate::support::rpc::Said) -> i64 {
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json["task"].as_str().unwrap().parse().unwrap()
}

/// Tasks of a database.
async fn count(db: &Db) -> i64 {
    db.one("select count(*) from tuskline.task").await
}

#[tokio::test]
async fn a_message_does_what_its_verb_does() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    db.run("select tuskline.set_order('work'), tuskline.set_unique('work')").await;
    let rpc = Rpc::of(&db).await;
    let payload = r#"{"to":"ada@example.org","cents":9007199254740993}"#;
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let first = json!({
            "request_id": "a", "lambda": "work", "payload": payload, "priority": "high",
            "collection": "eu", "delay_ms": 90_500, "ordering_key": "o", "fairness_key": "f",
            "unique_key": "u", "traceparent": trace,
    });
    let first = task(&rpc.call("Schedule", &first).await);
    let stored =
        "select concat_ws(' ', lambda, payload, priority, collection, scheduled_at - created_at,
                                   ordering_key, fairness_key, unique_key, traceparent)
                    from tuskline.task";
    let wanted = format!("work {payload} high eu 00:01:30.5 o f u {trace}");
    assert_eq!(db.one::<String>(stored).await, wanted);
    let at = (db.now().await + Duration::from_secs(3_600)).to_rfc3339();
    let many = json!({ "request_id": "b", "tasks": [
        { "lambda": "work", "priority": "low" },
        { "lambda": "work", "scheduled_at": at },
        { "lambda": "work", "payload": "[1]" },
    ] });
    let ids = rpc.call("ScheduleMany", &many).await.json["tasks"].clone();
    let ids: Vec<i64> =
        ids.as_array().unwrap().iter().map(|id| id.as_str().unwrap().parse().unwrap()).collect();
    let mut shown = Vec::new();
    for id in &ids {
        let sql = format!(
            "select concat_ws(' ', priority, status, payload) from tuskline.task where id = {id}"
        );
        shown.push(db.one::<String>(&sql).await);
    }
    assert_eq!(shown, ["low enqueued", "normal new", "normal enqueued [1]"]);
    let status = rpc.call("Status", &json!({ "task": first.to_string() })).await.json;
    let fields = ["id", "status", "payload", "unique_key"]
        .map(|name| status[name].as_str().unwrap().to_owned());
    assert_eq!(fields, [&first.to_string(), "new", payload, "u"]);
    assert_eq!((status.get("output"), status["attempt"].as_i64()), (None, Some(0)), "{status}");
    let due = chrono_of(&status["due_at"]) - chrono_of(&status["created_at"]);
    assert_eq!(due.num_milliseconds(), 90_500);
    let reasons = rpc.call("Explain", &json!({ "task": first.to_string() })).await.json;
    assert_eq!(reasons["reasons"][0]["reason"], "not_due", "{reasons}");
    let cancel = json!({ "task": first.to_string(), "reason": "a mistake" });
    assert_eq!(rpc.call("Cancel", &cancel).await.json, json!({ "outcome": "cancelled" }));
    assert_eq!(rpc.call("Cancel", &cancel).await.json, json!({ "outcome": "too_late" }));
    let audit = "select concat_ws(' ', verb, subject, detail, person) from tuskline.audit order by at desc limit 1";
    assert_eq!(db.one::<String>(audit).await, format!("cancel task {first} a mistake ada"));
    let none = json!({ "task": "2000000000000000" });
    assert_eq!(rpc.call("Cancel", &none).await.json, json!({ "outcome": "unknown" }));
    assert_eq!(rpc.call("Status", &none).await.refusal(), (404, "unknown_task"));
    assert_eq!(rpc.call("Wait", &none).await.refusal(), (404, "unknown_task"));
    assert_eq!(rpc.call("Explain", &none).await.json["reasons"][0]["reason"], "unknown");
    rpc.end().await;
}

fn chrono_of(value: &Value) -> chrono::DateTime<chrono::Utc> {
    value.as_str().unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_repeated_request_returns_the_same_tasks_and_schedules_nothing() {
    let db = Db::with_lambda("work").await;
    let rpc = Rpc::of(&db).await;
    let one = json!({ "request_id": "a", "lambda": "work", "payload": "1" });
    // A request that was refused may come again.
    let unknown = json!({ "request_id": "a", "lambda": "wrok" });
    assert_eq!(rpc.call("Schedule", &unknown).await.refusal(), (400, "unknown_lambda"));
    let first = rpc.call("Schedule", &one).await;
    for _ in 0..3 {
        assert_eq!(rpc.call("Schedule", &one).await.json, first.json);
    }
    // Another span repeats it.
    let mut traced = one.clone();
    traced["traceparent"] = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".into();
    assert_eq!(rpc.call("Schedule", &traced).await.json, first.json);
    for (field, value) in [("payload", "2"), ("priority", "high"), ("collection", "eu")] {
        let mut other = one.clone();
        other[field] = value.into();
        let refused = rpc.call("Schedule", &other).await;
        assert_eq!(refused.refusal(), (409, "other_request"), "{refused:?}");
        assert_eq!([&refused.json["code"], &refused.json["field"]], ["TK058", "request_id"]);
    }
    let many = json!({ "request_id": "b", "tasks": [{ "lambda": "work" }, { "lambda": "work" }] });
    let ids = rpc.call("ScheduleMany", &many).await;
    assert_eq!((ids.status, ids.json["tasks"].as_array().map(Vec::len)), (200, Some(2)));
    assert_eq!(rpc.call("ScheduleMany", &many).await.json, ids.json);
    assert_eq!(count(&db).await, 3);
    // The settings of a session do not change what equal tasks are.
    let at = "2027-01-01T00:00:00Z";
    let by_sql = format!(
        "select (tuskline.schedule_once('c', '{{work}}', p_scheduled_at => '{{{at}}}',
                                                         p_delays => '{{null}}'))[1]"
    );
    db.run(
        "set timezone = 'Asia/Tokyo'; set datestyle = 'SQL, DMY'; set intervalstyle = 'iso_8601'",
    )
    .await;
    let id: i64 = db.one(&by_sql).await;
    db.run("reset timezone; reset datestyle; reset intervalstyle").await;
    assert_eq!(db.one::<i64>(&by_sql).await, id);
    rpc.end().await;
}

#[tokio::test]
async fn request_ids_of_two_roles_are_apart() {
    let company = Company::at_work().await;
    let rpc = Rpc::to(&company.db, people(&company, &["shop", "biller"])).await;
    let one = json!({ "request_id": "a", "lambda": "open_one" });
    let [first, second] = ["shop", "biller"].map(|name| rpc.call_as(name, "Schedule", &one));
    let (first, second) = (task(&first.await), task(&second.await));
    assert_ne!(first, second);
    let again = rpc.call_as("biller", "Schedule", &one).await;
    assert_eq!(task(&again), second);
    rpc.end().await;
}

#[tokio::test]
async fn a_schedule_that_cannot_be_repeated_is_refused() {
    let db = Db::with_lambda("work").await;
    db.define("once").await;
    db.run("select tuskline.set_unique('once')").await;
    let rpc = Rpc::of(&db).await;
    let refused = rpc.call("Schedule", &json!({ "lambda": "work" })).await;
    assert_eq!(refused.refusal(), (400, "not_repeatable"), "{refused:?}");
    // Without set_unique a key holds nothing.
    let keyed = json!({ "lambda": "work", "unique_key": "k" });
    let refused = rpc.call("Schedule", &keyed).await;
    assert_eq!(refused.refusal(), (400, "invalid_key"), "{refused:?}");
    assert_eq!([&refused.json["code"], &refused.json["field"]], ["TK019", "unique_key"]);
    for wrong in ["", &"x".repeat(129)] {
        let refused = rpc.call("Schedule", &json!({ "lambda": "work", "request_id": wrong })).await;
        assert_eq!(refused.refusal(), (400, "invalid_request"), "{refused:?}");
    }
    assert_eq!(count(&db).await, 0);
    let longest = json!({ "lambda": "work", "request_id": "é".repeat(128) });
    assert_eq!(rpc.call("Schedule", &longest).await.status, 200);
    let once = json!({ "lambda": "once", "unique_key": "k" });
    let first = task(&rpc.call("Schedule", &once).await);
    assert_eq!(task(&rpc.call("Schedule", &once).await), first);
    assert_eq!(count(&db).await, 2);
    rpc.end().await;
}

#[tokio::test]
async fn of_two_calls_at_once_one_schedules() {
    let db = Db::with_lambda("work").await;
    let rpc = Rpc::of(&db).await;
    let blocked = "select count(*) = 1 from pg_stat_activity
                    where application_name = 'tuskline rpc' and wait_event_type = 'Lock'";
    for (end, at) in [("commit", "a"), ("rollback", "b")] {
        let mut other = db.connect().await;
        let rival = other.transaction().await.unwrap();
        let sql = format!("select tuskline.schedule_once('{at}', '{{work}}')");
        let ids: Vec<i64> = rival.query_one(&sql, &[]).await.unwrap().get(0);
        let one = json!({ "request_id": at, "lambda": "work" });
        let (answer, ()) = tokio::join!(rpc.call("Schedule", &one), async {
            db.until(blocked).await;
            match end {
                "commit" => rival.commit().await.unwrap(),
                _ => rival.rollback().await.unwrap(),
            }
        });
        assert_eq!(task(&answer) == ids[0], end == "commit", "{end}");
        assert_eq!(task(&rpc.call("Schedule", &one).await), task(&answer));
    }
    assert_eq!(count(&db).await, 2);
    rpc.end().await;
}

#[tokio::test]
async fn a_call_whose_answer_is_lost_is_done_once() {
    let db = Db::with_lambda("work").await;
    let rpc = Rpc::of(&db).await;
    for at in 0..20 {
        let one = json!({ "request_id": format!("r{at}"), "lambda": "work" });
        let bearer = [("Authorization", "Bearer ada")];
        for _ in 0..2 {
            drop(rpc.begin(&request("Schedule", &bearer, &one.to_string())).await);
        }
        let first = task(&rpc.call("Schedule", &one).await);
        assert_eq!(task(&rpc.call("Schedule", &one).await), first);
        assert_eq!(count(&db).await, at + 1);
    }
    rpc.end().await;
}

#[tokio::test]
async fn a_refusal_has_the_code_of_sql_and_the_field() {
    let db = Db::with_lambda("work").await;
    db.define_with("small", "p_max_payload_bytes => 5, p_max_backlog => 1").await;
    db.define("once").await;
    db.run("select tuskline.set_unique('once', 'queued', 'reject')").await;
    let rpc = Rpc::of(&db).await;
    let good = json!({ "request_id": "g", "lambda": "once", "unique_key": "k" });
    assert_eq!(rpc.call("Schedule", &good).await.status, 200);
    let of = |lambda: &str, field: &str, value: Value| json!({ "lambda": lambda, field: value });
    for (one, status, code, field) in [
        (of("wrok", "payload", Value::Null), 400, "TK001", "lambda"),
        (of("work", "collection", "E U".into()), 400, "TK002", "collection"),
        (of("small", "payload", "\"123456\"".into()), 413, "TK004", "payload"),
        (of("work", "delay_ms", (-1).into()), 400, "TK005", "delay_ms"),
        (of("work", "delay_ms", i64::MAX.into()), 400, "TK005", "scheduled_at"),
        (of("work", "scheduled_at", "2100-01-01T00:00:00Z".into()), 400, "TK005", "scheduled_at"),
        (of("work", "priority", "urgent".into()), 400, "TK006", "priority"),
        (of("work", "ordering_key", "o".into()), 400, "TK019", "ordering_key"),
        (of("work", "limit_key", "".into()), 400, "TK019", "limit_key"),
        (of("once", "unique_key", "k".into()), 409, "TK027", "unique_key"),
        (of("work", "traceparent", "00-0".into()), 400, "TK054", "traceparent"),
    ] {
        let mut alone = one.clone();
        alone["request_id"] = "r".into();
        let refused = rpc.call("Schedule", &alone).await;
        let said = (refused.status, refused.json["code"].as_str(), refused.json["field"].as_str());
        assert_eq!(said, (status, Some(code), Some(field)), "{one}: {refused:?}");
        let many = json!({ "request_id": "m", "tasks": [{ "lambda": "work" }, one] });
        let refused = rpc.call("ScheduleMany", &many).await;
        let said = (refused.status, refused.json["code"].as_str(), refused.json["field"].as_str());
        let field = format!("tasks[1].{field}");
        assert_eq!(said, (status, Some(code), Some(field.as_str())), "{many}: {refused:?}");
    }
    let none = json!({ "request_id": "m", "tasks": [] });
    let refused = rpc.call("ScheduleMany", &none).await;
    assert_eq!(
        (refused.refusal(), &refused.json["code"]),
        ((400, "invalid_batch"), &"TK007".into())
    );
    assert_eq!(count(&db).await, 1);
    db.run("select tuskline.schedule('small')").await;
    db.enqueue_due().await;
    db.run("select tuskline.run_policies()").await;
    let full = rpc.call("Schedule", &json!({ "request_id": "f", "lambda": "small" })).await;
    assert_eq!(
        (full.refusal(), &full.json["retry_after_ms"]),
        ((503, "backlog_full"), &1_000.into()),
        "{full:?}"
    );
    rpc.end().await;
}

#[tokio::test]
async fn a_wait_ends_with_the_task_or_with_its_limit() {
    let db = Db::with_lambda("work").await;
    let mut bounded = options(&db).await;
    bounded.longest_wait = Duration::from_millis(20);
    let short = Rpc::with(&db.config, bounded).await;
    let id = db.schedule("work").await;
    let wait = json!({ "task": id.to_string() });
    // The server's bound holds for a longer wait, too.
    for ms in [Value::Null, 0.into(), 3_600_000.into()] {
        let over = short.call("Wait", &json!({ "task": id.to_string(), "wait_ms": ms })).await;
        assert_eq!(
            (over.status, over.json["status"].as_str()),
            (200, Some("enqueued")),
            "{over:?}"
        );
    }
    let rpc = Rpc::of(&db).await;
    let worker = db.worker("work").await;
    let (ended, ()) = tokio::join!(rpc.call("Wait", &wait), async {
        let asked = format!("select count(*) = 1 from tuskline_core.awaited where task_id = {id}");
        db.until(&asked).await;
        let claimed = worker.claim(1).await;
        worker
            .note(&claimed[0], r#""status": "success", "output": {"cents": 9007199254740993}"#)
            .await;
    });
    assert_eq!((ended.status, ended.json["status"].as_str()), (200, Some("success")), "{ended:?}");
    assert_eq!(ended.json["output"], "{\"cents\": 9007199254740993}");
    assert_eq!(rpc.call("Wait", &wait).await.json, ended.json);
    short.end().await;
    rpc.end().await;
}

#[tokio::test]
async fn a_client_that_goes_away_and_a_server_that_ends_free_a_wait() {
    let db = Db::with_lambda("work").await;
    let mut bounded = options(&db).await;
    bounded.most_waits = 1;
    let rpc = Rpc::with(&db.config, bounded).await;
    let id = db.schedule("work").await;
    let wait = json!({ "task": id.to_string() });
    let begin = || request("Wait", &[("Authorization", "Bearer ada")], &wait.to_string());
    let first = rpc.begin(&begin()).await;
    let busy = async || {
        let answer = rpc.call("Wait", &json!({ "task": id.to_string(), "wait_ms": 0 })).await;
        match answer.status {
            503 => {
                assert_eq!(answer.json["retry_after_ms"], 1_000, "{answer:?}");
                assert_eq!(answer.refusal(), (503, "busy"));
                true
            }
            status => {
                assert_eq!(status, 200, "{answer:?}");
                false
            }
        }
    };
    within(async { while !busy().await {} }).await;
    // All else is answered meanwhile.
    assert_eq!(rpc.call("Status", &wait).await.status, 200);
    drop(first);
    within(async { while busy().await {} }).await;
    let second = rpc.begin(&begin()).await;
    within(async { while !busy().await {} }).await;
    rpc.tell_to_end();
    let last = within(said(second)).await;
    assert_eq!((last.status, last.json["status"].as_str()), (200, Some("enqueued")), "{last:?}");
    rpc.end().await;
}

#[tokio::test]
async fn without_a_database_a_call_says_when_to_repeat_it() {
    let db = Db::with_lambda("work").await;
    let (listener, config, _) = db.port().await;
    drop(listener);
    let rpc = Rpc::with(&config, options(&db).await).await;
    for message in ["Schedule", "Status", "Wait"] {
        let body = match message {
            "Schedule" => json!({ "request_id": "a", "lambda": "work" }),
            _ => json!({ "task": "1" }),
        };
        let answer = rpc.call(message, &body).await;
        assert_eq!(answer.refusal(), (503, "no_database"), "{answer:?}");
        assert_eq!(answer.json["retry_after_ms"], 1_000, "{answer:?}");
        assert!(answer.head.contains("retry-after: 1"), "{answer:?}");
    }
    rpc.end().await;
    // One that says nothing.
    let (_listener, config, _) = db.port().await;
    let rpc = Rpc::with(&config, options(&db).await).await;
    let answer = rpc.call("Schedule", &json!({ "request_id": "a", "lambda": "work" })).await;
    assert_eq!(answer.refusal(), (503, "no_database"), "{answer:?}");
    rpc.end().await;
}

/// Passes the messages of a client on, and counts the statements that it executes.
async fn counted(
    mut from: OwnedReadHalf,
    mut to: unix::OwnedWriteHalf,
    statements: Arc<AtomicUsize>,
) -> std::io::Result<()> {
    // The first message has no type.
    let mut kind = None;
    loop {
        let length = from.read_u32().await?;
        let mut body = vec![0; length as usize - 4];
        from.read_exact(&mut body).await?;
        statements.fetch_add(usize::from(matches!(kind, Some(b'Q' | b'E'))), Ordering::Relaxed);
        if let Some(kind) = kind {
            to.write_u8(kind).await?;
        }
        to.write_u32(length).await?;
        to.write_all(&body).await?;
        kind = Some(from.read_u8().await?);
    }
}

#[tokio::test]
async fn a_schedule_is_four_statements_and_one_of_them_is_the_verb() {
    let db = Db::with_lambda("work").await;
    let (listener, config, socket) = db.port().await;
    let counts = Arc::new(AtomicUsize::new(0));
    let (all, path) = (counts.clone(), socket.clone());
    let server = tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let (mut answers, requests) = UnixStream::connect(&path).await.unwrap().into_split();
            let (from, mut to) = client.into_split();
            tokio::spawn(counted(from, requests, all.clone()));
            tokio::spawn(async move { tokio::io::copy(&mut answers, &mut to).await });
        }
    });
    let rpc = Rpc::with(&config, options(&db).await).await;
    let schedule = async |at: usize| {
        let one = json!({ "request_id": format!("r{at}"), "lambda": "work" });
        task(&rpc.call("Schedule", &one).await);
        counts.load(Ordering::Relaxed)
    };
    schedule(0).await; // Opens a connection.
    let before = schedule(1).await;
    for at in 2..5 {
        assert_eq!(schedule(at).await - before, 4 * (at - 1), "begin, the role, the verb, commit");
    }
    rpc.end().await;
    server.abort();
}

/// A cancellation may end the statement that begins the transaction, and none of those behind it.
#[tokio::test]
async fn a_statement_without_its_role_does_nothing() {
    let db = Db::with_lambda("work").await;
    let id = db.schedule("work").await;
    let task = || NewTask { lambda: "work".to_owned(), ..NewTask::default() };
    let client = &db.client;
    assert!(frontend::schedule(client, "web", None, &[task()]).await.is_err());
    assert!(frontend::schedule(client, "web", Some("a"), &[task()]).await.is_err());
    assert!(frontend::cancel(client, "web", id, None).await.is_err());
    assert!(frontend::explain(client, "web", id).await.is_ok_and(|reasons| reasons == "[]"));
    assert!(frontend::status(client, "web", id).await.is_ok_and(|status| status.is_none()));
    assert_eq!((count(&db).await, db.status(id).await.as_str()), (1, "enqueued"));
}

#[tokio::test]
async fn the_janitor_deletes_requests_after_a_day() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    let schedule =
        "select tuskline.schedule_once('old ' || n, '{work}') from generate_series(1, 25) n";
    db.run(schedule).await;
    db.advance(Duration::from_secs(86_400)).await;
    db.run("select tuskline.schedule_once('new', '{work}')").await;
    let purge = "select tuskline.purge(10)";
    let left = "select count(*) from tuskline_core.schedule_request";
    assert_eq!(db.one::<i64>(purge).await, 0, "a day is not over");
    db.advance(Duration::from_secs(1)).await;
    let mut gone = Vec::new();
    for _ in 0..4 {
        gone.push((db.one::<i64>(purge).await, db.one::<i64>(left).await));
    }
    assert_eq!(gone, [(10, 16), (10, 6), (5, 1), (0, 1)]);
    let again = "select (tuskline.schedule_once('new', '{work}'))[1] = max(id) from tuskline.task";
    assert!(db.one::<bool>(again).await, "the new one is known");
}

#[tokio::test]
async fn a_server_with_tokens_answers_calls_beside_its_pages() {
    let db = Db::of_cell_0_with("work").await;
    let dir = tempfile::tempdir().unwrap();
    let tokens = dir.path().join("tokens");
    let hash: String = pages::hash("ada").iter().map(|byte| format!("{byte:02x}")).collect();
    let role: String = db.one("select current_user::text").await;
    std::fs::write(&tokens, format!("{hash} {role} Ada\n")).unwrap();
    let address = free_address();
    let line = format!("serve --listen {address} --base-path /x --token-file {}", tokens.display());
    let mut serving = on(&db.config, &line).start();
    serving.until_said("serving");
    let bearer = [("Authorization", "Bearer ada")];
    let one = r#"{"request_id":"a","lambda":"work"}"#;
    let answer = ask(address, &request("/x/tuskline.v1.Frontend/Schedule", &bearer, one)).await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with(r#"{"task":"1"}"#), "{answer}");
    assert!(get(address, "/x").await.starts_with("HTTP/1.1 200"));
    serving.signal(Signal::TERM);
    let ran = serving.end();
    assert_eq!(ran.code, 0, "{}", ran.err);
}

/// Whether an answer has each field that the page shows.
fn shows(page: &Value, answer: &Value) -> bool {
    match (page, answer) {
        (Value::Object(page), Value::Object(answer)) => {
            page.iter().all(|(name, value)| answer.get(name).is_some_and(|one| shows(value, one)))
        }
        (Value::Array(page), Value::Array(answer)) => {
            page.len() == answer.len()
                && page.iter().zip(answer).all(|(page, one)| shows(page, one))
        }
        _ => page == answer,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_calls_of_the_page_are_answered_as_it_shows() {
    let db = Db::of_cell_0().await;
    db.pin().await;
    db.define("send_email").await;
    let rpc = Rpc::of(&db).await;
    let page = include_str!("../../../docs/rpc.md");
    let all = blocks(page);
    let usual = all.iter().find(|block| block.text.starts_with("call() {")).unwrap();
    let mut calls = 0;
    for pair in all.windows(2) {
        let [call, shown] = pair else { unreachable!() };
        if shown.language != "json" {
            continue;
        }
        assert_eq!((call.language.as_str(), call.runs()), ("sh", Ok(false)), "line {}", call.line);
        let script = format!("{}{}", usual.text, call.text);
        let script = script.replace("127.0.0.1:8080", &rpc.address.to_string());
        let mut sh = Command::new("sh");
        sh.args(["-eu", "-c", &script]).env("token", "ada").stdin(Stdio::null());
        let ran = tokio::task::spawn_blocking(move || sh.output()).await.unwrap().unwrap();
        let said = String::from_utf8_lossy(&ran.stdout).into_owned();
        let answer: Value =
            serde_json::from_str(&said).unwrap_or_else(|_| panic!("{script}: {said:?} {ran:?}"));
        let wanted: Value = serde_json::from_str(&shown.text).unwrap();
        assert!(shows(&wanted, &answer), "line {}: {answer}", call.line);
        calls += 1;
    }
    assert!(calls >= 7, "{calls} calls");
    rpc.end().await;
}
