//! Attacks on the pages. Each is tried, counted, and changes nothing.

use std::time::{Duration, Instant};

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tuskline::pages::{Access, Proxy};

use crate::support::company::{Company, SECRET};
use crate::support::pages::{Pages, encoded, people, person};
use crate::support::{Db, within};

/// Every act, on what belongs to the victim.
const ACTS: [&str; 20] = [
    "cancel?task=<later>",
    "retry?task=<dead>",
    "cancel_chain?task=<child>",
    "retry_chain?task=<child>",
    "gate?lambda=charge_card",
    "ungate?gate=<gate>",
    "throttle?lambda=charge_card&per_second=1",
    "set_limit?lambda=charge_card&at_a_time=1",
    "drop_limit?limit=<limit>",
    "unblock?lambda=charge_card&key=cust-2",
    "pause_periodic?name=pay_daily",
    "resume_periodic?name=pay_daily",
    "run_periodic?name=pay_daily",
    "stop?operation=<operation>",
    "cancel_tasks?lambda=charge_card",
    "retry_tasks?lambda=charge_card",
    "redrive?lambda=charge_card",
    "purge?lambda=charge_card",
    "priority?lambda=charge_card&to=low",
    "collection?lambda=charge_card&to=eu",
];

const BEARER: (&str, &str) = ("Authorization", "Bearer oncall");

#[tokio::test]
async fn a_viewer_and_a_stranger_do_no_act_by_its_address() {
    let company = Company::at_work().await;
    let access = people(&company, &["viewer", "auditor", "rival"]);
    let pages = Pages::of(&company.db, access, "").await;
    let before = company.state().await;
    let mut tried = 0;
    for act in ACTS {
        let act = company.filled(act);
        for name in ["viewer", "auditor", "rival"] {
            let shown = pages.preview(name, &act).await;
            assert_eq!(shown["may"], false, "{name} {act}: {shown}");
            assert!(shown["why"]["grant"].is_string(), "{name} {act}: {shown}");
            let answer = pages.confirm(name, &act, &shown).await;
            assert_eq!(answer.status, 403, "{name} {act}: {answer:?}");
            tried += 1;
        }
        // Without a token a person on this machine looks, and does not act.
        let same = [("Sec-Fetch-Site", "same-origin")];
        let answer = pages.post(&format!("/act/{act}"), &same, &[("reason", "x")]).await;
        assert_eq!(answer.status, 403, "{act}: {answer:?}");
        tried += 1;
    }
    assert_eq!((tried, company.state().await), (80, before));
    pages.end().await;
}

#[tokio::test]
async fn no_act_is_done_by_a_get_or_on_a_server_that_only_shows() {
    let company = Company::at_work().await;
    let access = Access { read_only: true, ..people(&company, &["oncall"]) };
    let shows = Pages::of(&company.db, access, "").await;
    let pages = Pages::of(&company.db, people(&company, &["oncall"]), "").await;
    let before = company.state().await;
    for act in ACTS {
        let act = company.filled(act);
        let shown = pages.preview("oncall", &act).await;
        let token = shown["preview"].as_str().unwrap_or_default();
        let path = format!("/act/{act}&preview={token}&reason=x&number=1");
        assert_eq!(pages.get(&path, &[BEARER]).await.status, 400, "{act}");
        assert_eq!(shows.confirm("oncall", &act, &shown).await.status, 403, "{act}");
    }
    assert_eq!(company.state().await, before);
    shows.end().await;
    pages.end().await;
}

#[tokio::test]
async fn no_other_site_sends_a_post() {
    let company = Company::at_work().await;
    let pages = Pages::of(&company.db, people(&company, &["oncall"]), "").await;
    let before = company.state().await;
    let cookie = ("Cookie", "tuskline_token=oncall");
    let others: [&[(&str, &str)]; 8] = [
        &[("Sec-Fetch-Site", "cross-site")],
        &[("Sec-Fetch-Site", "same-site")],
        &[("Sec-Fetch-Site", "none")],
        &[("Origin", "https://evil.example.com")],
        &[("Origin", "http://localhost:1")],
        &[("Origin", "null")],
        &[("Sec-Fetch-Site", "cross-site"), ("Origin", "http://localhost")],
        &[],
    ];
    let mut tried = 0;
    for more in others {
        let headers: Vec<_> = more.iter().copied().chain([cookie]).collect();
        for act in ACTS {
            let act = company.filled(act);
            let token = pages.preview("oncall", &act).await;
            let preview = token["preview"].as_str().unwrap_or_default();
            let form = [("preview", preview), ("reason", "x"), ("number", "1")];
            let answer = pages.post(&format!("/act/{act}"), &headers, &form).await;
            assert_eq!(answer.status, 403, "{act} {more:?}: {answer:?}");
            tried += 1;
        }
        for (path, form) in [("/signin", ("token", "oncall")), ("/signout", ("to", "/"))] {
            let answer = pages.post(path, &headers, &[form]).await;
            assert_eq!(
                (answer.status, answer.header("set-cookie")),
                (403, None),
                "{path} {more:?}"
            );
            tried += 1;
        }
    }
    assert_eq!((tried, company.state().await), (176, before));
    pages.end().await;
}

