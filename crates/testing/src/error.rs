//! Why a test cannot go on.

use std::fmt;

use tuskline::migrate;
use tuskline::session::ErrorChain;

/// Why a call of the kit failed. A failed assertion is a panic, not an error.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no server to make databases on.
    #[error("no PostgreSQL for the tests: {0}")]
    Server(String),
    /// It made a database, and could not make a task store of it.
    #[error("the test's database: {}", ErrorChain(.0))]
    Migrate(#[from] migrate::Error),
    /// The connection or the server.
    #[error("{}", said(.0))]
    Database(#[from] tokio_postgres::Error),
    /// Error of the SDK.
    #[error("{}", with_hint(.0))]
    Sdk(#[from] tuskline_sdk::Error),
    /// The worker ended, or never began.
    #[error("the worker {0}")]
    Worker(String),
    /// Something still is due, or runs, past the limit.
    #[error("{0}")]
    NotDrained(String),
    /// The task was not executed, and will not be without something else.
    #[error("{0}")]
    Waits(String),
    /// The attempt failed; the whole story of its task.
    #[error("the attempt failed\n{}", .0.story())]
    Failed(Box<super::Task>),
    /// The clock does not heed the pin.
    #[error(
        "the clock of this database cannot be pinned: a migration has replaced tuskline.clock() after the kit did"
    )]
    Clock,
    /// No task has this number.
    #[error("there is no task {0}")]
    NoSuchTask(tuskline_sdk::TaskId),
}

/// `unwrap` shows the text of the error, not its fields.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn said(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(said) => {
            let hint = said.hint().map(|hint| format!(" ({hint})")).unwrap_or_default();
            format!("{}{hint}", said.message())
        }
        None => ErrorChain(error).to_string(),
    }
}

fn with_hint(error: &tuskline_sdk::Error) -> String {
    let hint = error.hint().map(|hint| format!(" ({hint})")).unwrap_or_default();
    format!("{error}{hint}")
}
