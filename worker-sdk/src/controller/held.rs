//! Results that the database held back, because somebody else's open transaction has their rows
//! locked. They are kept with their leases and sent again, at a bounded pace, until the rows are free:
//! else the tasks would run again although they are done.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::{Controller, Order, State};
use crate::work::Finished;

/// Time until they are sent again. Each try that finds a row still locked makes the other results of
/// its exchange wait for 200 ms.
const PAUSE: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Held {
    results: Vec<Finished>,
    until: Option<Instant>,
    /// The worker ends: nothing is kept any more.
    given_up: bool,
}

impl Held {
    pub(super) fn is_empty(&self) -> bool {
        self.results.is_empty()
    }

    /// When there will be something to send.
    pub(super) fn next_at(&self) -> Option<Instant> {
        self.until
    }
}

impl Controller {
    /// Takes results that were held back out of an order, so that the rest of it can be acknowledged.
    pub(crate) fn held_back(&self, order: &mut Order, tasks: &[i64]) {
        if tasks.is_empty() {
            return;
        }
        tracing::warn!(?tasks, "results wait for rows that another session has locked");
        let mut state = self.lock();
        let all = std::mem::take(&mut order.results);
        let (held, recorded) = all.into_iter().partition(|one| tasks.contains(&one.task));
        order.results = recorded;
        state.keep_leases(&held, order);
        state.unacknowledged -= held.len();
        if state.held.given_up {
            return;
        }
        state.held.results.extend(held);
        state.held.until.get_or_insert(Instant::now() + PAUSE);
    }

    /// The worker ends: what is still held back is rescued when its rows are free, and runs again.
    pub(crate) fn give_up_held(&self) {
        let mut state = self.lock();
        state.held.given_up = true;
        state.held.until = None;
        for lost in state.held.results.drain(..) {
            tracing::warn!(task = lost.task, "its row stayed locked: the task will run again");
        }
        self.quiet.notify_waiters();
        self.lanes.notify_waiters();
    }
}

impl State {
    /// Results held back long enough go with the next exchange.
    pub(super) fn take_held(&mut self, now: Instant) {
        if self.held.until.is_some_and(|until| now >= until) {
            self.held.until = None;
            self.results.append(&mut self.held.results);
            self.first_result_at.get_or_insert(now);
        }
    }

    /// The leases of results that were held back are not over with this order.
    fn keep_leases(&mut self, held: &[Finished], order: &mut Order) {
        let mut parts: HashMap<i64, usize> = HashMap::new();
        for one in held {
            *parts.entry(one.lease).or_default() += 1;
        }
        for (lease, kept) in parts {
            if let Some(at) = order.request.done_leases.iter().position(|done| *done == lease) {
                order.request.done_leases.swap_remove(at);
                let all = self.leases.get(&lease).copied().unwrap_or(kept);
                order.parts.push((lease, all.saturating_sub(kept)));
            } else if let Some(part) = order.parts.iter_mut().find(|part| part.0 == lease) {
                part.1 = part.1.saturating_sub(kept);
            }
        }
    }
}
