//! Threads of their own for the bodies of each lambda.
//!
//! Promises: a body that blocks its thread, or computes for long, delays tasks of its own lambda only:
//! not those of others, not heartbeats, claims and results, which stay on the caller's runtime.

use std::io;

use tokio::runtime::{Builder, Handle, Runtime};

use crate::Lambda;

/// Blocking threads beside those of a lambda's own bodies, for what these hand on (files, name look-ups):
/// the runtime's usual number. They are started when needed and end when idle.
const BLOCKING_THREADS: usize = 512;

/// A runtime for each lambda. Dropped, it leaves bodies that block to themselves: waiting for them is
/// not for an async caller.
#[derive(Debug)]
pub(crate) struct Threads(Vec<Runtime>);

impl Threads {
    /// Up to `threads` for each of these lambdas, no more than it has slots; and a blocking thread for each slot:
    /// a body's deadline runs from its start, and waiting for a thread would be taken from it.
    pub(crate) fn start(lambdas: &[Lambda], slots: usize, threads: usize) -> io::Result<Self> {
        let start = |lambda: &Lambda| {
            let slots = lambda.slots.unwrap_or(slots);
            Builder::new_multi_thread()
                .worker_threads(slots.clamp(1, threads.max(1)))
                .max_blocking_threads(slots.saturating_add(BLOCKING_THREADS))
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

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Barrier};
    use std::time::Duration;

    use super::*;

    #[test]
    fn all_slots_of_a_blocking_lambda_run_at_once_however_many() {
        const SLOTS: usize = 600;
        let lambda = Lambda::blocking("work", |(): (), _| Ok::<(), String>(())).slots(SLOTS);
        let threads = Threads::start(&[lambda], 1, 1).unwrap();
        let all = Arc::new(Barrier::new(SLOTS));
        // Each waits for all others.
        let bodies: Vec<_> = (0..SLOTS)
            .map(|_| {
                let all = Arc::clone(&all);
                threads.of(0).spawn_blocking(move || all.wait())
            })
            .collect();
        let met = threads.of(0).block_on(async {
            tokio::time::timeout(Duration::from_secs(60), futures_util::future::join_all(bodies))
                .await
        });
        assert_eq!(met.map(|bodies| bodies.len()), Ok(SLOTS));
    }
}
