//! A pool of sqlx on a test's database.

use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};

use super::Db;

/// Four connections at most.
pub async fn sqlx_pool(db: &Db) -> PgPool {
    let options = PgConnectOptions::new()
        .socket(Db::socket(&db.config).parent().unwrap())
        .port(db.config.get_ports()[0])
        .username(db.config.get_user().unwrap())
        .database(db.config.get_dbname().unwrap());
    PgPoolOptions::new().max_connections(4).connect_with(options).await.unwrap()
}
