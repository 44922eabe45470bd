//! A whole history in memory: small structs, numbers instead of names, sorted by task.
//!
//! It holds what was written down and answers simple questions; it judges nothing.

use crate::by_task::{ByTask, Numbered, OfTask};
use crate::process::Process;
use crate::span::{Span, Spans};
use crate::{Actor, Edge, Ended, LockAnswer, Periodic, Rate, Redrive, Settings, Status};

/// The contents of a history.
#[derive(Debug)]
pub(crate) struct History {
    pub(crate) settings: Settings,
    pub(crate) events: u64,
    pub(crate) cut_lines: u64,
    /// The first and the last moment of all events, except those of the database's export.
    pub(crate) begin: u64,
    pub(crate) end: u64,
    pub(crate) words: Numbered<String>,
    pub(crate) tasks: Numbered<i64>,
    pub(crate) ops: Numbered<u64>,
    pub(crate) processes: Vec<Process>,
    pub(crate) store_consumers: Vec<Process>,
    /// By the number of the op.
    pub(crate) batches: Vec<Batch>,
    pub(crate) accepted: Vec<Accepted>,
    pub(crate) transitions: ByTask<Transition>,
    pub(crate) rows: ByTask<Row>,
    pub(crate) failures: ByTask<Failure>,
    pub(crate) claims: ByTask<Claim>,
    pub(crate) bodies: ByTask<Body>,
    pub(crate) ends: ByTask<BodyEnd>,
    pub(crate) held_rows: ByTask<HeldRow>,
    pub(crate) process_ends: Vec<ProcessEnd>,
    pub(crate) ticks: Vec<Tick>,
    /// When each claim was answered, in order.
    pub(crate) claimed_at: Vec<u64>,
    pub(crate) database_down: Spans,
    /// When the database's clock was stepped: faults of the kind `clock_step`.
    pub(crate) clock_steps: Vec<u64>,
    pub(crate) phases: Vec<(String, Span)>,
    pub(crate) restores: Vec<Restored>,
    pub(crate) faults: Vec<Fault>,
    pub(crate) gates: Vec<(u64, u32, Edge)>,
    pub(crate) stale: Stale,
    pub(crate) refused: u64,
    pub(crate) dependencies: ByTask<Dependency>,
    pub(crate) schedules: Vec<Schedule>,
    /// Rate limits that held for a while.
    pub(crate) rates: Vec<Rate>,
    pub(crate) fired: Vec<Fired>,
    pub(crate) redrives: Vec<Redrive>,
    pub(crate) redriven: ByTask<Redriven>,
    pub(crate) letters: ByTask<Letter>,
    pub(crate) left: Vec<(String, i64)>,
    pub(crate) shown: Vec<(String, i64, i64)>,
}

/// The request of a schedule call, and its answer.
#[derive(Debug, Clone, Default)]
pub(crate) struct Batch {
    pub(crate) tasks: u32,
    pub(crate) lambda: u32,
    pub(crate) key: Option<u32>,
    pub(crate) chain: bool,
    /// How often it was sent, refused and accepted. A try without an answer was unknown.
    pub(crate) tries: u32,
    pub(crate) refused: u32,
    pub(crate) accepted: u32,
    /// The first time it was sent, and the last answer that accepted it.
    pub(crate) sent: u64,
    pub(crate) answered: u64,
}

impl Batch {
    /// Nothing may exist.
    pub(crate) fn failed(&self) -> bool {
        self.accepted == 0 && self.refused >= self.tries
    }