#[tokio::test]
async fn a_confirmation_holds_for_its_preview_its_person_and_ten_minutes() {
    let company = Company::at_work().await;
    let db = &company.db;
    db.pin().await;
    company.run("select tuskline.schedule('open_one') from generate_series(1, 20)").await;
    let mut access = people(&company, &["oncall", "rival"]);
    access.tokens.push(person("mallory", &company.filled("<oncall>")));
    let pages = Pages::of(db, access, "").await;
    let other = Pages::of(db, people(&company, &["oncall"]), "").await;
    let act = "cancel_tasks?lambda=open_one";
    let shown = pages.preview("oncall", act).await;
    assert_eq!((shown["count"]["tasks"].as_i64(), &shown["may"]), (Some(20), &true.into()));
    let refused = async |name: &str, act: &str, shown: &serde_json::Value| {
        let answer = pages.confirm(name, act, shown).await;
        assert_eq!(answer.status, 409, "{name} {act}: {answer:?}");
        assert!(answer.body.contains("Nothing has been done."), "{answer:?}");
    };
    // Other arguments, another act, another person, a forged token, another server's.
    refused("oncall", "cancel_tasks?lambda=open_one&limit=5", &shown).await;
    refused("oncall", "priority?lambda=open_one&to=low", &shown).await;
    refused("rival", act, &shown).await;
    refused("mallory", act, &shown).await;
    for forged in ["", "1.20.00", "p-7f3c19", &format!("9{}", shown["preview"].as_str().unwrap())] {
        refused("oncall", act, &serde_json::json!({ "preview": forged })).await;
    }
    refused("oncall", act, &other.preview("oncall", act).await).await;
    // Three tasks more than a tenth of twenty.
    company.run("select tuskline.schedule('open_one') from generate_series(1, 3)").await;
    let later = company.state().await;
    refused("oncall", act, &shown).await;
    let again = pages.preview("oncall", act).await;
    db.advance(Duration::from_secs(601)).await;
    refused("oncall", act, &again).await;
    assert_eq!(company.state().await, later);
    let fresh = pages.preview("oncall", act).await;
    let done = pages.confirm("oncall", act, &fresh).await;
    assert_eq!(done.status, 303, "{done:?}");
    let operation: i64 = db.one("select max(operation_id) from tuskline.operation").await;
    assert_eq!(done.header("location"), Some(format!("/operations/{operation}").as_str()));
    let audit = "select person || ' as ' || actor from tuskline.acts order by at desc limit 1";
    assert_eq!(db.one::<String>(audit).await, company.filled("oncall as <oncall>"));
    pages.end().await;
    other.end().await;
}

#[tokio::test]
async fn a_thousand_tasks_need_their_number_and_every_act_its_reason() {
    let company = Company::at_work().await;
    company.run("select tuskline.schedule('open_one') from generate_series(1, 1001)").await;
    let pages = Pages::of(&company.db, people(&company, &["oncall"]), "").await;
    let act = "cancel_tasks?lambda=open_one";
    let shown = pages.preview("oncall", act).await;
    let token = shown["preview"].as_str().unwrap();
    let before = company.state().await;
    for (reason, number) in [("x", ""), ("x", "1000"), ("", "1001"), ("  ", "1001")] {
        let form = [("preview", token), ("reason", reason), ("number", number)];
        let answer = pages.post(&format!("/act/{act}"), &[BEARER], &form).await;
        assert_eq!(answer.status, 409, "{reason:?} {number:?}: {answer:?}");
    }
    for empty in
        ["cancel_tasks?limit=5", "purge?lambda=", "redrive?priority=", "retry_tasks?due=now"]
    {
        let answer = pages.confirm("oncall", empty, &shown).await;
        assert_eq!(answer.status, 400, "{empty}: {answer:?}");
    }
    assert_eq!(company.state().await, before);
    let form = [("preview", token), ("reason", "x"), ("number", "1,001")];
    assert_eq!(pages.post(&format!("/act/{act}"), &[BEARER], &form).await.status, 303);
    pages.end().await;
}

