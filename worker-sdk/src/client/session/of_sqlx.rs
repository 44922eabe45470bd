//! The adapter of sqlx: statements and values go through it as bytes.

use bytes::BytesMut;
use sqlx::encode::IsNull;
use sqlx::error::BoxDynError;
use sqlx::postgres::types::Oid;
use sqlx::postgres::{PgArgumentBuffer, PgConnection, PgRow, PgTypeInfo, PgValueFormat};
use sqlx::{AssertSqlSafe, Encode, Postgres, Row as _, TypeInfo as _, ValueRef as _};
use tokio_postgres::types::{IsNull as Null, Kind, Type};

use crate::client::session::{Row, RowOf, adapters};
use crate::db::Parameters;
use crate::error::{Error, ErrorKind};

adapters! {
    |session: PgConnection, sql, parameters, broken| send(session, sql, parameters, broken).await;
    |session: sqlx::Transaction<'_, Postgres>, sql, parameters, broken|
        send(session, sql, parameters, broken).await;
}

async fn send(
    connection: &mut PgConnection,
    sql: &str,
    parameters: &Parameters<'_>,
    broken: ErrorKind,
) -> Result<Vec<Row>, Error> {
    let mut query = sqlx::query(AssertSqlSafe(sql));
    for (value, kind) in parameters {
        let mut bytes = BytesMut::new();
        let null = value.to_sql_checked(kind, &mut bytes).map_err(|error| {
            Error::new(ErrorKind::Invalid, format!("a parameter has no {kind} form: {error}"))
        })?;
        let bytes = match null {
            Null::No => Some(bytes.to_vec()),
            Null::Yes => None,
        };
        query = query.bind(Raw { kind: PgTypeInfo::with_oid(Oid(kind.oid())), bytes });
    }
    let rows = query.fetch_all(connection).await.map_err(|error| of_sqlx(error, broken))?;
    rows.iter().map(read).collect()
}

/// A value in PostgreSQL's binary form.
struct Raw {
    kind: PgTypeInfo,
    bytes: Option<Vec<u8>>,
}

impl sqlx::Type<Postgres> for Raw {
    fn type_info() -> PgTypeInfo {
        PgTypeInfo::with_name("unknown")
    }
}

impl Encode<'_, Postgres> for Raw {
    fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        Ok(match &self.bytes {
            Some(bytes) => {
                buffer.extend_from_slice(bytes);
                IsNull::No
            }
            None => IsNull::Yes,
        })
    }

    fn produces(&self) -> Option<PgTypeInfo> {
        Some(self.kind.clone())
    }
}

fn read(row: &PgRow) -> Result<Row, Error> {
    let column = |at: usize| {
        let value = row.try_get_raw(at).map_err(|error| of_sqlx(error, ErrorKind::Unknown))?;
        let kind = value.type_info();
        let oid = kind.oid().map_or(0, |oid| oid.0);
        let kind = Type::from_oid(oid)
            .unwrap_or_else(|| Type::new(kind.name().to_owned(), oid, Kind::Simple, String::new()));
        debug_assert!(value.format() == PgValueFormat::Binary);
        let bytes = if value.is_null() { None } else { value.as_bytes().ok().map(<[u8]>::to_vec) };
        Ok((kind, bytes))
    };
    Ok(Row(RowOf::Raw((0..row.len()).map(column).collect::<Result<_, Error>>()?)))
}

/// An error of sqlx by what the caller can do.
fn of_sqlx(error: sqlx::Error, broken: ErrorKind) -> Error {
    let Some(refusal) = error.as_database_error() else {
        let text = error.to_string();
        return Error::new(broken, text).because(error);
    };
    let hint = refusal
        .try_downcast_ref::<sqlx::postgres::PgDatabaseError>()
        .and_then(|refusal| refusal.hint());
    Error::of_server(refusal.code().as_deref().unwrap_or_default(), refusal.message(), hint, broken)
}
