//! A worker process: one controller, executors for its lambdas, heartbeats and a watchdog.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc};
use tokio::task::{JoinError, JoinSet};
use tokio_postgres::Config;
use tokio_util::sync::CancellationToken;

use crate::config::WorkerConfig;
use crate::connect::connect;
use crate::controller::Controller;
use crate::database::Database;
use crate::executor::{Executor, within_grace};
use crate::heartbeat::Heartbeat;
use crate::side::Side;
use crate::threads::Threads;
use crate::wake::{ECHO_GRACE, WakeLine, is_pooled};
use crate::watchdog::{OnLost, Watchdog, clock_ns, end_process};
use crate::work::{Why, Work};
use crate::{Client, Error, Lambda, hsc, lane, shutdown, version};

/// A worker: claims the tasks of its lambdas and executes them until it is told to stop.
///
/// See the [crate page](crate) for a whole one.
pub struct Worker {
    database: Config,
    config: WorkerConfig,
    lambdas: Vec<Lambda>,
    define: bool,
    signals: bool,
    shutdown: CancellationToken,
    on_lost: Option<OnLost>,
}

impl Worker {
    /// A worker on the database at `url`, with default knobs and no lambdas yet.
    ///
    /// # Errors
    /// [`Error::Invalid`]: the url.
    pub fn new(url: &str) -> Result<Self, Error> {
        let database = url
            .parse()
            .map_err(|error| Error::invalid("TK013", format!("invalid_url: {error}")))?;
        Ok(Self::with_database(database))
    }

    /// The same from a parsed configuration.
    pub fn with_database(database: Config) -> Self {
        Self {
            database,
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
    /// When heartbeats fail for `self_termination`, or a body goes on although it was told to stop and
    /// `cancel_grace` is over, the process ends instead.
    ///
    /// # Errors
    /// [`Error::Invalid`]: the knobs, no or unknown lambdas; [`Error::Incompatible`];
    /// [`Error::Denied`]; [`Error::Unavailable`] when the database cannot be reached at the start, or
    /// when a part of it has panicked, after a drain. Once it runs it rides out any outage shorter than
    /// `self_termination`. Dropping the future is
    /// no way to stop: bodies that block would run on, so the watchdog then ends the process.
    pub async fn run(mut self) -> Result<(), Error> {
        self.config = self.config.bounded();
        self.config.check()?;
        // Everything that may fail comes before the watchdog, which would end a process that gave up.
        let client = Client::driven(self.database.clone(), Some(Handle::current())).await?;
        if self.signals {
            shutdown::on_signal(self.shutdown.clone())
                .map_err(|error| Error::Unavailable(error.to_string()))?;
        }
        let threads = Threads::start(&self.lambdas, self.config.slots, self.config.threads)
            .map_err(|error| Error::Unavailable(error.to_string()))?;
        let (db, served, sent_ns) = self.enlist().await?;
        let (wake, requests) = mpsc::unbounded_channel();
        let lambdas = self.lambdas.clone();
        let controller =
            Arc::new(Controller::new(self.config.clone(), lambdas, &served, wake, db.pooled));
        let watchdog = Watchdog::start(self.config.self_termination, sent_ns, self.on_lost.clone())
            .map_err(|error| Error::Unavailable(error.to_string()))?;
        let team = Team { controller, db, watchdog: Arc::new(watchdog), threads };
        team.work(&self, client, requests).await
    }

    /// Checks the schema, finds the queues and registers this incarnation.
    async fn enlist(&self) -> Result<(Arc<Database>, Vec<hsc::Served>, u64), Error> {
        let names: Vec<String> = self.lambdas.iter().map(|lambda| lambda.name.clone()).collect();
        let limit = self.config.request_timeout;
        let client = in_time(limit, connect(&self.database, limit)).await?;
        version::check(hsc::version(&client).await.map_err(Error::from_read)?)?;
        if self.define {
            for name in &names {
                hsc::define_lambda(&client, name).await.map_err(Error::from_write)?;
            }
        }
        // A pooler is known by what is not heard, which takes that long by itself.
        let pooled = in_time(limit + ECHO_GRACE, is_pooled(&self.database)).await?;
        if pooled {
            tracing::warn!("a transaction pooler stands between: polling instead of listening");
        }
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let sent_ns = clock_ns();
        let executor = hsc::register_executor(&client, &host, &names, self.config.lease)
            .await
            .map_err(Error::from_write)?;
        let served = hsc::executor_lambdas(&client, &names).await.map_err(Error::from_read)?;
        tracing::info!(executor, lambdas = ?names, "worker registered");
        let side = Side {
            config: self.database.clone(),
            executor,
            limit,
            pooled,
            runtime: Handle::current(),
            client: tokio::sync::Mutex::new(Some(client)),
        };
        let config = self.database.clone();
        let db = Database { config, executor, request_timeout: limit, pooled, side };
        Ok((Arc::new(db), served, sent_ns))
    }
}

impl std::fmt::Debug for Worker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker").field("lambdas", &self.lambdas).finish_non_exhaustive()
    }
}

