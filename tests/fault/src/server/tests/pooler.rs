//! The pooler.

use tokio_postgres::{Client, NoTls};

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pooler_pools_and_comes_back_after_a_kill() {
    let site = Site::new().unwrap();
    if !possible(&site, "the pooler") {
        return;
    }
    let server = Server::create(&site, "pooled", &[]).await.unwrap();
    let size = PoolSize { to_server: 1, ..PoolSize::default() };
    let mut pooler = Pooler::create(&site, &server, size).await.unwrap();
    let (one, other) = (connect(&pooler).await, connect(&pooler).await);
    assert_eq!(backend(&one).await, backend(&other).await, "two clients, one backend");
    let count = "select count(*)::text from pg_stat_activity
         where backend_type = 'client backend' and application_name <> 'tuskline-fault'";
    assert_eq!(server.ask("postgres", count).await.unwrap(), "1");

    pooler.kill().await.unwrap();
    assert!(one.simple_query("select 1").await.is_err());
    pooler.start().await.unwrap();
    backend(&connect(&pooler).await).await;
    pooler.stop().await.unwrap();
    assert!(pooler.config("postgres").connect(NoTls).await.is_err());
    pooler.start().await.unwrap();
}

async fn connect(pooler: &Pooler) -> Client {
    let (client, connection) = pooler.config("postgres").connect(NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// The server's process behind a client, asked without a prepared statement.
async fn backend(client: &Client) -> String {
    let rows = client.simple_query("select pg_backend_pid()").await.unwrap();
    let number = rows.iter().find_map(|message| match message {
        tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0),
        _ => None,
    });
    number.unwrap().to_owned()
}
