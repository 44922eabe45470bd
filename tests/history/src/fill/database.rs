//! Reads the database's export.

use super::{Filling, NO_ATTEMPT};
use crate::Event;
use crate::history::{Dependency, Failure, Fired, Letter, Redriven, Row, Transition};

impl Filling {
    pub(super) fn database(&mut self, event: Event) {
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
                xid,
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
                    xid,
                });
            }
            // The failure tells why a task ended without an attempt.
            Event::Failure { class, .. } if NO_ATTEMPT.contains(&class.as_str()) => {}
            Event::Failure { task, fence, fingerprint, .. } => {
                let task = self.tasks.number(task);
                let fingerprint = self.words.number(fingerprint);
                self.failures.push(Failure { task, fence, fingerprint });
            }
            Event::Dependency { task, parent, condition, run } => {
                let (task, parent) = (self.tasks.number(task), self.tasks.number(parent));
                self.dependencies.push(Dependency { task, parent, condition, run });
            }
            Event::Left { what, count } => self.left.push((what, count)),
            Event::Shown { what, shown, counted } => self.shown.push((what, shown, counted)),
            row @ Event::Row { .. } => self.row(row),
            other => self.schedules_and_redrives(other),
        }
    }

    fn schedules_and_redrives(&mut self, event: Event) {
        match event {
            Event::Tick { name, tick_us, task, reason, fired_us } => {
                let (name, task) =
                    (self.words.number(name), task.map(|task| self.tasks.number(task)));
                self.fired.push(Fired { name, tick_us, task, reason, fired_us });
            }
            Event::Redriven { task, redrive, step, xid } => {
                let task = self.tasks.number(task);
                self.redriven.push(Redriven { task, redrive, step, xid });
            }
            Event::Redrive(redrive) => self.redrives.push(redrive),
            Event::DeadLetter { task, shown } => {
                let task = self.tasks.number(task);
                self.letters.push(Letter { task, shown });
            }
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
            tick: tick.map(|(name, due_us)| (self.words.number(name), due_us)),
            fence,
            status,
            attempt,
            max_attempts,
            crashes,
            max_crashes,
        };
        self.rows.push(row);
    }
}
