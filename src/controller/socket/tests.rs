//! Messages that do not arrive: their connections end, and no other one waits for them.

use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::Request;
use axum::routing::post;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::time::{Instant, timeout};

use super::{IDLE, body, converse};
use crate::controller::incoming::DEADLINE;
use crate::controller::wire::Refusal;

const WHOLE: &str =
    "POST / HTTP/1.1\r\nhost: t\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}";

/// Says something on a connection of its own. Returns all that is answered until it is closed, and after what time.
async fn say(text: &str) -> (String, Duration) {
    let echo = async |request: Request| -> Result<Bytes, Refusal> { body(request).await };
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    tokio::spawn(converse(theirs, Router::new().route("/", post(echo))));
    let began = Instant::now();
    ours.write_all(text.as_bytes()).await.unwrap();
    let mut answer = String::new();
    let read = timeout(10 * IDLE, ours.read_to_string(&mut answer)).await;
    read.expect("the connection is closed").unwrap();
    (answer, began.elapsed())
}

fn is_about(time: Duration, bound: Duration) -> bool {
    (bound..bound + Duration::from_secs(1)).contains(&time)
}

#[tokio::test(start_paused = true)]
async fn a_body_that_never_comes_is_refused_in_time_and_its_connection_closed() {
    for body in ["", "{", "{\"no\":"] {
        let head = "POST / HTTP/1.1\r\nhost: t\r\ncontent-length: 99\r\n\r\n";
        let (answer, time) = say(&format!("{head}{body}")).await;
        assert!(answer.starts_with("HTTP/1.1 408 "), "{body:?}: {answer}");
        assert!(answer.contains("\"invalid_message\""), "{body:?}: {answer}");
        assert!(is_about(time, DEADLINE), "{body:?}: {time:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_whose_headers_never_come_is_closed_in_time() {
    for head in ["", "P", "POST / HTTP/1.1\r\n", "POST / HTTP/1.1\r\nhost: t\r\nx: "] {
        let (answer, time) = say(head).await;
        assert!(!answer.contains("200 OK") && is_about(time, IDLE), "{head:?}: {time:?}: {answer}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_does_not_wait_for_others_that_do_not_end() {
    let slow = ["POST / HTTP/1.1\r\n", "POST / HTTP/1.1\r\nhost: t\r\ncontent-length: 9\r\n\r\n{"];
    let slow = slow.map(|text| tokio::spawn(async move { say(text).await }));
    tokio::task::yield_now().await;
    let (answer, time) = say(WHOLE).await;
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("{}"), "{answer}");
    assert!(time < Duration::from_secs(1), "{time:?}");
    assert!(slow.iter().all(|one| !one.is_finished()));
    for one in slow {
        one.await.unwrap();
    }
}
