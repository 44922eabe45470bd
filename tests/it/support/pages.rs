//! The pages of a server in the test's own process, and requests of browsers and programs.

use std::net::SocketAddr;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio_postgres::Config;
use tokio_util::sync::CancellationToken;
use tuskline::health;
use tuskline::pages::{self, Access, Options, Token};
use tuskline::recovery::RoleHealth;

use super::company::Company;
use super::{Db, within};

/// A server with pages.
pub struct Pages {
    pub address: SocketAddr,
    end: CancellationToken,
    serving: JoinHandle<()>,
}

/// An answer.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Answer {
    /// A header, by its name in small letters.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("no JSON: {self:?}"))
    }
}

/// A person with the token `name`.
pub fn person(name: &str, role: &str) -> Token {
    Token { hash: pages::hash(name), role: role.to_owned(), name: name.to_owned() }
}

/// People of the company: each signs in by the name of the role.
pub fn people(company: &Company, names: &[&str]) -> Access {
    let tokens = names.iter().map(|name| person(name, &company.filled(&format!("<{name}>"))));
    Access { role: company.filled("<viewer>"), tokens: tokens.collect(), ..Access::default() }
}

impl Pages {
    /// Serves the pages of a database.
    pub async fn of(db: &Db, access: Access, base: &str) -> Self {
        Self::at(&db.config, access, base).await
    }

    /// The same of a database that may not be there.
    pub async fn at(config: &Config, access: Access, base: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, end) = (listener.local_addr().unwrap(), CancellationToken::new());
        let router =
            pages::router(config.clone().into(), Options { access, base: base.to_owned() });
        let (database, until) = (config.clone().into(), end.clone());
        let serving = tokio::spawn(async move {
            health::serve(listener, database, RoleHealth::default(), router, until).await;
        });
        Self { address, end, serving }
    }

    /// Pages that have read a database once, which is away now. A person with this token asks for the
    /// cancellation of a task that has ended, so that the next page reads again.
    pub async fn away(db: &Db, access: Access, (token, ended): (&str, i64)) -> Self {
        let (listener, config, socket) = db.port().await;
        let server = tokio::spawn(async move {
            let mut sessions = JoinSet::new();
            while let Ok((mut client, _)) = listener.accept().await {
                let mut server = UnixStream::connect(&socket).await.unwrap();
                sessions.spawn(async move {
                    let _ = copy_bidirectional(&mut client, &mut server).await;
                });
            }
        });
        let pages = Self::at(&config, access, "").await;
        assert_eq!(pages.get("/", &[]).await.status, 200);
        let act = format!("cancel?task={ended}");
        let shown = pages.preview(token, &act).await;
        assert_eq!(pages.confirm(token, &act, &shown).await.status, 409);
        server.abort();
        let _ = server.await;
        pages
    }

    /// Sends a request as it is, and reads the answer.
    pub async fn send(&self, request: &str) -> Answer {
        let asking = async {
            let mut stream = TcpStream::connect(self.address).await.unwrap();
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).await.unwrap();
            String::from_utf8_lossy(&answer).into_owned()
        };
        let answer = within(asking).await;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        Answer { status, head: head.to_owned(), body: body.to_owned() }
    }

    /// A `GET` with headers. The host is ours unless a header says another.
    pub async fn get(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
        self.send(&request("GET", path, headers, "")).await
    }

    /// A `POST` of a form.
    pub async fn post(
        &self,
        path: &str,
        headers: &[(&str, &str)],
        form: &[(&str, &str)],
    ) -> Answer {
        let form: Vec<String> =
            form.iter().map(|(name, value)| format!("{name}={}", encoded(value))).collect();
        self.send(&request("POST", path, headers, &form.join("&"))).await
    }

    /// The preview of an act, as JSON.
    pub async fn preview(&self, name: &str, act: &str) -> Value {
        let path = format!("/act/{act}&format=json");
        self.get(&path, &[("Authorization", &format!("Bearer {name}"))]).await.json()
    }

    /// Confirms a preview of this or another act.
    pub async fn confirm(&self, name: &str, act: &str, preview: &Value) -> Answer {
        let number = preview["count"]["tasks"].to_string();
        let form = [
            ("preview", preview["preview"].as_str().unwrap_or_default()),
            ("reason", "an attack"),
            ("number", &number),
        ];
        self.post(&format!("/act/{act}"), &[("Authorization", &format!("Bearer {name}"))], &form)
            .await
    }

    /// Ends the server.
    pub async fn end(self) {
        self.end.cancel();
        within(self.serving).await.unwrap();
    }
}

fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> String {
    let mut lines = format!("{method} {path} HTTP/1.1\r\n");
    if !headers.iter().any(|(name, _)| *name == "Host") {
        lines += "Host: localhost\r\n";
    }
    for (name, value) in headers.iter().filter(|(_, value)| *value != "none") {
        lines += &format!("{name}: {value}\r\n");
    }
    if method == "POST" {
        lines += "Content-Type: application/x-www-form-urlencoded\r\n";
        lines += &format!("Content-Length: {}\r\n", body.len());
    }
    format!("{lines}Connection: close\r\n\r\n{body}")
}

/// A member of a query.
pub fn encoded(text: &str) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric();
    text.bytes()
        .map(|byte| match plain(&byte) {
            true => char::from(byte).to_string(),
            false => format!("%{byte:02X}"),
        })
        .collect()
}
