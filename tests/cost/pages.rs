//! The cost of a search on the pages: it never reads more than its budget, whatever is typed.

use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_postgres::{Client, NoTls};
use tokio_util::sync::CancellationToken;
use tuskline::pages::{Access, Options};
use tuskline::recovery::RoleHealth;
use tuskline_postgres::Cluster;
use tuskline_sdk::Address;

/// Pages of a search, with those that a new session reads of the catalogue.
const MOST_PAGES: i64 = 20_000;

/// 200,000 tasks, 10,000 of them dead letters, and 300 large payloads. A fifth is delayed.
const FILL: &str = "
    select tuskline.define_lambda('work'), tuskline.define_lambda('rare');
    do $$
    begin
      for i in 1..200 loop
        perform tuskline.schedule_many(array_fill('work'::text, array[1000]),
          array_fill(json_build_object('n', i, 'text', repeat('x', 100)), array[1000]),
          p_delays => case when i % 5 = 0 then array_fill('1 h'::interval, array[1000]) end);
      end loop;
      perform tuskline.schedule('rare', to_json((
        select string_agg(md5(g::text || n), '') from generate_series(1, 6000) g)))
        from generate_series(1, 300) n;
    end $$;
    with d as (
      update tuskline.task set status = 'dead', finished_at = now(), next_trigger_at = null
       where id % 20 = 0 and lambda = 'work' returning id)
    insert into tuskline.dead_letter (task_id, lambda, status, fingerprint, died_at)
    select id, 'work', 'dead', 'f' || id % 3, now() from d;
    vacuum analyze";

async fn connected(server: &Cluster) -> Client {
    let (client, connection) = server.config("postgres").connect(NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

async fn asked(address: std::net::SocketAddr, path: &str) -> Value {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{path}: {answer}");
    serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
}

/// The facts of a page, and the pages of the database that a new session read for it.
async fn cost(server: &Cluster, client: &Client, path: &str) -> (Value, i64) {
    let count = "select blks_hit + blks_read from pg_stat_database where datname = 'postgres'";
    let quiet = "select count(*) from pg_stat_activity where application_name = 'tuskline pages'";
    let flush = "select pg_stat_force_next_flush()";
    client.batch_execute(flush).await.unwrap();
    let before: i64 = client.query_one(count, &[]).await.unwrap().get(0);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, token) = (listener.local_addr().unwrap(), CancellationToken::new());
    let database = Address::from(server.config("postgres"));
    let access = Access { role: "reader".to_owned(), ..Access::default() };
    let router =
        tuskline::pages::router(database.clone(), Options { access, ..Options::default() });
    let (until, health) = (token.clone(), RoleHealth::default());
    let serving = tokio::spawn(async move {
        tuskline::health::serve(listener, database, health, router, until).await;
    });
    let facts = asked(address, path).await;
    token.cancel();
    serving.await.unwrap();
    for _ in 0..200 {
        if client.query_one(quiet, &[]).await.unwrap().get::<_, i64>(0) == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    client.batch_execute(flush).await.unwrap();
    let after: i64 = client.query_one(count, &[]).await.unwrap().get(0);
    (facts, after - before)
}

#[tokio::test]
async fn a_search_reads_no_more_than_its_budget() {
    let _alone = super::ALONE.lock().await;
    let server = super::server().await;
    tuskline::migrate::migrate(&Address::from(server.config("postgres"))).await.unwrap();
    let client = connected(&server).await;
    for statement in ["create role reader superuser", FILL] {
        for part in statement.split_inclusive("end $$;") {
            let (rest, last) = part.split_at(part.find("    vacuum").unwrap_or(part.len()));
            client.batch_execute(rest).await.unwrap();
            client.batch_execute(last).await.unwrap();
        }
    }
    let mut found = Vec::new();
    for q in [
        "lambda:none",
        "nowhere",
        "lambda:rare nowhere",
        "status:dead nowhere",
        "cause:none",
        "cause:f1 lambda:work collection:none",
        "key:none lambda:work",
        "before:1s after:30d collection:none",
        "lambda:work",
    ] {
        let path = format!("/tasks?format=json&q={}", q.replace(' ', "+"));
        let (facts, pages) = cost(&server, &client, &path).await;
        let line = format!(
            "{pages} pages, {} of them its own; {} looked at: {q}",
            facts["pages"], facts["looked"]
        );
        println!("{line}");
        if pages > MOST_PAGES {
            found.push(line);
        }
    }
    let (_, pages) = cost(&server, &client, "/time?format=json&span=1d").await;
    println!("{pages} pages: the time line");
    assert!(found.is_empty(), "{}", found.join("\n"));
}
