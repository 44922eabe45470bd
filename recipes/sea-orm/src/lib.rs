//! Tuskline's calls within a transaction of SeaORM. Copy this file into your application.
//!
//! Promises: each call commits or rolls back with the writes of the transaction. Must never: open or end a
//! transaction of its own.

use sea_orm::{
    ConnectionTrait, DbBackend, DbErr, RuntimeErr, SqlxError, SqlxPostgresError, Statement,
};
use tuskline_sdk::{Adapter, AdapterError, AdapterValue};

/// A `DatabaseTransaction` of SeaORM, for `Client::within` and `Context::complete_in`. Its own `begin` makes a
/// savepoint. With a `DatabaseConnection` each call commits by itself.
pub struct SeaOrm<'c, C>(pub &'c C);

impl<C: ConnectionTrait> Adapter for SeaOrm<'_, C> {
    async fn query(
        &mut self,
        sql: &str,
        values: Vec<Option<AdapterValue>>,
    ) -> Result<Vec<Vec<u8>>, AdapterError> {
        let values = values.into_iter().map(|value| value.map(String::from).into());
        let statement = Statement::from_sql_and_values(DbBackend::Postgres, sql, values);
        let rows = self.0.query_all_raw(statement).await.map_err(error)?;
        rows.iter().map(|row| row.try_get("", "answer").map_err(AdapterError::broken)).collect()
    }
}

/// The error of PostgreSQL is in an error of sqlx, which is in an error of SeaORM.
fn error(error: DbErr) -> AdapterError {
    let (DbErr::Query(RuntimeErr::SqlxError(of_sqlx))
    | DbErr::Exec(RuntimeErr::SqlxError(of_sqlx))) = &error
    else {
        return AdapterError::broken(error);
    };
    let SqlxError::Database(said) = &**of_sqlx else { return AdapterError::broken(error) };
    let hint = said.try_downcast_ref::<SqlxPostgresError>().and_then(SqlxPostgresError::hint);
    AdapterError::refused(said.code().as_deref(), said.message(), hint)
}
