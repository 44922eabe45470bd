//! Threads of their own for the bodies of each lambda.
//!
//! Promises: a body that blocks its thread, or computes for long, delays tasks of its own lambda only:
//! not those of other lambdas, and not heartbeats, claims and results, which stay on the caller's runtime.
//! A future that a body starts on these threads ends with them: the threads belong to one registration of
//! the worker.

use std::io;
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Handle, Runtime};

use crate::worker::lambda::Lambda;

/// Threads for what blocks, beside those of the slots: for what bodies hand to `spawn_blocking` themselves. As
/// many as tokio has.
const BLOCKING: usize = 512;

/// A runtime for each lambda. Dropped, it leaves bodies that block to themselves: waiting for them is
/// not for an async caller.
#[derive(Debug)]
pub(crate) struct Threads(Vec<Runtime>);

impl Threads {
    /// Up to `threads` for each of these lambdas, no more than it has slots.
    pub(crate) fn start(lambdas: &[Lambda], slots: usize, threads: usize) -> io::Result<Self> {
        let start = |lambda: &Lambda| {
            let slots = lambda.slots.unwrap_or(slots);
            let blocking = if lambda.blocking { slots.saturating_add(BLOCKING) } else { BLOCKING };
            Builder::new_multi_thread()
                .worker_threads(slots.clamp(1, threads.max(1)))
                .max_blocking_threads(blocking)
                .thread_name(&*lambda.name)
                .enable_all()
                .build()
        };
        Ok(Self(lambdas.iter().map(start).collect::<io::Result<_>>()?))
    }

    pub(crate) fn handles(&self) -> Vec<Handle> {
        self.0.iter().map(|runtime| runtime.handle().clone()).collect()
    }

    /// Ends all that runs on them. False: something did not end within that time, a body that blocks for
    /// one. For a thread that may wait.
    pub(crate) fn end(mut self, within: Duration) -> bool {
        let deadline = Instant::now() + within;
        for runtime in self.0.drain(..) {
            // It waits until every thread has ended, and says only by the time it took that one has not.
            runtime.shutdown_timeout(deadline.saturating_duration_since(Instant::now()));
            if Instant::now() >= deadline {
                return false;
            }
        }
        true
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        for runtime in self.0.drain(..) {
            runtime.shutdown_background();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::worker::context::Context;
    use crate::worker::outcome::Outcome;

    const SOON: Duration = Duration::from_millis(200);

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
        assert!(threads.end(Duration::from_secs(10)));
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
        assert!(!threads.end(SOON));
        drop(go_on);
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
        assert!(!threads.end(SOON));
        drop(go_on);
    }
}
