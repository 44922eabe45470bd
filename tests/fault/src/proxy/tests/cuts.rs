//! Cuts: the row says what has happened, and the client cannot know.

use std::io::ErrorKind;
use std::pin::pin;

use bytes_of_rows as rows;
use futures_util::SinkExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_postgres::Client;
use tokio_postgres::types::Type;

use super::super::CutWhen::{AfterServer, BeforeServer, Silence};
use super::super::{Cut, CutWhen, Mode, Way};
use super::stage::{Stage, not_yet, soon, until};

const INSERT: &str = "insert into kept values ($1)";

fn at(holding: &str, when: CutWhen) -> Cut {
    Cut { holding: holding.to_owned(), when }
}

fn bytes_of_rows(text: &'static str) -> std::io::Cursor<&'static [u8]> {
    std::io::Cursor::new(text.as_bytes())
}

/// The rows that remain of a cut insert of 1.
fn remains(when: CutWhen) -> Vec<i32> {
    if when == AfterServer { vec![1] } else { vec![] }
}

async fn check(stage: &Stage, client: Client, failed: bool, when: CutWhen) {
    assert!(failed, "the client was told");
    assert_eq!(stage.kept().await, remains(when));
    until(async || client.is_closed() && stage.door.counts().open == 0).await;
    let counts = stage.door.counts();
    let (before, after) = if when == BeforeServer { (1, 0) } else { (0, 1) };
    assert_eq!((counts.cuts_before, counts.cuts_after, counts.cuts_armed), (before, after, 0));
    stage.client().await.batch_execute("insert into kept values (2)").await.unwrap();
}

#[tokio::test]
async fn a_simple_query_is_cut() {
    for when in [BeforeServer, AfterServer] {
        let stage = Stage::new().await;
        let client = stage.client().await;
        stage.door.cut_next(at("INTO Kept", when), 1);
        let failed = soon(client.batch_execute("insert into kept values (1)")).await.is_err();
        check(&stage, client, failed, when).await;
    }
}

#[tokio::test]
async fn an_unnamed_statement_is_cut() {
    for when in [BeforeServer, AfterServer] {
        let stage = Stage::new().await;
        let client = stage.client().await;
        stage.door.cut_next(at("into kept", when), 1);
        let failed = soon(client.query_typed(INSERT, &[(&1, Type::INT4)])).await.is_err();
        check(&stage, client, failed, when).await;
    }
}

#[tokio::test]
async fn a_statement_prepared_before_the_cut_was_armed_is_cut_when_it_is_executed() {
    for when in [BeforeServer, AfterServer] {
        let stage = Stage::new().await;
        let client = stage.client().await;
        let insert = client.prepare(INSERT).await.unwrap();
        stage.door.cut_next(at("into kept", when), 1);
        client.prepare("select 'into kept'").await.unwrap();
        client.query("select 1", &[]).await.unwrap();
        let failed = soon(client.execute(&insert, &[&1])).await.is_err();
        check(&stage, client, failed, when).await;
    }
}

#[tokio::test]
async fn a_commit_is_cut() {
    for when in [BeforeServer, AfterServer] {
        let stage = Stage::new().await;
        let mut client = stage.client().await;
        let transaction = client.transaction().await.unwrap();
        transaction.execute(INSERT, &[&1]).await.unwrap();
        stage.door.cut_next(at("commit", when), 1);
        let failed = soon(transaction.commit()).await.is_err();
        check(&stage, client, failed, when).await;
    }
}

#[tokio::test]
async fn of_a_pipeline_what_is_ahead_is_answered_and_what_follows_never_arrives() {
    for (when, kept) in [(BeforeServer, vec![1]), (AfterServer, vec![1, 2])] {
        let stage = Stage::new().await;
        let client = stage.client().await;
        let slow = client.prepare("insert into kept select 1 from pg_sleep(0.3)").await.unwrap();
        let [second, third] = [2, 3].map(|n| format!("insert into kept values ({n})"));
        stage.door.cut_next(at("values (2)", when), 1);
        let (first, second, third) = soon(async {
            tokio::join!(
                client.execute(&slow, &[]),
                client.batch_execute(&second),
                client.batch_execute(&third)
            )
        })
        .await;
        assert_eq!(first.unwrap(), 1);
        assert!(second.is_err() && third.is_err());
        assert_eq!(stage.kept().await, kept);
    }
}

#[tokio::test]
async fn a_cut_is_made_as_often_as_it_was_armed_and_only_where_it_is_meant() {
    let stage = Stage::new().await;
    stage.door.cut_next(at("into kept", BeforeServer), 2);
    for left in [1, 0] {
        let client = stage.client().await;
        client.batch_execute("select 'into', 'kept'").await.unwrap();
        assert!(soon(client.batch_execute("insert into kept values (1)")).await.is_err());
        assert_eq!(stage.door.counts().cuts_armed, left);
    }
    let client = stage.client().await;
    client.batch_execute("insert into kept values (1)").await.unwrap();
    stage.door.cut_next(at("", AfterServer), 7);
    stage.door.disarm();
    client.batch_execute("insert into kept values (2)").await.unwrap();
    assert_eq!(stage.kept().await, [1, 2]);
}

#[tokio::test]
async fn a_cut_waits_behind_a_black_hole() {
    let stage = Stage::new().await;
    let client = stage.client().await;
    stage.door.cut_next(at("into kept", AfterServer), 1);
    stage.door.set(Mode::Blackhole(Way::ToClient));
    let mut insert = pin!(client.batch_execute("insert into kept values (1)"));
    not_yet(&mut insert).await;
    until(async || stage.kept().await == [1]).await;
    assert_eq!(stage.door.counts().cuts_after, 0);
    stage.door.set(Mode::Pass);
    assert!(soon(insert).await.is_err());
    assert_eq!(stage.door.counts().cuts_after, 1);
}

#[tokio::test]
async fn requests_are_counted_right_after_a_copy() {
    for when in [BeforeServer, AfterServer] {
        let stage = Stage::new().await;
        let client = stage.client().await;
        stage.door.cut_next(at("kept", when), 1);
        let mut sink = Box::pin(client.copy_in("copy kept from stdin").await.unwrap());
        sink.send(rows("5\n6\n")).await.unwrap();
        assert_eq!(soon(sink.as_mut().finish()).await.unwrap(), 2);
        let failed = soon(client.execute(INSERT, &[&1])).await.is_err();
        assert!(failed);
        assert_eq!(stage.kept().await, [remains(when), vec![5, 6]].concat());
    }
}

#[tokio::test]
async fn a_cut_is_a_rst_also_after_the_question_for_encryption() {
    let stage = Stage::new().await;
    let (mut socket, startup) = stage.raw().await;
    for question in [80_877_104_u32, 80_877_103] {
        socket.write_all(&[8_u32.to_be_bytes(), question.to_be_bytes()].concat()).await.unwrap();
        assert_eq!(soon(socket.read_u8()).await.unwrap(), b'N');
    }
    socket.write_all(&startup).await.unwrap();
    super::stage::read_until(&mut socket, b"Z\0\0\0\x05I").await;
    stage.door.cut_next(at("into kept", AfterServer), 1);
    for byte in b"Q\0\0\0\x20insert into kept values (1)\0" {
        socket.write_all(&[*byte]).await.unwrap();
    }
    let end = soon(socket.read_u8()).await.unwrap_err().kind();
    assert_eq!(end, ErrorKind::ConnectionReset);
    assert_eq!(stage.kept().await, [1]);
}

#[tokio::test]
async fn a_request_to_cancel_passes() {
    let stage = Stage::new().await;
    let client = stage.client().await;
    stage.door.cut_next(at("never said", AfterServer), 1);
    let token = client.cancel_token();
    let cancel = async {
        stage.sessions(1, "state = 'active'").await;
        token.cancel_query(tokio_postgres::NoTls).await.unwrap();
    };
    let (slept, ()) =
        soon(async { tokio::join!(client.batch_execute("select pg_sleep(60)"), cancel) }).await;
    assert_eq!(slept.unwrap_err().code().unwrap().code(), "57014");
}

#[tokio::test]
async fn a_connection_falls_silent_at_a_statement_and_nothing_ends() {
    let stage = Stage::new().await;
    let client = stage.client().await;
    client.batch_execute("listen news").await.unwrap();
    stage.door.cut_next(at("into kept", Silence), 1);
    {
        let mut asked = pin!(client.batch_execute("insert into kept values (1)"));
        not_yet(&mut asked).await;
    }
    assert_eq!((stage.kept().await, stage.door.counts().cuts_armed), (vec![], 0));
    assert_eq!(stage.door.counts().open, 1, "no peer is notified of an end");
    stage.client().await.batch_execute("insert into kept values (2)").await.unwrap();
    assert!(!client.is_closed());
    assert_eq!(stage.kept().await, vec![2]);
}
