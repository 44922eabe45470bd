//! The next step of an exchange connection: send these results, claim from these queues, or wait.

use std::time::Instant;

use super::claim_bound::{ClaimBound, MOST_QUEUES};
use super::exchange_plan::{ClaimPlan, ExchangePlan};
use super::lease_ledger::Sent;
use super::queue_watch::WatchedQueue;
use super::{Controller, State};
use crate::db::hsc::{AttemptResult, Claim, LambdaClaim, QueueClaim};

enum Decision {
    Go(Box<ExchangePlan>),
    Wait(Option<Instant>),
    End,
}

/// The lambdas that one claim may ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ask {
    /// The lambdas that have a backlog.
    Backlogs,
    /// The lambdas that have none. Their tasks shall not wait until a batch is done.
    Quick,
    All,
}

impl Controller {
    /// Waits until there is something to exchange; `None`: the worker has drained.
    pub(crate) async fn next_exchange(&self) -> Option<Box<ExchangePlan>> {
        loop {
            let notified = self.exchanges.notified();
            tokio::pin!(notified);
            notified.as_mut().enable();
            match self.decide(Instant::now()) {
                Decision::Go(plan) => return Some(plan),
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
        state.take_deferred(now);
        // One connection is kept for short calls: behind a long batch, the next task would wait for all of it.
        let reserved = !state.draining && state.bulk > 0 && state.bulk + 1 >= state.connections;
        let results_due = !reserved && state.results_due(self, now);
        let mut plan = ExchangePlan::default();
        if !state.draining {
            self.plan_claim(&mut state, &mut plan, results_due, reserved, now);
        }
        if results_due || plan.claim.is_some() {
            if !reserved {
                plan.sent = state.send_results(self);
            }
            plan.bulk |= plan.sent.items().len() >= self.config.max_batch;
            state.bulk += usize::from(plan.bulk);
            let more = !reserved && state.results_due(self, now);
            if more || state.watch.queues.iter().any(|queue| queue.has_backlog) {
                self.exchanges.notify_one();
            }
            return Decision::Go(Box::new(plan));
        }
        if state.draining && state.is_flushed() {
            self.quiet.notify_waiters();
            self.exchanges.notify_waiters();
            return Decision::End;
        }
        let linger = state.first_result_at.map(|at| at + self.config.linger).filter(|_| !reserved);
        let claim_at = (!state.draining).then(|| state.next_claim_at(self, now)).flatten();
        Decision::Wait([linger, claim_at, state.deferred.due_at()].into_iter().flatten().min())
    }

    /// Adds a claim to the plan: of lambdas that have a backlog, or else of the quick ones. `reserved`: this
    /// connection is the one that is kept for the quick ones. One claim is bounded. Lambdas that it leaves
    /// out come first in the next.
    fn plan_claim(
        &self,
        state: &mut State,
        plan: &mut ExchangePlan,
        with_results: bool,
        reserved: bool,
        now: Instant,
    ) {
        let taken = state.slots.buffered_bytes() + state.asked_bytes;
        let bytes = ClaimBound::bytes(&self.config, taken);
        let asks: &[Ask] = match (state.connections, reserved) {
            (..=1, _) => &[Ask::All],
            (_, true) => &[Ask::Quick],
            (_, false) => &[Ask::Backlogs, Ask::Quick],
        };
        // It stays due until it is done: another connection may have the aged queue in flight at this moment.
        let aged_first = state.claims_since_aged >= 3;
        for ask in asks {
            let mut lambdas = self.worth_asking(state, *ask, with_results, now);
            if bytes.is_none() {
                lambdas.retain(|lambda| state.slots.is_starved(*lambda));
            }
            let Some(mut claim) = self.claim_of(state, lambdas, aged_first, now) else { continue };
            claim.claim.max_bytes = bytes.unwrap_or(1);
            state.asked_bytes += claim.claim.max_bytes;
            plan.claim = Some(claim);
            plan.bulk = *ask == Ask::Backlogs;
            return;
        }
    }

    /// Lambdas with room and with a queue to ask.
    fn worth_asking(
        &self,
        state: &mut State,
        ask: Ask,
        with_results: bool,
        now: Instant,
    ) -> Vec<usize> {
        let mut worth = Vec::new();
        for (index, lambda) in self.lambdas.iter().enumerate() {
            let mut queues = lambda.queues.iter();
            let asked = match ask {
                Ask::All => true,
                _ => {
                    (ask == Ask::Backlogs)
                        == queues.any(|queue| state.watch.queues[*queue].has_backlog)
                }
            };
            if asked
                && self.has_room(state, index, with_results, now)
                && lambda.queues.iter().any(|queue| state.is_due(*queue, now))
            {
                worth.push(index);
            }
        }
        worth
    }

    fn has_room(&self, state: &mut State, index: usize, with_results: bool, now: Instant) -> bool {
        let room = state.slots.room(index);
        for queue in &self.lambdas[index].queues {
            let full = room == 0 || state.slots.queue_room(*queue) == Some(0);
            if full && !state.slots.will_have_free_slot(*queue) {
                state.watch.no_free_slot(*queue, now);
            }
        }
        room > 0 && (with_results || state.slots.is_worth_a_claim(index))
    }

    /// One claim of these lambdas, the one first that was asked longest ago.
    fn claim_of(
        &self,
        state: &mut State,
        mut lambdas: Vec<usize>,
        aged_first: bool,
        now: Instant,
    ) -> Option<ClaimPlan> {
        state.claim_bound.sort(&mut lambdas);
        let mut plan =
            ClaimPlan { claim: Claim::default(), asked_before: Vec::new(), planned_at: now };
        let mut left = state.claim_bound.tasks;
        let (mut queues, mut aged_asked) = (0, false);
        for (at, lambda) in lambdas.iter().copied().enumerate() {
            let share = ClaimBound::share(left, lambdas.len() - at);
            let budget = state.slots.room(lambda).min(share);
            if budget == 0 || queues >= MOST_QUEUES {
                break;
            }
            left -= budget;
            let part = self.claim_of_one(state, lambda, budget, aged_first, &mut aged_asked, now);
            queues += part.queues.len();
            plan.asked_before.push(state.claim_bound.ask(lambda));
            state.slots.ask(&part);
            plan.claim.lambdas.push(part);
        }
        if plan.claim.lambdas.is_empty() {
            return None;
        }
        state.claims_since_aged = if aged_asked { 0 } else { state.claims_since_aged + 1 };
        Some(plan)
    }

    /// The part of a claim that asks one lambda for so many tasks.
    fn claim_of_one(
        &self,
        state: &mut State,
        lambda: usize,
        budget: usize,
        aged_first: bool,
        aged_asked: &mut bool,
        now: Instant,
    ) -> LambdaClaim {
        let queues = self.lambdas[lambda].queues.iter().copied();
        let mut queues: Vec<_> = queues.filter(|queue| state.is_due(*queue, now)).collect();
        if aged_first {
            let fresh = |queue: &usize| {
                let served_at = state.watch.queues[*queue].served_at;
                now.duration_since(served_at) < self.config.priority_ageing
            };
            queues.sort_by_key(fresh);
            *aged_asked |= !fresh(&queues[0]);
        }
        let State { watch, slots, .. } = state;
        let part = |queue| QueueClaim {
            queue,
            queue_id: watch.queues[queue].id,
            asked: watch.claim_sent(queue, now),
            bound: slots.queue_room(queue).map(|own| own.min(budget)),
        };
        LambdaClaim { lambda, budget, queues: queues.into_iter().map(part).collect() }
    }
}

impl State {
    /// A claim of this queue makes sense now.
    fn is_due(&self, queue: usize, now: Instant) -> bool {
        self.watch.is_due(queue, now) && self.slots.queue_room(queue) != Some(0)
    }

    fn results_due(&self, controller: &Controller, now: Instant) -> bool {
        let Some(first) = self.first_result_at else { return false };
        self.results.len() >= controller.config.max_batch
            || now >= first + controller.config.linger
            || self.slots.are_idle()
    }

    fn send_results(&mut self, controller: &Controller) -> Sent<AttemptResult> {
        let take =
            self.fitting_results(controller.config.max_batch, controller.config.max_batch_bytes);
        let sent = self.ledger.send(self.results.drain(..take).collect());
        self.unacknowledged += take;
        self.first_result_at = (!self.results.is_empty()).then(Instant::now);
        sent
    }

    /// How many results go into one exchange: bounded by number and by size, but one at least.
    fn fitting_results(&self, max_batch: usize, max_bytes: usize) -> usize {
        let mut bytes = 0;
        let fits = |one: &&AttemptResult| {
            bytes += one.note.as_ref().map_or(0, String::len);
            bytes <= max_bytes
        };
        let fitting = self.results.iter().take(max_batch * 2).take_while(fits).count();
        fitting.max(1).min(self.results.len())
    }

    /// Deferred results whose pause is over go with the next exchange.
    fn take_deferred(&mut self, now: Instant) {
        let due = self.deferred.take_due(now);
        if !due.is_empty() {
            self.results.extend(due);
            self.first_result_at.get_or_insert(now);
        }
    }

    fn next_claim_at(&self, controller: &Controller, now: Instant) -> Option<Instant> {
        let askable = |(index, queue): (usize, &WatchedQueue)| {
            let idle = queue.claims == 0 && self.slots.has_room(index);
            idle.then(|| queue.state.claim_at())
        };
        let next = self.watch.queues.iter().enumerate().filter_map(askable).min()?;
        // A queue that is askable already but was left out waits for room: results bring that.
        Some(if next > now { next } else { now + controller.config.linger })
    }
}
