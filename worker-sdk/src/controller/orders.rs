//! What a lane is told to do next: send these results, claim from these queues, or wait.

use std::collections::HashMap;
use std::time::Instant;

use super::{Controller, State};
use crate::config::WorkerConfig;
use crate::hsc::Request;
use crate::low_water_mark::Asked;
use crate::work::Finished;

/// One exchange to be made.
#[derive(Debug, Default)]
pub(crate) struct Order {
    pub request: Request,
    /// When its claim was planned.
    pub(super) planned_at: Option<Instant>,
    /// It has results, or claims from lambdas that have a backlog.
    pub(super) bulk: bool,
    /// Indices of the queues asked, in the request's order.
    pub(super) queues: Vec<usize>,
    /// What each was asked for at most, if it has a bound of its own.
    pub(super) bounds: Vec<Option<usize>>,
    /// What their marks were.
    pub(super) asked: Vec<Asked<i64>>,
    /// (lambda, budget), in the order of the request's groups.
    pub(super) groups: Vec<(usize, usize)>,
    /// For each group, the claim that asked its lambda before.
    pub(super) asked_before: Vec<u64>,
    /// Results in it.
    pub(super) results: Vec<Finished>,
    /// (lease, results) of leases of which this is not the last result.
    pub(super) parts: Vec<(i64, usize)>,
}

impl Order {
    /// Leases of these of its results.
    pub(crate) fn leases_of(&self, tasks: &[i64]) -> impl Iterator<Item = i64> {
        self.results.iter().filter(|one| tasks.contains(&one.task)).map(|one| one.lease)
    }
}

enum Decision {
    Go(Box<Order>),
    Wait(Option<Instant>),
    End,
}

impl Controller {
    /// Waits until there is something to exchange; `None`: drained.
    pub(crate) async fn next_order(&self) -> Option<Box<Order>> {
        loop {
            let notified = self.lanes.notified();
            tokio::pin!(notified);
            notified.as_mut().enable();
            match self.decide(Instant::now()) {
                Decision::Go(order) => return Some(order),
                Decision::End => return None,
                Decision::Wait(Some(at)) => {
                    tokio::select! {
                        () = notified => {}
                        () = tokio::time::sleep_until(at.into()) => {}
                    }
                }
                Decision::Wait(None) => notified.await,
            }
        }
    }

    fn decide(&self, now: Instant) -> Decision {
        let mut state = self.lock();
        state.take_held(now);
        // One lane is kept for what is quick: a batch would make the next task wait for all of it.
        let last = !state.draining && state.bulk > 0 && state.bulk + 1 >= state.lanes;
        let results_due = !last && state.results_due(self, now);
        let mut order = Order::default();
        if !state.draining {
            self.plan_claims(&mut state, &mut order, results_due, last, now);
        }
        if results_due || !order.queues.is_empty() {
            if !last {
                state.fill_results(&self.config, &mut order);
            }
            order.bulk |= !order.results.is_empty();
            state.bulk += usize::from(order.bulk);
            let more = !last && state.results_due(self, now);
            if more || state.queues.iter().any(|q| q.deep) {
                self.lanes.notify_one();
            }
            return Decision::Go(Box::new(order));
        }
        if state.draining && state.is_flushed() {
            self.quiet.notify_waiters();
            self.lanes.notify_waiters();
            return Decision::End;
        }
        let linger = state.first_result_at.map(|at| at + self.config.linger).filter(|_| !last);
        let look = (!state.draining).then(|| state.next_look(self, now)).flatten();
        Decision::Wait([linger, look, state.held.next_at()].into_iter().flatten().min())
    }

    /// The results of an order are recorded, or refused.
    pub(crate) fn acknowledged(&self, order: &Order) {
        let mut state = self.lock();
        state.settle_leases(order);
        state.unacknowledged -= order.results.len();
        if state.is_quiet() {
            self.quiet.notify_waiters();
            if state.draining {
                self.lanes.notify_waiters();
            }
        }
    }
}

/// Lanes that are gone, and those for which the server has no connection.
impl Controller {
    /// A lane has ended that should not have.
    pub(crate) fn lose_lane(&self) {
        self.lock().lane_lost = true;
    }

    /// The lane of this order rests: its results go with the next order of another. False: it is the last.
    pub(crate) fn rest_lane(&self, order: &mut Order) -> bool {
        let mut state = self.lock();
        if state.lanes <= 1 {
            return false;
        }
        state.lanes -= 1;
        state.put_back(std::mem::take(order));
        tracing::warn!(lanes = state.lanes, "the server has no connection left for a lane");
        drop(state);
        self.lanes.notify_one();
        true
    }

    /// A lane asks for a connection again.
    pub(crate) fn lane_returns(&self) {
        self.lock().lanes += 1;
    }
}

impl State {
    /// What an order without a claim was to send, back to where it came from.
    fn put_back(&mut self, mut order: Order) {
        self.unacknowledged -= order.results.len();
        order.results.append(&mut self.results);
        self.results = order.results;
        // The others are over with the results.
        let settled = order.request.done_leases.into_iter();
        self.settled_leases.extend(settled.filter(|lease| !self.leases.contains_key(lease)));
        if !self.results.is_empty() || !self.settled_leases.is_empty() {
            self.first_result_at.get_or_insert_with(Instant::now);
        }
    }

    fn results_due(&self, controller: &Controller, now: Instant) -> bool {
        let Some(first) = self.first_result_at else { return false };
        let alone = self.running.is_empty() && self.loads.iter().all(|load| load.buffered == 0);
        self.results.len() >= controller.config.max_batch
            || now >= first + controller.config.linger
            || alone
    }

    fn fill_results(&mut self, config: &WorkerConfig, order: &mut Order) {
        let take = self.fitting_results(config);
        let mut notes = String::new();
        let mut parts: HashMap<i64, usize> = HashMap::new();
        order.results = self.results.drain(..take).collect();
        for one in &order.results {
            match &one.note {
                None => {
                    order.request.tasks.push(one.task);
                    order.request.fences.push(one.fence);
                }
                Some(note) => {
                    notes.push(if notes.is_empty() { '[' } else { ',' });
                    notes.push_str(note);
                }
            }
            *parts.entry(one.lease).or_default() += 1;
        }
        if !notes.is_empty() {
            notes.push(']');
            order.request.notes = Some(notes);
        }
        self.divide_leases(parts, order);
        self.unacknowledged += take;
        self.first_result_at = (!self.results.is_empty()).then(Instant::now);
    }

    /// How many results go into one exchange: by number and by size, but one at least.
    fn fitting_results(&self, config: &WorkerConfig) -> usize {
        let mut bytes = 0;
        let fits = |one: &&Finished| {
            bytes += one.note.as_ref().map_or(0, String::len);
            bytes <= config.max_batch_bytes
        };
        let fitting = self.results.iter().take(config.max_batch * 2).take_while(fits).count();
        fitting.max(1).min(self.results.len())
    }

    fn next_look(&self, controller: &Controller, now: Instant) -> Option<Instant> {
        let askable = |(index, queue): (usize, &super::Queue)| {
            let load = &self.loads[controller.queues[index].lambda];
            let config = &controller.config;
            let room = load.room(config) > 0 && queue.room(config) != Some(0);
            let idle = queue.claiming == 0 && room;
            idle.then(|| queue.askable_at(now))
        };
        let next = self.queues.iter().enumerate().filter_map(askable).min()?;
        // A queue that is askable already but was left out waits for room: results bring that.
        Some(if next > now { next } else { now + controller.config.linger })
    }
}
