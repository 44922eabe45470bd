//! The addresses of a running server, in the forms its clients read.
//!
//! The socket's directory is private to the account that runs the server, so an address without a
//! password is of use to that account and to root only.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// The port in the socket's name when TCP is off.
pub(super) const SOCKET_PORT: u16 = 5432;

/// Where a server answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Address {
    /// The directory of the unix socket.
    pub socket_dir: PathBuf,
    /// The port: in the socket's name, and of TCP when that is on.
    pub port: u16,
}

impl Address {
    pub fn config(&self, user: &str, database: &str) -> tokio_postgres::Config {
        let mut config = tokio_postgres::Config::new();
        config.host_path(&self.socket_dir).port(self.port).user(user).dbname(database);
        config
    }

    pub fn url(&self, user: &str, database: &str) -> String {
        let database = percent_encoded(database.as_bytes());
        let host =
            percent_encoded(self.socket_dir.as_os_str().as_encoded_bytes()).replace('/', "%2F");
        let port = match self.port {
            SOCKET_PORT => String::new(),
            port => format!(":{port}"),
        };
        format!("postgresql://{user}@{host}{port}/{database}")
    }

    pub fn tcp_url(&self, user: &str, password: &str, database: &str) -> String {
        let database = percent_encoded(database.as_bytes());
        format!("postgresql://{user}:{password}@127.0.0.1:{}/{database}", self.port)
    }
}

/// Everything but letters, digits and a few harmless signs as `%XX`.
fn percent_encoded(bytes: &[u8]) -> String {
    let mut encoded = String::with_capacity(bytes.len());
    for &byte in bytes {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                encoded.push(char::from(byte));
            }
            _ => {
                let _ = write!(encoded, "%{byte:02X}");
            }
        }
    }
    encoded
}

/// A path as one word of a shell's line.
pub(super) fn shell_quoted(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', r"'\''"))
}