/// A text that would be a script.
const SCRIPT: &str = "</pre><script>alert(1)</script>\"'><img src=x onerror=alert(1)>";

/// A task that failed and settings, with the text wherever a person or a program may write one.
async fn write_script(db: &Db) -> i64 {
    db.define("work").await;
    let text = SCRIPT.replace('\'', "''");
    db.run("select tuskline.set_order('work')").await;
    let payload = serde_json::json!({ "text": SCRIPT }).to_string().replace('\'', "''");
    let schedule =
        format!("select tuskline.schedule('work', '{payload}', p_ordering_key => '{text}')");
    let task: i64 = db.one(&schedule).await;
    let worker = db.worker_with(&["work"], Duration::from_secs(60)).await;
    db.enqueue_due().await;
    let claimed = worker.claim(1).await;
    let failure =
        serde_json::json!({ "status": "fatal_failure", "error_class": SCRIPT, "message": SCRIPT });
    let failure = failure.to_string();
    worker.note(&claimed[0], failure.trim_matches(['{', '}'])).await;
    db.run(&format!(
        "select tuskline.schedule('work', p_ordering_key => '{text}');
         select tuskline.gate('work', 'pause', p_reason => '{text}');
         select tuskline.throttle('work', 5, p_reason => '{text}');
         select tuskline.start_operation('cancel', 'work', p_reason => '{text}');
         select tuskline.define_periodic('nightly', 'work', '0 3 * * *', '{payload}')"
    ))
    .await;
    task
}

#[tokio::test]
async fn a_text_of_the_database_is_no_script() {
    let db = Db::owned().await;
    let task = write_script(&db).await;
    let role: String = db.one("select current_user::text").await;
    let mut access = Access { role: role.clone(), ..Access::default() };
    access.tokens.push(person(SCRIPT, &role));
    access.tokens[0].hash = tuskline::pages::hash("eve");
    let pages = Pages::of(&db, access, "").await;
    let script = encoded(SCRIPT);
    let gate: i64 = db.one("select gate_id from tuskline.gate").await;
    let mut shown = 0;
    for path in [
        "/".to_owned(),
        "/lambdas".to_owned(),
        "/lambdas/work".to_owned(),
        format!("/lambdas/{script}"),
        format!("/tasks/{task}"),
        format!("/tasks/{task}?show=contents"),
        format!("/tasks/{task}?x={script}"),
        format!("/tasks/{script}"),
        "/dead-letters".to_owned(),
        format!("/dead-letters?lambda={script}"),
        "/waits".to_owned(),
        "/periodic".to_owned(),
        format!("/periodic/{script}"),
        "/executors".to_owned(),
        "/operations".to_owned(),
        "/audit".to_owned(),
        format!("/signin?to={script}"),
        format!("/signin?to=/{script}"),
        format!("/act/{script}?lambda=work"),
        format!("/act/gate?lambda={script}"),
        format!("/act/gate?{script}={script}"),
        format!("/act/unblock?lambda=work&key={script}"),
        format!("/act/ungate?gate={gate}"),
        format!("/act/redrive?lambda=work&fingerprint={script}"),
        format!("/act/cancel_tasks?key={script}"),
        format!("/?theme={script}&live={script}"),
    ] {
        let answer = pages.get(&path, &[("Authorization", "Bearer eve")]).await;
        let html = &answer.body;
        let is_run = html.contains("<script>alert")
            || html.contains("<img src=x")
            || html.contains("</pre><script");
        assert!(!is_run, "{path}: {html}");
        let csp = answer.header("content-security-policy").unwrap_or_default();
        assert!(csp.starts_with("default-src 'self'; base-uri 'none'"), "{path}: {answer:?}");
        assert!(
            !html.contains(" style=\"") && !html.contains(" onclick") && !html.contains("hx-on")
        );
        shown += usize::from(html.contains("&lt;script&gt;alert(1)"));
    }
    assert!(shown >= 20, "{shown} pages show the text");
    pages.end().await;
}

