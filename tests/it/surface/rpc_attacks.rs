//! Attacks on the Frontend by RPC, and messages that no program of good will sends. Each is refused by its
//! name, and changes nothing.

use std::process::Command;
use std::time::Duration;

use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tuskline::pages::{Access, Options, Proxy};
use tuskline::port_tls::PortTls;

use crate::support::company::{Company, SECRET};
use crate::support::pages::{people, person};
use crate::support::rpc::{Rpc, request, said};
use crate::support::{get, within};

const SHOP: (&str, &str) = ("Authorization", "Bearer shop");

/// A call that would schedule.
const GOOD: &str = r#"{"request_id":"good","lambda":"open_one"}"#;

/// Each message, on what belongs to the victim.
const MESSAGES: [(&str, &str); 6] = [
    ("Schedule", r#"{"request_id":"a","lambda":"charge_card"}"#),
    ("Schedule", r#"{"lambda":"charge_card","unique_key":"cust-1","payload":"{}"}"#),
    (
        "ScheduleMany",
        r#"{"request_id":"b","tasks":[{"lambda":"open_one"},{"lambda":"charge_card"}]}"#,
    ),
    ("ScheduleMany", r#"{"tasks":[{"lambda":"charge_card","unique_key":"cust-1"}]}"#),
    ("Cancel", r#"{"task":"<later>"}"#),
    ("Cancel", r#"{"task":"<held>"}"#),
];

/// The tasks that the attacks could have made.
async fn tasks(company: &Company) -> i64 {
    company.db.one("select count(*) from tuskline.task").await
}

#[tokio::test]
async fn a_role_without_the_right_does_nothing_by_rpc() {
    let company = Company::at_work().await;
    let names = ["shop", "rival", "viewer", "auditor", "stranger"];
    let rpc = Rpc::to(&company.db, people(&company, &names)).await;
    let (before, all) = (company.state().await, tasks(&company).await);
    let mut tried = 0;
    for (message, body) in MESSAGES {
        let body = company.filled(body);
        for name in names {
            let bearer = format!("Bearer {name}");
            let refused = rpc.post(message, &[("Authorization", &bearer)], &body).await;
            assert_eq!(
                (refused.status, &refused.json["code"]),
                (403, &"42501".into()),
                "{name} {body}: {refused:?}"
            );
            tried += 1;
        }
        let refused = rpc.post(message, &[], &body).await;
        assert_eq!(refused.refusal(), (401, "no_identity"), "{body}: {refused:?}");
        tried += 1;
    }
    assert_eq!((tried, tasks(&company).await), (36, all));
    assert_eq!(company.state().await, before);
    rpc.end().await;
}

#[tokio::test]
async fn an_answer_shows_no_more_than_the_role_may_see() {
    let company = Company::at_work().await;
    let rpc = Rpc::to(&company.db, people(&company, &["shop", "viewer", "auditor", "rival"])).await;
    let mut seen = 0;
    for task in ["<good>", "<dead>", "<held>", "<later>"] {
        let body = json!({ "task": company.filled(task), "wait_ms": 0 });
        let asked = json!({ "task": company.filled(task) });
        for (message, body) in [("Status", &asked), ("Explain", &asked), ("Wait", &body)] {
            for name in ["shop", "viewer", "rival"] {
                let answer = rpc.call_as(name, message, body).await;
                assert!(!answer.json.to_string().contains(SECRET), "{name} {message}: {answer:?}");
            }
            let answer = rpc.call_as("auditor", message, body).await;
            seen += usize::from(answer.json.to_string().contains(SECRET));
        }
    }
    assert!(seen >= 8, "{seen}: the secret is there for a role that may inspect");
    rpc.end().await;
}

#[tokio::test]
async fn a_role_that_the_server_may_not_set_is_refused() {
    let company = Company::at_work().await;
    let mut access = people(&company, &["shop"]);
    access.tokens.push(person("gone", "no_such_role"));
    access.tokens.push(person("root", "pg_read_all_data"));
    let rpc = Rpc::to(&company.db, access).await;
    let all = tasks(&company).await;
    for name in ["gone", "root"] {
        for (message, body) in [
            ("Schedule", json!({ "request_id": "a", "lambda": "open_one" })),
            ("Cancel", json!({ "task": company.filled("<later>") })),
            ("Status", json!({ "task": company.filled("<later>") })),
            ("Explain", json!({ "task": company.filled("<later>") })),
            ("Wait", json!({ "task": company.filled("<later>") })),
        ] {
            let refused = rpc.call_as(name, message, &body).await;
            assert_eq!(refused.refusal(), (403, "no_role"), "{name} {message}: {refused:?}");
        }
    }
    assert_eq!(tasks(&company).await, all);
    // The session of a call that was refused serves the next one as its own role.
    let good = rpc.post("Schedule", &[SHOP], GOOD).await;
    assert_eq!(good.status, 200, "{good:?}");
    rpc.end().await;
}

#[tokio::test]
async fn a_token_counts_in_its_header_only() {
    let company = Company::at_work().await;
    let rpc = Rpc::to(&company.db, people(&company, &["shop"])).await;
    let all = tasks(&company).await;
    for (path, headers, refusal) in [
        ("Schedule?token=shop", &[][..], (400, "invalid_message")),
        ("Schedule?token=shop", &[SHOP][..], (400, "invalid_message")),
        ("Schedule?x", &[SHOP], (400, "invalid_message")),
        ("Schedule", &[("Cookie", "tuskline_token=shop")], (401, "no_identity")),
        ("Schedule", &[("Authorization", "Basic c2hvcDpzaG9w")], (401, "no_identity")),
        ("Schedule", &[("Authorization", "Bearer sho")], (401, "no_identity")),
        ("Schedule", &[("Authorization", "Bearer")], (401, "no_identity")),
        (
            "Schedule",
            &[("Authorization", "Bearer "), ("Cookie", "tuskline_token=shop")],
            (401, "no_identity"),
        ),
        // A token that was taken back is in no line of the file.
        ("Status", &[("Authorization", "Bearer expired")], (401, "no_identity")),
        (
            "Status",
            &[("X-Forwarded-User", "shop"), ("Authorization", "Bearer x")],
            (401, "no_identity"),
        ),
    ] {
        let refused = rpc.post(path, headers, GOOD).await;
        assert_eq!(refused.refusal(), refusal, "{path} {headers:?}: {refused:?}");
        let challenge = refused.head.contains("www-authenticate: Bearer");
        assert_eq!(challenge, refused.status == 401, "{refused:?}");
    }
    assert_eq!(tasks(&company).await, all);
    // A person without a token looks at pages on loopback. A program has a token.
    let later = company.filled(r#"{"task":"<later>"}"#);
    for message in ["Status", "Explain", "Wait"] {
        let refused = rpc.post(message, &[], &later).await;
        assert_eq!(refused.refusal(), (401, "no_identity"), "{message}: {refused:?}");
    }
    rpc.end().await;
    // `tuskline dev` needs no token for an act. Pages of other sites do not profit from that.
    let free = Access { role: company.filled("<shop>"), acts_freely: true, ..Access::default() };
    let dev = Rpc::to(&company.db, free).await;
    for (header, status) in [
        (("Origin", "https://evil.example.com"), 403),
        (("Content-Type", "text/plain"), 415),
        (("Host", "evil.example"), 421),
        (("Accept", "*/*"), 200),
    ] {
        assert_eq!(dev.post("Schedule", &[header], GOOD).await.status, status, "{header:?}");
    }
    dev.end().await;
}

#[tokio::test]
async fn a_name_by_a_proxy_needs_its_secret() {
    let company = Company::at_work().await;
    let roles = [("web shop".to_owned(), company.filled("<shop>"))];
    let proxy = Proxy {
        header: "x-forwarded-user".parse().unwrap(),
        secret: "a secret of the proxy".to_owned(),
        roles: roles.into(),
    };
    let rpc = Rpc::to(&company.db, Access { proxy: Some(proxy), ..people(&company, &[]) }).await;
    let secret = ("Tuskline-Proxy-Secret", "a secret of the proxy");
    let name = ("X-Forwarded-User", "web shop");
    for (headers, status) in [
        (&[name][..], 403),
        (&[name, ("Tuskline-Proxy-Secret", "a secret of the prox")], 403),
        (&[("X-Forwarded-User", "mallory"), secret], 403),
        (&[("X-Forwarded-User", "mallory"), name, secret], 403),
        (&[secret], 401),
        (&[], 401),
        (&[name, secret, ("Sec-Fetch-Site", "cross-site")], 403),
        (&[name, secret], 200),
    ] {
        let answer = rpc.post("Schedule", headers, GOOD).await;
        assert_eq!(answer.status, status, "{headers:?}: {answer:?}");
    }
    rpc.end().await;
}

#[tokio::test]
async fn no_page_of_another_site_makes_a_call() {
    let company = Company::at_work().await;
    let rpc = Rpc::to(&company.db, people(&company, &["shop"])).await;
    let all = tasks(&company).await;
    for (headers, refusal) in [
        (&[("Sec-Fetch-Site", "cross-site")][..], (403, "other_site")),
        (&[("Sec-Fetch-Site", "same-site")], (403, "other_site")),
        (&[("Sec-Fetch-Site", "none")], (403, "other_site")),
        (&[("Origin", "https://evil.example.com")], (403, "other_site")),
        (&[("Origin", "http://localhost:1")], (403, "other_site")),
        (&[("Origin", "null")], (403, "other_site")),
        (&[("Sec-Fetch-Site", "cross-site"), ("Origin", "http://localhost")], (403, "other_site")),
        // A form of a browser, or a call that asks nobody first.
        (&[("Content-Type", "application/x-www-form-urlencoded")], (415, "invalid_content_type")),
        (&[("Content-Type", "multipart/form-data; boundary=x")], (415, "invalid_content_type")),
        (&[("Content-Type", "text/plain")], (415, "invalid_content_type")),
        (&[("Content-Type", "text/plain; application/json")], (415, "invalid_content_type")),
        (&[("Content-Type", "application/json; charset=utf-7")], (415, "invalid_content_type")),
        (&[("Content-Type", "application/jsonp")], (415, "invalid_content_type")),
        (&[("Content-Type", "-")], (415, "invalid_content_type")),
        (&[("Host", "evil.example")], (421, "wrong_host")),
        (&[("Host", "localhost.evil.example")], (421, "wrong_host")),
        (&[("Host", "127.0.0.1.evil.example")], (421, "wrong_host")),
        (&[("Host", "0x7f.1")], (421, "wrong_host")),
        (&[("Host", "")], (421, "wrong_host")),
    ] {
        let headers: Vec<_> = headers.iter().copied().chain([SHOP]).collect();
        let refused = rpc.post("Schedule", &headers, GOOD).await;
        assert_eq!(refused.refusal(), refusal, "{headers:?}: {refused:?}");
        assert!(!refused.head.contains("access-control"), "{refused:?}");
    }
    // Its question whether it may.
    let ask = "OPTIONS /tuskline.v1.Frontend/Schedule HTTP/1.1\r\nHost: localhost\r\n\
               Origin: https://evil.example.com\r\nAccess-Control-Request-Method: POST\r\n\r\n";
    let refused = rpc.send(ask).await;
    assert_eq!(refused.refusal(), (405, "invalid_method"), "{refused:?}");
    assert!(!refused.head.contains("access-control"), "{refused:?}");
    assert_eq!(tasks(&company).await, all);
    let ours = [
        ("Sec-Fetch-Site", "same-origin"),
        ("Content-Type", "Application/JSON; charset=UTF-8"),
        SHOP,
    ];
    assert_eq!(rpc.post("Schedule", &ours, GOOD).await.status, 200);
    rpc.end().await;
}

#[tokio::test]
async fn no_address_leads_to_another_message_or_out_of_the_base_path() {
    let company = Company::at_work().await;
    let options = Options { access: people(&company, &["shop"]), base: "/x".to_owned() };
    let rpc = Rpc::with(&company.db.config, options.into()).await;
    let all = tasks(&company).await;
    for path in [
        "/tuskline.v1.Frontend/Schedule",
        "/x/tuskline.v1.Frontend",
        "/x/tuskline.v1.Frontend/",
        "/x/tuskline.v1.Frontend/Redrive",
        "/x/tuskline.v1.Frontend/schedule",
        "/x/tuskline.v1.Frontend/Schedule/",
        "/x/tuskline.v1.Frontend/Schedule/x",
        "/x/tuskline.v1.Frontend/Schedule%00",
        "/x/tuskline.v1.Frontend/%2e%2e/Schedule",
        "/x/../tuskline.v1.Frontend/Schedule",
        "/x//tuskline.v1.Frontend/Schedule",
        "//x/tuskline.v1.Frontend/Schedule",
        "/x/tuskline.v1.Controller/NextWork",
        "/y/tuskline.v1.Frontend/Schedule",
    ] {
        let answer = rpc.post(path, &[SHOP], GOOD).await;
        assert_eq!(answer.status, 404, "{path}: {answer:?}");
    }
    // A text of the caller comes back as JSON, which no browser takes for a page.
    let script = rpc
        .post("/x/tuskline.v1.Frontend/%3Cscript%3Ealert(1)%3C%2Fscript%3E", &[SHOP], GOOD)
        .await;
    assert_eq!(script.refusal(), (404, "unknown_message"), "{script:?}");
    for line in [
        "content-type: application/json",
        "x-content-type-options: nosniff",
        "cache-control: no-store",
    ] {
        assert!(script.head.contains(line), "{script:?}");
    }
    let looked = get(rpc.address, "/x/tuskline.v1.Frontend/Schedule").await;
    assert!(looked.starts_with("HTTP/1.1 405") && looked.contains("allow: POST"), "{looked}");
    assert_eq!(tasks(&company).await, all);
    assert_eq!(rpc.post("/x/tuskline.v1.Frontend/Schedule", &[SHOP], GOOD).await.status, 200);
    rpc.end().await;
}

#[tokio::test]
async fn a_server_that_only_shows_schedules_and_cancels_nothing() {
    let company = Company::at_work().await;
    let access = Access { read_only: true, ..people(&company, &["shop", "oncall"]) };
    let rpc = Rpc::to(&company.db, access).await;
    let (before, all) = (company.state().await, tasks(&company).await);
    for (message, body) in MESSAGES.iter().chain(&[("Schedule", GOOD)]) {
        for name in ["Bearer shop", "Bearer oncall"] {
            let refused =
                rpc.post(message, &[("Authorization", name)], &company.filled(body)).await;
            assert_eq!(refused.refusal(), (403, "forbidden"), "{body}: {refused:?}");
        }
    }
    assert_eq!((company.state().await, tasks(&company).await), (before, all));
    let status = json!({ "task": company.filled("<mail>") });
    assert_eq!(rpc.call_as("oncall", "Status", &status).await.status, 200);
    rpc.end().await;
}

/// The head of a call, with this length of its body.
fn head(length: u64, token: &str) -> String {
    format!(
        "POST /tuskline.v1.Frontend/Schedule HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\
         Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    )
}

#[tokio::test]
async fn the_port_answers_whatever_frames_and_bodies_do() {
    let company = Company::at_work().await;
    let rpc = Rpc::to(&company.db, people(&company, &["shop"])).await;
    let all = tasks(&company).await;
    // The length that is said is enough, and a body without one is read to the bound.
    let huge = rpc.send(&head(1 << 40, "shop")).await;
    assert_eq!(huge.refusal(), (413, "too_large"), "{huge:?}");
    let chunked = [("Transfer-Encoding", "chunked"), ("Content-Length", "-"), SHOP];
    let chunk = format!("{:x}\r\n{}\r\n", 9 << 20, " ".repeat(9 << 20));
    let mut stream = rpc.begin(&request("Schedule", &chunked, "")).await;
    let _ = stream.write_all(chunk.as_bytes()).await; // The answer may come before its end.
    let endless = within(said(stream)).await;
    assert_eq!(endless.refusal(), (413, "too_large"), "{endless:?}");
    // No body is kept of a sender who is not known.
    let unknown = rpc.send(&head(1 << 40, "mallory")).await;
    assert_eq!(unknown.refusal(), (401, "no_identity"), "{unknown:?}");
    // A body that does not come ends its call, and so does one that ends early.
    let slow = within(rpc.send(&format!("{}{{", head(9, "shop")))).await;
    assert_eq!(slow.refusal(), (408, "slow_message"), "{slow:?}");
    for broken in [
        "POST /tuskline.v1.Frontend/Schedule HTTP/9.9\r\n\r\n",
        "\u{16}\u{3}\u{1}",
        "POST /tuskline.v1.Frontend/Schedule HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        "POST /tuskline.v1.Frontend/Schedule HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    ] {
        let answer = within(rpc.send(broken)).await;
        assert!([0, 400].contains(&answer.status), "{broken:?}: {answer:?}");
    }
    for body in [
        "",
        "{",
        "null",
        "7",
        "\"x\"",
        "[]",
        "{}",
        &"[".repeat(500_000),
        &"{\"a\":".repeat(100_000),
    ] {
        let refused = rpc.post("Schedule", &[SHOP], body).await;
        assert_eq!(refused.refusal(), (400, "invalid_message"), "{refused:?}");
    }
    let mut bytes = request("Schedule", &[SHOP], "{\"lambda\":\"abcd\"}").into_bytes();
    let last = bytes.len() - 4;
    bytes[last] = 0xff;
    let mut stream = rpc.begin("").await;
    stream.write_all(&bytes).await.unwrap();
    assert_eq!(within(said(stream)).await.refusal(), (400, "invalid_message"));
    let mut open = Vec::new();
    for _ in 0..600 {
        let mut stream = TcpStream::connect(rpc.address).await.unwrap();
        stream.write_all(head(1_000, "shop").as_bytes()).await.unwrap();
        open.push(stream);
    }
    assert!(get(rpc.address, "/healthz").await.starts_with("HTTP/1.1 200"));
    assert_eq!(tasks(&company).await, all);
    assert_eq!(rpc.post("Schedule", &[SHOP], GOOD).await.status, 200);
    drop(open);
    let long = format!("{{\"task\":\"{}\"}}", "7".repeat(70_000));
    assert_eq!(rpc.post("Cancel", &[SHOP], &long).await.refusal(), (413, "too_large"));
    rpc.end().await;
}

#[tokio::test]
async fn idle_waits_do_not_keep_others_from_their_answers() {
    let company = Company::at_work().await;
    let rpc = Rpc::to(&company.db, people(&company, &["shop"])).await;
    let wait = format!("{{\"task\":\"{}\"}}", company.filled("<mail>"));
    let mut open = Vec::new();
    for _ in 0..1_000 {
        open.push(rpc.begin(&request("Wait", &[SHOP], &wait)).await);
    }
    assert!(get(rpc.address, "/healthz").await.starts_with("HTTP/1.1 200"));
    let good = async {
        loop {
            let answer = rpc.post("Schedule", &[SHOP], GOOD).await;
            if answer.status != 503 {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert_eq!(within(good).await.status, 200);
    drop(open);
    rpc.end().await;
}

/// The status of a call by curl.
async fn curl(url: String, more: &[&str]) -> String {
    let mut curl = Command::new("curl");
    curl.args(["-s", "-o", "/dev/null", "-w", "%{http_code}", "--max-time", "10", &url]).args(more);
    curl.args([
        "-H",
        "content-type: application/json",
        "-H",
        "authorization: Bearer shop",
        "-d",
        GOOD,
    ]);
    let ran = tokio::task::spawn_blocking(move || curl.output()).await.unwrap().unwrap();
    String::from_utf8_lossy(&ran.stdout).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn without_tls_a_port_with_certificates_makes_no_call() {
    let company = Company::at_work().await;
    let files = tempfile::tempdir().unwrap();
    let signed = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let [cert, key] = ["cert", "key"].map(|name| files.path().join(name));
    std::fs::write(&cert, signed.cert.pem()).unwrap();
    std::fs::write(&key, signed.signing_key.serialize_pem()).unwrap();
    let options = Options { access: people(&company, &["shop"]), base: String::new() };
    let tls = PortTls::read(&cert, &key).unwrap();
    let rpc = Rpc::by(&company.db.config, options.into(), Some(tls)).await;
    let at = format!("localhost:{}/tuskline.v1.Frontend/Schedule", rpc.address.port());
    let all = tasks(&company).await;
    assert_eq!(curl(format!("http://{at}"), &[]).await, "404");
    assert_eq!(tasks(&company).await, all);
    let trusted = cert.display().to_string();
    assert_eq!(curl(format!("https://{at}"), &["--cacert", &trusted]).await, "200");
    rpc.end().await;
}
