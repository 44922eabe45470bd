//! The way of a library that the SDK does not know.
//!
//! Promises: a library that binds texts and reads a column of bytes can send each verb, also a verb of a later
//! version. Must never: show a type of a library; ask an adapter for more than these two types.

use std::fmt;

use bytes::BytesMut;
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};

use crate::client::session::sealed::Session;
use crate::client::session::{Answering, texts};
use crate::db::Parameters;
use crate::error::{Code, Error, ErrorKind};

/// Takes a transaction of a library that this crate does not know. Implement it for a type of your own that
/// holds the library's transaction or connection: then [`Client::within`](crate::Client::within) and
/// [`Context::complete_in`](crate::Context::complete_in) take `&mut` of your type.
///
/// Adapters to copy, for diesel-async and SeaORM, stand in `recipes/` of the repository.
///
/// # Example
/// As if tokio-postgres were such a library:
/// ```
/// use tuskline_sdk::tokio_postgres::{Error, Transaction, types::ToSql};
/// use tuskline_sdk::{Adapter, AdapterError, AdapterValue, Client, NewTask};
///
/// struct Within<'c, 't>(&'c mut Transaction<'t>);
///
/// impl Adapter for Within<'_, '_> {
///     async fn query(
///         &mut self,
///         sql: &str,
///         values: Vec<Option<AdapterValue>>,
///     ) -> Result<Vec<Vec<u8>>, AdapterError> {
///         let values: Vec<_> = values.iter().map(|value| value as &(dyn ToSql + Sync)).collect();
///         let rows = self.0.query(sql, &values).await.map_err(error)?;
///         Ok(rows.iter().map(|row| row.get("answer")).collect())
///     }
/// }
///
/// fn error(error: Error) -> AdapterError {
///     match error.as_db_error() {
///         Some(refusal) => AdapterError::refused(Some(refusal.code().code()), refusal.message(), refusal.hint()),
///         None => AdapterError::broken(error),
///     }
/// }
///
/// async fn order(transaction: &mut Transaction<'_>) -> Result<(), tuskline_sdk::Error> {
///     Client::within(&mut Within(transaction)).schedule(NewTask::new("ship", &7)).await?;
///     Ok(())
/// }
/// ```
#[diagnostic::on_unimplemented(message = "`{Self}` is not an adapter of a transaction")]
pub trait Adapter: Send {
    /// Sends one statement and returns all rows of its answer.
    ///
    /// `values` are the parameters `$1`, `$2`, ... in their order. Bind each as PostgreSQL's type `text`, and
    /// `None` as a null. Log none of them. The answer has one column, `answer`, of type `bytea` and never null. Return its bytes as
    /// they are, one element for each row. Send the statement once: it can change data.
    ///
    /// # Errors
    /// [`AdapterError::refused`] for an error that the server reports, [`AdapterError::broken`] for any other.
    fn query(
        &mut self,
        sql: &str,
        values: Vec<Option<AdapterValue>>,
    ) -> impl Future<Output = Result<Vec<Vec<u8>>, AdapterError>> + Send;
}

/// A parameter of an [`Adapter`], as text. It may be a payload, so its `Debug` shows its size only: a library that
/// logs its parameters logs no more. `ToSql` of tokio-postgres is implemented. For another library, convert it into
/// a `String`.
#[derive(Clone, PartialEq, Eq)]
pub struct AdapterValue(String);

impl AdapterValue {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<AdapterValue> for String {
    fn from(value: AdapterValue) -> Self {
        value.0
    }
}

impl fmt::Debug for AdapterValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "text of {} bytes", self.0.len())
    }
}

impl ToSql for AdapterValue {
    fn to_sql(&self, kind: &Type, out: &mut BytesMut) -> Result<IsNull, BoxError> {
        self.0.to_sql(kind, out)
    }

    fn accepts(kind: &Type) -> bool {
        <String as ToSql>::accepts(kind)
    }

    to_sql_checked!();
}

/// The error of an [`Adapter`]. It becomes an [`Error`] that answers as for a library that the SDK knows.
#[derive(Debug)]
pub struct AdapterError(Cause);

type BoxError = Box<dyn std::error::Error + Send + Sync>;

#[derive(Debug)]
enum Cause {
    Refused { sqlstate: Option<String>, message: String, hint: Option<String> },
    Broken(BoxError),
}

impl AdapterError {
    /// An error that the server reports: the five characters of its SQLSTATE, its message and its hint.
    ///
    /// Pass `None` for the SQLSTATE only if the library hides it. Then the SDK reads Tuskline's own code from the
    /// start of the message, and any other error is [`ErrorKind::Invalid`].
    pub fn refused(sqlstate: Option<&str>, message: &str, hint: Option<&str>) -> Self {
        let sqlstate = sqlstate.or_else(|| {
            let (code, _) = message.split_once(' ')?;
            Code::of(code).map(|_| code)
        });
        Self(Cause::Refused {
            sqlstate: sqlstate.map(str::to_owned),
            message: message.to_owned(),
            hint: hint.map(str::to_owned),
        })
    }

    /// Any other error: the connection is broken, say. If the statement changes data, the outcome is unknown
    /// ([`ErrorKind::Unknown`]); otherwise it is [`ErrorKind::Unavailable`].
    pub fn broken(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self(Cause::Broken(source.into()))
    }

    fn into_error(self, broken: ErrorKind) -> Error {
        match self.0 {
            Cause::Refused { sqlstate: Some(sqlstate), message, hint } => {
                Error::of_server(&sqlstate, &message, hint.as_deref(), broken)
            }
            Cause::Refused { sqlstate: None, message, hint } => {
                Error::new(ErrorKind::Invalid, message).hinting(hint.as_deref())
            }
            Cause::Broken(source) => Error::new(broken, source.to_string()).because(source),
        }
    }
}

#[diagnostic::do_not_recommend]
impl<T: Adapter> Session for T {
    fn query<'a>(
        &'a mut self,
        sql: &'a str,
        parameters: &'a Parameters<'a>,
        broken: ErrorKind,
    ) -> Answering<'a> {
        Box::pin(async move {
            let values = texts::values(parameters)
                .map_err(|error| Error::new(ErrorKind::Invalid, format!("a parameter: {error}")))?;
            let values = values.into_iter().map(|value| value.map(AdapterValue)).collect();
            let statement = texts::statement(sql, parameters);
            let answer = Adapter::query(self, &statement, values).await;
            let rows = answer.map_err(|error| error.into_error(broken))?;
            let row = |bytes: &Vec<u8>| {
                texts::row(bytes).ok_or_else(|| Error::new(broken, "the adapter changed an answer"))
            };
            rows.iter().map(row).collect()
        })
    }
}

#[cfg(test)]
mod tests;
