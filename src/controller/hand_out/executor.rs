//! One executor as the controller sees it: its slots, what it has in hand, its lanes.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Instant;

use axum::body::Bytes;
use tokio::sync::Notify;
use tuskline_sdk::{Context, Outcome};

use super::{Handed, Offer, State};
use crate::controller::process::{self, ProcessEnd};
use crate::controller::wire::{self, Attempt, Cancel, Served, Task};

/// Payloads of one answer, in bytes; a larger one comes alone.
const PAYLOADS: usize = 4 << 20;

/// Why the controller ended a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kill {
    /// An attempt went on past its deadline or cancel, and its grace.
    Overdue,
    /// It held more memory than so many MiB.
    Memory(u64),
    /// It had a free slot, and asked for nothing.
    Silent,
    /// Its parent, which the controller had started, has ended.
    Abandoned,
}

#[derive(Debug, Default)]
pub struct Lane {
    /// The last message.
    pub no: u64,
    /// Its answer, once there is one.
    pub answer: Option<Bytes>,
    /// Not told on this lane yet.
    pub cancels: Vec<Cancel>,
    pub refused: Vec<Attempt>,
    /// It has heard that nothing more is handed out.
    pub is_told: bool,
}

#[derive(Debug)]
pub struct Executor {
    pub pid: u32,
    pub session: u32,
    pub end: Arc<ProcessEnd>,
    pub serving: Vec<Serving>,
    pub in_hand: HashMap<Attempt, InHand>,
    pub lanes: BTreeMap<u32, Lane>,
    /// Wakes its lanes.
    pub changed: Arc<Notify>,
    /// Lanes that wait for tasks.
    pub waiting: usize,
    /// A lane 0 was seen last.
    pub asked_at: Instant,
    /// Results that it has sent.
    pub results: u64,
    pub leaving: bool,
    /// Why it was killed. It has not ended yet.
    pub killed: Option<Kill>,
    /// Its only attempt runs alone, or it waits until it has nothing in hand for such a task.
    pub is_alone: bool,
    /// Where the next look for tasks begins, so that each lambda has its turn.
    pub turn: usize,
}

/// A lambda that it serves.
#[derive(Debug, Clone)]
pub struct Serving {
    pub lambda: Arc<str>,
    pub slots: usize,
    pub used: usize,
    pub memory_mib: Option<u64>,
}

/// An attempt that it runs.
#[derive(Debug)]
pub struct InHand {
    pub handed: Handed,
    /// It was told to stop; past this time its process is ended.
    pub kill_at: Option<Instant>,
    /// Its process was ended for it.
    pub is_culprit: bool,
    /// Progress that is not written yet.
    pub progress: Option<(f32, String)>,
}

impl Executor {
    pub fn new(pid: u32, end: Arc<ProcessEnd>, lambdas: &[Served]) -> Self {
        let serving = lambdas.iter().map(|served| Serving {
            lambda: served.name.as_str().into(),
            slots: served.slots,
            used: 0,
            memory_mib: served.memory_mib,
        });
        Self {
            pid,
            session: process::stat(pid).map_or(pid, |process| process.session),
            end,
            serving: serving.collect(),
            in_hand: HashMap::new(),
            lanes: BTreeMap::new(),
            changed: Arc::default(),
            waiting: 0,
            asked_at: Instant::now(),
            results: 0,
            leaving: false,
            killed: None,
            is_alone: false,
            turn: 0,
        }
    }

    /// It has done nothing yet but join, with these lambdas.
    pub fn is_fresh_as(&self, lambdas: &[Served]) -> bool {
        let mut both = self.serving.iter().zip(lambdas);
        self.lanes.is_empty()
            && self.serving.len() == lambdas.len()
            && both.all(|(ours, theirs)| *ours.lambda == *theirs.name && ours.slots == theirs.slots)
    }

    pub fn kill(&mut self, why: Kill) {
        self.killed.get_or_insert(why);
        self.end.kill();
    }

    pub fn takes_work(&self) -> bool {
        !self.leaving && self.killed.is_none()
    }

    pub fn serves(&self, lambda: &str) -> bool {
        self.takes_work() && self.serving.iter().any(|serving| *serving.lambda == *lambda)
    }

    pub fn free_slots(&self, lambda: &str) -> usize {
        if !self.takes_work() || self.is_alone {
            return 0;
        }
        let serving = self.serving.iter().find(|serving| *serving.lambda == *lambda);
        serving.map_or(0, |serving| serving.slots - serving.used)
    }

