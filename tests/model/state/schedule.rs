//! Services and operators: lambdas, scheduling, cancelling.

use super::{Lambda, State, Status, TEN_MINUTES, Task, TaskNo, When};
use crate::step::{Change, Due, Order, Said};

impl State {
    /// The third lambda, which is not there at the start.
    pub(super) fn define(&mut self) -> Said {
        let settings = Lambda { max_attempts: 20, ..Self::new().lambdas["work"].clone() };
        let settings = Lambda { retry_base: 1_000, retry_cap: 3_600_000, ..settings };
        let is_new = !self.lambdas.contains_key("late");
        self.lambdas.entry("late").or_insert(settings);
        Said::Defined(is_new)
    }

    pub(super) fn alter(&mut self, lambda: &str, change: Change) -> Said {
        let Some(lambda) = self.lambdas.get_mut(lambda) else { return Said::Refused("TK001") };
        match change {
            Change::Direct(direct) => lambda.direct = direct,
            Change::Attempts(most) => lambda.max_attempts = most,
            Change::Crashes(most) => lambda.max_crashes = most,
            Change::Base(base) => lambda.retry_base = base,
        }
        Said::Nothing
    }

    /// A task that is due later gets an id of the later range.
    pub(super) fn schedule(&mut self, orders: &[Order]) -> Said {
        self.accept(orders, |due, now| due.is_some_and(|due| due > now))
    }

    /// A plain INSERT takes ids of the common range only.
    pub(super) fn insert(&mut self, orders: &[Order]) -> Said {
        self.accept(orders, |_, _| false)
    }

    fn accept(&mut self, orders: &[Order], later: impl Fn(Option<i64>, i64) -> bool) -> Said {
        if orders.iter().any(|order| !self.lambdas.contains_key(order.lambda)) {
            return Said::Refused("TK001");
        }
        for order in orders {
            let due = match order.due {
                Due::Now => None,
                Due::At(offset) | Due::In(offset) => Some(self.now + offset),
            };
            self.add(order, due, later(due, self.now));
        }
        Said::Accepted(orders.len())
    }

    fn add(&mut self, order: &Order, due: Option<i64>, later: bool) {
        let is_due = due.is_none_or(|due| due <= self.now);
        let task = Task {
            lambda: order.lambda,
            priority: order.priority,
            status: Status::New,
            fence: None,
            attempt: 0,
            crashes: 0,
            trigger: None,
            started: 0,
            later,
            failures: 0,
            output: false,
            astray: false,
        };
        self.tasks.insert(order.task, task);
        if is_due && self.lambdas[order.lambda].direct {
            self.enqueue(order.task);
        } else {
            let due = When::exactly(due.unwrap_or(self.now).max(self.now));
            self.wait_until(order.task, Status::New, due);
        }
    }

    pub(super) fn cancel(&mut self, no: TaskNo) -> Said {
        let task = &self.tasks[&no];
        let (status, fence) = (task.status, task.fence);
        if status.is_terminal() {
            return Said::Cancel("too_late");
        }
        if let Some(fence) = fence.filter(|_| status.is_held()) {
            self.requests.insert(no, fence);
            return Said::Cancel("requested");
        }
        let trigger = task.trigger;
        self.timers.retain(|(due, task)| *task != no || Some(*due) != trigger);
        self.end(no, Status::Cancelled);
        Said::Cancel("cancelled")
    }

    /// Into the queue, with the next look ten minutes from now.
    pub(super) fn enqueue(&mut self, no: TaskNo) {
        let trigger = When::exactly(self.now + TEN_MINUTES);
        let task = self.task(no);
        task.status = Status::Enqueued;
        task.trigger = Some(trigger);
        self.put_into_queue(no);
    }

    /// Adds a row to the queue, even if the task has one.
    pub(super) fn put_into_queue(&mut self, no: TaskNo) {
        let task = self.task(no);
        task.astray = false;
        let queue = (task.lambda, task.priority);
        self.queues.entry(queue).or_default().push(no);
    }

    /// Out of sight until a timer.
    pub(super) fn wait_until(&mut self, no: TaskNo, status: Status, due: When) {
        let task = self.task(no);
        task.status = status;
        task.trigger = Some(due);
        task.astray = false;
        self.timers.push((due, no));
    }

    /// The end, after which nothing points to it.
    pub(super) fn end(&mut self, no: TaskNo, status: Status) {
        let task = self.task(no);
        task.status = status;
        task.trigger = None;
        task.astray = false;
        self.requests.remove(&no);
    }
}
