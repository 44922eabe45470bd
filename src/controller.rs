//! The host controller: runs lambdas in processes of any language (row 7 of the paper: isolation by processes).
//!
//! ```text
//! guardian ──┬── controller ── PostgreSQL      (a worker of the SDK: claims, leases, heartbeats, results)
//!            ├── zygote      ╮
//!            └── executors   ╯── unix socket of the controller (`wire`)
//! ```
//!
//! It promises:
//! - An attempt goes to another process only after its own has ended, with all that it had started: the pidfd says
//!   so, not the process. A deadline, a cancel past its grace, a memory limit and a lost lease end the process.
//! - Neighbours of such an attempt go back uncharged. A process that ends by itself charges each of its attempts
//!   one crash, with the cause. A task with a crash on record then runs alone.
//! - Where the controller dies or stands still, the guardian ends the executors before the leases can end.
//!
//! It must never decide what a result leads to: that is the worker's, and the database's.

pub mod environment;
#[cfg(mutants)]
mod fault_injection;
pub mod guardian;
mod hand_out;
mod incoming;
mod link;
mod output;
mod process;
mod processes;
mod registrations;
mod socket;
pub mod start;
mod wire;
pub mod wire_log;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tokio::net::UnixListener;
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tuskline_sdk::{Address, WorkerConfig};

use hand_out::{Graces, HandOut};
use link::Link;
use output::Output;
use processes::{Processes, Program};
use registrations::{Registering, Registrations};
use socket::Answering;
use wire_log::WireLog;

/// How long executors may take to exit by themselves after a drain.
const EXIT: Duration = Duration::from_secs(2);
/// How long executors may obey where the lease is lost, at most. The worker's own time for that is a third of M,
/// and after the grace processes have to end.
const LEASE_GRACE: Duration = Duration::from_millis(50);
/// A drain of the worker has no limit of its own.
const NO_LIMIT: Duration = Duration::from_secs(365 * 86_400);

/// The processes to run, and their limits.
#[derive(Debug, Clone)]
pub struct Options {
    /// The database.
    pub address: Address,
    /// Act as this role.
    pub role: Option<String>,
    /// Command of an executor, or of the zygote.
    pub command: Vec<String>,
    /// Executors; each lambda that is isolated has its own beside them.
    pub processes: usize,
    /// The command is a zygote's: it imports the application once, and forks the executors.
    pub is_zygote: bool,
    /// Where the socket is; none: in a directory of its own.
    pub socket: Option<PathBuf>,
    /// Define lambdas that are unknown, with default settings.
    pub define_missing: bool,
    /// Knobs of the worker. The graces count here, too.
    pub config: WorkerConfig,
    /// How long an executor with a free slot may ask for nothing.
    pub silence: Duration,
    /// Looks at the wire.
    pub wire: wire_log::Options,
}

