//! Fills a [`History`] from the files of a directory.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};

use crate::by_task::{ByTask, Numbered};
use crate::history::{
    Accepted, Batch, Body, BodyEnd, Claim, Dependency, Failure, Fault, History, Row, Stale, Tick,
    Transition,
};
use crate::process::{Fate, Process};
use crate::span::{Span, Spans};
use crate::{Actor, Edge, Event, Line, Role, Settings, read};

/// Classes of failures that are no attempt's: of a gate, of an order, of a chain, of a unique key.
const NO_ATTEMPT: [&str; 4] = ["diverted", "order", "parent", "duplicate"];

impl History {
    /// Reads `dir`, each line once.
    ///
    /// # Errors
    /// A file cannot be read or parsed, nothing was recorded, or nobody wrote the settings down.
    pub(crate) fn read(dir: &Path) -> Result<Self> {
        let mut filling = Filling::default();
        for path in read::files(dir)? {
            filling.opened = false;
            filling.cut_lines += u64::from(read::each_line(&path, |line| filling.take(line))?);
        }
        filling.done().with_context(|| dir.display().to_string())
    }
}

#[derive(Default)]
struct Filling {
    /// Whether the file in hands has said whose it is.
    opened: bool,
    settings: Option<Settings>,
    events: u64,
    cut_lines: u64,
    begin: Option<u64>,
    end: u64,
    words: Numbered<String>,
    tasks: Numbered<i64>,
    ops: Numbered<u64>,
    processes: Vec<Process>,
    store_consumers: Vec<Process>,
    batches: Vec<Batch>,
    accepted: Vec<Accepted>,
    transitions: Vec<Transition>,
    rows: Vec<Row>,
    dependencies: Vec<Dependency>,
    failures: Vec<Failure>,
    claims: Vec<Claim>,
    bodies: Vec<Body>,
    ends: Vec<BodyEnd>,
    ticks: Vec<Tick>,
    claimed_at: Vec<u64>,
    database: Vec<(u64, Edge)>,
    phases: Vec<(String, u64, Edge)>,
    faults: Vec<(u64, Fault)>,
    fault_ends: Vec<(u64, u64)>,
    fates: Vec<(u64, u32, Fate)>,
    gates: Vec<(u64, u32, Edge)>,
    stale: Stale,
    refused: u64,
    left: Vec<(String, i64)>,
    shown: Vec<(String, i64, i64)>,
}

impl<K: std::hash::Hash + Eq + Clone> Default for Numbered<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl Filling {
    fn take(&mut self, Line { at, event }: Line) -> Result<()> {
        self.events += 1;
        if let Event::Opened { actor, pid } = event {
            self.opened = true;
            self.processes.push(Process::new(actor, pid, at));
        }
        ensure!(self.opened, "the file does not begin with whose it is (opened)");
        if self.processes.last().is_some_and(|process| process.actor != Actor::Database) {
            self.begin = Some(self.begin.map_or(at, |begin| begin.min(at)));
            self.end = self.end.max(at);
        }
        self.client(at, event);
        Ok(())
    }

    fn client(&mut self, at: u64, event: Event) {
        match event {
            Event::Schedule { op, lambda, tasks, key, .. } => {
                let (lambda, key) = (self.words.number(lambda), key.map(|k| self.words.number(k)));
                let batch = self.batch(op);
                *batch = Batch { tasks, lambda, key, tries: batch.tries + 1, ..batch.clone() };
            }
            Event::ScheduleOk { op, ids } => {
                self.batch(op).accepted += 1;
                let op = self.ops.number(op);
                for id in ids {
                    let task = self.tasks.number(id);
                    self.accepted.push(Accepted { task, op });
                }
            }
            Event::ScheduleFail { op, .. } => self.batch(op).refused += 1,
            other => self.executor(at, other),
        }
    }

