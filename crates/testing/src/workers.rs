//! The workers of a test's database: a worker of the SDK, a store consumer and a server of periodic tasks,
//! in the test's own process and runtime.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};
use tuskline_sdk::WorkerBuilder;

use super::{Database, Error};
use tuskline::config::{PeriodicOptions, StoreConsumerOptions};
use tuskline::recovery::RoleHealth;
use tuskline::{periodic, store_consumer};

/// Longest wait for a worker to register. A start takes some tens of milliseconds; this one may be beside
/// the tests of as many processors as there are.
const START_LIMIT: Duration = Duration::from_secs(20);
/// Time between two looks whether it has.
const START_REST: Duration = Duration::from_millis(2);
/// Longest wait for an orderly end, above a worker's own bounds.
const STOP_LIMIT: Duration = Duration::from_secs(60);
/// The store consumer's safety poll, which finds changes without a notification: gates that a test opens, operations.
const LONGEST_NAP: Duration = Duration::from_millis(50);

/// Dropped, it is gone at once; see [`Workers::stop`] for an orderly end.
#[derive(Debug)]
pub(super) struct Workers {
    pub executor: i64,
    worker: Option<JoinHandle<Result<(), tuskline_sdk::Error>>>,
    enough: CancellationToken,
    servers: Vec<JoinHandle<()>>,
    _ends_servers: DropGuard,
    /// Why the worker's watchdog would have ended the process, which is the test's.
    lost: Arc<Mutex<Option<String>>>,
}

impl Workers {
    pub async fn start(db: &Database, worker: WorkerBuilder) -> Result<Self, Error> {
        let last = "select coalesce(max(executor_id), 0) from tuskline.executor";
        let before: i64 = db.own().query_one(last, &[]).await?.get(0);
        let (enough, end, lost) =
            (CancellationToken::new(), CancellationToken::new(), Arc::default());
        let reason: Arc<Mutex<Option<String>>> = Arc::clone(&lost);
        // A test that stands still, in a debugger for one, or that panics, shall not stop the remaining ones.
        let worker =
            worker.until(enough.clone().cancelled_owned()).define_missing().on_lost(move |why| {
                *reason.lock().unwrap_or_else(PoisonError::into_inner) = Some(why.to_owned());
            });
        let options =
            StoreConsumerOptions { longest_nap: LONGEST_NAP, ..StoreConsumerOptions::default() };
        let consumer =
            store_consumer::run(db.address().clone(), options, RoleHealth::default(), end.clone());
        let ticks = periodic::run(
            db.address().clone(),
            PeriodicOptions::default(),
            RoleHealth::default(),
            end.clone(),
        );
        let mut workers = Self {
            executor: 0,
            worker: Some(tokio::spawn(worker.run())),
            enough,
            servers: vec![tokio::spawn(consumer), tokio::spawn(ticks)],
            _ends_servers: end.drop_guard(),
            lost,
        };
        workers.executor = workers.until_registered(db, before).await?;
        Ok(workers)
    }

    async fn until_registered(&mut self, db: &Database, before: i64) -> Result<i64, Error> {
        let began = Instant::now();
        let sql =
            "select max(executor_id) from tuskline.executor where executor_id > $1 and pid = $2";
        let pid = std::process::id().cast_signed();
        loop {
            let registered = db.own().query_one(sql, &[&before, &pid]).await?;
            if let Some(executor) = registered.get(0) {
                return Ok(executor);
            }
            self.check().await?;
            if began.elapsed() > START_LIMIT {
                return Err(Error::Worker(format!(
                    "has not registered here within {START_LIMIT:?}: was it made for this database, from its url() or by its worker()?"
                )));
            }
            sleep(START_REST).await;
        }
    }

    /// An error once the worker works no more.
    pub async fn check(&mut self) -> Result<(), Error> {
        if let Some(why) = self.lost.lock().unwrap_or_else(PoisonError::into_inner).take() {
            return Err(Error::Worker(format!("was lost: {why}")));
        }
        match self.worker.take_if(|worker| worker.is_finished()) {
            None => Ok(()),
            Some(worker) => {
                ended(worker.await)?;
                Err(Error::Worker("has ended by itself".to_owned()))
            }
        }
    }

    /// Ends all of them in order: bodies that run may finish, within the worker's `drain_grace`.
    pub async fn stop(mut self) -> Result<(), Error> {
        self.enough.cancel();
        if let Some(worker) = &mut self.worker {
            let late = |_| Error::Worker(format!("has not stopped within {STOP_LIMIT:?}"));
            ended(timeout(STOP_LIMIT, worker).await.map_err(late)?)?;
        }
        Ok(())
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.enough.cancel();
        if let Some(worker) = &self.worker {
            worker.abort();
        }
        for server in &self.servers {
            server.abort();
        }
    }
}

fn ended(
    worker: Result<Result<(), tuskline_sdk::Error>, tokio::task::JoinError>,
) -> Result<(), Error> {
    match worker {
        Ok(ended) => Ok(ended?),
        Err(panicked) => Err(Error::Worker(format!("panicked: {panicked}"))),
    }
}
