//! Planning a claim and unpacking what it brought.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::claim_bound::{ClaimBound, MOST_QUEUES};
use super::queue_watch::{Found, WatchState};
use super::{Controller, Order, State};
use crate::hsc::Reply;
use crate::work::{Stop, Work};

impl Controller {
    /// Adds to the order the queues worth a look whose lambda has room: of lambdas that have a backlog,
    /// or of the others, whose tasks shall not wait until a batch is done. `last`: this lane is the one
    /// that is kept for these. One claim is bounded, so lambdas that it leaves out come first in the next.
    pub(super) fn plan_claims(
        &self,
        state: &mut State,
        order: &mut Order,
        with_results: bool,
        last: bool,
        now: Instant,
    ) {
        // Owed until it is done: another lane may have the aged queue in flight at this moment.
        let aged_first = state.claims >= 3;
        let bytes = ClaimBound::bytes(&self.config, state.buffered_bytes + state.asked_bytes);
        let mut aged_asked = false;
        let backlogs: &[Option<bool>] = match (state.lanes, last) {
            (..=1, _) => &[None],
            (_, true) => &[Some(false)],
            (_, false) => &[Some(true), Some(false)],
        };
        for backlog in backlogs {
            let mut lambdas = self.worth_asking(state, *backlog, with_results, now);
            if bytes.is_none() {
                lambdas.retain(|lambda| state.loads[*lambda].is_starved());
            }
            state.claim_bound.sort(&mut lambdas);
            let mut left = state.claim_bound.tasks;
            for (at, index) in lambdas.iter().copied().enumerate() {
                let share = ClaimBound::share(left, lambdas.len() - at);
                let room = state.loads[index].room(&self.config).min(share);
                if room == 0 || order.queues.len() >= MOST_QUEUES {
                    break;
                }
                left -= room;
                aged_asked |= self.plan_claim(state, order, index, room, aged_first, now);
            }
            if !order.queues.is_empty() {
                order.bulk = *backlog == Some(true);
                break;
            }
        }
        if !order.queues.is_empty() {
            let bytes = bytes.unwrap_or(1);
            state.asked_bytes += bytes;
            order.request.max_bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        }
        order.planned_at = Some(now);
        if aged_asked {
            state.claims = 0;
        } else {
            state.claims += u64::from(!order.queues.is_empty());
        }
    }

    /// Lambdas with room and with a queue to ask: those that have a backlog, the others, or all.
    fn worth_asking(
        &self,
        state: &mut State,
        backlog: Option<bool>,
        with_results: bool,
        now: Instant,
    ) -> Vec<usize> {
        let mut worth = Vec::new();
        for (index, lambda) in self.lambdas.iter().enumerate() {
            let deep = || lambda.queues.iter().any(|queue| state.queues[*queue].deep);
            if backlog.is_none_or(|backlog| backlog == deep())
                && self.has_room(state, index, with_results)
                && lambda.queues.iter().any(|queue| self.is_due(state, *queue, now))
            {
                worth.push(index);
            }
        }
        worth
    }

    /// Alone, without results to send, a claim is worth its commit only if there is room for a good batch
    /// or nothing buffered.
    fn has_room(&self, state: &mut State, index: usize, with_results: bool) -> bool {
        let lambda = &self.lambdas[index];
        let load = &state.loads[index];
        let room = load.room(&self.config).min(self.config.max_batch);
        let alone_worth = room * 2 >= load.target(&self.config).min(self.config.max_batch)
            || load.buffered + load.asked == 0;
        for queue in &lambda.queues {
            if room == 0 || state.queues[*queue].room(&self.config) == Some(0) {
                self.stop_watching(state, *queue);
            }
        }
        room > 0 && (with_results || alone_worth)
    }

    fn is_due(&self, state: &State, queue: usize, now: Instant) -> bool {
        let queue = &state.queues[queue];
        queue.is_askable(now)
            && (queue.claiming == 0 || queue.deep)
            && queue.room(&self.config) != Some(0)
    }

    /// Asks for so many tasks of one lambda. True: an aged queue is asked first.
    fn plan_claim(
        &self,
        state: &mut State,
        order: &mut Order,
        index: usize,
        room: usize,
        aged_first: bool,
        now: Instant,
    ) -> bool {
        let mut aged_asked = false;
        let queues = self.lambdas[index].queues.iter().copied();
        let mut queues: Vec<_> = queues.filter(|queue| self.is_due(state, *queue, now)).collect();
        if aged_first {
            let fresh = |queue: &usize| {
                now.duration_since(state.queues[*queue].served_at) < self.config.priority_ageing
            };
            queues.sort_by_key(fresh);
            aged_asked = !fresh(&queues[0]);
        }
        order.groups.push((index, room));
        order.request.budgets.push(i32::try_from(room).unwrap_or(i32::MAX));
        let group = i16::try_from(order.groups.len()).unwrap_or(i16::MAX);
        state.loads[index].asked += room;
        order.asked_before.push(state.claim_bound.ask(index));
        for queue in queues {
            let state = &mut state.queues[queue];
            let bound = state.room(&self.config).map(|own| own.min(room));
            if let (Some(load), Some(asked)) = (&mut state.bound, bound) {
                load.asked += asked;
            }
            state.claiming += 1;
            state.woken = false;
            order.request.queues.push(self.queues[queue].queue_id);
            let asked = state.mark.for_claim(now);
            order.request.marks.push(asked.mark);
            order.asked.push(asked);
            order.request.groups.push(group);
            order.request.bounds.push(bound.and_then(|bound| i32::try_from(bound).ok()));
            order.bounds.push(bound);
            order.queues.push(queue);
        }
        aged_asked
    }

