//! The one error of the SDK. Its variants say what the caller may do, not what went wrong inside.
//!
//! A lost race (a result under an old fence, a heartbeat of a worker that was ended) is never an
//! error: it is a value of the call that lost.

use tokio_postgres::error::SqlState;

use crate::db::tls::refusal::TlsRefusal;

/// The errors of a call, by the reaction that is open to the caller.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The database could not be reached or could not answer. Nothing was done: try again.
    #[error("unavailable: {0}")]
    Unavailable(String),
    /// The connection broke while a change was on its way, or a synchronous standby may not have it.
    /// It may have been made or not, or be lost yet: look, or repeat a call that is harmless to repeat.
    #[error("unknown outcome: {0}")]
    Unknown(String),
    /// The call is wrong: fix it. `code` is Tuskline's (`TK001`) or PostgreSQL's SQLSTATE.
    #[error("{text}")]
    Invalid {
        /// SQLSTATE, class `TK` for Tuskline's own refusals.
        code: String,
        /// One line: code, stable name, field, limit, what was got.
        text: String,
        /// A hint: the next step of the caller, if there is one.
        hint: Option<String>,
    },
    /// This attempt is over: roll back and return the error. The task was given to another attempt,
    /// or has ended; each result of this one is refused.
    #[error("fenced: {0}")]
    Fenced(String),
    /// The role may not do this, the password is wrong, or TLS was refused.
    #[error("denied: {0}")]
    Denied(String),
    /// Schema and binary do not fit together, or the schema is absent.
    #[error("incompatible: {0}")]
    Incompatible(String),
}

impl Error {
    /// A refusal by the SDK itself, in the form the database uses: `TK002 invalid_name: ...`.
    pub(crate) fn invalid(code: &str, text: impl std::fmt::Display) -> Self {
        Self::Invalid { code: code.into(), text: format!("{code} {text}"), hint: None }
    }

    /// Hint that belongs to the error, if any.
    pub fn hint(&self) -> Option<&str> {
        match self {
            Self::Invalid { hint, .. } => hint.as_deref(),
            _ => None,
        }
    }

    /// Maps a failure of a read, or of connecting: nothing was changed.
    pub fn from_read(error: tokio_postgres::Error) -> Self {
        Self::classify(error, Self::Unavailable)
    }

    /// Maps a failure of a change: when the connection broke, the outcome is unknown.
    pub fn from_write(error: tokio_postgres::Error) -> Self {
        Self::classify(error, Self::Unknown)
    }

    fn classify(error: tokio_postgres::Error, broken: fn(String) -> Self) -> Self {
        if let Some(refusal) = TlsRefusal::of(&error) {
            let hint = refusal.hint().map(|hint| format!(" ({hint})")).unwrap_or_default();
            return Self::Denied(format!("{refusal}{hint}"));
        }
        let Some(db) = error.as_db_error() else {
            let connecting = error.to_string().starts_with("error connecting");
            let text = with_source(&error);
            return if connecting { Self::Unavailable(text) } else { broken(text) };
        };
        let (code, text) = (db.code().code(), db.message().to_owned());
        match code {
            "TK011" => Self::Unavailable(text),
            "TK014" => Self::Fenced(text),
            "28000" | "28P01" | "42501" => Self::Denied(text),
            "3F000" | "42P01" | "42883" => Self::Incompatible(absent(&text)),
            "25006" => Self::Unavailable("this server is a standby: it only reads".into()),
            // The server ended the session or the statement before it answered.
            _ if code.starts_with("57P") || code.starts_with("08") => broken(text),
            _ if code.starts_with("53") || code.starts_with("40") || code == "55P03" => {
                Self::Unavailable(text)
            }
            "57014" => broken(text),
            _ => Self::Invalid { code: code.into(), text, hint: db.hint().map(Into::into) },
        }
    }
}

impl From<deadpool_postgres::PoolError> for Error {
    fn from(error: deadpool_postgres::PoolError) -> Self {
        match error {
            deadpool_postgres::PoolError::Backend(error) => Self::from_read(error),
            other => Self::Unavailable(other.to_string()),
        }
    }
}

fn absent(text: &str) -> String {
    format!("the schema is absent or older than this binary ({text}): run `tuskline migrate`")
}

fn with_source(error: &tokio_postgres::Error) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

/// True for the refusal that asks for `rebuild_queues` (after a restart, a crash, a promotion or a restore).
pub(crate) fn queues_not_rebuilt(error: &tokio_postgres::Error) -> bool {
    error.code() == Some(&SqlState::from_code("TK011"))
}
