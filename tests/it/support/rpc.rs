//! The Frontend by RPC in the test's own process, and calls of programs.

use std::net::SocketAddr;

use axum::Router;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_postgres::Config;
use tokio_util::sync::CancellationToken;
use tuskline::health::{self, Beside};
use tuskline::pages::{self, Access};
use tuskline::port_tls::PortTls;
use tuskline::recovery::RoleHealth;
use tuskline::rpc;

use super::pages::person;
use super::{Db, within};

/// A server with the Frontend.
pub struct Rpc {
    pub address: SocketAddr,
    end: CancellationToken,
    serving: JoinHandle<()>,
}

/// An answer: its status, head and JSON. Null: the body is none.
#[derive(Debug)]
pub struct Said {
    pub status: u16,
    pub head: String,
    pub json: Value,
}

impl Said {
    /// The status and the name of a refusal.
    pub fn refusal(&self) -> (u16, &str) {
        (self.status, self.json["name"].as_str().unwrap_or_default())
    }
}

/// The options of a server whose caller `ada` acts as the role that owns the test's database.
pub async fn options(db: &Db) -> rpc::Options {
    let role: String = db.one("select current_user::text").await;
    let access = Access { tokens: vec![person("ada", &role)], ..Access::default() };
    pages::Options { access, base: String::new() }.into()
}

impl Rpc {
    /// Serves a database to `ada`.
    pub async fn of(db: &Db) -> Self {
        Self::with(&db.config, options(db).await).await
    }

    /// Serves a database to these senders.
    pub async fn to(db: &Db, access: Access) -> Self {
        Self::with(&db.config, pages::Options { access, base: String::new() }.into()).await
    }

    /// Serves a database.
    pub async fn with(config: &Config, options: rpc::Options) -> Self {
        Self::by(config, options, None).await
    }

    /// The same with certificates.
    pub async fn by(config: &Config, options: rpc::Options, tls: Option<PortTls>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, end) = (listener.local_addr().unwrap(), CancellationToken::new());
        let rpc = rpc::router(config.clone().into(), options);
        let beside = Beside { pages: Router::new(), rpc, tls };
        let (database, until) = (config.clone().into(), end.clone());
        let serving = tokio::spawn(async move {
            health::serve(listener, database, RoleHealth::default(), beside, until).await;
        });
        Self { address, end, serving }
    }

    /// Sends a request as it is.
    pub async fn begin(&self, request: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        stream
    }

    /// Sends a request as it is, and reads the answer.
    pub async fn send(&self, request: &str) -> Said {
        within(async { said(self.begin(request).await).await }).await
    }

    /// Calls as `ada`.
    pub async fn call(&self, message: &str, body: &Value) -> Said {
        self.call_as("ada", message, body).await
    }

    /// Calls as the sender of a token.
    pub async fn call_as(&self, token: &str, message: &str, body: &Value) -> Said {
        let bearer = format!("Bearer {token}");
        self.post(message, &[("Authorization", &bearer)], &body.to_string()).await
    }

    /// Calls with headers.
    pub async fn post(&self, message: &str, headers: &[(&str, &str)], body: &str) -> Said {
        self.send(&request(message, headers, body)).await
    }

    /// Ends the server.
    pub async fn end(self) {
        self.end.cancel();
        within(self.serving).await.unwrap();
    }

    /// Tells the server to end.
    pub fn tell_to_end(&self) {
        self.end.cancel();
    }
}

/// A call. Headers replace those that a call usually has; `-` leaves one out.
pub fn request(message: &str, headers: &[(&str, &str)], body: &str) -> String {
    let length = body.len().to_string();
    let usual = [
        ("Host", "localhost"),
        ("Content-Type", "application/json"),
        ("Content-Length", length.as_str()),
        ("Connection", "close"),
    ];
    let is_given = |name: &str| headers.iter().any(|(given, _)| given.eq_ignore_ascii_case(name));
    let usual = usual.iter().filter(|(name, _)| !is_given(name));
    let given = headers.iter().filter(|(_, value)| *value != "-");
    let lines: String =
        usual.chain(given).map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let path = match message.starts_with('/') {
        true => message.to_owned(),
        false => format!("/tuskline.v1.Frontend/{message}"),
    };
    format!("POST {path} HTTP/1.1\r\n{lines}\r\n{body}")
}

/// The answer on a connection.
pub async fn said(mut stream: TcpStream) -> Said {
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    let json = serde_json::from_str(body).unwrap_or_default();
    Said { status, head: head.to_owned(), json }
}
