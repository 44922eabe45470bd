//! The worker: it claims tasks, executes their lambdas and reports the results.
//!
//! A [`Worker`] registers (`enlist`) and then works under that registration (`registered`). The
//! controller decides, and knows neither a connection nor SQL. Each connection has a module of its own:
//! heartbeat, control, exchange, watch.

mod bodies;
pub(crate) mod config;
mod connections;
pub(crate) mod context;
mod control_connection;
mod controller;
mod database;
mod enlist;
mod exchange_connection;
mod executor;
mod heartbeat;
pub(crate) mod lambda;
mod opener;
pub(crate) mod outcome;
mod perform;
mod pooler;
mod progress;
mod pulse;
mod registered;
mod shutdown;
mod threads;
mod watch_connection;
mod watchdog;
mod work;

use std::sync::Arc;

use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use crate::client::Client;
use crate::db::address::Address;
use crate::error::Error;
use crate::worker::config::WorkerConfig;
use crate::worker::enlist::enlist;
use crate::worker::lambda::Lambda;
use crate::worker::registered::Ended;
use crate::worker::watchdog::OnLost;

/// A worker: claims the tasks of its lambdas and executes them until it is told to stop.
///
/// See the [crate page](crate) for a whole one.
pub struct Worker {
    pub(crate) database: Address,
    pub(crate) config: WorkerConfig,
    pub(crate) lambdas: Vec<Lambda>,
    pub(crate) define: bool,
    signals: bool,
    pub(crate) shutdown: CancellationToken,
    pub(crate) on_lost: Option<OnLost>,
}

impl Worker {
    /// A worker on the database at `url`, with default knobs and no lambdas yet.
    ///
    /// # Errors
    /// [`Error::Invalid`]: the url.
    pub fn new(url: &str) -> Result<Self, Error> {
        let address: Address = url
            .parse()
            .map_err(|error| Error::invalid("TK013", format!("invalid_url: {error}")))?;
        Ok(Self::with_address(address))
    }

    /// The same from a parsed address, or a configuration of tokio-postgres.
    pub fn with_address(address: impl Into<Address>) -> Self {
        Self {
            database: address.into(),
            config: WorkerConfig::default(),
            lambdas: Vec::new(),
            define: false,
            signals: true,
            shutdown: CancellationToken::new(),
            on_lost: None,
        }
    }

    /// Serves a lambda.
    #[must_use]
    pub fn lambda(mut self, lambda: Lambda) -> Self {
        self.lambdas.push(lambda);
        self
    }

    /// Sets the knobs.
    #[must_use]
    pub fn config(mut self, config: WorkerConfig) -> Self {
        self.config = config;
        self
    }

    /// Defines lambdas that are unknown, with default settings, instead of refusing to start.
    #[must_use]
    pub fn define_missing(mut self) -> Self {
        self.define = true;
        self
    }

    /// Drains when `token` is cancelled, and leaves SIGTERM and SIGINT to the caller.
    #[must_use]
    pub fn until(mut self, token: CancellationToken) -> Self {
        self.shutdown = token;
        self.signals = false;
        self
    }

    /// For tests that live in the worker's process: called instead of ending it.
    #[doc(hidden)]
    #[must_use]
    pub fn on_lost(mut self, act: impl Fn(&str) + Send + Sync + 'static) -> Self {
        self.on_lost = Some(Arc::new(act));
        self
    }

    /// Works until SIGTERM, SIGINT or the token of [`Worker::until`]; then stops claiming, gives back
    /// what has not started, lets running tasks finish within `drain_grace`, reports and returns.
    ///
    /// When heartbeats fail for `self_termination`, its bodies are stopped: async ones are dropped. It then
    /// waits until the database is back, for as long as that takes, registers again and goes on. Where a
    /// body has not stopped in time, or goes on although it was told to stop and `cancel_grace` is over,
    /// the process ends instead.
    ///
    /// # Errors
    /// [`Error::Invalid`]: the knobs, no lambda, two of one name, an unknown one; [`Error::Incompatible`];
    /// [`Error::Denied`]; [`Error::Unavailable`] when the database cannot be reached at the start, or
    /// when a part of it has panicked, after a drain. A server that has no connection left is waited for.
    /// Dropping the future is no way to stop: bodies that block would run on, so the watchdog then ends
    /// the process.
    pub async fn run(mut self) -> Result<(), Error> {
        self.config = self.config.bounded();
        self.config.check()?;
        check_names(&self.lambdas)?;
        let client = Client::lazy(self.database.clone(), Some(Handle::current()))?;
        if self.signals {
            shutdown::on_signal(self.shutdown.clone())
                .map_err(|error| Error::Unavailable(error.to_string()))?;
        }
        let mut former = None;
        while let Some(enlisted) = enlist(&self, former).await? {
            former = Some(enlisted.executor);
            match registered::work(&self, enlisted, &client).await? {
                Ended::InOrder(result) => return result,
                // The watchdog has said why.
                Ended::Lost => {}
            }
        }
        tracing::info!("told to end while it was not registered");
        Ok(())
    }
}

/// A worker without a lambda would do nothing; of two with one name one would never be called.
fn check_names(lambdas: &[Lambda]) -> Result<(), Error> {
    if lambdas.is_empty() {
        let text = "invalid_setting: a worker must have a lambda, got none: call Worker::lambda";
        return Err(Error::invalid("TK009", text));
    }
    let mut names = std::collections::HashSet::new();
    match lambdas.iter().find(|lambda| !names.insert(&lambda.name)) {
        None => Ok(()),
        Some(twice) => Err(Error::invalid(
            "TK009",
            format!(
                "invalid_setting: lambdas of a worker must differ in name, got '{}' twice",
                twice.name
            ),
        )),
    }
}

impl std::fmt::Debug for Worker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker").field("lambdas", &self.lambdas).finish_non_exhaustive()
    }
}
