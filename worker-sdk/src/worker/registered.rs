//! A worker under one registration: its controller, connections, executors and watchdog.
//!
//! Promises: a registration ends in order, or it is lost. When it is lost, its connections, executors and
//! bodies end. The watchdog reports the loss only after the last body has stopped.

use std::pin::pin;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::{Mutex, Notify, mpsc};
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::client::Client;
use crate::db::connect::Session;
use crate::error::Error;
use crate::worker::Worker;
use crate::worker::body::within_grace;
use crate::worker::connections::Connections;
use crate::worker::control_connection::ControlConnection;
use crate::worker::controller::{Controller, WatchRequest};
use crate::worker::database::Database;
use crate::worker::enlist::Enlisted;
use crate::worker::exchange_connection::ExchangeConnection;
use crate::worker::executor::Executor;
use crate::worker::executors::Executors;
use crate::worker::heartbeat::Heartbeat;
use crate::worker::host::Host;
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
    threads: Arc<Threads>,
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
/// [`Unavailable`](crate::ErrorKind::Unavailable): there are no threads to be had.
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
    if let Some(host) = &worker.host {
        host.alive_until(None);
    }
    Ok(ended)
}

impl RegisteredWorker {
    fn new(worker: &Worker, enlisted: Enlisted) -> std::io::Result<(Self, Parts)> {
        let config = &worker.config;
        let threads = Arc::new(Threads::new(&worker.lambdas, config.slots, config.threads));
        let Enlisted {
            address,
            role,
            executor,
            sent_ns,
            functions,
            pooled,
            heartbeat,
            control,
            exchange,
            ..
        } = enlisted;
        let (wake, requests) = mpsc::unbounded_channel();
        let lambdas = worker.lambdas.clone();
        let statistics = Arc::clone(&worker.statistics);
        let controller =
            Controller::new(config.clone(), lambdas, &enlisted.served, wake, pooled, statistics);
        controller.learn_max_attempts(&enlisted.max_attempts);
        let controller = Arc::new(controller);
        *worker.controller.lock().unwrap_or_else(PoisonError::into_inner) =
            Arc::downgrade(&controller);
        let ending = ending(Arc::clone(&controller), &threads);
        let limits = Limits { silence: config.self_termination, stop: config.stop_time() };
        let watchdog = Arc::new(Watchdog::start(limits, sent_ns, ending, worker.on_lost.clone())?);
        let mut pulse = Pulse::new(executor, config.heartbeat_timeout, Arc::clone(&watchdog));
        if let Some(host) = &worker.host {
            let grants = limits.silence + limits.stop;
            pulse.tell(Arc::clone(host), grants);
            pulse.counts_from(sent_ns);
        }
        let opener = Opener {
            address,
            role,
            limit: config.request_timeout,
            pooled,
            functions,
            pulse: Arc::new(pulse),
            connections: Arc::new(Connections::default()),
            outage_log: Arc::default(),
        };
        let control = ControlConnection {
            opener: opener.clone(),
            executor,
            runtime: Handle::current(),
            session: tokio::sync::Mutex::new(Some(Arc::new(control))),
        };
        let db = Arc::new(Database { opener, executor, control });
        let parts = Parts { heartbeat, exchange, requests };
        Ok((Self { controller, db, watchdog, threads }, parts))
    }

    async fn run(self, worker: &Worker, parts: Parts, client: &Client) -> Result<(), Error> {
        let Parts { heartbeat, exchange, requests } = parts;
        let _stop = self.threads.stop_on_drop();
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
        let threads = Arc::clone(&self.threads);
        background.spawn(async move { threads.end_quiet().await });
        let (failures, mut failed) = mpsc::unbounded_channel();
        let executors = self.executors(worker, client, failures);
        if let Some(host) = worker.host.clone() {
            background.spawn(resize(host, Arc::clone(&self.controller), Arc::clone(&executors)));
        }
        let mut exchanges = self.start_exchanges(worker, exchange, &executors, &draining);
        // No part of it ends before the drain, unless it panics.
        let lost = tokio::select! {
            () = draining.cancelled() => None,
            Some(ended) = exchanges.join_next() => {
                self.controller.lose_connection();
                Some(end_of("an exchange connection", ended))
            }
            Some(ended) = background.join_next() => Some(end_of("the heartbeat or the watch connection", ended)),
            Some(what) = failed.recv() => Some(what),
        };
        if let Some(what) = &lost {
            tracing::error!(what, "the worker drains");
        }
        draining.cancel();
        self.drain(worker, exchanges).await;
        background.abort_all();
        lost.map_or(Ok(()), |what| Err(Error::unavailable(what)))
    }

    fn start_exchanges(
        &self,
        worker: &Worker,
        first: Session,
        executors: &Arc<Executors>,
        draining: &CancellationToken,
    ) -> JoinSet<()> {
        let mut exchanges = JoinSet::new();
        let turn = Arc::new(Mutex::default());
        let (mut session, mut first) = (Some(first), Arc::clone(&turn).try_lock_owned().ok());
        for _ in 0..worker.config.exchange_connections {
            let connection = ExchangeConnection {
                controller: Arc::clone(&self.controller),
                db: Arc::clone(&self.db),
                executors: Arc::clone(executors),
                draining: draining.clone(),
                turn: Arc::clone(&turn),
            };
            exchanges.spawn(connection.run(session.take(), first.take()));
        }
        exchanges
    }

    fn executors(
        &self,
        worker: &Worker,
        client: &Client,
        failures: mpsc::UnboundedSender<String>,
    ) -> Arc<Executors> {
        let executor = Executor {
            controller: Arc::clone(&self.controller),
            db: Arc::clone(&self.db),
            watchdog: Arc::clone(&self.watchdog),
            client: client.clone(),
            data: Arc::clone(&worker.data),
        };
        let (executor, threads) = (Arc::new(executor), Arc::clone(&self.threads));
        Arc::new(Executors { executor, threads, host: worker.host.clone(), failures })
    }

    /// Stops claiming at once, gives back what has not started, waits for the rest, and ends in order.
    async fn drain(&self, worker: &Worker, mut exchanges: JoinSet<()>) {
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
        self.give_back(self.controller.take_unwanted(&[], Instant::now())).await;
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
        tracing::info!("worker ended in order");
    }

    /// A task that cannot be given back is rescued when the executor has ended.
    async fn give_back(&self, back: Vec<Work>) {
        self.db.give_back(&self.controller, back).await;
    }
}

/// Keeps the slots of hosted lambdas as they are there.
async fn resize(host: Arc<Host>, controller: Arc<Controller>, executors: Arc<Executors>) {
    loop {
        executors.start(&controller.resize(|lambda| host.slots_of(lambda)));
        host.resized.notified().await;
    }
}

/// The stopper's steps at the end of the registration: bodies are told, then dropped, then the threads
/// end on which they, or what they began there, might run on.
fn ending(controller: Arc<Controller>, threads: &Arc<Threads>) -> Ending {
    let (threads, looked_at) = (Arc::clone(threads), Arc::clone(threads));
    let stop = move || {
        controller.stop_all(StopReason::LeaseLost);
        threads.end();
    };
    Ending { stop: Box::new(stop), left_behind: Box::new(move || looked_at.have_leftovers()) }
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
