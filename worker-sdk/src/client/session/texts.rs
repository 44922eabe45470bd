//! A statement whose parameters are texts, and whose answer is one column of bytes.
//!
//! Promises: the server reads the same values, and the answer is the same row. Must never: change what a
//! statement does. A parameter becomes a text that the server casts; a row becomes the bytes of its record.

use std::error::Error;
use std::fmt::Write;

use bytes::BytesMut;
use chrono::{DateTime, Datelike, Utc};
use tokio_postgres::types::{FromSql, IsNull, Kind, Type};

use crate::client::session::{Row, RowOf};
use crate::db::Parameters;

type BoxError = Box<dyn Error + Send + Sync>;

/// The statement with a cast at each parameter. Our statements contain `$` before the number of a parameter only.
pub(super) fn statement(sql: &str, parameters: &Parameters<'_>) -> String {
    let mut pieces = sql.split('$');
    let mut cast = format!("with answer as ({}", pieces.next().unwrap_or_default());
    for piece in pieces {
        let digits = piece.bytes().take_while(u8::is_ascii_digit).count();
        let (number, rest) = piece.split_at(digits);
        let place = number.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
        let kind =
            place.and_then(|place| parameters.get(place)).map_or("text", |(_, kind)| kind.name());
        let _ = write!(cast, "${number}::text::{kind}{rest}");
    }
    cast + ") select pg_catalog.record_send(answer) as answer from answer"
}

/// The parameters as texts. None: null.
///
/// # Errors
/// A value has no form of its type.
pub(super) fn values(parameters: &Parameters<'_>) -> Result<Vec<Option<String>>, BoxError> {
    let text = |(value, kind): &(&(dyn tokio_postgres::types::ToSql + Sync), Type)| {
        let mut raw = BytesMut::new();
        match value.to_sql_checked(kind, &mut raw)? {
            IsNull::Yes => Ok(None),
            IsNull::No => text_of(kind, &raw).map(Some),
        }
    };
    parameters.iter().map(text).collect()
}

/// The text of a value, as the server reads it under any setting.
fn text_of(kind: &Type, raw: &[u8]) -> Result<String, BoxError> {
    Ok(match (kind, kind.kind()) {
        (&Type::TEXT | &Type::JSON, _) => std::str::from_utf8(raw)?.to_owned(),
        (&Type::BOOL, _) => bool::from_sql(kind, raw)?.to_string(),
        (&Type::INT4, _) => i32::from_sql(kind, raw)?.to_string(),
        (&Type::INT8, _) => i64::from_sql(kind, raw)?.to_string(),
        (&Type::FLOAT8, _) => f64::from_sql(kind, raw)?.to_string(),
        (&Type::TIMESTAMPTZ, _) => timestamp(DateTime::from_sql(kind, raw)?),
        (_, Kind::Array(of)) => array(of, Vec::from_sql(kind, raw)?)?,
        _ => return Err(format!("no text of {kind}").into()),
    })
}

/// A year of over four digits has no sign, and one before the year 1 an era.
pub(in crate::client) fn timestamp(at: DateTime<Utc>) -> String {
    let (common_era, year) = at.year_ce();
    let era = if common_era { "" } else { " BC" };
    format!("{year:04}-{}{era}", at.format("%m-%d %H:%M:%S%.6f+00"))
}

fn array(of: &Type, elements: Vec<Option<Raw<'_>>>) -> Result<String, BoxError> {
    let mut text = String::from("{");
    for (place, element) in elements.into_iter().enumerate() {
        text += if place == 0 { "" } else { "," };
        let Some(Raw(raw)) = element else {
            text += "NULL";
            continue;
        };
        text.push('"');
        for character in text_of(of, raw)?.chars() {
            if matches!(character, '"' | '\\') {
                text.push('\\');
            }
            text.push(character);
        }
        text.push('"');
    }
    Ok(text + "}")
}

/// A value of any type, as bytes.
struct Raw<'a>(&'a [u8]);

impl<'a> FromSql<'a> for Raw<'a> {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, BoxError> {
        Ok(Self(raw))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

/// The row of a record as `record_send` gives it: the number of columns, and of each the type, the length (-1:
/// null) and the bytes. None: these bytes are no record.
pub(super) fn row(mut record: &[u8]) -> Option<Row> {
    let columns = take(&mut record)?;
    let mut row = Vec::new();
    for _ in 0..columns {
        let kind = Type::from_oid(take(&mut record)?.cast_unsigned()).unwrap_or(Type::UNKNOWN);
        let value = match usize::try_from(take(&mut record)?) {
            Ok(length) => Some(record.split_off(..length)?.to_vec()),
            Err(_) => None,
        };
        row.push((kind, value));
    }
    record.is_empty().then_some(Row(RowOf::Raw(row)))
}

fn take(record: &mut &[u8]) -> Option<i32> {
    let (number, rest) = record.split_first_chunk()?;
    *record = rest;
    Some(i32::from_be_bytes(*number))
}

#[cfg(test)]
mod tests;
