//! The effects of an exchange: results are recorded, tasks come into the buffers, or the call broke.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::exchange_plan::{ClaimPlan, ExchangePlan};
use super::queue_watch::ClaimAnswer;
use super::{Controller, State};
use crate::db::hsc::{AttemptResult, Claimed, LambdaClaim, LeaseId, QueueClaim, Verdict};
use crate::worker::failure_log;
use crate::worker::transition_log;
use crate::worker::work::{Stop, Work};

/// An answer to a claim, for its connection to act on.
#[derive(Debug)]
pub(crate) enum Brought {
    /// Its tasks are in the buffers. These executors are to be started.
    Tasks(Vec<Wanted>),
    /// The worker drains: no executor will begin these tasks, and their lease goes back.
    TooLate(LeaseId),
}

/// Executors of a lambda to start.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub lambda: usize,
    pub executors: usize,
}

impl Controller {
    /// The results of a plan are answered for, each with a verdict.
    pub(crate) fn acknowledged(
        &self,
        plan: &mut ExchangePlan,
        verdict: impl Fn(&AttemptResult) -> Verdict,
    ) {
        let now = Instant::now();
        let mut state = self.lock();
        let mut lines = Vec::new();
        let sent = std::mem::take(&mut plan.sent);
        state.unacknowledged -= sent.items().len();
        for result in sent.items() {
            let verdict = verdict(result);
            self.statistics.answered(result, verdict);
            let (lambda, priority) = self.statistics.names(result.counts);
            transition_log::answered(result, verdict, lambda, priority);
            if verdict == Verdict::Done {
                lines.extend(state.failures.recorded(lambda, result, now));
            }
        }
        let locked = state.ledger.record(sent, verdict, now);
        if !locked.is_empty() {
            let tasks: Vec<_> = locked.iter().map(|one| one.attempt.task).collect();
            tracing::warn!(?tasks, "results wait for rows that another session has locked");
        }
        state.deferred.keep(locked, now);
        state.expect_lease_drop();
        if state.is_quiet() {
            self.quiet.notify_waiters();
            if state.draining {
                self.exchanges.notify_waiters();
            }
        }
        drop(state);
        failure_log::write(lines);
    }

    /// The claim of a plan was not answered in time, or ended by the statement timeout.
    /// Returns the most tasks of a claim from now on.
    pub(crate) fn was_late(&self, plan: &ExchangePlan) -> usize {
        let mut state = self.lock();
        let asked = plan.claim.as_ref().map_or(0, |plan| plan.claim.budget());
        state.claim_bound.halve(asked);
        state.claim_bound.tasks
    }

    /// The call of a plan broke: forgets its claim, which may have been made. The results stay in the plan.
    pub(crate) fn unclaim(&self, plan: &mut ExchangePlan) {
        let mut state = self.lock();
        state.end_claim(plan);
        state.ledger.suspect_lost_claim(Instant::now());
        drop(state);
        // Another connection may have waited for these queues.
        self.exchanges.notify_one();
    }

    /// Unpacks what the claim of a plan brought into the buffers.
    pub(crate) fn claimed(&self, plan: &mut ExchangePlan, claimed: Option<Claimed>) -> Brought {
        let now = Instant::now();
        let nothing = Brought::Tasks(Vec::new());
        let mut state = self.lock();
        let Some(ended) = state.end_claim(plan) else { return nothing };
        state.claim_bound.recover(&self.config, now.duration_since(ended.planned_at));
        let Some(claimed) = claimed else { return nothing };
        state.learn(&ended, &claimed, now);
        match claimed.lease {
            Some(lease) if !state.ledger.take_disowned(lease) && !claimed.tasks.is_empty() => {
                match state.draining {
                    true => Brought::TooLate(lease),
                    false => self.unpack(&mut state, &ended, lease, claimed, now),
                }
            }
            _ => nothing,
        }
    }

    fn unpack(
        &self,
        state: &mut State,
        plan: &ClaimPlan,
        lease: LeaseId,
        claimed: Claimed,
        now: Instant,
    ) -> Brought {
        state.ledger.open(lease, claimed.tasks.len());
        let queues: Vec<usize> = plan.claim.queues().map(|queue| queue.queue).collect();
        let mut brought = vec![0_usize; self.lambdas.len()];
        for task in claimed.tasks {
            let queue = queues[task.queue];
            brought[self.queues[queue].lambda] += 1;
            let work = Work {
                task: task.id,
                fence: lease.0,
                attempt: task.attempt,
                crashes: task.crashes,
                counts: self.queues[queue].counts,
                first_start: !task.claimed_before && task.attempt == 1 && task.crashes == 0,
                waited: task.waited,
                claimed_at: now,
                collection: task.collection,
                traceparent: task.traceparent,
                payload: task.payload.map_or_else(|| "null".into(), |json| json.0),
                stop: Arc::new(Stop::default()),
                crash: None,
            };
            let (lambda, priority) = self.statistics.names(work.counts);
            transition_log::claimed(&work, lambda, priority);
            state.watch.queues[queue].served_at = now;
            state.slots.put(queue, work);
        }
        let brought = brought.into_iter().enumerate();
        let wanted = brought.map(|(lambda, tasks)| Wanted {
            lambda,
            executors: state.slots.start_executors(lambda, tasks),
        });
        Brought::Tasks(wanted.filter(|wanted| wanted.executors > 0).collect())
    }
}