#[tokio::test]
async fn a_request_to_another_host_is_refused() {
    let company = Company::of_roles().await;
    let access =
        Access { hosts: vec!["queue.example".to_owned()], ..people(&company, &["oncall"]) };
    let pages = Pages::of(&company.db, access, "").await;
    for host in [
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "",
        "none",
        "queue.example.evil.example",
        "10.0.0.1",
        "[::2]:80",
        "0x7f.1",
    ] {
        for path in ["/", "/signin", "/lambdas", "/act/gate?lambda=a"] {
            let answer = pages.get(path, &[("Host", host), BEARER]).await;
            assert!([400, 421].contains(&answer.status), "{host} {path}: {answer:?}");
        }
        let signed = pages.post("/signin", &[("Host", host)], &[("token", "oncall")]).await;
        assert_eq!(signed.header("set-cookie"), None, "{host}: {signed:?}");
    }
    for (host, alone) in [
        ("localhost:80", 200),
        ("127.0.0.1", 200),
        ("[::1]:80", 200),
        // A name leads here through a proxy, perhaps from anywhere.
        ("queue.example", 401),
        ("Queue.Example:80", 401),
    ] {
        assert_eq!(pages.get("/lambdas", &[("Host", host), BEARER]).await.status, 200, "{host}");
        assert_eq!(pages.get("/lambdas", &[("Host", host)]).await.status, alone, "{host}");
        assert_eq!(pages.get("/healthz", &[("Host", "any")]).await.status, 200);
    }
    pages.end().await;
}

#[tokio::test]
async fn a_name_needs_the_secret_of_the_proxy() {
    let company = Company::of_roles().await;
    let roles = [("ada".to_owned(), company.filled("<oncall>"))];
    let proxy = Proxy {
        header: "x-forwarded-user".parse().unwrap(),
        secret: "a secret of the proxy".to_owned(),
        roles: roles.into(),
    };
    let access = Access { proxy: Some(proxy), ..people(&company, &[]) };
    let pages = Pages::of(&company.db, access, "").await;
    let secret = ("Tuskline-Proxy-Secret", "a secret of the proxy");
    let name = ("X-Forwarded-User", "ada");
    for (headers, status) in [
        (&[name, secret][..], 200),
        (&[name], 403),
        (&[name, ("Tuskline-Proxy-Secret", "")], 403),
        (&[name, ("Tuskline-Proxy-Secret", "a secret of the prox")], 403),
        (&[name, ("Tuskline-Proxy-Secret", "wrong"), secret], 403),
        (&[("X-Forwarded-User", "mallory"), secret], 403),
        (&[("X-Forwarded-User", "ADA"), secret], 403),
        (&[("X-Forwarded-User", ""), secret], 403),
        // A proxy that adds its header to one that a client has sent.
        (&[("X-Forwarded-User", "mallory"), name, secret], 403),
        (&[name, name, secret], 403),
        (&[secret], 401),
        (&[], 401),
        (&[("Authorization", "Bearer oncall")], 401),
        (&[("Cookie", "tuskline_token=oncall")], 401),
    ] {
        let answer = pages.get("/lambdas?format=json", headers).await;
        assert_eq!(answer.status, status, "{headers:?}: {answer:?}");
    }
    pages.end().await;
}

#[tokio::test]
async fn a_token_in_an_address_is_refused_and_one_in_a_cookie_is_not_shown() {
    let company = Company::of_roles().await;
    let pages = Pages::of(&company.db, people(&company, &["oncall"]), "").await;
    for path in [
        "/?token=oncall",
        "/signin?token=oncall",
        "/act/gate?lambda=a&token=oncall",
        "/tasks/1?x=1&token=",
        "/?%74oken=oncall",
    ] {
        let answer = pages.get(path, &[]).await;
        assert_eq!(answer.status, 400, "{path}: {answer:?}");
        assert!(answer.body.contains("it stays in logs"), "{path}");
    }
    let same = ("Sec-Fetch-Site", "same-origin");
    let answer = pages.post("/signin", &[same], &[("token", "oncall"), ("to", "/waits")]).await;
    assert_eq!((answer.status, answer.header("location")), (303, Some("/waits")));
    let cookie = "tuskline_token=oncall; Path=/; HttpOnly; SameSite=Strict";
    assert_eq!(answer.header("set-cookie"), Some(cookie));
    let signed = pages.get("/lambdas", &[("Cookie", "a=b; tuskline_token=oncall")]).await;
    assert!(signed.body.contains("Sign out") && !signed.body.contains("=oncall"), "{signed:?}");
    let out = pages.post("/signout", &[same], &[]).await;
    assert!(out.header("set-cookie").unwrap().ends_with("; Max-Age=0"), "{out:?}");
    let wrong = pages.post("/signin", &[same], &[("token", "oncal1")]).await;
    assert_eq!((wrong.status, wrong.header("set-cookie")), (401, None));
    // A browser is led to the sign-in, a program is told.
    let stale = [("Cookie", "tuskline_token=gone"), ("Accept", "text/html")];
    let led = pages.get("/tasks/7?show=contents", &stale).await;
    let to = "/signin?to=%2Ftasks%2F7%3Fshow%3Dcontents";
    assert_eq!((led.status, led.header("location")), (303, Some(to)));
    assert_eq!(pages.get("/lambdas", &stale[..1]).await.status, 401);
    pages.end().await;
}