    /// The claim of an order was not answered in time, or ended by the statement timeout.
    pub(crate) fn was_late(&self, order: &Order) {
        let mut state = self.lock();
        state.claim_bound.halve(order);
        let max_batch = state.claim_bound.tasks;
        tracing::warn!(
            max_batch,
            "claims are smaller from now on: the last one was not answered in time"
        );
    }

    /// The claim of an order failed or was left out: as if it had never been asked.
    pub(crate) fn unclaim(&self, order: &mut Order) {
        let mut state = self.lock();
        state.end_claim(order);
        self.doubt(&mut state);
        drop(state);
        // The lane that failed has to wait; another may claim.
        self.lanes.notify_one();
        order.forget_claim();
    }

    /// Unpacks what a claim brought into the buffers and wakes the executors. Answers with the lease
    /// to give back, if it was disowned meanwhile.
    pub(crate) fn claimed(&self, order: &Order, reply: Reply) -> Option<i64> {
        let now = Instant::now();
        let mut state = self.lock();
        state.end_claim(order);
        if let Some(planned_at) = order.planned_at.filter(|_| !order.queues.is_empty()) {
            state.claim_bound.recover(&self.config, now.duration_since(planned_at));
        }
        self.learn(&mut state, order, &reply, now);
        let lease = reply.lease?;
        if state.disowned_leases.remove(&lease) || reply.tasks.is_empty() {
            return None;
        }
        if state.draining {
            return Some(lease);
        }
        state.leases.insert(lease, reply.tasks.len());
        let mut brought = vec![0_usize; self.lambdas.len()];
        for task in reply.tasks {
            let queue = order.queues[task.queue];
            brought[self.queues[queue].lambda] += 1;
            let payload = task.payload.map_or_else(|| "null".into(), |json| json.0);
            state.buffered_bytes += payload.len();
            let queue = &mut state.queues[queue];
            queue.served_at = now;
            if let Some(bound) = &mut queue.bound {
                bound.buffered += 1;
            }
            queue.buffer.push_back(Work {
                task: task.id,
                fence: lease,
                lease,
                attempt: task.attempt,
                crashes: task.crashes,
                waited: task.waited,
                claimed_at: now,
                collection: task.collection,
                payload,
                stop: Arc::new(Stop::default()),
            });
        }
        for (index, count) in brought.into_iter().enumerate() {
            let load = &mut state.loads[index];
            load.buffered += count;
            for _ in 0..count.min(load.slots - load.running.min(load.slots)) {
                self.lambdas[index].work.notify_one();
            }
        }
        None
    }

    fn learn(&self, state: &mut State, order: &Order, reply: &Reply, now: Instant) {
        let Some(around) = reply.around else { return };
        let found = reply.popped.iter().flatten().map(|n| usize::try_from(*n).unwrap_or(0)).sum();
        state.calls.learn_pace(found, order.queues.len(), self.most_doublings());
        if let Some(group) = reply.cut_at.and_then(|cut| order.request.groups.get(cut)) {
            let reached = usize::try_from(*group).unwrap_or_default();
            let groups = order.groups.iter().zip(&order.asked_before);
            for ((lambda, _), asked_before) in groups.skip(reached) {
                state.claim_bound.left_out(*lambda, *asked_before);
            }
        }
        let mut left: Vec<usize> = order.groups.iter().map(|(_, budget)| *budget).collect();
        for (at, index) in order.queues.iter().copied().enumerate() {
            let group = usize::try_from(order.request.groups[at] - 1).unwrap_or_default();
            // The budget was used up before this queue's turn: nothing was learnt of it.
            let Some(popped) = reply.popped.get(at).copied().flatten() else { continue };
            let popped = usize::try_from(popped).unwrap_or_default();
            let State { queues, calls, rests, .. } = &mut *state;
            let queue = &mut queues[index];
            let below = reply.first_seq[at].map(|first| first - 1);
            queue.mark.learn(order.asked[at], below, reply.last_seq[at], around);
            queue.deep = reply.cut_at == Some(at)
                || popped
                    >= order
                        .bounds
                        .get(at)
                        .copied()
                        .flatten()
                        .map_or(left[group], |bound| bound.min(left[group]));
            left[group] -= popped.min(left[group]);
            if queue.deep {
                self.found_plenty(queue, index);
            } else {
                let asleep = queue.watch == WatchState::Asleep;
                let longest_wait = if asleep { reply.longest_wait(at) } else { Duration::ZERO };
                let found = Found { tasks: popped, longest_wait };
                self.found_empty(queue, (calls, rests), index, found, now);
            }
        }
    }
}

impl Order {
    /// Leaves the results only.
    pub(crate) fn forget_claim(&mut self) {
        self.bulk = false;
        self.queues.clear();
        self.asked.clear();
        self.groups.clear();
        self.asked_before.clear();
        self.request.queues.clear();
        self.request.marks.clear();
        self.request.groups.clear();
        self.request.bounds.clear();
        self.bounds.clear();
        self.request.budgets.clear();
    }
}

impl State {
    fn end_claim(&mut self, order: &Order) {
        self.bulk -= usize::from(order.bulk);
        if !order.queues.is_empty() {
            self.asked_bytes -= usize::try_from(order.request.max_bytes).unwrap_or(usize::MAX);
        }
        for (queue, bound) in order.queues.iter().zip(&order.bounds) {
            let queue = &mut self.queues[*queue];
            queue.claiming -= 1;
            if let (Some(load), Some(asked)) = (&mut queue.bound, bound) {
                load.asked -= asked;
            }
        }
        for (lambda, budget) in &order.groups {
            self.loads[*lambda].asked -= budget;
        }
    }
}