/// Runs below a guardian until `shutdown`, then drains. Returns the exit code.
///
/// # Errors
/// There is no guardian, no place for the sockets, or the worker has ended.
pub async fn run(options: Options, shutdown: CancellationToken) -> anyhow::Result<u8> {
    start::arm().context("the controller needs its guardian")?;
    let (link, ended) = Link::open().context("the controller needs its guardian")?;
    let directory = std::env::var_os(environment::DIRECTORY).map(PathBuf::from);
    let directory = directory.context("the controller needs its guardian")?;
    let path = options.socket.clone().unwrap_or_else(|| directory.join("socket"));
    let listener = listen(&path)?;
    let log_path = directory.join("log");
    let log = listen(&log_path)?;
    let drain_grace = options.config.drain_grace;
    let graces = graces(&options.config, options.silence);
    let hand_out = Arc::new(HandOut::new(graces));
    let draining = CancellationToken::new();
    let registering = Registering {
        address: options.address,
        role: options.role,
        define_missing: options.define_missing,
        config: worker_config(options.config),
    };
    let bodies = bodies().context("no thread for the socket is to be had")?;
    let registrations =
        Registrations::new(registering, Arc::clone(&hand_out), Arc::clone(&link), bodies.clone());
    let registrations = Arc::new(registrations);
    let environment = processes::environment(&path.to_string_lossy(), &log_path.to_string_lossy());
    let program = Program {
        command: options.command,
        processes: options.processes,
        is_zygote: options.is_zygote,
        environment,
    };
    let roots = if program.is_zygote { 1 } else { program.processes };
    let processes =
        Arc::new(Processes::new(program, link, Arc::clone(&hand_out), draining.clone()));
    let mut parts = JoinSet::new();
    let theirs = Arc::clone(&processes);
    parts.spawn(async move { theirs.reap(ended).await });
    let theirs = Arc::clone(&hand_out);
    parts.spawn(async move { theirs.watch().await });
    let theirs = Arc::clone(&registrations);
    parts.spawn(async move { theirs.resize().await });
    let output = Arc::new(Output::new(Arc::clone(&hand_out)));
    parts.spawn(Arc::clone(&output).log(log));
    let wire_log = WireLog::open(&options.wire).context("the wire log cannot be written")?;
    let answering = Answering {
        wire_log,
        hand_out: Arc::clone(&hand_out),
        registrations: Arc::clone(&registrations),
        processes: Arc::clone(&processes),
        output,
        graces,
        runtime: Handle::current(),
    };
    parts.spawn_on(socket::serve(listener, Arc::new(answering)), &bodies);
    for _ in 0..roots {
        parts.spawn(Arc::clone(&processes).keep());
    }
    tracing::info!(socket = %path.display(), "the controller answers executors");

    let code = tokio::select! {
        () = shutdown.cancelled() => 0,
        () = processes.wrong.cancelled() => 2,
        () = registrations.failed.cancelled() => 1,
    };
    draining.cancel();
    hand_out.drain();
    drain(drain_grace, graces.cancel, &hand_out, &registrations).await;
    until_exited(&processes).await;
    Ok(code)
}

fn graces(config: &WorkerConfig, silence: Duration) -> Graces {
    let lease = LEASE_GRACE.min(config.watchdog_margin / 12);
    Graces { cancel: config.cancel_grace, lease, silence }
}

fn listen(path: &Path) -> anyhow::Result<UnixListener> {
    socket::bind(path).with_context(|| format!("cannot listen on {}", path.display()))
}

/// One thread for the socket and for the bodies that wait for it. On several, each answer would wake another one:
/// seven changes of threads for each task of an executor with one slot.
fn bodies() -> std::io::Result<Handle> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let handle = runtime.handle().clone();
    // It ends with the process.
    let serve = move || runtime.block_on(std::future::pending::<()>());
    std::thread::Builder::new().name("tuskline-socket".into()).spawn(serve)?;
    Ok(handle)
}

/// Executors have heard of the drain, and exit by themselves. The guardian ends the rest.
async fn until_exited(processes: &Processes) {
    if tokio::time::timeout(EXIT, processes.until_gone()).await.is_err() {
        tracing::warn!(after = ?EXIT, "executors did not exit after the drain, and are ended");
    }
}

/// Lets tasks in hand finish, then tells them to stop.
async fn drain(grace: Duration, cancel: Duration, tasks: &HandOut, worker: &Registrations) {
    if tokio::time::timeout(grace, worker.drain()).await.is_ok() {
        return;
    }
    tracing::warn!(drain_grace = ?grace, "running tasks did not finish; telling them to stop");
    tasks.stop_all();
    let more = cancel * 2 + Duration::from_secs(5);
    if tokio::time::timeout(more, worker.drain()).await.is_err() {
        tracing::error!("the worker did not end in order");
    }
}

/// A registration that was replaced drains until its attempts have ended.
fn worker_config(config: WorkerConfig) -> WorkerConfig {
    let mut config = config;
    config.drain_grace = NO_LIMIT;
    config
}