    fn executor(&mut self, at: u64, event: Event) {
        let process = u32::try_from(self.processes.len()).unwrap_or(u32::MAX).saturating_sub(1);
        match event {
            Event::Claimed { fence, tasks } => {
                self.claimed_at.push(at);
                for id in tasks {
                    let task = self.tasks.number(id);
                    self.claims.push(Claim { task, process, fence, at });
                }
            }
            Event::BodyStart { task, fence, op, lock, .. } => {
                let (task, op) = (self.tasks.number(task), self.number_op(op));
                self.bodies.push(Body { task, process, op, fence, at, lock });
            }
            Event::BodyTick { task, .. } => {
                let task = self.tasks.number(task);
                self.ticks.push(Tick { task, process, at });
            }
            Event::BodyEnd { task, fence, ended } => {
                let task = self.tasks.number(task);
                self.ends.push(BodyEnd { task, process, fence, at, ended });
            }
            Event::ResultRefused { tasks } => self.refused += tasks.len() as u64,
            other => self.life(at, other),
        }
    }

    fn life(&mut self, at: u64, event: Event) {
        let Some(process) = self.processes.last_mut() else { return };
        match event {
            Event::Registered { .. } => process.registered = process.registered.or(Some(at)),
            Event::BeatSent { beat } => process.beat_sent(beat, at),
            Event::BeatAck { beat } => process.beat_acked(beat, at),
            Event::LineLost => process.lines_lost.push(at),
            Event::Ends { why } => process.last_words = Some(why),
            Event::Exit => process.exit = Some(at),
            other => self.injector(at, other),
        }
    }

    fn injector(&mut self, at: u64, event: Event) {
        match event {
            Event::Settings(settings) => self.settings = Some(settings),
            Event::Phase { name, edge } => self.phases.push((name, at, edge)),
            Event::Fault { id, kind, pid, .. } => {
                let span = Span { from: at, to: u64::MAX };
                self.faults.push((id, Fault { kind, pid, span, ended: false }));
            }
            Event::FaultEnd { id } => self.fault_ends.push((id, at)),
            Event::Spawned { pid, role: Role::StoreConsumer } => {
                self.store_consumers.push(Process::new(Actor::Injector, pid, at));
            }
            Event::Stopped { pid } => self.fates.push((at, pid, Fate::Stop(Edge::Begin))),
            Event::Continued { pid } => self.fates.push((at, pid, Fate::Stop(Edge::End))),
            Event::Reaped { pid, signal, .. } => {
                self.fates.push((at, pid, Fate::Reaped { signal }));
            }
            Event::Database { edge, .. } => self.database.push((at, edge)),
            Event::Stale { tried, refused, applied, .. } => {
                self.stale.tried += tried;
                self.stale.refused += refused;
                self.stale.applied += applied;
            }
            Event::Gate { lambda, edge } => {
                let lambda = self.words.number(lambda);
                self.gates.push((at, lambda, edge));
            }
            other => self.database(other),
        }
    }

    fn database(&mut self, event: Event) {
        match event {
            Event::Transition {
                task,
                step,
                from,
                to,
                fence,
                attempt,
                crashes,
                db_us,
                due_us,
                ..
            } => {
                let task = self.tasks.number(task);
                self.transitions.push(Transition {
                    task,
                    from,
                    to,
                    attempt,
                    crashes,
                    step,
                    fence,
                    db_us,
                    due_us,
                });
            }
            // Why a task ended that nobody tried.
            Event::Failure { class, .. } if NO_ATTEMPT.contains(&class.as_str()) => {}
            Event::Failure { task, fence, .. } => {
                let task = self.tasks.number(task);
                self.failures.push(Failure { task, fence });
            }
            Event::Dependency { task, parent, condition, run } => {
                let (task, parent) = (self.tasks.number(task), self.tasks.number(parent));
                self.dependencies.push(Dependency { task, parent, condition, run });
            }
            Event::Left { what, count } => self.left.push((what, count)),
            Event::Shown { what, shown, counted } => self.shown.push((what, shown, counted)),
            row @ Event::Row { .. } => self.row(row),
            _ => {}
        }
    }

    fn row(&mut self, event: Event) {
        let Event::Row {
            task,
            op,
            n,
            lambda,
            status,
            fence,
            attempt,
            max_attempts,
            crashes,
            max_crashes,
            ordering_key,
            tick,
        } = event
        else {
            return;
        };
        let row = Row {
            task: self.tasks.number(task),
            op: self.number_op(op),
            n,
            lambda: self.words.number(lambda),
            ordering_key: ordering_key.map(|key| self.words.number(key)),
            tick: tick.map(|tick| self.words.number(tick)),
            fence,
            status,
            attempt,
            max_attempts,
            crashes,
            max_crashes,
        };
        self.rows.push(row);
    }

