//! NextWork, and what is asked of the tasks that run.

use std::sync::Arc;
use std::time::Instant;

use super::load::Load;
use super::{Controller, Running, State};
use crate::work::{Finished, Why, Work};

/// A buffered task that has waited so many times `buffer_target` sits behind tasks that turned out
/// long.
const HOARDED_AFTER: u32 = 4;

impl Controller {
    /// Running tasks that the database still has as claimed: (task, fence).
    pub(crate) fn unreported(&self) -> Vec<(i64, i64)> {
        let mut state = self.lock();
        let unreported = state.running.iter_mut().filter(|(_, running)| !running.reported);
        unreported
            .map(|(attempt, running)| {
                running.reported = true;
                *attempt
            })
            .collect()
    }

    /// Tells one attempt to stop. A task that waits in a buffer is reported as cancelled right away.
    pub(crate) fn stop(&self, task: i64, fence: i64) {
        let mut state = self.lock();
        if let Some(running) = state.running.get(&(task, fence)) {
            running.stop.stop(Why::Cancelled);
            return;
        }
        if let Some(work) = state.take_buffered(self, task, fence) {
            state.first_result_at.get_or_insert_with(Instant::now);
            state.results.push(Finished::cancelled(&work));
            self.lanes.notify_one();
        }
    }

    /// What a gate holds and no executor has begun: taken out of the buffers, to be given back.
    pub(crate) fn take_gated(&self, gated: &[(i64, i64)]) -> Vec<Work> {
        let mut state = self.lock();
        gated.iter().filter_map(|(task, fence)| state.take_buffered(self, *task, *fence)).collect()
    }

    /// Tells every running attempt to stop.
    pub(crate) fn stop_all(&self, why: Why) {
        for running in self.lock().running.values() {
            running.stop.stop(why);
        }
    }

    /// A task that an executor is at.
    pub(crate) fn running(&self) -> Option<i64> {
        self.lock().running.keys().next().map(|(task, _)| *task)
    }

    /// A task whose body did not end although its deadline and grace have passed.
    pub(crate) fn overdue(&self, now: Instant) -> Option<i64> {
        let state = self.lock();
        let grace = self.config.cancel_grace * 2;
        state.running.iter().find_map(|((task, _), running)| {
            let limit = self.lambdas[running.lambda].attempt_timeout + grace;
            (now.duration_since(running.started_at) > limit).then_some(*task)
        })
    }

    /// Tasks claimed ahead that wait behind long ones: taken out of the buffers, to be given back.
    pub(crate) fn take_hoarded(&self, now: Instant) -> Vec<Work> {
        let mut state = self.lock();
        let limit = self.config.buffer_target * HOARDED_AFTER;
        let mut hoarded = Vec::new();
        for (index, lambda) in self.lambdas.iter().enumerate() {
            let fronts =
                lambda.queues.iter().filter_map(|queue| state.queues[*queue].buffer.front());
            let oldest = fronts.map(|work| now.duration_since(work.claimed_at)).max();
            let Some(waited) = oldest.filter(|waited| *waited > limit) else { continue };
            for queue in &lambda.queues {
                hoarded.extend(state.queues[*queue].drain());
            }
            state.loads[index].buffered = 0;
            state.loads[index].slowed(waited);
        }
        state.buffered_bytes -= hoarded.iter().map(|work| work.payload.len()).sum::<usize>();
        hoarded
    }
}

impl State {
    /// An attempt runs no more; the bound of its queue, if it has one.
    pub(super) fn ended(&mut self, task: i64, fence: i64) -> Option<&mut Load> {
        let running = self.running.remove(&(task, fence))?;
        self.queues[running.queue].bound.as_mut()
    }

    /// A task that waits in a buffer, out of it.
    fn take_buffered(&mut self, controller: &Controller, task: i64, fence: i64) -> Option<Work> {
        let found = self.queues.iter_mut().enumerate().find_map(|(index, queue)| {
            let at = queue.buffer.iter().position(|w| w.task == task && w.fence == fence)?;
            queue.buffer.remove(at).map(|work| (index, work))
        });
        let (queue, work) = found?;
        self.buffered_bytes -= work.payload.len();
        self.loads[controller.queues[queue].lambda].buffered -= 1;
        if let Some(bound) = &mut self.queues[queue].bound {
            bound.buffered -= 1;
        }
        Some(work)
    }

    pub(super) fn take_work(&mut self, controller: &Controller, lambda: usize) -> Option<Work> {
        let load = &mut self.loads[lambda];
        if self.draining || !load.has_free_slot() || load.buffered == 0 {
            return None;
        }
        load.picks += 1;
        let aged =
            load.picks.is_multiple_of(4).then(|| self.aged_buffer(controller, lambda)).flatten();
        let mut queues = controller.lambdas[lambda].queues.iter().copied();
        let queue = aged.or_else(|| queues.find(|queue| self.queues[*queue].is_ready()))?;
        let work = self.queues[queue].buffer.pop_front()?;
        self.buffered_bytes -= work.payload.len();
        self.loads[lambda].began();
        if let Some(bound) = &mut self.queues[queue].bound {
            bound.began();
        }
        self.running.insert(
            (work.task, work.fence),
            Running {
                queue,
                lambda,
                stop: Arc::clone(&work.stop),
                started_at: Instant::now(),
                reported: work.crashes > 0,
            },
        );
        Some(work)
    }

    /// The buffer whose front has waited longest, if that is longer than any should: a lower
    /// priority that higher ones keep overtaking.
    fn aged_buffer(&self, controller: &Controller, lambda: usize) -> Option<usize> {
        let now = Instant::now();
        let front = |queue: &usize| {
            let ready = Some(&self.queues[*queue]).filter(|queue| queue.is_ready())?;
            Some((ready.buffer.front()?.claimed_at, *queue))
        };
        let (since, queue) = controller.lambdas[lambda].queues.iter().filter_map(front).min()?;
        (now.duration_since(since) > controller.config.buffer_target).then_some(queue)
    }

    /// Nothing runs, and no result waits for a lane.
    pub(super) fn is_quiet(&self) -> bool {
        self.running.is_empty() && self.results.is_empty() && self.held.is_empty()
    }

    /// Nothing runs, and nothing is left to be recorded but what lanes are at.
    pub(super) fn is_flushed(&self) -> bool {
        self.is_quiet() && self.settled_leases.is_empty()
    }
}
