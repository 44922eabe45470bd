//! Which database a command talks to.
//!
//! In this order: `--database-url`, `TUSKLINE_DATABASE_URL`, `DATABASE_URL`, the server of a
//! running `tuskline dev`. A password that the address lacks comes from `PGPASSWORD`.
//! Must never: print an address with its password.

use anyhow::Result;
use tokio_postgres::Config;
use tokio_postgres::config::Host;

use super::failure::{Failed, NO_TLS, WrongCall};
use super::{Global, dev};
use crate::session::{Deadlines, Session};

/// TLS options that libpq understands and Tuskline does not.
const TLS_OPTIONS: [&str; 5] =
    ["sslmode=verify", "sslrootcert=", "sslcert=", "sslkey=", "sslmode=allow"];

/// The address given, or that of a running `tuskline dev`.
pub fn find(global: &Global) -> Result<Config> {
    match given(global)? {
        Some(config) => Ok(config),
        None => dev::running().ok_or_else(none),
    }
}

/// The address given; for commands that must not end up in the wrong place.
pub fn find_given(global: &Global) -> Result<Config> {
    given(global)?.ok_or_else(none)
}

/// A session on the database, for one command.
pub async fn open(global: &Global) -> Result<Session> {
    Ok(Session::open(&find(global)?, "command", Deadlines::USUAL).await?)
}

fn given(global: &Global) -> Result<Option<Config>> {
    // A variable that is set to nothing, as compose files do, is not set.
    let filled = |url: &String| !url.trim().is_empty();
    let fallback = || std::env::var("DATABASE_URL").ok().filter(filled);
    let url = global.database_url.clone().filter(filled).or_else(fallback);
    url.map(|url| parse(&url)).transpose()
}

/// An address in words that cannot tell its password.
pub fn parse(url: &str) -> Result<Config> {
    // The parser's own words may quote the address, and with it the password.
    let mut config: Config = url.parse().map_err(|_| {
        if TLS_OPTIONS.iter().any(|option| url.contains(option)) {
            let what = "the database address asks for TLS".to_owned();
            return anyhow::Error::from(Failed { what, hint: Some(NO_TLS.to_owned()) });
        }
        WrongCall(
            "the database address is not understood, give postgresql://user@host:5432/database"
                .to_owned(),
        )
        .into()
    })?;
    if config.get_password().is_none()
        && let Ok(password) = std::env::var("PGPASSWORD")
    {
        config.password(password);
    }
    Ok(config)
}

fn none() -> anyhow::Error {
    Failed {
        what: "no database: give --database-url or set TUSKLINE_DATABASE_URL".to_owned(),
        hint: cfg!(feature = "dev").then(|| {
            "`tuskline dev` starts a private PostgreSQL, which other commands then find".to_owned()
        }),
    }
    .into()
}

/// Where a configuration leads, without its password.
pub fn shown(config: &Config) -> String {
    let host = match config.get_hosts().first() {
        Some(Host::Tcp(name)) => name.clone(),
        #[cfg(unix)]
        Some(Host::Unix(path)) => path.display().to_string(),
        None => "localhost".to_owned(),
    };
    let port = config.get_ports().first().copied().unwrap_or(5432);
    let user = config.get_user().unwrap_or("?");
    let database = config.get_dbname().unwrap_or(user);
    format!("database {database} as {user} at {host}, port {port}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_never_shown() {
        let config = parse("postgresql://me:s3cret@db.example:6000/shop").unwrap();
        assert_eq!(shown(&config), "database shop as me at db.example, port 6000");
        let refused = parse("postgresql://me:s3cret@[oops").unwrap_err().to_string();
        assert!(!refused.contains("s3cret"), "{refused}");
        let secure = parse("postgresql://me:s3cret@db.example/shop?sslmode=verify-full");
        assert_eq!(secure.unwrap_err().to_string(), "the database address asks for TLS");
    }
}
