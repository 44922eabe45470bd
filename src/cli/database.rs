//! The database that a command uses.
//!
//! In this order: `--database-url`, `TUSKLINE_DATABASE_URL`, `DATABASE_URL`, libpq's variables if `PGHOST`
//! is set, the server of a running `tuskline dev`. An option that the address lacks comes from libpq's
//! variables.
//! Must never: print an address with its password.

use anyhow::Result;
use tuskline_sdk::{Address, InvalidAddress, host_name};

use super::dev;
use super::failure::{Failed, WrongCall};
use super::global::Global;
use crate::session::{Deadlines, Session};

/// The address given, or that of a running `tuskline dev`.
pub fn find(global: &Global) -> Result<Address> {
    match given(global)? {
        Some(address) => Ok(address),
        None => Ok(acting(global, dev::running().ok_or_else(none)?)),
    }
}

/// The given address. For commands that must not work on the wrong database.
pub fn find_given(global: &Global) -> Result<Address> {
    given(global)?.ok_or_else(none)
}

/// A session on the database, for one command.
pub async fn open(global: &Global) -> Result<Session> {
    Ok(Session::open(&find(global)?, "command", Deadlines::USUAL).await?)
}

fn given(global: &Global) -> Result<Option<Address>> {
    // A variable that is set to nothing, as compose files do, is not set.
    let filled = |url: &String| !url.trim().is_empty();
    let fallback = || std::env::var("DATABASE_URL").ok().filter(filled);
    let url = global.database_url.clone().filter(filled).or_else(fallback);
    // libpq's variables are an address as well.
    let url = url.or_else(|| std::env::var_os("PGHOST").map(|_| "postgresql://".to_owned()));
    url.map(|url| Ok(acting(global, parse(&url)?))).transpose()
}

/// The address with the role of `--role`.
fn acting(global: &Global, address: Address) -> Address {
    match global.role.as_deref() {
        None | Some("" | "none") => address,
        Some(role) => address.acting_as(role),
    }
}

/// Reads an address. No error quotes it: it may hold a password.
pub fn parse(url: &str) -> Result<Address> {
    url.parse().map_err(|error: InvalidAddress| WrongCall(error.to_string()).into())
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

/// Database, user and hosts of an address, without its password.
pub fn shown(address: &Address) -> String {
    let config = address.config();
    let port = |at: usize| match config.get_ports() {
        [] => 5432,
        [one] => *one,
        each => each.get(at).copied().unwrap_or(5432),
    };
    let hosts = config.get_hosts().iter().map(host_name).enumerate();
    let named = hosts.map(|(at, name)| format!("{name}, port {}", port(at)));
    let mut hosts: Vec<String> = named.collect();
    if hosts.is_empty() {
        hosts.push(format!("localhost, port {}", port(0)));
    }
    let user = config.get_user().unwrap_or("?");
    let database = config.get_dbname().unwrap_or(user);
    format!("database {database} as {user} at {}", hosts.join(" or "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_host_is_shown_and_no_password() {
        let address = parse("postgresql://me:s3cret@db.example:6000/shop").unwrap();
        assert_eq!(shown(&address), "database shop as me at db.example, port 6000");
        let address = parse("postgresql://me:s3cret@a.example,b.example:6001/shop").unwrap();
        assert_eq!(
            shown(&address),
            "database shop as me at a.example, port 5432 or b.example, port 6001"
        );
        let refused = parse("postgresql://me:s3cret@[oops").unwrap_err().to_string();
        assert!(!refused.contains("s3cret"), "{refused}");
        let wrong = parse("postgresql://me:s3cret@db.example/shop?sslmode=full").unwrap_err();
        assert!(wrong.to_string().starts_with("sslmode must be disable, prefer"), "{wrong}");
    }
}
