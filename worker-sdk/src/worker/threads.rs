//! Threads of their own for the bodies of each lambda.
//!
//! Promises: a body that blocks its thread, or computes for long, delays tasks of its own lambda only:
//! not those of other lambdas, and not heartbeats, claims and results, which stay on the caller's runtime.
//! A future that a body starts on these threads ends with them: the threads belong to one registration of
//! the worker.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::runtime::{Builder, Handle, Runtime};

use crate::worker::lambda::Lambda;

/// Threads for what blocks, beside those of the slots: for what bodies hand to `spawn_blocking` themselves. As
/// many as tokio has.
const BLOCKING: usize = 512;

/// Ends the name of a thread that blocks. No name of a lambda has a space.
const BLOCKS: &str = " blocks";

/// A runtime for each lambda. Dropped, it leaves bodies that block to themselves: waiting for them is
/// not for an async caller.
#[derive(Debug)]
pub(crate) struct Threads {
    runtimes: Vec<Runtime>,
    /// Of each, the threads that block: those of blocking bodies, and of what bodies hand to `spawn_blocking`.
    blocking: Vec<Arc<AtomicUsize>>,
}

/// The tasks and threads of all lambdas, to be counted at any time.
#[derive(Debug)]
pub(crate) struct Alive(Vec<(Handle, Arc<AtomicUsize>)>);

impl Alive {
    /// Tasks that have not ended.
    pub(crate) fn tasks(&self) -> usize {
        self.0.iter().map(|(handle, _)| handle.metrics().num_alive_tasks()).sum()
    }

    /// Threads that block, or did in the last 10 s and wait for more.
    pub(crate) fn blocking_threads(&self) -> usize {
        self.0.iter().map(|(_, blocking)| blocking.load(Ordering::Acquire)).sum()
    }
}

impl Threads {
    /// Up to `threads` for each of these lambdas, no more than it has slots.
    pub(crate) fn start(lambdas: &[Lambda], slots: usize, threads: usize) -> io::Result<Self> {
        let mut started = Self { runtimes: Vec::new(), blocking: Vec::new() };
        for lambda in lambdas {
            let slots = lambda.slots.unwrap_or(slots);
            let (runtime, blocking) = start(lambda, slots, slots.clamp(1, threads.max(1)))?;
            started.runtimes.push(runtime);
            started.blocking.push(blocking);
        }
        Ok(started)
    }

    pub(crate) fn handles(&self) -> Vec<Handle> {
        self.runtimes.iter().map(|runtime| runtime.handle().clone()).collect()
    }

    pub(crate) fn alive(&self) -> Alive {
        Alive(self.handles().into_iter().zip(self.blocking.iter().cloned()).collect())
    }

    /// Ends all that runs on them, and waits for it without limit. For a thread that may wait.
    pub(crate) fn end(mut self) {
        self.runtimes.drain(..).for_each(drop);
    }
}

/// A runtime, and how many threads of it block.
fn start(lambda: &Lambda, slots: usize, workers: usize) -> io::Result<(Runtime, Arc<AtomicUsize>)> {
    let most = if lambda.blocking { slots.saturating_add(BLOCKING) } else { BLOCKING };
    let blocking = Arc::new(AtomicUsize::new(0));
    let (named, begun, ended) = (Arc::clone(&lambda.name), AtomicUsize::new(0), blocking.clone());
    let begins = Arc::clone(&blocking);
    let runtime = Builder::new_multi_thread()
        .worker_threads(workers)
        .max_blocking_threads(most)
        // It is asked before a thread begins, and first for the workers. So no thread that blocks is missed.
        .thread_name_fn(move || {
            if begun.fetch_add(1, Ordering::AcqRel) < workers {
                return named.to_string();
            }
            begins.fetch_add(1, Ordering::AcqRel);
            format!("{named}{BLOCKS}")
        })
        .on_thread_stop(move || {
            if std::thread::current().name().is_some_and(|name| name.ends_with(BLOCKS)) {
                ended.fetch_sub(1, Ordering::AcqRel);
            }
        })
        .enable_all()
        .build()?;
    Ok((runtime, blocking))
}

impl Drop for Threads {
    fn drop(&mut self) {
        for runtime in self.runtimes.drain(..) {
            runtime.shutdown_background();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::worker::context::Context;
    use crate::worker::outcome::Outcome;

    /// Until it has ended on a thread of its own.
    fn end(threads: Threads) -> mpsc::Receiver<()> {
        let (ending, ended) = mpsc::channel();
        std::thread::spawn(move || {
            threads.end();
            let _ = ending.send(());
        });
        ended
    }

    const PATIENCE: Duration = Duration::from_secs(10);

    fn until(what: impl Fn() -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !what() {
            assert!(Instant::now() < deadline, "in time");
            std::thread::yield_now();
        }
    }

    fn threads() -> (Threads, Handle) {
        let lambda = Lambda::named("work", |(): (), _: Context| async { Outcome::Success(None) });
        let threads = Threads::start(&[lambda], 4, 2).expect("threads");
        let handle = threads.handles().remove(0);
        (threads, handle)
    }

    #[test]
    fn what_waits_is_dropped() {
        let (threads, handle) = threads();
        let (held, gone) = mpsc::channel::<()>();
        handle.spawn(async move {
            let _held = held;
            std::future::pending::<()>().await;
        });
        let alive = threads.alive();
        assert_eq!((alive.tasks(), alive.blocking_threads()), (1, 0));
        end(threads).recv_timeout(PATIENCE).expect("it ends");
        assert_eq!((alive.tasks(), alive.blocking_threads()), (0, 0));
        assert_eq!(gone.try_recv(), Err(mpsc::TryRecvError::Disconnected));
    }

    #[test]
    fn a_body_that_blocks_is_noticed_while_no_task_waits_for_it() {
        let (threads, handle) = threads();
        let (go_on, wait) = mpsc::channel::<()>();
        let (begun, began) = mpsc::channel();
        drop(handle.spawn_blocking(move || {
            let _ = begun.send(());
            let _ = wait.recv();
        }));
        began.recv().expect("it runs");
        let (alive, ended) = (threads.alive(), end(threads));
        until(|| alive.tasks() == 0);
        assert_eq!(alive.blocking_threads(), 1);
        assert_eq!(ended.try_recv(), Err(mpsc::TryRecvError::Empty));
        drop(go_on);
        ended.recv_timeout(PATIENCE).expect("it ends");
        assert_eq!(alive.blocking_threads(), 0);
    }

    #[test]
    fn what_never_yields_is_noticed() {
        let (threads, handle) = threads();
        let (go_on, wait) = mpsc::channel::<()>();
        let (begun, began) = mpsc::channel();
        handle.spawn(async move {
            let _ = begun.send(());
            let _ = wait.recv();
        });
        began.recv().expect("it runs");
        let (alive, ended) = (threads.alive(), end(threads));
        assert_eq!((alive.tasks(), alive.blocking_threads()), (1, 0));
        assert_eq!(ended.try_recv(), Err(mpsc::TryRecvError::Empty));
        drop(go_on);
        ended.recv_timeout(PATIENCE).expect("it ends");
        assert_eq!(alive.tasks(), 0);
    }
}
