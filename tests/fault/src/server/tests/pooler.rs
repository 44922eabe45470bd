//! The pooler.

use serde_json::Value;
use tokio_postgres::NoTls;
use tokio_util::sync::CancellationToken;
use tuskline_sdk::{Client, Context, Lambda, NewTask, Outcome, Status, Worker};

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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_role_is_set_for_each_transaction_behind_a_pooler() {
    let site = Site::new().unwrap();
    if !possible(&site, "the pooler") {
        return;
    }
    let server = Server::create(&site, "roles", &[]).await.unwrap();
    tuskline::migrate::migrate(&server.config("postgres")).await.unwrap();
    let made = "create role tuskline_worker; create role tuskline_scheduler;
                create role app in role tuskline_worker, tuskline_scheduler;
                select tuskline.grant_verbs(), tuskline.define_lambda('work')";
    open(server.config("postgres")).await.batch_execute(made).await.unwrap();
    let size = PoolSize { to_server: 4, ..PoolSize::default() };
    let pooler = Pooler::create(&site, &server, size).await.unwrap();

    let body = |_: Value, _: Context| async { Outcome::Success(None) };
    let stop = CancellationToken::new();
    let worker = Worker::builder(pooler.config("postgres")).role("app");
    let worker = worker.serve(Lambda::named("work", body)).until(stop.clone().cancelled_owned());
    let working = tokio::spawn(worker.run());
    let client = Client::builder(pooler.config("postgres")).role("app").connect().await.unwrap();
    let task = client.schedule(NewTask::new("work", &1)).await.unwrap();
    let ended = client.wait(task, DEADLINE).await.unwrap().unwrap();
    assert_eq!(ended.status, Status::Success);
    let role = "select string_agg(distinct role::text, ' ') from tuskline.executor";
    assert_eq!(server.ask("postgres", role).await.unwrap(), "app");
    // As many transactions at once as the pooler has sessions: none has a role that was left behind.
    let mut clients = Vec::new();
    for _ in 0..size.to_server {
        let client = connect(&pooler).await;
        client.batch_execute("begin").await.unwrap();
        assert_eq!(asked(&client, "select current_setting('role')").await, "none");
        clients.push(client);
    }
    drop(clients);
    stop.cancel();
    working.await.unwrap().unwrap();
}

async fn connect(pooler: &Pooler) -> tokio_postgres::Client {
    open(pooler.config("postgres")).await
}

async fn open(config: tokio_postgres::Config) -> tokio_postgres::Client {
    let (client, connection) = config.connect(NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// The server's process behind a client, asked without a prepared statement.
async fn backend(client: &tokio_postgres::Client) -> String {
    asked(client, "select pg_backend_pid()").await
}

async fn asked(client: &tokio_postgres::Client, sql: &str) -> String {
    let rows = client.simple_query(sql).await.unwrap();
    let number = rows.iter().find_map(|message| match message {
        tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0),
        _ => None,
    });
    number.unwrap().to_owned()
}
