//! A server, a proxy with one door, and clients on both sides of it.

use std::future::Future;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_postgres::config::Host;
use tokio_postgres::{Client, Config, Error, NoTls};
use tuskline_postgres::Cluster;

use super::super::{Door, Proxy, Upstream};

static CLUSTER: OnceLock<Cluster> = OnceLock::new();
static STAGES: AtomicU32 = AtomicU32::new(0);

pub struct Stage {
    pub proxy: Proxy,
    pub door: Door,
    /// Past the proxy.
    pub direct: Client,
    database: String,
}

impl Stage {
    /// A database with an empty table `kept (n int)`.
    pub async fn new() -> Self {
        let database = format!("stage_{}", STAGES.fetch_add(1, Ordering::Relaxed));
        cluster().create_database(&database, None).await.unwrap();
        let direct = connect(&cluster().config(&database)).await.unwrap();
        direct.batch_execute("create table kept (n int)").await.unwrap();
        let proxy = Proxy::new(socket());
        let door = proxy.open_door(&database).await.unwrap();
        Self { proxy, door, direct, database }
    }

    pub async fn try_client(&self) -> Result<Client, Error> {
        let mut config = Config::new();
        config.host("127.0.0.1").port(self.door.port()).user("tuskline").dbname(&self.database);
        connect(config.application_name("through")).await
    }

    pub async fn client(&self) -> Client {
        soon(self.try_client()).await.unwrap()
    }

    pub async fn kept(&self) -> Vec<i32> {
        let rows = self.direct.query("select n from kept order by n", &[]).await.unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    }

    /// Waits until as many sessions came through the proxy and satisfy the condition.
    pub async fn sessions(&self, count: i64, condition: &str) {
        let sql = format!(
            "select count(*) from pg_stat_activity
             where datname = current_database() and application_name = 'through' and {condition}"
        );
        until(async || self.direct.query_one(&sql, &[]).await.unwrap().get::<_, i64>(0) == count)
            .await;
    }

    /// A bare socket, and what it says to begin a session.
    pub async fn raw(&self) -> (TcpStream, Vec<u8>) {
        let socket = TcpStream::connect(("127.0.0.1", self.door.port())).await.unwrap();
        let database = &self.database;
        let body = format!("user\0tuskline\0database\0{database}\0application_name\0through\0\0");
        let length = u32::try_from(body.len() + 8).unwrap().to_be_bytes();
        (socket, [&length, &196_608_u32.to_be_bytes(), body.as_bytes()].concat())
    }

    /// A bare socket with a session that is ready for a query.
    pub async fn raw_session(&self) -> TcpStream {
        let (mut socket, startup) = self.raw().await;
        socket.write_all(&startup).await.unwrap();
        read_until(&mut socket, b"Z\0\0\0\x05I").await;
        socket
    }
}

pub fn cluster() -> &'static Cluster {
    CLUSTER.get_or_init(|| {
        std::thread::spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let settings = vec![("max_connections".to_owned(), "150".to_owned())];
            runtime.unwrap().block_on(Cluster::temporary(settings)).unwrap()
        })
        .join()
        .unwrap()
    })
}

pub fn socket() -> Upstream {
    let config = cluster().config("postgres");
    let Host::Unix(dir) = &config.get_hosts()[0] else { panic!("a unix socket") };
    Upstream::Unix(PathBuf::from(dir).join(format!(".s.PGSQL.{}", config.get_ports()[0])))
}

async fn connect(config: &Config) -> Result<Client, Error> {
    let (client, connection) = config.connect(NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

pub async fn read_until(socket: &mut TcpStream, end: &[u8]) -> Vec<u8> {
    let mut seen = Vec::new();
    while !seen.ends_with(end) {
        seen.push(soon(socket.read_u8()).await.unwrap());
    }
    seen
}

/// Within the deadline of every test.
pub async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(30), what).await.expect("in time")
}

/// Does not come while it must not; what is held can only come later, never sooner.
pub async fn not_yet<T: std::fmt::Debug>(what: &mut (impl Future<Output = T> + Unpin)) {
    let came = tokio::time::timeout(Duration::from_millis(300), what).await;
    assert!(came.is_err(), "came too early: {came:?}");
}

pub async fn until(mut so: impl AsyncFnMut() -> bool) {
    soon(async {
        while !so().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}
