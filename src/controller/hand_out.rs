//! Attempts and the processes that run them: which executor is given which attempt, and what becomes of it.
//!
//! It promises:
//! - The hand-out is the start. An executor never has more attempts of a lambda in hand than slots for it.
//! - A task with a crash on record runs alone: in an executor that has nothing else in hand.
//! - An attempt goes on to another process only after its own has ended: its reply is given by a result, or by
//!   [`HandOut::ended`], which is called when the process, and what it had started, runs no instruction any more.
//! - A lane's answer is kept until the next number: to send a message again changes nothing.
//!
//! It must never wait or call the database under its lock.

mod ending;
mod executor;
mod lanes;

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, oneshot};
use tuskline_sdk::{Context, Outcome};

use super::process::ProcessEnd;
use super::wire::{Refusal, Served};

use executor::Executor;

/// How long an attempt waits for an executor of its lambda where there is none.
const NO_EXECUTOR: Duration = Duration::from_secs(1);

/// Times that an executor has to obey.
#[derive(Debug, Clone, Copy)]
pub struct Graces {
    /// From the cancel of an attempt to the end of its process.
    pub cancel: Duration,
    /// The same where the lease is lost: the task may run elsewhere soon.
    pub lease: Duration,
    /// How long an executor with a free slot may ask for nothing.
    pub silence: Duration,
}

/// See the module.
#[derive(Debug)]
pub struct HandOut {
    state: Mutex<State>,
    graces: Graces,
    /// Something is in hand or waits: the clock is looked at.
    pub(super) busy: Notify,
    /// Slots have come or gone.
    pub(super) resized: Notify,
    /// An executor has ended.
    pub(super) gone: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// By the name that each got when it joined.
    executors: HashMap<Arc<str>, Executor>,
    /// Attempts that wait for a slot of their lambda, by lambda.
    waiting: HashMap<Arc<str>, VecDeque<Offer>>,
    /// Attempts that wait for an executor with nothing in hand.
    alone: VecDeque<Offer>,
    joined: u64,
    draining: bool,
    /// Attempts in hand shall stop: the drain's grace is over.
    stopping: bool,
}

/// An attempt that no executor has yet.
#[derive(Debug)]
struct Offer {
    attempt: Handed,
    since: Instant,
    /// The executor that takes no other attempt until it has run this one alone.
    reserved: Option<Arc<str>>,
}

/// An attempt and its reply. Its context counts as a part of the body while it is kept.
#[derive(Debug)]
struct Handed {
    payload: String,
    checkpoint: Option<String>,
    context: Context,
    reply: oneshot::Sender<Outcome>,
}

