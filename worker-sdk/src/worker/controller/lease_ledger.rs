//! The lease ledger: which leases this worker holds, and when each one may be dropped.
//!
//! A claim brings tasks under one lease. While the lease exists, its tasks belong to this worker.
//! If the worker dies, the lease leads the rescuer to the tasks that are left.
//!
//! It promises:
//! - A lease is dropped only when every task under it has a recorded outcome.
//! - A lease under which a result was refused is not dropped by counting. A demoted primary refuses
//!   valid results. So the heartbeat looks for the lease, and gives it back where it still exists.
//! - A result whose row is locked keeps its lease. Otherwise its task would run again although it is
//!   done.
//! - A claim whose answer was lost is found: the server counts a lease as ours that we do not know.
//!
//! It must never call the database, read a clock or wait: the caller holds a lock around it.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use crate::db::hsc::{AttemptResult, LeaseId, Verdict};
use crate::worker::work::Work;

/// Results or work on the way to the database.
///
/// The ledger counts them only when it gets this value back, together with a verdict on each item.
/// So nothing is counted twice, and no lease is dropped before the refusals under it are known.
/// Until then no count has changed: a call that was never answered is made again with the
/// same value.
#[derive(Debug)]
#[must_use = "settle it with the answer, or send it again"]
pub(in crate::worker) struct Sent<T> {
    items: Vec<T>,
    last_leases: Vec<LeaseId>,
}

impl<T> Sent<T> {
    /// The items on the way.
    pub(in crate::worker) fn items(&self) -> &[T] {
        &self.items
    }

    /// Leases that end with this call: nothing else is left under them.
    pub(in crate::worker) fn last_leases(&self) -> &[LeaseId] {
        &self.last_leases
    }

    /// The items, if no answer will count them.
    pub(super) fn into_items(self) -> Vec<T> {
        self.items
    }
}

impl<T> Default for Sent<T> {
    fn default() -> Self {
        Self { items: Vec::new(), last_leases: Vec::new() }
    }
}

/// An attempt on the way. Its fence is the number of its lease.
pub(in crate::worker) trait Leased {
    fn lease(&self) -> LeaseId;
}

impl Leased for AttemptResult {
    fn lease(&self) -> LeaseId {
        LeaseId(self.attempt.fence)
    }
}

impl Leased for Work {
    fn lease(&self) -> LeaseId {
        LeaseId(self.fence)
    }
}

#[derive(Debug)]
pub(in crate::worker) struct LeaseLedger {
    open: HashMap<LeaseId, OpenLease>,
    /// Their last results travelled side by side, so no call could drop them. The next one does.
    to_drop: Vec<LeaseId>,
    reconciliation: Reconciliation,
}

#[derive(Debug)]
struct OpenLease {
    /// Tasks without a recorded outcome. Never 0.
    tasks_left: usize,
    /// A result under it was refused.
    refused: bool,
}

impl LeaseLedger {
    /// An empty ledger. The first heartbeat asks for the leases, because an earlier connection of
    /// this executor may have left some.
    pub(in crate::worker) fn new(timing: ReconcileTiming, now: Instant) -> Self {
        Self {
            open: HashMap::new(),
            to_drop: Vec::new(),
            reconciliation: Reconciliation::new(timing, now),
        }
    }

    /// A claim brought `tasks` under `lease`.
    pub(in crate::worker) fn open(&mut self, lease: LeaseId, tasks: usize) {
        if tasks > 0 {
            self.open.insert(lease, OpenLease { tasks_left: tasks, refused: false });
        }
    }

    /// Results leave for the database, with the leases that wait to be dropped.
    pub(in crate::worker) fn send(&mut self, results: Vec<AttemptResult>) -> Sent<AttemptResult> {
        let mut sent = self.divide(results);
        sent.last_leases.append(&mut self.to_drop);
        sent
    }

    /// The database answered: counts the results. Returns those whose rows are locked.
    #[must_use = "these results are not recorded yet"]
    pub(in crate::worker) fn record(
        &mut self,
        sent: Sent<AttemptResult>,
        verdict: impl Fn(&AttemptResult) -> Verdict,
        now: Instant,
    ) -> Vec<AttemptResult> {
        self.settle(sent, verdict, now)
    }

    /// The call is not made. Returns the results, to be sent by another call.
    #[must_use = "these results are not sent"]
    pub(in crate::worker) fn withdraw(&mut self, sent: Sent<AttemptResult>) -> Vec<AttemptResult> {
        let over = sent.last_leases.into_iter().filter(|lease| !self.open.contains_key(lease));
        self.to_drop.extend(over);
        sent.items
    }

    /// Work leaves for the database unfinished.
    pub(in crate::worker) fn give_back(&self, work: Vec<Work>) -> Sent<Work> {
        self.divide(work)
    }

    /// The database answered: counts the work. Returns the work that stays ours.
    #[must_use = "this work is still ours"]
    pub(in crate::worker) fn given_back(
        &mut self,
        sent: Sent<Work>,
        verdict: impl Fn(&Work) -> Verdict,
        now: Instant,
    ) -> Vec<Work> {
        self.settle(sent, verdict, now)
    }

    /// Leases wait to be dropped by the next call.
    pub(in crate::worker) fn has_leases_to_drop(&self) -> bool {
        !self.to_drop.is_empty()
    }

