//! The calls of the worker's connections. Each call takes the lock, asks one part of the state, and wakes
//! the tasks that wait for its change.

use std::time::Instant;

use super::lease_ledger::Sent;
use super::{Controller, Peek, State, WatchEvent};
use crate::db::hsc::{Attempt, AttemptResult, LeaseId, Verdict};
use crate::worker::work::{StopReason, Work};

/// Slots: for the executors, the heartbeat and the drain.
impl Controller {
    /// Attempts that run and that the database still has as claimed, and the processes that run them.
    pub(crate) fn unreported(&self) -> Vec<(Attempt, Option<i32>)> {
        self.lock().slots.unreported()
    }

    /// Tells one attempt to stop. A task that waits in a buffer is reported as cancelled at once.
    pub(crate) fn stop(&self, attempt: Attempt) {
        let mut state = self.lock();
        if state.slots.stop(attempt, StopReason::Cancelled) {
            return;
        }
        if let Some(work) = state.slots.take_buffered(attempt) {
            state.first_result_at.get_or_insert_with(Instant::now);
            state.results.push(AttemptResult::cancelled(&work));
            self.exchanges.notify_one();
        }
    }

    /// Tells all running attempts to stop.
    pub(crate) fn stop_all(&self, reason: StopReason) {
        self.lock().slots.stop_all(reason);
    }

    /// A task that runs.
    pub(crate) fn running(&self) -> Option<i64> {
        self.lock().slots.any_running()
    }

    /// A task whose body did not end although its deadline and grace have passed.
    pub(crate) fn overdue(&self, now: Instant) -> Option<i64> {
        self.lock().slots.overdue(now)
    }

    /// The tasks to give back now: abandoned ones, those that wait behind long ones, and those that a
    /// gate holds and no executor has begun.
    pub(crate) fn take_unwanted(&self, gated: &[Attempt], now: Instant) -> Vec<Work> {
        let mut state = self.lock();
        let mut back = std::mem::take(&mut state.abandoned);
        back.extend(state.slots.take_hoarded(now));
        back.extend(gated.iter().filter_map(|attempt| state.slots.take_buffered(*attempt)));
        back
    }
}

/// The lease ledger: for the heartbeat, and for work that is given back.
impl Controller {
    /// Work leaves, to be given back.
    pub(crate) fn give_back(&self, back: Vec<Work>) -> Sent<Work> {
        self.lock().ledger.give_back(back)
    }

    /// The database answered. Work whose row is locked stays ours until the next try.
    pub(crate) fn given_back(&self, sent: Sent<Work>, verdict: impl Fn(&Work) -> Verdict) {
        let mut state = self.lock();
        let locked = state.ledger.given_back(sent, verdict, Instant::now());
        state.abandoned.extend(locked);
        state.expect_lease_drop();
        self.exchanges.notify_one();
    }

    /// The database did not answer: the work stays ours until the next try.
    pub(crate) fn not_given_back(&self, sent: Sent<Work>) {
        self.lock().abandoned.extend(sent.into_items());
    }

    /// Leases that are over and that no exchange dropped.
    pub(crate) fn take_leases_to_drop(&self) -> Vec<LeaseId> {
        self.lock().ledger.take_leases_to_drop()
    }

    /// The next heartbeat shall ask for our leases.
    pub(crate) fn wants_leases(&self, now: Instant) -> bool {
        self.lock().ledger.reconcile_due(now)
    }

    /// Claims whose answer was lost, found among the leases that the server counts as ours.
    pub(crate) fn lost_claims(&self, held: &[LeaseId], now: Instant) -> Vec<LeaseId> {
        self.lock().ledger.reconcile(held, now)
    }

    /// The worker ends: the tasks of deferred results are rescued when their rows are free, and run again.
    pub(crate) fn give_up_deferred(&self) {
        for lost in self.lock().deferred.give_up() {
            let task = lost.attempt.task;
            tracing::warn!(task, "its row stayed locked: the task will run again");
        }
        self.quiet.notify_waiters();
        self.exchanges.notify_waiters();
    }
}

/// The queue watch: for the watch connection.
impl Controller {
    /// The bells of its queues.
    pub(crate) fn bells(&self) -> Vec<i32> {
        self.lock().watch.bells()
    }

    /// Takes an event of the watch connection. True: a queue of ours needs the bell that the event names.
    /// False: if we hold its lock, it is to be given up.
    pub(crate) fn watch_event(&self, event: WatchEvent<'_>) -> bool {
        let mut state = self.lock();
        let State { watch, slots, .. } = &mut *state;
        let effect = watch.take(event, |queue| slots.will_have_free_slot(queue), Instant::now());
        self.look_if(effect.claim_earlier);
        effect.needs_bell
    }

    /// The peeks to send now: at the sleeping queues whose safety poll is near; `under`: at those only that
    /// sleep under these bells, which other workers hold, perhaps for other queues.
    pub(crate) fn peeks(&self, under: Option<&[i32]>, now: Instant) -> Vec<Peek> {
        let mut state = self.lock();
        let State { watch, slots, .. } = &mut *state;
        let (peeks, look) = watch.peeks(under, |queue| slots.has_room(queue), now);
        self.look_if(look);
        peeks
    }

    fn look_if(&self, look: bool) {
        if look {
            self.exchanges.notify_one();
        }
    }
}
