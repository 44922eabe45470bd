//! A worker under one registration: its controller, connections, executors and watchdog.
//!
//! Promises: a registration ends in order, or it is lost. When it is lost, its connections, executors and
//! bodies end. The watchdog reports the loss only after the last body has stopped.

use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc};
use tokio::task::{AbortHandle, JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::client::Client;
use crate::db::connect::Session;
use crate::error::Error;
use crate::worker::Worker;
use crate::worker::connections::Connections;
use crate::worker::control_connection::ControlConnection;
use crate::worker::controller::{Controller, WatchRequest};
use crate::worker::database::Database;
use crate::worker::enlist::Enlisted;
use crate::worker::exchange_connection::ExchangeConnection;
use crate::worker::executor::{Executor, within_grace};
use crate::worker::heartbeat::Heartbeat;
use crate::worker::opener::Opener;
use crate::worker::pulse::Pulse;
use crate::worker::threads::Threads;
use crate::worker::watch_connection::WatchConnection;
use crate::worker::watchdog::{Ending, Limits, Watchdog, end_process};
use crate::worker::work::{StopReason, Work};

/// How it ended.
pub(crate) enum Ended {
    /// After a drain.
    InOrder(Result<(), Error>),
    /// Nothing of it runs any more.
    Lost,
}

/// See the module.
pub(crate) struct RegisteredWorker {
    controller: Arc<Controller>,
    db: Arc<Database>,
    watchdog: Arc<Watchdog>,
    /// The handles of the threads of each lambda.
    handles: Vec<Handle>,
    executors: Arc<Executors>,
}

/// The tasks that the stopper aborts.
#[derive(Default)]
struct Executors {
    handles: Mutex<Vec<AbortHandle>>,
    /// Each that has not ended holds a clone.
    alive: Arc<()>,
}

/// The parts of a registration; each is given to a task of its own.
struct Parts {
    heartbeat: Session,
    exchange: Session,
    requests: mpsc::UnboundedReceiver<WatchRequest>,
}

/// Works under a registration until the worker drains, or the registration is over.
///
/// # Errors
/// [`Unavailable`](crate::ErrorKind::Unavailable): there were no threads to be had.
pub(crate) async fn work(
    worker: &Worker,
    enlisted: Enlisted,
    client: &Client,
) -> Result<Ended, Error> {
    let (registered, parts) =
        RegisteredWorker::new(worker, enlisted).map_err(Error::unavailable)?;
    let watchdog = Arc::clone(&registered.watchdog);
    let controller = Arc::clone(&registered.controller);
    // The loser of the two is dropped, and with it all that it has begun.
    let ended = tokio::select! {
        biased;
        () = watchdog.lost() => Ended::Lost,
        ended = registered.run(worker, parts, client) => Ended::InOrder(ended),
    };
    controller.tell_rest();
    Ok(ended)
}

impl RegisteredWorker {
    fn new(worker: &Worker, enlisted: Enlisted) -> std::io::Result<(Self, Parts)> {
        let config = &worker.config;
        let threads = Threads::start(&worker.lambdas, config.slots, config.threads)?;
        let handles = threads.handles();
        let Enlisted { executor, sent_ns, pooled, heartbeat, control, exchange, .. } = enlisted;
        let (wake, requests) = mpsc::unbounded_channel();
        let lambdas = worker.lambdas.clone();
        let statistics = Arc::clone(&worker.statistics);
        let controller =
            Controller::new(config.clone(), lambdas, &enlisted.served, wake, pooled, statistics);
        controller.learn_max_attempts(&enlisted.max_attempts);
        let controller = Arc::new(controller);
        *worker.controller.lock().unwrap_or_else(PoisonError::into_inner) =
            Arc::downgrade(&controller);
        let executors = Arc::new(Executors::default());
        let ending = ending(Arc::clone(&controller), Arc::clone(&executors), threads);
        let limits = Limits { silence: config.self_termination, stop: config.stop_time() };
        let watchdog = Arc::new(Watchdog::start(limits, sent_ns, ending, worker.on_lost.clone())?);
        let pulse = Pulse::new(executor, config.heartbeat_timeout, Arc::clone(&watchdog));
        let opener = Opener {
            address: worker.database.clone(),
            limit: config.request_timeout,
            pooled,
            pulse: Arc::new(pulse),
            connections: Arc::new(Connections::default()),
            outage_log: Arc::default(),
        };
        let control = ControlConnection {
            opener: opener.clone(),
            executor,
            runtime: Handle::current(),
            session: tokio::sync::Mutex::new(Some(control)),
        };
        let db = Arc::new(Database { opener, executor, control });
        let parts = Parts { heartbeat, exchange, requests };
        Ok((Self { controller, db, watchdog, handles, executors }, parts))
    }

    async fn run(self, worker: &Worker, parts: Parts, client: &Client) -> Result<(), Error> {
        let Parts { heartbeat, exchange, requests } = parts;
        let (beat_now, draining) = (Arc::new(Notify::new()), worker.shutdown.child_token());
        let mut background = JoinSet::new();
        let beats = Heartbeat {
            controller: Arc::clone(&self.controller),
            db: Arc::clone(&self.db),
            beat_now: Arc::clone(&beat_now),
            draining: draining.clone(),
        };
        background.spawn(beats.run(heartbeat));
        let (controller, db) = (Arc::clone(&self.controller), Arc::clone(&self.db));
        background.spawn(WatchConnection { controller, db, requests, beat_now }.run());
        let mut exchanges = self.start_exchanges(worker, exchange, &draining);
        let mut executors = self.start_executors(worker, client);
        // No part of it ends before the drain, unless it panics.
        let lost = tokio::select! {
            () = draining.cancelled() => None,
            Some(ended) = exchanges.join_next() => {
                self.controller.lose_connection();
                Some(end_of("an exchange connection", ended))
            }
            Some(ended) = background.join_next() => Some(end_of("the heartbeat or the watch connection", ended)),
            ended = first_to_fail(&mut executors) => Some(end_of("an executor", ended)),
        };
        if let Some(what) = &lost {
            tracing::error!(what, "the worker drains");
        }
        draining.cancel();
        self.drain(worker, executors, exchanges).await;
        background.abort_all();
        lost.map_or(Ok(()), |what| Err(Error::unavailable(what)))
    }

    fn start_exchanges(
        &self,
        worker: &Worker,
        first: Session,
        draining: &CancellationToken,
    ) -> JoinSet<()> {
        let mut exchanges = JoinSet::new();
        let mut session = Some(first);
        for _ in 0..worker.config.exchange_connections {
            let connection = ExchangeConnection {
                controller: Arc::clone(&self.controller),
                db: Arc::clone(&self.db),
                draining: draining.clone(),
            };
            exchanges.spawn(connection.run(session.take()));
        }
        exchanges
    }

    fn start_executors(&self, worker: &Worker, client: &Client) -> JoinSet<()> {
        let mut executors = JoinSet::new();
        let mut handles = self.executors.handles.lock().unwrap_or_else(PoisonError::into_inner);
        for lambda in 0..worker.lambdas.len() {
            for _ in 0..self.controller.slots(lambda) {
                let executor = Executor {
                    controller: Arc::clone(&self.controller),
                    db: Arc::clone(&self.db),
                    watchdog: Arc::clone(&self.watchdog),
                    client: client.clone(),
                    data: Arc::clone(&worker.data),
                    lambda,
                };
                let alive = Arc::clone(&self.executors.alive);
                let run = async move {
                    let _alive = alive;
                    executor.run().await;
                };
                handles.push(executors.spawn_on(run, &self.handles[lambda]));
            }
        }
        executors
    }

    /// Stops claiming at once, gives back what has not started, waits for the rest, and ends in order.
    async fn drain(&self, worker: &Worker, executors: JoinSet<()>, mut exchanges: JoinSet<()>) {
        let back = self.controller.drain();
        self.give_back(back).await;
        let grace = worker.config.drain_grace;
        if tokio::time::timeout(grace, self.controller.until_quiet()).await.is_err() {
            tracing::warn!(?grace, "running tasks did not finish; telling them to stop");
            self.controller.give_up_deferred();
            self.controller.stop_all(StopReason::ShuttingDown);
            let more = worker.config.cancel_grace + Duration::from_secs(1);
            let _ = within_grace(more, &mut pin!(self.controller.until_quiet())).await;
        }
        self.give_back(self.controller.take_abandoned()).await;
        // A body that does not yield cannot be dropped, and must not run beside its successor.
        if let Some(task) = self.controller.running() {
            end_process(&format!("task {task} ignored the end of its worker and its grace"));
        }
        let flush = async { while exchanges.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(worker.config.request_timeout, flush).await;
        let leases = self.controller.take_leases_to_drop();
        if !leases.is_empty() {
            self.db.control.release(&[], &leases).await;
        }
        self.watchdog.disarm();
        while let Some(report) = self.controller.report() {
            if !self.db.control.report(&report).await {
                break;
            }
        }
        self.db.control.end().await;
        drop(executors);
        tracing::info!("worker ended in order");
    }

    /// A task that cannot be given back is rescued when the executor has ended.
    async fn give_back(&self, back: Vec<Work>) {
        self.db.give_back(&self.controller, back).await;
    }
}

/// The stopper's steps at the end of the registration: bodies are told, then dropped, then the threads
/// end on which they, or what they began there, might run on.
fn ending(controller: Arc<Controller>, executors: Arc<Executors>, threads: Threads) -> Ending {
    let (alive, ours) = (threads.alive(), Arc::clone(&executors.alive));
    let stop = move || {
        controller.stop_all(StopReason::LeaseLost);
        for executor in executors.handles.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            executor.abort();
        }
        drop(executors);
        threads.end();
    };
    // Two of the clones are no executor's. Counted before the tasks: an executor may end in between.
    let left_behind = move || {
        let executors = Arc::strong_count(&ours).saturating_sub(2);
        alive.tasks() > executors || alive.blocking_threads() > 0
    };
    Ending { stop: Box::new(stop), left_behind: Box::new(left_behind) }
}

/// Waits for an executor that ends by itself. The stopper aborts all of them where the registration is over: that is
/// no fault, and the watchdog says why.
async fn first_to_fail(executors: &mut JoinSet<()>) -> Result<(), JoinError> {
    loop {
        match executors.join_next().await {
            Some(Err(error)) if error.is_cancelled() => {}
            Some(ended) => return ended,
            None => std::future::pending().await,
        }
    }
}

/// Without the text of a panic, which may be that of a body.
fn end_of(part: &str, ended: Result<(), JoinError>) -> String {
    let why = match ended {
        Ok(()) => "it returned",
        Err(error) if error.is_panic() => "it panicked",
        Err(_) => "it was cancelled",
    };
    format!("{part} of the worker ended before the rest: {why}")
}
