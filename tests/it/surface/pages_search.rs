//! Searches for tasks on the pages: what they find, how they go on, and what they refuse.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;
use tuskline::pages::{Access, Options};

use crate::support::company::{Company, SECRET};
use crate::support::{Db, get, served_pages};

/// A text as a part of an address.
fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

/// The facts of a search, from a place on.
async fn found(address: SocketAddr, q: &str, from: &str) -> Value {
    let answer = get(address, &format!("/tasks?format=json&q={}{from}", encoded(q))).await;
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{q}: {body}");
    serde_json::from_str(body).unwrap()
}

fn ids(facts: &Value, list: &str) -> Vec<i64> {
    let id = |task: &Value| task["id"].as_str().unwrap().parse().unwrap();
    facts[list].as_array().unwrap().iter().map(id).collect()
}

/// The link to the rest, if there is one.
fn rest(facts: &Value) -> Option<String> {
    let next = facts["next_ids"].as_array()?;
    let next: Vec<&str> = next.iter().map(|id| id.as_str().unwrap()).collect();
    Some(format!("&from={}", next.join(",")))
}

/// The tasks of a search, by following its links to the end. A busy machine takes more of them.
async fn all(address: SocketAddr, q: &str) -> Vec<i64> {
    let (mut tasks, mut from) = (Vec::new(), String::new());
    for _ in 0..500 {
        let facts = found(address, q, &from).await;
        tasks.extend(ids(&facts, "tasks"));
        match rest(&facts) {
            Some(next) => from = next,
            None => return tasks,
        }
    }
    panic!("{q} has no end");
}

#[tokio::test]
async fn a_walk_by_links_finds_each_match_once() {
    let db = Db::with_lambda("work").await;
    db.define("rare").await;
    db.pin().await;
    let mut newest = Vec::new();
    for round in 0..70 {
        db.advance(Duration::from_secs(1)).await;
        db.schedule_many("work", 60).await;
        db.run("select tuskline.schedule('work', p_delay => '1 h') from generate_series(1, 9)")
            .await;
        newest.insert(0, db.schedule("rare").await);
        if round % 3 == 0 {
            db.advance(Duration::from_secs(1)).await;
            newest.insert(0, db.schedule_in("rare", Duration::from_secs(3_600)).await);
        }
    }
    let (address, token, serving) = served_pages(&db, Options::default()).await;
    let (mut tasks, mut from) = (Vec::new(), String::new());
    loop {
        let facts = found(address, "lambda:rare", &from).await;
        tasks.extend(ids(&facts, "tasks"));
        // A task that is scheduled meanwhile is on no later page.
        db.schedule("rare").await;
        db.schedule_in("rare", Duration::from_secs(60)).await;
        let Some(next) = rest(&facts) else { break };
        from = next;
    }
    assert_eq!(tasks, newest);
    let every: i64 = db.one("select count(*) from tuskline.tasks").await;
    let mut tasks = all(address, "").await;
    tasks.dedup();
    assert_eq!(tasks.len() as i64, every);
    token.cancel();
    serving.await.unwrap();
}

#[tokio::test]
async fn a_search_finds_what_its_tokens_say() {
    let db = Db::with_lambda("work").await;
    db.define("mail").await;
    db.pin().await;
    db.run("select tuskline.set_limit('work', 1, p_by_key => true), tuskline.set_unique('mail', 'running')")
        .await;
    let [dead, held, waits, mail]: [i64; 4] = {
        let worker = db.worker("work").await;
        let dead = db.schedule("work").await;
        worker.fail_for_good(&worker.take().await).await;
        db.advance(Duration::from_secs(3_600)).await;
        let key = "select tuskline.schedule('work', '{\"to\":\"ada_%\"}', p_limit_key => 'a b')";
        let held = db.one(key).await;
        let waits = db.one(key).await;
        db.enqueue_due().await;
        let mail = "select tuskline.schedule('mail', '{\"to\":\"bea\"}', p_unique_key => 'u', \
                    p_collection => 'web', p_priority => 'high', p_delay => '1 h')";
        [dead, held, waits, db.one(mail).await]
    };
    let (address, token, serving) = served_pages(&db, Options::default()).await;
    let cause: String = db.one("select fingerprint from tuskline.dead_letter").await;
    let error: String = db.one("select error_class from tuskline.attempts").await;
    let newest = vec![mail, waits, held, dead];
    for (q, tasks) in [
        ("", newest.clone()),
        ("lambda:work,mail", newest.clone()),
        ("lambda:mail", vec![mail]),
        ("lambda:none", vec![]),
        ("status:fatal_failure,dead", vec![dead]),
        ("status:fatal_failure,new", vec![mail, waits, dead]),
        ("status:success", vec![]),
        ("priority:high", vec![mail]),
        ("collection:web", vec![mail]),
        ("key:\"a b\"", vec![waits, held]),
        ("lambda:mail key:u", vec![mail]),
        (&format!("cause:{cause}"), vec![dead]),
        (&format!("cause:{cause},x lambda:work,mail"), vec![dead]),
        (&format!("cause:{cause} lambda:mail"), vec![]),
        ("ADA_% \"{\"", vec![waits, held]),
        ("bea", vec![mail]),
        (error.as_str(), vec![dead]),
        ("a_a", vec![]),
        ("before:30m", vec![dead]),
        ("after:30m", vec![mail, waits, held]),
        ("after:2h before:30m", vec![dead]),
        ("before:2h", vec![]),
    ] {
        assert_eq!(all(address, q).await, tasks, "{q}");
    }
    let facts = found(address, "lambda:work key:\"a b\"", "").await;
    assert_eq!(ids(&facts, "key_holders"), [waits, held], "{facts}");
    let facts = found(address, "lambda:mail key:u", "").await;
    assert_eq!(ids(&facts, "key_holders"), [mail], "{facts}");
    let shown = get(address, "/tasks?q=status:fatal_failure").await;
    assert!(shown.contains("Looked at all 1 dead letters"), "{shown}");
    let shown = get(address, "/tasks?q=lambda:none").await;
    assert!(shown.contains("No task matches.") && shown.contains("pages in"), "{shown}");
    token.cancel();
    serving.await.unwrap();
}

