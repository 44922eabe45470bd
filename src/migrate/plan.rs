//! The steps of a migration, before it runs: its statements, their locks, and the sessions that block
//! them now. It changes nothing.

use serde::Serialize;
use tokio_postgres::Client;
use tuskline_sdk::Address;

use super::installed::{is_current, later, stamp};
use super::sources::{CLEAR, FUNCTIONS, INSTALL, REMEMBER, RENAME, SWEEP};
use super::statements::{self, Mode};
use super::{Error, SCHEMA_VERSION, open, tables};
use crate::store::guard::{self, Blocker};

/// Steps of a migration that has not run yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// Function set in the database. None: nothing is installed.
    pub found: Option<i32>,
    /// Function set of this binary.
    pub schema_version: i32,
    /// In order. Empty: there is nothing to do.
    pub steps: Vec<Step>,
}

/// The statements of one transaction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Step {
    /// Name of the file of a table migration, or `functions`.
    pub name: String,
    /// In order.
    pub statements: Vec<&'static str>,
    /// Strongest lock on each relation that is there now, the strongest first. It is held until the end of
    /// the transaction.
    pub locks: Vec<Lock>,
}

/// A lock that a step takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Lock {
    /// Its mode.
    pub mode: Mode,
    /// The table, view, index or sequence.
    pub relation: String,
    /// Sessions whose lock this one would wait for now, in transactions that are older than a
    /// second.
    pub blockers: Vec<Blocker>,
}

/// Returns the steps that [`migrate`](super::migrate()) would take on a database now. It changes
/// nothing and waits for no lock of a table.
///
/// # Errors
/// As [`migrate`](super::migrate()), but for those of a statement.
pub async fn plan(address: impl Into<Address>) -> Result<Plan, Error> {
    let session = open(&address.into()).await?;
    let client = session.client();
    if let Some(later) = later(client).await? {
        return Ok(Plan { found: Some(later), schema_version: SCHEMA_VERSION, steps: vec![] });
    }
    let stamp = stamp(client).await?;
    let is_current = is_current(client, FUNCTIONS).await?;
    let mut steps = Vec::new();
    for file in tables::pending(client, &tables::TABLES, is_current).await? {
        steps.push(step(client, file.to_string(), &[file.sql().unwrap_or_default()]).await?);
    }
    if !is_current {
        let texts: Vec<&str> = FUNCTIONS.iter().map(|(_, text)| *text).collect();
        let texts = [&[RENAME.1, REMEMBER.1][..], &texts, &[SWEEP.1, INSTALL.1]].concat();
        steps.push(step(client, "functions".to_owned(), &texts).await?);
    }
    Ok(Plan { found: stamp.map(|(set, _)| set), schema_version: SCHEMA_VERSION, steps })
}

/// The statement that runs first if a function or view cannot be replaced in place, because it returns something
/// else now. Each such function is dropped before it is created. It takes no lock that the step does not take.
pub const WHEN_RECREATED: &str = CLEAR.1;

async fn step(client: &Client, name: String, texts: &[&'static str]) -> Result<Step, Error> {
    let statements: Vec<&str> = texts.iter().flat_map(|text| statements::split(text)).collect();
    let mut wanted: Vec<_> = statements.iter().flat_map(|text| statements::locks(text)).collect();
    wanted.sort_by(|one, other| (&one.1, other.0).cmp(&(&other.1, one.0)));
    wanted.dedup_by(|next, first| next.1 == first.1); // the strongest one is the first
    let mut locks = Vec::new();
    for (mode, relation) in wanted {
        if let Some(blockers) = guard::blockers(client, &relation, &mode.waits_for()).await? {
            locks.push(Lock { mode, relation, blockers });
        }
    }
    locks.sort_by(|one, other| (other.mode, &one.relation).cmp(&(one.mode, &other.relation)));
    Ok(Step { name, statements, locks })
}
