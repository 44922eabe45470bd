//! The acts of executors on tasks that they hold, or believe to hold.

use std::collections::BTreeSet;

use super::rules::{already_says, is_alive, outcome, retry_at};
use super::{ExecutorNo, Lease, LeaseNo, State, Status, TaskNo, When};
use crate::step::{PRIORITIES, Report, Said, Taken, Word};

impl State {
    /// The queues in the order in which every executor asks for them.
    pub fn queues_in_turn(&self) -> Vec<(&'static str, &'static str)> {
        let lambdas = self.lambdas.keys();
        lambdas.flat_map(|lambda| PRIORITIES.map(|priority| (*lambda, priority))).collect()
    }

    pub(super) fn claim(&mut self, executor: ExecutorNo, lease: LeaseNo, budget: i32) -> Said {
        if !is_alive(&self.executors[&executor]) {
            return Said::Claimed(Taken::default());
        }
        if !self.booted {
            return Said::Refused("TK011");
        }
        let mut popped = Vec::new();
        let mut left = self.lambdas.keys().map(|lambda| (*lambda, budget)).collect::<Vec<_>>();
        let mut rows = Vec::new();
        for queue in self.queues_in_turn() {
            let left = left.iter_mut().find(|(lambda, _)| *lambda == queue.0);
            let left = &mut left.expect("a budget per lambda").1;
            if *left <= 0 {
                popped.push(None);
                continue;
            }
            let waiting = self.queues.entry(queue).or_default();
            let count = waiting.len().min(usize::try_from(*left).unwrap());
            rows.extend(waiting.drain(..count));
            *left -= i32::try_from(count).unwrap();
            popped.push(Some(i32::try_from(count).unwrap()));
        }
        let tasks = rows.iter().copied().filter(|no| self.tasks[no].status == Status::Enqueued);
        let tasks = self.in_id_order(tasks.collect::<Vec<_>>());
        let taken = Taken { alive: true, popped, has_fence: !rows.is_empty(), tasks: Vec::new() };
        self.hold(executor, lease, tasks, taken)
    }

    fn hold(
        &mut self,
        executor: ExecutorNo,
        lease: LeaseNo,
        tasks: Vec<TaskNo>,
        mut taken: Taken,
    ) -> Said {
        let (now, expires) = (self.now, self.now + self.executors[&executor].lease);
        for no in &tasks {
            let task = self.task(*no);
            task.status = Status::Claimed;
            task.fence = Some(lease);
            task.attempt += 1;
            task.started = now;
            task.trigger = Some(When::exactly(expires));
            task.astray = false;
            taken.tasks.push((*no, task.attempt, task.crashes));
        }
        if !tasks.is_empty() {
            self.leases.insert(lease, Lease { executor, tasks, gone: false });
        }
        Said::Claimed(taken)
    }

    pub(super) fn exchange(
        &mut self,
        executor: ExecutorNo,
        reports: &[Report],
        done: &[LeaseNo],
        lease: LeaseNo,
        budget: i32,
    ) -> Said {
        if is_alive(&self.executors[&executor]) && !self.booted {
            return Said::Refused("TK011");
        }
        let Said::Refusals(refused) = self.set_results(executor, reports, done) else {
            unreachable!("set_results answers with refusals")
        };
        let Said::Claimed(taken) = self.claim(executor, lease, budget) else {
            unreachable!("claim was refused above")
        };
        Said::Exchanged(refused, taken)
    }

    pub(super) fn set_results(
        &mut self,
        executor: ExecutorNo,
        reports: &[Report],
        done: &[LeaseNo],
    ) -> Said {
        let mut refused = BTreeSet::new();
        for report in reports {
            if self.holds((report.task, report.fence)) {
                self.settle(report);
            } else {
                let task = &self.tasks[&report.task];
                if task.fence != Some(report.fence) || !already_says(task.status, report.word) {
                    refused.insert(report.task);
                }
            }
        }
        self.drop_leases(executor, done);
        Said::Refusals(refused)
    }

    fn settle(&mut self, report: &Report) {
        let (now, no) = (self.now, report.task);
        let asked = self.requests.get(&no) == Some(&report.fence);
        let lambda = self.lambdas[self.tasks[&no].lambda].clone();
        let task = self.task(no);
        let status = outcome(report.word, asked, task.attempt, &lambda);
        task.crashes = 0;
        task.failures +=
            i64::from(matches!(status, Status::Retriable | Status::Fatal | Status::Dead));
        task.output |= matches!(report.word, Word::SuccessWith(_));
        match report.word {
            Word::Retriable(after) if status == Status::Retriable => {
                let due = retry_at(now, after, task.attempt, &lambda);
                self.wait_until(no, status, due);
            }
            _ => self.end(no, status),
        }
    }

    pub(super) fn start(&mut self, executor: ExecutorNo, attempts: &[(TaskNo, LeaseNo)]) -> Said {
        let executor = &self.executors[&executor];
        let mut moved = BTreeSet::new();
        if !is_alive(executor) {
            return Said::Moved(moved);
        }
        let trigger = When::exactly(executor.expires);
        for (no, fence) in attempts {
            let task = self.task(*no);
            if task.status == Status::Claimed && task.fence == Some(*fence) {
                task.status = Status::Processing;
                task.trigger = Some(trigger);
                moved.insert(*no);
            }
        }
        Said::Moved(moved)
    }

    pub(super) fn release(
        &mut self,
        executor: ExecutorNo,
        attempts: &[(TaskNo, LeaseNo)],
        done: &[LeaseNo],
    ) -> Said {
        let held = attempts.iter().copied().filter(|attempt| self.holds(*attempt));
        let moved = self.in_id_order(held.map(|(task, _)| task).collect::<Vec<_>>());
        for no in &moved {
            self.task(*no).attempt -= 1;
            let asked = self.requests.get(no) == self.tasks[no].fence.as_ref();
            if asked { self.end(*no, Status::Cancelled) } else { self.enqueue(*no) }
        }
        self.drop_leases(executor, done);
        Said::Moved(moved.into_iter().collect())
    }

    pub(super) fn release_lease(&mut self, executor: ExecutorNo, no: LeaseNo) -> Said {
        let lease = &self.leases[&no];
        if lease.gone || lease.executor != executor {
            return Said::Moved(BTreeSet::new());
        }
        let attempts: Vec<_> = lease.tasks.iter().map(|task| (*task, no)).collect();
        self.release(executor, &attempts, &[no])
    }

    /// An executor drops only its own leases. If it drops a lease too early, the tasks of the lease
    /// go astray.
    fn drop_leases(&mut self, executor: ExecutorNo, done: &[LeaseNo]) {
        for no in done {
            let lease = self.leases.get_mut(no).expect("a lease of this case");
            if lease.executor != executor || lease.gone {
                continue;
            }
            lease.gone = true;
            for task in lease.tasks.clone() {
                if self.holds((task, *no)) {
                    self.task(task).astray = true;
                }
            }
        }
    }
}
