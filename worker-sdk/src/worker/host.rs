//! For a host controller (`tuskline controller`): lambdas whose attempts run in processes
//! of their own, slots that come and go with these processes, and the time until which the worker holds its
//! leases. Not for applications.
//!
//! A hosted body waits for a result that comes from elsewhere. It is not dropped when its deadline and grace
//! are over: the host ends its process then, keeps the context until that process has ended,
//! and says how it ended. Where that takes longer than M allows, the watchdog ends this process.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::worker::context::Context;
use crate::worker::lambda::Lambda;
use crate::worker::layer::Body;
use crate::worker::outcome::Outcome;
use crate::worker::watchdog::clock_ns;

/// Told of each acknowledged heartbeat: the time on [`Host::clock_ns`] until which bodies may run. `None`: nothing
/// runs under the registration any more.
type AliveUntil = Box<dyn Fn(Option<u64>) + Send + Sync>;

/// A worker's host: see the module.
pub struct Host {
    slots: Mutex<HashMap<String, usize>>,
    processes: Mutex<Vec<i32>>,
    pub(super) resized: Notify,
    /// Where hosted bodies wait: where their answers come from, so that none has to wake another thread.
    pub(super) runtime: Handle,
    alive_until: AliveUntil,
}

impl Host {
    /// A host without slots yet, whose bodies wait on this runtime.
    pub fn new(runtime: Handle, alive_until: impl Fn(Option<u64>) + Send + Sync + 'static) -> Self {
        let alive_until = Box::new(alive_until);
        let (slots, processes) = (Mutex::default(), Mutex::default());
        Self { slots, processes, resized: Notify::new(), runtime, alive_until }
    }

    /// How many attempts of each lambda may run at once from now on, in these processes; none of lambdas that are
    /// left out.
    pub fn resize(&self, slots: HashMap<String, usize>, processes: &[u32]) {
        let processes = processes.iter().filter_map(|pid| i32::try_from(*pid).ok()).collect();
        *self.processes.lock().unwrap_or_else(PoisonError::into_inner) = processes;
        *self.slots.lock().unwrap_or_else(PoisonError::into_inner) = slots;
        self.resized.notify_one();
    }

    /// Nanoseconds of the clock that counts T. It runs on while the machine sleeps.
    pub fn clock_ns() -> u64 {
        clock_ns()
    }

    pub(super) fn slots_of(&self, lambda: &str) -> usize {
        let slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.get(lambda).copied().unwrap_or(0)
    }

    pub(super) fn processes(&self) -> Vec<i32> {
        self.processes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn alive_until(&self, until_ns: Option<u64>) {
        (self.alive_until)(until_ns);
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host").field("slots", &self.slots).finish_non_exhaustive()
    }
}

impl Lambda {
    /// A lambda of a [`Host`]: the function gets the JSON text of the payload, and its future completes with
    /// the outcome that the attempt's process gave, or with how it ended.
    #[doc(hidden)]
    pub fn hosted<F, Fut>(name: &str, function: F) -> Self
    where
        F: Fn(String, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Outcome> + Send + 'static,
    {
        Self {
            name: Arc::from(name),
            body: Body::new(move |attempt| function(attempt.payload, attempt.context)),
            slots: Some(0),
            bounds: Vec::new(),
            blocking: false,
            #[cfg(feature = "executor")]
            memory_mib: None,
            hosted: true,
            check: |_| Ok(()),
        }
    }
}
