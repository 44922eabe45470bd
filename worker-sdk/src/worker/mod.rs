//! The worker: it claims tasks, executes their lambdas and reports the results.
//!
//! A [`Worker`] registers (`enlist`) and then works under that registration (`registered`). The
//! controller decides, and knows neither a connection nor SQL. Each connection has a module of its own:
//! heartbeat, control, exchange, watch.

pub(crate) mod arguments;
mod bodies;
mod body;
pub(crate) mod builder;
pub(crate) mod config;
mod connections;
pub(crate) mod context;
mod control_connection;
mod controller;
pub(crate) mod data;
mod database;
mod enlist;
mod exchange_connection;
mod executor;
mod executors;
pub(crate) mod failure_log;
mod heartbeat;
pub(crate) mod host;
pub(crate) mod lambda;
pub(crate) mod layer;
#[cfg(feature = "metrics")]
mod metrics;
mod opener;
mod outage_log;
pub(crate) mod outcome;
mod perform;
mod pooler;
#[cfg(feature = "executor")]
mod process;
mod progress;
mod pulse;
mod registered;
mod shutdown;
pub(crate) mod statistics;
mod threads;
pub(crate) mod trace_layer;
mod transition_log;
mod watch_connection;
mod watchdog;
pub(crate) mod work;

use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::client::Client;
use crate::db::address::{Address, IntoAddress};
use crate::error::Error;
use crate::worker::builder::{Signal, WorkerBuilder};
use crate::worker::config::WorkerConfig;
use crate::worker::controller::Controller;
use crate::worker::data::DataMap;
use crate::worker::enlist::enlist;
use crate::worker::host::Host;
use crate::worker::lambda::Lambda;
use crate::worker::registered::Ended;
use crate::worker::statistics::Statistics;
use crate::worker::watchdog::OnLost;

/// A worker that is ready to run: claims the tasks of its lambdas and executes them until it is told to stop.
///
/// See the [crate page](crate) for a whole one.
pub struct Worker {
    pub(crate) database: Address,
    /// The role to act as; none: that of the login.
    pub(crate) role: Option<Arc<str>>,
    pub(crate) config: WorkerConfig,
    pub(crate) lambdas: Vec<Lambda>,
    pub(crate) data: Arc<DataMap>,
    pub(crate) define: bool,
    /// None: SIGTERM and SIGINT. In a lock, because the parts of the worker share it, and a future need not
    /// be `Sync`.
    until: Mutex<Option<Signal>>,
    pub(crate) shutdown: CancellationToken,
    pub(crate) on_lost: Option<OnLost>,
    pub(crate) host: Option<Arc<Host>>,
    pub(crate) statistics: Arc<Statistics>,
    /// The controller of the present registration, for the metrics.
    controller: Arc<Mutex<Weak<Controller>>>,
    /// Why the last try to register failed, or registered for less, for the probe.
    refusal: Arc<Mutex<Option<String>>>,
    #[cfg(feature = "metrics")]
    pub(crate) metrics: Option<std::net::SocketAddr>,
}

impl Worker {
    /// A worker on a database, with default knobs and no lambdas yet. The address is a URL, `key=value`
    /// pairs, an [`Address`], or a configuration of tokio-postgres.
    pub fn builder(address: impl IntoAddress) -> WorkerBuilder {
        WorkerBuilder::new(address)
    }

    /// Works until SIGTERM, SIGINT or the signal of [`WorkerBuilder::until`]; then stops claiming, gives back
    /// what has not started, lets running tasks finish within `drain_grace`, reports and returns.
    ///
    /// When heartbeats fail for `self_termination`, its bodies are stopped: async ones are dropped. It then
    /// waits until the database is back, for as long as that takes, registers again and goes on. Where a
    /// body has not stopped in time, or goes on although it was told to stop and `cancel_grace` is over,
    /// the process ends instead.
    ///
    /// With the feature `executor`, in a process that `tuskline controller` has started (`TUSKLINE_SOCKET` is set), it
    /// joins that controller instead, and runs what it is handed. Registration, heartbeats and metrics are the
    /// controller's then.
    ///
    /// It serves the lambdas on which its role has the right `work`, and logs those that it leaves out. When a
    /// right is revoked it stops its bodies and registers again for what is left. With nothing left it waits.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid): the knobs, no lambda, two of one name, an unknown one;
    /// [`Incompatible`](crate::ErrorKind::Incompatible); [`Denied`](crate::ErrorKind::Denied), also if the role has
    /// no right on any lambda at the start;
    /// [`Unavailable`](crate::ErrorKind::Unavailable) when the database cannot be reached at the start, and
    /// after a drain when a part of it has panicked or a lambda gets no threads. A server that has no
    /// connection left is waited for.
    /// Dropping the future is no way to stop: bodies that block would run on, so the watchdog then ends the
    /// process.
    pub async fn run(mut self) -> Result<(), Error> {
        let builder = Client::builder(&self.database);
        let builder = match &self.role {
            Some(role) => builder.role(Arc::clone(role)),
            None => builder,
        };
        let client = builder.lazy(Some(Handle::current()))?;
        // Dropped with this future, it ends the waiting for the signal.
        let mut signals = JoinSet::new();
        match self.until.get_mut().unwrap_or_else(PoisonError::into_inner).take() {
            Some(signal) => {
                let shutdown = self.shutdown.clone();
                signals.spawn(async move {
                    signal.await;
                    shutdown.cancel();
                });
            }
            None => shutdown::on_signal(self.shutdown.clone()).map_err(Error::unavailable)?,
        }
        #[cfg(feature = "executor")]
        if let Some(socket) = process::socket() {
            return process::run(&self, &client, socket).await;
        }
        #[cfg(feature = "metrics")]
        if let Some(address) = self.metrics {
            let listener = tokio::net::TcpListener::bind(address).await.map_err(|error| {
                Error::unavailable(format!("cannot listen on {address} for metrics: {error}"))
            })?;
            let figures = metrics::Metrics {
                statistics: Arc::clone(&self.statistics),
                controller: Arc::clone(&self.controller),
                refusal: Arc::clone(&self.refusal),
            };
            signals.spawn(metrics::serve(listener, figures));
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

impl std::fmt::Debug for Worker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker").field("lambdas", &self.lambdas).finish_non_exhaustive()
    }
}
