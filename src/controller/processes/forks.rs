//! Which executors a zygote shall fork: those that are missing.

use std::time::{Duration, Instant};

use super::{FORK, Processes};
use crate::controller::process;
use crate::controller::wire::{Fork, Forks, Served};

impl Processes {
    /// The executors to fork, once there are any.
    pub async fn next_fork(&self, lambdas: &[Served], wait: Duration) -> Forks {
        let until = tokio::time::Instant::now() + wait;
        loop {
            let gone = self.hand_out.gone.notified();
            tokio::pin!(gone);
            gone.as_mut().enable();
            if self.draining.is_cancelled() {
                return Forks { fork: Vec::new(), draining: true };
            }
            let (fork, look_at) = self.missing(lambdas);
            if !fork.is_empty() || tokio::time::Instant::now() >= until {
                return Forks { fork, draining: false };
            }
            let look_at = look_at.map_or(until, |at| until.min(at.into()));
            tokio::select! {
                () = gone => {}
                () = self.draining.cancelled() => {}
                () = tokio::time::sleep_until(look_at) => {}
            }
        }
    }

    /// Forks that are missing now, and when to look again.
    fn missing(&self, lambdas: &[Served]) -> (Vec<Fork>, Option<Instant>) {
        let now = Instant::now();
        let mut groups: Vec<(Vec<String>, usize)> = Vec::new();
        let mut shared: Vec<String> = Vec::new();
        for served in lambdas {
            match served.isolate {
                true => groups.push((vec![served.name.clone()], served.slots)),
                false => shared.push(served.name.clone()),
            }
        }
        if !shared.is_empty() {
            shared.sort();
            groups.push((shared, self.program.processes));
        }
        // Before the look at executors: one that joins meanwhile is counted twice, and never not at all.
        let mut state = self.lock();
        let alive: Vec<usize> =
            groups.iter().map(|(names, _)| self.hand_out.serving(names)).collect();
        if let Some(at) = state.fork_at.filter(|at| *at > now) {
            return (Vec::new(), Some(at));
        }
        let (mut forks, asked_at) = (Vec::new(), process::since_boot());
        for ((names, wanted), alive) in groups.into_iter().zip(alive) {
            let asked = state.forking.entry(names.clone()).or_default();
            asked.retain(|at| asked_at.saturating_sub(*at) < FORK);
            let missing = wanted.saturating_sub(alive + asked.len());
            asked.extend(std::iter::repeat_n(asked_at, missing));
            forks.extend(std::iter::repeat_n(Fork { lambdas: names }, missing));
        }
        (forks, Some(now + FORK))
    }
}
