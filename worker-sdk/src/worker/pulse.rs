//! One heartbeat, on whichever connection it goes, and what its answer means for the worker.
//!
//! A new connection may lead to another database than the last one: a copy of an earlier state that was
//! put under the same address. So each begins with a heartbeat, and nothing else is sent before its answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use crate::db::connect::{ConnectionError, Session, in_time};
use crate::db::hsc;
use crate::db::hsc::Beat;
use crate::worker::host::Host;
use crate::worker::watchdog::{Loss, Watchdog, clock_ns};

#[derive(Debug)]
pub(crate) struct Pulse {
    pub(crate) executor: i64,
    pub(crate) limit: Duration,
    pub(crate) watchdog: Arc<Watchdog>,
    /// A host that is told of each acknowledged heartbeat, and for how long its bodies may run from there.
    host: Option<(Arc<Host>, Duration)>,
    /// Heartbeats that were acknowledged under this number. A row that knows fewer is of the past.
    acknowledged: AtomicI64,
}

impl Pulse {
    pub(crate) fn new(executor: i64, limit: Duration, watchdog: Arc<Watchdog>) -> Self {
        Self { executor, limit, watchdog, host: None, acknowledged: AtomicI64::new(0) }
    }

    pub(crate) fn tell(&mut self, host: Arc<Host>, grants: Duration) {
        self.host = Some((host, grants));
    }

    /// The time of a heartbeat, or of the registration, that the database has acknowledged.
    pub(crate) fn counts_from(&self, sent_ns: u64) {
        if let Some((host, grants)) = &self.host {
            let grants = u64::try_from(grants.as_nanos()).unwrap_or(u64::MAX);
            host.alive_until(Some(sent_ns.saturating_add(grants)));
        }
    }

    /// One heartbeat. What counts is when it was sent, and only if it is acknowledged.
    pub(crate) async fn beat(
        &self,
        session: &Session,
        draining: bool,
        leases: bool,
    ) -> Result<Beat, ConnectionError> {
        let uncertain = session.uncertain_commits();
        let acknowledged = self.acknowledged.load(Ordering::Relaxed);
        let sent_ns = clock_ns();
        // A test that keeps a history of the worker reads these two from the trace.
        tracing::trace!(beat = sent_ns, "heartbeat sent");
        let processes = self.host.as_ref().map(|(host, _)| host.processes());
        let processes = processes.as_deref();
        let call =
            hsc::heartbeat(session, self.executor, draining, leases, acknowledged, processes);
        let beat = in_time(self.limit, call).await?;
        if session.uncertain_commits() > uncertain {
            // A standby that is promoted knows nothing of it, and would not count it.
            return Err("its commit is uncertain".into());
        }
        #[cfg(not(mutants))]
        let counts_from = sent_ns;
        #[cfg(mutants)]
        let counts_from =
            if crate::db::fault_injection::is("t_from_ack") { clock_ns() } else { sent_ns };
        let alive = beat.alive && self.watchdog.acknowledge(counts_from);
        if alive {
            self.counts_from(counts_from);
        }
        tracing::trace!(beat = sent_ns, alive, "heartbeat answered");
        match beat.alive {
            true => drop(self.acknowledged.fetch_add(1, Ordering::Relaxed)),
            false if beat.past => self.watchdog.condemn(Loss::Past),
            false => self.watchdog.condemn(Loss::Ended),
        }
        Ok(beat)
    }

    /// The first statement on a new connection. An error: nothing else may be sent on it.
    pub(crate) async fn prove(&self, session: &Session) -> Result<(), ConnectionError> {
        match self.beat(session, false, false).await?.alive {
            true => Ok(()),
            false => Err("this database counts the worker as dead".into()),
        }
    }
}
