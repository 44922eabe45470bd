//! Rows of a query, as values. A column has the name of its field.

use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio_postgres::types::{FromSqlOwned, Json, ToSql, Type};
use tokio_postgres::{Client, Error};

/// Parameters of a statement with their types.
pub type Parameters<'a> = [(&'a (dyn ToSql + Sync), Type)];

/// Reads the rows of a query.
///
/// # Errors
/// The connection's or the server's.
pub async fn rows<T: DeserializeOwned>(
    client: &Client,
    query: &str,
    parameters: &Parameters<'_>,
) -> Result<Vec<T>, Error> {
    values(client, &format!("select row_to_json(r) from ({query}) r"), parameters).await
}

/// Reads the only row of a query.
///
/// # Errors
/// The connection's or the server's.
pub async fn row<T: DeserializeOwned>(
    client: &Client,
    query: &str,
    parameters: &Parameters<'_>,
) -> Result<T, Error> {
    let Json(row) =
        value(client, &format!("select row_to_json(r) from ({query}) r"), parameters).await?;
    Ok(row)
}

/// Reads the rows of a view that `rest` selects. An interval `x` is `x_ms`, in milliseconds; so is each of
/// `spans`, a name and an expression.
///
/// # Errors
/// The connection's or the server's.
pub async fn view(
    client: &Client,
    view: &str,
    spans: &[(&str, &str)],
    rest: &str,
    parameters: &Parameters<'_>,
) -> Result<Vec<Value>, Error> {
    let ms = |span: &str| format!("(1000 * extract(epoch from {span}))::bigint");
    let spans: String =
        spans.iter().map(|(name, span)| format!(", '{name}', {}", ms(span))).collect();
    let query = format!(
        "select to_json(to_jsonb(v) - i.names || jsonb_build_object({}) || coalesce((
             select jsonb_object_agg(n.name || '_ms', {}) from unnest(i.names) as n (name)), '{{}}'))
           from tuskline.{view} v cross join (
             select array(select a.attname::text from pg_attribute a
                           where a.attrelid = 'tuskline.{view}'::regclass and a.attnum > 0
                             and a.atttypid = 'interval'::regtype) as names) i {rest}",
        spans.trim_start_matches(", "),
        ms("(to_jsonb(v) ->> n.name)::interval"),
    );
    values(client, &query, parameters).await
}

async fn values<T: DeserializeOwned>(
    client: &Client,
    query: &str,
    parameters: &Parameters<'_>,
) -> Result<Vec<T>, Error> {
    let values: Vec<Json<T>> = column(client, query, parameters).await?;
    Ok(values.into_iter().map(|value| value.0).collect())
}

/// Reads the only column of a query.
///
/// # Errors
/// The connection's or the server's.
pub async fn column<T: FromSqlOwned>(
    client: &Client,
    query: &str,
    parameters: &Parameters<'_>,
) -> Result<Vec<T>, Error> {
    client.query_typed(query, parameters).await?.iter().map(|row| row.try_get(0)).collect()
}

/// Reads the only value of a query.
///
/// # Errors
/// The connection's or the server's.
pub async fn value<T: FromSqlOwned>(
    client: &Client,
    query: &str,
    parameters: &Parameters<'_>,
) -> Result<T, Error> {
    client.query_typed_one(query, parameters).await?.try_get(0)
}