impl HandOut {
    pub fn new(graces: Graces) -> Self {
        let (busy, resized, gone) = (Notify::new(), Notify::new(), Notify::new());
        Self { state: Mutex::default(), graces, busy, resized, gone }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs an attempt in an executor. Completes with its outcome.
    pub async fn run(
        &self,
        payload: String,
        checkpoint: Option<String>,
        context: Context,
    ) -> Outcome {
        let (reply, outcome) = oneshot::channel();
        let attempt = Handed { payload, checkpoint, context, reply };
        let offer = Offer { attempt, since: Instant::now(), reserved: None };
        {
            let mut state = self.lock();
            if state.draining {
                return Outcome::Returned;
            }
            state.offer(offer);
        }
        self.busy.notify_one();
        outcome.await.unwrap_or(Outcome::Returned)
    }

    /// A process joins. Its name, by which it speaks from now on.
    ///
    /// # Errors
    /// It has joined already, and has work.
    pub fn join(
        &self,
        pid: u32,
        end: Arc<ProcessEnd>,
        lambdas: &[Served],
    ) -> Result<Arc<str>, Refusal> {
        let mut state = self.lock();
        if let Some((name, known)) = state.executors.iter().find(|(_, known)| known.pid == pid) {
            // The answer was lost.
            if known.is_fresh_as(lambdas) {
                return Ok(Arc::clone(name));
            }
            return Err(Refusal::invalid("pid", format!("process {pid} has joined already")));
        }
        state.joined += 1;
        let name: Arc<str> = format!("{}.{:016x}", state.joined, fastrand::u64(..)).into();
        state.executors.insert(Arc::clone(&name), Executor::new(pid, end, lambdas));
        drop(state);
        self.resized.notify_one();
        self.busy.notify_one();
        Ok(name)
    }

    /// An executor takes no more work; its results are taken until it ends.
    ///
    /// # Errors
    /// It is unknown.
    pub fn leave(&self, name: &str) -> Result<(), Refusal> {
        let mut state = self.lock();
        let executor = state.executors.get_mut(name).ok_or_else(unknown_executor)?;
        executor.leaving = true;
        executor.changed.notify_waiters();
        drop(state);
        self.resized.notify_one();
        Ok(())
    }

    /// The context of an attempt in hand.
    ///
    /// # Errors
    /// The executor is unknown, or the attempt is over.
    pub fn context(&self, name: &str, attempt: super::wire::Attempt) -> Result<Context, Refusal> {
        let state = self.lock();
        let executor = state.executors.get(name).ok_or_else(unknown_executor)?;
        let found = executor.in_hand.get(&attempt).map(|held| held.handed.context.clone());
        let over = || format!("task {} is not in hand under fence {}", attempt.task, attempt.fence);
        found.ok_or_else(|| Refusal::new(409, "not_current", over()))
    }

    /// The slots of each lambda, in all executors that take work.
    pub fn slots(&self) -> HashMap<String, usize> {
        let state = self.lock();
        let mut slots = HashMap::new();
        for executor in state.executors.values().filter(|executor| executor.takes_work()) {
            for serving in &executor.serving {
                *slots.entry(serving.lambda.to_string()).or_default() += serving.slots;
            }
        }
        slots
    }

    /// The process that writes the output of an executor: the first one of its session.
    pub fn writer_of(&self, name: &str) -> Option<u32> {
        self.lock().executors.get(name).map(|executor| executor.session)
    }

    /// The attempt that a process runs, if it is only one: its lambda, task and number. The process may also be
    /// the first of an executor's session.
    pub fn only_attempt(&self, pid: u32) -> Option<(Arc<str>, i64, i16)> {
        let state = self.lock();
        let mut executors = state.executors.values();
        let executor = executors.find(|one| one.pid == pid || one.session == pid)?;
        let mut attempts = executor.in_hand.values();
        let (only, more) = (attempts.next()?, attempts.next());
        let context = &only.handed.context;
        more.is_none().then(|| (context.lambda().into(), context.task().0, context.attempt()))
    }

    /// The process ids of all executors.
    pub fn pids(&self) -> Vec<u32> {
        self.lock().executors.values().map(|executor| executor.pid).collect()
    }

    /// How many executors serve exactly these lambdas.
    pub fn serving(&self, lambdas: &[String]) -> usize {
        let state = self.lock();
        let same = |executor: &&Executor| {
            executor.takes_work()
                && executor.serving.len() == lambdas.len()
                && executor
                    .serving
                    .iter()
                    .all(|one| lambdas.iter().any(|name| **name == *one.lambda))
        };
        state.executors.values().filter(same).count()
    }

    /// Nothing is handed out any more. Attempts that wait go back.
    pub fn drain(&self) {
        let mut state = self.lock();
        state.draining = true;
        let waiting = std::mem::take(&mut state.waiting).into_values().flatten();
        let back: Vec<Offer> = waiting.chain(std::mem::take(&mut state.alone)).collect();
        for offer in back {
            let _ = offer.attempt.reply.send(Outcome::Returned);
        }
        state.executors.values().for_each(|executor| executor.changed.notify_waiters());
    }

    /// Attempts that are still in hand shall stop, and go back.
    pub fn stop_all(&self) {
        self.lock().stopping = true;
        self.busy.notify_one();
    }
}

impl State {
    /// Wakes an executor that may take it at once; else it waits for the next one that asks.
    fn offer(&mut self, offer: Offer) {
        let lambda: Arc<str> = offer.attempt.context.lambda().into();
        let free = self.executors.values().filter(|executor| executor.waiting > 0);
        if offer.attempt.context.crashes() > 0 {
            let idle = free.filter(|one| one.serves(&lambda) && one.in_hand.is_empty());
            idle.take(1).for_each(|executor| executor.changed.notify_waiters());
            self.alone.push_back(offer);
        } else {
            let best = free.max_by_key(|executor| executor.free_slots(&lambda));
            if let Some(executor) = best.filter(|executor| executor.free_slots(&lambda) > 0) {
                executor.changed.notify_waiters();
            }
            self.waiting.entry(lambda).or_default().push_back(offer);
        }
    }
}

fn unknown_executor() -> Refusal {
    Refusal::new(410, "unknown_executor", "this executor has not joined, or was replaced")
}
