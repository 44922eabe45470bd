//! Fills a [`History`] from the files of a directory.

mod database;
mod done;
mod restores;

use std::path::Path;

use anyhow::{Context as _, Result, ensure};

use crate::by_task::Numbered;
use crate::history::{
    Accepted, Batch, Body, BodyEnd, Claim, Dependency, Failure, Fault, Fired, HeldRow, History,
    Letter, ProcessEnd, Redriven, Restored, Row, Schedule, Stale, Tick, Transition,
};
use crate::process::{Fate, Process};
use crate::span::Span;
use crate::{Actor, Edge, Event, Line, Rate, Redrive, Role, Settings, read};

/// Classes of failures that are no attempt's: of a gate, of an order, of a chain, of a unique key.
const NO_ATTEMPT: [&str; 4] = ["diverted", "order", "parent", "duplicate"];

impl History {
    /// Reads `dir`, each line once.
    ///
    /// # Errors
    /// A file cannot be read or parsed, nothing was recorded, or the settings are missing.
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
    /// Whether the current file has named its writer.
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
    schedules: Vec<Schedule>,
    rates: Vec<Rate>,
    fired: Vec<Fired>,
    redrives: Vec<Redrive>,
    redriven: Vec<Redriven>,
    letters: Vec<Letter>,
    failures: Vec<Failure>,
    claims: Vec<Claim>,
    bodies: Vec<Body>,
    ends: Vec<BodyEnd>,
    ticks: Vec<Tick>,
    claimed_at: Vec<u64>,
    database: Vec<(u64, Edge)>,
    phases: Vec<(String, u64, Edge)>,
    restores: Vec<Restored>,
    faults: Vec<(u64, Fault)>,
    fault_ends: Vec<(u64, u64)>,
    held_rows: Vec<(u64, HeldRow)>,
    process_ends: Vec<ProcessEnd>,
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
            Event::Schedule { op, lambda, tasks, key, chain, .. } => {
                let (lambda, key) = (self.words.number(lambda), key.map(|k| self.words.number(k)));
                let batch = self.batch(op);
                let sent = if batch.tries > 0 { batch.sent } else { at };
                let tries = batch.tries + 1;
                *batch = Batch { tasks, lambda, key, chain, tries, sent, ..batch.clone() };
            }
            Event::ScheduleOk { op, ids } => {
                let batch = self.batch(op);
                (batch.accepted, batch.answered) = (batch.accepted + 1, at);
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
            Event::ProcessEnded { pid, why, tasks } => {
                let tasks = tasks.into_iter().map(|id| self.tasks.number(id)).collect();
                self.process_ends.push(ProcessEnd { pid, controller: process, at, why, tasks });
            }
            other => self.life(at, other),
        }
    }

    fn life(&mut self, at: u64, event: Event) {
        let Some(process) = self.processes.last_mut() else { return };
        match event {
            Event::Registered { answered, .. } => {
                process.registered.push(at);
                process.enlisted.push(answered.unwrap_or(at));
            }
            Event::Lost { why } => process.lost.push((at, why)),
            Event::BeatSent { beat } => process.beat_sent(beat, at),
            Event::BeatAck { beat } => process.beat_acked(beat, at),
            Event::LineLost => process.lines_lost.push(at),
            Event::Ends { why } => process.last_words = Some(why),
            Event::Exit => process.exit = Some(at),
            Event::Guarded { guardian } => process.guardian = Some(guardian),
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
            Event::RowsHeld { id, tasks } => {
                let held = |task| HeldRow { task: self.tasks.number(task), from: at, to: u64::MAX };
                self.held_rows.extend(tasks.into_iter().map(held).map(|row| (id, row)));
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
            Event::Restored { taken, ids_again, .. } => {
                self.restores.push(Restored { lost: Span { from: taken, to: at }, ids_again });
            }
            Event::Stale { tried, refused, applied, .. } => {
                self.stale.tried += tried;
                self.stale.refused += refused;
                self.stale.applied += applied;
            }
            Event::Gate { lambda, edge } => {
                let lambda = self.words.number(lambda);
                self.gates.push((at, lambda, edge));
            }
            Event::Periodic(periodic) => {
                let name = self.words.number(periodic.name.clone());
                let lambda = self.words.number(periodic.lambda.clone());
                self.schedules.push(Schedule { name, lambda, periodic });
            }
            Event::Rate(rate) => self.rates.push(rate),
            other => self.database(other),
        }
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
}
