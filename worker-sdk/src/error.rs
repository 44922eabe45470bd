//! The one error of the SDK: opaque, with questions that a caller can ask it.
//!
//! Promises: [`ErrorKind`] says what the caller can do, and the cause stays in the chain of sources. A lost
//! race (a result under an old fence, a heartbeat of a worker that was ended) is never an error: it is a value
//! of the call that lost. Must never: decide by a text.

mod code;
mod tls_refusal;

use std::fmt;

use tokio_postgres::error::SqlState;

pub use code::Code;
pub use tls_refusal::TlsRefusal;

pub(crate) type Source = Box<dyn std::error::Error + Send + Sync>;

/// Why a call failed.
///
/// `Display` is one line. `{:#}` adds the causes and the hint to it, for a log. `Debug`, which `main` and
/// `expect` print, shows them on lines of their own. The cause is in [`source`](std::error::Error::source).
///
/// # Example
/// ```
/// # use tuskline_sdk::{Code, Error, ErrorKind};
/// fn advice(error: &Error) -> &'static str {
///     match (error.kind(), error.code()) {
///         (_, Some(Code::UnknownLambda)) => "define the lambda first",
///         (ErrorKind::Unknown, _) => "repeat the call with the same unique key",
///         _ if error.is_retryable() => "repeat the call",
///         _ => "fix the call",
///     }
/// }
/// ```
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    sqlstate: Option<String>,
    text: String,
    hint: Option<String>,
    source: Option<Source>,
}

/// The kinds of an [`Error`], each by the caller's next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The database could not be reached or could not answer. Nothing was done: try again.
    Unavailable,
    /// The connection broke while a change was on its way, or a synchronous standby may not have it. The
    /// change was made or not, or can still be lost: look, or repeat a call that is harmless to repeat.
    Unknown,
    /// The call is wrong: fix it.
    Invalid,
    /// This attempt is over: roll back and return the error. The task was given to another attempt,
    /// or has ended; each result of this one is refused.
    Fenced,
    /// The role may not do this, the password is wrong, or TLS was refused.
    Denied,
    /// Schema and binary do not fit together, or the schema is absent.
    Incompatible,
}

impl ErrorKind {
    /// The beginning of the line.
    fn prefix(self) -> &'static str {
        match self {
            Self::Unavailable => "unavailable: ",
            Self::Unknown => "unknown outcome: ",
            Self::Invalid => "",
            Self::Fenced => "fenced: ",
            Self::Denied => "denied: ",
            Self::Incompatible => "incompatible: ",
        }
    }
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, text: impl fmt::Display) -> Self {
        let text = text.to_string();
        Self(Box::new(Inner { kind, sqlstate: None, text, hint: None, source: None }))
    }

    /// A refusal by the SDK itself, in the form the database uses: `TK002 invalid_name: ...`.
    pub(crate) fn refused(code: Code, text: impl fmt::Display) -> Self {
        let line = format!("{} {}: {text}", code.as_str(), code.name());
        let mut error = Self::new(kind_of(code.as_str(), ErrorKind::Unknown), line);
        error.0.sqlstate = Some(code.as_str().to_owned());
        error
    }

    pub(crate) fn unavailable(text: impl fmt::Display) -> Self {
        Self::new(ErrorKind::Unavailable, text)
    }

    pub(crate) fn unknown(text: impl fmt::Display) -> Self {
        Self::new(ErrorKind::Unknown, text)
    }

    /// Names the row of a batch, or the task of a chain, that is refused.
    pub(crate) fn at(mut self, place: impl fmt::Display) -> Self {
        self.0.text = format!("{} ({place})", self.0.text);
        self
    }

    pub(crate) fn because(mut self, source: impl Into<Source>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    pub(crate) fn hinting<'h>(mut self, hint: impl Into<Option<&'h str>>) -> Self {
        self.0.hint = hint.into().map(str::to_owned);
        self
    }

    /// Says what the caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Tuskline's code. None: PostgreSQL refused the call by a code of its own, or there was no answer.
    pub fn code(&self) -> Option<Code> {
        self.sqlstate().and_then(Code::of)
    }

    /// The SQLSTATE, five characters: class `TK` for Tuskline's own refusals. None: there was no answer.
    pub fn sqlstate(&self) -> Option<&str> {
        self.0.sqlstate.as_deref()
    }

    /// The remedy in one sentence, if one is known.
    pub fn hint(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }

    /// True: nothing was done, and the same call can succeed later. Within a transaction of your own, repeat
    /// the whole transaction.
    ///
    /// False for [`ErrorKind::Unknown`]: without a unique key, a repeated call can schedule a task twice.
    pub fn is_retryable(&self) -> bool {
        self.0.kind == ErrorKind::Unavailable
    }

    /// Maps a failure of a read, or of connecting: nothing was changed.
    pub fn from_read(error: tokio_postgres::Error) -> Self {
        Self::of_postgres(error, ErrorKind::Unavailable)
    }

    /// Maps a failure of a change: when the connection broke, the outcome is unknown.
    pub fn from_write(error: tokio_postgres::Error) -> Self {
        Self::of_postgres(error, ErrorKind::Unknown)
    }

    /// `broken`: the kind if the connection broke before the answer came.
    pub(crate) fn of_postgres(error: tokio_postgres::Error, broken: ErrorKind) -> Self {
        if let Some(refusal) = TlsRefusal::of(&error) {
            return Self::new(ErrorKind::Denied, refusal).hinting(refusal.hint());
        }
        let Some(db) = error.as_db_error() else {
            let mut made = Self::new(broken, error.to_string());
            made.0.source = error.into_source();
            return made;
        };
        Self::of_server(db.code().code(), db.message(), db.hint(), broken)
    }

    /// The answer of the server that refuses a call.
    pub(crate) fn of_server(
        sqlstate: &str,
        text: &str,
        hint: Option<&str>,
        broken: ErrorKind,
    ) -> Self {
        let mut made = match kind_of(sqlstate, broken) {
            kind @ ErrorKind::Incompatible => {
                let text = format!("the schema is absent or older than this binary ({text})");
                Self::new(kind, text).hinting("run `tuskline migrate`")
            }
            kind if sqlstate == "25006" => {
                Self::new(kind, "this server is a standby: it only reads")
            }
            // `migrate` has replaced it in this moment. Nothing was done.
            _ if sqlstate == "XX000" && text.starts_with("cache lookup failed for function") => {
                let text = format!("an upgrade has replaced a function meanwhile ({text})");
                Self::new(ErrorKind::Unavailable, text).hinting("make the call again")
            }
            kind if sqlstate == "23514" => Self::new(kind, text).hinting(
                "the table of a queue is missing: `tuskline serve` makes it again in seconds; \
                 if it does not, run `tuskline repair`",
            ),
            kind if sqlstate == "28P01" => Self::new(kind, text)
                .hinting("the password stands in the address, or else in PGPASSWORD or PGPASSFILE"),
            kind => Self::new(kind, text).hinting(hint),
        };
        made.0.sqlstate = Some(sqlstate.to_owned());
        made
    }
}