#[tokio::test]
async fn a_search_that_is_not_understood_says_why() {
    let db = Db::with_lambda("work").await;
    let id = db.schedule("work").await;
    let (address, token, serving) = served_pages(&db, Options::default()).await;
    let long = "x".repeat(10_000);
    for (q, said) in [
        ("fp:1", "fp: is no token of a search."),
        ("status:broken", "status: is one of new, enqueued,"),
        ("lambda:", "A value is missing after lambda:"),
        ("after:noon", "after: is a time: 14:30"),
        ("\"open", "A quote is open"),
        ("0", "The number of a task is below"),
        (long.as_str(), "A search has at most 1000 bytes"),
        ("a\0b", "invalid byte sequence"),
    ] {
        let answer = get(address, &format!("/tasks?q={}", encoded(q))).await;
        assert!(answer.starts_with("HTTP/1.1 400"), "{q}: {answer}");
        assert!(answer.contains(said), "{said}: {answer}");
    }
    for from in ["x", "1,2,3", "-1"] {
        let answer = get(address, &format!("/tasks?q=&from={from}")).await;
        assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("from= is"), "{answer}");
    }
    let leads_to = async |path: &str, page: &str| {
        let answer = get(address, path).await.to_lowercase();
        assert!(answer.starts_with("http/1.1 303"), "{path}: {answer}");
        assert!(answer.contains(&format!("location: {page}\r\n")), "{path}: {answer}");
    };
    let task = format!("/tasks/{id}");
    leads_to(&format!("/tasks?q={id}"), &task).await;
    leads_to(&format!("/go?q=+{id}+"), &task).await;
    leads_to("/go?q=work", "/lambdas/work").await;
    leads_to("/go?q=no+work", "/tasks?q=no%20work").await;
    leads_to("/go?q=//example.org", "/tasks?q=%2f%2fexample.org").await;
    leads_to("/go", "/tasks?q=").await;
    token.cancel();
    serving.await.unwrap();
}

#[tokio::test]
async fn a_search_finds_by_contents_only_what_the_role_may_read() {
    let company = Company::at_work().await;
    let [viewer, auditor] = ["<viewer>", "<auditor>"].map(|role| company.filled(role));
    for (role, sees) in [(viewer, false), (auditor, true)] {
        let access = Access { role: role.clone(), ..Access::default() };
        let options = Options { access, ..Options::default() };
        let (address, token, serving) = served_pages(&company.db, options).await;
        for q in [SECRET, "key:cust-1", "key:cust-2", "lambda:charge_card key:cust-1"] {
            let facts = found(address, q, "").await;
            let tasks = [ids(&facts, "tasks"), ids(&facts, "key_holders")].concat();
            assert_eq!(!tasks.is_empty(), sees, "{role}, {q}: {facts}");
            assert!(!facts["tasks"].to_string().contains("\"payload\""), "{facts}");
        }
        let facts = found(address, "lambda:charge_card", "").await;
        assert!(!ids(&facts, "tasks").is_empty(), "{role}: {facts}");
        assert!(sees || !facts.to_string().contains(SECRET), "{role}: {facts}");
        token.cancel();
        serving.await.unwrap();
    }
}
