//! Attempts that stop, and processes that end.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tuskline_sdk::{Outcome, StopReason};

use super::executor::{Executor, InHand, Kill, write_progress};
use super::{HandOut, NO_EXECUTOR, Offer, State};
use crate::controller::link::Ended;
use crate::controller::process;
use crate::controller::wire::{Attempt, Cancel};

/// Between two looks at the clock while something is in hand.
const LOOK: Duration = Duration::from_millis(10);
/// Between two looks at the memory of processes.
const MEMORY_LOOK: Duration = Duration::from_millis(100);
/// Between two times that progress is written.
const PROGRESS: Duration = Duration::from_secs(1);

/// An executor that has ended, and what it had in hand.
#[derive(Debug)]
pub struct EndedExecutor {
    pub pid: u32,
    killed: Option<Kill>,
    in_hand: Vec<(Attempt, InHand)>,
    /// It has sent a result, or the controller has ended it.
    pub has_worked: bool,
}

impl HandOut {
    /// Looks at the clock for all attempts in hand, until dropped.
    pub async fn watch(&self) {
        let (mut memory_at, mut progress_at) = (Instant::now(), Instant::now());
        loop {
            if !self.lock().is_busy() {
                self.busy.notified().await;
            }
            tokio::time::sleep(LOOK).await;
            let now = Instant::now();
            let mut state = self.lock();
            let stopping = state.stopping;
            for executor in state.executors.values_mut() {
                self.stop_attempts(executor, stopping, now);
                #[cfg(mutants)]
                executor.give_back_killed();
            }
            if now.duration_since(memory_at) >= MEMORY_LOOK {
                memory_at = now;
                state.executors.values_mut().for_each(end_large);
                let silence = self.graces.silence;
                state.executors.values_mut().for_each(|one| end_silent(one, silence, now));
            }
            if now.duration_since(progress_at) >= PROGRESS {
                progress_at = now;
                state.executors.values_mut().for_each(write_all_progress);
            }
            state.look_at_offers(now);
            if state.executors.values().any(|executor| executor.killed.is_some()) {
                self.resized.notify_one();
            }
        }
    }

    /// Tells attempts to stop, and ends processes whose attempts did not.
    fn stop_attempts(&self, executor: &mut Executor, stopping: bool, now: Instant) {
        let mut cancels = Vec::new();
        let mut is_overdue = false;
        for (attempt, held) in &mut executor.in_hand {
            let asked = held.handed.context.stop_reason();
            let asked = asked.or_else(|| stopping.then_some(StopReason::ShuttingDown));
            let Some(reason) = asked else { continue };
            let grace = match reason {
                StopReason::LeaseLost => self.graces.lease,
                _ => self.graces.cancel,
            };
            match held.kill_at {
                None => {
                    held.kill_at = Some(now + grace);
                    let grace_ms = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
                    cancels.push(Cancel { attempt: *attempt, reason: word(reason), grace_ms });
                }
                // The lease may be lost while an earlier reason has a longer grace.
                Some(at) if reason == StopReason::LeaseLost => {
                    held.kill_at = Some(at.min(now + grace));
                }
                Some(_) => {}
            }
            if held.kill_at.is_some_and(|at| now >= at) && !held.is_culprit {
                held.is_culprit = true;
                is_overdue = true;
            }
        }
        if is_overdue {
            executor.kill(Kill::Overdue);
        }
        if !cancels.is_empty() {
            executor.lanes.values_mut().for_each(|lane| lane.cancels.extend(&cancels));
            executor.changed.notify_waiters();
        }
    }

    /// Takes out an executor whose process has ended. Its attempts still count as running.
    pub fn take_ended(&self, pid: u32) -> Option<EndedExecutor> {
        let mut state = self.lock();
        let found = state.executors.iter().find(|(_, executor)| executor.pid == pid);
        let name = Arc::clone(found?.0);
        let executor = state.executors.remove(&name)?;
        for offer in &mut state.alone {
            offer.reserved = offer.reserved.take().filter(|reserved| *reserved != name);
        }
        executor.changed.notify_waiters();
        drop(state);
        self.resized.notify_one();
        Some(EndedExecutor {
            pid,
            killed: executor.killed,
            has_worked: executor.results > 0 || executor.killed.is_some(),
            in_hand: executor.in_hand.into_iter().collect(),
        })
    }

    /// The process, and all that it had started, runs no instruction any more: its attempts have their outcomes.
    pub fn ended(&self, executor: EndedExecutor, how: Option<Ended>, by_kernel: bool) {
        let EndedExecutor { pid, killed, in_hand, .. } = executor;
        let class = class_of(how, by_kernel);
        if !in_hand.is_empty() || killed.is_some() {
            let tasks: Vec<i64> = in_hand.iter().map(|(attempt, _)| attempt.task).collect();
            tracing::warn!(pid, ?killed, class, ?tasks, "an executor has ended with tasks in hand");
        }
        for (_, held) in in_hand {
            let outcome = outcome(&held, killed, &class, pid);
            let _ = held.handed.reply.send(outcome);
        }
        self.gone.notify_waiters();
    }

