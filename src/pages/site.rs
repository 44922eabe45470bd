//! State that all pages of a server share.

use axum::http::HeaderMap;
use tuskline_sdk::Address;

use super::doctor::Doctor;
use super::reading::{Sessions, SharedFacts};
use super::token::Key;
use crate::identity::Guesses;
use crate::identity::{Access, Person, Refusal};

/// Where the pages are, and who may see them.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// People who may look, and people who may act.
    pub access: Access,
    /// The path before every address: empty, or like `/tuskline`.
    pub base: String,
}

/// Everything that a page needs to be read and refused.
#[derive(Debug)]
pub struct Site {
    pub access: Access,
    pub base: String,
    pub database: String,
    pub sessions: Sessions,
    pub shared: SharedFacts,
    pub doctor: Doctor,
    pub guesses: Guesses,
    /// Signs previews.
    pub key: Key,
}

impl Site {
    /// Opens no session yet.
    pub fn new(address: Address, options: Options) -> Self {
        let access = options.access;
        Self {
            database: database_of(&address),
            shared: SharedFacts::new(access.role.clone()),
            guesses: Guesses::default(),
            key: key(&access),
            doctor: Doctor::new(address.clone()),
            sessions: Sessions::new(address),
            access,
            base: options.base.trim_end_matches('/').to_owned(),
        }
    }

    /// Who asks; a wrong token is slowed down.
    ///
    /// # Errors
    /// Why nobody is answered.
    pub async fn person(&self, headers: &HeaderMap) -> Result<Person, Refusal> {
        match self.access.presented(headers) {
            Some((token, _)) => self.guesses.check(token, || self.access.person(headers)).await,
            None => self.access.person(headers),
        }
    }
}

/// The key of previews: of what all servers with these tokens know, or of this server.
fn key(access: &Access) -> Key {
    let mut secrets: Vec<u8> = access.tokens.iter().flat_map(|token| token.hash).collect();
    secrets.extend(access.proxy.iter().flat_map(|proxy| proxy.secret.bytes()));
    if secrets.is_empty() {
        secrets = (0..4).flat_map(|_| fastrand::u64(..).to_be_bytes()).collect();
    }
    Key::of(&secrets)
}

/// Database and host, as in `shop at db.example`.
fn database_of(address: &Address) -> String {
    let config = address.config();
    let host = config.get_hosts().first().map(|host| match host {
        tokio_postgres::config::Host::Tcp(name) => name.clone(),
        #[cfg(unix)]
        tokio_postgres::config::Host::Unix(path) => path.display().to_string(),
    });
    let name = config.get_dbname().or(config.get_user()).unwrap_or("postgres");
    format!("{name} at {}", host.as_deref().unwrap_or("localhost"))
}
