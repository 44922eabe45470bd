//! Threads of their own for the bodies of each lambda.
//!
//! Promises: a body that blocks its thread, or computes for long, delays tasks of its own lambda only:
//! not those of others, not heartbeats, claims and results, which stay on the caller's runtime.

use std::io;

use tokio::runtime::{Builder, Handle, Runtime};

use crate::Lambda;

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
                .thread_name(&lambda.name)
                .enable_all()
                .build()
        };
        Ok(Self(lambdas.iter().map(start).collect::<io::Result<_>>()?))
    }

    pub(crate) fn of(&self, lambda: usize) -> &Handle {
        self.0[lambda].handle()
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        for runtime in self.0.drain(..) {
            runtime.shutdown_background();
        }
    }
}
