//! How a database is created and deleted.

use std::time::Duration;

use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use super::launch::connect;
use super::{Cluster, Error, OWNER};

/// How long one `drop database` may take. It takes 30 ms to 1 s where nothing is wrong.
const PATIENCE: Duration = Duration::from_secs(5);
/// How many of them are begun.
const ROUNDS: u32 = 12;

/// The ordinary role: it makes databases and roles, and sees all sessions, as `tuskline doctor` does.
/// Two processes may start at once.
const MAKE_OWNER: &str = "
do $$ begin
  create role {owner} login createdb createrole in role pg_monitor;
exception when duplicate_object or unique_violation then null;
end $$";

impl Cluster {
    /// The same cluster for an ordinary role, [`OWNER`]: it is the user of every
    /// address, and [`create_database`](Self::create_database) gives it what an owner of a schema
    /// needs.
    #[must_use]
    pub fn owned(mut self) -> Self {
        self.user = OWNER;
        self
    }

    /// Creates a database, empty or as a copy of a template without an open session. Without a
    /// template it is enough that the database exists. In a cluster that is
    /// [`owned`](Self::owned) the ordinary role may create schemas there.
    ///
    /// # Errors
    /// [`Error::DatabaseName`] and [`Error::Database`].
    pub async fn create_database(&self, name: &str, template: Option<&str>) -> Result<(), Error> {
        let mut statement = format!("create database {}", quoted_name(name)?);
        if let Some(template) = template {
            statement.push_str(" template ");
            statement.push_str(&quoted_name(template)?);
        }
        let what = format!("cannot create database {name}");
        let client = connect(&self.superuser_config("postgres")).await;
        let client = client.map_err(Error::database(what.clone()))?;
        match client.batch_execute(&statement).await {
            Err(error) if template.is_none() && exists_already(&error) => {}
            result => result.map_err(Error::database(what))?,
        }
        if self.user == OWNER { self.allow_owner(name).await } else { Ok(()) }
    }

    async fn allow_owner(&self, database: &str) -> Result<(), Error> {
        let what = "cannot make the owner of the schema";
        let client = connect(&self.superuser_config(database)).await;
        let client = client.map_err(Error::database(what))?;
        let mut statements = vec![MAKE_OWNER.replace("{owner}", OWNER)];
        if let Some(password) = self.password() {
            statements.push(format!("alter role {OWNER} password '{password}'"));
        }
        let database = quoted_name(database)?;
        statements.push(format!("grant create, temporary on database {database} to {OWNER}"));
        statements.push(format!("grant create on schema public to {OWNER}"));
        let made = client.batch_execute(&statements.join(";")).await;
        made.map_err(Error::database(what))
    }
}

/// Deletes a database if it exists, and ends its sessions. The session keeps its
/// `statement_timeout`.
///
/// `drop database` waits until each session of the server has accepted a signal. In PostgreSQL 15 to 18.4, a
/// session that starts at that moment can miss the signal (`ProcSignalInit` reads the number of the last
/// signal before it makes its process id visible). Then the statement waits until that session ends. The
/// signal of a second `drop database` ends both waits. So a statement that takes over 5 s is begun again.
///
/// # Errors
/// The errors of the server; `57014` when each of twelve statements took over 5 s.
pub async fn drop_database(client: &Client, name: &str) -> Result<(), tokio_postgres::Error> {
    drop_within(client, name, PATIENCE).await
}

pub(super) async fn drop_within(
    client: &Client,
    name: &str,
    patience: Duration,
) -> Result<(), tokio_postgres::Error> {
    let name = name.replace('"', "\"\"");
    let statement = format!("drop database if exists \"{name}\" with (force)");
    let limit = format!("set statement_timeout = {}", patience.as_millis());
    let before: String = client.query_one("show statement_timeout", &[]).await?.get(0);
    client.batch_execute(&limit).await?;
    let mut dropped = client.batch_execute(&statement).await;
    for _ in 1..ROUNDS {
        match &dropped {
            Err(error) if error.code() == Some(&SqlState::QUERY_CANCELED) => {}
            _ => break,
        }
        tracing::debug!(name, ?patience, "the server did not delete a database in time; again");
        dropped = client.batch_execute(&statement).await;
    }
    client.batch_execute(&format!("set statement_timeout = '{before}'")).await?;
    dropped
}

fn exists_already(error: &tokio_postgres::Error) -> bool {
    // The second is what one of two sessions gets that create the same name at the same time.
    [SqlState::DUPLICATE_DATABASE, SqlState::UNIQUE_VIOLATION]
        .iter()
        .any(|code| error.code() == Some(code))
}

/// A database's name as an SQL identifier.
fn quoted_name(name: &str) -> Result<String, Error> {
    if name.is_empty() || name.len() > 63 || name.contains('\0') {
        return Err(Error::DatabaseName { name: name.to_owned() });
    }
    Ok(format!("\"{}\"", name.replace('"', "\"\"")))
}
