//! A server reports the database's refusals under their own names, by `/healthz` too. The report
//! ends when the cause is repaired.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_postgres::Config;
use tokio_util::sync::CancellationToken;
use tuskline::serve;

use crate::support::cli::PASSWORD;
use crate::support::{Db, within};

/// Status line and body of `/healthz` or `/readyz`.
async fn get(port: u16, path: &str) -> (String, String) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let ask = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(ask.as_bytes()).await.unwrap();
    let mut said = String::new();
    stream.read_to_string(&mut said).await.unwrap();
    let (head, body) = said.split_once("\r\n\r\n").unwrap();
    (head.lines().next().unwrap().to_owned(), body.to_owned())
}

async fn until_healthz(port: u16, status: &str) -> String {
    within(async {
        loop {
            let (head, body) = get(port, "/healthz").await;
            if head.contains(status) {
                return body;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    })
    .await
}

/// A server of every role, the port of its health checks, and what ends it.
async fn start(config: Config) -> (u16, CancellationToken, JoinHandle<Result<(), serve::Error>>) {
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let (end, options) =
        (CancellationToken::new(), serve::Options { listen: Some(free), ..Default::default() });
    let server = tokio::spawn(serve::run(config, options, end.clone()));
    while TcpStream::connect(free).await.is_err() {
        tokio::task::yield_now().await;
    }
    (free.port(), end, server)
}

/// A server under a login that may ask whether the schema fits, and no more.
#[tokio::test]
async fn a_server_without_a_privilege_says_so_until_it_has_it() {
    let db = Db::with_lambda("work").await;
    let login = format!("server_{}", db.config.get_dbname().unwrap());
    db.run(&format!(
        "create role {login} login password '{PASSWORD}';
         grant usage on schema tuskline to {login};
         grant execute on function tuskline.readiness, tuskline.version,
           tuskline.check_installation to {login}"
    ))
    .await;
    let mut config = db.config.clone();
    config.user(&login).password(PASSWORD);
    let (port, end, server) = start(config).await;
    let body = until_healthz(port, " 503 ").await;
    let said: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!(said["status"], "failing");
    let (_, reported) = said["roles"].as_object().unwrap().iter().next().unwrap();
    let reported = reported.as_str().unwrap();
    assert!(reported.starts_with("the login lacks a privilege: "), "{reported}");
    assert!(reported.ends_with("grant OWNER to LOGIN"), "{reported}");
    assert!(!reported.contains("lost the database"), "{reported}");
    db.run(&format!("grant {} to {login}", db.config.get_user().unwrap())).await;
    let body = until_healthz(port, " 200 ").await;
    assert_eq!(body, r#"{"status":"up"}"#);
    end.cancel();
    server.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_server_whose_queues_are_missing_names_the_repair() {
    let db = Db::with_lambda("work").await;
    let id = db.schedule_in("work", std::time::Duration::from_millis(1)).await;
    for queue in 1..=4 {
        // A table that was dropped comes back by itself (rebuild.rs).
        let detach = "alter table tuskline.queued detach partition tuskline_core.queue_";
        db.run(&format!("{detach}{queue}")).await;
    }
    let (port, end, server) = start(db.config.clone()).await;
    let body = until_healthz(port, " 503 ").await;
    let said: serde_json::Value = serde_json::from_str(&body).unwrap();
    let reported = said["roles"]["store-consumer"].as_str().unwrap();
    assert!(reported.starts_with("rows name a queue or segment that is missing: "), "{reported}");
    assert!(reported.ends_with("else run `tuskline repair`"), "{reported}");
    db.run("select tuskline.repair()").await;
    until_healthz(port, " 200 ").await;
    db.until_status(id, "enqueued").await;
    end.cancel();
    server.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_server_of_another_installation_is_neither_healthy_nor_ready() {
    let db = Db::with_lambda("work").await;
    let (port, end, server) = start(db.config.clone()).await;
    until_healthz(port, " 200 ").await;
    assert_eq!(get(port, "/readyz").await.1, r#"{"status":"ready"}"#);
    db.run("select tuskline.adopt('staging')").await;
    let failing = until_healthz(port, " 503 ").await;
    assert!(failing.contains("set TUSKLINE_INSTALLATION=staging"), "{failing}");
    let (head, body) = get(port, "/readyz").await;
    assert!(head.contains(" 503 "), "{head}");
    assert!(body.contains("set TUSKLINE_INSTALLATION=staging"), "{body}");
    end.cancel();
    server.await.unwrap().unwrap();
}
