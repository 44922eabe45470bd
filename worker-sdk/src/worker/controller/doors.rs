//! The calls of the worker's connections. Each call takes the lock, asks one part of the state, and wakes
//! the tasks that wait for its change.

use std::time::Instant;

use super::lease_ledger::Sent;
use super::{Controller, Peek, State};
use crate::db::hsc::{Attempt, AttemptResult, LeaseId, Verdict, Watched};
use crate::worker::work::{StopReason, Work};

/// Slots: for the executors, the heartbeat and the drain.
impl Controller {
    /// Executors of a lambda.
    pub(crate) fn slots(&self, lambda: usize) -> usize {
        self.lock().slots.of(lambda)
    }

    /// Attempts that run and that the database still has as claimed.
    pub(crate) fn unreported(&self) -> Vec<Attempt> {
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

    /// The work that came back unfinished since the last call.
    pub(crate) fn take_abandoned(&self) -> Vec<Work> {
        std::mem::take(&mut self.lock().abandoned)
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

    /// The answer for a bell. True: a queue sleeps under its lock, which is ours. False: if we got the
    /// lock, it is to be given up.
    pub(crate) fn watch_answered(&self, bell: i32, said: Watched) -> bool {
        let mut state = self.lock();
        let State { watch, slots, .. } = &mut *state;
        let is_free = |queue| slots.will_have_free_slot(queue);
        let answer = watch.answered(bell, said, is_free, Instant::now());
        self.look_if(answer.look);
        answer.watching
    }

    /// A notification on a bell that we hold. False: its lock is to be given up.
    pub(crate) fn called(&self, bell: i32, queue_id: i32) -> bool {
        let mut state = self.lock();
        let State { watch, slots, .. } = &mut *state;
        let is_free = |queue| slots.will_have_free_slot(queue);
        let called = watch.called(bell, queue_id, is_free, Instant::now());
        self.look_if(called.look);
        called.keep
    }

    /// A notification on a bell that another worker keeps; the queue, if it is ours.
    pub(crate) fn overheard(&self, bell: i32, queue_id: i32) -> Option<usize> {
        self.lock().watch.heard(bell, queue_id, Instant::now())
    }

    /// A notification shall wake this queue although another worker keeps watch.
    pub(crate) fn distrusts(&self, queue: usize) -> bool {
        self.lock().watch.distrusts(queue, Instant::now())
    }

    /// A reason to look into one queue; `None`: into all of them. No lock is held from here on.
    pub(crate) fn woken(&self, queue: Option<usize>) {
        self.lock().watch.wake(queue);
        self.exchanges.notify_one();
    }

    /// The lock of a bell is about to go: what sleeps under it wakes.
    pub(crate) fn give_up(&self, bell: i32) {
        self.lock().watch.give_up(bell, Instant::now());
        self.exchanges.notify_one();
    }

    /// The watch connection broke, and with it each lock of ours.
    pub(crate) fn unwatched(&self) {
        self.lock().watch.lost_all();
    }

    /// The sleeping queues whose safety poll is near.
    pub(crate) fn peeks_at(&self, now: Instant) -> Vec<Peek> {
        let state = self.lock();
        state.watch.peeks_at(|queue| state.slots.has_room(queue), now)
    }

    /// The queues that sleep under bells which other workers hold, perhaps for other queues.
    pub(crate) fn peeks_under(&self, bells: &[i32], now: Instant) -> Vec<Peek> {
        if bells.is_empty() {
            return Vec::new();
        }
        let mut state = self.lock();
        let State { watch, slots, .. } = &mut *state;
        let (peeks, woke) = watch.peeks_under(bells, |queue| slots.has_room(queue), now);
        self.look_if(woke);
        peeks
    }

    /// Peeks are sent: the claims of these queues wait for the answer.
    pub(crate) fn peeking(&self, peeks: &[Peek], sent: Instant) {
        self.lock().watch.peeking(peeks, sent);
    }

    /// Takes the answers of peeks that were sent at that time.
    pub(crate) fn peeked(&self, peeks: &[Peek], found: &[bool], sent: Instant) {
        let look = self.lock().watch.peeked(peeks, found, sent);
        self.look_if(look);
    }

    fn look_if(&self, look: bool) {
        if look {
            self.exchanges.notify_one();
        }
    }
}
