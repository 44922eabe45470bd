//! Threads of their own for the bodies of each lambda.
//!
//! Promises: a body that blocks its thread, or computes for long, delays tasks of its own lambda only:
//! not those of other lambdas, and not heartbeats, claims and results, which stay on the caller's runtime.
//! The threads of a lambda start with its first executor. They end when nothing on them has been alive for
//! a minute, and with the registration at the latest: a future that a body starts on them keeps them until
//! then. Must never: start a thread once the registration is over.

use std::cell::Cell;
use std::io;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Handle, Runtime};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::worker::lambda::Lambda;

/// Threads for what blocks, beside those of the slots: for what bodies hand to `spawn_blocking` themselves. As
/// many as tokio has.
const BLOCKING: usize = 512;

thread_local! {
    /// This thread runs the tasks of a runtime. The others of it block.
    static RUNS_TASKS: Cell<bool> = const { Cell::new(false) };
}

/// Quiet threads are kept for so long. To start them delays a task by about 0.2 ms; to keep them costs 100 kB
/// (both by estimate) and four descriptors. A lambda that has a task each minute keeps its threads.
const QUIET: Duration = Duration::from_secs(60);

/// Between two looks for quiet threads.
const LOOK: Duration = Duration::from_secs(10);

/// Between two looks at threads that are to end.
const ENDING: Duration = Duration::from_millis(1);

/// The threads of all lambdas, under one registration. Dropped, it leaves bodies that block to themselves:
/// waiting for them is not for an async caller.
#[derive(Debug)]
pub(crate) struct Threads {
    lambdas: Vec<LambdaThreads>,
    /// No thread starts any more.
    over: AtomicBool,
    alive: Alive,
    /// Each executor that has not ended holds a clone.
    executors: Arc<()>,
    stop: CancellationToken,
}

#[derive(Debug)]
struct LambdaThreads {
    name: Arc<str>,
    /// Threads for its bodies.
    workers: usize,
    /// Threads that may block, at most.
    max_blocking: usize,
    started: Mutex<Option<Started>>,
}

/// The threads of a lambda while it has any.
#[derive(Debug)]
struct Started {
    /// None: it has ended.
    runtime: Option<Runtime>,
    counted: Counted,
    alive: Alive,
    /// Each look since then has found nothing alive.
    quiet_since: Option<Instant>,
}

/// The runtimes that have not ended. The lock is held for computing only.
#[derive(Debug, Clone, Default)]
struct Alive(Arc<Mutex<Vec<Counted>>>);

/// A runtime whose tasks and threads can be counted at any time.
#[derive(Debug, Clone)]
struct Counted {
    handle: Handle,
    /// Threads that run tasks.
    workers: usize,
    /// All threads that have begun, without the ended ones that ran no tasks.
    begun: Arc<AtomicUsize>,
    /// Threads that are known to run tasks.
    known: Arc<AtomicUsize>,
}

impl Threads {
    /// Up to `threads` for each of these lambdas, no more than it has slots.
    pub(crate) fn new(lambdas: &[Lambda], slots: usize, threads: usize) -> Self {
        let lambdas = lambdas.iter().map(|lambda| {
            let slots = lambda.slots.unwrap_or(slots);
            let blocking = if lambda.blocking { slots.saturating_add(BLOCKING) } else { BLOCKING };
            LambdaThreads {
                name: Arc::clone(&lambda.name),
                workers: slots.clamp(1, threads.max(1)),
                max_blocking: blocking,
                started: Mutex::default(),
            }
        });
        Self {
            lambdas: lambdas.collect(),
            over: AtomicBool::new(false),
            alive: Alive::default(),
            executors: Arc::default(),
            stop: CancellationToken::new(),
        }
    }

