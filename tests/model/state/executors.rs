//! The lives of executors, and what becomes of the tasks of the dead.

use super::rules::{after_a_death, are_over, is_alive, is_silent};
use super::{Executor, ExecutorNo, State, Status};
use crate::step::Said;

impl State {
    pub(super) fn register(&mut self, no: ExecutorNo, slot: usize, lease: i64) -> Said {
        if !self.booted {
            return Said::Refused("TK011");
        }
        let executor = Executor { slot, lease, expires: self.now + lease, ended: false };
        self.executors.insert(no, executor);
        Said::Nothing
    }

    pub(super) fn heartbeat(&mut self, no: ExecutorNo) -> Said {
        let now = self.now;
        let executor = self.executors.get_mut(&no).expect("an executor of this case");
        if !is_alive(executor) {
            return Said::Dead;
        }
        executor.expires = now + executor.lease;
        let leases = self.leases.iter().filter(|(_, lease)| lease.executor == no && !lease.gone);
        let leases: Vec<_> = leases.map(|(lease, _)| *lease).collect();
        let asked = self.requests.iter().filter(|(_, fence)| leases.contains(fence));
        Said::Alive { stop: asked.map(|(task, fence)| (*task, *fence)).collect(), leases }
    }

    pub(super) fn end_executor(&mut self, no: ExecutorNo) -> Said {
        let now = self.now;
        let executor = self.executors.get_mut(&no).expect("an executor of this case");
        if !executor.ended {
            executor.ended = true;
            executor.expires = now;
        }
        Said::Nothing
    }

    pub(super) fn rescue(&mut self, limit: usize) -> Said {
        let now = self.now;
        for executor in self.executors.values_mut() {
            executor.ended |= is_silent(executor, now);
        }
        let mut over: Vec<_> = self
            .leases
            .iter()
            .filter(|(_, lease)| !lease.gone && are_over(&self.executors[&lease.executor]))
            .map(|(no, lease)| (lease.executor, *no))
            .collect();
        over.sort_unstable();
        over.truncate(limit);
        let mut held = Vec::new();
        for (_, no) in &over {
            let tasks = self.leases[no].tasks.iter().copied();
            held.extend(tasks.filter(|task| self.holds((*task, *no))));
            self.leases.get_mut(no).expect("it is over").gone = true;
        }
        let (mut rescued, mut buried) = (0, 0);
        for no in self.in_id_order(held) {
            let (charge, status) = after_a_death(self, no);
            let task = self.task(no);
            task.attempt -= 1;
            task.crashes += charge;
            task.failures += i64::from(charge);
            rescued += i32::from(status == Status::Enqueued);
            buried += i32::from(status == Status::Dead);
            if status == Status::Enqueued { self.enqueue(no) } else { self.end(no, status) }
        }
        Said::Rescued { leases: i32::try_from(over.len()).unwrap(), rescued, buried }
    }
}
