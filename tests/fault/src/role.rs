//! The processes that the injector starts, and does things to: clients, workers, store consumers.
//! Each is this same binary with an [`Order`] in its environment, and dies with the injector. Executors are
//! Python's.

mod body;
mod client;
mod host;
mod poison;
mod store_consumer;
mod trace;
mod worker;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use tuskline_history::{Actor, Role, Writer};
use tuskline_sdk::WorkerConfig;

pub use host::{
    EXECUTED, EXECUTED_ALONE, EXECUTED_LONG, HOSTED, environment as host_environment, python,
};
pub use worker::{
    BRITTLE, CONTROLLED, GATED, LAMBDAS, LIMITED, ORDERED, PARTS, PILL, RATED, broken,
};

/// Environment variable with the order of a child.
pub const ORDER: &str = "TUSKLINE_FAULT_ORDER";

/// The settings of a child process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Order {
    pub role: Role,
    /// Where the database is reached: a door of the proxy.
    pub url: String,
    /// Directory of the history.
    pub history: PathBuf,
    /// Directory of the tasks' lock files.
    pub locks: PathBuf,
    pub timings: Timings,
    pub load: Load,
    /// Number of this child, unlike any other's of the run: the upper half of its op numbers.
    pub number: u64,
}

/// HB, T, M and L.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Timings {
    pub heartbeat_ms: u64,
    pub heartbeat_timeout_ms: u64,
    pub self_termination_ms: u64,
    pub margin_ms: u64,
    pub lease_ms: u64,
    /// Longest wait for the answer to any other call.
    pub request_timeout_ms: u64,
}

/// The load of a client.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Load {
    /// Tasks a second and client.
    pub tasks_per_second: u32,
    /// Among single tasks, one in so many is a poison pill, which kills three workers; 0: none is.
    pub pill_one_in: u32,
    /// In lambda `slow`, a task in so many takes longer than a lease. Without such tasks, no
    /// overlap could be seen. With many, few would end between two kills.
    pub long_one_in: u32,
    /// How long such a one takes at most; 2.2 s at least.
    pub long_most_ms: u64,
    /// Three in four tasks are of lambdas that keep an order, have a limit or meet gates.
    pub controlled: bool,
    /// A fifth of the calls schedule a chain.
    pub chained: bool,
    /// Every other call schedules tasks that need a part, which may be broken.
    pub brittle: bool,
}

impl Timings {
    /// For runs of minutes: every recovery is over in seconds.
    pub const QUICK: Self = Self {
        heartbeat_ms: 250,
        heartbeat_timeout_ms: 250,
        self_termination_ms: 1_000,
        margin_ms: 900,
        lease_ms: 2_000,
        request_timeout_ms: 3_000,
    };

    /// The timings of users that set nothing.
    pub fn usual() -> Self {
        let usual = WorkerConfig::default();
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Self {
            heartbeat_ms: ms(usual.heartbeat_period),
            heartbeat_timeout_ms: ms(usual.heartbeat_timeout),
            self_termination_ms: ms(usual.self_termination),
            margin_ms: ms(usual.watchdog_margin),
            lease_ms: ms(usual.lease),
            request_timeout_ms: ms(usual.request_timeout),
        }
    }

    fn worker_config(self) -> WorkerConfig {
        let ms = Duration::from_millis;
        let mut config = WorkerConfig::default();
        config.heartbeat_period = ms(self.heartbeat_ms);
        config.heartbeat_timeout = ms(self.heartbeat_timeout_ms);
        config.self_termination = ms(self.self_termination_ms);
        config.watchdog_margin = ms(self.margin_ms);
        config.lease = ms(self.lease_ms);
        config.request_timeout = ms(self.request_timeout_ms);
        config.drain_grace = ms(self.self_termination_ms);
        config.cancel_grace = ms(self.heartbeat_ms * 2);
        config
    }
}

/// Carries out the order in the environment, if there is one.
///
/// # Errors
/// The order is not one, or what the role fails with.
pub fn obey() -> anyhow::Result<bool> {
    let Some(text) = std::env::var_os(ORDER) else { return Ok(false) };
    die_with_parent()?;
    let text = text.into_string().ok().context("the order is not text")?;
    let order: Order = serde_json::from_str(&text).context("the order is not one")?;
    if order.role == Role::Host && !host::is_guarded() {
        host::guard()?;
    }
    host::start_executor();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async move {
        match order.role {
            Role::Client => {
                client::schedule(&order, Writer::open(&order.history, Actor::Client)?).await
            }
            Role::Worker => {
                worker::work(&order, Writer::open(&order.history, Actor::Executor)?).await
            }
            Role::StoreConsumer => store_consumer::serve(&order).await,
            Role::Host => {
                host::control(&order, Writer::open(&order.history, Actor::Executor)?).await
            }
            Role::Server | Role::Pooler => anyhow::bail!("a server is no role of this binary"),
        }
    })?;
    Ok(true)
}

fn die_with_parent() -> anyhow::Result<()> {
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    Ok(())
}
