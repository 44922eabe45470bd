//! recover: one of two workers is killed with its hands full; how long until its tasks run elsewhere.
//! That is the lease and what finding it expired takes, by default some 21 s.

use std::time::Duration;

use clap::{Args, value_parser};

use super::drain::{DRAINED, patience, succeeded};
use super::latencies::Latencies;
use super::load::{PAYLOAD_BYTES, Preload, define_noop};
use super::meter::round;
use super::report::Outcome;
use super::site::Site;
use super::worker::Part;
use super::workers::{Order, Workers};

/// Both workers have tasks in hand.
const BOTH_HOLD: &str = "select count(distinct executor_id) = 2 from tuskline.lease";
/// Longest wait for that.
const START_LIMIT: Duration = Duration::from_secs(30);

/// When each of the dead worker's tasks was claimed again, after the kill.
const AGAIN: &str = "select count(t.id), \
    coalesce(extract(epoch from min(t.started_at) - min(h.killed_at)), 0)::float8, \
    coalesce(extract(epoch from max(t.started_at) - min(h.killed_at)), 0)::float8, \
    (select count(*) from bench_held), \
    (select count(*) from tuskline.task where status = 'success'), \
    (select extract(epoch from max(finished_at) - min(created_at))::float8 from tuskline.task), \
    coalesce(array_agg(extract(epoch from t.started_at - h.killed_at)::float8 * 1000000), '{}') \
  from bench_held h join tuskline.task t on t.id = h.id and t.fence <> h.fence";

/// Options of `recover`.
#[derive(Debug, Clone, Args)]
pub struct Recover {
    /// Tasks of 50 ms each; a worker runs some 640 a second. Their costs include scheduling.
    #[arg(long, default_value_t = 10_000, value_parser = value_parser!(u64).range(1_000..=10_000_000))]
    tasks: u64,
    /// Heartbeat period of the workers in ms; their lease is 5.25 times as long.
    #[arg(long, value_name = "MS", value_parser = value_parser!(u64).range(50..=60_000))]
    heartbeat_ms: Option<u64>,
}

impl Recover {
    pub(super) async fn run(&self, site: &Site) -> anyhow::Result<Outcome> {
        let observer = site.observer().await?;
        let lambdas = define_noop(&observer).await?;
        let before = observer.read().await?;
        let server = Workers::start(site, Order::of(Part::Server, &[]), 1)?;
        let order = Order { heartbeat_ms: self.heartbeat_ms, ..Order::of(Part::Slow, &lambdas) };
        let mut workers = Workers::start(site, order, 2)?;
        observer.until_workers(2).await?; // or the first might take everything
        Preload::noop(self.tasks, PAYLOAD_BYTES).insert("preload", site, &observer).await?;
        observer.until(BOTH_HOLD, "tasks in both workers' hands", START_LIMIT).await?;
        let killed = workers.kill_one()?;
        observer.execute(&note_held(killed)).await?;
        let left = patience(self.tasks * 10);
        observer.until(DRAINED, "the end of the recovery", left).await?;
        workers.end().await?;
        server.end().await?;
        observer.alone().await?;
        let after = observer.read().await?;
        let again = observer.row(AGAIN).await?;
        succeeded(again.get(4), self.tasks)?;
        let (found, held): (i64, i64) = (again.get(0), again.get(3));
        anyhow::ensure!(held > 0, "the worker held nothing when it was killed; give more --tasks");
        anyhow::ensure!(found == held, "{found} of {held} tasks were executed again");
        let mut latencies = Latencies::none()?;
        for took_us in again.get::<_, Vec<f64>>(6) {
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            latencies.record(took_us.max(0.0) as u64);
        }
        Ok(Outcome::new("recover", self.tasks, again.get(5), before.until(after, self.tasks))
            .timed(&latencies)
            .with("first_again_s", round(again.get(1)))
            .with("last_again_s", round(again.get(2)))
            .with("tasks_held", held))
    }
}

/// Writes down what a dead process held, and when.
fn note_held(pid: u32) -> String {
    format!(
        "create table bench_held as \
         select clock_timestamp() as killed_at, t.id, t.fence \
           from tuskline.executor e join tuskline.lease l using (executor_id) \
                cross join unnest(l.task_ids) as held (id) \
                join tuskline.task t on t.id = held.id and t.fence = l.lease_id \
          where e.pid = {pid} and t.status in ('claimed', 'processing')"
    )
}
