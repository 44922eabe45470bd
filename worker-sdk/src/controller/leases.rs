//! Which leases are ours, and when one may go: when the outcome of every task under it is recorded.
//! Until then it must stay, or nobody would rescue what is left of it after our death. A task of which the
//! database says that it is not ours has no outcome yet, should that database be a primary that is none any
//! more: its lease is left, and given back once the heartbeat finds it, where there is one left.

use std::collections::{HashMap, HashSet};
use std::time::Instant;

use super::{Controller, Order, State};
use crate::work::Work;

impl Controller {
    /// Leases of work about to be given back under which nothing else is left.
    pub(crate) fn last_leases(&self, back: &[Work]) -> Vec<i64> {
        let state = self.lock();
        let parts = parts_of(back);
        parts.into_iter().filter(|part| state.is_last(*part)).map(|(lease, _)| lease).collect()
    }

    /// The work was given back, with these leases.
    pub(crate) fn given_back(&self, back: &[Work], leases: &[i64]) {
        let mut state = self.lock();
        for lease in leases {
            state.forget_lease(*lease);
        }
        for part in parts_of(back) {
            state.count_down(part);
        }
        self.lanes.notify_one();
    }

    /// Tasks under these leases are not ours any more, says the database. Before they are counted as done.
    pub(crate) fn refused(&self, leases: impl Iterator<Item = i64>) {
        let mut state = self.lock();
        let State { leases: known, refused_leases, .. } = &mut *state;
        let before = refused_leases.len();
        refused_leases.extend(leases.filter(|lease| known.contains_key(lease)));
        if refused_leases.len() > before {
            self.doubt(&mut state);
        }
    }

    /// The work could not be given back: it stays ours until the next try.
    pub(crate) fn keep_abandoned(&self, back: Vec<Work>) {
        self.lock().abandoned.extend(back);
    }

    /// Leases that are over and that no lane dropped.
    pub(crate) fn take_settled_leases(&self) -> Vec<i64> {
        std::mem::take(&mut self.lock().settled_leases)
    }

    /// Whether the next heartbeat shall name our leases: for a while after an exchange that broke, whose
    /// claim may have been made, and else one in twelve. Under an old snapshot that some session keeps,
    /// naming them reads all that we have held since: 24,000 dead rows after four busy minutes.
    pub(crate) fn wants_leases(&self, now: Instant) -> bool {
        let state = self.lock();
        state.leases_again || now < state.doubt_until || now >= state.leases_at
    }

    /// An exchange broke: its claim may be made, or be made once a partition heals.
    pub(super) fn doubt(&self, state: &mut State) {
        let span = self.config.request_timeout * 2 + self.config.heartbeat_period * 3;
        state.doubt_until = Instant::now() + span;
    }

    /// Compares the leases the database counts as ours with those we know, and answers with those we
    /// did not know twice in a row: claims whose answer never reached us. They are disowned: should
    /// the answer still come, it is dropped.
    pub(crate) fn unknown_leases(&self, held: &[i64], now: Instant) -> Vec<i64> {
        let mut state = self.lock();
        // From the answer on: a heartbeat that broke has named nothing.
        state.leases_at = now + self.config.heartbeat_period * 12;
        let unknown: HashSet<i64> =
            held.iter().copied().filter(|lease| !state.leases.contains_key(lease)).collect();
        let twice: Vec<i64> = unknown.intersection(&state.unknown_leases).copied().collect();
        state.disowned_leases.extend(&twice);
        // One whose answer is under way looks the same: once more, and no more than that.
        state.leases_again = !unknown.is_empty() && !state.leases_again;
        state.unknown_leases = unknown;
        twice
    }
}

impl State {
    /// Divides the leases of an order's results into those that end with it and the others.
    pub(super) fn divide_leases(&mut self, parts: HashMap<i64, usize>, order: &mut Order) {
        order.request.done_leases = std::mem::take(&mut self.settled_leases);
        for part in parts {
            match self.is_last(part) {
                true => order.request.done_leases.push(part.0),
                false => order.parts.push(part),
            }
        }
    }

    /// The results of an order are recorded, and its last leases gone.
    pub(super) fn settle_leases(&mut self, order: &Order) {
        for lease in &order.request.done_leases {
            self.forget_lease(*lease);
        }
        for part in &order.parts {
            self.count_down(*part);
        }
    }

    /// The last parts of a lease may be recorded by two exchanges side by side, none of which could
    /// know that it was the last: then the next one drops the lease.
    fn count_down(&mut self, (lease, tasks): (i64, usize)) {
        let Some(left) = self.leases.get_mut(&lease) else { return };
        *left = left.saturating_sub(tasks);
        if *left > 0 {
            return;
        }
        if !self.forget_lease(lease) {
            self.settled_leases.push(lease);
            self.first_result_at.get_or_insert_with(Instant::now);
        }
    }

    /// True: a result under it was refused.
    fn forget_lease(&mut self, lease: i64) -> bool {
        self.leases.remove(&lease);
        self.refused_leases.remove(&lease)
    }

    fn is_last(&self, (lease, tasks): (i64, usize)) -> bool {
        self.leases.get(&lease) == Some(&tasks) && !self.refused_leases.contains(&lease)
    }
}

fn parts_of(back: &[Work]) -> HashMap<i64, usize> {
    let mut parts = HashMap::new();
    for work in back {
        *parts.entry(work.lease).or_default() += 1;
    }
    parts
}