#[tokio::test]
async fn a_sign_in_leads_to_our_pages_only() {
    let company = Company::of_roles().await;
    let pages = Pages::of(&company.db, people(&company, &["oncall"]), "/x").await;
    let same = ("Sec-Fetch-Site", "same-origin");
    for to in [
        "//evil.example",
        "/\\evil.example",
        "\\\\evil.example",
        "https://evil.example.com",
        "https:evil.example",
        "javascript:alert(1)",
        "/../admin",
        "/%2e%2e/admin",
        "/\t/evil.example",
        "/a\r\nSet-Cookie: a=b",
        "",
    ] {
        let answer = pages.post("/x/signin", &[same], &[("token", "oncall"), ("to", to)]).await;
        assert_eq!((answer.status, answer.header("location")), (303, Some("/x/")), "{to:?}");
        assert_eq!(answer.head.matches("set-cookie").count(), 1, "{to:?}: {answer:?}");
        let asked = pages.get(&format!("/x/signin?to={}", encoded(to)), &[]).await;
        assert!(!asked.body.contains("evil"), "{to:?}: {asked:?}");
    }
    pages.end().await;
}

#[tokio::test]
async fn no_address_leaves_the_base_path() {
    let company = Company::at_work().await;
    let pages = Pages::of(&company.db, people(&company, &["oncall"]), "/x").await;
    for path in [
        "/",
        "/lambdas",
        "/act/gate?lambda=charge_card",
        "/x/../lambdas",
        "/x/%2e%2e/lambdas",
        "/x//lambdas",
        "/x/files/../lambdas",
        "/x/files/%2e%2e%2fCargo.toml",
        "/x/files/x.css",
        "//x/lambdas",
        "/y/lambdas",
    ] {
        let answer = pages.get(path, &[BEARER]).await;
        assert_eq!(answer.status, 404, "{path}: {answer:?}");
    }
    assert_eq!(pages.get("/x/", &[BEARER]).await.header("location"), Some("/x"));
    for path in [
        "/x",
        "/x/lambdas",
        "/x/lambdas/charge_card",
        "/x/waits",
        "/x/periodic",
        "/x/audit",
        "/x/act/gate?lambda=charge_card",
        "/x/signin",
    ] {
        let answer = pages.get(path, &[BEARER]).await;
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        let links = ["href=\"", "action=\"", "src=\""];
        for link in links.iter().flat_map(|named| answer.body.split(named).skip(1)) {
            let link = link.split('"').next().unwrap_or_default();
            let is_below = ["/x/", "/x?", "#", "?"].iter().any(|start| link.starts_with(start));
            assert!(is_below || link == "/x" || link.is_empty(), "{path} leads to {link}");
        }
    }
    assert_eq!(pages.get("/healthz", &[]).await.status, 200);
    pages.end().await;
}