    pub fn has_free_slot(&self) -> bool {
        !self.is_alone && self.serving.iter().any(|serving| serving.used < serving.slots)
    }

    /// Takes the result of an attempt. `None`: it is not in hand.
    pub fn finish(&mut self, attempt: Attempt, outcome: Outcome) -> Option<()> {
        let held = self.in_hand.remove(&attempt)?;
        self.results += 1;
        let lambda = held.handed.context.lambda();
        if let Some(serving) = self.serving.iter_mut().find(|one| *one.lambda == *lambda) {
            serving.used -= 1;
        }
        if self.in_hand.is_empty() {
            self.is_alone = false;
        }
        if let Some((percent, text)) = held.progress {
            write_progress(held.handed.context.clone(), percent, text);
        }
        let _ = held.handed.reply.send(outcome);
        Some(())
    }

    fn begin(&mut self, at: usize, handed: Handed) -> Task {
        let Handed { payload, checkpoint, context, .. } = &handed;
        let attempt = Attempt { task: context.task().0, fence: context.fence().0 };
        let left = context.deadline().saturating_duration_since(Instant::now());
        let task = Task {
            attempt_id: attempt,
            lambda: Arc::clone(&self.serving[at].lambda),
            attempt: context.attempt(),
            timeout_ms: in_ms(left),
            payload: payload.clone(),
            checkpoint: checkpoint.clone(),
            collection: context.collection().map(str::to_owned),
            waited_ms: in_ms(context.waited()),
            traceparent: context.traceparent().map(str::to_owned),
        };
        self.serving[at].used += 1;
        context.runs_in(self.pid);
        let handed = Handed { payload: String::new(), checkpoint: None, ..handed };
        let held = InHand { handed, kill_at: None, is_culprit: false, progress: None };
        self.in_hand.insert(attempt, held);
        task
    }
}

/// Writes it in the background, unless the attempt shall stop: a context that is kept counts as its body.
pub fn write_progress(context: Context, percent: f32, text: String) {
    tokio::spawn(async move {
        tokio::select! {
            biased;
            () = context.cancelled() => {}
            written = context.progress(percent, &text) => {
                if let Err(error) = written {
                    tracing::debug!(%error, "progress is not written");
                }
            }
        }
    });
}

impl State {
    /// The tasks for an executor that asks: as many as it has free slots for.
    pub(super) fn hand_out(&mut self, name: &str, max: usize) -> Vec<wire::Task> {
        let mut tasks = Vec::new();
        let Some(executor) = self.executors.get_mut(name) else { return tasks };
        if !executor.takes_work() || max == 0 {
            return tasks;
        }
        if let Some(task) = take_alone(executor, name, &mut self.alone) {
            return vec![task];
        }
        if executor.is_alone {
            return tasks;
        }
        let mut bytes = 0;
        executor.turn = (executor.turn + 1) % executor.serving.len().max(1);
        for at in 0..executor.serving.len() {
            let at = (executor.turn + at) % executor.serving.len();
            let serving = &executor.serving[at];
            let Some(waiting) = self.waiting.get_mut(&serving.lambda) else { continue };
            let mut free = serving.slots - serving.used;
            while free > 0 && tasks.len() < max {
                let Some(offer) = waiting.front() else { break };
                bytes += offer.attempt.payload.len();
                if bytes > PAYLOADS && !tasks.is_empty() {
                    return tasks;
                }
                let Some(offer) = waiting.pop_front() else { break };
                tasks.push(executor.begin(at, offer.attempt));
                free -= 1;
            }
        }
        tasks
    }
}

/// A task with a crash on record: at once if nothing is in hand. Else the executor is kept free for it from now
/// on, unless another one is.
fn take_alone(
    executor: &mut Executor,
    name: &str,
    alone: &mut std::collections::VecDeque<Offer>,
) -> Option<Task> {
    let place = alone.iter().position(|offer| {
        executor.serves(offer.attempt.context.lambda())
            && offer.reserved.as_deref().is_none_or(|reserved| reserved == name)
    })?;
    if !executor.in_hand.is_empty() {
        if !executor.is_alone {
            executor.is_alone = true;
            alone[place].reserved = Some(name.into());
        }
        return None;
    }
    let offer = alone.remove(place)?;
    let lambda = offer.attempt.context.lambda();
    let at = executor.serving.iter().position(|one| *one.lambda == *lambda)?;
    executor.is_alone = true;
    Some(executor.begin(at, offer.attempt))
}

fn in_ms(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
