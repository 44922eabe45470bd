//! A client's connections: pooled, and each of them listened to, so that a commit in doubt is noticed
//! by the call that made it.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use deadpool::managed::{self, Metrics, RecycleError, RecycleResult};
use deadpool_postgres::{ClientWrapper, Runtime};
use tokio::runtime::Handle;
use tokio_postgres::{AsyncMessage, Config};

use crate::Error;
use crate::connect::{drive, on};
use crate::doubt::Doubts;
use crate::hosts::connect_in_turn;

/// Most connections of a client of its own.
const CONNECTIONS: usize = 8;
/// Longest wait for one of them: for a free one, or for the server when one is opened.
const CONNECTION_WAIT: Duration = Duration::from_secs(10);

/// A connection of a [`Client`](crate::Client), for a transaction of your own. It goes back to the
/// pool when it is dropped.
#[derive(Debug)]
pub struct Connection {
    held: Held,
    /// Commits in doubt that were told of.
    told: AtomicU64,
}

#[derive(Debug)]
enum Held {
    Own(managed::Object<Source>),
    Given(deadpool_postgres::Object),
}

impl Connection {
    /// Whether what was committed here is as safe as it looks. With synchronous replication a commit
    /// whose wait for the standby was cancelled returns success, and a failover may lose it. Ask after
    /// your commit: `transaction.commit().await?; connection.confirm()?`.
    ///
    /// A connection of a pool given to [`Client::on`](crate::Client::on) hears no warnings, and neither
    /// does one whose role or address sets `client_min_messages` to `error`: there it always confirms.
    ///
    /// # Errors
    /// [`Error::Unknown`]: a commit since this was last asked, or since the connection was taken from
    /// the pool, is in doubt. It was made, and may be lost.
    pub fn confirm(&self) -> Result<(), Error> {
        let doubts = self.doubts();
        match self.told.swap(doubts, Ordering::Relaxed) == doubts {
            true => Ok(()),
            false => Err(Error::Unknown(
                "committed, but the wait for a synchronous standby was cancelled: a failover may lose it"
                    .into(),
            )),
        }
    }

    /// Closes it instead of giving it back.
    pub(crate) fn discard(self) {
        match self.held {
            Held::Own(connection) => drop(managed::Object::take(connection)),
            Held::Given(connection) => drop(deadpool_postgres::Object::take(connection)),
        }
    }

    fn doubts(&self) -> u64 {
        match &self.held {
            Held::Own(connection) => connection.doubts.count(),
            Held::Given(_) => 0,
        }
    }

    fn of(held: Held) -> Self {
        let connection = Self { held, told: AtomicU64::new(0) };
        connection.told.store(connection.doubts(), Ordering::Relaxed);
        connection
    }
}

impl Deref for Connection {
    type Target = ClientWrapper;

    fn deref(&self) -> &ClientWrapper {
        match &self.held {
            Held::Own(connection) => &connection.client,
            Held::Given(connection) => connection,
        }
    }
}

impl DerefMut for Connection {
    fn deref_mut(&mut self) -> &mut ClientWrapper {
        match &mut self.held {
            Held::Own(connection) => &mut connection.client,
            Held::Given(connection) => connection,
        }
    }
}

/// Where a client takes its connections from.
#[derive(Debug, Clone)]
pub(crate) enum Pool {
    Own(managed::Pool<Source>),
    Given(deadpool_postgres::Pool),
}

impl Pool {
    pub(crate) fn own(config: Config, runtime: Option<Handle>) -> Result<Self, Error> {
        managed::Pool::builder(Source { config, runtime })
            .max_size(CONNECTIONS)
            .runtime(Runtime::Tokio1)
            .timeouts(managed::Timeouts {
                wait: Some(CONNECTION_WAIT),
                create: Some(CONNECTION_WAIT),
                recycle: Some(CONNECTION_WAIT),
            })
            .build()
            .map(Self::Own)
            .map_err(|error| Error::Unavailable(error.to_string()))
    }

    pub(crate) async fn get(&self) -> Result<Connection, Error> {
        Ok(Connection::of(match self {
            Self::Own(pool) => Held::Own(pool.get().await.map_err(unpooled)?),
            Self::Given(pool) => Held::Given(pool.get().await?),
        }))
    }
}

fn unpooled(error: managed::PoolError<Error>) -> Error {
    match error {
        managed::PoolError::Backend(error) => error,
        other => Error::Unavailable(other.to_string()),
    }
}

/// Opens the connections of a pool of ours.
#[derive(Debug)]
pub(crate) struct Source {
    config: Config,
    /// Drives them; none: the runtime of whoever opens one.
    runtime: Option<Handle>,
}

/// A connection and what its driver has heard.
#[derive(Debug)]
pub(crate) struct Watched {
    client: ClientWrapper,
    doubts: Doubts,
}

impl managed::Manager for Source {
    type Type = Watched;
    type Error = Error;

    async fn create(&self) -> Result<Watched, Error> {
        let opening = open(self.config.clone());
        match &self.runtime {
            None => opening.await,
            Some(runtime) => on(runtime, opening)
                .await
                .unwrap_or_else(|| Err(Error::Unavailable("the worker has ended".into()))),
        }
    }

    async fn recycle(&self, watched: &mut Watched, _: &Metrics) -> RecycleResult<Error> {
        match watched.client.is_closed() {
            true => Err(RecycleError::message("connection closed")),
            false => Ok(()),
        }
    }
}

async fn open(config: Config) -> Result<Watched, Error> {
    let opening = connect_in_turn(&config, |hosts| CONNECTION_WAIT / hosts).await;
    let (client, connection) = opening.map_err(Error::from_read)?;
    let doubts = Doubts::default();
    let heard = doubts.clone();
    let driver = tokio::spawn(drive(connection, move |said| {
        if let AsyncMessage::Notice(notice) = said {
            heard.hear(&notice);
        }
    }));
    Ok(Watched { client: ClientWrapper::new(client, driver), doubts })
}
