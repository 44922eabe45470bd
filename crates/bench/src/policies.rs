//! policies: a drain without a policy, and the same under a limit, a limit by key, an order and a fair limit.
//! With a server, which moves the tasks out of the wait lists.

use clap::{Args, value_parser};

use super::drain::Queue;
use super::load::define_noop;
use super::meter::Observer;
use super::progress::Progress;
use super::report::Outcome;
use super::site::Site;
use super::worker::Part;
use super::workers::Order;

/// Tasks in one statement of the preload.
const BATCH: u64 = 10_000;

/// Each measurement: its name, the policy of the lambda `noop`, and the key of the n-th task.
const POLICIES: [(&str, &str, &str); 5] = [
    ("plain", "", ""),
    ("limit", "select tuskline.set_limit('noop', {limit})", ""),
    ("limit by key", "select tuskline.set_limit('noop', 1, p_by_key => true)", "limit_key"),
    ("order", "select tuskline.set_order('noop')", "ordering_key"),
    ("fair", "select tuskline.set_limit('noop', {limit}, p_fair => true)", "fairness_key"),
];

/// Options of `policies`.
#[derive(Debug, Clone, Args)]
pub struct Policies {
    /// Tasks in each measurement.
    #[arg(long, default_value_t = 50_000, value_parser = value_parser!(u64).range(1..=10_000_000))]
    tasks: u64,
    /// Tasks at a time under the limit and under the fair limit.
    #[arg(long, default_value_t = 100, value_parser = value_parser!(u64).range(1..=100_000))]
    limit: u64,
    /// Keys of the limit by key.
    #[arg(long, default_value_t = 10_000, value_parser = value_parser!(u64).range(1..=10_000_000))]
    limit_keys: u64,
    /// Keys of the order.
    #[arg(long, default_value_t = 100_000, value_parser = value_parser!(u64).range(1..=10_000_000))]
    ordering_keys: u64,
    /// Tenants of the fair limit.
    #[arg(long, default_value_t = 10_000, value_parser = value_parser!(u64).range(1..=10_000_000))]
    tenants: u64,
    /// Only these measurements: plain, limit, "limit by key", order, fair.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
}

impl Policies {
    pub(super) async fn run(&self, site: &Site) -> anyhow::Result<Vec<Outcome>> {
        let observer = site.observer().await?;
        for name in &self.only {
            let known = POLICIES.iter().any(|policy| policy.0 == name);
            anyhow::ensure!(known, "no measurement is called {name:?}");
        }
        let lambdas = define_noop(&observer).await?;
        let mut parts = Vec::new();
        for (name, policy, key) in POLICIES {
            if !self.only.is_empty() && !self.only.iter().any(|only| only == name) {
                continue;
            }
            let policy = policy.replace("{limit}", &self.limit.to_string());
            if !policy.is_empty() {
                observer.row(&policy).await?;
            }
            self.preload(site, &observer, key).await?;
            let queue = Queue { workload: "policies", tasks: self.tasks, workers: 1, server: true };
            let order = Order::of(Part::Noop, &lambdas);
            parts.push(queue.drain(site, &observer, order).await?.part(name.to_owned()));
            let drop = "select count(tuskline.drop_limit(limit_id)) from tuskline.limits";
            observer.row(drop).await?;
        }
        Ok(parts)
    }

    async fn preload(&self, site: &Site, observer: &Observer, key: &str) -> anyhow::Result<()> {
        let keys = match key {
            "limit_key" => self.limit_keys,
            "ordering_key" => self.ordering_keys,
            _ => self.tenants,
        };
        let (column, value) = match key {
            "" => (String::new(), String::new()),
            key => (format!(", {key}"), format!(", 'key ' || i % {keys}")),
        };
        let progress = Progress::new("preload", self.tasks, site.quiet());
        for first in (0..self.tasks).step_by(usize::try_from(BATCH)?) {
            let last = self.tasks.min(first + BATCH) - 1;
            let insert = format!(
                "insert into tuskline.task (lambda, payload{column}) \
                 select 'noop', '{{}}'{value} from generate_series({first}, {last}) as i"
            );
            observer.execute(&insert).await?;
            progress.further(last + 1 - first);
        }
        Ok(())
    }
}
