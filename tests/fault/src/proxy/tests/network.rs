//! Modes that hold bytes up.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tokio_postgres::SimpleQueryMessage;

use super::super::{Mode, Way};
use super::stage::{Stage, not_yet, soon, until};

const INSERT: &str = "insert into kept values (1)";

#[tokio::test]
async fn what_passes_is_counted() {
    let stage = Stage::new().await;
    let client = stage.client().await;
    client.batch_execute(INSERT).await.unwrap();
    assert_eq!(stage.kept().await, [1]);
    let counts = stage.door.counts();
    assert_eq!((counts.opened, counts.open, counts.resets), (1, 1, 0));
    assert!(counts.bytes_to_server > 50 && counts.bytes_to_client > 50, "{counts:?}");
    drop(client);
    until(async || stage.door.counts().open == 0).await;
    assert_eq!(stage.door.counts().resets, 0, "it ended as the client ended it");
}

#[tokio::test]
async fn many_connections_at_once_keep_their_answers_apart() {
    let stage = Stage::new().await;
    stage.door.set(Mode::Delay { base: Duration::ZERO, jitter: Duration::from_millis(5) });
    let clients = join_all((0..40).map(|_| stage.client())).await;
    join_all(clients.iter().zip((0_i32..).step_by(1000)).map(async |(client, mine)| {
        for round in 0..20 {
            let sum = async || client.query_one("select $1::int + $2::int", &[&mine, &round]).await;
            assert_eq!(soon(sum()).await.unwrap().get::<_, i32>(0), mine + round);
        }
    }))
    .await;
    assert_eq!(stage.door.counts().open, 40);
}

#[tokio::test]
async fn a_large_answer_and_a_large_question_are_complete() {
    let stage = Stage::new().await;
    let client = stage.client().await;
    let text = "tusk".repeat(2_000_000);
    let row = soon(client.query_one("select $1::text", &[&text])).await.unwrap();
    assert_eq!(row.get::<_, &str>(0), text);
}

#[tokio::test]
async fn a_delay_counts_in_both_directions_and_once_for_what_is_pipelined() {
    let stage = Stage::new().await;
    let client = stage.client().await;
    let query = client.prepare("select $1::int").await.unwrap();
    let jitter = Duration::from_millis(20);
    stage.door.set(Mode::Delay { base: Duration::from_millis(400), jitter });
    let begun = Instant::now();
    let rows = soon(join_all(
        (0_i32..20).map(async |n| client.query_one(&query, &[&n]).await.unwrap().get::<_, i32>(0)),
    ))
    .await;
    assert_eq!(rows, (0..20).collect::<Vec<_>>());
    assert!(begun.elapsed() >= Duration::from_millis(800), "{:?}", begun.elapsed());
    assert!(begun.elapsed() < Duration::from_secs(8), "one after the other is 16 s");
}

#[tokio::test]
async fn a_throttled_answer_takes_its_time_until_the_throttle_opens() {
    let stage = Stage::new().await;
    let client = stage.client().await;
    stage.door.set(Mode::Throttle { bytes_per_second: 10_000 });
    let begun = Instant::now();
    soon(client.simple_query("select repeat('x', 10000)")).await.unwrap();
    assert!(begun.elapsed() >= Duration::from_millis(900), "{:?}", begun.elapsed());
    stage.door.set(Mode::Throttle { bytes_per_second: 0 });
    let mut answer = Box::pin(client.simple_query("select 1"));
    not_yet(&mut answer).await;
    stage.door.set(Mode::Pass);
    soon(answer).await.unwrap();
}

#[tokio::test]
async fn a_black_hole_holds_and_delivers_when_it_heals() {
    let stage = Stage::new().await;
    let client = stage.client().await;
    stage.door.set(Mode::Blackhole(Way::Both));
    let mut insert = Box::pin(client.batch_execute(INSERT));
    not_yet(&mut insert).await;
    assert!(stage.kept().await.is_empty());
    stage.door.set(Mode::Pass);
    soon(insert).await.unwrap();
    assert_eq!(stage.kept().await, [1]);
}

#[tokio::test]
async fn a_black_hole_to_the_client_swallows_the_answer_only() {
    let stage = Stage::new().await;
    let client = stage.client().await;
    stage.door.set(Mode::Blackhole(Way::ToClient));
    let mut insert = Box::pin(client.batch_execute(INSERT));
    not_yet(&mut insert).await;
    until(async || stage.kept().await == [1]).await;
    stage.door.set(Mode::Pass);
    soon(insert).await.unwrap();
}

#[tokio::test]
async fn a_black_hole_to_the_server_lets_answers_out() {
    let stage = Stage::new().await;
    let client = stage.client().await;
    let sleep = client.batch_execute("select pg_sleep(0.5)");
    let hole = async {
        stage.sessions(1, "state = 'active'").await;
        stage.door.set(Mode::Blackhole(Way::ToServer));
    };
    soon(async { tokio::join!(sleep, hole) }).await.0.unwrap();
    let mut insert = Box::pin(client.batch_execute(INSERT));
    not_yet(&mut insert).await;
    assert!(stage.kept().await.is_empty());
    stage.door.set(Mode::Pass);
    soon(insert).await.unwrap();
}

#[tokio::test]
async fn a_connection_into_a_black_hole_begins_when_it_heals() {
    let stage = Stage::new().await;
    stage.door.set(Mode::Blackhole(Way::Both));
    let mut client = Box::pin(stage.try_client());
    not_yet(&mut client).await;
    assert_eq!(stage.door.counts().opened, 1);
    stage.sessions(0, "true").await;
    stage.door.set(Mode::Pass);
    soon(client).await.unwrap().batch_execute(INSERT).await.unwrap();
}

#[tokio::test]
async fn a_black_hole_that_is_full_stops_to_read() {
    let stage = Stage::new().await;
    let client = stage.client().await;
    stage.door.set(Mode::Blackhole(Way::ToClient));
    let mut answer = Box::pin(client.simple_query("select repeat('x', 33554432) as x"));
    not_yet(&mut answer).await;
    stage.sessions(1, "wait_event = 'ClientWrite'").await;
    stage.door.set(Mode::Pass);
    let answer = soon(answer).await.unwrap();
    let SimpleQueryMessage::Row(row) = &answer[1] else { panic!("a row") };
    assert_eq!(row.get(0).unwrap().len(), 32 << 20);
}

#[tokio::test]
async fn answers_are_late_and_those_under_way_arrive_at_one_whom_the_server_hears_no_more() {
    let stage = Stage::new().await;
    let client = stage.client().await;
    let by = Duration::from_millis(600);
    stage.door.set(Mode::LateAnswers { by, deaf: false });
    let begun = Instant::now();
    let insert = client.batch_execute(INSERT);
    let hole = async {
        until(async || stage.kept().await == [1]).await;
        stage.door.set(Mode::LateAnswers { by, deaf: true });
    };
    soon(async { tokio::join!(insert, hole) }).await.0.unwrap();
    assert!(begun.elapsed() >= by, "{:?}", begun.elapsed());
    let mut unheard = Box::pin(client.batch_execute(INSERT));
    not_yet(&mut unheard).await;
    assert_eq!(stage.kept().await, [1]);
    stage.door.set(Mode::Pass);
    soon(unheard).await.unwrap();
}