fn kind_of(sqlstate: &str, broken: ErrorKind) -> ErrorKind {
    match sqlstate {
        "TK011" | "25006" | "55P03" => ErrorKind::Unavailable,
        // No partition for the row: no verb violates a check. A platform has dropped unlogged tables, or the
        // database was restored in parts.
        "23514" => ErrorKind::Unavailable,
        "TK014" => ErrorKind::Fenced,
        "28000" | "28P01" | "42501" => ErrorKind::Denied,
        "3F000" | "42P01" | "42883" => ErrorKind::Incompatible,
        // The server ended the session or the statement before it answered.
        "57014" => broken,
        _ => match sqlstate.get(..2).unwrap_or_default() {
            "53" | "40" => ErrorKind::Unavailable,
            "08" => broken,
            "57" if sqlstate.starts_with("57P") => broken,
            _ => ErrorKind::Invalid,
        },
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.0.kind.prefix(), self.0.text)?;
        if f.alternate() {
            causes(self).try_for_each(|cause| write!(f, ": {cause}"))?;
            if let Some(hint) = self.hint() {
                write!(f, " ({hint})")?;
            }
        }
        Ok(())
    }
}

/// The text for a person: the line, the hint, the causes.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")?;
        if let Some(hint) = self.hint() {
            write!(f, "\n  hint: {hint}")?;
        }
        causes(self).try_for_each(|cause| write!(f, "\n  cause: {cause}"))
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}

fn causes(error: &Error) -> impl Iterator<Item = &(dyn std::error::Error + 'static)> {
    std::iter::successors(std::error::Error::source(error), |cause| cause.source())
}

impl From<deadpool_postgres::PoolError> for Error {
    fn from(error: deadpool_postgres::PoolError) -> Self {
        match error {
            deadpool_postgres::PoolError::Backend(error) => Self::from_read(error),
            other => Self::unavailable(other),
        }
    }
}

/// True for the refusal that asks for `rebuild_queues` (after a restart, a crash, a promotion or a restore).
pub(crate) fn queues_not_rebuilt(error: &tokio_postgres::Error) -> bool {
    error.code() == Some(&SqlState::from_code(Code::QueuesNotRebuilt.as_str()))
}

#[cfg(test)]
mod tests;