#[tokio::test]
async fn what_a_person_types_does_not_grow() {
    let company = Company::at_work().await;
    let hostile = "1--100000000 * * * *";
    company.run(&format!("update tuskline.periodic set cron = '{hostile}'")).await;
    let pages = Pages::of(&company.db, people(&company, &["oncall"]), "").await;
    let began = Instant::now();
    for path in ["/periodic", "/periodic/pay_daily"] {
        assert_eq!(pages.get(path, &[BEARER]).await.status, 200, "{path}");
    }
    let commas = ",".repeat(20_000);
    let dots = "a.".repeat(400);
    let before = company.state().await;
    for act in [
        format!("cancel_tasks?ids={commas}"),
        "cancel_tasks?ids=1-100000000".to_owned(),
        "cancel_tasks?ids=1..9223372036854775807".to_owned(),
        format!("cancel_tasks?lambda=charge_card&field={dots}&equals=1"),
        format!("cancel_tasks?key={}", "k".repeat(2_000)),
        "cancel_tasks?lambda=charge_card&limit=1e18".to_owned(),
        "gate?lambda=charge_card&for=99999999999999999999d".to_owned(),
        "throttle?lambda=charge_card&per_second=1e308".to_owned(),
    ] {
        let answer = pages.get(&format!("/act/{act}"), &[BEARER]).await;
        let confirmed = pages.confirm("oncall", &act, &serde_json::Value::Null).await;
        let is_refused =
            answer.status == 400 || !answer.body.contains("method=\"post\" action=\"/act");
        let short = &act[..act.len().min(60)];
        assert!(is_refused || confirmed.status == 409, "{short}: {answer:?}");
        assert!([400, 409].contains(&confirmed.status), "{short}: {confirmed:?}");
    }
    assert_eq!(company.state().await, before);
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    pages.end().await;
}

/// A client that sends the head of a request, and some of its body.
async fn half_a_body(pages: &Pages, length: u64) -> TcpStream {
    let mut stream = TcpStream::connect(pages.address).await.unwrap();
    let head = format!(
        "POST /act/gate?lambda=a HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer oncall\r\n\
         Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {length}\r\n\r\nreason="
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream
}

#[tokio::test]
async fn the_port_answers_whatever_bodies_do() {
    let company = Company::of_roles().await;
    let pages = Pages::of(&company.db, people(&company, &["oncall"]), "").await;
    let huge = format!(
        "POST /signin HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1073741824\r\n\r\n{}",
        "x".repeat(70_000)
    );
    assert_eq!(pages.send(&huge).await.status, 413);
    let mut open = Vec::new();
    for _ in 0..1_000 {
        open.push(half_a_body(&pages, 1_000).await);
    }
    assert_eq!(pages.get("/healthz", &[]).await.status, 200);
    assert_eq!(pages.get("/lambdas?format=json", &[BEARER]).await.status, 200);
    // A body that does not come ends its request.
    let slow =
        pages.send("POST /signout HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nx=");
    assert_eq!(within(slow).await.status, 408);
    drop(open);
    pages.end().await;
}

#[tokio::test]
async fn the_port_answers_whatever_connections_say_nothing() {
    let company = Company::of_roles().await;
    let pages = Pages::of(&company.db, people(&company, &["oncall"]), "").await;
    let mut open = Vec::new();
    for begun in ["", "GET /lambdas HTTP/1.1\r\nHost: local"].repeat(500) {
        let mut stream = TcpStream::connect(pages.address).await.unwrap();
        stream.write_all(begun.as_bytes()).await.unwrap();
        open.push(stream);
    }
    for path in ["/healthz", "/lambdas?format=json", "/files/style.css", "/healthz"] {
        assert_eq!(pages.get(path, &[BEARER]).await.status, 200, "{path}");
    }
    drop(open);
    pages.end().await;
}

#[tokio::test]
async fn a_page_of_a_person_has_no_more_than_the_role() {
    let company = Company::at_work().await;
    let pages = Pages::of(&company.db, people(&company, &["viewer", "auditor"]), "").await;
    let mut seen = 0;
    for path in [
        "/tasks/<dead>",
        "/dead-letters",
        "/waits",
        "/operations",
        "/audit",
        "/lambdas/charge_card",
        "/periodic/pay_daily",
        "/chains/<child>",
        "/tasks/<dead>?format=json",
        "/waits?format=json",
    ] {
        let path = company.filled(path);
        let viewer = pages.get(&path, &[("Authorization", "Bearer viewer")]).await;
        assert!(!viewer.body.contains(SECRET), "{path}: {viewer:?}");
        let auditor = pages.get(&path, &[("Authorization", "Bearer auditor")]).await;
        seen += usize::from(auditor.body.contains(SECRET));
    }
    assert!(seen > 0, "the secret is there for a role that may inspect");
    let path = company.filled("/tasks/<dead>?show=contents");
    let shown = pages.get(&path, &[("Authorization", "Bearer viewer")]).await;
    assert_eq!(shown.status, 403, "{shown:?}");
    assert!(!shown.body.contains(SECRET));
    pages.end().await;
}
