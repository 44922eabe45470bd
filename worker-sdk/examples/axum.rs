//! A web service with axum and sqlx: an order and its receipt commit together.
//!
//! Start a database and a server with `./x dev`. Then, with the address that it prints:
//!
//! ```sh
//! TUSKLINE_DATABASE_URL=... cargo run -q -p tuskline-sdk --features sqlx --example axum
//! ```
//!
//! It prints:
//!
//! ```text
//! POST /orders/lamp: 201 Created
//! POST /orders/lamp: 409 Conflict
//! receipt for the lamp
//! ```

use std::error::Error;
use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::{Router, routing::post};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tuskline_sdk::{Client, Data, Failure, Payload, Worker};

#[derive(Serialize, Deserialize)]
struct Receipt {
    article: String,
}

impl Payload for Receipt {
    const LAMBDA: &'static str = "send_receipt";
}

/// The handler: the row and the task are one commit, in the transaction of sqlx.
async fn order(
    State(pool): State<PgPool>,
    Path(article): Path<String>,
) -> Result<StatusCode, StatusCode> {
    let failed = |_| StatusCode::SERVICE_UNAVAILABLE;
    let mut tx = pool.begin().await.map_err(failed)?;
    let insert = "insert into example_order values ($1, false) on conflict do nothing";
    let inserted = sqlx::query(insert).bind(&article).execute(&mut *tx).await.map_err(failed)?;
    if inserted.rows_affected() == 0 {
        return Err(StatusCode::CONFLICT); // dropped, the transaction rolls back
    }
    let receipt = Receipt { article };
    Client::within(&mut tx).schedule(receipt).await.map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?;
    tx.commit().await.map_err(failed)?;
    Ok(StatusCode::CREATED)
}

/// The lambda shares the pool with the handlers.
async fn send_receipt(
    receipt: Receipt,
    pool: Data<PgPool>,
    sent: Data<Arc<Notify>>,
) -> Result<(), Failure> {
    let update = "update example_order set receipt = true where article = $1";
    sqlx::query(update).bind(&receipt.article).execute(&*pool).await?;
    println!("receipt for the {}", receipt.article);
    sent.notify_one();
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("TUSKLINE_DATABASE_URL").map_err(|_| "set TUSKLINE_DATABASE_URL")?;
    let client = Client::connect(&url).await?;
    client.define_lambda(Receipt::LAMBDA).await?;
    let pool = PgPool::connect(&url).await?;
    let table = "create table if not exists example_order (article text primary key, receipt bool)";
    sqlx::query(table).execute(&pool).await?;

    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let routes = Router::new().route("/orders/{article}", post(order)).with_state(pool.clone());
    tokio::spawn(async { axum::serve(listener, routes).await });
    for _ in 0..2 {
        let mut call = TcpStream::connect(address).await?;
        call.write_all(b"POST /orders/lamp HTTP/1.0\r\n\r\n").await?;
        let mut answer = String::new();
        call.read_to_string(&mut answer).await?;
        let status = answer.lines().next().and_then(|line| line.split_once(' '));
        println!("POST /orders/lamp: {}", status.unwrap_or_default().1);
    }

    let sent = Arc::new(Notify::new());
    let worker = Worker::builder(&url).lambda(send_receipt).data(pool).data(Arc::clone(&sent));
    worker.until(async move { sent.notified().await }).run().await?; // it lets the lambda end
    Ok(())
}
