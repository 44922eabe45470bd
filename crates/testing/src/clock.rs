//! The pinned clock. A database of the kit, and no other, has a `tuskline.clock()` that reads a pin.

use std::time::Duration;

use chrono::{DateTime, Utc};
use tokio_postgres::types::ToSql;
use tuskline_sdk::{Address, connect_in_turn};

use super::{Database, Error};

const INSTALL: &str = "
    create schema tuskline_test;
    comment on schema tuskline_test is 'The pin of the clock of a database for tests.';
    create table tuskline_test.pin (at timestamptz);
    comment on table tuskline_test.pin is 'One row: where the clock stands; null: it runs.';
    insert into tuskline_test.pin values (null);
    grant usage on schema tuskline_test to public;
    grant select on tuskline_test.pin to public;
    create or replace function tuskline.clock() returns timestamptz language sql volatile as
      'select coalesce((select at from tuskline_test.pin), clock_timestamp())'";

/// Longest wait for a host of the address.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// Loops that sleep until something is due check again.
const PIN: &str = "
    with pinned as (update tuskline_test.pin set at = $1 returning at)
    select at, pg_notify('tuskline_timer', ''), pg_notify('tuskline_periodic', '') from pinned";

const ADVANCE: &str = "
    with pinned as (update tuskline_test.pin set at = tuskline.clock() + make_interval(secs => $1) returning at)
    select at, pg_notify('tuskline_timer', ''), pg_notify('tuskline_periodic', '') from pinned";

const REACH: &str = "
    with pinned as (update tuskline_test.pin set at = greatest(at, $1) where at is not null returning at)
    select at, pg_notify('tuskline_timer', '') from pinned";

/// Gives a database that was just migrated a clock with a pin.
pub(super) async fn install(address: &Address) -> Result<(), Error> {
    let (client, connection) = connect_in_turn(address, |_| CONNECT_LIMIT).await?;
    let driver = tokio::spawn(connection);
    let installed = client.batch_execute(INSTALL).await;
    drop(client);
    // To the end of the session: the database is about to be cloned.
    let _ = driver.await;
    Ok(installed?)
}

impl Database {
    /// Stops the clock where it is, and says where that is. One that stands already stays where it stands.
    ///
    /// # Errors
    /// [`Error::Database`], [`Error::Clock`].
    pub async fn pin(&self) -> Result<DateTime<Utc>, Error> {
        self.advance(Duration::ZERO).await
    }

    /// Stops the clock at an instant, past or future; to the microsecond.
    ///
    /// # Errors
    /// [`Error::Database`], [`Error::Clock`].
    pub async fn pin_at(&self, at: DateTime<Utc>) -> Result<(), Error> {
        self.turn(PIN, &at).await.map(drop)
    }

    /// Turns the clock forward and stops it there; says where that is. Tasks that come due by that are executed by the
    /// next [`Database::drain`], or at once while there is an [`Inline`](super::Inline).
    ///
    /// # Errors
    /// [`Error::Database`], [`Error::Clock`].
    pub async fn advance(&self, by: Duration) -> Result<DateTime<Utc>, Error> {
        self.turn(ADVANCE, &by.as_secs_f64()).await
    }

    /// Lets the clock run again, with the server's.
    ///
    /// # Errors
    /// [`Error::Database`].
    pub async fn unpin(&self) -> Result<(), Error> {
        Ok(self.own().execute(PIN, &[&None::<DateTime<Utc>>]).await.map(drop)?)
    }

    /// The time that decides what is due.
    ///
    /// # Errors
    /// [`Error::Database`].
    pub async fn now(&self) -> Result<DateTime<Utc>, Error> {
        Ok(self.own().query_one("select tuskline.clock()", &[]).await?.get(0))
    }

    /// Moves a pinned clock on to an instant, if it has not come so far.
    pub(super) async fn reach(&self, at: DateTime<Utc>) -> Result<(), Error> {
        Ok(self.own().execute(REACH, &[&at]).await.map(drop)?)
    }

    async fn turn(
        &self,
        sql: &str,
        parameter: &(dyn ToSql + Sync),
    ) -> Result<DateTime<Utc>, Error> {
        let pinned: DateTime<Utc> = self.own().query_one(sql, &[parameter]).await?.get(0);
        match self.now().await? == pinned {
            true => Ok(pinned),
            false => Err(Error::Clock),
        }
    }
}
