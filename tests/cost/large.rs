//! The cost of pages on a large installation: one million tasks of 1,000 lambdas, and what a page reads
//! beside them. Buffers and statements are counted, not timed.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_postgres::{Client, NoTls};
use tokio_util::sync::CancellationToken;
use tuskline::pages::{Access, Options};
use tuskline::recovery::RoleHealth;
use tuskline_postgres::Cluster;
use tuskline_sdk::Address;

/// Most buffers of a page, of the page of a lambda, and of a step of a search.
const PAGE: i64 = 2_000;
const LAMBDA: i64 = 500;
const SEARCH: i64 = 20_000;

/// Most buffers of the reading that all open pages share, by a new session. It grows with lambdas, queues
/// and executors, and not with tasks.
const FIRST_LOOK: i64 = 200_000;

/// Most statements of that reading. With one in 5 s, all open pages send fewer than 5 a second.
const LOOK_STATEMENTS: i64 = 25;

const FILL: &str = include_str!("large.sql");
/// The work of autovacuum in a database that runs.
const VACUUM: &str = "
    vacuum analyze tuskline_core.task_0, tuskline.task_failure, tuskline.dead_letter, tuskline.timer,
      tuskline.executor, tuskline.lease, tuskline.queue, tuskline.lambda, tuskline.queue_statistic,
      tuskline.wait_statistic, tuskline.executor_statistic, tuskline.audit, tuskline.parked,
      tuskline.permit, tuskline.wait_list, tuskline.task_limit, tuskline.operation, tuskline.periodic,
      tuskline.tick, tuskline.chain_task, tuskline.dependency, pg_catalog.pg_class,
      pg_catalog.pg_attribute";

async fn connected(server: &Cluster) -> Client {
    let (client, connection) = server.config("postgres").connect(NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// A server with pages, which reads as a superuser.
struct Pages {
    address: SocketAddr,
    end: CancellationToken,
    serving: JoinHandle<()>,
}

impl Pages {
    async fn of(server: &Cluster) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, end) = (listener.local_addr().unwrap(), CancellationToken::new());
        let database = Address::from(server.config("postgres"));
        let access = Access { role: "reader".to_owned(), ..Access::default() };
        let options = Options { access, ..Options::default() };
        let router = tuskline::pages::router(database.clone(), options);
        let until = end.clone();
        let serving = tokio::spawn(async move {
            tuskline::health::serve(listener, database, RoleHealth::default(), router, until).await;
        });
        Self { address, end, serving }
    }

    async fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(
            answer.starts_with("HTTP/1.1 200"),
            "{path}: {}",
            &answer[..answer.len().min(3_000)]
        );
        answer
    }

    async fn end(self) {
        self.end.cancel();
        self.serving.await.unwrap();
    }
}

/// Counts the statements of all sessions, and their buffers.
struct Counter(Client);

impl Counter {
    async fn reset(&self) {
        self.0.batch_execute("select pg_stat_statements_reset()").await.unwrap();
    }

    /// Statements and buffers since the reset.
    async fn read(&self) -> (i64, i64) {
        let sql = "select coalesce(sum(calls), 0)::bigint,
                          coalesce(sum(shared_blks_hit + shared_blks_read), 0)::bigint
                     from pg_stat_statements where query !~ 'pg_stat_statements'";
        let row = self.0.query_one(sql, &[]).await.unwrap();
        (row.get(0), row.get(1))
    }

    /// The statement that has read most.
    async fn most(&self) -> String {
        let sql = "select shared_blks_hit + shared_blks_read || ' buffers by ' || query
                     from pg_stat_statements where query !~ 'pg_stat_statements'
                    order by shared_blks_hit + shared_blks_read desc limit 1";
        self.0.query_one(sql, &[]).await.unwrap().get(0)
    }

    /// The cost of a page for a session that has read the catalogue.
    async fn page(&self, pages: &Pages, path: &str) -> (i64, i64) {
        pages.get(path).await;
        self.reset().await;
        pages.get(path).await;
        self.read().await
    }
}

