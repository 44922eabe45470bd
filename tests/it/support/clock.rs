//! The pinned clock. Test databases, and only they, have a `tuskline.clock()` that reads a pin.

use std::time::Duration;

use chrono::{DateTime, Utc};
use tokio_postgres::{Config, NoTls};
use tuskline_breaks::{HARM, NOT_DONE};

use super::{Db, refusal};

const INSTALL: &str = "
    create schema tuskline_test;
    create table tuskline_test.pin (at timestamptz);
    insert into tuskline_test.pin values (null);
    grant usage on schema tuskline_test to public;
    grant select on tuskline_test.pin to public;
    create or replace function tuskline.clock() returns timestamptz language sql volatile as
      'select coalesce((select at from tuskline_test.pin), clock_timestamp())'";

/// Gives a database a clock with a pin, and does it the harm that a break wants.
pub async fn install(config: &Config) {
    let (client, connection) = config.connect(NoTls).await.unwrap();
    let driver = tokio::spawn(connection);
    client.batch_execute(INSTALL).await.unwrap();
    if let Ok(harm) = std::env::var(HARM)
        && let Err(error) = client.batch_execute(&harm).await
    {
        panic!("{}: {}", NOT_DONE, refusal(&error));
    }
    drop(client);
    // The session must have ended before a test clones the database.
    driver.await.unwrap().unwrap();
}

impl Db {
    /// Stops the clock at the present moment.
    pub async fn pin(&self) {
        self.run("update tuskline_test.pin set at = clock_timestamp()").await;
    }

    /// Moves a pinned clock forward.
    pub async fn advance(&self, by: Duration) {
        let rows = self
            .client
            .execute(
                "update tuskline_test.pin set at = at + $1::float8 * interval '1 second' where at is not null",
                &[&by.as_secs_f64()],
            )
            .await
            .unwrap();
        assert_eq!(rows, 1, "pin the clock before it is advanced");
    }

    /// Turns a pinned clock back.
    pub async fn turn_back(&self, by: Duration) {
        let sql = "update tuskline_test.pin set at = at - $1::float8 * interval '1 second'";
        assert_eq!(self.client.execute(sql, &[&by.as_secs_f64()]).await.unwrap(), 1);
    }

    /// The database's time, as Tuskline reads it.
    pub async fn now(&self) -> DateTime<Utc> {
        self.one("select tuskline.clock()").await
    }
}