    fn number_op(&mut self, op: u64) -> u32 {
        let number = self.ops.number(op);
        if self.batches.len() <= number as usize {
            self.batches.push(Batch::default());
        }
        number
    }

    fn batch(&mut self, op: u64) -> &mut Batch {
        let number = self.number_op(op);
        &mut self.batches[number as usize]
    }

    fn done(mut self) -> Result<History> {
        let scheduled = self.batches.iter().any(|batch| batch.tries > 0);
        ensure!(scheduled, "nothing was recorded: nobody scheduled anything");
        let settings = self.settings.take().context("nobody wrote the settings down")?;
        self.meet_fates();
        let (faults, phases) = (self.faults(), self.phases());
        let steps = faults.iter().filter(|fault| fault.kind == "clock_step");
        let clock_steps = steps.map(|fault| fault.span.from).collect();
        self.claimed_at.sort_unstable();
        self.gates.sort_by_key(|(at, ..)| *at);
        let tasks = self.tasks.len();
        Ok(History {
            settings,
            events: self.events,
            cut_lines: self.cut_lines,
            begin: self.begin.unwrap_or(self.end),
            end: self.end,
            words: self.words,
            tasks: self.tasks,
            ops: self.ops,
            processes: self.processes,
            store_consumers: self.store_consumers,
            batches: self.batches,
            accepted: self.accepted,
            transitions: ByTask::new(self.transitions, tasks, |change| change.step),
            rows: ByTask::new(self.rows, tasks, |row| row.n),
            dependencies: ByTask::new(self.dependencies, tasks, |d| d.parent),
            failures: ByTask::new(self.failures, tasks, |failure| failure.fence),
            claims: ByTask::new(self.claims, tasks, |claim| (claim.fence, claim.at)),
            bodies: ByTask::new(self.bodies, tasks, |body| body.at),
            ends: ByTask::new(self.ends, tasks, |end| end.at),
            ticks: self.ticks,
            claimed_at: self.claimed_at,
            database_down: Spans::pair(self.database, self.end),
            clock_steps,
            phases,
            faults,
            gates: self.gates,
            stale: self.stale,
            refused: self.refused,
            left: self.left,
            shown: self.shown,
        })
    }

    /// Hands each fate to the process that had the number at that moment: the kernel gives the
    /// numbers of ended processes to new ones.
    fn meet_fates(&mut self) {
        self.fates.sort_by_key(|(at, ..)| *at);
        for (at, pid, fate) in std::mem::take(&mut self.fates) {
            meet(&mut self.store_consumers, |_| true, (at, pid, fate));
            for actor in [Actor::Client, Actor::Executor] {
                meet(&mut self.processes, |process| process.actor == actor, (at, pid, fate));
            }
        }
        for process in self.processes.iter_mut().chain(&mut self.store_consumers) {
            process.settle(self.end);
        }
    }

    fn faults(&mut self) -> Vec<Fault> {
        let ends: std::collections::HashMap<u64, u64> = self.fault_ends.drain(..).collect();
        let end = self.end;
        let close = |(id, mut fault): (u64, Fault)| {
            fault.ended = ends.contains_key(&id);
            fault.span.to = ends.get(&id).copied().unwrap_or(end);
            fault
        };
        self.faults.drain(..).map(close).collect()
    }

    fn phases(&mut self) -> Vec<(String, Span)> {
        self.phases.sort_by_key(|(_, at, _)| *at);
        let mut phases: Vec<(String, Span)> = Vec::new();
        for (name, at, edge) in self.phases.drain(..) {
            let open = |(known, span): &&mut (String, Span)| *known == name && span.to == u64::MAX;
            match edge {
                Edge::Begin => phases.push((name, Span { from: at, to: u64::MAX })),
                Edge::End => {
                    if let Some((_, span)) = phases.iter_mut().find(open) {
                        span.to = at;
                    }
                }
            }
        }
        phases
    }
}

/// Hands a fate to the last of them who has that number.
fn meet(some: &mut [Process], of: impl Fn(&Process) -> bool, (at, pid, fate): (u64, u32, Fate)) {
    let bearers =
        some.iter_mut().filter(|process| process.pid == pid && process.opened <= at && of(process));
    if let Some(process) = bearers.max_by_key(|process| process.opened) {
        process.meets(fate, at);
    }
}