    /// Starts so many executors on the threads of a lambda, and first the threads where there are none. Starts
    /// nothing once the registration is over.
    ///
    /// # Errors
    /// There are no threads to be had.
    pub(crate) fn start<F>(
        &self,
        lambda: usize,
        executors: usize,
        executor: impl Fn() -> F,
    ) -> io::Result<()>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let lambda = &self.lambdas[lambda];
        // Held until all are begun: these threads do not end meanwhile.
        let mut started = lambda.lock();
        if self.over.load(Ordering::Acquire) {
            return Ok(());
        }
        if started.is_none() {
            *started = Some(lambda.start(&self.alive)?);
        }
        if let Some(Started { quiet_since, counted, .. }) = &mut *started {
            *quiet_since = None;
            for _ in 0..executors {
                counted.handle.spawn(self.counted(executor()));
            }
        }
        Ok(())
    }

    /// An executor that is counted, and that the end of the registration drops.
    fn counted(
        &self,
        executor: impl Future<Output = ()> + Send + 'static,
    ) -> impl Future<Output = ()> + Send + 'static {
        let (counted, stop) = (Arc::clone(&self.executors), self.stop.clone());
        async move {
            let _counted = counted;
            stop.run_until_cancelled(pin!(executor)).await;
        }
    }

    /// Ends the executors when it is dropped.
    pub(crate) fn stop_on_drop(&self) -> DropGuard {
        self.stop.clone().drop_guard()
    }

    /// Bodies have left something behind: a task that is no executor's, or a thread that blocks. Does not wait.
    pub(crate) fn have_leftovers(&self) -> bool {
        // Counted before the tasks: an executor may end in between.
        let executors = Arc::strong_count(&self.executors) - 1;
        // Threads start or end at this moment: they are counted at the next look.
        let Some((tasks, blocking)) = self.alive.count() else { return true };
        tasks > executors || blocking > 0
    }

    /// Ends all that runs on them, and waits for it without limit. For a thread that may wait.
    pub(crate) fn end(&self) {
        self.stop.cancel();
        self.over.store(true, Ordering::Release);
        let started: Vec<_> =
            self.lambdas.iter().filter_map(|lambda| lambda.lock().take()).collect();
        started.into_iter().for_each(Started::end);
        // Quiet ones, which end on a thread of their own.
        while !self.alive.lock().is_empty() {
            std::thread::sleep(ENDING);
        }
    }

    /// Ends the threads of quiet lambdas, until dropped.
    pub(crate) async fn end_quiet(&self) {
        loop {
            tokio::time::sleep(LOOK).await;
            self.end_these(self.take_quiet(Instant::now()));
        }
    }

    /// The threads on which nothing has been alive for a minute.
    fn take_quiet(&self, now: Instant) -> Vec<Started> {
        let quiet = |lambda: &LambdaThreads| lambda.lock().take_if(|one| one.is_quiet(now));
        self.lambdas.iter().filter_map(quiet).collect()
    }

    /// On a thread of its own, because it waits for them. Where there is none to be had, nothing waits.
    fn end_these(&self, quiet: Vec<Started>) {
        if !quiet.is_empty() {
            let end = || quiet.into_iter().for_each(Started::end);
            let _ = std::thread::Builder::new().name("tuskline-quiet".into()).spawn(end);
        }
    }
}

impl LambdaThreads {
    fn lock(&self) -> MutexGuard<'_, Option<Started>> {
        self.started.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start(&self, alive: &Alive) -> io::Result<Started> {
        let (begun, known) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let knows = Arc::clone(&known);
        let (named, begins, ended) = (Arc::clone(&self.name), begun.clone(), begun.clone());
        let workers = self.workers;
        let mut builder = Builder::new_multi_thread();
        builder
            .worker_threads(workers)
            .max_blocking_threads(self.max_blocking)
            // It is asked before a thread begins: no thread that blocks is missed. Which threads block is not
            // known yet: a thread of a runtime that has just started takes what is next.
            .thread_name_fn(move || {
                begins.fetch_add(1, Ordering::AcqRel);
                named.to_string()
            })
            .on_thread_park(move || {
                if !RUNS_TASKS.replace(true) {
                    knows.fetch_add(1, Ordering::AcqRel);
                }
            })
            .on_thread_stop(move || {
                if !RUNS_TASKS.get() {
                    ended.fetch_sub(1, Ordering::AcqRel);
                }
            })
            .enable_all();
        let runtime = built(&mut builder)?;
        let counted = Counted { handle: runtime.handle().clone(), workers, begun, known };
        alive.lock().push(counted.clone());
        Ok(Started { runtime: Some(runtime), counted, alive: alive.clone(), quiet_since: None })
    }
}

/// Where the system has no thread left, tokio panics.
fn built(builder: &mut Builder) -> io::Result<Runtime> {
    let built = std::panic::catch_unwind(AssertUnwindSafe(|| builder.build()));
    built.unwrap_or_else(|_| Err(io::Error::other("the system gives no thread")))
}

impl Started {
    /// Nothing has been alive for a minute.
    fn is_quiet(&mut self, now: Instant) -> bool {
        let (tasks, blocking) = self.counted.count();
        if tasks + blocking > 0 {
            self.quiet_since = None;
            return false;
        }
        now.duration_since(*self.quiet_since.get_or_insert(now)) >= QUIET
    }

    /// Ends what runs, and waits for it without limit.
    fn end(mut self) {
        // A thread that ends before it is known to run tasks would count as one that blocked.
        while self.counted.known.load(Ordering::Acquire) < self.counted.workers {
            std::thread::sleep(ENDING);
        }
        drop(self.runtime.take());
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
        self.alive.lock().retain(|one| !Arc::ptr_eq(&one.begun, &self.counted.begun));
    }
}

impl Counted {
    /// Tasks that have not ended, and threads that block: those of blocking bodies, and of what bodies hand to
    /// `spawn_blocking`. A thread that has done so in the last 10 s waits for more, and counts.
    fn count(&self) -> (usize, usize) {
        let blocking = self.begun.load(Ordering::Acquire).saturating_sub(self.workers);
        (self.handle.metrics().num_alive_tasks(), blocking)
    }
}

impl Alive {
    fn lock(&self) -> MutexGuard<'_, Vec<Counted>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The counts of all. `None`: the lock is held.
    fn count(&self) -> Option<(usize, usize)> {
        let all = match self.0.try_lock() {
            Ok(all) => all,
            Err(TryLockError::Poisoned(all)) => all.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        let counts = all.iter().map(Counted::count);
        Some(counts.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1)))
    }
}

#[cfg(test)]
mod tests;
