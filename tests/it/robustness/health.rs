//! Health answers whatever other clients do.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::support::cli::tuskline;
use crate::support::{Db, get, served, within};

/// A client that begins a request and never ends it.
async fn half_open(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: te").await.unwrap();
    stream
}

async fn is_closed(stream: &mut TcpStream, deadline: Duration) -> bool {
    let mut rest = Vec::new();
    timeout(deadline, stream.read_to_end(&mut rest)).await.is_ok()
}

#[tokio::test]
async fn a_thousand_half_open_requests_do_not_keep_it_from_answering() {
    let db = Db::new().await;
    let (address, token, serving) = served(&db).await;
    let mut open = Vec::new();
    for _ in 0..1_050 {
        open.push(half_open(address).await);
    }
    let began = Instant::now();
    assert!(get(address, "/healthz").await.ends_with(r#"{"status":"up"}"#));
    assert!(get(address, "/readyz").await.ends_with(r#"{"status":"ready"}"#));
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    // The oldest connections are closed to make room; the youngest time out.
    assert!(is_closed(&mut open[0], Duration::from_secs(1)).await, "connections are bounded");
    assert!(is_closed(&mut open[1_049], Duration::from_secs(8)).await, "a request has a deadline");
    token.cancel();
    within(serving).await.unwrap();
}

#[tokio::test]
async fn a_request_is_answered_whatever_number_of_connections_says_nothing() {
    let db = Db::new().await;
    let other = db.connect().await;
    other.batch_execute("begin; lock table tuskline.gate").await.unwrap();
    let (address, token, serving) = served(&db).await;
    let waiting = tokio::spawn(async move { get(address, "/metrics").await });
    let waits = "select exists (select from pg_stat_activity where wait_event_type = 'Lock'
                   and application_name = 'tuskline metrics' and datname = current_database())";
    db.until(waits).await;
    let mut open = Vec::new();
    for _ in 0..600 {
        open.push(half_open(address).await);
    }
    assert!(within(waiting).await.unwrap().starts_with("HTTP/1.1 200"));
    token.cancel();
    within(serving).await.unwrap();
}

#[tokio::test]
async fn a_request_that_has_begun_is_answered_when_the_server_stops() {
    let db = Db::new().await;
    let (address, token, serving) = served(&db).await;
    let mut stream = half_open(address).await;
    // The server has accepted the first connection, because it answers a later one.
    get(address, "/healthz").await;
    token.cancel();
    stream.write_all(b"st\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    within(stream.read_to_string(&mut answer)).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    within(serving).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_health_ends_as_the_server_answers() {
    let db = Db::new().await;
    let (address, token, serving) = served(&db).await;
    let place = address.to_string();
    let ask = |more: &[&str]| tuskline(&[&["health", "--listen", &place], more].concat()).run();
    assert_eq!(ask(&[]).fine(), "up\n");
    assert_eq!(ask(&["--ready"]).fine(), "ready\n");
    assert_eq!(ask(&["--ready", "--json"]).json(), serde_json::json!({"status": "ready"}));
    // A server on every address is asked on this machine, by its own variable.
    let all = format!("0.0.0.0:{}", address.port());
    assert_eq!(tuskline(&["health"]).env("TUSKLINE_LISTEN", all).run().fine(), "up\n");

    db.run("drop function tuskline.readiness()").await;
    let not_ready = ask(&["--ready"]);
    assert_eq!(not_ready.code, 1, "{not_ready:?}");
    assert!(not_ready.out.contains("\"status\":\"not ready\""), "{not_ready:?}");
    token.cancel();
    within(serving).await.unwrap();
    let gone = ask(&[]).refusal();
    assert!(gone.starts_with(&format!("1 error: no answer from {place}: ")), "{gone}");
    assert!(gone.ends_with("hint: is `tuskline serve --listen` running there?"), "{gone}");
}
