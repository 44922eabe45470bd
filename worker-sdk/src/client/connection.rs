//! A client's connections: pooled. Each hears the server's warnings, so the call that made an uncertain
//! commit notices it.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use deadpool::managed::{self, Metrics, RecycleError, RecycleResult};
use deadpool_postgres::{ClientWrapper, Runtime};
use tokio::runtime::Handle;
use tokio_postgres::AsyncMessage;
use tokio_postgres::error::SqlState;

use crate::db::Parameters;
use crate::db::address::Address;
use crate::db::connect::{drive, on};
use crate::db::multi_host::connect_in_turn;
use crate::db::uncertain_commit::UncertainCommits;
use crate::error::Error;

/// Longest wait for one of them: for a free one, or for the server when one is opened.
const CONNECTION_WAIT: Duration = Duration::from_secs(10);

/// A connection of a [`Client`](crate::Client), for a transaction of your own. It goes back to the
/// pool when it is dropped.
#[derive(Debug)]
pub struct Connection {
    held: Held,
    /// Uncertain commits that were reported.
    reported: AtomicU64,
    /// False: statements of its pool have no names.
    named: Arc<AtomicBool>,
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
    /// [`Unknown`](crate::ErrorKind::Unknown): a commit since this was last asked, or since the connection
    /// was taken from the pool, is uncertain. It was made, and may be lost.
    pub fn confirm(&self) -> Result<(), Error> {
        let uncertain = self.uncertain_commits();
        match self.reported.swap(uncertain, Ordering::Relaxed) == uncertain {
            true => Ok(()),
            false => Err(Error::unknown(
                "committed, but the wait for a synchronous standby was cancelled: a failover may lose it",
            )),
        }
    }

    /// Sends a statement by a name under which the session keeps its plan. A transaction pooler may send it to
    /// another session, which does not know the name: from then on this pool sends statements without one.
    pub(crate) async fn query_prepared(
        &self,
        sql: &str,
        parameters: &Parameters<'_>,
    ) -> Result<Vec<tokio_postgres::Row>, tokio_postgres::Error> {
        let client = &**self;
        if self.named.load(Ordering::Relaxed) {
            let (values, kinds): (Vec<_>, Vec<_>) = parameters.iter().cloned().unzip();
            let call = async {
                let statement = client.prepare_typed_cached(sql, &kinds).await?;
                client.query(&statement, &values).await
            };
            match call.await {
                // A migration has changed a function since the plan was made. Nothing was executed.
                Err(error) if error.code() == Some(&SqlState::FEATURE_NOT_SUPPORTED) => {
                    client.statement_cache.clear();
                }
                Err(error) if is_pooled(&error) => {
                    tracing::debug!(
                        "a transaction pooler stands between: statements have no names"
                    );
                    self.named.store(false, Ordering::Relaxed);
                    client.statement_cache.clear();
                }
                answer => return answer,
            }
        }
        client.query_typed(sql, parameters).await
    }

    /// Closes it instead of giving it back.
    #[doc(hidden)]
    pub fn discard(self) {
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

    fn of(held: Held, named: Arc<AtomicBool>) -> Self {
        let connection = Self { held, reported: AtomicU64::new(0), named };
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
pub(crate) struct Pool {
    of: PoolOf,
    /// See [`Connection::query_prepared`].
    named: Arc<AtomicBool>,
}

#[derive(Debug, Clone)]
enum PoolOf {
    Own(managed::Pool<Source>),
    Given(deadpool_postgres::Pool),
}

impl From<PoolOf> for Pool {
    fn from(of: PoolOf) -> Self {
        Self { of, named: Arc::new(AtomicBool::new(true)) }
    }
}

/// True: the session has no statement of this name, or has one of another process.
fn is_pooled(error: &tokio_postgres::Error) -> bool {
    let signs = [SqlState::INVALID_SQL_STATEMENT_NAME, SqlState::DUPLICATE_PSTATEMENT];
    error.code().is_some_and(|code| signs.contains(code))
}

impl Pool {
    pub(crate) fn given(pool: deadpool_postgres::Pool) -> Self {
        PoolOf::Given(pool).into()
    }

    pub(crate) fn own(
        address: Address,
        connections: usize,
        runtime: Option<Handle>,
    ) -> Result<Self, Error> {
        managed::Pool::builder(Source { address, runtime })
            .max_size(connections)
            .runtime(Runtime::Tokio1)
            .timeouts(managed::Timeouts {
                wait: Some(CONNECTION_WAIT),
                create: Some(CONNECTION_WAIT),
                recycle: Some(CONNECTION_WAIT),
            })
            .build()
            .map(|pool| PoolOf::Own(pool).into())
            .map_err(Error::unavailable)
    }

    pub(crate) async fn get(&self) -> Result<Connection, Error> {
        let held = match &self.of {
            PoolOf::Own(pool) => Held::Own(pool.get().await.map_err(unpooled)?),
            PoolOf::Given(pool) => Held::Given(pool.get().await?),
        };
        Ok(Connection::of(held, Arc::clone(&self.named)))
    }
}

fn unpooled(error: managed::PoolError<Error>) -> Error {
    match error {
        managed::PoolError::Backend(error) => error,
        other => Error::unavailable(other),
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
                .unwrap_or_else(|| Err(Error::unavailable("the worker has ended"))),
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
    let driver = tokio::spawn(drive(connection, move |message| {
        if let AsyncMessage::Notice(notice) = message {
            heard.hear(&notice);
        }
    }));
    Ok(Watched { client: ClientWrapper::new(client, driver), uncertain })
}