    /// All or nothing exists.
    pub(crate) fn unknown(&self) -> bool {
        self.accepted == 0 && self.refused < self.tries
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Accepted {
    pub(crate) task: u32,
    pub(crate) op: u32,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Transition {
    pub(crate) task: u32,
    pub(crate) from: Option<Status>,
    pub(crate) to: Status,
    pub(crate) attempt: i16,
    pub(crate) crashes: i16,
    pub(crate) step: i64,
    pub(crate) fence: i64,
    pub(crate) db_us: i64,
    pub(crate) due_us: Option<i64>,
    pub(crate) xid: u64,
}

impl Transition {
    /// Whether a task that had ended begins anew.
    pub(crate) fn revives(&self) -> bool {
        self.to == Status::New && self.from.is_some_and(Status::is_terminal)
    }

    /// Whether the task became a dead letter.
    pub(crate) fn kills(&self) -> bool {
        matches!(self.to, Status::Dead | Status::FatalFailure)
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Row {
    pub(crate) task: u32,
    pub(crate) op: u32,
    pub(crate) n: u32,
    pub(crate) lambda: u32,
    pub(crate) ordering_key: Option<u32>,
    /// Its schedule, and when the task was due.
    pub(crate) tick: Option<(u32, i64)>,
    pub(crate) fence: i64,
    pub(crate) status: Status,
    pub(crate) attempt: i16,
    pub(crate) max_attempts: i16,
    pub(crate) crashes: i16,
    pub(crate) max_crashes: i16,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Failure {
    pub(crate) task: u32,
    pub(crate) fence: i64,
    pub(crate) fingerprint: u32,
}

#[derive(Debug, Clone)]
pub(crate) struct Schedule {
    pub(crate) name: u32,
    pub(crate) lambda: u32,
    pub(crate) periodic: Periodic,
}

/// The outcome of a tick.
#[derive(Debug, Clone)]
pub(crate) struct Fired {
    pub(crate) name: u32,
    pub(crate) tick_us: i64,
    pub(crate) task: Option<u32>,
    pub(crate) reason: Option<String>,
    pub(crate) fired_us: i64,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Redriven {
    pub(crate) task: u32,
    pub(crate) redrive: i64,
    pub(crate) step: i64,
    pub(crate) xid: u64,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Letter {
    pub(crate) task: u32,
    pub(crate) shown: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct Dependency {
    pub(crate) task: u32,
    pub(crate) parent: u32,
    pub(crate) condition: String,
    pub(crate) run: bool,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Claim {
    pub(crate) task: u32,
    pub(crate) process: u32,
    pub(crate) fence: i64,
    pub(crate) at: u64,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Body {
    pub(crate) task: u32,
    pub(crate) process: u32,
    pub(crate) op: u32,
    pub(crate) fence: i64,
    pub(crate) at: u64,
    pub(crate) lock: LockAnswer,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct BodyEnd {
    pub(crate) task: u32,
    pub(crate) process: u32,
    pub(crate) fence: i64,
    pub(crate) at: u64,
    pub(crate) ended: Ended,
}

/// From when to when a stranger had a task's row locked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HeldRow {
    pub(crate) task: u32,
    pub(crate) from: u64,
    pub(crate) to: u64,
}

/// A process below a host controller has ended.
#[derive(Debug, Clone)]
pub(crate) struct ProcessEnd {
    pub(crate) pid: u32,
    /// The number of the process that says so.
    pub(crate) controller: u32,
    pub(crate) at: u64,
    pub(crate) why: String,
    /// The tasks that it had in hand.
    pub(crate) tasks: Vec<u32>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Tick {
    pub(crate) task: u32,
    pub(crate) process: u32,
    pub(crate) at: u64,
}

#[derive(Debug, Clone)]
pub(crate) struct Fault {
    pub(crate) kind: String,
    pub(crate) pid: Option<u32>,
    pub(crate) span: Span,
    pub(crate) ended: bool,
}

/// An earlier copy took the database's place.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Restored {
    /// The changes in this span are lost, unless the copy has them.
    pub(crate) lost: Span,
    /// It issues the ids of what it lost again.
    pub(crate) ids_again: bool,
}

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Stale {
    pub(crate) tried: u64,
    pub(crate) refused: u64,
    pub(crate) applied: u64,
}

macro_rules! of_task {
    ($($thing:ty),*) => { $(impl OfTask for $thing {
        fn task(&self) -> u32 {
            self.task
        }
    })* };
}
of_task!(Transition, Row, Dependency, Failure, Redriven, Letter, Claim, Body, BodyEnd, HeldRow);

impl History {
    /// A task's id, for people.
    pub(crate) fn id(&self, task: u32) -> Option<i64> {
        Some(*self.tasks.key(task))
    }

    /// A task as it is at the end.
    pub(crate) fn row(&self, task: u32) -> Option<&Row> {
        self.rows.of(task).first()
    }

    pub(crate) fn process(&self, number: u32) -> &Process {
        &self.processes[number as usize]
    }

    /// How a body ended, if it lived to.
    pub(crate) fn end_of(&self, body: &Body) -> Option<&BodyEnd> {
        self.ends
            .of(body.task)
            .iter()
            .find(|end| end.process == body.process && end.fence == body.fence && end.at >= body.at)
    }

    /// When a body was over: its end, else its process's, else not before the history's. The tasks of an
    /// executor that was ended begin elsewhere a few milliseconds later, often before the injector has noted
    /// that end. For these, only the kernel's lock can tell.
    pub(crate) fn over_at(&self, body: &Body) -> u64 {
        let process = self.process(body.process);
        let unended = match process.actor {
            Actor::Hosted => body.at,
            _ => process.reaped.unwrap_or(self.end),
        };
        self.end_of(body).map_or(unended, |end| end.at)
    }

    /// The process that holds the lease of a body: its own, or the controller's of its host.
    pub(crate) fn holder_of(&self, body: &Body) -> &Process {
        let process = self.process(body.process);
        if process.actor != Actor::Hosted {
            return process;
        }
        let controllers = self.processes.iter().filter(|one| {
            one.actor == Actor::Executor
                && one.guardian.is_some_and(|guardian| Some(guardian) == process.guardian)
                && one.opened <= process.opened
        });
        controllers.max_by_key(|one| one.opened).unwrap_or(process)
    }

    /// The restore that may have lost a batch: it was accepted, and may have been committed after the copy
    /// was taken.
    pub(crate) fn lost_batch(&self, op: u32) -> Option<&Restored> {
        let batch = &self.batches[op as usize];
        let may_be = |restored: &&Restored| restored.lost.meets(batch.sent, batch.answered);
        self.restores.iter().find(may_be).filter(|_| batch.accepted > 0)
    }

    /// Whether a claim, or the start of its body, is lost: it was made after a copy was taken that then took
    /// the database's place.
    pub(crate) fn is_lost(&self, task: u32, fence: i64, at: u64) -> bool {
        let known = self.transitions.of(task).iter();
        let mut known = known.filter(|step| step.to == Status::Claimed && step.fence == fence);
        known.next().is_none() && self.restores.iter().any(|restored| restored.lost.meets(at, at))
    }

    /// The moment on the monotonic clock when a worker had the claim of `task` under `fence`.
    pub(crate) fn held_at(&self, task: u32, fence: i64) -> Option<u64> {
        let claim = self.claims.of(task).iter().find(|claim| claim.fence == fence);
        let body = || self.bodies.of(task).iter().find(|body| body.fence == fence);
        claim.map(|claim| claim.at).or_else(|| body().map(|body| body.at))
    }

    /// Whether a gate may let a task wait for as long as it likes.
    pub(crate) fn is_gated(&self, task: u32) -> bool {
        let lambda = self.row(task).map(|row| row.lambda);
        self.gates.iter().any(|(_, gated, _)| Some(*gated) == lambda)
    }

    /// Whether an order, a limit, a gate or a parent may.
    pub(crate) fn is_held_up(&self, task: u32) -> bool {
        let limits = &self.settings.limits;
        let held = self.row(task).is_some_and(|row| {
            let lambda = self.words.key(row.lambda);
            row.ordering_key.is_some()
                || limits.iter().any(|(limited, _)| limited == lambda)
                || self.settings.rates.iter().any(|rate| rate.lambda == *lambda)
        });
        held || self.is_gated(task) || !self.dependencies.of(task).is_empty()
    }

    /// The phase at a moment; the innermost when they are nested.
    pub(crate) fn phase_at(&self, at: u64) -> Option<&str> {
        let around = self.phases.iter().filter(|(_, span)| span.meets(at, at));
        around.max_by_key(|(_, span)| span.from).map(|(name, _)| name.as_str())
    }

    /// The moment of the first answered claim after `at`.
    pub(crate) fn next_claim(&self, at: u64) -> Option<u64> {
        let next = self.claimed_at.partition_point(|claimed| *claimed <= at);
        self.claimed_at.get(next).copied()
    }
}
