//! Rows of a view or a function, as JSON.

use anyhow::Result;
use serde_json::Value;
use tokio_postgres::Client;
use tokio_postgres::types::{ToSql, Type};

/// Rows of a query whose only column is JSON text.
pub async fn rows(
    client: &Client,
    query: &str,
    parameters: &[(&(dyn ToSql + Sync), Type)],
) -> Result<Vec<Value>> {
    let rows = client.query_typed(query, parameters).await?;
    rows.iter().map(|row| Ok(serde_json::from_str(row.get(0))?)).collect()
}
