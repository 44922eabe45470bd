//! Puts together what was taken in, once every file was read.

use std::collections::HashMap;

use anyhow::{Context as _, Result, ensure};

use super::Filling;
use crate::by_task::ByTask;
use crate::history::{Fault, HeldRow, History};
use crate::process::{Fate, Process};
use crate::span::{Span, Spans};
use crate::{Actor, Edge};

impl Filling {
    pub(super) fn done(mut self) -> Result<History> {
        let scheduled = self.batches.iter().any(|batch| batch.tries > 0);
        ensure!(scheduled, "nothing was recorded: no client scheduled a task");
        let settings = self.settings.take().context("the settings were not written down")?;
        self.meet_fates();
        self.tell_ids_apart();
        let ends = self.fault_ends.drain(..).collect();
        let (faults, held_rows) = (self.faults(&ends), self.held_rows(&ends));
        let phases = self.phases();
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
            schedules: self.schedules,
            rates: self.rates,
            fired: self.fired,
            redrives: self.redrives,
            redriven: ByTask::new(self.redriven, tasks, |redriven| redriven.step),
            letters: ByTask::new(self.letters, tasks, |letter| letter.shown),
            failures: ByTask::new(self.failures, tasks, |failure| failure.fence),
            claims: ByTask::new(self.claims, tasks, |claim| (claim.fence, claim.at)),
            bodies: ByTask::new(self.bodies, tasks, |body| body.at),
            ends: ByTask::new(self.ends, tasks, |end| end.at),
            held_rows: ByTask::new(held_rows, tasks, |row| row.from),
            process_ends: self.process_ends,
            ticks: self.ticks,
            claimed_at: self.claimed_at,
            database_down: Spans::pair(self.database, self.end),
            clock_steps,
            phases,
            restores: self.restores,
            faults,
            gates: self.gates,
            stale: self.stale,
            refused: self.refused,
            left: self.left,
            shown: self.shown,
        })
    }

    /// Gives each fate to the process that had the number at that moment. The kernel gives the
    /// numbers of ended processes to new ones.
    fn meet_fates(&mut self) {
        self.fates.sort_by_key(|(at, ..)| *at);
        for (at, pid, fate) in std::mem::take(&mut self.fates) {
            meet(&mut self.store_consumers, |_| true, (at, pid, fate));
            for actor in [Actor::Client, Actor::Executor, Actor::Hosted] {
                meet(&mut self.processes, |process| process.actor == actor, (at, pid, fate));
            }
        }
        for process in self.processes.iter_mut().chain(&mut self.store_consumers) {
            process.settle(self.end);
        }
    }

    fn held_rows(&mut self, ends: &HashMap<u64, u64>) -> Vec<HeldRow> {
        let end = self.end;
        let close = |(id, row): (u64, HeldRow)| HeldRow {
            to: ends.get(&id).copied().unwrap_or(end),
            ..row
        };
        self.held_rows.drain(..).map(close).collect()
    }

    fn faults(&mut self, ends: &HashMap<u64, u64>) -> Vec<Fault> {
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

/// Gives a fate to the last process that has that number.
fn meet(some: &mut [Process], of: impl Fn(&Process) -> bool, (at, pid, fate): (u64, u32, Fate)) {
    let bearers =
        some.iter_mut().filter(|process| process.pid == pid && process.opened <= at && of(process));
    if let Some(process) = bearers.max_by_key(|process| process.opened) {
        process.meets(fate, at);
    }
}
