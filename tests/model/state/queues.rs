//! Store consumers and janitors: what fills queues, and what finds the forgotten. And the harm that
//! crashes and operators do.

use super::{State, Status, TEN_MINUTES, Task, TaskNo};
use crate::step::Said;

impl State {
    pub(super) fn enqueue_due(&mut self, limit: usize) -> Said {
        let picked = self.due(limit);
        self.timers.retain(|timer| !picked.contains(timer));
        for no in self.in_id_order(picked.iter().map(|(_, no)| *no)) {
            if self.tasks[&no].status.waits() {
                self.enqueue(no);
            }
        }
        Said::Enqueued(i32::try_from(picked.len()).unwrap())
    }

    /// The timers that have come, earliest first, at most so many.
    pub fn due(&self, limit: usize) -> Vec<(super::When, TaskNo)> {
        let due = self.timers.iter().filter(|(due, _)| due.has_come(self.now));
        let mut due: Vec<_> = due.copied().collect();
        due.sort_by_key(|(due, no)| (*due, self.tasks[no].later, *no));
        due.truncate(limit);
        due
    }

    /// The effect of a crash of the server on the unlogged tables.
    pub(super) fn lose_queues(&mut self) -> Said {
        self.queues.clear();
        self.booted = false;
        Said::Nothing
    }

    pub(super) fn rebuild(&mut self) -> Said {
        if self.booted {
            return Said::Rebuilt(None);
        }
        self.booted = true;
        // Tasks scheduled since the loss are found with the others.
        self.queues.clear();
        let ready = self.all_where(|_, task| task.status == Status::Enqueued);
        ready.iter().for_each(|no| self.put_into_queue(*no));
        Said::Rebuilt(Some(i64::try_from(ready.len()).unwrap()))
    }

    /// Deletes the rows that point to a waiting or enqueued task, as a fault would.
    pub(super) fn mislay(&mut self, no: TaskNo) -> Said {
        self.timers.retain(|(_, task)| *task != no);
        self.queues.values_mut().for_each(|queue| queue.retain(|task| *task != no));
        self.task(no).astray = true;
        Said::Nothing
    }

    /// Segment by segment, so the later range comes last.
    pub(super) fn find_stalled(&mut self) -> Said {
        let long_ago = self.now - TEN_MINUTES;
        let late = move |task: &Task| task.trigger.is_some_and(|at| at.latest < long_ago);
        let untimed = self.all_where(|_, task| task.status.waits() && late(task));
        let has_timer = |no: &TaskNo| self.timers.iter().any(|(_, task)| task == no);
        let untimed: Vec<_> = untimed.into_iter().filter(|no| !has_timer(no)).collect();
        for no in &untimed {
            let due = self.tasks[no].trigger.expect("it waits");
            self.wait_until(*no, self.tasks[no].status, due);
        }
        let (mut unqueued, mut unleased) = (0, 0);
        for later in [false, true] {
            let lost = self.all_where(|_, task| {
                task.later == later && task.status == Status::Enqueued && late(task)
            });
            let lost: Vec<_> = lost.into_iter().filter(|no| !self.is_queued(*no)).collect();
            lost.iter().for_each(|no| self.put_into_queue(*no));
            unqueued += lost.len();
            let lost = self.all_where(|state, task| {
                task.later == later
                    && task.status.is_held()
                    && late(task)
                    && state.is_abandoned(task, long_ago)
            });
            unleased += lost.len();
            lost.into_iter().for_each(|no| self.take_back(no));
        }
        Said::Stalled([untimed.len(), unqueued, unleased].map(|n| i32::try_from(n).unwrap()))
    }

    fn is_queued(&self, no: TaskNo) -> bool {
        self.queues.values().any(|queue| queue.contains(&no))
    }

    /// Its lease has gone, and its body can run no more.
    fn is_abandoned(&self, task: &Task, long_ago: i64) -> bool {
        let timeout = self.lambdas[task.lambda].attempt_timeout;
        let lease = task.fence.and_then(|fence| self.leases.get(&fence));
        task.started + timeout < long_ago && lease.is_some_and(|lease| lease.gone)
    }

    /// Returns a task as `release` would, in place of its dead worker.
    fn take_back(&mut self, no: TaskNo) {
        self.task(no).attempt -= 1;
        let asked = self.requests.get(&no) == self.tasks[&no].fence.as_ref();
        if asked { self.end(no, Status::Cancelled) } else { self.enqueue(no) }
    }

    /// Tasks of a kind, in id order.
    fn all_where(&self, is: impl Fn(&Self, &Task) -> bool) -> Vec<TaskNo> {
        let found = self.tasks.iter().filter(|(_, task)| is(self, task));
        self.in_id_order(found.map(|(no, _)| *no))
    }
}