    /// Leases that no call dropped, at the end of the worker.
    pub(in crate::worker) fn take_leases_to_drop(&mut self) -> Vec<LeaseId> {
        std::mem::take(&mut self.to_drop)
    }

    fn divide<T: Leased>(&self, items: Vec<T>) -> Sent<T> {
        let mut counts: HashMap<LeaseId, usize> = HashMap::new();
        for item in &items {
            *counts.entry(item.lease()).or_default() += 1;
        }
        let ends = |(lease, tasks): (LeaseId, usize)| self.ends_with(lease, tasks).then_some(lease);
        Sent { items, last_leases: counts.into_iter().filter_map(ends).collect() }
    }

    /// These are the last tasks under the lease. After a refusal, this worker cannot know the last.
    fn ends_with(&self, lease: LeaseId, tasks: usize) -> bool {
        self.open.get(&lease).is_some_and(|open| open.tasks_left == tasks && !open.refused)
    }

    /// Refusals come before counts. In the other order, a lease whose last results travel side by
    /// side would be dropped although one of them was refused.
    fn settle<T: Leased>(
        &mut self,
        sent: Sent<T>,
        verdict: impl Fn(&T) -> Verdict,
        now: Instant,
    ) -> Vec<T> {
        let is_locked = |item: &T| verdict(item) == Verdict::Locked;
        let (locked, settled): (Vec<T>, Vec<T>) = sent.items.into_iter().partition(is_locked);
        for item in settled.iter().filter(|item| verdict(item) == Verdict::Refused) {
            self.refuse(item.lease(), now);
        }
        for lease in sent.last_leases {
            if locked.iter().all(|item| item.lease() != lease) {
                self.open.remove(&lease);
            }
        }
        settled.iter().for_each(|item| self.count_down(item.lease()));
        locked
    }

    fn refuse(&mut self, lease: LeaseId, now: Instant) {
        let Some(open) = self.open.get_mut(&lease) else { return };
        if !std::mem::replace(&mut open.refused, true) {
            self.reconciliation.suspect(now);
        }
    }

    fn count_down(&mut self, lease: LeaseId) {
        let Some(open) = self.open.get_mut(&lease) else { return };
        open.tasks_left -= 1;
        if open.tasks_left > 0 {
            return;
        }
        let refused = open.refused;
        self.open.remove(&lease);
        if !refused {
            self.to_drop.push(lease);
        }
    }
}

/// How often the server is asked for our leases.
#[derive(Debug, Clone, Copy)]
pub(in crate::worker) struct ReconcileTiming {
    /// With every heartbeat for so long after a broken call: its claim may still be made then.
    pub suspicion: Duration,
    /// Otherwise once in so long. Under a snapshot that some session keeps, one answer reads all
    /// that we held since: 24,000 dead rows after four busy minutes.
    pub period: Duration,
}

/// When to ask, and what the server said the last time.
#[derive(Debug)]
struct Reconciliation {
    timing: ReconcileTiming,
    suspect_until: Instant,
    ask_at: Instant,
    /// A lease was unknown for the first time.
    ask_again: bool,
    unknown: HashSet<LeaseId>,
    disowned: HashSet<LeaseId>,
}

impl Reconciliation {
    fn new(timing: ReconcileTiming, now: Instant) -> Self {
        let (unknown, disowned) = (HashSet::new(), HashSet::new());
        Self { timing, suspect_until: now, ask_at: now, ask_again: false, unknown, disowned }
    }

    fn suspect(&mut self, now: Instant) {
        self.suspect_until = now + self.timing.suspicion;
    }
}

impl LeaseLedger {
    /// A call broke: suspects that its claim was made, and that the answer is lost.
    pub(in crate::worker) fn suspect_lost_claim(&mut self, now: Instant) {
        self.reconciliation.suspect(now);
    }

    /// The next heartbeat shall ask for our leases.
    pub(in crate::worker) fn reconcile_due(&self, now: Instant) -> bool {
        let Reconciliation { suspect_until, ask_at, ask_again, .. } = self.reconciliation;
        ask_again || now < suspect_until || now >= ask_at
    }

    /// Compares the leases that the server counts as ours with those we know. Returns lost
    /// claims: unknown twice in a row, because a claim under way looks the same once. They are
    /// disowned, to be given back.
    pub(in crate::worker) fn reconcile(&mut self, held: &[LeaseId], now: Instant) -> Vec<LeaseId> {
        let unknown: HashSet<_> =
            held.iter().copied().filter(|lease| !self.open.contains_key(lease)).collect();
        let last = &mut self.reconciliation;
        let lost: Vec<_> = unknown.intersection(&last.unknown).copied().collect();
        last.disowned.extend(&lost);
        // Counted from the answer: a heartbeat that broke has named nothing.
        last.ask_at = now + last.timing.period;
        // Once more for new ones, and then not: a busy worker always has a claim under way.
        last.ask_again = !unknown.is_empty() && !last.ask_again;
        last.unknown = unknown;
        lost
    }

    /// True: the claim was disowned before its answer came. Drop the answer: its lease was given
    /// back.
    pub(in crate::worker) fn take_disowned(&mut self, lease: LeaseId) -> bool {
        self.reconciliation.disowned.remove(&lease)
    }
}

#[cfg(test)]
mod tests;
