//! The bench's other process: a worker with bodies that do next to nothing, a server, or producers.
//!
//! Ends in order when its standard input closes, and then says on standard output what it executed.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;
use tuskline_sdk::{Address, Context, Lambda, Outcome, Worker, WorkerConfig};

use super::latencies::Latencies;
use super::proc::monotonic_ns;
use super::producer::Load;
use tuskline::serve;

/// How long a body of [`Part::Slow`] takes.
const SLOW: Duration = Duration::from_millis(50);

/// Kind of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// A worker whose bodies do nothing.
    Noop,
    /// A worker whose bodies note how late they start, and fail the first time when the payload says so.
    Stamped,
    /// A worker whose bodies take 50 ms.
    Slow,
    /// A server with all its roles.
    Server,
    /// Connections that schedule.
    Producer,
}

/// Arguments of the hidden command.
#[derive(Debug, Clone, clap::Args)]
pub struct WorkerOptions {
    /// Database on the server of --database-url.
    #[arg(long)]
    pub database: String,
    /// Kind of process to be.
    #[arg(long, value_enum)]
    pub part: Part,
    /// Names of the lambdas to serve.
    #[arg(long = "lambda")]
    pub lambdas: Vec<String>,
    /// Heartbeat period in ms; every other timing in proportion. Default: those of the SDK.
    #[arg(long)]
    pub heartbeat_ms: Option<u64>,
    /// Stop claiming after so many bodies.
    #[arg(long)]
    pub limit: Option<u64>,
    /// Most tasks in one exchange. Default: that of the SDK.
    #[arg(long)]
    pub max_batch: Option<usize>,
    /// The tasks that producers schedule, as JSON.
    #[arg(long, value_parser = read_load)]
    pub load: Option<Load>,
}

/// Results of a process.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Done {
    /// Bodies that ran.
    pub executed: u64,
    /// From the insert call to the start of the body, by phase: value in µs and how often.
    pub phases: BTreeMap<u8, Vec<(u64, u64)>>,
}

/// Payload of the tasks whose start is timed, or that may fail at first.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Stamp {
    /// Monotonic clock just before the insert call, or when the task is due; 0: not recorded.
    pub at_ns: u64,
    pub phase: u8,
    pub fails_first: bool,
    #[serde(skip_deserializing)]
    pub pad: String,
}

fn read_load(text: &str) -> Result<Load, String> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}

/// Shared results, to which all bodies of a process write.
#[derive(Default)]
struct Tally {
    executed: AtomicU64,
    limit: Option<u64>,
    enough: CancellationToken,
    phases: Mutex<BTreeMap<u8, Latencies>>,
}

impl Tally {
    fn count(&self) {
        let executed = self.executed.fetch_add(1, Ordering::Relaxed) + 1;
        if self.limit.is_some_and(|limit| executed >= limit) {
            self.enough.cancel();
        }
    }

    fn time(&self, stamp: &Stamp) {
        if stamp.at_ns == 0 {
            return;
        }
        let late_us = monotonic_ns().saturating_sub(stamp.at_ns) / 1000;
        let Ok(mut phases) = self.phases.lock() else { return };
        if !phases.contains_key(&stamp.phase) {
            phases.extend(Latencies::none().map(|none| (stamp.phase, none)));
        }
        phases.entry(stamp.phase).and_modify(|seen| seen.record(late_us));
    }

    fn done(&self) -> Done {
        let executed = self.executed.load(Ordering::Relaxed);
        let phases =
            self.phases.lock().map(|all| all.iter().map(|(n, l)| (*n, l.pairs())).collect());
        Done { executed, phases: phases.unwrap_or_default() }
    }
}

/// Is the process that the arguments ask for, until standard input closes.
///
/// # Errors
/// As [`Worker::run`] and [`serve::run`].
pub async fn work(address: Address, options: WorkerOptions) -> anyhow::Result<()> {
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    let address = address.with(|config| {
        config.dbname(&options.database);
    });
    let stop = CancellationToken::new();
    let closed = stop.clone();
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        closed.cancel();
    });
    if options.part == Part::Server {
        return Ok(serve::run(address, serve::Options::default(), stop).await?);
    }
    if let Some(load) = options.load {
        return say(&load.produce(&address, &stop).await?);
    }
    let tally = Arc::new(Tally { limit: options.limit, enough: stop.clone(), ..Tally::default() });
    let mut worker = Worker::builder(address).until(stop.cancelled_owned());
    for name in &options.lambdas {
        worker = worker.serve(lambda(name, options.part, &tally));
    }
    let mut bounds = match options.heartbeat_ms {
        Some(period_ms) => WorkerConfig::with_heartbeat(Duration::from_millis(period_ms)),
        None => WorkerConfig::default(),
    };
    bounds.max_batch = options.max_batch.unwrap_or(bounds.max_batch);
    worker.config(bounds).run().await?;
    say(&tally.done())
}

fn say(done: &Done) -> anyhow::Result<()> {
    Ok(writeln!(std::io::stdout(), "{}", serde_json::to_string(done)?)?)
}

fn lambda(name: &str, part: Part, tally: &Arc<Tally>) -> Lambda {
    let tally = Arc::clone(tally);
    match part {
        Part::Stamped => Lambda::named(name, move |stamp: Stamp, context: Context| {
            let is_first = context.attempt() <= 1;
            if is_first {
                tally.time(&stamp);
            }
            tally.count();
            let fails = stamp.fails_first && is_first;
            async move { if fails { Outcome::retriable("as asked") } else { Outcome::Success(None) } }
        }),
        Part::Slow => Lambda::named(name, move |_: serde::de::IgnoredAny| {
            tally.count();
            tokio::time::sleep(SLOW)
        }),
        Part::Noop | Part::Server | Part::Producer => {
            Lambda::named(name, move |_: serde::de::IgnoredAny| {
                tally.count();
                async {}
            })
        }
    }
}
