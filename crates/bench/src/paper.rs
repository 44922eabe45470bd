//! paper: the load of the paper: many lambdas, several priorities, some tasks due later, some that fail at
//! first. Producers in a process of their own, a server, and workers.
//!
//! A window of `--seconds` is measured while all of them work, after a warm-up. Rounds take turns, each in a
//! database of its own; the round with the median rate is reported.

use clap::{Args, value_parser};
use tuskline_sdk::BATCH_MAX;

use super::backends::Backends;
use super::drain::{now_s, patience, succeeded, until_nothing_is_due};
use super::latencies::Latencies;
use super::load::{PAYLOAD_BYTES, checkpoint, payload_bytes};
use super::meter::round;
use super::producer::{Load, PRIORITIES};
use super::progress::Progress;
use super::report::Outcome;
use super::site::Site;
use super::worker::Part;
use super::workers::{Order, Work, Workers};

/// Options of `paper`.
#[derive(Debug, Clone, Args)]
pub struct Paper {
    /// Lambdas; one measurement for each number.
    #[arg(long, value_delimiter = ',', default_value = "100")]
    #[arg(value_parser = value_parser!(u64).range(1..=10_000))]
    lambdas: Vec<u64>,
    /// Tasks in one call; one measurement for each number.
    #[arg(long, value_delimiter = ',', default_value = "10")]
    #[arg(value_parser = value_parser!(u64).range(1..=BATCH_MAX as u64))]
    batch: Vec<u64>,
    /// Tasks a second. Default: as many as possible.
    #[arg(long, value_parser = value_parser!(u64).range(1..=1_000_000))]
    rate: Option<u64>,
    /// Connections that schedule.
    #[arg(long, default_value_t = 4, value_parser = value_parser!(u64).range(1..=64))]
    connections: u64,
    /// Priorities of the tasks.
    #[arg(long, default_value_t = 3, value_parser = value_parser!(u64).range(1..=4))]
    priorities: u64,
    /// Share of the tasks that are due 2 to 5 s later.
    #[arg(long, default_value_t = 0.2, value_parser = share)]
    delayed: f64,
    /// Share of the tasks whose first attempt fails.
    #[arg(long, default_value_t = 0.03, value_parser = share)]
    failing: f64,
    /// Seconds that are measured.
    #[arg(long, default_value_t = 20, value_parser = value_parser!(u64).range(1..=3_600))]
    seconds: u64,
    /// Seconds before that. The longest delay is 5 s: with fewer, tasks of the window that are due later are
    /// fewer than in a long run.
    #[arg(long, default_value_t = 6, value_parser = value_parser!(u64).range(1..=60))]
    warm_up: u64,
    /// Runs of each measurement.
    #[arg(long, default_value_t = 3, value_parser = value_parser!(u64).range(1..=9))]
    rounds: u64,
    /// Worker processes.
    #[arg(long, default_value_t = 1, value_parser = value_parser!(u64).range(1..=64))]
    workers: u64,
    /// Size of each payload, besides a stamp of some 60 bytes.
    #[arg(long, default_value_t = PAYLOAD_BYTES, value_parser = payload_bytes)]
    payload_bytes: usize,
}

fn share(text: &str) -> Result<f64, String> {
    let share = text.parse::<f64>().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| "must be a number from 0 to 1".to_owned())
}

impl Paper {
    pub(super) async fn run(&self, site: &Site) -> anyhow::Result<Vec<Outcome>> {
        let loads: Vec<_> = self
            .lambdas
            .iter()
            .flat_map(|n| self.batch.iter().map(|b| self.load(*n, *b)))
            .collect();
        let steps = (self.warm_up + self.seconds) * loads.len() as u64 * self.rounds;
        let progress = Progress::new("paper", steps, site.quiet());
        let mut rounds: Vec<Vec<Outcome>> = loads.iter().map(|_| Vec::new()).collect();
        for round in 0..self.rounds {
            for (number, load) in loads.iter().enumerate() {
                if round > 0 || number > 0 {
                    site.renew().await?;
                }
                rounds[number].push(self.once(site, load, &progress).await?);
            }
        }
        Ok(rounds.into_iter().filter_map(middle).collect())
    }

    fn load(&self, lambdas: u64, batch: u64) -> Load {
        Load {
            connections: self.connections,
            batch,
            rate: self.rate,
            lambdas,
            priorities: usize::try_from(self.priorities).unwrap_or(PRIORITIES.len()),
            delayed: self.delayed,
            failing: self.failing,
            warm_up_s: self.warm_up,
            seconds: self.seconds,
            payload_bytes: self.payload_bytes,
        }
    }

