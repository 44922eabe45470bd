//! A client's connections: pooled. Each hears the server's warnings, so the call that made an uncertain
//! commit notices it.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use deadpool::managed::{self, Metrics, RecycleError, RecycleResult};
use deadpool_postgres::{ClientWrapper, Runtime};
use tokio::runtime::Handle;
use tokio_postgres::AsyncMessage;

use crate::db::address::Address;
use crate::db::connect::{drive, on};
use crate::db::multi_host::connect_in_turn;
use crate::db::uncertain_commit::UncertainCommits;
use crate::error::Error;

/// Most connections of a client of its own.
const CONNECTIONS: usize = 8;
/// Longest wait for one of them: for a free one, or for the server when one is opened.
const CONNECTION_WAIT: Duration = Duration::from_secs(10);

/// A connection of a [`Client`](crate::Client), for a transaction of your own. It goes back to the
/// pool when it is dropped.
#[derive(Debug)]
pub struct Connection {
    held: Held,
    /// Uncertain commits that were reported.
    reported: AtomicU64,
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
    /// the pool, is uncertain. It was made, and may be lost.
    pub fn confirm(&self) -> Result<(), Error> {
        let uncertain = self.uncertain_commits();
        match self.reported.swap(uncertain, Ordering::Relaxed) == uncertain {
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

    fn uncertain_commits(&self) -> u64 {
        match &self.held {
            Held::Own(connection) => connection.uncertain.count(),
            Held::Given(_) => 0,
        }
    }

    fn of(held: Held) -> Self {
        let connection = Self { held, reported: AtomicU64::new(0) };
        connection.reported.store(connection.uncertain_commits(), Ordering::Relaxed);
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

/// The source of a client's connections.
#[derive(Debug, Clone)]
pub(crate) enum Pool {
    Own(managed::Pool<Source>),
    Given(deadpool_postgres::Pool),
}

impl Pool {
    pub(crate) fn own(address: Address, runtime: Option<Handle>) -> Result<Self, Error> {
        managed::Pool::builder(Source { address, runtime })
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
    address: Address,
    /// Drives them; none: the runtime of each caller.
    runtime: Option<Handle>,
}

/// A connection and what its driver has heard.
#[derive(Debug)]
pub(crate) struct Watched {
    client: ClientWrapper,
    uncertain: UncertainCommits,
}

impl managed::Manager for Source {
    type Type = Watched;
    type Error = Error;

    async fn create(&self) -> Result<Watched, Error> {
        let opening = open(self.address.clone());
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

async fn open(address: Address) -> Result<Watched, Error> {
    let opening = connect_in_turn(&address, |hosts| CONNECTION_WAIT / hosts).await;
    let (client, connection) = opening.map_err(Error::from_read)?;
    let uncertain = UncertainCommits::default();
    let heard = uncertain.clone();
    let driver = tokio::spawn(drive(connection, move |said| {
        if let AsyncMessage::Notice(notice) = said {
            heard.hear(&notice);
        }
    }));
    Ok(Watched { client: ClientWrapper::new(client, driver), uncertain })
}