/// The pages, and the most buffers of each. Every list is longer than its page.
async fn paths(client: &Client) -> Vec<(String, i64)> {
    let id = async |status: &str| -> i64 {
        let sql = format!("select max(id) from tuskline.task where status = '{status}'");
        client.query_one(&sql, &[]).await.unwrap().get(0)
    };
    let mut paths: Vec<(String, i64)> = [
        "dead-letters",
        "dead-letters?lambda=lambda_7",
        "waits",
        "periodic",
        "periodic?after=nightly_2",
        "periodic/nightly_3",
        "executors",
        "executors/2050",
        "operations",
        "operations/7",
        "audit",
        "time",
        "time?span=31d",
        "time?lambda=lambda_1,lambda_2&span=1d",
        "chains/5",
        "chains/5?after=500",
        "chains/2005",
    ]
    .map(|path| (format!("/{path}"), PAGE))
    .into();
    for status in ["enqueued", "new", "processing", "dead", "success"] {
        paths.push((format!("/tasks/{}", id(status).await), PAGE));
    }
    // Paused, parked behind a gate, limited, in order, and one with nothing of this.
    for lambda in [5, 35, 250, 350, 900] {
        paths.push((format!("/lambdas/lambda_{lambda}"), LAMBDA));
    }
    for q in [
        "",
        "lambda:lambda_7",
        "lambda:none",
        "status:dead",
        "status:dead+nowhere",
        "collection:us",
        "priority:critical",
        "key:key_77",
        "key:key_7+lambda:lambda_8",
        "cause:cause_1",
        "cause:cause_1+lambda:lambda_8",
        "before:1h+after:2h",
        "before:20h+nowhere",
        "nowhere",
    ] {
        paths.push((format!("/tasks?q={q}"), SEARCH));
    }
    paths
}

/// Readings that pages share: the first one, one more, and a hundred pages within its time.
async fn looks(counter: &Counter, server: &Cluster, found: &mut Vec<String>) {
    let pages = Pages::of(server).await;
    counter.reset().await;
    pages.get("/healthz").await;
    assert_eq!(counter.read().await.0, 0, "no page is open, so none reads");
    let answer = pages.get("/lambdas").await;
    let (statements, buffers) = counter.read().await;
    println!("{buffers} buffers, {statements} statements: the first reading");
    if buffers > FIRST_LOOK || statements > LOOK_STATEMENTS {
        found.push(format!("the first reading: {buffers} buffers, {statements} statements"));
    }
    let every = answer.to_lowercase();
    let every: i64 = every
        .split("tuskline-every: ")
        .nth(1)
        .unwrap()
        .split('\r')
        .next()
        .unwrap()
        .parse()
        .unwrap();
    assert!(statements <= 5 * every, "{statements} statements in {every} s");
    counter.reset().await;
    futures_util::future::join_all((0..100).map(|_| pages.get("/lambdas"))).await;
    assert_eq!(counter.read().await, (0, 0), "a hundred pages share the reading");
    pages.end().await;
}

#[tokio::test]
async fn no_page_of_a_large_installation_reads_more_than_its_bound() {
    let _alone = super::ALONE.lock().await;
    let server = super::server().await;
    if !server.binaries().have_library("pg_stat_statements") {
        return;
    }
    tuskline::migrate::migrate(&Address::from(server.config("postgres"))).await.unwrap();
    let client = connected(&server).await;
    let begun = std::time::Instant::now();
    let (lambdas, rest) = FILL.split_once("end $$;").unwrap();
    for part in [&format!("{lambdas}end $$;"), rest, VACUUM] {
        client.batch_execute(part).await.unwrap();
    }
    client.batch_execute("create role reader superuser").await.unwrap();
    client.batch_execute("create extension pg_stat_statements").await.unwrap();
    println!("made in {} s", begun.elapsed().as_secs());
    let counter = Counter(connected(&server).await);
    let mut found = Vec::new();
    looks(&counter, &server, &mut found).await;
    let pages = Pages::of(&server).await;
    pages.get("/lambdas").await;
    // The statements of the doctor, who examines for all pages, are none of theirs.
    while pages.get("/").await.contains("The doctor examines the database.") {}
    for (path, bound) in paths(&client).await {
        let (statements, buffers) = counter.page(&pages, &path).await;
        let line = format!("{buffers} buffers, {statements} statements, bound {bound}: {path}");
        println!("{line}");
        if buffers > bound {
            found.push(format!("{line}\n{}", counter.most().await));
        }
    }
    pages.end().await;
    assert!(found.is_empty(), "{}", found.join("\n"));
}