    async fn once(&self, site: &Site, load: &Load, progress: &Progress) -> anyhow::Result<Outcome> {
        let observer = site.observer().await?;
        let names: Vec<_> = (0..load.lambdas).map(Load::lambda).collect();
        for name in &names {
            let define =
                format!("select tuskline.define_lambda('{name}', p_retry_base => '500 ms')");
            observer.row(&define).await?;
        }
        checkpoint(&observer).await;
        let server = Workers::start(site, Order::of(Part::Server, &[]), 1)?;
        let order = Order::of(Part::Stamped, &names);
        let workers = Workers::asleep(site, &observer, order, self.workers).await?;
        let order = Order { load: Some(load), ..Order::of(Part::Producer, &[]) };
        let producers = Workers::start(site, order, 1)?;
        progress.sleep(self.warm_up).await;
        let from = (now_s(&observer).await?, observer.read().await?);
        let backends = Backends::read(&observer).await?;
        progress.sleep(self.seconds).await;
        let backends_later = Backends::read(&observer).await?;
        let to = (now_s(&observer).await?, observer.read().await?);
        let accepted = producers.end().await?.executed;
        until_nothing_is_due(&observer, patience(accepted)).await?;
        let work = workers.end().await?;
        server.end().await?;
        let counts = format!(
            "select count(*) filter (where status = 'success'), \
                    count(*) filter (where created_at between f and t), \
                    count(*) filter (where finished_at between f and t) \
               from tuskline.task, to_timestamp({}) as f, to_timestamp({}) as t",
            from.0, to.0
        );
        let counts = observer.row(&counts).await?;
        succeeded(counts.get(0), accepted)?;
        let seconds = to.0 - from.0;
        let done = u64::try_from(counts.get::<_, i64>(2))?;
        #[allow(clippy::cast_precision_loss)]
        let accepted_per_s = counts.get::<_, i64>(1) as f64 / seconds;
        let outcome = Outcome::new("paper", done, seconds, from.1.until(to.1, done))
            .with("accepted_per_s", round(accepted_per_s));
        let queues = load.lambdas * self.priorities;
        let outcome = backends.until(&backends_later, queues, outcome);
        self.by_priority(outcome, &work).map(|outcome| self.named(outcome, load))
    }

    /// From due to the start of the first attempt.
    fn by_priority(&self, mut outcome: Outcome, work: &Work) -> anyhow::Result<Outcome> {
        let mut all = Latencies::none()?;
        for (priority, phase) in PRIORITIES.iter().zip(0..).take(usize::try_from(self.priorities)?)
        {
            let own = work.latencies(phase)?;
            all.add(&own)?;
            let quantiles = own.quantiles();
            outcome = outcome
                .with(&format!("{priority}_p50_ms"), quantiles.p50_ms)
                .with(&format!("{priority}_p95_ms"), quantiles.p95_ms);
        }
        Ok(outcome.timed(&all))
    }

    fn named(&self, outcome: Outcome, load: &Load) -> Outcome {
        outcome
            .part(format!("{} lambdas, batches of {}", load.lambdas, load.batch))
            .with("lambdas", load.lambdas)
            .with("batch", load.batch)
            .with("rate", load.rate)
            .with("connections", load.connections)
            .with("priorities", self.priorities)
            .with("delayed", load.delayed)
            .with("failing", load.failing)
            .with("workers", self.workers)
            .with("payload_bytes", load.payload_bytes)
    }
}

/// The round with the median rate, beside the rates of all of them.
fn middle(mut rounds: Vec<Outcome>) -> Option<Outcome> {
    let rates: Vec<_> = rounds.iter().map(|round| round.tasks_per_s).collect();
    let p95: Vec<_> = rounds.iter().map(|round| round.quantiles.p95_ms).collect();
    let cpu: Vec<_> = rounds.iter().map(|round| round.cost.server_cpu_us_per_task).collect();
    rounds.sort_by(|a, b| {
        a.tasks_per_s.partial_cmp(&b.tasks_per_s).unwrap_or(std::cmp::Ordering::Equal)
    });
    let at = rounds.len() / 2;
    let middle = rounds.into_iter().nth(at)?;
    Some(
        middle
            .with("rounds_tasks_per_s", rates)
            .with("rounds_p95_ms", p95)
            .with("rounds_server_cpu_us_per_task", cpu),
    )
}

#[cfg(test)]
mod tests {
    use super::super::meter::Cost;
    use super::*;

    #[test]
    fn the_round_with_the_median_rate_is_reported() {
        let round = |tasks| Outcome::new("paper", tasks, 1.0, Cost::default());
        let shown = middle(vec![round(30), round(10), round(20)]).unwrap();
        assert_eq!(shown.tasks, 20);
        assert_eq!(shown.extra["rounds_tasks_per_s"], serde_json::json!([30.0, 10.0, 20.0]));
        assert!(middle(Vec::new()).is_none());
    }
}
