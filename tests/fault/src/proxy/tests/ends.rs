//! How connections end, and which side learns of it.

use std::io::ErrorKind;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::super::{Mode, Proxy, Upstream, Way};
use super::stage::{Stage, not_yet, read_until, socket, soon, until};

#[tokio::test]
async fn a_half_open_connection_hides_the_end_of_the_client() {
    let stage = Stage::new().await;
    let client = stage.raw_session().await;
    stage.door.set(Mode::HalfOpen);
    drop(client);
    let gone = stage.sessions(0, "true");
    not_yet(&mut Box::pin(gone)).await;
    stage.door.set(Mode::Pass);
    stage.sessions(0, "true").await;
}

#[tokio::test]
async fn a_half_open_connection_hides_the_end_of_the_server() {
    let stage = Stage::new().await;
    let mut client = stage.raw_session().await;
    stage.door.set(Mode::HalfOpen);
    let terminate = "select pg_terminate_backend(pid) from pg_stat_activity
                     where datname = current_database() and application_name = 'through'";
    stage.direct.batch_execute(terminate).await.unwrap();
    // The last words are bytes like any others.
    read_until(&mut client, b"57P01").await;
    read_until(&mut client, b"\0\0").await;
    not_yet(&mut Box::pin(client.read_u8())).await;
    stage.door.set(Mode::Pass);
    let end = soon(client.read_u8()).await.unwrap_err().kind();
    assert_eq!(end, ErrorKind::UnexpectedEof);
}

#[tokio::test]
async fn a_client_that_is_gone_from_a_half_open_connection_is_not_missed_by_writing() {
    let stage = Stage::new().await;
    let mut client = stage.raw_session().await;
    stage.door.set(Mode::HalfOpen);
    client.write_all(b"Q\0\0\0\x2eselect pg_sleep(0.2), repeat('x', 100000)\0").await.unwrap();
    drop(client);
    let gone = stage.sessions(0, "true");
    not_yet(&mut Box::pin(gone)).await;
    stage.sessions(1, "true").await;
    stage.door.set(Mode::Pass);
    stage.sessions(0, "true").await;
}

#[tokio::test]
async fn a_shut_door_refuses_only_who_is_new() {
    let stage = Stage::new().await;
    let client = stage.client().await;
    stage.door.set(Mode::Refuse);
    assert!(soon(stage.try_client()).await.is_err());
    client.batch_execute("select 1").await.unwrap();
    assert_eq!(stage.door.counts().refused, 1);
    stage.door.set(Mode::Pass);
    stage.client().await;
}

#[tokio::test]
async fn a_reset_is_a_rst_and_goes_through_a_black_hole() {
    let stage = Stage::new().await;
    let mut client = stage.raw_session().await;
    stage.door.set(Mode::Blackhole(Way::Both));
    stage.door.reset();
    let end = soon(client.read_u8()).await.unwrap_err().kind();
    assert_eq!(end, ErrorKind::ConnectionReset);
    stage.sessions(0, "true").await;
    stage.door.set(Mode::Pass);
    let mut again = stage.raw_session().await;
    stage.proxy.reset_all();
    let end = soon(again.read_u8()).await.unwrap_err().kind();
    assert_eq!(end, ErrorKind::ConnectionReset);
    assert_eq!(stage.door.counts().resets, 2);
}

#[tokio::test]
async fn a_redirect_is_for_new_connections_and_a_rst_comes_through_tcp() {
    let stage = Stage::new().await;
    let old = stage.client().await;
    let second = Proxy::new(socket());
    let elsewhere = second.open_door("elsewhere").await.unwrap();
    stage.proxy.redirect(Upstream::Tcp(([127, 0, 0, 1], elsewhere.port()).into()));
    old.batch_execute("select 1").await.unwrap();
    assert_eq!(elsewhere.counts().opened, 0);
    let mut new = stage.raw_session().await;
    assert_eq!(elsewhere.counts().opened, 1);
    elsewhere.reset();
    let end = soon(new.read_u8()).await.unwrap_err().kind();
    assert_eq!(end, ErrorKind::ConnectionReset);
    old.batch_execute("select 1").await.unwrap();
}

#[tokio::test]
async fn without_a_server_a_connection_is_reset() {
    let stage = Stage::new().await;
    stage.proxy.redirect(Upstream::Unix("/nowhere/.s.PGSQL.1".into()));
    assert!(soon(stage.try_client()).await.is_err());
    assert_eq!(stage.door.counts().unreachable, 1);
}

#[tokio::test]
async fn nothing_is_left_of_a_door_whose_last_handle_is_gone() {
    let stage = Stage::new().await;
    let door = stage.proxy.open_door("short").await.unwrap();
    let port = door.port();
    let other = door.clone();
    drop(door);
    let mut client = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    until(async || other.counts().open == 1).await;
    drop(other);
    let end = soon(client.read_u8()).await.unwrap_err().kind();
    assert_eq!(end, ErrorKind::ConnectionReset);
    until(async || TcpStream::connect(("127.0.0.1", port)).await.is_err()).await;
    assert_eq!(stage.client().await.simple_query("select 1").await.unwrap().len(), 3);
}

#[tokio::test]
async fn nothing_is_left_of_a_proxy_that_is_dropped() {
    let stage = Stage::new().await;
    let mut client = stage.raw_session().await;
    let Stage { proxy, door, .. } = stage;
    drop(proxy);
    let end = soon(client.read_u8()).await.unwrap_err().kind();
    assert_eq!(end, ErrorKind::ConnectionReset);
    until(async || TcpStream::connect(("127.0.0.1", door.port())).await.is_err()).await;
    until(async || door.counts().open == 0).await;
}
