//! Starts executors where a claim has brought tasks, and hears of those that fail.
//!
//! Promises: no task is lost that no executor begins: it stays in its buffer, and the worker gives it back.
//! Must never: wait.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use tokio::sync::mpsc;

use crate::worker::controller::Wanted;
use crate::worker::executor::Executor;
use crate::worker::host::Host;
use crate::worker::threads::Threads;

/// See the module.
pub(crate) struct Executors {
    pub executor: Arc<Executor>,
    pub threads: Arc<Threads>,
    /// Of hosted lambdas.
    pub host: Option<Arc<Host>>,
    /// Reasons why the worker cannot go on.
    pub failures: mpsc::UnboundedSender<String>,
}

impl Executors {
    /// Starts these executors, each on the threads of its lambda.
    pub(crate) fn start(&self, wanted: &[Wanted]) {
        for Wanted { lambda, executors } in wanted {
            if let Some(host) = &self.host {
                (0..*executors).for_each(|_| drop(host.runtime.spawn(self.one(*lambda))));
                continue;
            }
            let started = self.threads.start(*lambda, *executors, || self.one(*lambda));
            if let Err(error) = started {
                let name = &self.executor.controller.lambdas[*lambda].lambda.name;
                let why = format!("no threads are to be had for the lambda {name}: {error}");
                let _ = self.failures.send(why);
            }
        }
    }

    fn one(&self, lambda: usize) -> impl Future<Output = ()> + Send + 'static {
        let (executor, failures) = (Arc::clone(&self.executor), self.failures.clone());
        async move {
            // Without the text of a panic, which may be that of a body.
            if AssertUnwindSafe(executor.run(lambda)).catch_unwind().await.is_err() {
                let _ = failures.send("an executor of the worker panicked".to_owned());
            }
        }
    }
}
