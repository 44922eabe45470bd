//! The worker of this host: one registration in the database for the lambdas that its executors serve.
//!
//! It promises: a lambda that an executor brings along as a new one leads to a new registration; the former one drains
//! without a limit, and ends no body. The guardian always knows the earliest time until which the leases of
//! attempts in hand are held.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tuskline_sdk::{Address, Error, ErrorKind, Host, Lambda, Outcome, Worker, WorkerConfig};

use super::hand_out::HandOut;
use super::link::Link;
use super::wire::Refusal;

/// How long an executor that joins waits for the database.
const WAIT: Duration = Duration::from_secs(5);

/// The settings of each registration.
#[derive(Debug, Clone)]
pub struct Registering {
    pub address: Address,
    pub role: Option<String>,
    pub define_missing: bool,
    /// Without a limit for a drain: the controller has its own.
    pub config: WorkerConfig,
}

/// See the module.
#[derive(Debug)]
pub struct Registrations {
    registering: Registering,
    hand_out: Arc<HandOut>,
    deadlines: Arc<Deadlines>,
    current: tokio::sync::Mutex<Option<Current>>,
    running: Mutex<JoinSet<()>>,
    /// Of workers.
    runtime: Handle,
    /// Of their bodies, and of the socket.
    bodies: Handle,
    ended: CancellationToken,
    /// A registration has ended that was needed.
    pub(super) failed: CancellationToken,
}

#[derive(Debug)]
struct Current {
    lambdas: BTreeSet<String>,
    host: Arc<Host>,
    drain: CancellationToken,
}

/// Until when executors may run, by registration.
#[derive(Debug)]
struct Deadlines {
    link: Arc<Link>,
    until_ns: Mutex<BTreeMap<u64, u64>>,
}

impl Deadlines {
    fn set(&self, registration: u64, until_ns: Option<u64>) {
        let mut known = self.until_ns.lock().unwrap_or_else(PoisonError::into_inner);
        match until_ns {
            Some(until_ns) => drop(known.insert(registration, until_ns)),
            None => drop(known.remove(&registration)),
        }
        self.link.until(known.values().min().copied());
    }
}

impl Registrations {
    pub fn new(
        registering: Registering,
        hand_out: Arc<HandOut>,
        link: Arc<Link>,
        bodies: Handle,
    ) -> Self {
        let deadlines = Deadlines { link, until_ns: Mutex::default() };
        Self {
            registering,
            hand_out,
            deadlines: Arc::new(deadlines),
            current: tokio::sync::Mutex::default(),
            running: Mutex::default(),
            runtime: Handle::current(),
            bodies,
            ended: CancellationToken::new(),
            failed: CancellationToken::new(),
        }
    }

    /// Works on these lambdas, too, from now on.
    ///
    /// # Errors
    /// One of them is unknown, the role may not work on it, or the database is away.
    pub async fn serve(&self, lambdas: impl Iterator<Item = &str>) -> Result<(), Refusal> {
        let mut current = self.current.lock().await;
        let mut all: BTreeSet<String> = lambdas.map(str::to_owned).collect();
        if let Some(current) = &*current {
            if all.is_subset(&current.lambdas) {
                return Ok(());
            }
            all.extend(current.lambdas.iter().cloned());
        }
        let new = self.register(all).await?;
        new.host.resize(self.hand_out.slots(), &self.hand_out.pids());
        if let Some(former) = current.replace(new) {
            former.drain.cancel();
        }
        Ok(())
    }

    async fn register(&self, lambdas: BTreeSet<String>) -> Result<Current, Refusal> {
        let registered = Arc::new(Notify::new());
        let number = fastrand::u64(..);
        let (deadlines, warned) = (Arc::clone(&self.deadlines), Arc::clone(&registered));
        let host = Arc::new(Host::new(self.bodies.clone(), move |until_ns| {
            deadlines.set(number, until_ns);
            warned.notify_one();
        }));
        let Registering { address, role, define_missing, config } = self.registering.clone();
        let drain = self.ended.child_token();
        let mut builder = Worker::builder(address)
            .config(config)
            .host(Arc::clone(&host))
            .until(drain.clone().cancelled_owned());
        if let Some(role) = role {
            builder = builder.role(role);
        }
        if define_missing {
            builder = builder.define_missing();
        }
        for lambda in &lambdas {
            builder = builder.serve(hosted(lambda, &self.hand_out));
        }
        let worker = builder.build().map_err(refusal)?;
        let (ended, mut end) = tokio::sync::oneshot::channel();
        let failed = self.failed.clone();
        let run = async move {
            // Nothing waits for it once it has registered.
            if let Err(Err(error)) = ended.send(worker.run().await) {
                tracing::error!(%error, "the worker of this controller has ended");
                failed.cancel();
            }
        };
        {
            let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
            running.spawn_on(run, &self.runtime);
        }
        let refused = tokio::select! {
            () = registered.notified() => None,
            end = &mut end => Some(match end {
                Ok(Err(error)) => refusal(error),
                _ => away("the controller ends"),
            }),
            () = tokio::time::sleep(WAIT) => Some(away("the database does not answer")),
        };
        if let Some(refused) = refused {
            drain.cancel();
            return Err(refused);
        }
        Ok(Current { lambdas, host, drain })
    }

    /// Keeps the worker's slots as they are in the executors, until dropped.
    pub async fn resize(&self) {
        loop {
            self.hand_out.resized.notified().await;
            if let Some(current) = &*self.current.lock().await {
                current.host.resize(self.hand_out.slots(), &self.hand_out.pids());
            }
        }
    }

    /// Stops claiming. Completes when nothing is in hand and each result is recorded.
    pub async fn drain(&self) {
        self.ended.cancel();
        loop {
            let next = {
                let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
                while running.try_join_next().is_some() {}
                running.is_empty()
            };
            if next {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// A lambda whose attempts are handed out. Its checkpoint comes along.
fn hosted(lambda: &str, hand_out: &Arc<HandOut>) -> Lambda {
    let hand_out = Arc::clone(hand_out);
    Lambda::hosted(lambda, move |payload, context| {
        let hand_out = Arc::clone(&hand_out);
        async move {
            let checkpoint = tokio::select! {
                biased;
                () = context.cancelled() => return Outcome::Returned,
                read = context.checkpoint::<Box<RawValue>>() => read,
            };
            match checkpoint {
                Ok(checkpoint) => {
                    let checkpoint = checkpoint.map(|text| text.get().to_owned());
                    hand_out.run(payload, checkpoint, context).await
                }
                Err(error) => {
                    tracing::warn!(%error, task = context.task().0, "its checkpoint cannot be read");
                    Outcome::Returned
                }
            }
        }
    })
}

/// As the database says it.
fn refusal(error: Error) -> Refusal {
    if error.kind() == ErrorKind::Unavailable {
        return away(&error.to_string());
    }
    let code = error.code();
    let name = code.map_or("refused", |code| code.name());
    let mut refusal = Refusal::new(400, name, error.to_string()).at("lambdas");
    refusal.body.code = code.map(|code| code.as_str());
    refusal
}

fn away(why: &str) -> Refusal {
    Refusal::new(503, "no_database", why).with("retry_after_ms", 1000)
}
