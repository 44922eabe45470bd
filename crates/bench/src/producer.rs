//! The producers of `paper`: connections that schedule tasks, in a process of their own.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tuskline_sdk::{Address, Client, NewTask, Priority};

use super::load::payload;
use super::proc::monotonic_ns;
use super::worker::{Done, Stamp};

/// The priorities that are used: the first of these.
pub(super) const PRIORITIES: [Priority; 4] =
    [Priority::Normal, Priority::High, Priority::Low, Priority::Critical];
/// Range of the delays, in ms.
const DELAYS_MS: std::ops::Range<u64> = 2_000..5_000;

/// The tasks of all producers.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Load {
    /// Connections that schedule.
    pub connections: u64,
    /// Tasks in one call.
    pub batch: u64,
    /// Tasks a second over all connections; none: as fast as possible.
    pub rate: Option<u64>,
    pub lambdas: u64,
    pub priorities: usize,
    /// Share of the tasks that are due 2 to 5 s later.
    pub delayed: f64,
    /// Share of the tasks whose first attempt fails.
    pub failing: f64,
    /// Seconds before the window, and of the window: starts of tasks that are due in it are timed.
    pub warm_up_s: u64,
    pub seconds: u64,
    pub payload_bytes: usize,
}

impl Load {
    /// Name of a lambda, from 0.
    pub(super) fn lambda(number: u64) -> String {
        format!("paper_{number}")
    }

    /// Schedules until `stop`. Its `executed` is the number of accepted tasks.
    pub(super) async fn produce(
        self,
        address: &Address,
        stop: &CancellationToken,
    ) -> anyhow::Result<Done> {
        let mut clients = Vec::new();
        for _ in 0..self.connections {
            clients.push(Client::builder(address.clone()).connections(1).connect().await?);
        }
        let mut producers = JoinSet::new();
        for (client, number) in clients.into_iter().zip(0..) {
            producers.spawn(self.clone().produce_on(client, number, stop.clone()));
        }
        let mut done = Done::default();
        while let Some(accepted) = producers.join_next().await {
            done.executed += accepted??;
        }
        Ok(done)
    }

    #[allow(clippy::cast_precision_loss)]
    async fn produce_on(
        self,
        client: Client,
        number: u64,
        stop: CancellationToken,
    ) -> anyhow::Result<u64> {
        let mut random = fastrand::Rng::with_seed(number + 1); // the same tasks each time
        let pad = payload(self.payload_bytes);
        let calls_per_s =
            self.rate.map(|rate| rate as f64 / (self.batch * self.connections) as f64);
        let mut beat = calls_per_s.map(|n| tokio::time::interval(Duration::from_secs_f64(1.0 / n)));
        let window_ns = {
            let from = monotonic_ns() + self.warm_up_s * 1_000_000_000;
            from..from + self.seconds * 1_000_000_000
        };
        let mut accepted = 0;
        while !stop.is_cancelled() {
            if let Some(beat) = &mut beat {
                beat.tick().await;
            }
            let tasks = (0..self.batch).map(|_| self.task(&mut random, &pad, &window_ns));
            let mut tasks = tasks.collect::<anyhow::Result<Vec<_>>>()?;
            match tasks.pop() {
                Some(task) if tasks.is_empty() => drop(client.schedule(task).await?),
                Some(task) => {
                    tasks.push(task);
                    client.schedule_many(tasks).await?;
                }
                None => break,
            }
            accepted += self.batch;
        }
        Ok(accepted)
    }

    fn task(
        &self,
        random: &mut fastrand::Rng,
        pad: &str,
        window_ns: &std::ops::Range<u64>,
    ) -> anyhow::Result<NewTask> {
        let priority = random.usize(..self.priorities);
        let delay_ms = (random.f64() < self.delayed).then(|| random.u64(DELAYS_MS));
        let due_ns = monotonic_ns() + delay_ms.unwrap_or(0) * 1_000_000;
        let stamp = Stamp {
            at_ns: if window_ns.contains(&due_ns) { due_ns } else { 0 },
            phase: u8::try_from(priority)?,
            fails_first: random.f64() < self.failing,
            pad: pad.to_owned(),
        };
        let task = NewTask::new(Self::lambda(random.u64(..self.lambdas)), &stamp)
            .priority(PRIORITIES[priority]);
        Ok(match delay_ms {
            Some(ms) => task.after(Duration::from_millis(ms)),
            None => task,
        })
    }
}
