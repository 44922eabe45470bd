//! The pages of `docs/pages.md`: each answers, escapes what users wrote, and reads as the role of the
//! person; nothing is read while no page is open.

use std::net::SocketAddr;

use tuskline::pages::{Access, Options};

use crate::support::cli::on;
use crate::support::company::{Company, SECRET};
use crate::support::pages::{Pages, person};
use crate::support::{Db, ask, get, served_pages, within};

/// The status and the body of an answer.
async fn page(address: SocketAddr, path: &str) -> (u16, String) {
    let answer = get(address, path).await;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head[9..12].parse().unwrap(), body.to_owned())
}

/// A text of a person.
const WRITTEN: &str = "<img src=x onerror=alert(1)>";

/// A database with something on each page. The texts of users contain HTML.
async fn filled() -> Db {
    let db = Db::with_lambda("work").await;
    db.define("later").await;
    let worker = db.worker("work").await;
    db.schedule("work").await;
    worker.fail_for_good(&worker.take().await).await;
    db.run(&format!(
        "select tuskline.gate('later', 'pause', p_reason => '{WRITTEN}'),
                tuskline.set_limit('work', 4), tuskline.set_order('later'),
                tuskline.define_periodic('nightly', 'work', '30 2 * * *', p_zone => 'Europe/Berlin'),
                tuskline.start_operation('cancel', 'later', p_reason => '{WRITTEN}'),
                tuskline.schedule('later', '\"{WRITTEN}\"', p_delay => '1 h', p_ordering_key => '{WRITTEN}'),
                tuskline.schedule_chain('[{{\"name\":\"a\",\"lambda\":\"later\"}},{{\"lambda\":\"work\",\"after\":[\"a\"]}}]'::text)"
    ))
    .await;
    db
}

#[tokio::test]
async fn each_page_answers_and_escapes_what_users_wrote() {
    let db = filled().await;
    let (address, token, serving) = served_pages(&db, Options::default()).await;
    let later: i64 =
        db.one("select min(id) from tuskline.tasks where ordering_key is not null").await;
    let child: i64 = db.one("select max(task_id) from tuskline.chain_tasks").await;
    let paths = [
        "/".to_owned(),
        "/lambdas".to_owned(),
        "/lambdas/work".to_owned(),
        "/lambdas/later".to_owned(),
        format!("/tasks/{later}"),
        format!("/tasks/{later}?show=contents"),
        format!("/chains/{child}"),
        "/dead-letters".to_owned(),
        "/dead-letters?lambda=work".to_owned(),
        "/waits".to_owned(),
        "/periodic".to_owned(),
        "/periodic/nightly".to_owned(),
        "/executors".to_owned(),
        "/operations".to_owned(),
        "/audit".to_owned(),
    ];
    for path in &paths {
        let (status, body) = page(address, path).await;
        assert_eq!(status, 200, "{path}: {body}");
        assert!(body.starts_with("<!DOCTYPE html>") && body.ends_with("</html>"), "{path}");
        assert!(!body.contains("<img"), "{path}");
        for banned in ["style=", "onclick", "hx-on", "<script>"] {
            assert!(!body.contains(banned), "{path} has {banned}");
        }
        let joint = if path.contains('?') { '&' } else { '?' };
        let (status, json) = page(address, &format!("{path}{joint}format=json")).await;
        assert_eq!(status, 200, "{path}: {json}");
        serde_json::from_str::<serde_json::Value>(&json).unwrap();
    }
    let (_, shown) = page(address, &paths[5]).await;
    assert!(shown.contains("&lt;img src=x onerror=alert(1)&gt;"), "{shown}");
    let looked: i64 =
        db.one("select count(*) from tuskline.audit where verb = 'show_contents'").await;
    assert_eq!(looked, 3, "two looks at a page and one at its JSON");
    token.cancel();
    serving.await.unwrap();
}

#[tokio::test]
async fn a_task_of_ten_thousand_attempts_has_a_page_of_the_newest() {
    let db = Db::with_lambda("work").await;
    let task = db.schedule("work").await;
    db.run(&format!(
        "insert into tuskline.task_failure (task_id, fence, attempt, executor_id, error_class, message,
                                            fingerprint, failed_at, outcome, started_at, retry_at)
         select {task}, n, n, 1, 'error', 'no ' || n, 'f', now() - (10000 - n) * interval '1 s',
                'retriable_failure', now() - (10000.5 - n) * interval '1 s',
                now() - (9999.75 - n) * interval '1 s'
           from generate_series(1, 10000) n;
         update tuskline.task set status = 'retriable_failure', attempt = 10000 where id = {task}"
    ))
    .await;
    let (address, token, serving) = served_pages(&db, Options::default()).await;
    let (status, body) = page(address, &format!("/tasks/{task}?format=json")).await;
    let facts: serde_json::Value = serde_json::from_str(&body).unwrap();
    let attempts = facts["attempts"].as_array().unwrap();
    assert_eq!((status, attempts.len(), &facts["more_attempts"]), (200, 100, &true.into()));
    let of = |nth: usize| (attempts[nth]["attempt"].as_i64(), attempts[nth]["retry_ms"].as_i64());
    assert_eq!(of(0).0, Some(10_001));
    assert_eq!([of(1), of(99)], [(Some(10_000), Some(250)), (Some(9_902), Some(250))]);
    let (status, body) = page(address, &format!("/tasks/{task}")).await;
    assert!(status == 200 && body.contains("100 of more, the newest first"), "{body}");
    assert!(body.len() < 100_000, "{}", body.len());
    token.cancel();
    serving.await.unwrap();
}

