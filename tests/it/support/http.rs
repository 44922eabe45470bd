//! The HTTP port of a server in the test's own process, and requests to one.

use std::net::SocketAddr;

use axum::Router;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tuskline::recovery::RoleHealth;
use tuskline::{health, pages};

use super::{Db, within};

/// Serves the port of a server on the test's database, until the token is cancelled.
pub async fn served(db: &Db) -> (SocketAddr, CancellationToken, JoinHandle<()>) {
    serve(db, Router::new()).await
}

/// The same with pages.
pub async fn served_pages(
    db: &Db,
    options: pages::Options,
) -> (SocketAddr, CancellationToken, JoinHandle<()>) {
    serve(db, pages::router(db.config.clone().into(), options)).await
}

async fn serve(db: &Db, pages: Router) -> (SocketAddr, CancellationToken, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let token = CancellationToken::new();
    let (database, until) = (db.config.clone().into(), token.clone());
    let serving = tokio::spawn(async move {
        health::serve(listener, database, RoleHealth::default(), pages, until).await;
    });
    (address, token, serving)
}

/// The answer to a GET: status line, headers and body.
pub async fn get(address: SocketAddr, path: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    ask(address, &request).await
}

/// The answer to a request.
pub async fn ask(address: SocketAddr, request: &str) -> String {
    let asking = async {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    };
    within(asking).await
}

/// An address that no process listens on.
pub fn free_address() -> SocketAddr {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}