/// Exchange connections that are gone, and those for which the server has no room.
impl Controller {
    /// An exchange is over that was not in the turn of its connection.
    pub(crate) fn exchange_ended(&self) {
        self.exchanges.notify_one();
    }

    /// An exchange connection has ended that should not have.
    pub(crate) fn lose_connection(&self) {
        self.lock().connection_lost = true;
    }

    /// The connection of this plan rests: the plan's results go with another connection. False: it is the
    /// last one.
    pub(crate) fn rest_connection(&self, plan: &mut ExchangePlan) -> bool {
        let mut state = self.lock();
        if state.connections <= 1 {
            return false;
        }
        state.connections -= 1;
        state.put_back(std::mem::take(plan));
        tracing::warn!(
            exchange_connections = state.connections,
            "the server has no connection left for exchanges"
        );
        drop(state);
        self.exchanges.notify_one();
        true
    }

    /// An exchange connection is asked for again.
    pub(crate) fn connection_returns(&self) {
        self.lock().connections += 1;
    }
}

impl State {
    /// The claim of a plan is over: its room is free again.
    fn end_claim(&mut self, plan: &mut ExchangePlan) -> Option<ClaimPlan> {
        self.bulk -= usize::from(std::mem::take(&mut plan.bulk));
        let ended = plan.claim.take()?;
        self.asked_bytes -= ended.claim.max_bytes;
        ended.claim.lambdas.iter().for_each(|lambda| self.slots.answered(lambda));
        ended.claim.queues().for_each(|queue| self.watch.claim_ended(queue.queue));
        Some(ended)
    }

    fn learn(&mut self, plan: &ClaimPlan, claimed: &Claimed, now: Instant) {
        let tasks = claimed.queues.iter().filter_map(|found| found.popped).sum();
        self.watch.learn_pace(tasks, claimed.queues.len());
        let mut visited = 0;
        for (lambda, asked_before) in plan.claim.lambdas.iter().zip(&plan.asked_before) {
            if claimed.cut_at.is_some_and(|cut| cut < visited) {
                self.claim_bound.left_out(lambda.lambda, *asked_before);
            }
            self.learn_of(lambda, visited, plan.planned_at, claimed, now);
            visited += lambda.queues.len();
        }
    }

    /// The answer of a claim for the queues of one lambda; its first queue has this place in the claim.
    fn learn_of(
        &mut self,
        lambda: &LambdaClaim,
        first: usize,
        sent_at: Instant,
        claimed: &Claimed,
        now: Instant,
    ) {
        let mut left = lambda.budget;
        for (at, queue) in (first..).zip(&lambda.queues) {
            let QueueClaim { queue: index, asked, bound, .. } = *queue;
            let rows = claimed.queues[at];
            // The budget was used up before the turn of this queue: nothing was learnt of it.
            let Some(tasks) = rows.popped else { continue };
            let most = bound.map_or(left, |bound| bound.min(left));
            let is_full = claimed.cut_at == Some(at) || tasks >= most;
            left -= tasks.min(left);
            // Read only where it matters: of a queue that slept.
            let slept = self.watch.queues[index].state.is_asleep();
            let longest_wait = if slept { claimed.longest_wait(at) } else { Duration::ZERO };
            let around = claimed.around;
            let answer = ClaimAnswer { asked, sent_at, rows, tasks, around, is_full, longest_wait };
            self.watch.claimed(index, answer, now);
        }
    }

    /// The results of a plan without a claim, back to where they came from.
    fn put_back(&mut self, plan: ExchangePlan) {
        let mut results = self.ledger.withdraw(plan.sent);
        self.unacknowledged -= results.len();
        results.append(&mut self.results);
        self.results = results;
        if !self.results.is_empty() {
            self.first_result_at.get_or_insert_with(Instant::now);
        }
        self.expect_lease_drop();
    }

    /// Leases that are over go with an exchange of their own, if no result brings one.
    pub(super) fn expect_lease_drop(&mut self) {
        if self.ledger.has_leases_to_drop() {
            self.first_result_at.get_or_insert_with(Instant::now);
        }
    }
}