#[tokio::test]
async fn what_is_not_there_is_said() {
    let db = Db::new().await;
    let (address, token, serving) = served_pages(&db, Options::default()).await;
    let (status, first) = page(address, "/").await;
    assert!(status == 200 && first.contains("No lambda is defined yet"), "{first}");
    for path in ["/tasks/1", "/lambdas/none", "/chains/1", "/periodic/none"] {
        let (status, body) = page(address, path).await;
        assert!(status == 404 && body.contains("Not found"), "{path}: {status}");
    }
    for path in ["/tasks/x", "/chains/9223372036854775808", "/?token=a"] {
        assert_eq!(page(address, path).await.0, 400, "{path}");
    }
    token.cancel();
    serving.await.unwrap();
}

#[tokio::test]
async fn a_page_reads_as_the_role_of_the_person() {
    let company = Company::at_work().await;
    let [viewer, auditor] = ["<viewer>", "<auditor>"].map(|role| company.filled(role));
    for (role, sees) in [(viewer, false), (auditor, true)] {
        let access = Access { role: role.clone(), ..Access::default() };
        let options = Options { access, ..Options::default() };
        let (address, token, serving) = served_pages(&company.db, options).await;
        let path = company.filled("/tasks/<held>?show=contents");
        let (status, body) = page(address, &path).await;
        assert_eq!(
            (status, body.contains(SECRET)),
            (if sees { 200 } else { 403 }, sees),
            "{role}: {body}"
        );
        for path in
            ["/", "/dead-letters", "/operations", "/audit", "/lambdas/charge_card", "/waits"]
        {
            let (status, body) = page(address, path).await;
            assert!(status == 200 && (sees || !body.contains(SECRET)), "{role}: {path}: {body}");
        }
        token.cancel();
        serving.await.unwrap();
    }
}

#[tokio::test]
async fn a_request_for_another_host_is_refused() {
    let db = Db::new().await;
    let hosts = vec!["queue.example".to_owned()];
    let access = Access { hosts, read_only: true, ..Access::default() };
    let (address, token, serving) =
        served_pages(&db, Options { access, base: "/tuskline".to_owned() }).await;
    for (host, wanted) in [
        ("localhost", "200"),
        ("127.0.0.1:80", "200"),
        ("[::1]:80", "200"),
        ("Queue.example:1", "200"),
        ("evil.example", "421"),
        ("localhost.evil.example", "421"),
        ("", "421"),
    ] {
        let request = format!("GET /tuskline HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let answer = ask(address, &request).await;
        assert_eq!(&answer[9..12], wanted, "{host}: {answer}");
    }
    let (status, body) = page(address, "/tuskline").await;
    assert!(status == 200 && body.contains("href=\"/tuskline/tasks\""), "{body}");
    assert_eq!(page(address, "/tuskline/").await.0, 308);
    assert!(get(address, "/healthz").await.contains("200 OK"), "the port answers as before");
    token.cancel();
    serving.await.unwrap();
}

#[tokio::test]
async fn the_overview_has_the_lines_of_the_doctor_that_are_not_ok() {
    let db = Db::with_lambda("work").await;
    let (address, token, serving) = served_pages(&db, Options::default()).await;
    let lines = within(async {
        loop {
            let (_, body) = page(address, "/?format=json").await;
            let found: serde_json::Value = serde_json::from_str(&body).unwrap();
            if let Some(lines) = found["doctor"]["lines"].as_array() {
                break lines.clone();
            }
        }
    })
    .await;
    let command = on(&db.config, "doctor --json").run().out;
    let mut wanted: Vec<serde_json::Value> = serde_json::from_str(&command).unwrap();
    wanted.retain(|line| line["verdict"] != "ok");
    let names = |lines: &[serde_json::Value]| {
        lines
            .iter()
            .map(|line| line["examined"].to_string())
            .collect::<std::collections::BTreeSet<_>>()
    };
    assert!(names(&wanted).contains("\"fsync\""), "a cluster of tests: {wanted:?}");
    assert_eq!(names(&lines), names(&wanted));
    let (_, body) = page(address, "/").await;
    assert!(body.contains("alter system set fsync = on; select pg_reload_conf()"), "{body}");
    token.cancel();
    serving.await.unwrap();
}

/// Pages that are open share one reading.
#[tokio::test]
async fn a_hundred_open_overviews_are_one_reading() {
    let db = filled().await;
    let (address, token, serving) = served_pages(&db, Options::default()).await;
    let sessions = "select count(*) from pg_stat_activity
                     where datname = current_database() and application_name = 'tuskline pages'";
    assert_eq!(db.one::<i64>(sessions).await, 0, "no page is open");
    let asking = (0..100).map(|_| page(address, "/"));
    let answers = futures_util::future::join_all(asking).await;
    assert!(answers.iter().all(|(status, _)| *status == 200));
    let times: std::collections::BTreeSet<_> = answers
        .iter()
        .map(|(_, body)| body.split("<time datetime=\"").nth(1).unwrap().split('"').next().unwrap())
        .collect();
    assert_eq!(times.len(), 1, "{times:?}");
    assert_eq!(db.one::<i64>(sessions).await, 1);
    token.cancel();
    serving.await.unwrap();
}

#[tokio::test]
async fn the_last_facts_are_not_fresh_once_a_reading_has_failed() {
    let db = Db::with_lambda("work").await;
    let task = db.schedule("work").await;
    assert_eq!(db.cancel(task).await, "cancelled");
    let access = Access { tokens: vec![person("ada", "tuskline_operator")], ..Access::default() };
    let pages = Pages::away(&db, access, ("ada", task)).await;
    for _ in 0..3 {
        let answer = pages.get("/", &[]).await;
        assert_eq!(answer.status, 503, "{answer:?}");
        assert!(answer.body.contains("The facts of") && answer.body.contains("work"), "{answer:?}");
    }
    pages.end().await;
}