/// What is asked of the server before the worker runs; it may have accepted and say nothing.
async fn in_time<T>(
    limit: Duration,
    asked: impl Future<Output = Result<T, tokio_postgres::Error>>,
) -> Result<T, Error> {
    match tokio::time::timeout(limit, asked).await {
        Ok(answered) => answered.map_err(Error::from_read),
        Err(_) => Err(Error::Unavailable(format!("no answer within {limit:?}"))),
    }
}

fn told(part: &str, ended: Result<(), JoinError>) -> String {
    let why = ended.map_or_else(|error| error.to_string(), |()| "it returned".into());
    format!("{part} of the worker ended before the rest: {why}")
}

/// The parts of a running worker.
struct Team {
    controller: Arc<Controller>,
    db: Arc<Database>,
    watchdog: Arc<Watchdog>,
    threads: Threads,
}

impl Team {
    async fn work(
        self,
        worker: &Worker,
        client: Client,
        requests: mpsc::UnboundedReceiver<crate::controller::WakeRequest>,
    ) -> Result<(), Error> {
        let (hurry, draining) = (Arc::new(Notify::new()), worker.shutdown.child_token());
        let mut background = JoinSet::new();
        background.spawn(
            Heartbeat {
                controller: Arc::clone(&self.controller),
                db: Arc::clone(&self.db),
                watchdog: Arc::clone(&self.watchdog),
                hurry: Arc::clone(&hurry),
                draining: draining.clone(),
            }
            .run(),
        );
        let (controller, db) = (Arc::clone(&self.controller), Arc::clone(&self.db));
        background.spawn(WakeLine { controller, db, requests, hurry }.run());
        let mut lanes = JoinSet::new();
        for _ in 0..worker.config.lanes {
            let watchdog = Arc::clone(&self.watchdog);
            lanes.spawn(lane::run(Arc::clone(&self.controller), Arc::clone(&self.db), watchdog));
        }
        let mut executors = self.start_executors(worker, &client);
        // No part of it ends before the drain, unless it panics.
        let lost = tokio::select! {
            () = draining.cancelled() => None,
            Some(ended) = lanes.join_next() => {
                self.controller.lose_lane();
                Some(told("a lane", ended))
            }
            Some(ended) = background.join_next() => Some(told("the heartbeat or the wake line", ended)),
            Some(ended) = executors.join_next() => Some(told("an executor", ended)),
        };
        if let Some(what) = &lost {
            tracing::error!(what, "the worker drains");
        }
        draining.cancel();
        self.drain(worker, executors, lanes).await;
        background.abort_all();
        lost.map_or(Ok(()), |what| Err(Error::Unavailable(what)))
    }

    fn start_executors(&self, worker: &Worker, client: &Client) -> JoinSet<()> {
        let mut executors = JoinSet::new();
        for lambda in 0..worker.lambdas.len() {
            for _ in 0..self.controller.slots(lambda) {
                let executor = Executor {
                    controller: Arc::clone(&self.controller),
                    db: Arc::clone(&self.db),
                    watchdog: Arc::clone(&self.watchdog),
                    client: client.clone(),
                    lambda,
                };
                executors.spawn_on(executor.run(), self.threads.of(lambda));
            }
        }
        executors
    }

    /// Stops claiming at once, gives back what has not started, waits for the rest, and ends in order.
    async fn drain(&self, worker: &Worker, executors: JoinSet<()>, mut lanes: JoinSet<()>) {
        let back = self.controller.drain();
        self.give_back(back).await;
        let grace = worker.config.drain_grace;
        if tokio::time::timeout(grace, self.controller.until_quiet()).await.is_err() {
            tracing::warn!(?grace, "running tasks did not finish; telling them to stop");
            self.controller.give_up_held();
            self.controller.stop_all(Why::ShuttingDown);
            let more = worker.config.cancel_grace + Duration::from_secs(1);
            let _ = within_grace(more, &mut pin!(self.controller.until_quiet())).await;
        }
        self.give_back(self.controller.take_abandoned()).await;
        // A body that does not yield cannot be dropped, and must not run beside its successor.
        if let Some(task) = self.controller.running() {
            end_process(&format!("task {task} ignored the end of its worker and its grace"));
        }
        let flush = async { while lanes.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(worker.config.request_timeout, flush).await;
        let leases = self.controller.take_settled_leases();
        if !leases.is_empty() {
            self.db.side.release(&[], &leases).await;
        }
        self.watchdog.disarm();
        self.db.side.end().await;
        drop(executors);
        tracing::info!("worker ended in order");
    }

    /// What cannot be given back is rescued when the executor has ended.
    async fn give_back(&self, back: Vec<Work>) {
        self.db.give_back(&self.controller, back).await;
    }
}