    /// Ends the executors of a session: the process that had started them is gone.
    pub fn abandon(&self, session: u32) {
        for executor in self.lock().executors.values_mut() {
            if executor.session == session && executor.pid != session {
                executor.kill(Kill::Abandoned);
            }
        }
    }
}

/// A flaw, in no ordinary build: the neighbours of an attempt whose process was killed go back before its pidfd has
/// told the end.
#[cfg(mutants)]
impl Executor {
    fn give_back_killed(&mut self) {
        if self.killed.is_some() && crate::controller::fault_injection::is("release_before_pidfd") {
            for (_, held) in self.in_hand.extract_if(|_, held| !held.is_culprit) {
                let _ = held.handed.reply.send(Outcome::Returned);
            }
        }
    }
}

impl State {
    fn is_busy(&self) -> bool {
        !self.alone.is_empty()
            || self.waiting.values().any(|waiting| !waiting.is_empty())
            || self.executors.values().any(|executor| {
                !executor.in_hand.is_empty() || executor.waiting == 0 || executor.killed.is_some()
            })
    }

    /// Attempts that shall stop before an executor has had them, or for which there is none, go back.
    fn look_at_offers(&mut self, now: Instant) {
        let served = |lambda: &str, executors: &std::collections::HashMap<Arc<str>, Executor>| {
            executors.values().any(|executor| executor.serves(lambda))
        };
        let Self { waiting, alone, executors, .. } = self;
        let keep = |offer: &Offer| {
            let context = &offer.attempt.context;
            let is_late = now.duration_since(offer.since) > NO_EXECUTOR;
            !context.is_cancelled()
                && !offer.attempt.reply.is_closed()
                && (!is_late || served(context.lambda(), executors))
        };
        let queues = waiting.values_mut().chain(std::iter::once(&mut *alone));
        for queue in queues {
            let mut kept = std::collections::VecDeque::with_capacity(queue.len());
            for offer in queue.drain(..) {
                match keep(&offer) {
                    true => kept.push_back(offer),
                    false => drop(offer.attempt.reply.send(Outcome::Returned)),
                }
            }
            *queue = kept;
        }
        // A wake-up is lost with a connection that broke.
        let waits = |executor: &&Executor| {
            waiting
                .iter()
                .any(|(lambda, offers)| !offers.is_empty() && executor.free_slots(lambda) > 0)
                || !alone.is_empty()
        };
        executors.values().filter(waits).for_each(|executor| executor.changed.notify_waiters());
    }
}

/// Ends an executor that holds more memory than a lambda of a task in hand allows.
fn end_large(executor: &mut Executor) {
    let serving = executor.serving.iter().filter(|serving| serving.used > 0);
    let Some(limit) = serving.filter_map(|serving| serving.memory_mib).min() else { return };
    let Some(bytes) = process::resident_bytes(executor.pid) else { return };
    if bytes > limit << 20 && executor.killed.is_none() {
        executor.kill(Kill::Memory(limit));
    }
}

/// Ends an executor that has a free slot and asks for nothing.
fn end_silent(executor: &mut Executor, silence: Duration, now: Instant) {
    let is_silent = executor.waiting == 0 && now.duration_since(executor.asked_at) > silence;
    if is_silent && executor.has_free_slot() && executor.takes_work() {
        tracing::warn!(pid = executor.pid, "an executor with a free slot asks for nothing");
        executor.kill(Kill::Silent);
    }
}

fn write_all_progress(executor: &mut Executor) {
    for held in executor.in_hand.values_mut() {
        if let Some((percent, text)) = held.progress.take() {
            write_progress(held.handed.context.clone(), percent, text);
        }
    }
}

fn outcome(held: &InHand, killed: Option<Kill>, class: &str, pid: u32) -> Outcome {
    let crashed =
        |class: &str, reason: String| Outcome::Crashed { class: class.to_owned().into(), reason };
    match killed {
        None => crashed(class, format!("process {pid} ended while it ran the task: {class}")),
        Some(Kill::Memory(limit)) => {
            crashed("memory", format!("process {pid} held more than {limit} MiB and was ended"))
        }
        // The worker knows what a stop leads to; a timeout is a failure.
        Some(Kill::Overdue) if held.is_culprit => match held.handed.context.stop_reason() {
            Some(StopReason::TimedOut) => Outcome::retriable(format!(
                "no result within attempt_timeout and its grace: process {pid} was ended"
            )),
            _ => Outcome::Returned,
        },
        Some(_) => Outcome::Returned,
    }
}

/// The cause of an end that the controller did not bring about.
fn class_of(how: Option<Ended>, by_kernel: bool) -> String {
    match how {
        Some(Ended { signal: Some(9), .. }) if by_kernel => "oom".to_owned(),
        Some(Ended { signal: Some(signal), .. }) => format!("signal {signal}"),
        Some(Ended { code: Some(code), .. }) => format!("exit {code}"),
        _ => "ended".to_owned(),
    }
}

fn word(reason: StopReason) -> &'static str {
    match reason {
        StopReason::TimedOut => "timeout",
        StopReason::ShuttingDown => "shutdown",
        StopReason::LeaseLost => "lease",
        _ => "cancelled",
    }
}
